/*
 * Which instruction needs which CPUID bit. The model's own CPUID decides what the engine must
 * execute; everything else must give #UD. The host's CPUID decides what can be compared.
 */
#include <cpuid.h>
#include "tests/insn/insn.h"

enum { REG_A, REG_B, REG_C, REG_D };

struct feature {
    const char *name;
    u32 leaf, sub;
    u8 reg, bit;
};

/* clang-format off */
static const struct feature
    f_amd = {"AMD's SYSCALL", 0, 0, REG_B, 12}, /* the vendor: "Auth", not "Genu" */
    f_sse3 = {"sse3", 1, 0, REG_C, 0}, f_pclmul = {"pclmulqdq", 1, 0, REG_C, 1},
    f_monitor = {"monitor", 1, 0, REG_C, 3}, f_vmx = {"vmx", 1, 0, REG_C, 5},
    f_smx = {"smx", 1, 0, REG_C, 6}, f_ssse3 = {"ssse3", 1, 0, REG_C, 9},
    f_fma = {"fma", 1, 0, REG_C, 12}, f_cx16 = {"cx16", 1, 0, REG_C, 13},
    f_sse41 = {"sse4.1", 1, 0, REG_C, 19}, f_sse42 = {"sse4.2", 1, 0, REG_C, 20},
    f_movbe = {"movbe", 1, 0, REG_C, 22}, f_popcnt = {"popcnt", 1, 0, REG_C, 23},
    f_aes = {"aes", 1, 0, REG_C, 25}, f_xsave = {"xsave", 1, 0, REG_C, 26},
    f_avx = {"avx", 1, 0, REG_C, 28}, f_f16c = {"f16c", 1, 0, REG_C, 29},
    f_rdrand = {"rdrand", 1, 0, REG_C, 30},
    f_clfsh = {"clflush", 1, 0, REG_D, 19},
    f_fsgsbase = {"fsgsbase", 7, 0, REG_B, 0}, f_sgx = {"sgx", 7, 0, REG_B, 2},
    f_bmi1 = {"bmi1", 7, 0, REG_B, 3}, f_avx2 = {"avx2", 7, 0, REG_B, 5},
    f_bmi2 = {"bmi2", 7, 0, REG_B, 8}, f_invpcid = {"invpcid", 7, 0, REG_B, 10},
    f_rtm = {"rtm", 7, 0, REG_B, 11}, f_avx512 = {"avx512f", 7, 0, REG_B, 16},
    f_avx512dq = {"avx512dq", 7, 0, REG_B, 17}, f_avx512ifma = {"avx512ifma", 7, 0, REG_B, 21},
    f_avx512er = {"avx512er", 7, 0, REG_B, 27}, f_avx512pf = {"avx512pf", 7, 0, REG_B, 26},
    f_avx512cd = {"avx512cd", 7, 0, REG_B, 28}, f_avx512bw = {"avx512bw", 7, 0, REG_B, 30},
    f_avx512vl = {"avx512vl", 7, 0, REG_B, 31}, f_avx512vbmi = {"avx512vbmi", 7, 0, REG_C, 1},
    f_avx512vbmi2 = {"avx512vbmi2", 7, 0, REG_C, 6}, f_avx512vnni = {"avx512vnni", 7, 0, REG_C, 11},
    f_avx512bitalg = {"avx512bitalg", 7, 0, REG_C, 12},
    f_avx512vpopcnt = {"avx512vpopcntdq", 7, 0, REG_C, 14},
    f_avx512_4vnniw = {"avx512_4vnniw", 7, 0, REG_D, 2},
    f_avx512_4fmaps = {"avx512_4fmaps", 7, 0, REG_D, 3},
    f_avx512vp2 = {"avx512_vp2intersect", 7, 0, REG_D, 8},
    f_avx512fp16 = {"avx512_fp16", 7, 0, REG_D, 23}, f_avx512bf16 = {"avx512_bf16", 7, 1, REG_A, 5},
    f_rdseed = {"rdseed", 7, 0, REG_B, 18}, f_adx = {"adx", 7, 0, REG_B, 19},
    f_smap = {"smap", 7, 0, REG_B, 20}, f_clflushopt = {"clflushopt", 7, 0, REG_B, 23},
    f_clwb = {"clwb", 7, 0, REG_B, 24}, f_sha = {"sha", 7, 0, REG_B, 29},
    f_umip = {"umip", 7, 0, REG_C, 2}, f_pku = {"pku", 7, 0, REG_C, 3},
    f_waitpkg = {"waitpkg", 7, 0, REG_C, 5}, f_gfni = {"gfni", 7, 0, REG_C, 8},
    f_vaes = {"vaes", 7, 0, REG_C, 9}, f_vpclmul = {"vpclmulqdq", 7, 0, REG_C, 10},
    f_rdpid = {"rdpid", 7, 0, REG_C, 22}, f_movdiri = {"movdiri", 7, 0, REG_C, 27},
    f_movdir64b = {"movdir64b", 7, 0, REG_C, 28}, f_enqcmd = {"enqcmd", 7, 0, REG_C, 29},
    f_uintr = {"uintr", 7, 0, REG_D, 5}, f_serialize = {"serialize", 7, 0, REG_D, 14},
    f_tsxldtrk = {"tsxldtrk", 7, 0, REG_D, 16}, f_pconfig = {"pconfig", 7, 0, REG_D, 18},
    f_amx = {"amx", 7, 0, REG_D, 24}, f_avxvnni = {"avx_vnni", 7, 1, REG_A, 4},
    f_kl = {"keylocker", 7, 0, REG_C, 23}, f_hreset = {"hreset", 7, 1, REG_A, 22},
    f_ptwrite = {"ptwrite", 0x14, 0, REG_B, 4}, f_xsaveopt = {"xsaveopt", 0xd, 1, REG_A, 0},
    f_xsavec = {"xsavec", 0xd, 1, REG_A, 1},
    f_xsaves = {"xsaves", 0xd, 1, REG_A, 3}, f_lahf = {"lahf", 0x80000001, 0, REG_C, 0},
    f_svm = {"svm", 0x80000001, 0, REG_C, 2}, f_lzcnt = {"lzcnt", 0x80000001, 0, REG_C, 5},
    f_sse4a = {"sse4a", 0x80000001, 0, REG_C, 6}, f_xop = {"xop", 0x80000001, 0, REG_C, 11},
    f_fma4 = {"fma4", 0x80000001, 0, REG_C, 16}, f_tbm = {"tbm", 0x80000001, 0, REG_C, 21},
    f_mwaitx = {"monitorx", 0x80000001, 0, REG_C, 29}, f_rdtscp = {"rdtscp", 0x80000001, 0, REG_D, 27},
    f_3dnow = {"3dnow", 0x80000001, 0, REG_D, 31}, f_clzero = {"clzero", 0x80000008, 0, REG_B, 0},
    f_rdpru = {"rdpru", 0x80000008, 0, REG_B, 4}, f_mcommit = {"mcommit", 0x80000008, 0, REG_B, 8},
    f_invlpgb = {"invlpgb", 0x80000008, 0, REG_B, 3}, f_snp = {"snp", 0x8000001f, 0, REG_A, 4},
    f_never = {"(none)", 0, 0, REG_A, 32};
