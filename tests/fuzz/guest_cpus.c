/*
 * Guests of several vCPUs for fuzz_guest: ring 0 code in pieces that the vCPUs take in turn. Each
 * is a chain of small drawn things with what CPUs have in common: memory with and without locks,
 * each other's code and page tables, IPIs of every kind, timers, PAUSE and HLT; and some noise.
 */
#include "tests/fuzz/guest_cpus.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

extern const u8 stub_cpus_start[], stub_cpus_end[];

#define PIECE (1u << CPUS_PIECE_SHIFT)

struct piece {
    u8 *p; /* the next byte */
    u8 *end;
    u64 s; /* of guest_random() */
};

static u64 draw(struct piece *c, u64 n)
{
    return (guest_random(&c->s) >> 16) % n;
}

static void put(struct piece *c, const void *bytes, size_t n)
{
    memcpy(c->p, bytes, n);
    c->p += n;
}

static void put8(struct piece *c, u64 v)
{
    *c->p++ = (u8)v;
}

static void put32(struct piece *c, u64 v)
{
    u32 v32 = (u32)v;
    put(c, &v32, 4);
}

#define PUT(c, ...)                                                                                \
    do {                                                                                           \
        const u8 bytes[] = {__VA_ARGS__};                                                          \
        put(c, bytes, sizeof(bytes));                                                              \
    } while (0)

/* ModRM of [base + disp8], base one of RSI, RDI, R9 and R12 (with `rex` for it) of the shared data.
 */
static void operand(struct piece *c, u8 rex, const u8 *opcode, size_t n, unsigned reg)
{
    static const u8 bases[] = {6, 7, 9, 12};
    u8 base = bases[draw(c, 4)];
    put8(c, rex | (base >= 8 ? 1 : 0) | (reg >= 8 ? 4 : 0));
    put(c, opcode, n);
    put8(c, 0x40 | (reg & 7) << 3 | (base & 7));
    if ((base & 7) == 4)
        put8(c, 0x24);
    put8(c, draw(c, 4) ? draw(c, 8) * 4 : draw(c, 256));
}

/* RAX, RCX, RDX, R10, R11, R13. */
static unsigned any_register(struct piece *c)
{
    static const u8 regs[] = {0, 0, 1, 2, 10, 11, 13};
    return regs[draw(c, sizeof(regs))];
}

static void plain(struct piece *c)
{
    static const u8 ops[] = {0x89, 0x8b, 0x01, 0x03, 0x29, 0x31,
                             0x39, 0x3b, 0x88, 0x8a, 0x11, 0x85};
    operand(c, draw(c, 2) ? 0x48 : 0x40, &ops[draw(c, sizeof(ops))], 1, any_register(c));
}

static void atomic(struct piece *c)
{
    static const u8 two[][2] = {
        {0x0f, 0xc1}, {0x0f, 0xb1}, {0x0f, 0xc7}, {0x0f, 0xab}, {0x0f, 0xb3}};
    u64 which = draw(c, 8);
    u8 rex = draw(c, 2) ? 0x48 : 0x40;
    if (which < 5) {
        put8(c, 0xf0);
        operand(c, rex, two[which], 2, which == 2 ? 1 : any_register(c));
    } else if (which == 5) {
        operand(c, rex, (const u8[]){0x87}, 1, any_register(c));
    } else {
        put8(c, 0xf0);
        operand(c, rex, (const u8[]){which == 6 ? 0x01 : 0xff}, 1,
                which == 6 ? any_register(c) : 0);
    }
}

/* Registers, and what shows the flags. */
static void arithmetic(struct piece *c)
{
    static const u8 ops[] = {0x01, 0x09, 0x11, 0x19, 0x21, 0x29, 0x31, 0x39, 0x85};
    for (u64 n = 1 + draw(c, 4); n; n--) {
        unsigned a = any_register(c), b = any_register(c);
        PUT(c, (u8)(0x48 | (a >= 8) << 2 | (b >= 8)), ops[draw(c, sizeof(ops))],
            (u8)(0xc0 | (a & 7) << 3 | (b & 7)));
    }
    switch (draw(c, 5)) {
    case 0: PUT(c, 0x9c, 0x8f, 0x46, 0x40); break;                  /* pushf; pop 0x40(rsi) */
    case 1: PUT(c, 0x9f); break;                                    /* lahf */
    case 2: PUT(c, 0x0f, (u8)(0x90 + draw(c, 16)), 0xc0); break;    /* setcc al */
    case 3: PUT(c, (u8)(0x70 + draw(c, 16)), 2, 0xff, 0xc0); break; /* jcc over inc eax */
    default: break;
    }
}

