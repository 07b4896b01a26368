/*
 * What the engine makes of every instruction encoding, whatever the release of the decoder's
 * library: a digest for each opcode with its prefixes, over all ModRM bytes. Two hosts whose lines
 * differ could replay differently. `decoded`: one line a model and map; `decoded -v`: one an
 * opcode; `decoded MODEL HEX`: one encoding in full. tests/suite/unit.py has the digests that
 * must not change.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/features.h"
#include "cpu/x86/insn.h"

static enum code_size code; /* of what is decoded */

static u64 mix(u64 hash, const void *p, size_t size)
{
    for (const u8 *b = p; size--; b++)
        hash = (hash ^ *b) * 0x100000001b3ull;
    return hash;
}

/* Everything in an instruction that execution depends on; not numbers that the library gives. */
#define FIELDS(X)                                                                                  \
    X(len)                                                                                         \
    X(treat)                                                                                       \
    X(needs)                                                                                       \
    X(fpu_nowait)                                                                                  \
    X(fpu_wait)                                                                                    \
    X(align)                                                                                       \
    X(opsize)                                                                                      \
    X(addrsize)                                                                                    \
    X(base)                                                                                        \
    X(index)                                                                                       \
    X(scale)                                                                                       \
    X(seg)                                                                                         \
    X(rip_rel)                                                                                     \
    X(mem)                                                                                         \
    X(mem_size)                                                                                    \
    X(has_mem)                                                                                     \
    X(reg)                                                                                         \
    X(rm)                                                                                          \
    X(mod)                                                                                         \
    X(prefix_end)                                                                                  \
    X(opcode_off)                                                                                  \
    X(modrm_off)                                                                                   \
    X(disp_end)                                                                                    \
    X(rex)                                                                                         \
    X(high8)                                                                                       \
    X(rep)                                                                                         \
    X(lock)                                                                                        \
    X(reg0)                                                                                        \
    X(reg1)                                                                                        \
    X(sreg)                                                                                        \
    X(op0_kind)                                                                                    \
    X(op1_kind)                                                                                    \
    X(cond)                                                                                        \
    X(far)                                                                                         \
    X(ends)                                                                                        \
    X(use)                                                                                         \
    X(wr)                                                                                          \
    X(test)                                                                                        \
    X(kill)                                                                                        \
    X(fop)                                                                                         \
    X(disp)                                                                                        \
    X(imm)                                                                                         \
    X(imm2)

/* ... and outside 64-bit code. */
#define FIELDS_SMALL(X)                                                                            \
    X(stack)                                                                                       \
    X(fixed_size)                                                                                  \
    X(imm_register)                                                                                \
    X(small)

/* ... and of AVX-512. */
#define FIELDS_512(X)                                                                              \
    X(mask)                                                                                        \
    X(elem)                                                                                        \
    X(lanes)                                                                                       \
    X(packed)                                                                                      \
    X(merges)                                                                                      \
    X(small)

static u64 digest(u64 hash, const struct insn *in)
{
    hash = mix(hash, &in->treat, 1);
    if (in->treat == T_UD || in->treat == T_GP_LONG || in->treat == T_NONE)
        return hash; /* nothing else of it counts */
    if (in->treat == T_NOP)
        return mix(mix(mix(hash, &in->len, 1), &in->needs, 1), &in->lock, 1);
#define X(field) hash = mix(hash, &in->field, sizeof(in->field));
    FIELDS(X)
    if (code != CODE_64) {
        FIELDS_SMALL(X)
    }
    if (in->needs == N_AVX512) {
        FIELDS_512(X)
    }
#undef X
    return mix(hash, in->keep, sizeof(in->keep));
}

static void show(enum cpu_model model, const u8 *bytes)
{
    struct insn in;
    char text[128];
    insn_decode(cpu_model_words(model), code, 0, bytes, 15, &in);
    insn_text(code, bytes, 15, 0, text, sizeof(text));
    printf("%s:", text);
#define X(field) printf(" " #field "=%llx", (unsigned long long)in.field);
    FIELDS(X)
    FIELDS_512(X)
#undef X
    printf("\n");
}

