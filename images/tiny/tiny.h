/*
 * The runtime of the tiny guests: serial console, exceptions that are recorded and recovered
 * from, page tables, interrupt controllers. A guest prints "ok NAME" or "FAIL NAME: ..." per check
 * and ends through the debug-exit port with 0 when nothing failed, else 1.
 */
#ifndef TINY_H
#define TINY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "layout.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define PAGE     4096ull
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Output and verdicts */
void put_char(char c);
void put_string(const char *s);
void print(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* %s %d %u %x %lx %c */
void check(bool good, const char *name);
/* As check; prints both when they differ. */
void check_eq(u64 got, u64 want, const char *name);
_Noreturn void exit_guest(int status); /* 0: becomes 1 if a check failed */
_Noreturn void exit_raw(u32 value);
void guest_main(void);
/* QEMU's TCG, our reference for the guests themselves, is known to be wrong in the checks between
 * inexact(true) and inexact(false): there, and only there, they print "tcg NAME" and do not count.
 */
bool under_tcg(void);
void inexact(bool on);
#define INEXACT(stmt)                                                                              \
    do {                                                                                           \
        inexact(true);                                                                             \
        stmt;                                                                                      \
        inexact(false);                                                                            \
    } while (0)

/* Exceptions and interrupts */
struct frame {
    u64 r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
    u64 vector, err;
    u64 rip, cs, rflags, rsp, ss;
};
struct trap {
    u64 count; /* since trap_clear */
    u64 vector, err, cr2;
    struct frame f;
};
extern volatile struct trap trap;
extern u64 recover_rip, trap_rip, trap_rsp; /* of the instruction under TRY, and the stack */
void trap_clear(void);
/* A handler for one vector; returns true when it dealt with it (then nothing is recorded). */
typedef bool handler_fn(struct frame *f);
void set_handler(unsigned vector, handler_fn *fn);
void set_ist(unsigned vector, unsigned ist);
void set_gate(unsigned vector, u64 target, u16 sel, u8 type_dpl, unsigned ist);
u64 gate_target(unsigned vector);

/*
 * Runs one instruction that may fault. Afterwards trap says what happened; execution goes on
 * after it. Uses RAX; the operands are the caller's own business (registers by name).
 */
#define TRY(insn, ...)                                                                             \
    do {                                                                                           \
        trap_clear();                                                                              \
        __asm__ volatile("leaq 99f(%%rip), %%r15\n\tmovq %%r15, recover_rip(%%rip)\n\t"            \
                         "leaq 98f(%%rip), %%r15\n\tmovq %%r15, trap_rip(%%rip)\n\t"               \
                         "movq %%rsp, trap_rsp(%%rip)\n\t"                                         \
                         "98: " insn "\n99:\n\tmovq trap_rsp(%%rip), %%rsp\n\t"                    \
                         "movq $0, recover_rip(%%rip)"                                             \
                         :                                                                         \
                         : __VA_ARGS__                                                             \
                         : "r15", "r14", "memory", "cc");                                          \
    } while (0)

/* Vector, error code and (for #PF) CR2 of the last TRY; vector -1: nothing must have happened. */
void check_trap(int vector, u64 err, u64 cr2, const char *name);

/* Ring 3 */
#define USER(p) ((u64)(p) + USER_ALIAS)
extern u8 user_stack[8192];
void user_run(void (*fn)(void), u64 rflags); /* fn runs at its alias in ring 3, then returns */
void user_enter(u64 rip, u64 rsp, u64 rflags);
extern const char user_back[], user_exit[];
extern u64 tss[], gdt[];
void set_rsp0(u64 rsp);

/* Page tables */
#define PT_P    1ull
#define PT_W    2ull
#define PT_U    4ull
#define PT_A    0x20ull
#define PT_D    0x40ull
#define PT_PS   0x80ull
#define PT_G    0x100ull
#define PT_NX   (1ull << 63)
#define PT_ADDR 0x000ffffffffff000ull
extern u64 pml4[512], pdpt[512];
u64 *pt_alloc(void); /* a zeroed page; never freed */
/* The entry of `va` at level 1 (4K), 2 (2M) or 3 (1G), tables made with P W U on the way. */
u64 *pt_entry(u64 va, unsigned level);
void map(u64 va, u64 pa, u64 flags); /* 4K, and INVLPG */

/* Ports, registers */
static inline void outb(u16 p, u8 v)
{
    __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(p));
}
static inline void outw(u16 p, u16 v)
{
    __asm__ volatile("outw %0, %1" : : "a"(v), "Nd"(p));
}
static inline void outl(u16 p, u32 v)
{
    __asm__ volatile("outl %0, %1" : : "a"(v), "Nd"(p));
}
static inline u8 inb(u16 p)
{
    u8 v;
    __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(p));
    return v;
}
static inline u32 inl(u16 p)
{
    u32 v;
    __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(p));
    return v;
}
static inline u64 rdmsr(u32 m)
{
    u32 a, d;
    __asm__ volatile("rdmsr" : "=a"(a), "=d"(d) : "c"(m));
    return a | (u64)d << 32;
}
static inline void wrmsr(u32 m, u64 v)
{
    __asm__ volatile("wrmsr" : : "c"(m), "a"((u32)v), "d"((u32)(v >> 32)) : "memory");
}
static inline u64 rdtsc(void)
{
    u32 a, d;
    __asm__ volatile("rdtsc" : "=a"(a), "=d"(d));
    return a | (u64)d << 32;
}
#define READ_REG(reg)                                                                              \
    ({                                                                                             \
        u64 v_;                                                                                    \
        __asm__ volatile("mov %%" #reg ", %0" : "=r"(v_) : : "memory");                            \
        v_;                                                                                        \
    })
#define WRITE_REG(reg, v) __asm__ volatile("mov %0, %%" #reg : : "r"((u64)(v)) : "memory")
static inline u64 read_flags(void)
{
    u64 v;
    __asm__ volatile("pushfq; pop %0" : "=r"(v));
    return v;
}
static inline void invlpg(u64 va)
{
    __asm__ volatile("invlpg (%0)" : : "r"(va) : "memory");
}
static inline void sti(void)
{
    __asm__ volatile("sti" : : : "memory");
}
static inline void cli(void)
{
    __asm__ volatile("cli" : : : "memory");
}
static inline void sti_hlt_cli(void)
{
    __asm__ volatile("sti; hlt; cli" : : : "memory");
}
/* Lets what is pending arrive: the instruction after STI still runs in its shadow. */
static inline void window(void)
{
    __asm__ volatile("sti; nop; nop; cli" : : : "memory");
}
static inline void cpuid(u32 leaf, u32 sub, u32 r[4])
{
    __asm__ volatile("cpuid"
                     : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3])
                     : "a"(leaf), "c"(sub));
}
/* Bit of a CPUID register (0 eax .. 3 edx); false when there is no such leaf. */
bool cpu_has(u32 leaf, unsigned reg, unsigned bit);
void *memcpy(void *d, const void *s, size_t n);
void *memset(void *d, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);