/* clang-format on */

/* By the names that Zydis has for its sets, without length and kind. */
static const struct {
    const char *set;
    const struct feature *feature;
} avx512_sets[] = {{"AVX512BW_", &f_avx512bw},           {"AVX512CD_", &f_avx512cd},
                   {"AVX512DQ_", &f_avx512dq},           {"AVX512ER_", &f_avx512er},
                   {"AVX512PF_", &f_avx512pf},           {"AVX512F_", &f_avx512},
                   {"AVX512_4FMAPS_", &f_avx512_4fmaps}, {"AVX512_4VNNIW_", &f_avx512_4vnniw},
                   {"AVX512_BF16_", &f_avx512bf16},      {"AVX512_BITALG_", &f_avx512bitalg},
                   {"AVX512_FP16_", &f_avx512fp16},      {"AVX512_GFNI_", &f_gfni},
                   {"AVX512_IFMA_", &f_avx512ifma},      {"AVX512_VAES_", &f_vaes},
                   {"AVX512_VBMI2_", &f_avx512vbmi2},    {"AVX512_VBMI_", &f_avx512vbmi},
                   {"AVX512_VNNI_", &f_avx512vnni},      {"AVX512_VP2INTERSECT_", &f_avx512vp2},
                   {"AVX512_VPCLMULQDQ_", &f_vpclmul},   {"AVX512_VPOPCNTDQ_", &f_avx512vpopcnt}};