struct group {
    const char *name;
    u8 head[6];
    unsigned head_len;
};

/* Prefixes and escapes before an opcode. VEX, EVEX and XOP have their map, and more, in there. */
#define LEGACY(name, ...)                                                                          \
    {name, {__VA_ARGS__}, sizeof((u8[]){__VA_ARGS__})},                                            \
        {name "-66", {0x66, __VA_ARGS__}, 1 + sizeof((u8[]){__VA_ARGS__})},                        \
        {name "-f2", {0xf2, __VA_ARGS__}, 1 + sizeof((u8[]){__VA_ARGS__})},                        \
        {name "-f3", {0xf3, __VA_ARGS__}, 1 + sizeof((u8[]){__VA_ARGS__})},                        \
        {name "-f0", {0xf0, __VA_ARGS__}, 1 + sizeof((u8[]){__VA_ARGS__})},                        \
        {name "-67", {0x67, __VA_ARGS__}, 1 + sizeof((u8[]){__VA_ARGS__})},                        \
    {                                                                                              \
        name "-64", {0x64, __VA_ARGS__}, 1 + sizeof((u8[]){__VA_ARGS__})                           \
    }
#define REX(name, ...)                                                                             \
    LEGACY(name, __VA_ARGS__), LEGACY(name "-w", 0x48, __VA_ARGS__),                               \
        LEGACY(name "-rxb", 0x47, __VA_ARGS__)
static const struct group legacy[] = {{"plain", {0}, 0},
                                      {"plain-66", {0x66}, 1},
                                      {"plain-f2", {0xf2}, 1},
                                      {"plain-f3", {0xf3}, 1},
                                      {"plain-f0", {0xf0}, 1},
                                      {"plain-67", {0x67}, 1},
                                      {"plain-w", {0x48}, 1},
                                      {"plain-rxb", {0x47}, 1},
                                      {"plain-66w", {0x66, 0x48}, 2},
                                      {"plain-f3w", {0xf3, 0x48}, 2},
                                      {"plain-67rxb", {0x67, 0x47}, 2},
                                      REX("0f", 0x0f)};
#define LEGACY_PLAIN 6
#define LEGACY_0F    11
static const struct group legacy38[] = {REX("0f38", 0x0f, 0x38)};
static const struct group legacy3a[] = {REX("0f3a", 0x0f, 0x3a)};

static u64 one(enum cpu_model model, const u8 *head, unsigned head_len, unsigned opcode)
{
    /* A SIB byte without a base, with one, and what could be an immediate. */
    static const u8 tails[][6] = {{0x25, 0x11, 0x22, 0x33, 0x44, 0x05}, {0x4c, 0x80, 0, 0, 0, 0}};
    u64 hash = 0xcbf29ce484222325ull;
    for (unsigned t = 0; t < ARRAY_SIZE(tails); t++) {
        for (unsigned modrm = 0; modrm < 256; modrm++) {
            u8 bytes[16] = {0};
            struct insn in;
            memcpy(bytes, head, head_len);
            bytes[head_len] = (u8)opcode;
            bytes[head_len + 1] = (u8)modrm;
            memcpy(bytes + head_len + 2, tails[t], sizeof(tails[t]));
            insn_decode(cpu_model_words(model), code, 0, bytes, 15, &in);
            hash = digest(hash, &in);
        }
    }
    return hash;
}

/* v2, v3 and v4, as tests name them. */
static const char *short_name(enum cpu_model model)
{
    bool level = model <= CPU_X86_64_V3 || model == CPU_X86_64_V4;
    return cpu_model_name(model) + (level ? strlen("x86-64-") : 0);
}

