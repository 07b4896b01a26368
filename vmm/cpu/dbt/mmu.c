/*
 * Linear to physical: the page walk (SDM vol. 3, 4.5), the soft TLB that caches it, and the
 * tracking that makes the cache invisible. The guest sees a machine that walks its page tables at
 * every access: each page-table page that a cached walk used is marked PG_PT and loses its write
 * fast path; a write to it drops what was derived from the changed entries. So CR3 writes to the
 * same tables, INVLPG and INVPCID have nothing to do, accessed and dirty bits are exact, and no
 * checkpoint holds a TLB.
 */
#include "dbt.h"

#define PTE_P    (1ull << 0)
#define PTE_W    (1ull << 1)
#define PTE_U    (1ull << 2)
#define PTE_A    (1ull << 5)
#define PTE_D    (1ull << 6)
#define PTE_PS   (1ull << 7)
#define PTE_NX   (1ull << 63)
#define PTE_ADDR 0x000ffffffffff000ull

/* Page-fault error code (SDM vol. 3, figure 4-12). */
#define PF_P    1u
#define PF_W    2u
#define PF_U    4u
#define PF_RSVD 8u
#define PF_I    16u

/* Tracked writes to one table before it is dropped whole and untracked: a bulk change. */
#define PT_WRITES_MAX 4

static struct page *page_at(struct dbt *d, gpa_t gpa)
{
    return &d->pages[ram_page_index(d->ram, gpa)];
}

static void filled_add(struct dbt *d, struct filled *f, u32 slot)
{
    if (f->n < MAX_FILLED)
        f->slot[f->n] = slot;
    f->n++;
}

static void tlb_clear_entry(struct dbt *d, unsigned idx, u32 slot)
{
    struct tlb_entry *t = &d->tlb[idx][slot];
    t->rtag = t->wtag = tlb_invalid(slot);
}

static void tlb_flush_list(struct dbt *d, struct filled *f, bool user)
{
    if (f->n <= MAX_FILLED) {
        for (u32 i = 0; i < f->n; i++)
            tlb_clear_entry(d, f->slot[i] >> TLB_BITS, f->slot[i] & (TLB_SIZE - 1));
    } else {
        for (unsigned x = 0; x < IDX_COUNT; x++)
            for (u32 s = 0; s < TLB_SIZE; s++)
                tlb_clear_entry(d, x, s);
    }
    f->n = 0;
    (void)user;
}

void mmu_flush_user(struct dbt *d)
{
    tlb_flush_list(d, &d->tlb_user, true);
    jc_drop_range(d, 0, 1ull << 47);
    d->st.tlb_flushes++;
}

void mmu_flush_all(struct dbt *d)
{
    tlb_flush_list(d, &d->tlb_user, true);
    tlb_flush_list(d, &d->tlb_kernel, false);
    mmu_forget_jc(d);
    d->st.tlb_flushes++;
}

/* Takes the write fast path to a page away, under all its addresses. */
static void revoke_writes(struct dbt *d, struct page *pg, u64 index)
{
    if (!(pg->flags & PG_WTLB))
        return;
    const u8 *host = d->ram->host + index * PAGE_SIZE;
    if (!(pg->flags & PG_WMULTI)) {
        struct tlb_entry *t = &d->tlb[pg->wslot >> TLB_BITS][pg->wslot & (TLB_SIZE - 1)];
        if (t->host == host)
            t->wtag = tlb_invalid(pg->wslot & (TLB_SIZE - 1));
    } else {
        for (int k = 0; k < 2; k++) {
            struct filled *f = k ? &d->tlb_kernel : &d->tlb_user;
            if (f->n > MAX_FILLED) {
                tlb_flush_list(d, f, !k);
                continue;
            }
            for (u32 i = 0; i < f->n; i++) {
                u32 s = f->slot[i] & (TLB_SIZE - 1);
                struct tlb_entry *t = &d->tlb[f->slot[i] >> TLB_BITS][s];
                if (t->host == host)
                    t->wtag = tlb_invalid(s);
            }
        }
    }
    pg->flags &= (u8) ~(PG_WTLB | PG_WMULTI);
}

