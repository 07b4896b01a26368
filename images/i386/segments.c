/*
 * What a program under a 64-bit kernel can do with segments and ways into the kernel, from 32-bit
 * and from 64-bit code: an LDT's code and data segments with bases and limits, 16-bit code and
 * stacks, calls between 16, 32 and 64 bits, thread areas, INT 80h, SYSENTER, SYSCALL, the vsyscall
 * page. The CPU's and the kernel's answers are printed, so that guest and host can be compared.
 * Lines that begin with "way" depend on the CPU's maker, with "vsyscall" on the kernel's command
 * line.
 */
#define _GNU_SOURCE
#include <asm/ldt.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __x86_64__
#define REG(context, name) ((context)->uc_mcontext.gregs[REG_R##name])
#define FLAT_CODE          0x33
#else
#define REG(context, name) ((context)->uc_mcontext.gregs[REG_E##name])
#define FLAT_CODE          0x23
#endif
#define LDT(n) (uint16_t)((n) << 3 | 7)

/* Pages below 4 GiB: code that is copied there, data, a stack for calls, one for signals. */
static uint8_t *code, *data;
uint8_t *stack;

/* ---- calls into other segments ---- */

struct call {
    uint32_t offset;
    uint16_t selector;
    uint16_t ss; /* 0: flat, the stack below */
    uint16_t ds; /* the callee's DS; FS is not touched */
    uint32_t esp;
    uint32_t eax, ebx, ecx, edx, esi, edi; /* in and out */
};
/* Used by name below; all below 4 GiB, as the programs are no PIEs. */
struct call call;
uintptr_t outer_sp;
uint32_t inner_sp, got_sp;
uint16_t flat_data = 0x2b;
extern char far_call_back[];
static volatile int got_signal, got_trap;
static volatile uint32_t got_error;

/*
 * far_call(): to call.selector:call.offset with its registers and stack; the callee comes back by a
 * far return of 32 bits, or by a signal, to far_call_back. The inner part is 32-bit code in both
 * programs: in 64-bit code a stack has no base.
 */
void far_call(void);
#define INNER                                                                                      \
    "mov %esp, %ss:inner_sp; mov %ss:call+20, %ebx; mov %ss:call+28, %edx; mov %ss:call+32, "      \
    "%esi; mov %ss:call+36, %edi;"                                                                 \
    "movzwl %ss:call+6, %ecx; mov %ss:call+12, %eax; mov %ecx, %ss; mov %eax, %esp; mov "          \
    "%cs:call+24, %ecx;"                                                                           \
    "mov %cs:call+8, %ds; mov %cs:call+8, %es; mov %cs:call+16, %eax; lcall *%cs:call;"            \
    "mov %cs:flat_data, %ds; mov %eax, call+16; mov %ebx, call+20; mov %ecx, call+24; mov %edx, "  \
    "call+28;"                                                                                     \
    "mov %esi, call+32; mov %edi, call+36; mov %esp, got_sp; mov flat_data, %ss; mov inner_sp, "   \
    "%esp; mov flat_data, %es;"
#ifdef __x86_64__
__asm__("inner_at: .long inner; .word 0x23; .code32; inner: " INNER "lretl; .code64;"
        "far_call: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; mov %rsp, "
        "outer_sp;"
        "mov stack, %rsp; add $0x1000, %rsp; lcall *inner_at;"
        "far_call_back: mov outer_sp, %rsp; cld; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; "
        "pop %rbx; ret");
#else
__asm__("far_call: push %ebx; push %ebp; push %esi; push %edi; mov %esp, outer_sp; " INNER
        "far_call_back: mov outer_sp, %esp; cld; pop %edi; pop %esi; pop %ebp; pop %ebx; ret");
#endif

static void handler(int sig, siginfo_t *info, void *p)
{
    ucontext_t *context = p;
    (void)info;
    got_signal = sig;
    got_trap = (int)context->uc_mcontext.gregs[REG_TRAPNO];
    got_error = (uint32_t)context->uc_mcontext.gregs[REG_ERR];
    REG(context, IP) = (greg_t)far_call_back;
#ifdef __x86_64__
    uint16_t selectors[4];
    memcpy(selectors, &context->uc_mcontext.gregs[REG_CSGSFS], sizeof selectors);
    selectors[0] = FLAT_CODE;
    selectors[3] = 0x2b;
    memcpy(&context->uc_mcontext.gregs[REG_CSGSFS], selectors, sizeof selectors);
    /* DS and ES are not the frame's. */
    __asm__ volatile("mov %0, %%ds; mov %0, %%es" : : "r"(0x2b));
    REG(context, SP) = (greg_t)outer_sp;
#else
    context->uc_mcontext.gregs[REG_CS] = FLAT_CODE;
    context->uc_mcontext.gregs[REG_SS] = 0x2b;
    context->uc_mcontext.gregs[REG_DS] = context->uc_mcontext.gregs[REG_ES] = 0x2b;
    context->uc_mcontext.gregs[REG_ESP] = (greg_t)outer_sp;
#endif
}

