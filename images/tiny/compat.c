/*
 * Compatibility mode: 32-bit code of ring 3 and ring 0 under this 64-bit kernel. Loops, calls,
 * strings, flags, segments with limits, all ways in and out, faults; what it leaves in `data` is
 * what C says.
 */
#include "tiny.h"

#define WINDOW   0x80000000u /* 2 MiB of us, for ring 3 */
#define SEL_32   0x23
#define SEL_32_0 0x08

volatile u32 data[256] __attribute__((aligned(4096)));
static u8 stack[4096] __attribute__((aligned(16)));
static volatile u64 fault_vector, fault_err, fault_rip, fault_cs, entered, entered_rsp;

#define IN_WINDOW(p) ((u32)(WINDOW + ((u64)(p)&0x1fffff)))

extern const char sum32[], strings32[], sysenter32[], loads32[], writes32[], far32[], into32[],
    bound32[], null32[], legacy32[], ring0_32[], twice32[], high32[], codes32[],
    down32[], up32[];
extern const char compat_sysenter[], to_compat[];

/* void to_compat(u64 rip, u64 rsp, u64 flags, u64 cs, u64 data, u64 sel): until INT VEC_BACK; ESI
 * has `data`, EDI `sel`. */
__asm__(
    ".text\n"
    "to_compat:\n"
    "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "  mov %rsp, user_return_sp(%rip)\n"
    "  mov %rsp, tss + 4(%rip)\n"
    "  mov %rdi, %rax\n"
    "  mov $0x2b, %edi; mov %edi, %ds; mov %edi, %es\n"
    "  test $3, %cl; jnz 1f; mov $0x18, %edi\n"
    "1: push %rdi; push %rsi; push %rdx; push %rcx; push %rax\n"
    "  mov %r8, %rsi; mov %r9, %rdi\n"
    "  mov $0xffffffff87654321, %rbx; mov $0x123456789a, %r8; xor %ebp, %ebp\n"
    "  iretq\n"
    "compat_sysenter:\n"
    "  mov %rsp, entered_rsp(%rip)\n"
    "  incq entered(%rip)\n"
    "  jmp user_back\n"
    ".code32\n"
    "sum32:\n"
    "  mov $5000, %ecx; xor %eax, %eax\n"
    "1: add %ecx, %eax; rol $3, %eax; push %eax; call 2f; pop %edx; xor %edx, (%esi)\n"
    "  dec %ecx; jnz 1b\n"
    "  mov %eax, 4(%esi); mov %ebx, 8(%esi)\n"
    "  mov $50, %ecx\n"
    "3: addl $3, 12(%esi); loop 3b\n"
    "  int $0x81\n"
    "2: incl 16(%esi); ret\n"
    "strings32:\n"
    "  lea 1024-16(%esi), %edi; mov $0x01020304, %eax; mov $4, %ecx; rep stosl\n"
    "  lea 512(%esi), %edi; mov $200, %ecx; mov $7, %al; rep stosb\n"
    "  lea 512(%esi), %edi; mov $300, %ecx; repe scasb\n"
    "  mov %ecx, (%esi); pushf; popl 4(%esi); int $0x81\n"
    "sysenter32:\n"
    "  sysenter\n"
    "loads32:\n"
    "  mov %edi, %fs; movl $1, (%esi); movb %fs:0xff, %al; movl $2, (%esi)\n"
    "  movb %fs:0x100, %al; movl $3, (%esi); int $0x81\n"
    "writes32:\n"
    "  mov %edi, %es; movl $4, (%esi); movl $5, %es:0; int $0x81\n"
    "far32:\n"
    "  mov %esp, (%esi); push $0x33; call 1f; 1: addl $(2f - 1b), (%esp); lret\n"
    ".code64\n"
    "2: mov %rbx, %rax; shr $32, %rax; mov %eax, 4(%rsi); mov %r8, 8(%rsi)\n"
    "  push $0x23; call 3f; 3: addq $(4f - 3b), (%rsp); lretq\n"
    ".code32\n"
    "4: mov %esp, 16(%esi); mov $9, %ebx; mov %cs, 20(%esi); int $0x81\n"
    "into32:\n"
    "  mov $0x7f, %al; inc %al; into; int $0x81\n"
    "bound32:\n"
    "  movl $1, 8(%esi); movl $9, 12(%esi); mov $9, %eax; bound %eax, 8(%esi); movl $7, (%esi)\n"
    "  inc %eax; bound %eax, 8(%esi); int $0x81\n"
    "null32:\n"
    "  xor %eax, %eax; mov %eax, %ds; mov (%esi), %eax; int $0x81\n"
    "legacy32:\n"
    "  mov $0x38, %al; add $0x45, %al; daa; mov %al, (%esi)\n"
    "  mov $0x105, %ax; aaa; aad; mov %ax, 4(%esi); aam $7; mov %ax, 8(%esi)\n"
    "  pusha; mov %esp, %eax; movl $77, 16(%eax); popa; mov %ebx, 12(%esi)\n"
    "  push %ds; popl 16(%esi); mov $0x12345678, %eax; lea (%bx,%si), %cx; mov %cx, 20(%esi)\n"
    "  stc; .byte 0xd6; mov %al, 24(%esi); int $0x81\n"
    "ring0_32:\n"
    "  mov %cr0, %eax; mov %eax, (%esi); cli; pushf; popl 4(%esi); mov $3, %ecx\n"
    "1: add %ecx, 8(%esi); loop 1b; int $0x81\n"
    "twice32:\n" /* inc %rax, or dec %eax; inc %eax */
    "  mov $7, %eax; .byte 0x48, 0xff, 0xc0; mov %eax, (%esi); int $0x81\n"
    "codes32:\n"
    "  lea 64(%esi), %edi; mov $8, %ecx; mov (%esi), %eax; movl $6, (%esi)\n"
    "  rep movsl %cs:(%esi), %es:(%edi); int $0x81\n"
    ".code64\n"
    "high32:\n"
    "  mov %rdi, %rsp; push $1; push $0x23; call 1f; 1: addq $(2f - 1b), (%rsp)\n"
    "  mov (%rsp), %eax; mov %rax, (%rsp); lretq\n"
    ".code32\n"
    "2: movl $1, (%esi); push $2; movl $3, (%esi); int $0x81\n"
    "up32:\n"
    "  sub $512, %esp; mov %edi, %ss; call 1f; 1: pop %eax; add $(2f - 1b), %eax; mov %eax, 32(%esi)\n"
    "  movw $0x33, 36(%esi); mov %esp, 12(%esi); lcall *32(%esi)\n"
    "3: ud2\n"
    ".code64\n"
    "2: mov (%rsp), %rax; mov %rax, (%rsi); mov %rsp, 16(%rsi)\n"
    "  lea 3b(%rip), %rax; mov %eax, 8(%rsi); int $0x81\n"
    "down32:\n"
    "  mov $3, %eax; shl $32, %rax; add %rax, %rsp; lea 2f(%rip), %rax; mov %eax, 32(%rsi)\n"
    "  movw $0x23, 36(%rsi); mov %esp, 12(%rsi); lea 3f(%rip), %rax; mov %eax, 8(%rsi)\n"
    "  mov %rdi, %rax; test %rax, %rax; cmovnz %rax, %rsp; lcall *32(%rsi)\n"
    "3: ud2\n"
    ".code32\n"
    "2: mov %esp, 16(%esi); pop %eax; mov %eax, (%esi); pop %eax; mov %eax, 4(%esi); int $0x81\n"
    ".code64\n");

