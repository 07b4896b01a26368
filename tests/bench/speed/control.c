/* Where control goes next is decided late: interpreters, tables of functions, code that changes. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "speed.h"

/* A machine with four registers; each instruction is four bytes: operation, two registers, number.
 */
enum { SET, ADD, SUB, MUL, XOR, SHIFT, LOAD, STORE, LOOP, STOP };
struct code {
    uint8_t op, a, b;
    int8_t number;
};

/* r0: counts down. r1: a hash. r2: where in memory. r3: scratch. */
static const struct code program[] = {
    {MUL, 1, 1, 31},   {ADD, 1, 0, 7},   {SHIFT, 3, 1, 5}, {XOR, 1, 3, 0}, {ADD, 2, 1, 1},
    {LOAD, 3, 2, 0},   {ADD, 1, 3, 3},   {STORE, 1, 2, 0}, {SUB, 2, 3, 2}, {XOR, 1, 2, 9},
    {LOAD, 3, 1, 0},   {STORE, 3, 2, 0}, {SET, 3, 0, 17},  {MUL, 3, 1, 3}, {STORE, 3, 1, 0},
    {LOOP, 0, 0, -15}, {STOP, 0, 0, 0},
};

/* Each operation jumps to the next one by itself, as interpreters of languages do. */
static uint64_t interp(uint64_t n)
{
    static const void *const go[] = {&&set,   &&add,  &&sub,   &&mul,  &&xor,
                                     &&shift, &&load, &&store, &&loop, &&stop};
    uint64_t r[4] = {n}, data[256] = {0};
    const struct code *at = program;
#define NEXT                                                                                       \
    do {                                                                                           \
        at++;                                                                                      \
        goto *go[at->op];                                                                          \
    } while (0)
    goto *go[at->op];
set:
    r[at->a] = (uint64_t)at->number;
    NEXT;
add:
    r[at->a] += r[at->b] + (uint64_t)at->number;
    NEXT;
sub:
    r[at->a] -= r[at->b] + (uint64_t)at->number;
    NEXT;
mul:
    r[at->a] = r[at->b] * (uint64_t)at->number;
    NEXT;
    xor : r[at->a] ^= r[at->b] + (uint64_t)at->number;
    NEXT;
shift:
    r[at->a] = r[at->b] >> at->number;
    NEXT;
load:
    r[at->a] = data[r[at->b] % 256];
    NEXT;
store:
    data[r[at->b] % 256] = r[at->a];
    NEXT;
loop:
    if (--r[at->a])
        at += at->number - 1;
    NEXT;
stop:
    return mix(r[1], r[2]);
#undef NEXT
}

/* Objects with tables of functions, in an order that nothing predicts for long. */
struct shape;
struct shape_ops {
    uint64_t (*area)(const struct shape *s);
    void (*grow)(struct shape *s, uint64_t by);
};
struct shape {
    const struct shape_ops *ops;
    uint64_t a, b;
};

static uint64_t square_area(const struct shape *s)
{
    return s->a * s->a;
}
static uint64_t box_area(const struct shape *s)
{
    return s->a * s->b;
}
static uint64_t ring_area(const struct shape *s)
{
    return s->a * s->a - s->b;
}
static uint64_t hole_area(const struct shape *s)
{
    return s->b ^ s->a;
}
static void grow_a(struct shape *s, uint64_t by)
{
    s->a += by;
}
static void grow_both(struct shape *s, uint64_t by)
{
    s->a += by;
    s->b ^= by;
}

static const struct shape_ops kinds[] = {
    {square_area, grow_a}, {box_area, grow_both}, {ring_area, grow_both}, {hole_area, grow_a}};

static uint64_t vcalls(uint64_t n)
{
    enum { COUNT = 4096 };
    struct shape *shapes = memory(COUNT * sizeof(*shapes));
    uint64_t state = 1, sum = 0;
    for (int i = 0; i < COUNT; i++) {
        uint64_t r = next_random(&state);
        shapes[i] = (struct shape){&kinds[r >> 62], r & 0xff, r >> 8 & 0xff};
    }
    while (n--)
        for (int i = 0; i < COUNT; i++) {
            struct shape *s = &shapes[i];
            sum += s->ops->area(s);
            s->ops->grow(s, sum & 15);
        }
    free(shapes);
    return sum;
}

/* REP MOVS, STOS, SCAS and CMPS, from a few bytes to 64 KiB, half of them not aligned. */
static uint64_t strings(uint64_t n)
{
    enum { ROOM = 70000 };
    static const uint32_t sizes[] = {3, 8, 16, 31, 64, 100, 256, 1000, 4096, 65536};
    uint8_t *from = memory(ROOM), *to = memory(ROOM);
    uint64_t state = 1, sum = 0;
    for (int i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(next_random(&state) % 255 + 1);
    memset(to, 0, ROOM);
    for (uint64_t i = 0; i < n; i++) {
        /* As many bytes of each size would be all small ones: the large sizes come every 64th time.
         */
        uint64_t size = sizes[i % 64 ? i % 8 : 8 + i / 64 % 2], count = size, words = size / 8;
        uint8_t *s = from + (i & 1) * 3, *d = to + (i & 2), *end;
        __asm__ volatile("rep movsb" : "+S"(s), "+D"(d), "+c"(count) : : "memory");
        d = to + (i & 2), s = from + 8, count = words;
        __asm__ volatile("rep movsq" : "+S"(s), "+D"(d), "+c"(count) : : "memory");
        to[(i & 2) + words * 8] = 0; /* SCAS looks for it, and CMPS comes so far */
        end = to + (i & 2), count = size + 9;
        __asm__ volatile("repne scasb" : "+D"(end), "+c"(count) : "a"(0) : "memory", "cc");
        sum = mix(sum, count + (uint64_t)(end - to));
        s = from + 8, d = to + (i & 2), count = size;
        __asm__ volatile("repe cmpsb" : "+S"(s), "+D"(d), "+c"(count) : : "memory", "cc");
        sum = mix(sum, count);
        d = to + (i & 2), count = words;
        __asm__ volatile("rep stosq" : "+D"(d), "+c"(count) : "a"(sum | 1) : "memory");
        d = to + (i & 2) + size, count = size & 7;
        __asm__ volatile("rep stosb" : "+D"(d), "+c"(count) : "a"(i) : "memory");
    }
    free(from);
    free(to);
    return sum;
}

/* A function is written into a page and called: another constant each time, at one of 16 places. */
static uint64_t smc(uint64_t n)
{
    uint8_t *page = pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    uint64_t sum = 1;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *code = page + i % 16 * 256;
        uint32_t constant = (uint32_t)i * 2654435761u;
        /* lea (%rdi,%rdi,2),%rax; xor $constant,%rax; ret */
        memcpy(code, "\x48\x8d\x04\x7f\x48\x35", 6);
        memcpy(code + 6, &constant, 4);
        code[10] = 0xc3;
        __asm__ volatile("" ::: "memory");
        uint64_t (*function)(uint64_t) = (uint64_t(*)(uint64_t))(uintptr_t)code;
        for (int j = 0; j < 4; j++)
            sum = function(sum);
    }
    munmap(page, 4096);
    return sum;
}

const struct work control_works[] = {
    {"interp", 50000000, interp},
    {"vcalls", 25000, vcalls},
    {"strings", 400000, strings},
    {"smc", 2000000, smc},
    {0},
};
