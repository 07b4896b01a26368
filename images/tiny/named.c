/* What a CPU model made after a CPU that there is has more: its MSRs, CPUID that faults in ring 3, and
 * the ways into the kernel as its maker has them. With the models that are nobody's: none of it. */
#include "tiny.h"

#define PLATFORM_INFO    0xce
#define FEATURES_ENABLES 0x140
#define MISC_ENABLE      0x1a0
#define HWCR             0xc0010015
#define DE_CFG           0xc0011029
#define CPUID_FAULTS     (1ull << 31)

static u64 user_vector, user_error, user_faults;
static bool amd, named;

static bool on_user_fault(struct frame *f)
{
    if (!(f->cs & 3))
        return false;
    user_vector = f->vector;
    user_error = f->err;
    user_faults++;
    __asm__ volatile("jmp user_back");
    return true;
}

static void u_cpuid(void)
{
    __asm__ volatile("xor %%eax, %%eax; cpuid" : : : "rax", "rbx", "rcx", "rdx");
}

static void u_rdtsc(void)
{
    __asm__ volatile("rdtsc" : : : "rax", "rdx");
}

static void u_rdtscp(void)
{
    __asm__ volatile("rdtscp" : : : "rax", "rcx", "rdx");
}

/* `times` runs in ring 3, of which each faults or none. */
static void user(void (*fn)(void), unsigned times, bool faults, const char *name)
{
    user_faults = 0;
    user_vector = user_error = ~0ull;
    for (unsigned i = 0; i < times; i++)
        user_run(fn, 2);
    check_eq(user_faults, faults ? times : 0, name);
    if (faults && (user_vector != 13 || user_error != 0))
        check(false, "#GP(0)");
}

static bool reads(u32 msr, const char *name, bool has)
{
    TRY("rdmsr", "c"(msr), "a"(0), "d"(0));
    check_trap(has ? -1 : 13, 0, 0, name);
    return has;
}

static void refuses(u32 msr, u64 value, const char *name)
{
    TRY("wrmsr", "c"(msr), "a"((u32)value), "d"(value >> 32));
    check_trap(13, 0, 0, name);
}

static void cpuid_faulting(void)
{
    u32 before[4], after[4];
    if (!(rdmsr(PLATFORM_INFO) & CPUID_FAULTS)) {
        reads(FEATURES_ENABLES, "no MISC_FEATURES_ENABLES", false);
        return;
    }
    check_eq(rdmsr(FEATURES_ENABLES), 0, "MISC_FEATURES_ENABLES at first");
    refuses(FEATURES_ENABLES, 2, "MISC_FEATURES_ENABLES reserved");
    refuses(PLATFORM_INFO, CPUID_FAULTS, "PLATFORM_INFO is read-only");
    for (unsigned turn = 0; turn < 3; turn++) {
        user(u_cpuid, 200, false, "CPUID in ring 3");
        cpuid(0, 0, before);
        wrmsr(FEATURES_ENABLES, 1);
        user(u_cpuid, 200, true, "CPUID in ring 3 that faults");
        cpuid(0, 0, after);
        check(memcmp(before, after, sizeof before) == 0, "CPUID in ring 0 does not");
        user(u_rdtsc, 50, false, "RDTSC does not either");
        wrmsr(FEATURES_ENABLES, 0);
    }
}

/* With the same code, translated before, after and in between. */
static void time_stamps(void)
{
    for (unsigned turn = 0; turn < 3; turn++) {
        user(u_rdtsc, 100, false, "RDTSC in ring 3");
        user(u_rdtscp, 100, false, "RDTSCP in ring 3");
        WRITE_REG(cr4, READ_REG(cr4) | 4);
        user(u_rdtsc, 100, true, "RDTSC in ring 3 with CR4.TSD");
        user(u_rdtscp, 100, true, "RDTSCP in ring 3 with CR4.TSD");
        user(u_cpuid, 50, false, "CPUID in ring 3 with CR4.TSD");
        (void)rdtsc();
        WRITE_REG(cr4, READ_REG(cr4) & ~4ull);
    }
}

/* CR4's bits go with CPUID's. */
static void control(void)
{
    static const struct {
        u32 leaf;
        u8 reg, bit, cr4;
        const char *name;
    } rows[] = {{1, 2, 26, 18, "CR4.OSXSAVE"}, {7, 1, 0, 16, "CR4.FSGSBASE"},
                {7, 1, 7, 20, "CR4.SMEP"},     {7, 2, 2, 11, "CR4.UMIP"}};
    for (unsigned i = 0; i < COUNT(rows); i++) {
        u64 old = READ_REG(cr4);
        TRY("mov %%rbx, %%cr4", "b"(old | 1ull << rows[i].cr4));
        check_trap(cpu_has(rows[i].leaf, rows[i].reg, rows[i].bit) ? -1 : 13, 0, 0, rows[i].name);
        WRITE_REG(cr4, old);
    }
}

static void amd_registers(void)
{
    check(rdmsr(HWCR) & 1 << 24, "HWCR: the TSC counts at P0");
    wrmsr(HWCR, rdmsr(HWCR) | 1 << 18);
    check_eq(rdmsr(HWCR), 1 << 24 | 1 << 18, "HWCR keeps McStatusWrEn");
    wrmsr(HWCR, 0);
    check_eq(rdmsr(HWCR), 1 << 24, "and what is read-only");
    refuses(HWCR, 1ull << 40, "HWCR reserved");
    check(rdmsr(DE_CFG) & 2, "DE_CFG: LFENCE serializes");
    wrmsr(0x174, 8);
    TRY("sysenter");
    check_trap(6, 0, 0, "SYSENTER in long mode");
    wrmsr(0x174, 0);
}

void guest_main(void)
{
    u32 r[4];
    set_handler(6, on_user_fault);
    set_handler(13, on_user_fault);
    cpuid(0, 0, r);
    amd = r[1] == 0x68747541; /* "Auth" */
    cpuid(1, 0, r);
    named = r[0] != 0x10621;
    print("CPU %x%s\n", r[0], amd ? ", AMD's" : "");
    reads(MISC_ENABLE, "MISC_ENABLE is Intel's", !amd);
    reads(HWCR, "HWCR is AMD's", amd);
    if (reads(PLATFORM_INFO, "PLATFORM_INFO is Intel's", named && !amd))
        cpuid_faulting();
    else
        user(u_cpuid, 200, false, "CPUID in ring 3");
    if (amd)
        amd_registers();
    time_stamps();
    control();
    exit_guest(0);
}
