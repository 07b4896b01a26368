/*
 * Page tables: sizes, permissions, accessed and dirty bits, reserved bits, SMEP/SMAP, PCID, and
 * what a change of the tables means (with the flush the architecture asks for).
 */
#include "tiny.h"

#define VA 0x6000000000ull

static u8 frame_a[4096] __attribute__((aligned(4096))),
    frame_b[4096] __attribute__((aligned(4096)));
static u8 code_page[4096] __attribute__((aligned(4096)));

#define READ(va)  TRY("mov (%%rcx), %%al", "c"(va), "a"(0))
#define WRITE(va) TRY("mov %%al, (%%rcx)", "c"(va), "a"(0))
#define CALL(va)  TRY("call *%%rcx", "c"(va), "a"(0))

static void fetch(u64 va, u64 err, const char *name) /* the fault's RIP is the target */
{
    CALL(va);
    check(trap.vector == 14 && trap.err == err && trap.cr2 == va && trap.f.rip == va, name);
}

static void accessed_dirty(void)
{
    u64 *e = pt_entry(VA, 1), *d = pt_entry(VA, 2);

    map(VA, (u64)frame_a, PT_P | PT_W);
    *d &= ~PT_A;
    __asm__ volatile("mov %0, %%cr3" : : "r"(READ_REG(cr3)) : "memory");
    check_eq(*e & (PT_A | PT_D), 0, "A and D clear at first");
    READ(VA);
    check_eq(*e & (PT_A | PT_D), PT_A, "a read sets A");
    check_eq(*d & PT_A, PT_A, "in the directory too");
    WRITE(VA);
    check_eq(*e & (PT_A | PT_D), PT_A | PT_D, "a write sets D");
    *e &= ~(PT_A | PT_D);
    invlpg(VA);
    WRITE(VA);
    check_eq(*e & (PT_A | PT_D), PT_A | PT_D, "a first write sets both");
    *e &= ~PT_D;
    invlpg(VA);
    READ(VA);
    check_eq(*e & PT_D, 0, "a read leaves D");
    *e = (u64)frame_a | PT_P;
    invlpg(VA);
    WRITE(VA);
    check_trap(14, 3, VA, "write to a read-only page in ring 0 with WP");
    check_eq(*e & PT_D, 0, "a refused write leaves D");
    WRITE_REG(cr0, READ_REG(cr0) & ~(1ull << 16));
    WRITE(VA);
    check_trap(-1, 0, 0, "the same without WP");
    check_eq(*e & PT_D, PT_D, "sets D");
    WRITE_REG(cr0, READ_REG(cr0) | 1ull << 16);
}

static void permissions(void)
{
    map(VA, (u64)code_page, PT_P | PT_W | PT_NX);
    code_page[0] = 0xc3;
    fetch(VA, 0x11, "NX");
    map(VA, (u64)code_page, PT_P);
    CALL(VA);
    check_trap(-1, 0, 0, "executable again");
    fetch(VA + 0x100000, 0x10, "fetch from nothing");
    *pt_entry(VA, 2) |= PT_NX;
    invlpg(VA);
    fetch(VA, 0x11, "NX in the directory");
    *pt_entry(VA, 2) &= ~PT_NX;
    *pt_entry(VA, 2) &= ~PT_W;
    map(VA, (u64)frame_a, PT_P | PT_W);
    WRITE(VA);
    check_trap(14, 3, VA, "W clear in the directory");
    *pt_entry(VA, 2) |= PT_W;
    invlpg(VA);
    WRITE(VA);
    check_trap(-1, 0, 0, "and set again");
}

static void reserved(void)
{
    u64 *e = pt_entry(VA, 1), *big = pt_entry(VA + (1ull << 30), 2);

    *e = (u64)frame_a | PT_P | PT_W | 1ull << 51;
    invlpg(VA);
    READ(VA);
    INEXACT(check_trap(14, 9, VA, "reserved bit, read"));
    WRITE(VA);
    INEXACT(check_trap(14, 0xb, VA, "reserved bit, write"));
    *e = (u64)frame_a | 1ull << 51;
    invlpg(VA);
    READ(VA);
    check_trap(14, 0, VA, "not present hides it");
    *big = PT_P | PT_W | PT_PS | 1ull << 13;
    READ(VA + (1ull << 30));
    INEXACT(check_trap(14, 9, VA + (1ull << 30), "reserved bit of a 2M page"));
    wrmsr(0xc0000080, rdmsr(0xc0000080) & ~0x800ull);
    *e = (u64)frame_a | PT_P | PT_NX;
    invlpg(VA);
    READ(VA);
    INEXACT(check_trap(14, 9, VA, "NX is reserved without EFER.NXE"));
    wrmsr(0xc0000080, rdmsr(0xc0000080) | 0x800);
    *big = 0;
}