void to_compat_(u64 rip, u64 rsp, u64 flags, u64 cs, u64 data, u64 sel) __asm__("to_compat");

static bool on_fault(struct frame *f)
{
    if (f->cs == SEL_KCODE)
        return false;
    fault_vector = f->vector;
    fault_err = f->err;
    fault_rip = f->rip;
    fault_cs = f->cs;
    __asm__ volatile("jmp user_back");
    return true;
}

static void run(const char *code, u64 cs, u64 sel)
{
    fault_vector = ~0ull;
    memset((void *)data, 0, sizeof data);
    to_compat_(IN_WINDOW(code), IN_WINDOW(stack + sizeof stack), 2, cs, IN_WINDOW(data), sel);
    __asm__ volatile("mov %0, %%ds; mov %0, %%es" : : "r"(SEL_KDATA));
}

static void faults(const char *code, u64 sel, u64 vector, u64 err, const char *name)
{
    run(code, SEL_32, sel);
    check_eq(fault_vector, vector, name);
    check_eq(fault_err, err, "its error code");
    check_eq(fault_cs, SEL_32, "its CS");
    check(fault_rip - IN_WINDOW(code) < 64, "its EIP");
}

static void sums(void)
{
    u32 a = 0, x = 0;

    run(sum32, SEL_32, 0);
    for (u32 i = 5000; i; i--) {
        a += i;
        a = a << 3 | a >> 29;
        x ^= a;
    }
    check_eq(fault_vector, ~0ull, "32-bit code of ring 3");
    check_eq(data[0], x, "what it pushed and popped");
    check_eq(data[1], a, "its sum");
    check_eq(data[2], 0x87654321, "EBX");
    check_eq(data[3], 150, "LOOP by ECX");
    check_eq(data[4], 5000, "its calls");
    run(strings32, SEL_32, 0);
    check_eq(data[0], 99, "REPE SCASB");
    check_eq(data[1] & 0x8d5, 0, "its flags");
    check_eq(data[255], 0x01020304, "REP STOSL");
    check_eq(data[128 + 49], 0x07070707, "REP STOSB");
}