/* The command line, by the zero page (Documentation/arch/x86/zero-page.rst); "" under PVH. */
extern const u8 *zero_page;
static inline const char *command_line(void)
{
    return zero_page ? (const char *)(u64) * (const u32 *)(zero_page + 0x228) : "";
}
/* The number of "NAME=number" there; 0: there is none. */
static inline u64 command_number(const char *name)
{
    u64 n = 0;

    for (const char *line = command_line(); *line; line++) {
        size_t k = 0;
        while (name[k] && line[k] == name[k])
            k++;
        if (name[k] || line[k] != '=')
            continue;
        for (line += k + 1; *line >= '0' && *line <= '9'; line++)
            n = 10 * n + (u64)(*line - '0');
        break;
    }
    return n;
}

/* Interrupt controllers (irq.c) */
#define LAPIC  0xfee00000ull
#define IOAPIC 0xfec00000ull
static inline u32 lapic_read(u32 r)
{
    return *(volatile u32 *)(LAPIC + r);
}
static inline void lapic_write(u32 r, u32 v)
{
    *(volatile u32 *)(LAPIC + r) = v;
}
static inline void lapic_eoi(void)
{
    lapic_write(0xb0, 0);
}
void lapic_enable(void);
u32 ioapic_read(u32 r);
void ioapic_write(u32 r, u32 v);
void ioapic_route(unsigned pin, u8 vector, u32 flags); /* flags: 1 << 15 level, 1 << 16 masked */
void pic_init(u8 base, u16 unmasked);                  /* ICW1..4, vectors base.. and base + 8.. */
void pic_eoi(unsigned irq);
void pit_set(unsigned channel, unsigned mode, u16 count);
u16 pit_read(unsigned channel);

#endif