void mmu_revoke_all_writes(struct dbt *d)
{
    for (unsigned x = 0; x < IDX_COUNT; x++)
        for (u32 s = 0; s < TLB_SIZE; s++) {
            struct tlb_entry *t = &d->tlb[x][s];
            if (t->wtag == tlb_invalid(s))
                continue;
            d->pages[(u64)(t->host - d->ram->host) / PAGE_SIZE].flags &=
                (u8) ~(PG_WTLB | PG_WMULTI);
            t->wtag = tlb_invalid(s);
        }
}

void mmu_protect_page(struct dbt *d, struct page *pg, u64 index)
{
    revoke_writes(d, pg, index);
}

static void track_table(struct dbt *d, gpa_t table, unsigned level, u64 va)
{
    if (!ram_ptr(d->ram, table, PAGE_SIZE))
        return;
    u64 index = ram_page_index(d->ram, table);
    struct page *pg = &d->pages[index];
    u64 base = level == 4 ? 0 : va & ~((1ull << (12 + 9 * level)) - 1);
    if (level == 4 && (va >> 47))
        base = 0;
    if (!(pg->flags & PG_PT)) {
        revoke_writes(d, pg, index);
        pg->flags = (u8)((pg->flags & ~PG_PTMULTI) | PG_PT);
        pg->pt_base = base;
        pg->pt_level = (u8)level;
    } else if (pg->pt_base != base || pg->pt_level != level) {
        pg->flags |= PG_PTMULTI;
    }
    pg->pt_writes = 0;
}

/* Drops what was derived from linear range [lin, lin + len). */
static void drop_range(struct dbt *d, u64 lin, u64 len)
{
    struct filled *f = lin >> 63 ? &d->tlb_kernel : &d->tlb_user;
    if (len == PAGE_SIZE) {
        u32 s = tlb_slot(lin);
        for (unsigned x = 0; x < IDX_COUNT; x++)
            if (d->tlb[x][s].rtag == lin)
                tlb_clear_entry(d, x, s);
    } else if (f->n > MAX_FILLED) {
        tlb_flush_list(d, f, lin >> 63 == 0);
    } else {
        u32 out = 0;
        for (u32 i = 0; i < f->n; i++) {
            u32 s = f->slot[i] & (TLB_SIZE - 1), x = f->slot[i] >> TLB_BITS;
            if (d->tlb[x][s].rtag - lin < len)
                tlb_clear_entry(d, x, s);
            else
                f->slot[out++] = f->slot[i];
        }
        f->n = out;
    }
}

static u64 sign_extend(u64 lin)
{
    return (u64)((i64)(lin << 16) >> 16);
}

void mmu_write_tracked(struct dbt *d, struct page *pg, gpa_t gpa, unsigned len, const u8 *old,
                       const u8 *new_)
{
    d->st.pt_writes++;
    d->stale = true; /* a REP string looks its own page up again */
    if (pg->flags & PG_PTMULTI) {
        mmu_flush_all(d);
        pg->flags &= (u8) ~(PG_PT | PG_PTMULTI);
        return;
    }
    u64 shift = 12 + 9 * (pg->pt_level - 1);
    if (++pg->pt_writes > PT_WRITES_MAX) {
        u64 span = 1ull << (shift + 9);
        if (pg->pt_level == 4) {
            /* Only the current root has anything derived from it. */
            if ((gpa & PTE_ADDR) == (d->cpu.cr3 & d->phys_mask & PTE_ADDR))
                mmu_flush_all(d);
        } else {
            drop_range(d, sign_extend(pg->pt_base), span);
            jc_drop_range(d, sign_extend(pg->pt_base), span);
        }
        pg->flags &= (u8)~PG_PT;
        return;
    }
    unsigned off = gpa & (PAGE_SIZE - 1);
    for (unsigned e = off & ~7u; e < off + len; e += 8) {
        /* The entry before and after; entries that were not present had nothing derived. */
        u64 before = *(const u64 *)(d->ram->host + ram_page_index(d->ram, gpa) * PAGE_SIZE + e);
        u64 after = before;
        for (unsigned k = 0; k < 8; k++)
            if (e + k >= off && e + k < off + len) {
                ((u8 *)&before)[k] = old[e + k - off];
                ((u8 *)&after)[k] = new_[e + k - off];
            }
        if (before == after || !(before & PTE_P))
            continue;
        u64 lin = sign_extend(pg->pt_base + ((u64)(e / 8) << shift));
        drop_range(d, lin, 1ull << shift);
        jc_drop_range(d, lin, 1ull << shift);
    }
}

