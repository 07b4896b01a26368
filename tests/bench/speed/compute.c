/* Work in user space on registers and memory. */
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <zlib.h>
#endif

#include "speed.h"

#define MIB (1u << 20)

static void sort(uint32_t *a, int64_t low, int64_t high)
{
    while (low < high) {
        uint32_t pivot = a[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot)
                i++;
            while (a[j] > pivot)
                j--;
            if (i > j)
                break;
            uint32_t t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        sort(a, low, j);
        low = i;
    }
}

/* Hashes, a sieve and a sort of some 256 KiB each. */
static uint64_t integer(uint64_t n)
{
    enum { COUNT = 65536 };
    uint32_t *values = memory(COUNT * sizeof(*values));
    uint8_t *composite = memory(COUNT * 4);
    uint64_t state = 1, sum = 0;
    while (n--) {
        for (int i = 0; i < COUNT; i++) {
            values[i] = (uint32_t)next_random(&state);
            sum = mix(sum, values[i] % 10 < 3 ? values[i] / 7 : values[i] + 1);
        }
        sort(values, 0, COUNT - 1);
        sum = mix(sum, values[COUNT / 2]);
        memset(composite, 0, COUNT * 4);
        for (uint64_t i = 2; i < COUNT * 4; i++) {
            sum += !composite[i];
            for (uint64_t j = i * i; !composite[i] && j < COUNT * 4; j += i)
                composite[j] = 1;
        }
    }
    free(values);
    free(composite);
    return sum;
}

static uint64_t matrix(uint64_t n)
{
    enum { SIDE = 256 };
    double(*a)[SIDE] = memory(sizeof(double[SIDE][SIDE]));
    double(*b)[SIDE] = memory(sizeof(double[SIDE][SIDE]));
    double(*c)[SIDE] = memory(sizeof(double[SIDE][SIDE]));
    uint64_t state = 1, sum = 0;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            a[i][j] = (double)(next_random(&state) >> 40) / (1 << 20) - 8;
            b[i][j] = (double)(next_random(&state) >> 40) / (1 << 20) - 8;
        }
    while (n--) {
        for (int i = 0; i < SIDE; i++) {
            memset(c[i], 0, sizeof(c[i]));
            for (int k = 0; k < SIDE; k++)
                for (int j = 0; j < SIDE; j++)
                    c[i][j] += a[i][k] * b[k][j];
        }
        for (int i = 0; i < SIDE; i++) {
            uint64_t bits;
            memcpy(&bits, &c[i][i], sizeof(bits));
            sum = mix(sum, bits);
            a[i][i] = c[i][i] / (1 << 20);
        }
    }
    free(a);
    free(b);
    free(c);
    return sum;
}

/*
 * 64 MiB: half a million steps of a chase through all of it, then half of it copied. A loop of our
 * own copies: libc's would take the host's widest vectors, which the guest's CPU does not have.
 */
static uint64_t chase(uint64_t n)
{
    enum { WORDS = 64 * MIB / 8, STEPS = 500000 };
    uint64_t *at = memory((uint64_t)WORDS * 8);
    uint64_t state = 1, here = 0, sum = 0;
    for (uint64_t i = 0; i < WORDS; i++)
        at[i] = i;
    for (uint64_t i = WORDS - 1; i > 0; i--) { /* one cycle through all of it */
        uint64_t j = next_random(&state) % i, t = at[i];
        at[i] = at[j];
        at[j] = t;
    }
    while (n--) {
        for (int i = 0; i < STEPS; i++)
            here = at[here];
        sum = mix(sum, here);
        uint64_t *to = memory((uint64_t)WORDS * 4);
        for (uint64_t i = 0; i < WORDS / 2; i++) {
            to[i] = at[i + (n & 1 ? WORDS / 2 : 0)];
            __asm__ volatile("" ::: "memory");
        }
        sum = mix(sum, to[here % (WORDS / 2)]);
        free(to);
    }
    free(at);
    return sum;
}

static uint64_t sha256(uint64_t n)
{
    uint8_t *data = memory(MIB);
    uint64_t state = 1, sum = 0;
    for (unsigned i = 0; i < MIB; i++)
        data[i] = (uint8_t)next_random(&state);
    while (n--) {
        sum = mix(sum, sha256_sum(data, MIB));
        memcpy(data, &sum, sizeof(sum));
    }
    free(data);
    return sum;
}

/* Words of a vocabulary, the short ones more often: packs about as text does. */
static void write_text(char *text, size_t size, uint64_t *state)
{
    for (size_t i = 0; i < size;) {
        uint64_t r = next_random(state), word = (r & 0xff) * (r >> 8 & 0xff) >> 5;
        uint64_t letters = word * 0x9e3779b97f4a7c15u + 12345;
        for (uint64_t left = 2 + word % 9; left && i < size; left--, letters >>= 5)
            text[i++] = (char)('a' + (letters & 31) % 26);
        if (i < size)
            text[i++] = r >> 60 ? ' ' : '\n';
    }
}

#ifdef __x86_64__
/* As gzip does at its usual level, a MiB at a time. */
static uint64_t gzip(uint64_t n)
{
    uLong room = compressBound(MIB);
    char *text = memory(MIB);
    Bytef *packed = memory(room);
    uint64_t state = 1, sum = 0;
    while (n--) {
        uLongf size = room;
        write_text(text, MIB, &state);
        must(compress2(packed, &size, (const Bytef *)text, MIB, 6) == Z_OK, "compress2");
        sum = mix(sum, size) ^ crc32(0, packed, (uInt)size);
    }
    free(text);
    free(packed);
    return sum;
}

const struct work compute_works[] = {
    {"integer", 200, integer}, {"matrix", 100, matrix}, {"memory", 7, chase},
    {"sha256", 200, sha256},   {"gzip", 40, gzip},      {0},
};
#else
const struct work compute_works[] = {
    {"integer-32", 200, integer},
    {"matrix-32", 100, matrix},
    {"memory-32", 7, chase},
    {"sha256-32", 200, sha256},
    {0},
};
#endif
