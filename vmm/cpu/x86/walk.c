/* The page walk (SDM vol. 3, 4.3 to 4.7), as the paging mode has it. */
#include "cpu/x86/walk.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/tlb.h"

#define PTE_W  (1ull << 1)
#define PTE_U  (1ull << 2)
#define PTE_D  (1ull << 6)
#define PTE_PS (1ull << 7)
#define PTE_NX (1ull << 63)

/* Page-fault error code (SDM vol. 3, figure 4-12). */
#define PF_P    1u
#define PF_W    2u
#define PF_U    4u
#define PF_RSVD 8u
#define PF_I    16u

/* 4-level paging (SDM vol. 3, 4.5). */
const struct paging paging_4level = {.levels = 4,
                                     .index_bits = 9,
                                     .entry = 8,
                                     .reserved = {[4] = PTE_PS},
                                     .large = {[2] = true, [3] = true},
                                     .large_bits = {[2] = 0x1fe000, [3] = 0x3fffe000}};

/* Linear addresses are physical ones (SDM vol. 3, 4.1.1). */
static const struct paging paging_none = {.index_bits = 9, .entry = 8};
/* 32-bit paging (4.3), without and with pages of 4 MiB. */
static const struct paging paging_32bit = {.levels = 2, .index_bits = 10, .entry = 4};
static const struct paging paging_32bit_pse = {.levels = 2,
                                               .index_bits = 10,
                                               .entry = 4,
                                               .large = {[2] = true},
                                               .large_bits = {[2] = 0x3fe000}};
/* PAE paging (4.4). */
static const struct paging paging_pae = {.levels = 3,
                                         .index_bits = 9,
                                         .entry = 8,
                                         .bare = 3,
                                         .reserved = {[3] = 0xfff00000000001e6},
                                         .large = {[2] = true},
                                         .large_bits = {[2] = 0x1fe000}};

const struct paging *paging_legacy(const struct core *d)
{
    const struct vcpu *c = &d->cpu;
    return !(c->cr0 & CR0_PG)   ? &paging_none
           : c->cr4 & CR4_PAE   ? &paging_pae
           : (c->cr4 & CR4_PSE) ? &paging_32bit_pse
                                : &paging_32bit;
}

bool mmu_pdptes_ok(const struct core *d, u64 cr3)
{
    const u64 *p = ram_ptr(d->ram, cr3 & 0xffffffe0, 32);
    for (unsigned i = 0; p && i < 4; i++)
        if ((p[i] & PTE_P) && (p[i] & (paging_pae.reserved[3] | (~d->phys_mask & PTE_ADDR))))
            return false;
    return true;
}

static int page_fault(struct core *d, u64 va, u32 error)
{
    d->fault = (struct fault){.vector = EXC_PF, .has_error = true, .error = error, .cr2 = va};
    return FAULT;
}