static int page_fault(struct dbt *d, u64 va, u32 error)
{
    d->fault = (struct fault){.vector = EXC_PF, .has_error = true, .error = error, .cr2 = va};
    return FAULT;
}

struct walk {
    u64 table[5], *entry[5]; /* by level, 4 to leaf */
    unsigned leaf;
    gpa_t gpa;
    bool writable; /* for this idx, the dirty bit set */
};

/* The walk proper. No side effects unless `commit`; returns DONE or FAULT (d->fault set only when
 * commit). */
static int walk(struct dbt *d, u64 va, enum access acc, unsigned idx, bool commit, struct walk *w)
{
    u64 reserved = ~d->phys_mask & PTE_ADDR;
    if (!(d->cpu.efer & EFER_NX))
        reserved |= PTE_NX;
    u32 err = (acc == ACC_W ? PF_W : 0) | (idx == IDX_USER ? PF_U : 0) |
              (acc == ACC_X && ((d->cpu.efer & EFER_NX) || (d->cpu.cr4 & CR4_SMEP)) ? PF_I : 0);
    u64 table = d->cpu.cr3 & d->phys_mask & PTE_ADDR;
    u64 perms = PTE_W | PTE_U, nx = 0, e = 0;
    unsigned level = 4;
    for (;; level--) {
        u64 *p = ram_ptr(d->ram, table + ((va >> (12 + 9 * (level - 1))) & 511) * 8, 8);
        e = p ? *p : ~0ull;
        if (!(e & PTE_P))
            return commit ? page_fault(d, va, err) : FAULT;
        u64 bad = reserved;
        bool leaf = level == 1 || ((e & PTE_PS) && level <= 3);
        if (level == 4)
            bad |= PTE_PS;
        if (leaf && level == 2)
            bad |= 0x1fe000;
        if (leaf && level == 3)
            bad |= 0x3fffe000;
        if (e & bad)
            return commit ? page_fault(d, va, err | PF_P | PF_RSVD) : FAULT;
        perms &= e;
        nx |= e & PTE_NX;
        w->table[level] = table;
        w->entry[level] = p;
        table = e & PTE_ADDR;
        if (leaf)
            break;
    }
    w->leaf = level;
    u64 size = 1ull << (12 + 9 * (level - 1));
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
    for (unsigned l = 4; l >= w->leaf; l--) {
        u64 set = PTE_A | (l == w->leaf && acc == ACC_W ? PTE_D : 0);
        if (w->entry[l] && (*w->entry[l] & set) != set) {
            *w->entry[l] |= set;
            /* A table page may hold code too. */
            struct page *pg = page_at(d, w->table[l]);
            note_written(d, pg, ram_page_index(d->ram, w->table[l]));
            if (UNLIKELY(pg->flags & PG_CODE))
                cache_invalidate_page(d, pg);
        }
    }
    w->writable = w->writable && w->entry[w->leaf] && (*w->entry[w->leaf] & PTE_D);
    return DONE;
}

static void track_walk(struct dbt *d, u64 va, const struct walk *w)
{
    for (unsigned l = 4; l >= w->leaf; l--)
        track_table(d, w->table[l], l, va);
}

int mmu_walk(struct dbt *d, u64 va, enum access acc, unsigned idx, gpa_t *gpa)
{
    struct walk w;
    int r = walk(d, va, acc, idx, true, &w);
    if (r)
        return r;
    *gpa = w.gpa;
    if (acc == ACC_X)
        track_walk(d, va, &w); /* the jump cache will remember it */
    return DONE;
}

bool mmu_peek(struct dbt *d, u64 va, gpa_t *gpa)
{
    struct walk w;
    struct fault saved = d->fault;
    if (!is_canonical(va))
        return false;
    /* Any mapping will do: no permission matters to a debugger. */
    int r = walk(d, va, ACC_R, IDX_SUPU, false, &w);
    d->fault = saved;
    if (r)
        return false;
    *gpa = w.gpa;
    return true;
}

