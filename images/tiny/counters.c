/* Performance counters, as architectural performance monitoring or AMD's have them; nothing where
 * the CPU model has none. Each number is known by counting the instructions below. */
#include "tiny.h"

#define EVTSEL      0x186
#define PMC         0xc1
#define FIXED       0x309
#define FIXED_CTRL  0x38d
#define STATUS      0x38e
#define GLOBAL_CTRL 0x38f
#define RESET       0x390
#define AMD_CTL     0xc0010200
#define AMD_CTR     0xc0010201

#define RING0 (1u << 17)
#define RING3 (1u << 16)
#define INT   (1u << 20)
#define ON    (1u << 22)
#define WIDTH (1ull << 48)

static bool amd;
static u64 cond; /* the event of conditional branches */
static volatile u64 hits, at, at_user;

static u64 pmc(unsigned i)
{
    return rdmsr(amd ? AMD_CTR + 2 * i : PMC + i);
}

/* Counter i: an event from `value` on; 0: off. */
static void program(unsigned i, u64 event, u64 value)
{
    wrmsr(amd ? AMD_CTL + 2 * i : EVTSEL + i, 0);
    wrmsr(amd ? AMD_CTR + 2 * i : 0x4c1 + i, value & (WIDTH - 1));
    if (event)
        wrmsr(amd ? AMD_CTL + 2 * i : EVTSEL + i, event | ON);
}

static bool on_overflow(struct frame *f)
{
    hits++;
    at = f->rip;
    at_user = f->cs & 3;
    lapic_write(0x340, f->vector == 2 ? 0x400 : 0x41);
    if (f->vector != 2)
        lapic_eoi();
    if (!amd)
        wrmsr(RESET, rdmsr(STATUS));
    return true;
}

/* What is counted from RDPMC to RDPMC: 29 instructions, 10 conditional branches, a call, a jump and
 * a return. */
static u64 between(u64 event)
{
    u32 before, after;
    program(0, event, 0);
    __asm__ volatile("xor %%ecx, %%ecx; rdpmc; mov %%eax, %%esi\n"
                     "mov $10, %%ecx; 1: dec %%ecx; jnz 1b; call 2f; jmp 3f; 2: ret; 3: xor %%ecx, "
                     "%%ecx; rep stosb\n"
                     "xor %%ecx, %%ecx; rdpmc"
                     : "=S"(before), "=a"(after)
                     : "D"(&at)
                     : "rcx", "rdx", "memory", "cc");
    program(0, 0, 0);
    return after - before;
}

static void numbers(void)
{
    const u64 insns = 0xc0, all = amd ? 0xc2 : 0xc4;
    check_eq(between(insns | RING0), 29, "instructions");
    check_eq(between(insns | RING3), 0, "nothing of ring 3");
    check_eq(between(cond | RING0), 10, "conditional branches");
    check_eq(between(all | RING0), 13, "all branches");
}

extern const char sled[], sled_end[];
static void run_sled(void)
{
    __asm__ volatile(".globl sled, sled_end\nsled: .fill 300, 1, 0x90\nsled_end:" ::: "memory");
}

/* An overflow comes after the very instruction. */
static void overflow(u8 vector)
{
    u64 first = 0;
    lapic_write(0x340, vector == 2 ? 0x400 : vector);
    set_handler(vector, on_overflow);
    for (unsigned k = 0; k < 4; k++) {
        hits = 0;
        program(0, 0xc0 | RING0 | INT, WIDTH - 100 - k);
        sti();
        run_sled();
        cli();
        program(0, 0, 0);
        check_eq(hits, 1, "an overflow");
        check(at > (u64)sled && at < (u64)sled_end, "in the sled");
        if (k)
            check_eq(at, first + k, "an instruction further");
        else
            first = at;
    }
}

static void user_work(void)
{
    __asm__ volatile("mov $1000, %%ecx; 1: dec %%ecx; jnz 1b; mov $0, %%ecx; rdpmc"
                     :
                     :
                     : "rax", "rcx", "rdx", "cc");
}

static void user(void)
{
    WRITE_REG(cr4, READ_REG(cr4) | 1 << 8); /* PCE */
    program(0, cond | RING3, 0);
    user_run(user_work, 2);
    check_eq(pmc(0), 1000, "conditional branches of ring 3");
    program(0, 0xc0 | RING3 | INT, WIDTH - 500);
    hits = 0;
    user_run(user_work, 0x202);
    program(0, 0, 0);
    check_eq(hits, 1, "an overflow in ring 3");
    check_eq(at_user, 3, "there");
}

void guest_main(void)
{
    u32 r[4], leaf[4];
    cpuid(0, 0, r);
    amd = r[1] == 0x68747541;
    cpuid(1, 0, leaf);
    cond = amd ? 0xd1 : ((leaf[0] >> 12 & 0xf0) | (leaf[0] >> 4 & 15)) == 0x6a ? 0x11c4 : 0x1c4;
    cpuid(0xa, 0, leaf);
    if (amd ? !cpu_has(0x80000001, 2, 23) : r[0] < 0xa || !(leaf[0] & 0xff)) {
        TRY("rdmsr", "c"(PMC));
        check_trap(13, 0, 0, "no counters, no MSRs of theirs");
        return;
    }
    lapic_write(0xf0, 0x1ff);
    if (!amd) {
        wrmsr(GLOBAL_CTRL, 0x70000000full);
        wrmsr(FIXED_CTRL, 2 | 2 << 4 | 2 << 8); /* ring 3 */
    }
    numbers();
    overflow(0x41);
    overflow(2);
    user();
    if (!amd) {
        check(rdmsr(FIXED) > 4000, "the fixed counter of instructions");
        check(rdmsr(FIXED + 1) >= rdmsr(FIXED) && rdmsr(FIXED + 1) == rdmsr(FIXED + 2),
              "and of cycles");
    }
    print("%lx %lx\n", amd ? pmc(1) : rdmsr(FIXED), amd ? 0 : rdmsr(FIXED + 1));
}
