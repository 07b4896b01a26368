/* See perf.h. perf-map: tools/perf/Documentation/jit-interface.txt of Linux. */
#include "cmd/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file_io.h"
#include "base/text.h"
#include "host/clock.h"
#include "inspect/guest_linux.h"

#define MAP_DIRECTORY "/tmp" /* perf looks nowhere else */
#define MAP_NAME      "perf-%d.map"
#define KERNEL_HALF   (1ull << 63)

struct perf_piece {
    const u8 *host;
    u64 time; /* for jitdump only */
    u32 size;
    u8 kind; /* enum engine_code_kind */
    bool user;
    union {
        gva_t guest;      /* of a block */
        const char *name; /* of the others */
    };
};

static bool wanted(const struct perf *p)
{
    return p->options.map || p->options.dir;
}

int perf_open(struct perf *p, const struct perf_options *options, enum engine_kind engine,
              struct err *err)
{
    *p = (struct perf){.options = *options};
    if (wanted(p) && engine != ENGINE_DBT)
        return err_set(
            err, -ENOTSUP,
            "--perf-map and --jitdump name translated code, and the engine %s translates "
            "none of the guest's: add --engine=dbt",
            engine_kind_name(engine));
    if (options->map) {
        char name[32];
        snprintf(name, sizeof(name), MAP_NAME, getpid());
        int dir = open(MAP_DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int fd = dir < 0 ? -1 : file_create_at(dir, name);
        p->map = fd < 0 ? NULL : fdopen(fd, "w");
        int code = p->map ? 0 : err_errno(err, "cannot create " MAP_DIRECTORY "/%s", name);
        if (dir >= 0)
            close(dir);
        if (fd >= 0 && !p->map)
            close(fd);
        if (code)
            return code;
    }
    return options->dir ? jitdump_open(&p->jitdump, options->dir, err) : 0;
}

static void made(void *opaque, const struct engine_code *code)
{
    struct perf *p = opaque;
    if (p->n == p->room) {
        u32 room = p->room ? 2 * p->room : 1024;
        struct perf_piece *list = reallocarray(p->list, room, sizeof(*list));
        if (!list) {
            p->lost++;
            return;
        }
        p->list = list;
        p->room = room;
    }
    struct perf_piece *e = &p->list[p->n++];
    *e = (struct perf_piece){.host = code->host,
                             .time = p->jitdump.file ? host_ns() : 0,
                             .size = code->size,
                             .kind = (u8)code->kind,
                             .user = code->user};
    if (code->kind == ENGINE_CODE_BLOCK)
        e->guest = code->guest;
    else
        e->name = code->name;
    if (code->kind == ENGINE_CODE_STUB)
        p->stubs = p->n;
}

/* ---- names ---- */

/* The symbol's; NULL: it has none. */
static const char *function_of(const struct symbols *s, const struct perf_piece *e, u64 *offset)
{
    return e->kind == ENGINE_CODE_BLOCK && !e->user && e->guest >= KERNEL_HALF
               ? symbols_find(s, e->guest, offset)
               : NULL;
}

/* What has no symbol; blocks by their own address, or their page's. */
static void plain_name(const struct perf_piece *e, bool page, char *out, size_t size)
{
    if (e->kind == ENGINE_CODE_BLOCK)
        snprintf(out, size, "%s:0x%" PRIx64, e->user ? "user" : "kernel",
                 page ? e->guest & ~(u64)(PAGE_SIZE - 1) : e->guest);
    else
        snprintf(out, size, "reprise:%s%s", e->kind == ENGINE_CODE_SINGLE ? "one " : "", e->name);
}

static void write_map(struct perf *p, const struct symbols *s)
{
    char name[SYMBOL_NAME_MAX + 32], clean[sizeof(name)];
    for (u32 i = 0; i < p->n; i++) {
        const struct perf_piece *e = &p->list[i];
        u64 offset;
        const char *function = function_of(s, e, &offset);
        if (!function)
            plain_name(e, false, name, sizeof(name));
        else if (offset)
            snprintf(name, sizeof(name), "%s+0x%" PRIx64, function, offset);
        else
            snprintf(name, sizeof(name), "%s", function);
        fprintf(p->map, "%" PRIxPTR " %x %s\n", (uintptr_t)e->host, e->size,
                text_printable(name, clean, sizeof(clean)));
    }
}

/* perf makes a file of each record: what lies side by side and has one name is one. */
static void write_jitdump(struct perf *p, u32 first, const struct symbols *s)
{
    char name[SYMBOL_NAME_MAX + 32], next[sizeof(name)], clean[sizeof(name)];
    for (u32 i = first, n; i < p->n; i += n) {
        const struct perf_piece *e = &p->list[i], *last = e;
        for (n = 0; i + n < p->n; n++) {
            const struct perf_piece *o = &p->list[i + n];
            const char *function = function_of(s, o, NULL);
            if (function)
                snprintf(next, sizeof(next), "%s", function);
            else
                plain_name(o, true, next, sizeof(next));
            if (!n)
                strcpy(name, next);
            else if (strcmp(name, next) || (u64)(o->host - (last->host + last->size)) >= 64)
                break;
            last = o;
        }
        jitdump_add(&p->jitdump, text_printable(name, clean, sizeof(clean)), e->host,
                    (u64)(last->host + last->size - e->host), e->time);
    }
}

/* Moves the pieces at these addresses after the others, both in their order; returns how many stay.
 * -1: no memory. */
static i64 part(struct perf *p, const u8 *host, u64 size)
{
    struct perf_piece *gone = malloc(MAX(p->n, 1u) * sizeof(*gone));
    u32 stay = 0, n = 0;
    if (!gone)
        return -1;
    for (u32 i = 0; i < p->n; i++)
        if (i >= p->stubs && (u64)(p->list[i].host - host) < size)
            gone[n++] = p->list[i];
        else
            p->list[stay++] = p->list[i];
    for (u32 i = 0; i < n; i++)
        p->list[stay + i] = gone[i];
    free(gone);
    return stay;
}

/* In the middle of a run; symbols are read without looking at the CPU but for its page tables. */
static void dropped(void *opaque, const void *host, u64 size)
{
    struct perf *p = opaque;
    struct symbols symbols = {0};
    struct err none;
    p->drops++;
    i64 stay = part(p, host, size);
    if (stay < 0) {
        p->lost += p->n - p->stubs;
        stay = p->stubs;
    } else if (p->jitdump.file) {
        guest_symbols_read(&symbols, p->m, &none);
        write_jitdump(p, (u32)stay, &symbols);
        symbols_free(&symbols);
    }
    p->n = (u32)stay;
}

void perf_attach(struct perf *p, struct machine *m)
{
    const struct engine_code_log log = {made, dropped, p};
    if (!wanted(p))
        return;
    p->m = m;
    int code = machine_set_code_log(m, &log);
    CHECK(!code, "an engine that translates nothing");
}

int perf_finish(struct perf *p, struct err *err)
{
    struct symbols symbols = {0};
    struct err none = {0};
    int code = 0;
    if (!p->m)
        return 0;
    p->finished = true;
    bool named = !guest_symbols_read(&symbols, p->m, &none);
    if (p->map) {
        write_map(p, &symbols);
        if (fflush(p->map) || ferror(p->map))
            code = err_errno(err, "cannot write " MAP_DIRECTORY "/" MAP_NAME, getpid());
        fprintf(stderr, "reprise: " MAP_DIRECTORY "/" MAP_NAME " names %u pieces of code%s%s\n",
                getpid(), p->n, named ? "" : " by addresses: ", named ? "" : none.text);
        if (p->drops)
            fprintf(stderr,
                    "reprise: code was dropped from the code cache %" PRIu64
                    " times: earlier samples there have the names of what came after it "
                    "(--jitdump has them apart)\n",
                    p->drops);
    }
    if (p->jitdump.file) {
        write_jitdump(p, 0, &symbols);
        struct err closing;
        int closed = jitdump_close(&p->jitdump, &closing);
        if (closed && !code)
            *err = closing;
        code = code ? code : closed;
    }
    if (p->lost)
        fprintf(stderr, "reprise: no memory for the names of %" PRIu64 " pieces of code\n",
                p->lost);
    symbols_free(&symbols);
    return code;
}

void perf_close(struct perf *p)
{
    struct err none;
    if (p->m)
        machine_set_code_log(p->m, NULL);
    if (p->map && !p->finished) {
        char path[64];
        snprintf(path, sizeof(path), MAP_DIRECTORY "/" MAP_NAME, getpid());
        unlink(path); /* refused where the sandbox is closed, and then the file is empty */
    }
    if (p->map)
        fclose(p->map);
    if (!p->finished)
        jitdump_discard(&p->jitdump, p->options.dir);
    jitdump_close(&p->jitdump, &none);
    free(p->list);
    *p = (struct perf){.map = NULL};
}