bool mmu_on_path(struct dbt *d, u64 va, gpa_t gpa)
{
    struct walk w = {.leaf = 5};
    struct fault saved = d->fault;
    bool mapped = walk(d, va, ACC_R, IDX_SUPU, false, &w) == DONE;
    d->fault = saved;
    for (unsigned l = 4; mapped && l >= w.leaf; l--)
        if (((w.table[l] ^ gpa) & PTE_ADDR) == 0)
            return true;
    return false;
}

/*
 * Walks and fills the TLB. Returns the host address of va's byte, or NULL: a fault (d->fault set,
 * vector != 0) or a page that has no fast path for this access (vector == 0).
 */
u8 *mmu_fill(struct dbt *d, u64 va, enum access acc, unsigned idx)
{
    struct walk w;
    d->fault.vector = 0;
    if (walk(d, va, acc, idx, true, &w))
        return NULL;
    d->filled_gpa = w.gpa;
    u8 *host = ram_ptr(d->ram, w.gpa & ~(u64)(PAGE_SIZE - 1), PAGE_SIZE);
    if (!host)
        return NULL;
    d->st.tlb_fills++;
    track_walk(d, va, &w);
    u64 index = ram_page_index(d->ram, w.gpa);
    struct page *pg = &d->pages[index];
    u64 page = va & ~(u64)(PAGE_SIZE - 1);
    gpa_t gpa = w.gpa & ~(u64)(PAGE_SIZE - 1);
    bool fast = w.writable && !(pg->flags & (PG_CODE | PG_PT)) && !ram_is_rom(w.gpa);
    if (UNLIKELY(d->debug.nwatch)) {
        if (debug_watches_page(d, page, gpa, false))
            return NULL;
        fast = fast && !debug_watches_page(d, page, gpa, true);
    }
    if (fast && (pg->flags & PG_CLEAN)) {
        if (acc == ACC_W)
            note_written(d, pg, index);
        else
            fast = false;
    }
    u32 slot = tlb_slot(va);
    struct tlb_entry *t = &d->tlb[idx][slot];
    if (t->rtag == tlb_invalid(slot))
        filled_add(d, va >> 63 ? &d->tlb_kernel : &d->tlb_user, idx << TLB_BITS | slot);
    else if ((t->rtag ^ va) >> 63)
        filled_add(d, va >> 63 ? &d->tlb_kernel : &d->tlb_user, idx << TLB_BITS | slot);
    t->rtag = page;
    t->host = host;
    t->gpa = gpa;
    t->wtag = fast ? page : tlb_invalid(slot);
    if (fast) {
        u16 here = (u16)(idx << TLB_BITS | slot);
        if (!(pg->flags & PG_WTLB))
            pg->wslot = here;
        else if (pg->wslot != here)
            pg->flags |= PG_WMULTI;
        pg->flags |= PG_WTLB;
    }
    if (acc == ACC_W && !fast)
        return NULL;
    return host + (va & (PAGE_SIZE - 1));
}

/* A page with watched bytes, right behind mmu_fill: an access beside them needs no look. NULL:
 * exec() must do it. */
static u8 *beside_watched(struct dbt *d, u64 va, unsigned size, enum access acc)
{
    gpa_t gpa[2] = {d->filled_gpa, 0};
    if (d->debug.hit)
        return NULL;
    u8 *host = ram_ptr(d->ram, gpa[0], size);
    if (!host)
        return NULL;
    u64 index = ram_page_index(d->ram, gpa[0]);
    struct page *pg = &d->pages[index];
    if (acc == ACC_W) {
        if ((pg->flags & (PG_CODE | PG_PT)) || ram_is_rom(gpa[0]))
            return NULL;
        note_written(d, pg, index);
    }
    /* A read-modify-write opens its operand for writing only. */
    debug_access(d, va, size, gpa, true);
    debug_access(d, va, size, gpa, false);
    if (d->debug.hit) {
        d->debug.hit = false;
        return NULL;
    }
    return host;
}

/*
 * A load or store in translated code missed the TLB. d->slow_ea is the address; bit 31 of resume's
 * companion (d->tmp2) says size and kind. Returns the host address, or 0: exec() must do it.
 */
