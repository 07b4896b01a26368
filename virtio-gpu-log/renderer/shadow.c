/* See shadow.h. The table of all shadows is at file scope because a signal handler reads it. */
#define _GNU_SOURCE
#include "virtio-gpu-log/renderer/shadow.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Written pieces are unprotected, and compared, this much at a time. */
#define PIECE (16 * PAGE_SIZE)

static struct shadow **table;
static u32 used, room;
static u32 written; /* shadows whose `any` is set */
static struct sigaction previous;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static struct shadow *find(const u8 *address)
{
    for (u32 i = 0; i < used; i++)
        if (table[i] && address >= table[i]->shared &&
            address < table[i]->shared + table[i]->mapped)
            return table[i];
    return NULL;
}

static size_t piece_size(const struct shadow *s, size_t piece)
{
    return MIN((size_t)PIECE, s->mapped - piece * PIECE);
}

static bool is_dirty(const struct shadow *s, size_t piece)
{
    return s->dirty[piece / 64] >> piece % 64 & 1;
}

static void open_piece(struct shadow *s, size_t piece)
{
    if (is_dirty(s, piece))
        return;
    memcpy(s->before + piece * PIECE, s->own + piece * PIECE, piece_size(s, piece));
    s->dirty[piece / 64] |= 1ull << piece % 64;
    written += !s->any;
    s->any = true;
}

static bool open_at(struct shadow *s, const u8 *address)
{
    size_t piece = (size_t)(address - s->shared) / PIECE;
    open_piece(s, piece);
    if (!mprotect(s->shared + piece * PIECE, piece_size(s, piece), PROT_READ | PROT_WRITE))
        return true;
    /* The kernel has no more room for separate mappings: then all of it. */
    for (size_t i = 0; i * PIECE < s->mapped; i++)
        open_piece(s, i);
    return !mprotect(s->shared, s->mapped, PROT_READ | PROT_WRITE);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    while (atomic_flag_test_and_set(&busy))
        ;
    struct shadow *s = info->si_code == SEGV_ACCERR ? find(info->si_addr) : NULL;
    bool done = s && open_at(s, info->si_addr);
    atomic_flag_clear(&busy);
    if (!done)
        sigaction(SIGSEGV, &previous, NULL); /* a real one: happens again, and ends the process */
}

bool shadow_init(void)
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&act.sa_mask);
    return !sigaction(SIGSEGV, &act, &previous);
}

static bool enter(struct shadow *s)
{
    for (s->index = 0; s->index < used && table[s->index]; s->index++)
        ;
    if (s->index == room) {
        u32 more = room ? room * 2 : 64;
        struct shadow **grown = realloc(table, more * sizeof(*table));
        if (!grown)
            return false;
        table = grown;
        room = more;
    }
    if (s->index == used)
        used++;
    table[s->index] = s;
    return true;
}

struct shadow *shadow_create(u64 size)
{
    struct shadow *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->size = size;
    s->mapped = (size + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1);
    s->index = UINT32_MAX;
    s->own = s->shared = s->before = MAP_FAILED;
    s->dirty = calloc(s->mapped / PIECE / 64 + 1, sizeof(u64));
    if (!s->dirty)
        goto fail;
    s->own = mmap(NULL, s->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->own == MAP_FAILED)
        goto fail;
    /* An old size of 0 maps shared memory a second time. */
    s->shared = mremap(s->own, 0, s->mapped, MREMAP_MAYMOVE);
    s->before = mmap(NULL, s->mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->shared == MAP_FAILED || s->before == MAP_FAILED ||
        mprotect(s->shared, s->mapped, PROT_READ) || !enter(s))
        goto fail;
    return s;
fail:
    shadow_destroy(s);
    return NULL;
}

void shadow_destroy(struct shadow *s)
{
    if (!s)
        return;
    written -= s->any;
    if (s->index < used && table[s->index] == s)
        table[s->index] = NULL;
    if (s->own != MAP_FAILED)
        munmap(s->own, s->mapped);
    if (s->shared != MAP_FAILED)
        munmap(s->shared, s->mapped);
    if (s->before != MAP_FAILED)
        munmap(s->before, s->mapped);
    free(s->dirty);
    free(s);
}

void shadow_write(struct shadow *s, u64 offset, const void *bytes, size_t size)
{
    memcpy(s->own + offset, bytes, size);
    for (size_t i = offset / PIECE; s->any && i * PIECE < offset + size; i++) {
        if (!is_dirty(s, i))
            continue;
        u64 from = MAX(offset, (u64)i * PIECE), to = MIN(offset + size, (u64)(i + 1) * PIECE);
        memcpy(s->before + from, (const u8 *)bytes + (from - offset), to - from);
    }
}

void shadow_changes(struct shadow *s, void (*found)(void *opaque, u64 offset, size_t size),
                    void *opaque)
{
    size_t start = 0, end = 0; /* the run that is open, if start < end */
    if (!s->any)
        return;
    for (size_t piece = 0; piece * PIECE < s->mapped; piece++) {
        if (!is_dirty(s, piece))
            continue;
        size_t from = piece * PIECE, to = MIN(from + PIECE, s->size);
        for (size_t i = from; i < to; i++) {
            if (i + 8 <= to && !memcmp(s->own + i, s->before + i, 8)) {
                i += 7;
                continue;
            }
            if (s->own[i] == s->before[i])
                continue;
            if (end != i) {
                if (start < end)
                    found(opaque, start, end - start);
                start = i;
            }
            end = i + 1;
        }
        mprotect(s->shared + from, piece_size(s, piece), PROT_READ);
        s->dirty[piece / 64] &= ~(1ull << piece % 64);
    }
    if (start < end)
        found(opaque, start, end - start);
    s->any = false;
    written--;
}

bool shadow_any(void)
{
    return written;
}
