/*
 * debug-exit STATUS: writes STATUS (0 to 255) to the debug-exit port 0xf4, which ends the machine
 * with it. For the guest, statically linked without a C library; Debian's cloud kernel has no
 * /dev/port. Returns only when it fails: 1 bad usage, 2 not permitted, 3 there is no such device.
 */
#ifdef __i386__
enum { EXIT_GROUP = 252, IOPERM = 101 };
#define START "mov %esp, %eax\n  and $-16, %esp\n  sub $12, %esp\n  push %eax\n"
#else
enum { EXIT_GROUP = 231, IOPERM = 173 };
#define START "mov %rsp, %rdi\n  and $-16, %rsp\n"
#endif

static long syscall3(long n, long a, long b, long c)
{
    long r;
#ifdef __i386__
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory");
#else
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#endif
    return r;
}

static void quit(int status)
{
    syscall3(EXIT_GROUP, status, 0, 0);
    __builtin_unreachable();
}

/* Entered with the initial stack: argc, argv[0], argv[1], ... */
__attribute__((used)) void start(long *stack)
{
    unsigned status = 0;
    if (stack[0] != 2)
        quit(1);
    const char *p = (const char *)stack[2];
    if (!*p)
        quit(1);
    for (; *p; p++) {
        if (*p < '0' || *p > '9' || (status = status * 10 + (unsigned)(*p - '0')) > 255)
            quit(1);
    }
    if (syscall3(IOPERM, 0xf4, 1, 1))
        quit(2);
    __asm__ volatile("outb %0, $0xf4" : : "a"((unsigned char)status));
    quit(3);
}

__asm__(".globl _start\n_start:\n  " START "  call start\n");
