/*
 * The soft TLB, which caches page walks (walk.h), and the
 * tracking that makes the cache invisible. The guest sees a machine that walks its page tables at
 * every access: each page-table page that a cached walk used is marked PG_PT and loses its write
 * fast path; a write to it drops what was derived from the changed entries. So CR3 writes to the
 * same tables, INVLPG and INVPCID have nothing to do, accessed and dirty bits are exact, and no
 * checkpoint holds a TLB.
 */
#include "cpu/x86/tlb.h"

#include "base/phase.h"

#include "cpu/x86/debug.h"
#include "cpu/x86/flags.h"
#include "cpu/x86/mode.h"
#include "cpu/x86/walk.h"

/* Tracked writes to one table before it is dropped whole and untracked: a bulk change. */
#define PT_WRITES_MAX 4

static void filled_add(struct core *d, struct filled *f, u32 slot)
{
    if (f->n < MAX_FILLED)
        f->slot[f->n] = slot;
    f->n++;
}

static void tlb_clear_entry(struct core *d, unsigned idx, u32 slot)
{
    struct tlb_entry *t = &d->tlb[idx][slot];
    t->rtag = t->wtag = tlb_invalid(slot);
}

static void forget_stack(struct core *d)
{
    for (unsigned k = 0; k < ARRAY_SIZE(d->stack); k++)
        d->stack[k] = (struct stack_page){STACK_NONE, STACK_NONE, 0};
}

static void tlb_flush_list(struct core *d, struct filled *f)
{
    forget_stack(d);
    if (f->n <= MAX_FILLED) {
        for (u32 i = 0; i < f->n; i++)
            tlb_clear_entry(d, f->slot[i] >> TLB_BITS, f->slot[i] & (TLB_SIZE - 1));
    } else {
        for (unsigned x = 0; x < IDX_COUNT; x++)
            for (u32 s = 0; s < TLB_SIZE; s++)
                tlb_clear_entry(d, x, s);
    }
    f->n = 0;
}

static void forget_left(struct core *d)
{
    for (unsigned i = 0; i < LEFT_SPACES; i++)
        d->left[i].n = 0;
}

void mmu_flush_all(struct core *d)
{
    forget_left(d);
    tlb_flush_list(d, &d->tlb_user);
    tlb_flush_list(d, &d->tlb_kernel);
    d->translator->forget(d, 0, 0);
    d->st.tlb_flushes++;
}

