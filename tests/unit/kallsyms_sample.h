/*
 * A toy kernel in a small RAM: VMCOREINFO, the name of its release, and kallsyms tables in the
 * forms that guest_linux.c reads, for its tests and fuzz target. Physical address 0 is linear
 * SAMPLE_MAP + shift; in a kernel of 32 bits 0xc0000000, or 0x80000000 with any shift.
 */
#ifndef REPRISE_KALLSYMS_SAMPLE_H
#define REPRISE_KALLSYMS_SAMPLE_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/types.h"

#define SAMPLE_MAP     0xffffffff80000000ull
#define SAMPLE_TEXT    0x1000000ull /* of the toy's code, from SAMPLE_MAP on; not in RAM */
#define SAMPLE_RAM     0x20000u
#define SAMPLE_SYMBOLS 700u
#define SAMPLE_PERCPU  10u
#define SAMPLE_RELEASE "6.1.0-toy"

enum sample_layout {
    SAMPLE_OLD,   /* addresses, count, names, markers, tokens: up to Linux 6.1 */
    SAMPLE_ORDER, /* the same with the names' order after the markers: 6.2, 6.3 */
    SAMPLE_NEW,   /* count, names, markers, tokens, addresses: from 6.4 on */
};
enum sample_values { SAMPLE_ABSOLUTE_PERCPU, SAMPLE_RELATIVE, SAMPLE_WIDE };

struct sample {
    enum sample_layout layout;
    enum sample_values values;
    bool vmcoreinfo;
    bool narrow; /* of 32 bits */
    u64 shift;   /* of the kernel: address randomisation */
    /* Where things are in RAM, filled by sample_make. */
    u64 names, tokens, index, addresses, count, base;
};

/* Of a kernel of 32 bits: what is looked for by name. */
static const char *const sample_narrow[] = {"Tstartup_32",
                                            "Tbpf_get_current_task",
                                            "Tbpf_get_current_pid_tgid",
                                            "Tbpf_get_current_comm",
                                            "T__entry_text_start",
                                            "Tirq_entries_start",
                                            "Tasm_exc_page_fault",
                                            "Tasm_common_interrupt",
                                            "Tentry_SYSENTER_32",
                                            "Tentry_INT80_32",
                                            "Trestore_all_switch_stack",
                                            "Thandle_exception",
                                            "T__entry_text_end",
                                            "Tret_from_fork",
                                            "tfn_16.cold"};

static inline u64 sample_map(const struct sample *s)
{
    return !s->narrow ? SAMPLE_MAP + s->shift : s->shift ? 0x80000000 : 0xc0000000;
}

static inline unsigned sample_word(const struct sample *s)
{
    return s->narrow ? 4 : 8;
}

/* Symbol i: a name with its type letter in front; its address. */
static inline u64 sample_symbol(const struct sample *s, u32 i, char name[512])
{
    u64 text = sample_map(s) + SAMPLE_TEXT;
    bool percpu = s->values != SAMPLE_RELATIVE && i < SAMPLE_PERCPU;
    if (percpu)
        sprintf(name, "A__percpu_%u", i);
    else if (i <= SAMPLE_PERCPU)
        sprintf(name, "t_before_%u", i);
    else if (i == SAMPLE_SYMBOLS - 4)
        strcpy(name, "T_etext");
    else if (i == SAMPLE_SYMBOLS - 3)
        strcpy(name, "D_sdata");
    else if (i == SAMPLE_SYMBOLS - 2)
        strcpy(name, "D_edata");
    else if (i == SAMPLE_SYMBOLS - 1)
        strcpy(name, "B_end");
    else
        sprintf(name, "%cfn_%u.part.0", i % 3 ? 't' : 'T', i);
    if (i == SAMPLE_PERCPU)
        strcpy(name, "T_text");
    if (i == SAMPLE_PERCPU + 1)
        strcpy(name, "T_stext");
    if (s->narrow && i >= 20 && i - 20 < sizeof(sample_narrow) / sizeof(*sample_narrow))
        strcpy(name, sample_narrow[i - 20]);
    if (i == 300) { /* its length takes two bytes */
        memset(name, 'x', 320);
        memcpy(name, "tlong_", 6);
        name[320] = 0;
    }
    if (percpu)
        return i * 0x100;
    /* Two at one address now and then. */
    return text + (i - (i % 50 == 1)) * 0x40ull;
}

static inline void sample_put(u8 *ram, u64 *at, const void *data, size_t len)
{
    memcpy(ram + *at, data, len);
    *at += len;
}

static inline void sample_align(const struct sample *s, u64 *at)
{
    *at = (*at + sample_word(s) - 1) & ~(u64)(sample_word(s) - 1);
}

