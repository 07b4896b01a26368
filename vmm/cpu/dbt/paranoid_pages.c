/*
 * Which pages of memory were written: in a window, whose state they are, and since the engine's
 * user last asked. The core notes each page's first write; whether it notes all is looked at here,
 * too.
 */
#include "paranoid.h"

#include <errno.h>

#include "cpu/x86/run.h"

#include <xxhash.h>

#define IN_WINDOW 1
#define FOR_USER  2

u64 paranoid_hash(const struct paranoid *p, u64 index)
{
    return XXH3_64bits(p->d->c.ram->host + index * PAGE_SIZE, PAGE_SIZE);
}

static void note_page(struct paranoid *p, u64 index)
{
    if (!(p->seen[index] & IN_WINDOW))
        p->in_window[p->nin_window++] = (u32)index;
    if (p->user_tracks && !(p->seen[index] & FOR_USER))
        p->for_user[p->nfor_user++] = (u32)index;
    p->seen[index] |= (u8)(IN_WINDOW | (p->user_tracks ? FOR_USER : 0));
}

/* What the core has noted so far. */
static void collect(struct paranoid *p)
{
    size_t n;
    const u32 *list = core_ops.written(&p->d->c.base, &n);
    for (size_t i = 0; i < n; i++)
        note_page(p, list[i]);
}

static void forget_window(struct paranoid *p)
{
    for (u64 i = 0; i < p->nin_window; i++)
        p->seen[p->in_window[i]] &= (u8)~IN_WINDOW;
    p->nin_window = 0;
}

void pages_look(struct paranoid *p, struct outcome *to)
{
    collect(p);
    for (u64 i = 0; i < p->nin_window; i++) {
        u64 index = p->in_window[i];
        p->known[index] = paranoid_hash(p, index);
        if (to)
            to->pages[to->npages++] = (struct page_hash){(u32)index, p->known[index]};
    }
    forget_window(p);
}

void pages_look_at_all(struct paranoid *p, bool first)
{
    const u64 together = 512;
    struct core *c = &p->d->c;
    u64 zero = 0;
    for (u64 i = 0; i < c->shared->npages; i += together) {
        u64 n = MIN(together, c->shared->npages - i);
        bool untouched = ram_untouched(c->ram, i * PAGE_SIZE, n * PAGE_SIZE);
        for (u64 k = i; k < i + n; k++) {
            u64 h = untouched && zero ? zero : paranoid_hash(p, k);
            zero = untouched ? h : zero;
            if (!first && h != p->known[k] && paranoid_failed_first(p, p->number))
                err_set(&p->failed, -EIO,
                        "paranoid: the page at guest-physical address %llx changed between "
                        "positions %llu and %llu, and nobody noted it as written",
                        (unsigned long long)ram_page_gpa(c->ram, k),
                        (unsigned long long)p->looked_at, (unsigned long long)position(c));
            p->known[k] = h;
        }
    }
    p->looked_at = position(c);
}

const u32 *pages_written(const struct engine *e, size_t *n)
{
    struct paranoid *p = paranoid_of((struct engine *)(uintptr_t)e);
    collect(p);
    *n = p->nfor_user;
    return p->user_tracks ? p->for_user : NULL;
}

int pages_written_reset(struct engine *e)
{
    struct paranoid *p = paranoid_of(e);
    collect(p);
    for (u64 i = 0; i < p->nfor_user; i++)
        p->seen[p->for_user[i]] &= (u8)~FOR_USER;
    p->nfor_user = 0;
    p->user_tracks = true;
    return core_ops.written_reset(e);
}
