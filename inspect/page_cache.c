/* See page_cache.h. */
#include "inspect/page_cache.h"

#include "machine/machine.h"

#define LEVELS 11u /* of 6 bits */
#define FANOUT 64u
/* An inner entry of an XArray: a node, or below FANOUT << 2 a sibling's slot. */
#define NODE_TAG 2u
#define INNER    4096u
#define LOCKED   1u /* PG_locked: it is being read */

void page_cache_learn(struct page_cache_layout *l, const struct btf *b, struct machine *m,
                      const struct process_layout *kernel, const struct symbols *s)
{
    u64 at;
    u32 ignored;
    const struct btf_place members[] = {
        {"file", "f_mapping", &l->mapping},  {"address_space", "i_pages.xa_head", &l->tree},
        {"address_space", "host", &l->host}, {"xa_node", "shift", &l->shift},
        {"xa_node", "slots", &l->slots},     {"page", "flags", &l->flags},
        {"inode", "i_size", &l->size},       {"inode", "i_ino", &l->number},
        {"inode", "i_sb", &l->super},        {"super_block", "s_dev", &l->device}};
    *l = (struct page_cache_layout){.known = false};
    l->known = btf_members(b, members, ARRAY_SIZE(members));
    if (!btf_member(b, "folio", "page", &ignored, &l->page_size) || !l->page_size)
        l->page_size = 64;
    l->known = l->known && (btf_member(b, "folio", "index", &l->index, NULL) ||
                            btf_member(b, "page", "index", &l->index, NULL));
    if (!symbols_address(s, "vmemmap_base", &at) ||
        !process_kernel_bytes(kernel, m, at, &l->pages, 8))
        l->pages = 0xffffea0000000000ull; /* without CONFIG_DYNAMIC_MEMORY_LAYOUT */
}

static bool word_at(const struct process_layout *kernel, struct machine *m, u64 at, u64 *out)
{
    return process_kernel_bytes(kernel, m, at, out, 8);
}

bool page_cache_file(const struct page_cache_layout *l, const struct process_layout *kernel,
                     struct machine *m, u64 file, struct page_cache_file *out)
{
    u64 inode, super;
    *out = (struct page_cache_file){0};
    return l->known && word_at(kernel, m, file + l->mapping, &out->mapping) &&
           word_at(kernel, m, out->mapping + l->host, &inode) &&
           word_at(kernel, m, inode + l->size, &out->size) && out->size <= INT64_MAX &&
           word_at(kernel, m, inode + l->number, &out->inode) &&
           word_at(kernel, m, inode + l->super, &super) &&
           process_kernel_bytes(kernel, m, super + l->device, &out->device, 4);
}

static bool is_node(u64 entry)
{
    return (entry & 3) == NODE_TAG && entry > INNER;
}

/* What the array has at `index`; false: nothing. */
static bool find_entry(const struct page_cache_layout *l, const struct process_layout *kernel,
                       struct machine *m, u64 mapping, u64 index, u64 *entry)
{
    u8 shift = 64;
    if (!word_at(kernel, m, mapping + l->tree, entry))
        return false;
    if (!is_node(*entry))
        return !index;
    for (unsigned level = 0; level < LEVELS && is_node(*entry); level++) {
        u64 node = *entry - NODE_TAG;
        u8 own;
        if (!process_kernel_bytes(kernel, m, node + l->shift, &own, 1) || own >= shift ||
            (!level && own < 58 && index >> (own + 6)) ||
            !word_at(kernel, m, node + l->slots + (index >> own & (FANOUT - 1)) * 8, entry))
            return false;
        shift = own;
        if ((*entry & 3) == NODE_TAG && *entry < FANOUT << 2 &&
            !word_at(kernel, m, node + l->slots + (*entry >> 2) * 8, entry))
            return false;
    }
    return true;
}

bool page_cache_page(const struct page_cache_layout *l, const struct process_layout *kernel,
                     struct machine *m, u64 mapping, u64 index, gpa_t *page)
{
    u64 entry, first, flags;
    if (!l->known || !find_entry(l, kernel, m, mapping, index, &entry) || !entry || entry & 3 ||
        entry < l->pages || (entry - l->pages) % l->page_size)
        return false;
    if (!word_at(kernel, m, entry + l->index, &first) || first > index ||
        index - first >= 1u << 18 || !word_at(kernel, m, entry + l->flags, &flags) ||
        flags & LOCKED)
        return false;
    u64 number = (entry - l->pages) / l->page_size + (index - first);
    *page = number * PAGE_SIZE;
    return true;
}
