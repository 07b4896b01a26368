/* What a CPU model made after a CPU that there is has more: its MSRs, CPUID that faults in ring 3, and
 * the ways into the kernel as its maker has them. With the models that are nobody's: none of it. */
#include "tiny.h"

#define PLATFORM_INFO    0xce
#define FEATURES_ENABLES 0x140
#define MISC_ENABLE      0x1a0
#define HWCR             0xc0010015
#define DE_CFG           0xc0011029
#define CPUID_FAULTS     (1ull << 31)

#define WINDOW 0x80000000u /* 2 MiB of us, for 32-bit code of ring 3 */
#define SEL_32 0x23ull

/* Ring 3, 32 bits: SYSCALL, one more instruction, and back. The kernel's side is 64-bit code. */
extern const char syscall32[], compat_syscall[], long_syscall[];
static volatile u64 entry_rcx, entry_r11, entry_cs, entered, wrong_way, after_syscall;
static u64 syscall32_at; /* in the window */
__asm__(".text\n"
        "compat_syscall:\n"
        "  mov %rcx, entry_rcx(%rip); mov %r11, entry_r11(%rip); mov %cs, entry_cs(%rip)\n"
        "  incq entered(%rip)\n"
        "  sysretl\n"
        "long_syscall:\n"
        "  incq wrong_way(%rip); jmp user_back\n"
        ".code32\n"
        "syscall32:\n"
        "  mov $0x2b, %esi; mov %esi, %ds; syscall; mov $0x5a5a, %esi; mov %esi, (%edi); int $0x81\n"
        ".code64\n");

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

static void u_to_32(void)
{
    __asm__ volatile("mov %1, %%edi; pushq $0x23; pushq %0; lretq"
                     :
                     : "m"(syscall32_at), "r"((u32)(WINDOW + ((u64)&after_syscall & 0x1fffff)))
                     : "rdi", "memory");
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

/* From compatibility mode, many times: AMD's CPUs go to CSTAR, Intel's have none. */
static void syscall_from_32(void)
{
    pdpt[WINDOW >> 30] |= PT_U;
    *pt_entry(WINDOW, 2) = ((u64)syscall32 & ~0x1fffffull) | PT_P | PT_W | PT_U | PT_PS;
    invlpg(WINDOW);
    syscall32_at = WINDOW + ((u64)syscall32 & 0x1fffff);
    wrmsr(0xc0000081, (u64)SEL_KCODE << 32 | SEL_32 << 48);
    wrmsr(0xc0000082, (u64)long_syscall);
    wrmsr(0xc0000083, (u64)compat_syscall);
    wrmsr(0xc0000084, 0x200);
    user_vector = ~0ull;
    user_faults = 0;
    for (unsigned i = 0; i < 100; i++)
        user_run(u_to_32, 0x202);
    check_eq(user_faults, amd ? 0 : 100, "SYSCALL from 32-bit code");
    check_eq(user_vector, amd ? ~0ull : 6, "#UD on Intel's");
    check_eq(entered, amd ? 100 : 0, "by CSTAR");
    check_eq(after_syscall, amd ? 0x5a5a : 0, "SYSRET goes back to it");
    check_eq(wrong_way, 0, "never by LSTAR");
    if (!amd)
        return;
    check_eq(entry_rcx, syscall32_at + 9, "RCX is the address behind it");
    check_eq(entry_r11 & 0x202, 0x202, "R11 the flags");
    check_eq(entry_cs & 0xffff, SEL_KCODE, "CS in the kernel");
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
    syscall_from_32();
    time_stamps();
    control();
    exit_guest(0);
}