static u64 group(enum cpu_model model, const struct group *g, bool verbose)
{
    u64 sum = 0xcbf29ce484222325ull;
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        u64 hash = one(model, g->head, g->head_len, opcode);
        if (verbose)
            printf("%s %s %02x %016llx\n", short_name(model), g->name, opcode,
                   (unsigned long long)hash);
        sum = mix(sum, &hash, sizeof(hash));
    }
    return sum;
}

static u64 groups(enum cpu_model model, const struct group *g, unsigned count, bool verbose)
{
    u64 sum = 0xcbf29ce484222325ull;
    for (unsigned i = 0; i < count; i++) {
        u64 hash = group(model, &g[i], verbose);
        sum = mix(sum, &hash, sizeof(hash));
    }
    return sum;
}

/* C4 and 8F: map, pp, L, W, and vvvv 1111 or another. */
static u64 vex(enum cpu_model model, u8 first, unsigned from, unsigned to, bool verbose)
{
    u64 sum = 0xcbf29ce484222325ull;
    for (unsigned map = from; map <= to; map++) {
        for (unsigned k = 0; k < 32; k++) {
            struct group g = {.head_len = 3};
            char name[24];
            snprintf(name, sizeof(name), "%02x-%u-%02x", first, map, k);
            g.name = name;
            g.head[0] = first;
            g.head[1] = (u8)(0xe0 | map);
            g.head[2] = (u8)((k & 3) | (k & 4) | (k & 8 ? 0x28 : 0x78) | (k & 16 ? 0x80 : 0));
            u64 hash = group(model, &g, verbose);
            sum = mix(sum, &hash, sizeof(hash));
        }
    }
    return sum;
}

static u64 evex(enum cpu_model model, bool verbose)
{
    u64 sum = 0xcbf29ce484222325ull;
    for (unsigned map = 1; map <= 7; map++) {
        for (unsigned pp = 0; pp < 4; pp++) {
            struct group g = {.head_len = 4, .head = {0x62, (u8)(0xf0 | map), (u8)(0x7c | pp), 8}};
            char name[24];
            snprintf(name, sizeof(name), "62-%u-%u", map, pp);
            g.name = name;
            u64 hash = group(model, &g, verbose);
            sum = mix(sum, &hash, sizeof(hash));
        }
    }
    return sum;
}

/* EVEX on a CPU that has all of AVX-512 that there is here: lengths, broadcasts, masks. */
static u64 evex_on(const u32 *words, unsigned map, unsigned pp_w, bool verbose)
{
    u64 sum = 0xcbf29ce484222325ull;
    static const u8 tail[] = {0x8a, 0x11, 0x22, 0x33, 0x44, 0x05};
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        u64 hash = 0xcbf29ce484222325ull;
        for (unsigned k = 0; k < 24; k++) /* L, b; no mask, k3, k3 with zeroing, vvvv */
            for (unsigned modrm = 0; modrm < 256; modrm += 9) {
                u8 bytes[16] = {0x62, (u8)(0xf0 | map), (u8)(0x7c | (pp_w & 3) | (pp_w & 4) << 5)};
                struct insn in;
                bytes[3] = (u8)((k & 3) << 5 | (k & 4) << 2 | 8 | (k & 8 ? 3 : 0));
                if (k & 16) {
                    bytes[2] ^= 0x28;
                    bytes[3] |= k & 8 ? 0x80 : 0;
                }
                bytes[4] = (u8)opcode;
                bytes[5] = (u8)modrm;
                memcpy(bytes + 6, tail, sizeof(tail));
                insn_decode(words, code, 0, bytes, 15, &in);
                hash = digest(hash, &in);
            }
        if (verbose)
            printf("v4 62-%u-%u %02x %016llx\n", map, pp_w, opcode, (unsigned long long)hash);
        sum = mix(sum, &hash, sizeof(hash));
    }
    return sum;
}