static int described(unsigned n, void *base, unsigned limit, int contents, int wide, int pages,
                     int readonly)
{
    struct user_desc d = {.entry_number = n,
                          .base_addr = (uint32_t)(uintptr_t)base,
                          .limit = limit,
                          .seg_32bit = (unsigned)wide,
                          .contents = (unsigned)contents & 3,
                          .limit_in_pages = (unsigned)pages,
                          .read_exec_only = (unsigned)readonly,
                          .useable = 1};
    int r = (int)syscall(SYS_modify_ldt, 0x11, &d,
                         sizeof d); /* of 32 bits, also where it is negative */
    if (r)
        printf("no descriptor %u: %d\n", n, r);
    return r;
}
enum { DATA, DOWN, CODE };

/* Runs `name` (its machine code is between name_begin and name_end) at `selector`, where `base` is.
 */
#define SNIPPET(name, bits, text)                                                                  \
    extern const char name##_begin[], name##_end[];                                                \
    __asm__(".pushsection .rodata; .code" #bits "; " #name "_begin: " text "; " #name              \
            "_end: " NATIVE "; .popsection")
#ifdef __x86_64__
#define NATIVE ".code64"
#else
#define NATIVE ".code32"
#endif
#define RUN(name, at, to, segment)                                                                 \
    run(#name, name##_begin, (size_t)(name##_end - name##_begin), at, to, segment)

static void run(const char *name, const void *text, size_t size, unsigned at, uint16_t selector,
                uint16_t segment)
{
    memcpy(code + at, text, size);
    call.selector = selector;
    call.offset = at + (selector == FLAT_CODE || selector == 0x23 || selector == 0x33
                            ? (uint32_t)(uintptr_t)code
                            : 0);
    call.ds = segment;
    if (!call.ss) {
        call.ss = 0x2b;
        call.esp = (uint32_t)(uintptr_t)stack + 0x3f00;
    }
    got_signal = got_trap = 0;
    got_error = got_sp = 0;
    far_call();
    if (got_signal)
        printf("%s: signal %d trap %d error %x\n", name, got_signal, got_trap, got_error);
    else
        printf("%s: %08x %08x %08x %08x %08x %08x\n", name, call.eax, call.ebx, call.ecx, call.edx,
               segment == 0x2b ? 0 : call.esi, segment == 0x2b ? 0 : call.edi);
    call.ss = 0;
}

/* 16-bit code: addresses of 16 bits, pushes, decimal arithmetic, strings, frames, near calls, a
 * jump table. */
SNIPPET(code16, 16,
        "xor %eax, %eax; xor %bx, %bx; xor %edx, %edx; mov $40, %cx; mov $0x10, %si; 1: lodsw; add "
        "%eax, %edx;"
        "rol $3, %edx; mov %al, 0x100(%bx,%si); inc %bx; loop 1b; pusha; mov %sp, %bp; mov $0x99, "
        "%al; add $0x27, %al;"
        "daa; mov %ax, 14(%bp); popa; push $0x1234; pop %bx; enter $16, $2; mov %bp, -2(%bp); "
        "leave; call 2f;"
        "mov $0x100, %di; mov $0x10, %si; mov $20, %cx; rep movsw; aam $7; lretl; 2: xchg %ah, "
        "%al; ret");
/* The same mode, 32-bit operands and addresses by prefixes. */
SNIPPET(code16_prefixes, 16,
        "mov $0x12345678, %eax; movl $0x20, %ecx; addl 4(,%ecx,2), %eax; bswap %eax; movzwl (%si), "
        "%ebx; shld $7, %eax, %ebx;"
        "imul $77, %ebx, %edx; push %eax; pop %ecx; movw $0x55aa, 0x80; movl 0x7e, %edi; lretl");
SNIPPET(
    code32, 32,
    "xor %eax, %eax; xor %edx, %edx; mov $40, %ecx; mov $0x10, %esi; 1: lodsl; add %eax, %edx; rol "
    "$5, %edx;"
    "bound %ecx, 0xff8; loop 1b; mov %ds, %ebx; mov %cs:(0), %eax; and $0xff, %eax; lar %bx, %ecx;"
    "lsl %bx, %esi; str %edi; sub %edi, %edi; lretl");
SNIPPET(read_at, 32, "movzbl (%ebx), %eax; xor %ecx, %ecx; lretl");
SNIPPET(read_word, 32, "movzwl (%ebx), %eax; lretl");
SNIPPET(write_at, 32, "movb $0x5a, (%ebx); mov $1, %eax; lretl");
SNIPPET(strings_over, 32, "mov $0xff0, %edi; mov $0x40, %ecx; mov $0x77, %al; rep stosb; lretl");
SNIPPET(past_code, 32, "jmp . + 0x2000");
SNIPPET(bad_selector, 32, "mov $0x1237, %eax; mov %eax, %es; lretl");
SNIPPET(no_code, 32, "mov %ds, %eax; push %eax; push $0; lretl");
SNIPPET(divides, 32, "xor %eax, %eax; cltd; idiv %eax; lretl");
SNIPPET(breaks, 32, "int3; lretl");
SNIPPET(privileged, 32, "cli; lretl");
/* From code of either width to 64 bits and back: the registers that only they have. */
SNIPPET(code64, 64,
        "mov $0x123456789abcdef0, %r8; lea 1(%r8), %rax; mov %rax, %rdx; shr $32, %rdx; movslq "
        "%eax, %rbx; shr $32, %rbx;"
        "mov %cs, %ecx; xor %esi, %esi; xor %edi, %edi; lretl");
SNIPPET(code32_flat, 32,
        "mov %cs, %ecx; mov $0xffffffff, %eax; inc %eax; lea -1(%eax), %ebx; push %esp; pop %edx; "
        "sub %esp, %edx; lretl");
SNIPPET(to_64_and_16, 32, "lcall $0x33, $0; mov %eax, %edx; lcall $0x3f, $0x300; lretl");
/* A 16-bit stack: of ESP only SP is used, and the kernel's IRET to it keeps the rest (espfix). */
SNIPPET(stack16, 32,
        "mov %esp, %esi; push $0x11223344; pop %ebx; mov $20, %eax; int $0x80; mov %esp, %edi; sub "
        "%esi, %edi;"
        "mov %esp, %edx; xor %dx, %dx; mov $0, %eax; mov %ss, %ecx; xor %esi, %esi; lretl");
SNIPPET(stack16_faults, 32,
        "movw $0, %sp; sub $2, %sp; push %eax; mov %esp, %edx; mov $0x9000, %sp; push %eax; lretl");
/* Ways into the kernel. getpid() is 20; SYSENTER and SYSCALL expect a frame of the vDSO's. */
SNIPPET(way_int80, 32,
        "mov $20, %eax; int $0x80; mov %eax, %ebx; mov $20, %eax; int $0x80; sub %ebx, %eax; xor "
        "%ebx, %ebx; lretl");
/* As the vDSO does it, whose code after the system call takes three words off the stack and
 * returns. */
SNIPPET(way_sysenter, 32,
        "call 1f; sub %edi, %eax; xor %ebx, %ebx; xor %edx, %edx; lretl;"
        "1: push %ecx; push %edx; push %ebp; mov %esp, %ebp; mov $20, %eax; sysenter");
SNIPPET(way_syscall, 32, "mov $20, %eax; syscall; lretl");

static void on_stack16(uint32_t esp)
{
    call.ss = LDT(8);
    call.esp = esp;
}

static void segments(void)
{
    for (unsigned i = 0; i < 0x1000; i++)
        data[i] = (uint8_t)(i * 37 + (i >> 3));
    memcpy(data + 0xff8, (uint32_t[]){0, 50}, 8);
    if (described(1, data, 0xfff, DATA, 1, 0, 0) || described(2, data, 0xfff, DATA, 0, 0, 0) ||
        described(3, code, 0xfff, CODE, 1, 0, 0) || described(7, code, 0xfff, CODE, 0, 0, 0) ||
        described(4, data, 0x7ff, DOWN, 1, 0, 0) || described(5, data, 0x7f, DATA, 1, 0, 1) ||
        described(6, data, 0, DATA, 1, 1, 0) || described(8, stack, 0x3fff, DATA, 0, 0, 0) ||
        described(9, data - 0x100, 0x10, DOWN, 0, 0, 0) ||
        described(10, code, 0xfff, CODE, 1, 0, 1))
        return;
    on_stack16(0x3f00);
    RUN(code16, 0, LDT(7), LDT(2));
    call.esi = 0x20;
    RUN(code16_prefixes, 0, LDT(7), LDT(1));
    RUN(code32, 0, LDT(3), LDT(1));
    RUN(code32, 0, LDT(10), LDT(6));
    /* Within and past limits: upwards, downwards (32 and 16 bits wide), of pages. */
    static const struct {
        unsigned entry;
        uint32_t at;
    } places[] = {{1, 0xfff},  {1, 0x1000},  {4, 0x7ff},     {4, 0x800}, {5, 0x7f},
                  {5, 0x80},   {6, 0xfff},   {6, 0x1000},    {9, 0x10},  {9, 0x11},
                  {9, 0xffff}, {9, 0x10000}, {1, 0xffffffff}};
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        printf("entry %u at %x: ", places[i].entry, places[i].at);
        call.ebx = places[i].at;
        RUN(read_at, 0, LDT(3), LDT(places[i].entry));
        call.ebx = places[i].at;
        RUN(read_word, 0, LDT(3), LDT(places[i].entry));
        call.ebx = places[i].at;
        RUN(write_at, 0, LDT(3), LDT(places[i].entry));
    }
    RUN(strings_over, 0, LDT(3), LDT(1));
    printf("strings_over wrote %02x %02x\n", data[0xff0], data[0xfff]);
    RUN(past_code, 0, LDT(3), LDT(1));
    RUN(bad_selector, 0, LDT(3), LDT(1));
    RUN(no_code, 0, LDT(3), LDT(1));
    RUN(divides, 0x20, LDT(3), LDT(1));
    RUN(breaks, 0x20, LDT(3), LDT(1));
    RUN(privileged, 0x20, LDT(3), LDT(1));
}