static inline void sample_tokens(struct sample *s, u8 *ram, u64 *at)
{
    u16 index[256];
    s->tokens = *at;
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        index[i] = (u16)(*at - s->tokens);
        snprintf(text, sizeof(text), i > ' ' && i <= '~' ? "%c" : "q%u", i);
        if (i == 200)
            strcpy(text, "fn_");
        sample_put(ram, at, text, strlen(text) + 1);
    }
    sample_align(s, at);
    s->index = *at;
    sample_put(ram, at, index, sizeof(index));
    sample_align(s, at);
}

static inline void sample_addresses(struct sample *s, u8 *ram, u64 *at)
{
    char name[512];
    u64 base = sample_map(s) + SAMPLE_TEXT;
    s->addresses = *at;
    for (u32 i = 0; i < SAMPLE_SYMBOLS; i++) {
        u64 v = sample_symbol(s, i, name);
        if (s->values == SAMPLE_WIDE) {
            sample_put(ram, at, &v, sample_word(s));
            continue;
        }
        u32 offset = (u32)(v - base);
        if (s->values == SAMPLE_ABSOLUTE_PERCPU)
            offset = i < SAMPLE_PERCPU ? (u32)v : (u32)(base - 1 - v);
        sample_put(ram, at, &offset, 4);
    }
    sample_align(s, at);
    s->base = *at;
    if (s->values != SAMPLE_WIDE)
        sample_put(ram, at, &base, sample_word(s));
}

static inline void sample_names(struct sample *s, u8 *ram, u64 *at)
{
    u32 count = SAMPLE_SYMBOLS, markers[8], n = 0;
    s->count = *at;
    sample_put(ram, at, &count, 4);
    sample_align(s, at);
    s->names = *at;
    for (u32 i = 0; i < count; i++) {
        char name[512];
        u8 out[512];
        unsigned len = 0;
        if (i % 256 == 0)
            markers[n++] = (u32)(*at - s->names);
        sample_symbol(s, i, name);
        for (const char *p = name; *p;) {
            bool token = !strncmp(p, "fn_", 3);
            out[len++] = token ? 200 : (u8)*p;
            p += token ? 3 : 1;
        }
        u8 length[2] = {(u8)(len > 127 ? (len & 127) | 128 : len), (u8)(len >> 7)};
        sample_put(ram, at, length, len > 127 ? 2 : 1);
        sample_put(ram, at, out, len);
    }
    sample_align(s, at);
    sample_put(ram, at, markers, 4 * n);
    sample_align(s, at);
    for (u32 i = 0; i < count && s->layout == SAMPLE_ORDER; i++)
        sample_put(ram, at, (u8[3]){0x01, (u8)(i >> 8), (u8)i}, 3);
    sample_align(s, at);
}

/* Code of 32 bits, to where a test may map the symbols: symbol i has what is at i * 0x40. */
static inline void sample_code(u8 *ram)
{
    static const struct {
        u32 symbol;
        const char *code;
        size_t size;
    } list[] = {
#define CODE(symbol, code) {symbol, code, sizeof(code) - 1}
        /* mov %fs:0x1234,%eax; ret */
        CODE(21, "\x64\xa1\x34\x12\0\0\xc3"),
        /* mov %fs:0x1234,%ecx; mov 0x458(%ecx),%eax; mov 0x454(%ecx),%ecx; ret */
        CODE(22, "\x64\x8b\x0d\x34\x12\0\0\x8b\x81\x58\x04\0\0\x8b\x89\x54\x04\0\0\xc3"),
        /* push %ebp; mov %esp,%ebp; push %ebx; mov %fs:0x1234,%ebx; add $0x584,%ebx; leave; ret */
        CODE(23, "\x55\x89\xe5\x53\x64\x8b\x1d\x34\x12\0\0\x81\xc3\x84\x05\0\0\xc9\xc3"),
        /* push $0x20; jmp, twice */
        CODE(25, "\x6a\x20\xeb\x7c\x6a\x21\xeb\x78"),
        /* cld; push $0xc1000fff; jmp handle_exception */
        CODE(26, "\xfc\x68\xff\x0f\x00\xc1\xe9\x35\x01\x00\x00"),
        /* push %es; push %ds; push %eax, %ebp, %edi, %esi, %edx, %ecx, %ebx; mov %esp,%eax; call;
         * pop %ebx ... %eax; pop %ds; pop %es; add $12,%esp; iret */
        CODE(31,
             "\x06\x1e\x50\x55\x57\x56\x52\x51\x53\x89\xe0\xe8\x10\0\0\0\x5b\x59\x5a\x5e\x5f\x5d"
             "\x58\x1f\x07\x83\xc4\x0c\xcf"),
        /* test %eax,%eax; je 1f; push %ebp; mov %esp,%ebp; push %edi, %esi, %ebx; sub $8,%esp;
         * je fn_16.cold; jmp 2f; lea -12(%ebp),%esp; 2: add $8,%esp; pop %ebx, %esi, %edi, %ebp;
         * ret; 1: ret */
        CODE(16,
             "\x85\xc0\x74\x1b\x55\x89\xe5\x57\x56\x53\x83\xec\x08\x0f\x84\x6d\x04\0\0\xeb\x03\x8d"
             "\x65\xf4\x83\xc4\x08\x5b\x5e\x5f\x5d\xc3"),
#undef CODE
    };
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
        memcpy(ram + list[i].symbol * 0x40, list[i].code, list[i].size);
}

