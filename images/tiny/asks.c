/* Instructions that ask the machine what it is or what time it is, in ring 0 and in ring 3: the
 * answers must be the machine's own in both, whatever CPU is below. They are printed, so that a
 * recording holds them. */
#include "tiny.h"

static u64 user_vector;
volatile u32 answer[4]; /* eax, ebx, ecx, edx after the instruction */

static bool on_user_fault(struct frame *f)
{
    if (!(f->cs & 3))
        return false;
    user_vector = f->vector;
    __asm__ volatile("jmp user_back");
    return true;
}

/* The operands come from the instruction text, because ring 3 has no stack of ours. */
#define ASK(name, setup, insn)                                                                     \
    static void name(void)                                                                         \
    {                                                                                              \
        __asm__ volatile(setup "; " insn "; mov %%eax, answer(%%rip); mov %%ebx, 4+answer(%%rip);" \
                               "mov %%ecx, 8+answer(%%rip); mov %%edx, 12+answer(%%rip)"           \
                         :                                                                         \
                         :                                                                         \
                         : "rax", "rbx", "rcx", "rdx", "memory");                                  \
    }
#define CPUID_ASK(name, leaf, sub) ASK(name, "mov $" #leaf ", %%eax; mov $" #sub ", %%ecx", "cpuid")
#define ZERO                       "xor %%eax, %%eax; xor %%ebx, %%ebx; xor %%ecx, %%ecx; xor %%edx, %%edx"
CPUID_ASK(cpuid_0, 0, 0)
CPUID_ASK(cpuid_1, 1, 0)
CPUID_ASK(cpuid_4, 4, 2)
CPUID_ASK(cpuid_7, 7, 0)
CPUID_ASK(cpuid_b, 0xb, 1)
CPUID_ASK(cpuid_d, 0xd, 0)
CPUID_ASK(cpuid_15, 0x15, 0)
CPUID_ASK(cpuid_beyond, 0x1000, 0)
CPUID_ASK(cpuid_hyper, 0x40000000, 0)
CPUID_ASK(cpuid_x1, 0x80000001, 0)
CPUID_ASK(cpuid_x2, 0x80000002, 0)
CPUID_ASK(cpuid_x8, 0x80000008, 0)
ASK(ask_xgetbv, ZERO, "xgetbv")
ASK(ask_rdpmc, ZERO, "rdpmc")
ASK(ask_rdtsc, ZERO, "rdtsc")
ASK(ask_rdtscp, ZERO, "rdtscp")
ASK(ask_rdrand, ZERO, "rdrand %%eax")
ASK(ask_rdseed, ZERO, "rdseed %%eax")
ASK(ask_monitor, ZERO, "lea answer(%%rip), %%rax; monitor")
ASK(ask_mwait, ZERO, "mwait")

static void in_ring_3(void (*fn)(void), u32 got[4])
{
    user_vector = ~0ull;
    user_run(fn, 2);
    for (unsigned i = 0; i < 4; i++)
        got[i] = answer[i];
}

/* The same in both rings. */
static void same(void (*fn)(void), const char *name)
{
    u32 zero[4], three[4];

    fn();
    for (unsigned i = 0; i < 4; i++)
        zero[i] = answer[i];
    in_ring_3(fn, three);
    print("%s: %x %x %x %x\n", name, zero[0], zero[1], zero[2], zero[3]);
    check_eq(user_vector, ~0ull, name);
    check(memcmp(zero, three, sizeof zero) == 0, "ring 3 gets the same answer");
}

static void time_in_ring_3(void (*fn)(void), const char *name)
{
    u32 got[4];
    u64 before = rdtsc(), there;

    in_ring_3(fn, got);
    there = (u64)got[3] << 32 | got[0];
    print("%s: %lx\n", name, there);
    check(there > before && there < rdtsc(), name);
}

/* What no model has; some reference machines do. */
static void refused(void (*fn)(void), bool has, u64 vector, const char *name)
{
    u32 got[4];

    if (has)
        return;
    in_ring_3(fn, got);
    check_eq(user_vector, vector, name);
}

void guest_main(void)
{
    static const u8 vectors[] = {6, 13};

    for (unsigned i = 0; i < COUNT(vectors); i++)
        set_handler(vectors[i], on_user_fault);
    same(cpuid_0, "CPUID 0");
    same(cpuid_1, "CPUID 1");
    same(cpuid_4, "CPUID 4");
    same(cpuid_7, "CPUID 7");
    same(cpuid_b, "CPUID b");
    same(cpuid_beyond, "CPUID beyond the last");
    same(cpuid_15, "CPUID 15");
    same(cpuid_hyper, "CPUID 40000000");
    same(cpuid_x1, "CPUID 80000001");
    same(cpuid_x2, "CPUID 80000002");
    same(cpuid_x8, "CPUID 80000008");
    if (cpu_has(1, 2, 26)) {
        WRITE_REG(cr4, READ_REG(cr4) | 1 << 18);
        same(cpuid_1, "CPUID 1 with OSXSAVE");
        same(cpuid_d, "CPUID d");
        same(ask_xgetbv, "XGETBV");
        __asm__ volatile("xsetbv" : : "a"(3), "d"(0), "c"(0));
        same(cpuid_d, "CPUID d with SSE");
        same(ask_xgetbv, "XGETBV with SSE");
    }
    wrmsr(0xc0000103, 0x1234567);
    time_in_ring_3(ask_rdtsc, "RDTSC in ring 3");
    time_in_ring_3(ask_rdtscp, "RDTSCP in ring 3");
    check_eq(answer[2], 0x1234567, "RDTSCP has TSC_AUX");
    WRITE_REG(cr4, READ_REG(cr4) | 4);
    refused(ask_rdtsc, false, 13, "RDTSC in ring 3 with CR4.TSD");
    refused(ask_rdtscp, false, 13, "RDTSCP in ring 3 with CR4.TSD");
    WRITE_REG(cr4, READ_REG(cr4) & ~4ull);
    refused(ask_rdpmc, false, 13, "RDPMC in ring 3");
    refused(ask_rdrand, cpu_has(1, 2, 30), 6, "RDRAND in ring 3");
    refused(ask_rdseed, cpu_has(7, 1, 18), 6, "RDSEED in ring 3");
    refused(ask_monitor, cpu_has(1, 2, 3), 6, "MONITOR in ring 3");
    refused(ask_mwait, cpu_has(1, 2, 3), 6, "MWAIT in ring 3");
    TRY("rdpmc", "c"(0x12345));
    check_trap(13, 0, 0, "RDPMC in ring 0");
    if (!cpu_has(1, 2, 30)) {
        TRY("rdrand %%eax");
        check_trap(6, 0, 0, "RDRAND in ring 0");
    }
    if (!cpu_has(7, 1, 18)) {
        TRY("rdseed %%eax");
        check_trap(6, 0, 0, "RDSEED in ring 0");
    }
    if (!cpu_has(1, 2, 3)) {
        TRY("xor %%ecx, %%ecx; mwait", "a"(0));
        trap_rip = trap.f.rip; /* after the XOR */
        check_trap(6, 0, 0, "MWAIT in ring 0");
    }
    exit_guest(0);
}