static void widths(void)
{
    RUN(code64, 0, 0x33, 0x2b);
    RUN(code32_flat, 0, 0x23, 0x2b);
    /* Code of 32 bits with a base calls code of 64 bits, then of 16. */
    memcpy(code + 0x200, code64_begin, (size_t)(code64_end - code64_begin));
    memcpy(code + 0x300, code16_prefixes_begin,
           (size_t)(code16_prefixes_end - code16_prefixes_begin));
    call.esi = 0x40;
    static uint8_t text[64];
    memcpy(text, to_64_and_16_begin, (size_t)(to_64_and_16_end - to_64_and_16_begin));
    uint32_t target = (uint32_t)(uintptr_t)code + 0x200;
    memcpy(text + 1, &target, 4);
    run("to_64_and_16", text, (size_t)(to_64_and_16_end - to_64_and_16_begin), 0, LDT(3), LDT(1));
    on_stack16(0x12342f00);
    RUN(stack16, 0, LDT(3), LDT(1));
    on_stack16(0x77772f00);
    RUN(stack16_faults, 0, LDT(3), LDT(1));
    printf("stack16_faults: sp %x\n", got_sp);
}

static void ways(void)
{
    RUN(way_int80, 0, 0x23, 0x2b);
    RUN(way_int80, 0, LDT(3), LDT(1));
#ifdef __x86_64__
    /* From 64-bit code: the 32-bit table, the upper halves ignored, R8 to R11 kept. */
    uint64_t r, r8 = 0x8888888888888888;
    register uint64_t eight __asm__("r8") = r8;
    __asm__ volatile("int $0x80" : "=a"(r), "+r"(eight) : "a"(0xffffffff00000014u) : "memory");
    printf("int 80h from 64 bits: %d %d\n", (pid_t)r == getpid(), eight == r8);
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(9999) : "memory", "r8");
    printf("int 80h, no such call: %lld\n", (long long)r);
