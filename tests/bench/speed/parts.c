/* One thing at a time, n of it: what a branch, a load, a fault cost. 64 in a row in each turn of a
 * loop. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "speed.h"

#define IN_A_ROW 64

static uint64_t branches(uint64_t n)
{
    for (uint64_t i = 0; i < n; i += IN_A_ROW)
        __asm__ volatile("clc\n"
                         ".rept 64\n"
                         "jnc 1f\n"
                         "nop\n"
                         "1:\n"
                         ".endr" ::
                             : "cc");
    return n;
}

static uint64_t loads(uint64_t n)
{
    static const uint64_t words[IN_A_ROW];
    for (uint64_t i = 0; i < n; i += IN_A_ROW)
        __asm__ volatile(".set offset, 0\n"
                         ".rept 64\n"
                         "mov offset(%0), %%rax\n"
                         ".set offset, offset + 8\n"
                         ".endr"
                         :
                         : "r"(words), "m"(words)
                         : "rax");
    return n;
}

static uint64_t stores(uint64_t n)
{
    uint64_t words[IN_A_ROW];
    for (uint64_t i = 0; i < n; i += IN_A_ROW)
        __asm__ volatile(".set offset, 0\n"
                         ".rept 64\n"
                         "mov %1, offset(%0)\n"
                         ".set offset, offset + 8\n"
                         ".endr"
                         :
                         : "r"(words), "r"(i)
                         : "memory");
    return words[0] + words[63];
}

static uint64_t calls(uint64_t n)
{
    for (uint64_t i = 0; i < n; i += IN_A_ROW)
        __asm__ volatile(
            "lea -128(%%rsp), %%rsp\n" /* past what the compiler keeps below the stack */
            "jmp 2f\n"
            "1: ret\n"
            "2:\n"
            ".rept 64\n"
            "call 1b\n"
            ".endr\n"
            "lea 128(%%rsp), %%rsp" ::
                : "memory");
    return n;
}

/* One instruction, the second MOV, whose bytes are in two pages. */
static uint64_t across_pages(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        __asm__ volatile("jmp 1f\n"
                         ".p2align 12\n"
                         ".skip 4088\n"
                         "1: mov $1, %%eax\n"
                         "mov $2, %%eax\n" ::
                             : "rax");
    return n;
}

static uint64_t string_moves(uint64_t n)
{
    uint8_t from[16] = {1, 2, 3}, to[16];
    for (uint64_t i = 0; i < n; i++) {
        void *s = from, *d = to;
        uint64_t count = sizeof(to);
        __asm__ volatile("rep movsb" : "+S"(s), "+D"(d), "+c"(count) : : "memory");
    }
    return to[2];
}

static uint64_t system_calls(uint64_t n)
{
    long parent = syscall(SYS_getppid);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += syscall(SYS_getppid) == parent;
    return sum;
}

/* Pages that are touched after they were given back. */
static uint64_t page_faults(uint64_t n)
{
    enum { PAGES = 256 };
    volatile uint8_t *p = pages(PAGES * 4096, PROT_READ | PROT_WRITE);
    uint64_t sum = 0;
    madvise((void *)p, PAGES * 4096, MADV_NOHUGEPAGE);
    for (uint64_t i = 0; i < n; i += PAGES) {
        for (uint64_t j = 0; j < PAGES; j++)
            sum += p[j * 4096]++;
        must(!madvise((void *)p, PAGES * 4096, MADV_DONTNEED), "madvise");
    }
    munmap((void *)p, PAGES * 4096);
    return sum;
}

static uint64_t switches(uint64_t n)
{
    return pipe_round_trips(n / 2);
}

const struct work part_works[] = {
    {"branch", 1600000000, branches},   {"load", 6400000000, loads},
    {"store", 3200000000, stores},      {"call", 640000000, calls},
    {"across", 10000000, across_pages}, {"rep", 10000000, string_moves},
    {"syscall", 5000000, system_calls}, {"fault", 409600, page_faults},
    {"switch", 300000, switches},       {0},
};