static const struct feature *avx512_of(const ZydisDecodedInstruction *in)
{
    const char *set = ZydisISASetGetString(in->meta.isa_set);
    for (unsigned i = 0; i < ARRAY_SIZE(avx512_sets); i++)
        if (!strncmp(set, avx512_sets[i].set, strlen(avx512_sets[i].set)))
            return avx512_sets[i].feature;
    return NULL;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static const struct feature *feature_of(const ZydisDecodedInstruction *in)
{
    switch (in->mnemonic) {
    case ZYDIS_MNEMONIC_XGETBV:
    case ZYDIS_MNEMONIC_XSETBV: return &f_xsave;
    case ZYDIS_MNEMONIC_VPCLMULQDQ:
        if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX)
            return &f_vpclmul;
        return in->avx.vector_length == 256 ? &f_vpclmul : &f_pclmul;
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2: return NULL;
    case ZYDIS_MNEMONIC_RSM:
    case ZYDIS_MNEMONIC_FEMMS: return &f_never;
    default: break;
    }
    if (in->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX)
        return avx512_of(in) ? avx512_of(in) : &f_never;
    switch (in->meta.isa_set) {
    case ZYDIS_ISA_SET_ADOX_ADCX: return &f_adx;
    case ZYDIS_ISA_SET_AES:
    case ZYDIS_ISA_SET_AVXAES: return &f_aes;
    case ZYDIS_ISA_SET_AMD:
        /* Outside 64-bit code they are AMD's alone (APM vol. 3). */
        return in->meta.category == ZYDIS_CATEGORY_SYSCALL ||
                       in->meta.category == ZYDIS_CATEGORY_SYSRET
                   ? &f_amd
                   : &f_3dnow;
    case ZYDIS_ISA_SET_AMD3DNOW: return &f_3dnow;
    case ZYDIS_ISA_SET_AMD_INVLPGB: return &f_invlpgb;
    case ZYDIS_ISA_SET_AMX_BF16:
    case ZYDIS_ISA_SET_AMX_INT8:
    case ZYDIS_ISA_SET_AMX_TILE: return &f_amx;
    case ZYDIS_ISA_SET_AVX: return &f_avx;
    case ZYDIS_ISA_SET_AVX2:
    case ZYDIS_ISA_SET_AVX2GATHER: return &f_avx2;
    case ZYDIS_ISA_SET_AVX_GFNI:
    case ZYDIS_ISA_SET_GFNI: return &f_gfni;
    case ZYDIS_ISA_SET_AVX_VNNI: return &f_avxvnni;
    case ZYDIS_ISA_SET_BMI1: return &f_bmi1;
    case ZYDIS_ISA_SET_BMI2: return &f_bmi2;
    case ZYDIS_ISA_SET_CLFLUSHOPT: return &f_clflushopt;
    case ZYDIS_ISA_SET_CLFSH: return &f_clfsh;
    case ZYDIS_ISA_SET_CLWB: return &f_clwb;
    case ZYDIS_ISA_SET_CLZERO: return &f_clzero;
    case ZYDIS_ISA_SET_CMPXCHG16B: return &f_cx16;
    case ZYDIS_ISA_SET_ENQCMD: return &f_enqcmd;
    case ZYDIS_ISA_SET_F16C: return &f_f16c;
    case ZYDIS_ISA_SET_FMA: return &f_fma;
    case ZYDIS_ISA_SET_FMA4: return &f_fma4;
    case ZYDIS_ISA_SET_HRESET: return &f_hreset;
    case ZYDIS_ISA_SET_INVPCID: return &f_invpcid;
    case ZYDIS_ISA_SET_KEYLOCKER:
    case ZYDIS_ISA_SET_KEYLOCKER_WIDE: return &f_kl;
    case ZYDIS_ISA_SET_LAHF: return &f_lahf;
    case ZYDIS_ISA_SET_LWP:
    case ZYDIS_ISA_SET_XOP: return &f_xop;
    case ZYDIS_ISA_SET_LZCNT: return &f_lzcnt;
    case ZYDIS_ISA_SET_MCOMMIT: return &f_mcommit;
    case ZYDIS_ISA_SET_MONITOR: return &f_monitor;
    case ZYDIS_ISA_SET_MONITORX: return &f_mwaitx;
    case ZYDIS_ISA_SET_MOVBE: return &f_movbe;
    case ZYDIS_ISA_SET_MOVDIR:
        return in->mnemonic == ZYDIS_MNEMONIC_MOVDIR64B ? &f_movdir64b : &f_movdiri;
    case ZYDIS_ISA_SET_MPX:
    case ZYDIS_ISA_SET_PADLOCK_ACE:
    case ZYDIS_ISA_SET_PADLOCK_PHE:
    case ZYDIS_ISA_SET_PADLOCK_PMM:
    case ZYDIS_ISA_SET_PADLOCK_RNG:
    case ZYDIS_ISA_SET_TDX:
    case ZYDIS_ISA_SET_VMFUNC: return &f_never;
    case ZYDIS_ISA_SET_PCLMULQDQ: return &f_pclmul;
    case ZYDIS_ISA_SET_PCONFIG: return &f_pconfig;
    case ZYDIS_ISA_SET_PKU: return &f_pku;
    case ZYDIS_ISA_SET_POPCNT: return &f_popcnt;
    case ZYDIS_ISA_SET_PT: return &f_ptwrite;
    case ZYDIS_ISA_SET_RDPID: return &f_rdpid;
    case ZYDIS_ISA_SET_RDPRU: return &f_rdpru;
    case ZYDIS_ISA_SET_RDRAND: return &f_rdrand;
    case ZYDIS_ISA_SET_RDSEED: return &f_rdseed;
    case ZYDIS_ISA_SET_RDTSCP: return &f_rdtscp;
    case ZYDIS_ISA_SET_RDWRFSGS: return &f_fsgsbase;
    case ZYDIS_ISA_SET_RTM: return &f_rtm;
    case ZYDIS_ISA_SET_SERIALIZE: return &f_serialize;
    case ZYDIS_ISA_SET_SGX:
    case ZYDIS_ISA_SET_SGX_ENCLV: return &f_sgx;
    case ZYDIS_ISA_SET_SHA: return &f_sha;
    case ZYDIS_ISA_SET_SMAP: return &f_smap;
    case ZYDIS_ISA_SET_SMX: return &f_smx;
    case ZYDIS_ISA_SET_SNP: return &f_snp;
    case ZYDIS_ISA_SET_SSE3:
    case ZYDIS_ISA_SET_SSE3X87: return &f_sse3;
    case ZYDIS_ISA_SET_SSE4: return &f_sse41;
    case ZYDIS_ISA_SET_SSE42: return &f_sse42;
    case ZYDIS_ISA_SET_SSE4A: return &f_sse4a;
    case ZYDIS_ISA_SET_SSSE3:
    case ZYDIS_ISA_SET_SSSE3MMX: return &f_ssse3;
    case ZYDIS_ISA_SET_SVM: return &f_svm;
    case ZYDIS_ISA_SET_TBM: return &f_tbm;
    case ZYDIS_ISA_SET_TSX_LDTRK: return &f_tsxldtrk;
    case ZYDIS_ISA_SET_UINTR: return &f_uintr;
    case ZYDIS_ISA_SET_VAES: return &f_vaes;
    case ZYDIS_ISA_SET_VPCLMULQDQ: return &f_vpclmul;
    case ZYDIS_ISA_SET_VTX: return &f_vmx;
    case ZYDIS_ISA_SET_WAITPKG: return &f_waitpkg;
    case ZYDIS_ISA_SET_XSAVE: return &f_xsave;
    case ZYDIS_ISA_SET_XSAVEC: return &f_xsavec;
    case ZYDIS_ISA_SET_XSAVEOPT: return &f_xsaveopt;
    case ZYDIS_ISA_SET_XSAVES: return &f_xsaves;
    default: break;
    }
    if (avx512_of(in)) /* mask instructions have VEX */
        return avx512_of(in);
    /* By name: these are not in every release of the library. */
    static const char *const later[] = {
        "AMX_FP16", "AVX_IFMA", "AVX_NE_CONVERT", "AVX_VNNI_INT16", "AVX_VNNI_INT8",
        "MSRLIST",  "PBNDKB",   "PCOMMIT",        "RAO_INT",        "SHA512",
        "SM3",      "SM4",      "WRMSRNS"};
    const char *set = ZydisISASetGetString(in->meta.isa_set);
    for (unsigned i = 0; i < sizeof(later) / sizeof(*later); i++)
        if (!strcmp(set, later[i]))
            return &f_never;
    return strncmp(set, "KNC", 3) == 0 ? &f_never : NULL;
}

