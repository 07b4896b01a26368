/*
 * checkpoint_forge DIR N HOW: changes checkpoint file N of a recording, all checksums right, those
 * of the later files too.
 *
 *     instant   the file says that it is 1000 positions and ns later (where the next one is nearer
 *               than that, half as far as it is); its state does not
 *     both      file and state say so
 *     state     RSP of its state is another one
 *     past      file and state lie after the recording's end
 *     page      a byte of the first page that it has is another one
 *     missing   it has no pages at all
 *     text      the first byte printed since the file before is another one
 *
 * Prints "nothing" and returns 1 where the file has no such thing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chunks.h"
#include "cpu/vcpu.h"
#include "tests/fuzz/checkpoint_edit.h"

/* Where the state has a field of the CPU, its first component. */
static u8 *cpu_field(struct checkpoint_edit *e, const char *name)
{
    u8 *at = e->meta;
    for (size_t i = 0; i < vcpu_state_desc.nfields; i++) {
        const struct state_field *f = &vcpu_state_desc.fields[i];
        if (!strcmp(f->name, name))
            return at;
        at += (size_t)f->elem * f->count;
    }
    abort();
}

static void later(struct checkpoint_edit *e, u64 by, bool state)
{
    e->h.position += by;
    e->h.time += by;
    if (state)
        memcpy(cpu_field(e, "position"), &e->h.position, sizeof(e->h.position));
}

/* How far a file can be moved without passing the next one. */
static u64 room(const char *dir, unsigned n, const struct checkpoint_edit *e)
{
    char path[4200];
    struct checkpoint_edit next;
    u64 by = 1000;
    snprintf(path, sizeof(path), "%s/checkpoints/%06u", dir, n + 1);
    if (!checkpoint_edit_open(&next, path))
        return by;
    u64 gap = next.h.position - e->h.position;
    checkpoint_edit_drop(&next);
    return MIN(gap / 2, by);
}

/* Where the pages' tables are in what it packs. */
static u8 *page_table(struct checkpoint_edit *e)
{
    return e->meta + e->h.state_size + e->h.output_new[OUT_CONSOLE] + e->h.output_new[OUT_DEBUG];
}

/* Another first page, of which only the place is the same: its block is stored as it is. */
static bool other_page(struct checkpoint_edit *e)
{
    struct checkpoint_block b;
    u8 *entry = page_table(e) + e->h.pages * sizeof(u32), raw[BLOCK_PAGES * PAGE_SIZE];
    if (!e->h.blocks)
        return false;
    memcpy(&b, entry, sizeof(b));
    u8 *from = e->data + sizeof(e->h);
    if (!chunk_unpack(from, b.packed, raw, b.raw))
        abort();
    raw[PAGE_SIZE / 2] ^= 1;
    size_t rest = e->head - sizeof(e->h) - b.packed;
    u8 *data = malloc(e->head + b.raw);
    memcpy(data + sizeof(e->h), raw, b.raw);
    memcpy(data + sizeof(e->h) + b.raw, from + b.packed, rest);
    free(e->data);
    e->data = data;
    e->head += b.raw - b.packed;
    b.packed = b.raw;
    b.hash = sha256_bytes(raw, b.raw);
    memcpy(entry, &b, sizeof(b));
    return true;
}

static bool no_pages(struct checkpoint_edit *e)
{
    if (!e->h.pages)
        return false;
    e->head = sizeof(e->h);
    e->raw = e->h.meta_raw = (u32)(page_table(e) - e->meta);
    e->h.pages = e->h.blocks = 0;
    return true;
}

static bool other_text(struct checkpoint_edit *e)
{
    e->meta[e->h.state_size] ^= 1;
    return e->h.output_new[OUT_CONSOLE];
}

int main(int argc, char **argv)
{
    char path[4200];
    if (argc != 4)
        return 2;
    u64 parent = 0;
    unsigned which = (unsigned)atoi(argv[2]), n = which;
    bool done = true;
    for (;; n++) {
        struct checkpoint_edit e;
        snprintf(path, sizeof(path), "%s/checkpoints/%06u", argv[1], n);
        if (!done || !checkpoint_edit_open(&e, path))
            break;
        if (n > which)
            e.h.parent = parent;
        else if (!strcmp(argv[3], "state"))
            cpu_field(&e, "gpr")[RSP * 8] ^= 0x40;
        else if (!strcmp(argv[3], "page"))
            done = other_page(&e);
        else if (!strcmp(argv[3], "missing"))
            done = no_pages(&e);
        else if (!strcmp(argv[3], "text"))
            done = other_text(&e);
        else {
            u64 by = strcmp(argv[3], "past") ? room(argv[1], n, &e) : 1ull << 40;
            later(&e, by, strcmp(argv[3], "instant"));
            done = by;
        }
        parent = checkpoint_edit_close(&e, path);
    }
    if (!done || n == which)
        puts("nothing");
    return !done || n == which;
}
