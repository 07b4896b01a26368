/* Console, verdicts, traps, page tables. See tiny.h. */
#include <stdarg.h>
#include "tiny.h"

#define COM1 0x3f8

volatile struct trap trap;
u64 recover_rip, trap_rip, trap_rsp;

static unsigned failures;
static bool tolerant;
static handler_fn *handlers[256];
static volatile u64 nmis;
static struct {
    u64 lo, hi;
} idt[256] __attribute__((aligned(16)));
extern const u8 isr_stubs[];
extern u8 ist_stacks[7][4096];
extern u8 image_end[];
static u64 next_page;

void isr(struct frame *f);
void lib_init(void);

void put_char(char c)
{
    while (!(inb(COM1 + 5) & 0x20))
        ;
    outb(COM1, (u8)c);
}

void put_string(const char *s)
{
    for (; *s; s++) {
        if (*s == '\n')
            put_char('\r');
        put_char(*s);
    }
}

static void put_number(u64 v, unsigned base, unsigned width)
{
    char b[24];
    unsigned n = 0;

    do {
        b[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v || n < width);
    while (n)
        put_char(b[--n]);
}

void print(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    for (; *fmt; fmt++) {
        bool wide = false;
        u64 v;

        if (*fmt != '%') {
            if (*fmt == '\n')
                put_char('\r');
            put_char(*fmt);
            continue;
        }
        if (*++fmt == 'l') {
            wide = true;
            fmt++;
        }
        if (*fmt == 's') {
            put_string(va_arg(ap, const char *));
            continue;
        }
        if (*fmt == 'd') {
            i64 d = wide ? va_arg(ap, i64) : va_arg(ap, int);

            if (d < 0)
                put_char('-');
            put_number((u64)(d < 0 ? -d : d), 10, 1);
            continue;
        }
        v = wide ? va_arg(ap, u64) : va_arg(ap, u32);
        if (*fmt == 'c')
            put_char((char)v);
        else
            put_number(v, *fmt == 'x' ? 16 : 10, 1);
    }
    va_end(ap);
}

bool under_tcg(void)
{
    u32 r[4];

    cpuid(0x40000000, 0, r);
    return r[1] == 0x54474354; /* TCGT */
}

void inexact(bool on)
{
    tolerant = on && under_tcg();
}

/* True when a failure is to be reported as one. */
static bool fail(const char *name)
{
    if (tolerant) {
        print("tcg %s\n", name);
        return false;
    }
    failures++;
    return true;
}

void check(bool good, const char *name)
{
    if (good)
        print("ok %s\n", name);
    else if (fail(name))
        print("FAIL %s: not so\n", name);
}

void check_eq(u64 got, u64 want, const char *name)
{
    if (got == want) {
        check(true, name);
        return;
    }
    if (fail(name))
        print("FAIL %s: expected 0x%lx got 0x%lx\n", name, want, got);
}

void exit_raw(u32 value)
{
    outl(0xf4, value);
    for (;;)
        __asm__ volatile("cli; hlt");
}

void exit_guest(int status)
{
    exit_raw(status || failures ? 1 : 0);
}

void trap_clear(void)
{
    memset((void *)&trap, 0, sizeof trap);
    trap.vector = ~0ull;
}

void set_handler(unsigned vector, handler_fn *fn)
{
    handlers[vector] = fn;
}

/* Called by every stub. A handler first, then TRY's recovery; anything else is the end. */
void isr(struct frame *f)
{
    u64 cr2 = READ_REG(cr2);

    if (f->vector == VEC_BACK)
        __asm__ volatile("jmp user_back");
    if (handlers[f->vector] && handlers[f->vector](f))
        return;
    if (f->vector == 2) { /* the NMI button: nothing is done about it */
        nmis++;
        return;
    }
    trap.count++;
    trap.vector = f->vector;
    trap.err = f->err;
    trap.cr2 = cr2;
    trap.f = *f;
    if (recover_rip) {
        f->rip = recover_rip + (f->cs & 3 ? USER_ALIAS : 0);
        f->rflags &= ~0x100ull;
        recover_rip = 0;
        return;
    }
    print("FAIL: unexpected vector %lu err 0x%lx rip 0x%lx cs 0x%lx rsp 0x%lx cr2 0x%lx\n",
          f->vector, f->err, f->rip, f->cs, f->rsp, cr2);
    exit_guest(1);
}

void check_trap(int vector, u64 err, u64 cr2, const char *name)
{
    const char *what = NULL;
    u64 want = 0, got = 0;

    if (trap.vector != (u64)(i64)vector)
        what = "vector", want = (u64)(i64)vector, got = trap.vector;
    else if (vector >= 0 && trap.err != err)
        what = "error code", want = err, got = trap.err;
    else if (vector == 14 && trap.cr2 != cr2)
        what = "CR2", want = cr2, got = trap.cr2;
    else if (vector >= 0 && vector != 1 && vector != 3 && vector != 4 &&
             trap.f.rip != trap_rip + (trap.f.cs & 3 ? USER_ALIAS : 0))
        what = "RIP", want = trap_rip, got = trap.f.rip;
    if (!what) {
        check(true, name);
        return;
    }
    if (fail(name))
        print("FAIL %s: %s expected 0x%lx got 0x%lx\n", name, what, want, got);
}

void set_gate(unsigned vector, u64 target, u16 sel, u8 type_dpl, unsigned ist)
{
    idt[vector].lo = (target & 0xffff) | (u64)sel << 16 | (u64)ist << 32 | (u64)type_dpl << 40 |
                     (target >> 16 & 0xffff) << 48;
    idt[vector].hi = target >> 32;
}

u64 gate_target(unsigned vector)
{
    return (u64)isr_stubs + vector * 16;
}

void set_ist(unsigned vector, unsigned ist)
{
    if (ist)
        *(u64 *)((u8 *)tss + 36 + 8 * (ist - 1)) = (u64)ist_stacks[ist - 1] + 4096;
    set_gate(vector, gate_target(vector), SEL_KCODE, 0x8e, ist);
}

void set_rsp0(u64 rsp)
{
    *(u64 *)((u8 *)tss + 4) = rsp;
}

void user_run(void (*fn)(void), u64 rflags)
{
    u64 *sp = (u64 *)(user_stack + sizeof user_stack - 8);

    *sp = USER(user_exit);
    user_enter(USER(fn), USER(sp), rflags);
}

u64 *pt_alloc(void)
{
    u64 *p = (u64 *)next_page;

    next_page += PAGE;
    memset(p, 0, PAGE);
    return p;
}

u64 *pt_entry(u64 va, unsigned level)
{
    u64 *t = pml4;

    for (unsigned l = 4; l > level; l--) {
        u64 *e = &t[va >> (12 + 9 * (l - 1)) & 511];

        if (!*e)
            *e = (u64)pt_alloc() | PT_P | PT_W | PT_U;
        t = (u64 *)(*e & PT_ADDR);
    }
    return &t[va >> (12 + 9 * (level - 1)) & 511];
}

void map(u64 va, u64 pa, u64 flags)
{
    *pt_entry(va, 1) = pa | flags;
    invlpg(va);
}

bool cpu_has(u32 leaf, unsigned reg, unsigned bit)
{
    u32 r[4];

    cpuid(leaf & 0x80000000, 0, r);
    if (r[0] < leaf)
        return false;
    cpuid(leaf, leaf == 0xd ? 1 : 0, r);
    return r[reg] >> bit & 1;
}

void *memcpy(void *d, const void *s, size_t n)
{
    void *r = d;

    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
    return r;
}

void *memset(void *d, int c, size_t n)
{
    void *r = d;

    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
    return r;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const u8 *x = a, *y = b;

    for (; n; n--, x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}

void lib_init(void)
{
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) p = {sizeof idt - 1, (u64)idt};
    u64 base = (u64)tss;

    outb(COM1 + 1, 0);
    outb(COM1 + 3, 3);
    outb(0x21, 0xff); /* both 8259s masked, whatever firmware left */
    outb(0xa1, 0xff);
    next_page = ((u64)image_end + 0x1fffff) & ~0x1fffffull;
    for (unsigned i = 0; i < 256; i++)
        set_gate(i, gate_target(i), SEL_KCODE, i == VEC_BACK || i == 3 || i == 4 ? 0xee : 0x8e, 0);
    __asm__ volatile("lidt %0" : : "m"(p));
    gdt[SEL_TSS / 8] = 0x2067 | (base & 0xffffff) << 16 | 0x89ull << 40 | (base >> 24 & 0xff) << 56;
    gdt[SEL_TSS / 8 + 1] = base >> 32;
    *(u16 *)((u8 *)tss + 102) = 0x68; /* I/O bitmap; all ones: nothing allowed */
    gdt[SEL_TSS / 8] = (gdt[SEL_TSS / 8] & ~0xffffull) | (0x68 + 8192);
    memset((u8 *)tss + 0x68, 0xff, 8193);
    __asm__ volatile("ltr %w0" : : "r"(SEL_TSS));
    __asm__ volatile("lldt %w0" : : "r"(0));
    wrmsr(0xc0000080, rdmsr(0xc0000080) | 0x801); /* NX, SCE */
    trap_clear();
}