static void sizes(void)
{
    u64 va = VA + (2ull << 30), *e = pt_entry(va, 2);

    frame_a[5] = 0x77;
    *e = ((u64)frame_a & ~0x1fffffull) | PT_P | PT_W | PT_PS;
    invlpg(va);
    check_eq(*(volatile u8 *)(va + ((u64)frame_a & 0x1fffff) + 5), 0x77, "2M page");
    *(volatile u8 *)(va + ((u64)frame_a & 0x1fffff) + 6) = 1;
    check_eq(*e & (PT_A | PT_D), PT_A | PT_D, "its A and D");
    if (cpu_has(0x80000001, 3, 26)) {
        va = VA + (8ull << 30);
        e = pt_entry(va, 3);
        *e = PT_P | PT_W | PT_PS;
        invlpg(va);
        check_eq(*(volatile u8 *)(va + (u64)frame_a + 5), 0x77, "1G page");
        check_eq(*e & (PT_A | PT_D), PT_A, "its A");
        *e = 0;
        invlpg(va);
        READ(va);
        check_trap(14, 0, va, "and gone");
    }
}

static void crossing(void)
{
    u64 v = 0x1122334455667788, at = VA + PAGE - 3;

    map(VA, (u64)frame_a, PT_P | PT_W);
    map(VA + PAGE, (u64)frame_b, PT_P | PT_W);
    *(volatile u64 *)at = v;
    check_eq(frame_a[4093] | frame_a[4095] << 8 | frame_b[0] << 16, 0x556688,
             "a store on two pages");
    check_eq(*(volatile u64 *)at, v, "and the load");
    map(VA + PAGE, 0, 0);
    TRY("mov %%rax, (%%rcx)", "c"(at), "a"(0));
    check_trap(14, 2, VA + PAGE, "the second page missing");
    check_eq(frame_a[4093], 0x88, "nothing was written");
    TRY("lock addq $1, (%%rcx)", "c"(at), "a"(0));
    INEXACT(check_trap(14, 2, VA + PAGE, "a locked one"));
    map(VA + PAGE, (u64)frame_b, PT_P);
    TRY("mov %%rax, (%%rcx)", "c"(at), "a"(0));
    check_trap(14, 3, VA + PAGE, "the second page read-only");
    map(VA, 0, 0);
    TRY("mov (%%rcx), %%rax", "c"(at), "a"(0));
    check_trap(14, 0, at, "the first page missing");
}

static void changes(void)
{
    volatile u64 *table = (volatile u64 *)(*pt_entry(VA, 2) & PT_ADDR);
    u64 bad = 0;

    *(volatile u32 *)frame_a = 1;
    *(volatile u32 *)frame_b = 2;
    for (unsigned i = 0; i < 1000; i++) {
        map(VA, (u64)(i & 1 ? frame_b : frame_a), PT_P | PT_W);
        bad += *(volatile u32 *)VA != 1 + (i & 1);
    }
    check_eq(bad, 0, "remapped with INVLPG");
    for (unsigned i = 0; i < 1000; i++) {
        *pt_entry(VA, 1) = (u64)(i & 1 ? frame_b : frame_a) | PT_P | PT_W;
        WRITE_REG(cr3, READ_REG(cr3));
        bad += *(volatile u32 *)VA != 1 + (i & 1);
    }
    check_eq(bad, 0, "remapped with CR3");
    map(VA + 5 * PAGE, 0, 0);
    READ(VA + 5 * PAGE);
    table[5] = (u64)frame_b | PT_P; /* absent to present needs no flush */
    check_eq(*(volatile u32 *)(VA + 5 * PAGE), 2, "made present without a flush");
    /* The table reached through a mapping of itself. */
    map(VA + 6 * PAGE, (u64)table, PT_P | PT_W);
    ((volatile u64 *)(VA + 6 * PAGE))[5] = (u64)frame_a | PT_P;
    invlpg(VA + 5 * PAGE);
    check_eq(*(volatile u32 *)(VA + 5 * PAGE), 1, "changed through a recursive mapping");
    /* Another root. */
    u64 *other = pt_alloc(), *pd3 = pt_alloc(), *pd2 = pt_alloc(), *pt = pt_alloc();
    u64 old = READ_REG(cr3);

    memcpy(other, pml4, PAGE);
    memcpy(pd3, pdpt, PAGE);
    other[0] = (u64)pd3 | 7;
    pd3[VA >> 30 & 511] = (u64)pd2 | 7;
    pd2[0] = (u64)pt | 7;
    pt[5] = (u64)frame_b | PT_P | PT_W;
    for (unsigned i = 0; i < 500; i++) {
        WRITE_REG(cr3, (u64)other);
        bad += *(volatile u32 *)(VA + 5 * PAGE) != 2;
        WRITE_REG(cr3, old);
        bad += *(volatile u32 *)(VA + 5 * PAGE) != 1;
    }
    check_eq(bad, 0, "two roots in turn");
    if (cpu_has(1, 2, 17)) {
        WRITE_REG(cr4, READ_REG(cr4) | 1 << 17);
        for (unsigned i = 0; i < 500; i++) {
            WRITE_REG(cr3, (u64)other | 5 | 1ull << 63);
            bad += *(volatile u32 *)(VA + 5 * PAGE) != 2;
            WRITE_REG(cr3, old | 1ull << 63);
            bad += *(volatile u32 *)(VA + 5 * PAGE) != 1;
        }
        check_eq(bad, 0, "two roots with PCIDs");
        check_eq(READ_REG(cr3), old, "bit 63 reads as zero");
        if (cpu_has(7, 1, 10)) {
            u64 d[2] = {5, VA + 5 * PAGE};

            pt[5] = (u64)frame_a | PT_P | PT_W;
            __asm__ volatile("invpcid %0, %1" : : "m"(d), "r"(0ull) : "memory");
            WRITE_REG(cr3, (u64)other | 5 | 1ull << 63);
            bad = *(volatile u32 *)(VA + 5 * PAGE);
            WRITE_REG(cr3, old);
            check_eq(bad, 1, "INVPCID of one address");
            TRY("invpcid (%%rcx), %%rax", "c"(d), "a"(4));
            INEXACT(check_trap(13, 0, 0, "INVPCID type 4"));
        }
        TRY("mov %%rax, %%cr4", "a"(READ_REG(cr4) & ~(1ull << 17)));
        check_trap(-1, 0, 0, "PCIDE off again");
        WRITE_REG(cr3, old | 1);
        TRY("mov %%rax, %%cr4", "a"(READ_REG(cr4) | 1 << 17));
        WRITE_REG(cr3, old);
        WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 17));
    }
}