static void segments(void)
{
    /* A byte-granular segment of 256 bytes, and one that may be read only. */
    gdt[SEL_FREE / 8] = 0x0040f20000000000 | 0xff | (u64)(IN_WINDOW(data) & 0xffffff) << 16 |
                        (u64)(IN_WINDOW(data) >> 24) << 56;
    faults(loads32, SEL_FREE | 3, 13, 0, "a load over a segment's limit");
    check_eq(data[0], 2, "and the one below it");
    gdt[SEL_FREE / 8] = (gdt[SEL_FREE / 8] & ~(0xfull << 40)) | 0ull << 40;
    faults(writes32, SEL_FREE | 3, 13, 0, "a store into a read-only segment");
    check_eq(data[0], 4, "its selector was loaded");
    faults(null32, 0, 13, 0, "a load by a null selector");
    faults(loads32, SEL_ABSENT, 13, SEL_ABSENT, "a selector of ring 0");
    /* Code that may not be read, though all of memory lies in it. */
    gdt[SEL_FREE / 8] = 0x00cff9000000ffff;
    run(codes32, SEL_FREE | 3, 0);
    check_eq(fault_vector, 13, "a string in code that may not be read");
    check_eq(data[0], 6, "its bytes");
    gdt[SEL_FREE / 8] = 0;
}