static u32 pick(const struct cpuid_result *r, const struct feature *f)
{
    u32 v = f->reg == REG_A ? r->eax : f->reg == REG_B ? r->ebx : f->reg == REG_C ? r->ecx : r->edx;

    return f->bit < 32 ? v >> f->bit & 1 : 0;
}

static bool model_has(enum cpu_model model, const struct feature *f)
{
    struct cpuid_live live = {
        .cr4 = CR4_OSXSAVE | CR4_OSFXSR, .xcr0 = 7, .apic_enabled = true, .words = test_cpu.words};
    struct cpuid_result r = {0};

    cpu_model_cpuid(model, f->leaf, f->sub, &live, &r);
    return pick(&r, f);
}

static bool host_has(const struct feature *f)
{
    /* CPUID leaves a virtual machine and costs as much as a whole case: each leaf is asked once. */
    static struct {
        u32 leaf, sub;
        bool valid;
        struct cpuid_result r;
    } cache[16];
    unsigned i = 0;

    while (i + 1 < ARRAY_SIZE(cache) && cache[i].valid &&
           (cache[i].leaf != f->leaf || cache[i].sub != f->sub))
        i++;
    if (!cache[i].valid || cache[i].leaf != f->leaf || cache[i].sub != f->sub) {
        struct cpuid_result r = {0};

        (void)__get_cpuid_count(f->leaf, f->sub, &r.eax, &r.ebx, &r.ecx, &r.edx);
        cache[i].leaf = f->leaf;
        cache[i].sub = f->sub;
        cache[i].valid = true;
        cache[i].r = r;
    }
    return pick(&cache[i].r, f);
}