int walk(struct core *d, u64 va, enum access acc, unsigned idx, enum walk_kind kind, struct walk *w)
{
    u64 reserved = ~d->phys_mask & PTE_ADDR;
    bool commit = kind != WALK_LOOK;
    d->st.walks += commit;
    if (!(d->cpu.efer & EFER_NX))
        reserved |= PTE_NX;
    const struct paging *mode = paging_of(d);
    bool tells_fetch = ((d->cpu.efer & EFER_NX) && mode->entry == 8) || (d->cpu.cr4 & CR4_SMEP);
    u32 err = (acc == ACC_W ? PF_W : 0) | (idx == IDX_USER ? PF_U : 0) |
              (acc == ACC_X && tells_fetch ? PF_I : 0);
    if (UNLIKELY(!mode->levels)) {
        w->leaf = 1;
        w->gpa = (u32)va;
        w->writable = true;
        return DONE;
    }
    u64 table = paging_root(d, d->cpu.cr3), entries = 1u << mode->index_bits;
    u64 perms = PTE_W | PTE_U, nx = 0, e = 0;
    unsigned level = mode->levels;
    for (;; level--) {
        u8 *p = ram_ptr(d->ram,
                        table + ((va >> paging_shift(mode, level)) & (entries - 1)) * mode->entry,
                        mode->entry);
        e = !p                 ? ~0ull
            : mode->entry == 4 ? *(const u32 *)(const void *)p
                               : *(const u64 *)(const void *)p;
        if (!(e & PTE_P))
            return commit ? page_fault(d, va, err) : FAULT;
        bool large = (e & PTE_PS) && mode->large[level], leaf = level == 1 || large;
        u64 bad = reserved | mode->reserved[level] | (large ? mode->large_bits[level] : 0);
        if (e & bad)
            return commit ? page_fault(d, va, err | PF_P | PF_RSVD) : FAULT;
        if (level != mode->bare)
            perms &= e;
        nx |= e & PTE_NX;
        w->table[level] = table;
        w->entry[level] = p;
        table = e & PTE_ADDR;
        if (leaf)
            break;
    }
    w->leaf = level;
    u64 size = 1ull << paging_shift(mode, level);
    w->gpa = (e & PTE_ADDR & ~(size - 1)) | (va & (size - 1));
    bool user = perms & PTE_U;
    bool ok = true;
    if (idx == IDX_USER) {
        ok = user && !(acc == ACC_W && !(perms & PTE_W)) && !(acc == ACC_X && nx);
        w->writable = user && (perms & PTE_W);
    } else {
        bool wp = d->cpu.cr0 & CR0_WP;
        bool smap_ok = !user || idx == IDX_SUPU;
        w->writable = smap_ok && ((perms & PTE_W) || !wp);
        if (acc == ACC_X)
            ok = !nx && !(user && (d->cpu.cr4 & CR4_SMEP));
        else
            ok = smap_ok && !(acc == ACC_W && !w->writable);
    }
    if (!ok)
        return commit ? page_fault(d, va, err | PF_P) : FAULT;
    if (!commit)
        return DONE;
    u8 set[PAGING_LEVELS + 1] = {
        0}; /* bits that are not set yet: all in the entries' first bytes */
    for (unsigned l = mode->levels; l >= w->leaf; l--) {
        if (!w->entry[l] || l == mode->bare)
            continue;
        set[l] = (u8)((PTE_A | (l == w->leaf && acc == ACC_W ? PTE_D : 0)) & ~*w->entry[l]);
        if (LIKELY(!set[l]))
            continue;
        /* A table page may hold code too: what runs, perhaps, whose dead flags become zero first.
         */
        if (kind == WALK_BESIDE && (page_at(d, w->table[l])->flags & PG_CODE))
            return FAULT;
        if (LIKELY(!d->executing))
            continue;
        if (w->table[l] == d->code_page)
            flags_make_visible(d);
        if (w->table[l] == d->code_page || w->table[l] == d->code_page2)
            d->stale = true;
    }
    for (unsigned l = mode->levels; l >= w->leaf; l--) {
        if (LIKELY(!set[l]))
            continue;
        *w->entry[l] |= set[l];
        struct page *pg = page_at(d, w->table[l]);
        note_written(d, pg, ram_page_index(d->ram, w->table[l]));
        if (UNLIKELY(pg->flags & PG_CODE))
            d->translator->page_changed(d, w->table[l], PAGE_SIZE);
    }
    w->writable = w->writable && w->entry[w->leaf] && (*w->entry[w->leaf] & PTE_D);
    return DONE;
}

bool mmu_peek(struct core *d, u64 va, gpa_t *gpa)
{
    struct walk w;
    struct fault saved = d->fault;
    if (!is_canonical(va))
        return false;
    /* Any mapping will do: no permission matters to a debugger. */
    int r = walk(d, va, ACC_R, IDX_SUPU, WALK_LOOK, &w);
    d->fault = saved;
    if (r)
        return false;
    *gpa = w.gpa;
    return true;
}

bool mmu_on_path(struct core *d, u64 va, gpa_t gpa)
{
    struct walk w;
    struct fault saved = d->fault;
    bool mapped = walk(d, va, ACC_R, IDX_SUPU, WALK_LOOK, &w) == DONE;
    d->fault = saved;
    for (unsigned l = paging_of(d)->levels; mapped && l >= w.leaf; l--)
        if (((w.table[l] ^ gpa) & PTE_ADDR) == 0)
            return true;
    return false;
}