static void transfers(void)
{
    run(far32, SEL_32, 0);
    check_eq(fault_vector, ~0ull, "64-bit code and back");
    check_eq(data[1], 0xffffffff, "the upper half of RBX stays");
    check_eq(data[2], 0x3456789a, "R8 stays");
    check_eq(data[4], data[0], "the stack");
    check_eq((u16)data[5], SEL_32, "CS");
    for (unsigned i = 0; i < 3; i++) {
        run(twice32, SEL_32, 0);
        check_eq(data[0], 7, "the same bytes as 32-bit code");
        run(twice32, SEL_UCODE, 0);
        check_eq(data[0], 8, "and as 64-bit code");
    }
    /* A stack beyond 4 GiB, which 64-bit code has just used: its lower half is an address of ring
     * 0. */
    run(high32, SEL_UCODE, USER(stack + sizeof stack));
    check_eq(fault_vector, 14, "ESP alone is the stack's address");
    check_eq(READ_REG(cr2), (u32)USER(stack + sizeof stack) - 12, "CR2");
    check_eq(data[0], 1, "before the push");
    wrmsr(0x174, SEL_KCODE);
    wrmsr(0x175, (u64)stack + 2048);
    wrmsr(0x176, (u64)compat_sysenter);
    entered = 0;
    run(sysenter32, SEL_32, 0);
    check_eq(entered, 1, "SYSENTER from 32-bit code");
    check_eq(entered_rsp, (u64)stack + 2048, "its RSP");
    wrmsr(0x174, 0);
    faults(into32, 0, 4, 0, "INTO");
    faults(bound32, 0, 5, 0, "BOUND");
    check_eq(data[0], 7, "within bounds");
    run(ring0_32, SEL_32_0, 0);
    check_eq(data[0], (u32)READ_REG(cr0), "32-bit code of ring 0 reads CR0");
    check_eq(data[1] & 0x202, 2, "its flags");
    check_eq(data[2], 6, "its loop");
}

/* What `code` says of its far call: where it came from, and whose stack was pushed to. */
static void called(const char *code, u64 cs, u64 sel, u32 from)
{
    run(code, cs, sel);
    check_eq(fault_vector, ~0ull, "a far call to code of another size");
    check_eq(data[0], data[2], "its return address, where the new code looks for it");
    check_eq((u16)data[1], from, "and CS");
    check_eq(data[4], data[3] - 8, "its stack pointer");
    check_eq(data[5], 0, "and its upper half");
}

/* The new code's stack: 64-bit code knows no base, other code no upper half of RSP. */
static void far_calls(void)
{
    called(down32, SEL_UCODE, 0, SEL_UCODE);
    run(down32, SEL_UCODE, USER(stack + sizeof stack));
    INEXACT({ /* it pushes as ring 0 */
        check_eq(fault_vector, 14, "a far call whose stack is of ring 0 in the new mode");
        check_eq(READ_REG(cr2), (u32)USER(stack + sizeof stack) - 4, "CR2");
        check_eq(fault_cs, SEL_UCODE, "its CS: it has not begun");
    });
    gdt[SEL_FREE / 8] = 0x00cff3000100ffff; /* base 0x100 */
    INEXACT(called(up32, SEL_32, SEL_FREE | 3, SEL_32));
    gdt[SEL_FREE / 8] = 0;
}

static void legacy(void)
{
    run(legacy32, SEL_32, 0);
    check_eq(fault_vector, ~0ull, "what 64-bit code does not have");
    check_eq((u8)data[0], 0x83, "DAA");
    check_eq((u16)data[1], 31, "AAD");
    check_eq((u16)data[2], 0x403, "AAM");
    check_eq(data[3], 77, "PUSHA, POPA");
    check_eq((u16)data[4], 0x2b, "PUSH DS");
    check_eq((u16)data[5], (u16)(77 + IN_WINDOW(data)), "an address of 16 bits");
    check_eq((u8)data[6], 0xff, "SALC");
}

void guest_main(void)
{
    static const u8 vectors[] = {4, 5, 6, 13, 14};

    for (unsigned i = 0; i < COUNT(vectors); i++)
        set_handler(vectors[i], on_fault);
    pdpt[WINDOW >> 30] |= PT_U;
    *pt_entry(WINDOW, 2) = ((u64)data & ~0x1fffffull) | PT_P | PT_W | PT_U | PT_PS;
    invlpg(WINDOW);
    sums();
    INEXACT(segments()); /* it looks at no limit and no type */
    transfers();
    far_calls();
    legacy();
    for (unsigned i = 0; i < 200; i++)
        run(sum32, SEL_32, 0);
    exit_guest(0);
}
