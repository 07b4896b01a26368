/* Single instructions: prefixes, ends of pages, 32-bit code, and faults that are not the module's.
 */
#include "tsc-test.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

static unsigned char *code_pages(int flags)
{
    unsigned char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (p == MAP_FAILED) {
        check(false, "no memory");
        _exit(1);
    }
    return p;
}

/* Calls code that reads the TSC; what it gives must lie between two plain reads. */
static void call(const unsigned char *code, const char *what, int number)
{
    uint64_t before = rdtsc(), a = ~0ull, d = ~0ull, c = ~0ull;
    __asm__ volatile("call *%[code]"
                     : "+a"(a), "+d"(d), "+c"(c)
                     : [code] "r"(code)
                     : "memory", "cc", "rbx", "r8", "r9", "r10", "r11");
    uint64_t after = rdtsc(), t = a | d << 32;
    check(!(a >> 32) && !(d >> 32), "%s %d leaves the upper halves", what, number);
    check(t >= before && t <= after, "%s %d gives %llx", what, number, (unsigned long long)t);
}

void test_prefixes(void)
{
    static const unsigned char prefixes[][6] = {
        {1, 0x66}, {1, 0x67},       {1, 0xf2},       {1, 0xf3},
        {1, 0x2e}, {1, 0x64},       {1, 0x48},       {2, 0x66, 0x4f},
        {1, 0x40}, {2, 0x3e, 0x65}, {2, 0x48, 0x66}, {5, 0x26, 0x36, 0x67, 0x66, 0x41},
    };
    unsigned char *p = code_pages(0);
    for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        memcpy(p, prefixes[i] + 1, prefixes[i][0]);
        memcpy(p + prefixes[i][0], "\x0f\x31\xc3", 3);
        call(p, "RDTSC with prefixes", (int)i);
    }
    memset(p, 0x66, 13); /* as long as can be */
    memcpy(p + 13, "\x0f\x31\xc3", 3);
    call(p, "RDTSC of 15 bytes", 0);
    memcpy(p, "\x67\x0f\x01\xf9\xc3", 5);
    call(p, "RDTSCP with a prefix", 0);
    munmap(p, 2 * PAGE);
}

void test_page_ends(void)
{
    for (int over = 0; over < 3; over++) {
        unsigned char *p = code_pages(0), *at = p + PAGE - 3 + over;
        memcpy(at, "\x0f\x01\xf9\xc3", 4);
        call(at, "RDTSCP across pages", over);
        munmap(p, 2 * PAGE);
    }
    /* The last bytes that there are. */
    unsigned char *p = code_pages(0), *at = p + PAGE - 3;
    munmap(p + PAGE, PAGE);
    memcpy(at, "\x0f\x31\xc3", 3);
    call(at, "RDTSC before a hole", 0);
    munmap(p, PAGE);
}

/* 32-bit code: PUSH CS:back is there already; RDTSC with a prefix, far return. */
void test_compat(void)
{
    unsigned char *p = code_pages(MAP_32BIT);
    static const unsigned char code[] = {
        0x66, 0x0f, 0x31, /* rdtsc */
        0xcb,             /* lret, to the 64-bit code segment */
    };
    memcpy(p, code, sizeof(code));
    uint64_t before = rdtsc();
    uint32_t a, d;
    unsigned char *stack = p + 2 * PAGE - 64;
    /* To 32-bit code by a far return, back by the 32-bit one to a piece of code below 4 GiB. */
    unsigned char *back = p + 64;
    memcpy(back, "\xff\xe3", 2); /* jmp *%rbx */
    ((uint32_t *)stack)[0] = (uint32_t)(uintptr_t)back;
    ((uint32_t *)stack)[1] = 0x33;
    __asm__ volatile("mov %%rsp, %%r12\n\t"
                     "lea 1f(%%rip), %%rbx\n\t"
                     "mov %[stack], %%rsp\n\t"
                     "pushq $0x23\n\t"
                     "pushq %[code]\n\t"
                     "lretq\n"
                     "1: mov %%r12, %%rsp"
                     : "=&a"(a), "=&d"(d)
                     : [stack] "r"((uint64_t)(uintptr_t)stack), [code] "r"((uint64_t)(uintptr_t)p)
                     : "rbx", "r12", "memory", "cc");
    uint64_t t = a | (uint64_t)d << 32, after = rdtsc();
    check(t >= before && t <= after, "32-bit RDTSC gives %llx", (unsigned long long)t);
    munmap(p, 2 * PAGE);
}

static void do_hlt(void)
{
    __asm__ volatile("hlt");
}

static void do_cr0(void)
{
    __asm__ volatile("mov %%cr0, %%rax" : : : "rax");
}

static void do_rdmsr(void)
{
    __asm__ volatile("rdmsr" : : "c"(0x10) : "rax", "rdx");
}

static void do_not_canonical(void)
{
    __asm__ volatile("mov (%0), %%rax" : : "r"(1ull << 62) : "rax");
}

static void do_int(void)
{
    __asm__ volatile("int $0x42");
}

static void do_lock(void)
{
    __asm__ volatile(".byte 0xf0, 0x0f, 0x31");
}

/* One prefix too many: #GP, whatever the instruction. */
static void do_too_long(void)
{
    __asm__ volatile(".fill 14, 1, 0x66\n\trdtsc" : : : "rax", "rdx");
}

void test_other_faults(void)
{
    long long before = answers_user();
    check(signal_of(do_hlt) == SIGSEGV, "HLT");
    check(signal_of(do_cr0) == SIGSEGV, "MOV from CR0");
    check(signal_of(do_rdmsr) == SIGSEGV, "RDMSR");
    check(signal_of(do_not_canonical) == SIGSEGV, "an address that is not canonical");
    check(signal_of(do_int) == SIGSEGV, "INT 0x42");
    check(signal_of(do_lock) == SIGILL, "LOCK RDTSC");
    check(signal_of(do_too_long) == SIGSEGV, "16 bytes");
    check(answers_user() == before, "one of them was answered");
}

/* The kernel carries out SGDT for programs, in the function that the module hooks. */
void test_umip(void)
{
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) gdt = {1, 1};
    __asm__ volatile("sgdt %0" : "=m"(gdt));
    check(gdt.base == 0xfffffffffffe0000 && !gdt.limit, "SGDT gives %llx",
          (unsigned long long)gdt.base);
}
