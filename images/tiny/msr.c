/* The MSRs that exist can be read, those that do not give #GP, and so do bad values. */
#include "tiny.h"

static const struct {
    u32 msr;
    const char *name;
} known[] = {{0x10, "TSC"},
             {0x1b, "APIC_BASE"},
             {0x3b, "TSC_ADJUST"},
             {0x48, "SPEC_CTRL"},
             {0x8b, "BIOS_SIGN_ID"},
             {0xfe, "MTRRCAP"},
             {0x10a, "ARCH_CAPABILITIES"},
             {0x174, "SYSENTER_CS"},
             {0x175, "SYSENTER_ESP"},
             {0x176, "SYSENTER_EIP"},
             {0x179, "MCG_CAP"},
             {0x17a, "MCG_STATUS"},
             {0x1a0, "MISC_ENABLE"},
             {0x200, "MTRR_PHYSBASE0"},
             {0x250, "MTRR_FIX64K"},
             {0x277, "PAT"},
             {0x2ff, "MTRR_DEF_TYPE"},
             {0x6e0, "TSC_DEADLINE"},
             {0xc0000080, "EFER"},
             {0xc0000081, "STAR"},
             {0xc0000082, "LSTAR"},
             {0xc0000083, "CSTAR"},
             {0xc0000084, "SFMASK"},
             {0xc0000100, "FS_BASE"},
             {0xc0000101, "GS_BASE"},
             {0xc0000102, "KERNEL_GS_BASE"},
             {0xc0000103, "TSC_AUX"}};

static const struct {
    u32 msr;
    u64 value;
    const char *name;
} bad[] = {{0xc0000080, 1ull << 20, "EFER reserved"},
           {0xc0000082, 1ull << 63, "LSTAR not canonical"},
           {0x277, 2, "PAT type 2"},
           {0x1b, 1ull << 60, "APIC_BASE reserved"},
           {0x2ff, 2, "MTRR default type 2"},
           {0x175, 1ull << 63, "SYSENTER_ESP not canonical"},
           {0xc0000103, 1ull << 32, "TSC_AUX has 32 bits"}};

void guest_main(void)
{
    for (unsigned i = 0; i < COUNT(known); i++) {
        TRY("rdmsr", "c"(known[i].msr), "a"(0), "d"(0));
        INEXACT(check_trap(-1, 0, 0, known[i].name));
    }
    TRY("rdmsr", "c"(0x12345), "a"(0), "d"(0));
    INEXACT(check_trap(13, 0, 0, "an MSR that does not exist"));
    TRY("wrmsr", "c"(0x12345), "a"(0), "d"(0));
    INEXACT(check_trap(13, 0, 0, "nor can it be written"));
    for (unsigned i = 0; i < COUNT(bad) && !under_tcg(); i++) {
        TRY("wrmsr", "c"(bad[i].msr), "a"((u32)bad[i].value), "d"(bad[i].value >> 32));
        check_trap(13, 0, 0, bad[i].name);
    }
    check_eq(rdmsr(0xc0000080) & 0x501, 0x501, "EFER: LMA, LME, SCE");
    wrmsr(0xc0000102, 0xffff800012345678);
    check_eq(rdmsr(0xc0000102), 0xffff800012345678, "KERNEL_GS_BASE holds a value");
    wrmsr(0xc0000081, 0x0023001012345678);
    check_eq(rdmsr(0xc0000081), 0x0023001012345678, "STAR holds a value");
    wrmsr(0xc0000103, 0x89abcdef);
    check_eq(rdmsr(0xc0000103), 0x89abcdef, "TSC_AUX holds a value");
    wrmsr(0x277, 0x0007040600070406);
    check_eq(rdmsr(0x277), 0x0007040600070406, "PAT holds a value");
}