static void avx512(bool verbose)
{
    struct cpu_choice c;
    struct err err;
    if (cpu_change(CPU_X86_64_V4,
                   "+aes,+pclmulqdq,+gfni,+vaes,+vpclmulqdq,+avx512ifma,+avx512vbmi,+avx512_vbmi2,"
                   "+avx512_vnni,+avx512_bitalg,+avx512_vpopcntdq",
                   &c, &err)) {
        fprintf(stderr, "decoded: %s\n", err.text);
        exit(1);
    }
    for (code = CODE_64; code <= CODE_32; code++)
        for (unsigned map = 1; map <= 3; map++) {
            u64 sum = 0xcbf29ce484222325ull;
            for (unsigned pp_w = 0; pp_w < 8; pp_w++) {
                u64 hash = evex_on(c.words, map, pp_w, verbose);
                sum = mix(sum, &hash, sizeof(hash));
            }
            if (!verbose)
                printf("v4 evex %s map %u %016llx\n", code == CODE_64 ? "code 64" : "code 32", map,
                       (unsigned long long)sum);
        }
    code = CODE_64;
}

static enum cpu_model by_name(const char *name)
{
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++)
        if (!strcmp(short_name(m), name))
            return m;
    fprintf(stderr, "decoded: no model %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    bool verbose = argc == 2 && !strcmp(argv[1], "-v");
    if (argc == 3) {
        u8 bytes[15] = {0};
        unsigned n = 0;
        for (const char *p = argv[2]; n < 15 && sscanf(p, "%2hhx", &bytes[n]) == 1; p += 2)
            n++;
        for (code = CODE_64; code < CODE_SIZES; code++)
            show(by_name(argv[1]), bytes);
        return 0;
    }
    if (argc != 1 && !verbose) {
        fprintf(stderr, "usage: decoded [-v | v2|v3|MODEL HEX]\n");
        return 2;
    }
    /* Others have no instruction that these have not. The last one: outside 64-bit code only. */
    static const enum cpu_model all[] = {CPU_X86_64_V2, CPU_X86_64_V3, CPU_ICELAKE_SERVER,
                                         CPU_ZEN2};
    for (unsigned m = 0; m + 1 < ARRAY_SIZE(all); m++) {
        enum cpu_model model = all[m];
        const struct {
            const char *name;
            u64 hash;
        } rows[] = {{"legacy", groups(model, legacy, ARRAY_SIZE(legacy), verbose)},
                    {"0f38", groups(model, legacy38, ARRAY_SIZE(legacy38), verbose)},
                    {"0f3a", groups(model, legacy3a, ARRAY_SIZE(legacy3a), verbose)},
                    {"vex", vex(model, 0xc4, 1, 3, verbose)},
                    {"xop", vex(model, 0x8f, 8, 10, verbose)},
                    {"evex", evex(model, verbose)}};
        for (unsigned i = 0; i < ARRAY_SIZE(rows) && !verbose; i++)
            printf("%s %s %016llx\n", short_name(model), rows[i].name,
                   (unsigned long long)rows[i].hash);
    }
    u64 masks = vex(CPU_X86_64_V4, 0xc4, 1, 3, verbose);
    if (!verbose)
        printf("v4 vex %016llx\n", (unsigned long long)masks);
    avx512(verbose);
    /* Without groups that are other instructions there: REX, VEX, EVEX. */
    static const char *const names[] = {"", "code 32", "code 16", "real mode"};
    _Static_assert(ARRAY_SIZE(names) == CODE_SIZES, "each has a name");
    for (unsigned m = 1; m < ARRAY_SIZE(all); m++)
        for (code = CODE_32; code < (all[m] == CPU_ZEN2 ? CODE_16 : CODE_SIZES); code++) {
            u64 hash[] = {groups(all[m], legacy, LEGACY_PLAIN, verbose),
                          groups(all[m], legacy + LEGACY_0F, 7, verbose),
                          groups(all[m], legacy38, 7, verbose),
                          groups(all[m], legacy3a, 7, verbose)};
            for (unsigned i = 0; i < ARRAY_SIZE(hash) && !verbose; i++)
                printf("%s %s %u %016llx\n", short_name(all[m]), names[code], i,
                       (unsigned long long)hash[i]);
        }
    return 0;
}