/* Fills `ram`, SAMPLE_RAM bytes. */
static inline void sample_make(struct sample *s, u8 *ram)
{
    u64 at = 0x3000, map = sample_map(s);
    memset(ram, 0, SAMPLE_RAM);
    if (s->layout != SAMPLE_NEW)
        sample_addresses(s, ram, &at);
    sample_names(s, ram, &at);
    sample_tokens(s, ram, &at);
    if (s->layout == SAMPLE_NEW)
        sample_addresses(s, ram, &at);
    strcpy((char *)ram + 0x2040, SAMPLE_RELEASE);
    if (s->narrow)
        sample_code(ram);
    if (!s->vmcoreinfo)
        return;
    char base[64] = "", kind[64] = "OFFSET(list_head.prev)=4";
    if (!s->narrow)
        snprintf(kind, sizeof(kind), "NUMBER(phys_base)=%" PRId64, -(i64)s->shift);
    if (s->values != SAMPLE_WIDE)
        snprintf(base, sizeof(base), "SYMBOL(kallsyms_relative_base)=%" PRIx64 "\n", map + s->base);
    snprintf((char *)ram + 0x1000, 0x1000,
             "OSRELEASE=" SAMPLE_RELEASE "\nBUILD-ID=0011223344556677\nPAGESIZE=4096\n"
             "SYMBOL(init_uts_ns)=%" PRIx64 "\n%s\nSYMBOL(kallsyms_names)=%" PRIx64
             "\nSYMBOL(kallsyms_num_syms)=%" PRIx64 "\nSYMBOL(kallsyms_token_table)=%" PRIx64
             "\nSYMBOL(kallsyms_token_index)=%" PRIx64 "\nSYMBOL(kallsyms_%s)=%" PRIx64 "\n%s",
             map + 0x2000, kind, map + s->names, map + s->count, map + s->tokens, map + s->index,
             s->values == SAMPLE_WIDE ? "addresses" : "offsets", map + s->addresses, base);
}

/* Type information (BTF) of a few types; returns its size. Type 8 holds itself, twice. */
static inline size_t sample_btf(u8 out[1024])
{
    static const char names[] = "\0int\0list_head\0next\0prev\0outer\0x\0list\0loop\0array\0bits";
    enum { INT = 1, LIST = 5, NEXT = 15, PREV = 20, OUTER = 25, X = 31, IN = 33, LOOP = 38 };
    enum { ARRAY = 43, BITS = 49 };
#define KIND(k, n) ((u32)(k) << 24 | (n))
    static const u32 types[] = {
        INT,
        KIND(1, 0),
        4,
        0x01000020, /* 1: int */
        LIST,
        KIND(4, 2),
        16,
        NEXT,
        3,
        0,
        PREV,
        3,
        64, /* 2: struct list_head */
        0,
        KIND(2, 0),
        2, /* 3: a pointer to 2 */
        0,
        KIND(5, 2),
        16,
        INT,
        1,
        0,
        LIST,
        2,
        0, /* 4: union { int, list_head } */
        OUTER,
        KIND(4, 5) | 1u << 31,
        120, /* 5: struct outer, bit fields */
        X,
        1,
        0,
        0,
        4,
        64,
        IN,
        6,
        192,
        ARRAY,
        7,
        320,
        BITS,
        1,
        0x03000000 + 832,
        LIST,
        KIND(8, 0),
        2, /* 6: a name of 2 */
        0,
        KIND(3, 0),
        0,
        2,
        1,
        4, /* 7: four of 2 */
        LOOP,
        KIND(4, 2),
        8,
        0,
        8,
        0,
        0,
        8,
        0, /* 8: struct loop */
    };
#undef KIND
    const struct {
        u16 magic;
        u8 version, flags;
        u32 size, types_at, types_size, strings_at, strings_size;
    } header = {0xeb9f, 1, 0, 24, 0, sizeof(types), sizeof(types), sizeof(names)};
    u64 at = 0;
    sample_put(out, &at, &header, sizeof(header));
    sample_put(out, &at, types, sizeof(types));
    sample_put(out, &at, names, sizeof(names));
    return at;
}

#endif