/* VEX forms of AES and PCLMULQDQ need AVX as well; what has EVEX, AVX-512VL. */
static const struct feature *feature_second(const ZydisDecodedInstruction *in)
{
    const char *set = ZydisISASetGetString(in->meta.isa_set);

    if (avx512_of(in))
        return ends_with(set, "_128") || ends_with(set, "_256") ? &f_avx512vl : &f_avx512;
    return in->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX &&
                   in->meta.category != ZYDIS_CATEGORY_BMI1 &&
                   in->meta.category != ZYDIS_CATEGORY_BMI2
               ? &f_avx
               : NULL;
}

bool feature_in_model(enum cpu_model model, const ZydisDecodedInstruction *insn)
{
    const struct feature *a = feature_of(insn), *b = feature_second(insn);

    return (!a || model_has(model, a)) && (!b || model_has(model, b));
}

const char *feature_host_lacks(const ZydisDecodedInstruction *insn)
{
    const struct feature *a = feature_of(insn), *b = feature_second(insn);

    return a && !host_has(a) ? a->name : b && !host_has(b) ? b->name : NULL;
}

bool feature_avx(enum cpu_model model)
{
    return model_has(model, &f_avx);
}

bool feature_avx512(enum cpu_model model)
{
    return model_has(model, &f_avx512);
}

bool feature_xsave(enum cpu_model model)
{
    return model_has(model, &f_xsave);
}

bool feature_fsgsbase(enum cpu_model model)
{
    return model_has(model, &f_fsgsbase);
}

bool feature_umip(enum cpu_model model)
{
    return model_has(model, &f_umip);
}

void feature_decoder(enum cpu_model model, ZydisDecoder *dec)
{
    if (test_code == CODE_64)
        ZydisDecoderInit(dec, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    else
        ZydisDecoderInit(dec,
                         test_code == CODE_32 ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32
                                              : ZYDIS_MACHINE_MODE_LONG_COMPAT_16,
                         ZYDIS_STACK_WIDTH_32);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_CET, ZYAN_FALSE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_CLDEMOTE, ZYAN_FALSE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_WBNOINVD, ZYAN_FALSE);
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_LZCNT, model_has(model, &f_lzcnt));
    ZydisDecoderEnableMode(dec, ZYDIS_DECODER_MODE_TZCNT, model_has(model, &f_bmi1));
}