static void global_pages(void)
{
    map(VA + 9 * PAGE, (u64)frame_a, PT_P | PT_W | PT_G);
    check_eq(*(volatile u32 *)(VA + 9 * PAGE), 1, "global page");
    *pt_entry(VA + 9 * PAGE, 1) = (u64)frame_b | PT_P | PT_G;
    WRITE_REG(cr4, READ_REG(cr4) & ~0x80ull);
    WRITE_REG(cr4, READ_REG(cr4) | 0x80);
    check_eq(*(volatile u32 *)(VA + 9 * PAGE), 2, "flushed by CR4.PGE");
}

static void smep_smap(void)
{
    map(VA, (u64)frame_a, PT_P | PT_W | PT_U);
    frame_a[0] = 0xc3;
    if (cpu_has(7, 1, 7)) {
        WRITE_REG(cr4, READ_REG(cr4) | 1 << 20);
        fetch(VA, 0x11, "SMEP");
        WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 20));
        CALL(VA);
        check_trap(-1, 0, 0, "no SMEP");
    }
    if (cpu_has(7, 1, 20)) {
        WRITE_REG(cr4, READ_REG(cr4) | 1 << 21);
        READ(VA);
        check_trap(14, 1, VA, "SMAP read");
        WRITE(VA);
        check_trap(14, 3, VA, "SMAP write");
        TRY("stac; mov (%%rcx), %%al; clac", "c"(VA), "a"(0));
        check_trap(-1, 0, 0, "between STAC and CLAC");
        READ(VA);
        check_trap(14, 1, VA, "after CLAC");
        WRITE_REG(cr4, READ_REG(cr4) & ~(1ull << 21));
        READ(VA);
        check_trap(-1, 0, 0, "no SMAP");
        TRY("stac", "a"(0));
        check_trap(-1, 0, 0, "STAC without SMAP");
        __asm__ volatile("clac");
    }
}

static void user_touch(void)
{
    __asm__ volatile("mov (%0), %%al" : : "r"(VA) : "rax", "memory");
}

static u64 user_err, user_cr2;

static bool on_user_pf(struct frame *f)
{
    if (!(f->cs & 3))
        return false;
    user_err = f->err;
    user_cr2 = READ_REG(cr2);
    f->rip += 2; /* mov al, [reg] */
    return true;
}

static void user_bit(void)
{
    set_handler(14, on_user_pf);
    map(VA, (u64)frame_a, PT_P | PT_W);
    user_run(user_touch, 2);
    check_eq(user_err, 5, "ring 3 reads a supervisor page");
    check_eq(user_cr2, VA, "its CR2");
    map(VA, 0, 0);
    user_run(user_touch, 2);
    check_eq(user_err, 4, "ring 3 reads nothing");
    user_err = 99;
    map(VA, (u64)frame_a, PT_P | PT_U);
    user_run(user_touch, 2);
    check_eq(user_err, 99, "ring 3 reads a user page");
    set_handler(14, NULL);
}

void guest_main(void)
{
    accessed_dirty();
    permissions();
    reserved();
    sizes();
    crossing();
    changes();
    global_pages();
    smep_smap();
    user_bit();
}