static void protect_page(struct core *d, u64 index)
{
    u32 writer = d->writer[index];
    forget_stack(d);
    if (writer == WRITER_NONE)
        return;
    d->revoked = true;
    const u8 *host = d->ram->host + index * PAGE_SIZE;
    if (writer != WRITER_MANY) {
        u32 s = (writer - 1) & (TLB_SIZE - 1);
        struct tlb_entry *t = &d->tlb[(writer - 1) >> TLB_BITS][s];
        if (t->host == host)
            t->wtag = tlb_invalid(s);
    } else {
        for (int k = 0; k < 2; k++) {
            struct filled *f = k ? &d->tlb_kernel : &d->tlb_user;
            if (f->n > MAX_FILLED) {
                tlb_flush_list(d, f);
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
    d->writer[index] = WRITER_NONE;
}

void mmu_protect_page(struct core *d, u64 index)
{
    EACH_CPU (s, d)
        protect_page(s, index);
}

void mmu_revoke_all_writes(struct core *d)
{
    forget_stack(d);
    for (unsigned x = 0; x < IDX_COUNT; x++)
        for (u32 s = 0; s < TLB_SIZE; s++) {
            struct tlb_entry *t = &d->tlb[x][s];
            if (t->wtag == tlb_invalid(s))
                continue;
            d->writer[(u64)(t->host - d->ram->host) / PAGE_SIZE] = WRITER_NONE;
            t->wtag = tlb_invalid(s);
        }
}

u32 mmu_root(const struct core *d, u64 cr3)
{
    gpa_t root = paging_root(d, cr3);
    return ram_ptr(d->ram, root, PAGE_SIZE) ? (u32)ram_page_index(d->ram, root) : PT_ROOT_ANY;
}

static void track_table(struct core *d, u32 root, gpa_t table, unsigned level, u64 va)
{
    if (!ram_ptr(d->ram, table, PAGE_SIZE))
        return;
    u64 index = ram_page_index(d->ram, table);
    struct page *pg = &d->shared->pages[index];
    const struct paging *mode = paging_of(d);
    u64 base = level == mode->levels ? 0 : va & ~((1ull << paging_shift(mode, level + 1)) - 1);
    bool anywhere = level == mode->bare; /* its entries are not the page's: each write drops all */
    if (!(pg->flags & PG_PT)) {
        mmu_protect_page(d, index);
        pg->flags = (u8)((pg->flags & ~PG_PTMULTI) | PG_PT | (anywhere ? PG_PTMULTI : 0));
        pg->pt_base = base;
        pg->pt_level = (u8)level;
        pg->pt_root = root;
    } else if (pg->pt_base != base || pg->pt_level != level || anywhere) {
        pg->flags |= PG_PTMULTI;
    }
    if (pg->pt_root != root)
        pg->pt_root = PT_ROOT_ANY;
    pg->pt_writes = 0;
}

static struct left *find_left(struct core *d, u32 root)
{
    for (unsigned i = 0; i < LEFT_SPACES; i++)
        if (d->left[i].n && d->left[i].root == root)
            return &d->left[i];
    return NULL;
}

/* An empty one: that one, or the one that was left longest ago. */
static struct left *take_left(struct core *d, u32 root)
{
    struct left *l = find_left(d, root);
    if (!l) {
        l = &d->left[0];
        for (unsigned i = 1; i < LEFT_SPACES && l->n; i++)
            if (!d->left[i].n || d->left_used - d->left[i].used > d->left_used - l->used)
                l = &d->left[i];
    }
    l->root = root;
    l->n = 0;
    l->used = ++d->left_used;
    return l;
}

/* The TLB has nothing of user addresses any more; what it had of them may be known for later. */
static void leave(struct core *d, u32 root)
{
    struct filled *f = &d->tlb_user;
    if (root != PT_ROOT_ANY && f->n <= MAX_FILLED && !d->debug.nwatch) {
        struct left *l = take_left(d, root);
        for (u32 i = f->n; i-- && l->n < LEFT_ENTRIES;) {
            const struct tlb_entry *t =
                &d->tlb[f->slot[i] >> TLB_BITS][f->slot[i] & (TLB_SIZE - 1)];
            if (t->rtag >> 63)
                continue;
            l->entry[l->n].page = t->rtag;
            l->entry[l->n].host = t->host;
            l->entry[l->n].slot = f->slot[i];
            l->entry[l->n++].writable = t->wtag == t->rtag;
        }
    }
    tlb_flush_list(d, f);
}

static void note_writer(struct core *d, u64 index, u32 slot)
{
    u16 here = (u16)(1 + slot), *writer = &d->writer[index];
    *writer = *writer == WRITER_NONE || *writer == here ? here : WRITER_MANY;
}

/* As fill() would have them, which sets no bits then: none was cleared, or the write dropped them.
 */
static void come_back(struct core *d, u32 root)
{
    struct left *l = find_left(d, root);
    if (!l || d->debug.nwatch)
        return;
    while (l->n) {
        u32 slot = l->entry[--l->n].slot;
        struct tlb_entry *t = &d->tlb[slot >> TLB_BITS][slot & (TLB_SIZE - 1)];
        u32 place = slot & (TLB_SIZE - 1);
        if (t->rtag != tlb_invalid(place))
            continue; /* the kernel's */
        u8 *host = l->entry[l->n].host;
        u64 index = (u64)(host - d->ram->host) / PAGE_SIZE;
        bool fast = l->entry[l->n].writable &&
                    !(d->shared->pages[index].flags & (PG_CODE | PG_PT | PG_CLEAN));
        t->rtag = l->entry[l->n].page;
        t->wtag = fast ? t->rtag : tlb_invalid(place);
        t->host = host;
        t->add = (u64)host - t->rtag;
        filled_add(d, &d->tlb_user, slot);
        if (fast)
            note_writer(d, index, slot);
    }
}

static void drop_left(struct core *d, u32 root, u64 lin, u64 len)
{
    for (unsigned i = 0; i < LEFT_SPACES; i++) {
        struct left *l = &d->left[i];
        if (!l->n || (root != PT_ROOT_ANY && l->root != root))
            continue;
        u32 n = 0;
        for (u32 k = 0; len && k < l->n; k++)
            if (l->entry[k].page - lin >= len)
                l->entry[n++] = l->entry[k];
        l->n = n;
    }
}

/* Drops what was derived from linear range [lin, lin + len). */
static void drop_range(struct core *d, u64 lin, u64 len)
{
    struct filled *f = lin >> 63 ? &d->tlb_kernel : &d->tlb_user;
    forget_stack(d);
    if (len == PAGE_SIZE) {
        u32 s = tlb_slot(lin);
        for (unsigned x = 0; x < IDX_COUNT; x++)
            if (d->tlb[x][s].rtag == lin)
                tlb_clear_entry(d, x, s);
    } else if (f->n > MAX_FILLED) {
        tlb_flush_list(d, f);
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

/* May what it has of those addresses come from a table below `root`? Of the lower half all comes
 * from its own root: a change of that leaves nothing. */
static bool has_by_root(const struct core *d, u32 root, u64 lin)
{
    if (lin >> 63 || root == PT_ROOT_ANY)
        return true;
    u32 own = mmu_root(d, d->cpu.cr3);
    return own == root || own == PT_ROOT_ANY;
}

/* The same of each vCPU, and what was found by those addresses, through a table below `root`. */
static void drop_everywhere(struct core *d, u32 root, u64 lin, u64 len)
{
    EACH_CPU (s, d) {
        if (has_by_root(s, root, lin)) {
            drop_range(s, lin, len);
            s->translator->forget(s, lin, len);
        }
        drop_left(s, root, lin, len);
        s->translator->forget_left(s, root, lin, len);
    }
}

void mmu_flush_everywhere(struct core *d)
{
    EACH_CPU (s, d)
        mmu_flush_all(s);
}

/* Does another vCPU page in another way? Then the table's level and entries say nothing of it. */
static bool pages_otherwise(struct core *d)
{
    for (struct core *s = d->sibling; s != d; s = s->sibling)
        if (paging_of(s)->levels && paging_of(s) != paging_of(d))
            return true;
    return false;
}

static bool is_root(struct core *d, gpa_t table)
{
    EACH_CPU (s, d)
        if (table == paging_root(s, s->cpu.cr3))
            return true;
    return false;
}

static u64 sign_extend(u64 lin)
{
    return (u64)((i64)(lin << 16) >> 16);
}

void mmu_write_tracked(struct core *d, struct page *pg, gpa_t gpa, unsigned len, const u8 *old,
                       const u8 *new_)
{
    d->st.pt_writes++;
    d->stale = true; /* a REP string looks its own page up again */
    if ((pg->flags & PG_PTMULTI) || pages_otherwise(d)) {
        mmu_flush_everywhere(d);
        pg->flags &= (u8) ~(PG_PT | PG_PTMULTI);
        return;
    }
    const struct paging *mode = paging_of(d);
    u64 shift = paging_shift(mode, pg->pt_level);
    if (++pg->pt_writes > PT_WRITES_MAX) {
        u64 span = 1ull << (shift + mode->index_bits);
        if (pg->pt_level == mode->levels) {
            /* Only a current root has anything derived from it, or what was left. */
            if (is_root(d, gpa & PTE_ADDR))
                mmu_flush_everywhere(d);
            EACH_CPU (s, d) {
                drop_left(s, pg->pt_root, 0, 0);
                s->translator->forget_left(s, pg->pt_root, 0, 0);
            }
        } else {
            drop_everywhere(d, pg->pt_root, sign_extend(pg->pt_base), span);
        }
        pg->flags &= (u8)~PG_PT;
        return;
    }
    unsigned off = gpa & (PAGE_SIZE - 1), size = mode->entry;
    for (unsigned e = off & ~(size - 1); e < off + len; e += size) {
        /* The entry before and after; entries that were not present had nothing derived. */
        const u8 *entry = d->ram->host + ram_page_index(d->ram, gpa) * PAGE_SIZE + e;
        u64 before =
            size == 4 ? *(const u32 *)(const void *)entry : *(const u64 *)(const void *)entry;
        u64 after = before;
        for (unsigned k = 0; k < size; k++)
            if (e + k >= off && e + k < off + len) {
                ((u8 *)&before)[k] = old[e + k - off];
                ((u8 *)&after)[k] = new_[e + k - off];
            }
        if (before == after || !(before & PTE_P))
            continue;
        u64 lin = sign_extend(pg->pt_base + ((u64)(e / size) << shift));
        drop_everywhere(d, pg->pt_root, lin, 1ull << shift);
    }
}

static void track_walk(struct core *d, u64 va, const struct walk *w)
{
    u32 root = mmu_root(d, d->cpu.cr3);
    for (unsigned l = paging_of(d)->levels; l >= w->leaf; l--)
        track_table(d, root, w->table[l], l, va);
}

int mmu_walk(struct core *d, u64 va, enum access acc, unsigned idx, gpa_t *gpa)
{
    struct walk w;
    enum phase before = phase_enter(PHASE_WALK);
    int r = walk(d, va, acc, idx, WALK_ANYWHERE, &w);
    if (r == DONE)
        *gpa = w.gpa;
    if (r == DONE && acc == ACC_X)
        track_walk(d, va, &w); /* the jump cache will remember it */
    phase_leave(before);
    return r;
}

static u8 *fill(struct core *d, u64 va, enum access acc, unsigned idx, enum walk_kind kind)
{
    struct walk w;
    d->fault.vector = 0;
    if (walk(d, va, acc, idx, kind, &w))
        return NULL;
    d->filled_gpa = w.gpa;
    u8 *host = ram_ptr(d->ram, w.gpa & ~(u64)(PAGE_SIZE - 1), PAGE_SIZE);
    if (!host)
        return NULL;
    d->st.tlb_fills++;
    track_walk(d, va, &w);
    u64 index = ram_page_index(d->ram, w.gpa);
    struct page *pg = &d->shared->pages[index];
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
    t->add = (u64)host - page;
    t->wtag = fast ? page : tlb_invalid(slot);
    if (fast)
        note_writer(d, index, idx << TLB_BITS | slot);
    if (acc == ACC_W && !fast)
        return NULL;
    return host + (va & (PAGE_SIZE - 1));
}

u8 *mmu_fill(struct core *d, u64 va, enum access acc, unsigned idx, enum walk_kind kind)
{
    enum phase before = phase_enter(PHASE_WALK);
    u8 *host = fill(d, va, acc, idx, kind);
    phase_leave(before);
    return host;
}

void mmu_set_cr3(struct core *d, u64 old, u64 cr3)
{
    u64 a = paging_root(d, old), b = paging_root(d, cr3);
    unsigned entries = 1u << paging_of(d)->index_bits, half = entries / 2;
    if (a == b || !paging_of(d)->levels)
        return;
    if (!long_mode(d)) {
        mmu_flush_all(d);
        return;
    }
    const u64 *pa = ram_ptr(d->ram, a, PAGE_SIZE);
    u64 *pb = ram_ptr(d->ram, b, PAGE_SIZE);
    bool same = pa && pb && !counts_branches(d); /* a CPU need not do so: it made the recording */
    u64 differ = 0, to_set = 0;
    for (unsigned i = half; same && i < entries; i += 4) /* mostly they are the same */
        differ |= (pa[i] ^ pb[i]) | (pa[i + 1] ^ pb[i + 1]) | (pa[i + 2] ^ pb[i + 2]) |
                  (pa[i + 3] ^ pb[i + 3]);
    if (!same || (differ & ~PTE_A)) {
        mmu_flush_all(d);
        return;
    }
    for (unsigned i = half; differ && i < entries; i++)
        to_set |= pa[i] & ~pb[i] & PTE_A & -(pb[i] & PTE_P);
    /* The upper half stays. What was accessed through the old root counts as accessed through the
     * new one at once: a CPU may set accessed bits early, and this depends on guest memory only,
     * so it is the same in every run. */
    bool set = to_set;
    if (b == d->code_page)
        flags_make_visible(d); /* as of walks that set them */
    for (unsigned i = half; set && i < entries; i++)
        pb[i] |= pa[i] & PTE_A & -(pb[i] & PTE_P);
    if (set)
        note_written(d, page_at(d, b), ram_page_index(d->ram, b));
    if (set && (page_at(d, b)->flags & PG_CODE))
        d->translator->page_changed(d, b, PAGE_SIZE);
    u32 from = mmu_root(d, old), to = mmu_root(d, cr3);
    leave(d, from);
    d->translator->leave(d, true);
    d->st.tlb_flushes++;
    track_table(d, to, b, paging_of(d)->levels, 0);
    come_back(d, to);
}

/* Outside 64-bit mode: which segments are all of memory, from 0 or from their base on, for reads
 * and writes. */
static u32 mode_of_segments(const struct vcpu *c)
{
    const u16 data = ATTR_P | ATTR_S | 2; /* writable, and not expand-down */
    bool whole[6];
    for (unsigned s = 0; s < ARRAY_SIZE(whole); s++)
        whole[s] = c->seg_limit[s] == 0xffffffff && (c->seg_attr[s] & (data | 0xc)) == data;
    bool flat = !c->seg_base[SEG_CS] && c->seg_limit[SEG_CS] == 0xffffffff &&
                (c->seg_attr[SEG_SS] & ATTR_DB) && whole[SEG_SS] && !c->seg_base[SEG_SS] &&
                whole[SEG_DS] && !c->seg_base[SEG_DS] && whole[SEG_ES] && !c->seg_base[SEG_ES];
    return (flat ? MODE_FLAT : 0) | (whole[SEG_FS] ? MODE_FS : 0) | (whole[SEG_GS] ? MODE_GS : 0);
}

/* What CS says of code (SDM vol. 3, 3.4.5), and what follows. */
static u32 mode_of_code(const struct core *d)
{
    const struct vcpu *c = &d->cpu;
    u16 attr = c->seg_attr[SEG_CS];
    if (is_wide_code(d, attr))
        return (u32)CODE_64 << MODE_CODE_SHIFT;
    u32 code = attr & ATTR_DB ? CODE_32 : by_paragraphs(d) ? CODE_REAL : CODE_16;
    return code << MODE_CODE_SHIFT | mode_of_segments(c);
}

void mmu_crossing_changed(struct core *d)
{
    const struct vcpu *c = &d->cpu;
    const u32 own = MODE_IDX | MODE_CPL0 | MODE_TSD;
    /* What remains set would be looked at: flags, #AC, where SMAP allows the user's pages, TF. */
    const u64 masked = FL_ARITH | FL_AC | FL_TF;
    bool user = d->cpl == 3;
    u32 mode = (d->mode & ~own) | (user ? MODE_CPL0 | kernel_idx(d->mode)
                                        : IDX_USER | (c->cr4 & CR4_TSD ? MODE_TSD : 0));
    d->crossing.mode = mode;
    d->crossing.ready =
        is_64bit(d) && (user || d->cpl == 0) && !d->was_inner && (c->efer & EFER_SCE) &&
        (c->sfmask & masked) == masked && !d->careful_only && !d->pmu.on && !d->pmu.signals[0] &&
        !d->pmu.signals[1] && !(d->debug.to_user | d->debug.from_user) && !counts_branches(d) &&
        !(mode & MODE_SYNC) && d->looked_up[user] == (mode & ~(MODE_IDX | MODE_CPL0));
}

void mmu_mode_changed(struct core *d)
{
    struct vcpu *c = &d->cpu;
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
        mode |= MODE_AVX | (c->xcr0 & XCR0_AVX512 ? MODE_AVX512 : 0);
    if (d->cpl == 0)
        mode |= MODE_CPL0;
    else if (c->cr4 & CR4_TSD)
        mode |= MODE_TSD;
    if (c->cr4 & CR4_SMAP)
        mode |= MODE_SMAP;
    mode |= mode_of_code(d);
    mode |= d->pmu.signals[d->cpl != 0] << MODE_SIGNALS_SHIFT;
    if (d->env->sync)
        mode |= MODE_SYNC;
    d->mode = mode;
    d->idx = idx;
    d->ac_check = d->cpl == 3 && (c->cr0 & CR0_AM) && (c->rflags & FL_AC);
    d->dr_active = (c->dr[7] & 0xff) != 0;
    d->watching = d->dr_active || d->debug.nwatch;
    d->careful_only = (c->rflags & FL_TF) || d->dr_active || d->ac_check ||
                      (d->trace.before && !d->trace.n) || d->stepper || d->by_hand || d->pmu.edge ||
                      (d->pmu.lbr_rings >> (d->cpl != 0) & 1);
    /* CPL 0 and CPL 1, 2 share an index of the jump cache: leaving one for another forgets it. */
    bool inner = d->cpl == 1 || d->cpl == 2;
    u32 now = mode & ~(MODE_IDX | MODE_CPL0), *looked_up = &d->looked_up[idx != IDX_USER];
    if (now != *looked_up || inner || d->was_inner) {
        if (idx == IDX_USER && !d->was_inner && long_mode(d))
            d->translator->leave(d, false);
        else
            d->translator->forget(d, 0, 0);
        *looked_up = now;
        forget_stack(d);
    }
    d->was_inner = inner;
    mmu_crossing_changed(d);
    if (d->runs)
        d->modes |= 1u << vcpu_mode(c);
}

void tlb_init(struct core *d)
{
    forget_stack(d);
    for (unsigned x = 0; x < IDX_COUNT; x++)
        for (u32 s = 0; s < TLB_SIZE; s++)
            tlb_clear_entry(d, x, s);
}