/* A loop with a bound, over shared memory; with PAUSE or without. */
static void loop(struct piece *c)
{
    static const u8 counts[] = {3, 20, 200};
    u64 kind = draw(c, 4);
    PUT(c, 0xb9);
    put32(c, kind == 3 ? 3000 : counts[draw(c, 3)]); /* mov ecx */
    u8 *top = c->p;
    if (kind == 0 && draw(c, 2))
        PUT(c, 0x50, 0x51, 0xf3, 0x90, 0x59, 0x58); /* push rax, rcx; pause; pop rcx, rax */
    else if (kind == 0)
        PUT(c, 0xf3, 0x90);
    if (kind == 1)
        atomic(c);
    PUT(c, 0x3b, 0x46, (u8)(draw(c, 8) * 4)); /* cmp eax, x(rsi) */
    PUT(c, 0x74, 4, 0xff, 0xc9, 0x75);        /* je out; dec ecx; jnz top */
    put8(c, (u64)(top - c->p - 1));
}

/* Flags that are lost where a turn ends, or are not: as code() leaves what comes after PAUSE. */
static const u8 overwrites[] = {0x48, 0x01, 0xc8, 0x90}, reads[] = {0x9f, 0x90, 0x90, 0x90};

static void turn_with_flags(struct piece *c)
{
    PUT(c, 0x39, 0xc8, 0xf3, 0x90); /* cmp eax, ecx; pause */
    put(c, overwrites, 4);
    PUT(c, 0x89, 0x46, 0x44); /* mov 0x44(rsi), eax */
}

/* Another vCPU's code, or one's own: bytes in it, or a piece that is moved. */
static void code(struct piece *c)
{
    u32 what;
    switch (draw(c, 8)) {
    case 5: /* a piece near this one reads its flags, or does not */
    case 6:
    case 7:
        memcpy(&what, draw(c, 2) ? overwrites : reads, 4);
        PUT(c, 0xc7, 0x83);
        put32(c, (draw(c, 13) - 6) * PIECE + 4);
        put32(c, what);
        break;
    case 0: /* mov [rbx + x], imm8 */
        PUT(c, 0xc6, 0x83);
        put32(c, draw(c, 4 * PIECE) - 2 * PIECE);
        put8(c, draw(c, 3) ? 0x90 : draw(c, 256));
        break;
    case 1: /* mov [r8 + x], eax */
        PUT(c, 0x41, 0x89, 0x80);
        put32(c, draw(c, PIECE));
        break;
    case 2:                                   /* the immediate of what comes next: mov eax, imm32 */
        PUT(c, 0x01, 0x05, 1, 0, 0, 0, 0xb8); /* add [rip + 1], eax */
        put32(c, draw(c, 1u << 31));
        break;
    case 3: /* lock xor [r8 + x], imm8: a flip that comes back */
        PUT(c, 0xf0, 0x41, 0x80, 0xb0);
        put32(c, draw(c, PIECE));
        put8(c, 1u << draw(c, 8));
        break;
    default: /* rep movsb of 32 bytes of this piece to another one */
        PUT(c, 0x56, 0x57, 0x48, 0x89, 0xde, 0x4c, 0x89, 0xc7, 0xb9, 32, 0, 0, 0, 0xf3, 0xa4, 0x5f,
            0x5e);
        break;
    }
}

/* Entries of the page table of data and code: present, writable, accessed, dirty, no execution,
 * another page. R14 is the table. */
static void tables(struct piece *c)
{
    static const u8 bits[] = {0, 0, 1, 1, 2, 5, 6, 63, 12, 13, 16};
    u64 page = draw(c, 4) ? 256 + draw(c, 16) : draw(c, 256);
    u8 bit = bits[draw(c, sizeof(bits))];
    PUT(c, 0xf0, 0x49, 0x0f, 0xba, 0xbe); /* lock btc [r14 + x], bit */
    put32(c, page * 8);
    put8(c, bit);
    switch (draw(c, 4)) {
    case 0: PUT(c, 0x0f, 0x01, 0x3e); break;                   /* invlpg (rsi) */
    case 1: PUT(c, 0x0f, 0x20, 0xd8, 0x0f, 0x22, 0xd8); break; /* CR3 again */
    default: break;
    }
    if (draw(c, 2)) { /* ... and back after something */
        plain(c);
        PUT(c, 0xf0, 0x49, 0x0f, 0xba, 0xbe);
        put32(c, page * 8);
        put8(c, bit);
    }
}