u64 slow_mem(struct dbt *d)
{
    u64 va = d->slow_ea;
    unsigned size = d->tmp2 & 0xff;
    enum access acc = d->tmp2 & SLOW_WRITE ? ACC_W : ACC_R;
    if (!is_canonical(va) || (va & (PAGE_SIZE - 1)) + size > PAGE_SIZE)
        return 0;
    /* What comes before the page walk must leave no accessed bits. */
    if (((d->tmp2 & SLOW_ALIGN) && (va & (size - 1))) || ((d->tmp2 & SLOW_WAIT) && fpu_pending(d)))
        return 0;
    u64 host = (u64)mmu_fill(d, va, acc, d->idx);
    if (UNLIKELY(!host && d->debug.nwatch && !d->fault.vector))
        host = (u64)beside_watched(d, va, size, acc);
    /* Accessed bits were set in a page that also holds code, maybe this block. */
    return d->stale ? 0 : host;
}

void mmu_set_cr3(struct dbt *d, u64 old, u64 cr3)
{
    u64 a = old & d->phys_mask & PTE_ADDR, b = cr3 & d->phys_mask & PTE_ADDR;
    if (a == b)
        return;
    const u64 *pa = ram_ptr(d->ram, a, PAGE_SIZE);
    u64 *pb = ram_ptr(d->ram, b, PAGE_SIZE);
    bool same = pa && pb && !d->counts; /* a CPU need not do so: it made the recording */
    for (unsigned i = 256; same && i < 512; i++)
        same = ((pa[i] ^ pb[i]) & ~PTE_A) == 0;
    if (!same) {
        mmu_flush_all(d);
        return;
    }
    /* The upper half stays. What was accessed through the old root counts as accessed through the
     * new one at once: a CPU may set accessed bits early, and this depends on guest memory only,
     * so it is the same in every run. */
    bool set = false;
    for (unsigned i = 256; i < 512; i++)
        if ((pa[i] & ~pb[i] & PTE_A) && (pb[i] & PTE_P)) {
            pb[i] |= PTE_A;
            set = true;
        }
    if (set)
        note_written(d, page_at(d, b), ram_page_index(d->ram, b));
    if (set && (page_at(d, b)->flags & PG_CODE))
        cache_invalidate_page(d, page_at(d, b));
    mmu_flush_user(d);
    track_table(d, b, 4, 0);
}

void mmu_mode_changed(struct dbt *d)
{
    struct vcpu *c = &d->cpu;
    u32 old = d->mode & ~(MODE_IDX | MODE_CPL0);
    unsigned idx = d->cpl == 3                                   ? IDX_USER
                   : !(c->cr4 & CR4_SMAP) || (c->rflags & FL_AC) ? IDX_SUPU
                                                                 : IDX_SUP;
    u32 mode = idx;
    if (c->cr0 & CR0_TS)
        mode |= MODE_TS;
    if (c->cr0 & CR0_EM)
        mode |= MODE_EM;
    if (c->cr0 & CR0_MP)
        mode |= MODE_MP;
    if (c->cr4 & CR4_OSFXSR)
        mode |= MODE_OSFXSR;
    if ((c->cr4 & CR4_OSXSAVE) && (c->xcr0 & 6) == 6)
        mode |= MODE_AVX;
    if (d->cpl == 0)
        mode |= MODE_CPL0;
    if (c->cr4 & CR4_SMAP)
        mode |= MODE_SMAP;
    d->mode = mode;
    d->idx = idx;
    d->ac_check = d->cpl == 3 && (c->cr0 & CR0_AM) && (c->rflags & FL_AC);
    d->dr_active = (c->dr[7] & 0xff) != 0;
    d->watching = d->dr_active || d->debug.nwatch;
    d->careful_only =
        (c->rflags & FL_TF) || d->dr_active || d->ac_check || d->trace || d->stepper || d->by_hand;
    /* CPL 0 and CPL 1, 2 share an index of the jump cache: leaving one for another forgets it. */
    bool inner = d->cpl == 1 || d->cpl == 2;
    if ((mode & ~(MODE_IDX | MODE_CPL0)) != old || inner || d->was_inner)
        mmu_forget_jc(d);
    d->was_inner = inner;
}