#endif
    call.edi = (uint32_t)getpid();
    RUN(way_sysenter, 0, 0x23,
        0x2b); /* no vDSO of 32 bits in a process of 64: the kernel kills it, or has it return */
    RUN(way_syscall, 0, 0x23, 0x2b);
}

#ifdef __x86_64__
/* A far call from 64-bit code, on a stack beyond 4 GiB, to 32-bit code, which sees the low half of
 * RSP. */
extern const char deep[];
void deep_call(void *sp);
__asm__(
    "deep_at: .long deep; .word 0x23;"
    "deep_call: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; mov %rsp, "
    "outer_sp;"
    "mov %rdi, %rsp; lcall *deep_at; .code32; deep: mov %ss:(%esp), %eax; mov %ss:4(%esp), %edx;"
    "mov %esp, %ecx; ljmp $0x33, $1f; .code64; 1: mov %eax, call+16; mov %edx, call+28;"
    "mov %ecx, call+24; jmp far_call_back");

static void deep_stacks(void)
{
    /* Of the second the low half is nowhere. */
    static const uintptr_t places[] = {0x300000000, 0x310000000};
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *far = mmap(stack + places[i], 0x1000, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (far == MAP_FAILED)
            return;
        got_signal = got_trap = 0, got_error = 0;
        call.eax = call.edx = 0;
        deep_call(far + 0x800);
        printf("deep stack: signal %d trap %d error %x, %d %x %x, beyond %x\n", got_signal,
               got_trap, got_error, call.eax == (uint32_t)(uintptr_t)deep, call.edx,
               call.ecx & 0xfff, far[0x7f8]);
    }
}
#endif