static void wrmsr(struct piece *c, u32 msr, u32 low, u32 high)
{
    put8(c, 0xb9);
    put32(c, msr);
    put8(c, 0xb8);
    put32(c, low);
    put8(c, 0xba);
    put32(c, high);
    PUT(c, 0x0f, 0x30);
}

/* mov dword [r15 + reg], v */
static void apic(struct piece *c, u32 reg, u32 v)
{
    PUT(c, 0x41, 0xc7, 0x87);
    put32(c, reg);
    put32(c, v);
}

static u32 icr(struct piece *c)
{
    static const u32 shorthand[] = {0, 0, 0, 0xc0000, 0xc0000, 0x80000, 0x40000};
    u32 to = shorthand[draw(c, 7)] | (draw(c, 4) ? 0 : 0x800);
    switch (draw(c, 10)) {
    case 0: return 0x4400 | to; /* NMI */
    case 1: return 0x4500 | to; /* INIT */
    case 2:
    case 3: return 0x4600 | CPUS_TRAMPOLINE >> 12 | to;      /* start-up */
    case 4: return 0x4100 | (0x20 + (u32)draw(c, 224)) | to; /* lowest priority */
    case 5: return (u32)draw(c, 1u << 20);
    default: return 0x4000 | (0x20 + (u32)draw(c, 224)) | to;
    }
}

static void ipi(struct piece *c)
{
    u32 dest = draw(c, 6) ? (u32)draw(c, 5) : 0xff, command = icr(c);
    if (draw(c, 8)) {
        apic(c, 0x310, dest << 24);
        apic(c, 0x300, command);
    } else {
        wrmsr(c, 0x830, command, dest == 0xff ? ~0u : dest);
    }
    /* Whoever has none running sends nothing any more: after INIT most often a start-up. */
    if ((command & 0x700) == 0x500 && draw(c, 4)) {
        apic(c, 0x310, dest << 24);
        apic(c, 0x300, 0xc4600 | CPUS_TRAMPOLINE >> 12);
    }
}

static void waits(struct piece *c)
{
    apic(c, 0x320, draw(c, 2) ? 0x20 + (u32)draw(c, 224) : 0x20020);
    apic(c, 0x3e0, draw(c, 2) ? 0xb : 3);
    apic(c, 0x380, 1 + (u32)draw(c, draw(c, 2) ? 500 : 60000));
    if (draw(c, 3))
        PUT(c, 0xfb, 0xf4); /* sti; hlt */
    else
        PUT(c, 0xfb, 0xf3, 0x90, 0xfa); /* sti; pause; cli */
}

static void vectors(struct piece *c)
{
    switch (draw(c, 6)) {
    case 0: PUT(c, 0x0f, 0x10, 0x06, 0x0f, 0x58, 0xc8, 0x0f, 0x11, 0x4f, 0x10); break;
    case 1: PUT(c, 0xd9, 0x06, 0xd8, 0xc0, 0xd9, 0x5e, 0x08); break; /* fld; fadd; fstp */
    case 2: PUT(c, 0x66, 0x0f, 0x6f, 0x06, 0x66, 0x0f, 0xfe, 0xc1, 0x66, 0x0f, 0x7f, 0x07); break;
    case 3: PUT(c, 0x49, 0x0f, 0xae, 0x01); break; /* fxsave (r9) */
    case 4: PUT(c, 0x49, 0x0f, 0xae, 0x09); break; /* fxrstor (r9) */
    default: PUT(c, 0x66, 0x48, 0x0f, 0x6e, 0xc0, 0xf2, 0x48, 0x0f, 0x2a, 0xc8); break;
    }
}

