/* See program_maps.h. A node of a maple tree (kernel's documentation: core-api/maple_tree) has its
 * kind in the low byte of the pointer to it; the i-th slot is of what is up to the i-th pivot. */
#include "inspect/program_maps.h"

#include <stdlib.h>

#include "inspect/btf.h"
#include "machine/machine.h"

#define MAPS_MAX  65536u
#define NODES_MAX 65536u
#define LEVELS    16u
#define NODE_MASK 0xffull
#define SLOTS_MAX 16u

enum { KIND_LEAF = 1, KIND_RANGE, KIND_ARANGE };

struct walk {
    const struct program_layout *l;
    struct machine *m;
    struct program_map *list;
    u32 count, room, nodes;
    bool one; /* only the one with `va` */
    u64 va;
};

void program_maps_learn(struct program_layout *l, const struct btf *b)
{
    const struct btf_place members[] = {{"vm_area_struct", "vm_start", &l->map_start},
                                        {"vm_area_struct", "vm_end", &l->map_end},
                                        {"vm_area_struct", "vm_pgoff", &l->map_offset},
                                        {"vm_area_struct", "vm_flags", &l->map_flags},
                                        {"vm_area_struct", "vm_ops", &l->map_ops},
                                        {"vm_area_struct", "vm_file", &l->map_file}};
    l->has_maps = btf_members(b, members, ARRAY_SIZE(members));
    l->maps_tree = btf_member(b, "mm_struct", "mm_mt.ma_root", &l->maps, NULL) &&
                   btf_member(b, "maple_range_64", "pivot", &l->range_pivot, NULL) &&
                   btf_member(b, "maple_range_64", "slot", &l->range_slot, NULL) &&
                   btf_member(b, "maple_arange_64", "pivot", &l->arange_pivot, NULL) &&
                   btf_member(b, "maple_arange_64", "slot", &l->arange_slot, NULL);
    l->has_vdso = btf_member(b, "mm_struct", "context.vdso", &l->vdso, NULL) &&
                  btf_member(b, "mm_struct", "context.vdso_image", &l->vdso_image, NULL) &&
                  btf_member(b, "vdso_image", "data", &l->vdso_data, NULL) &&
                  btf_member(b, "vdso_image", "size", &l->vdso_size, NULL);
    if (!l->maps_tree)
        l->has_maps = l->has_maps && btf_member(b, "mm_struct", "mmap", &l->maps, NULL) &&
                      btf_member(b, "vm_area_struct", "vm_next", &l->map_next, NULL);
}

static bool word_at(const struct walk *w, u64 at, u64 *out)
{
    return program_word(w->l, w->m, at, out);
}

/* False: enough. */
static bool add(struct walk *w, u64 area)
{
    struct program_map map;
    if (!word_at(w, area + w->l->map_start, &map.start) ||
        !word_at(w, area + w->l->map_end, &map.end) ||
        !word_at(w, area + w->l->map_offset, &map.offset) ||
        !word_at(w, area + w->l->map_flags, &map.flags) ||
        !word_at(w, area + w->l->map_file, &map.file) ||
        !word_at(w, area + w->l->map_ops, &map.ops) || map.end <= map.start)
        return false;
    map.offset *= PAGE_SIZE;
    if (w->one && (w->va < map.start || w->va >= map.end))
        return true;
    if (w->count == w->room) {
        u32 room = MAX(2 * w->room, 64u);
        struct program_map *list = room > MAPS_MAX ? NULL : realloc(w->list, room * sizeof(*list));
        if (!list)
            return false;
        w->list = list;
        w->room = room;
    }
    w->list[w->count++] = map;
    return !w->one;
}

/* A node whose last pivot, which it may lack, is `max`. */
static bool walk_node(struct walk *w, u64 entry, u64 max, unsigned depth)
{
    const struct program_layout *l = w->l;
    u64 node = entry & ~NODE_MASK;
    unsigned kind = entry >> 3 & 15;
    bool arange = kind == KIND_ARANGE;
    u32 pivots = arange ? l->arange_pivot : l->range_pivot;
    u32 slots = arange ? l->arange_slot : l->range_slot;
    unsigned count = (slots - pivots) / 8 + 1;
    if (depth == LEVELS || ++w->nodes > NODES_MAX || kind < KIND_LEAF || kind > KIND_ARANGE)
        return false;
    for (unsigned i = 0; i < MIN(count, SLOTS_MAX); i++) {
        u64 pivot = max, slot;
        if (i + 1 < count && !word_at(w, node + pivots + 8 * i, &pivot))
            return false;
        if (!pivot && i)
            pivot = max;
        if (!word_at(w, node + slots + 8 * i, &slot))
            return false;
        bool before = w->one && w->va > pivot;
        if (slot && !before &&
            !(kind == KIND_LEAF ? slot & 3 || add(w, slot) : walk_node(w, slot, pivot, depth + 1)))
            return false;
        if (pivot >= max || (w->one && w->va <= pivot))
            break;
    }
    return true;
}

static void walk(struct walk *w, const struct program *p)
{
    u64 at = 0;
    if (!w->l->has_maps || !p->mm || !word_at(w, p->mm + w->l->maps, &at))
        return;
    if (w->l->maps_tree) {
        if ((at & 3) == 2 && at > 4096)
            walk_node(w, at, ~0ull, 0);
        else if (at && !(at & 3))
            add(w, at);
        return;
    }
    for (u32 i = 0; at && i < MAPS_MAX && add(w, at); i++)
        if (!word_at(w, at + w->l->map_next, &at))
            break;
}

u32 program_maps(const struct program *p, const struct program_layout *l, struct machine *m,
                 struct program_map **out)
{
    struct walk w = {.l = l, .m = m};
    walk(&w, p);
    *out = w.list;
    return w.count;
}

bool program_map_at(const struct program *p, const struct program_layout *l, struct machine *m,
                    u64 va, struct program_map *out)
{
    struct walk w = {.l = l, .m = m, .list = out, .room = 1, .one = true, .va = va};
    walk(&w, p);
    return w.count == 1;
}