static void thread_areas(void)
{
    static uint32_t values[8] = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5};
    static struct user_desc d; /* below 4 GiB */
    d = (struct user_desc){.entry_number = (unsigned)-1,
                           .base_addr = (uint32_t)(uintptr_t)&values[2],
                           .limit = 7,
                           .seg_32bit = 1,
                           .useable = 1};
    long r;
    uint32_t a = 0, b = 0;
#ifdef __x86_64__
    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(243), "b"((uint32_t)(uintptr_t)&d)
                     : "memory", "r8", "r9", "r10", "r11");
#else
    r = syscall(SYS_set_thread_area, &d);
#endif
    if (r) {
        printf("no thread area: %ld\n", r);
        return;
    }
    uint32_t selector = d.entry_number << 3 | 3, limit = 0, kept;
    /* GS is free in 64-bit code, FS in 32-bit code. */
#ifdef __x86_64__
#define FREE "gs"
#else
#define FREE "fs"
#endif
    __asm__ volatile("mov %w4, %%" FREE "; mov %%" FREE ":0, %0; mov %%" FREE
                     ":4, %1; lsl %4, %2; mov %%" FREE ", %3"
                     : "=&r"(a), "=&r"(b), "=&r"(limit), "=&r"(kept)
                     : "r"(selector));
    usleep(1000); /* other tasks run, and it is still there */
    uint32_t later;
    __asm__ volatile("mov %%" FREE ":0, %0; xor %%ecx, %%ecx; mov %%ecx, %%" FREE
                     : "=r"(later)
                     :
                     : "ecx");
    printf("thread area: %x %x limit %x %d %x\n", a, b, limit, kept == selector, later);
}

#ifdef __x86_64__
static void vsyscall(void)
{
    for (int i = 0; i < 2; i++) {
        got_signal = 0;
        call.selector = FLAT_CODE;
        outer_sp = 0;
        uint64_t r = 0;
        /* A fault comes back through far_call_back, with the stack as it is here. */
        __asm__ volatile("lea -128(%%rsp), %%rsp; push %%rbx; push %%rbp; push %%r12; push %%r13; "
                         "push %%r14; push %%r15; "
                         "lea 1f(%%rip), %%rax; push %%rax; sub $48, %%rsp; mov %%rsp, outer_sp;"
                         "test %1, %1; jnz 2f; mov $0xffffffffff600400, %%rax; xor %%edi, %%edi; "
                         "call *%%rax; jmp 3f;"
                         "2: mov 0xffffffffff600000, %%al; 3: add $56, %%rsp; pop %%r15; pop "
                         "%%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx;"
                         "jmp 4f; 1: mov $0, %%eax; pop %%r15; pop %%r14; pop %%r13; pop %%r12; "
                         "pop %%rbp; pop %%rbx; 4: lea 128(%%rsp), %%rsp"
                         : "=&a"(r)
                         : "r"(i)
                         : "rcx", "rdi", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
        printf("vsyscall %s: signal %d trap %d\n", i ? "read" : "time", got_signal,
               got_signal ? got_trap : 0);
        if (!got_signal && !i)
            printf("vsyscall time near: %d\n", (int64_t)r - (int64_t)time(NULL) < 2);
    }
}
#endif

int main(void)
{
    uint8_t *low = mmap((void *)0x30000000, 0x10000, PROT_READ | PROT_WRITE | PROT_EXEC,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (low == MAP_FAILED)
        return 2;
    code = low;
    data = low + 0x2000;
    stack = low + 0x4000;
    stack_t other = {.ss_sp = malloc(0x10000), .ss_size = 0x10000};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_sigaction = handler,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    for (int sig = SIGILL; sig <= SIGSEGV; sig++)
        if (sig != SIGKILL)
            sigaction(sig, &action, NULL);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    segments();
    widths();
    thread_areas();
    ways();
#ifdef __x86_64__
    deep_stacks();
    vsyscall();
#endif
    return fflush(stdout) != 0;
}