static void system_state(struct piece *c)
{
    switch (draw(c, 12)) {
    case 0: PUT(c, 0x0f, 0x31, 0x89, 0x46, 0x20); break;       /* rdtsc; mov to memory */
    case 1: PUT(c, 0x0f, 0x01, 0xf9, 0x89, 0x4e, 0x24); break; /* rdtscp */
    case 2: wrmsr(c, 0xc0000103, (u32)draw(c, 100), 0); break; /* TSC_AUX */
    case 3: wrmsr(c, 0x3b, (u32)draw(c, 1000), 0); break;      /* TSC_ADJUST */
    case 4: wrmsr(c, 0x1b, 0xfee00c00, 0); break;              /* x2APIC */
    case 5: PUT(c, 0xb8, 0xb, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0x0f, 0xa2, 0x89, 0x56, 0x28); break;
    case 6: PUT(c, 0x9c, 0x80, 0x4c, 0x24, 1, 1, 0x9d); break; /* single-step */
    case 7:
        PUT(c, 0x0f, 0x23, 0xc6, 0xb8, 2, 4, 0x0d, 0, 0x0f, 0x23, 0xf8);
        break;                                                             /* watch (rsi) */
    case 8: PUT(c, 0x44, 0x0f, 0x20, 0xc0, 0x44, 0x0f, 0x22, 0xc0); break; /* CR8 */
    case 9:
        PUT(c, 0x0f, 0x20, 0xc0, 0x48, 0x0f, 0xba, 0xf8, (u8)(draw(c, 2) ? 16 : 18), 0x0f, 0x22,
            0xc0);
        break;
    case 10: PUT(c, 0xcd, (u8)draw(c, 256)); break;
    default: wrmsr(c, 0x277, 0x00070406, 0x00070406); break; /* PAT */
    }
}

static void strings(struct piece *c)
{
    static const u8 ops[] = {0xa4, 0xa5, 0xaa, 0xab, 0xa6, 0xae, 0xac};
    put8(c, 0xb9);
    put32(c, draw(c, 200));
    PUT(c, (u8)(0xf2 + draw(c, 2)), ops[draw(c, sizeof(ops))], 0xbe); /* and RSI, RDI again */
    put32(c, CPUS_DATA + draw(c, 0x4000));
    put8(c, 0xbf);
    put32(c, CPUS_DATA + draw(c, 0x9000));
}

static void noise(struct piece *c)
{
    for (u64 n = 1 + draw(c, 4); n; n--)
        put8(c, draw(c, 256));
}

/* To another piece, as it is: jmp rel32, or a call. */
static void leave(struct piece *c, const u8 *region)
{
    i64 at = c->p + 5 - region, to = (i64)draw(c, CPUS_PIECES) << CPUS_PIECE_SHIFT;
    put8(c, draw(c, 4) ? 0xe9 : 0xe8);
    put32(c, (u64)(to - at));
}

static void draw_piece(struct piece *c, const u8 *region)
{
    static const struct {
        u8 weight;
        void (*put)(struct piece *c);
    } kinds[] = {{6, plain},   {4, atomic},       {4, arithmetic}, {2, loop},
                 {2, code},    {2, tables},       {2, ipi},        {1, waits},
                 {1, vectors}, {1, system_state}, {1, strings}};
    u64 all = 0;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        all += kinds[i].weight;
    if (draw(c, 2))
        turn_with_flags(c);
    while (c->end - c->p > 70) {
        u64 at = draw(c, all);
        size_t i = 0;
        for (; at >= kinds[i].weight; i++)
            at -= kinds[i].weight;
        kinds[i].put(c);
        if (draw(c, 60) == 0)
            noise(c);
        if (draw(c, 40) == 0)
            PUT(c, 0xf3, 0x90);
        if (draw(c, 40) == 0)
            put8(c, draw(c, 2) ? 0xfb : 0xfa);
    }
    if (draw(c, 2))
        leave(c, region);
    memset(c->p, draw(c, 2) ? 0xcc : 0x90, (size_t)(c->end - c->p));
}

void *guest_cpus_elf(u64 seed, size_t *size)
{
    u8 *region;
    void *elf = guest_elf(stub_cpus_start, (size_t)(stub_cpus_end - stub_cpus_start),
                          CPUS_PIECES << CPUS_PIECE_SHIFT, &region, size);
    struct piece c = {.s = seed};
    for (u32 i = 0; i < CPUS_PIECES; i++) {
        c.p = region + ((size_t)i << CPUS_PIECE_SHIFT);
        c.end = c.p + PIECE;
        draw_piece(&c, region);
    }
    return elf;
}
