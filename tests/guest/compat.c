/*
 * A 32-bit program without a C library: what compatibility mode has and 64-bit code has not. It
 * prints what it finds; the same program on the host's CPU has to print the same.
 */
typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;

enum {
    SYS_EXIT = 1,
    SYS_FORK = 2,
    SYS_WRITE = 4,
    SYS_WAITPID = 7,
    SYS_MODIFY_LDT = 123,
    SYS_SIGACTION = 174,
    SYS_SET_THREAD_AREA = 243,
};

static u32 sysinfo; /* the kernel's own way in: SYSENTER, or what it is on this CPU */

static int system_call(u32 n, u32 a, u32 b, u32 c, u32 d)
{
    int r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
    return r;
}

static int fast_call(u32 n, u32 a, u32 b, u32 c)
{
    int r;
    __asm__ volatile("call *%[entry]"
                     : "=a"(r)
                     : "a"(n), "b"(a), "c"(b), "d"(c), [entry] "m"(sysinfo)
                     : "memory");
    return r;
}

static char line[128];
static u32 used;

static void text(const char *s)
{
    while (*s)
        line[used++] = *s++;
}

static void number(u32 v)
{
    line[used++] = ' ';
    for (int i = 28; i >= 0; i -= 4)
        line[used++] = "0123456789abcdef"[v >> i & 15];
}

static void end(void)
{
    line[used++] = '\n';
    fast_call(SYS_WRITE, 1, (u32)line, used);
    used = 0;
}

static void say(const char *what, u32 v)
{
    text(what);
    number(v);
    end();
}

/* ---- integers, x87, SSE ---- */

static void compute(void)
{
    u32 h = 1, sum = 0;
    for (u32 i = 0; i < 300000; i++) {
        h = h * 1664525 + 1013904223;
        h ^= h >> 7;
        sum += (h & 3) == 1 ? h % 1021 : h >> (i & 15);
    }
    say("integers", sum);
    volatile double x = 1, term = 1;
    for (int i = 1; i < 20; i++) {
        term /= i;
        x += term;
    }
    union {
        double d;
        u32 u[2];
    } bits = {x};
    text("x87");
    number(bits.u[1]);
    number(bits.u[0]);
    end();
    u32 v[4] = {1, 2, 3, 4}, w[4] = {0};
    __asm__ volatile(
        "movdqu %1, %%xmm0; pmuludq %%xmm0, %%xmm0; paddd %%xmm0, %%xmm0; movdqu %%xmm0, %0"
        : "=m"(w)
        : "m"(v)
        : "xmm0");
    text("sse");
    for (int i = 0; i < 4; i++)
        number(w[i]);
    end();
}

static void strings(void)
{
    static u8 a[3000], b[3000];
    for (u32 i = 0; i < sizeof a; i++)
        a[i] = (u8)(i * 7 + (i >> 5));
    u32 n = sizeof a, at;
    const void *from = a;
    void *to = b;
    __asm__ volatile("rep movsb" : "+c"(n), "+S"(from), "+D"(to) : : "memory");
    n = sizeof a;
    from = a;
    to = b;
    b[2222]++;
    __asm__ volatile("repe cmpsb" : "+c"(n), "+S"(from), "+D"(to) : : "memory");
    at = sizeof a - n;
    n = 100;
    to = b + 100;
    __asm__ volatile("rep stosl" : "+c"(n), "+D"(to) : "a"(0x01020304) : "memory");
    u32 sum = 0;
    for (u32 i = 0; i < sizeof b; i++)
        sum = sum * 31 + b[i];
    text("strings");
    number(at);
    number(sum);
    end();
}

static u32 adjusted(u32 kind, u32 ax, u32 carry)
{
    u32 flags;
#define ADJUST(insn)                                                                               \
    __asm__ volatile("bt $0, %2; " insn "; pushf; pop %1"                                          \
                     : "+a"(ax), "=r"(flags)                                                       \
                     : "r"(carry)                                                                  \
                     : "cc")
    switch (kind) {
    case 0: ADJUST("add $0x27, %%al; daa"); break;
    case 1: ADJUST("sub $0x38, %%al; das"); break;
    case 2: ADJUST("add $5, %%al; aaa"); break;
    case 3: ADJUST("sub $7, %%al; aas"); break;
    case 4: ADJUST("aam"); break;
    default: ADJUST("aad"); break;
    }
    return ax ^ (flags & (kind < 2 ? 0xd5 : kind < 4 ? 0x11 : 0xc4)) << 16;
}

static void decimal(void)
{
    for (u32 kind = 0; kind < 6; kind++) {
        u32 sum = 0;
        for (u32 ax = 0; ax < 0x10000; ax += 37)
            sum = sum * 33 + adjusted(kind, ax, ax & 1);
        say("decimal", sum);
    }
}

/* ---- faults and signals ---- */

struct action {
    void (*handler)(int, u32 *, u32 *);
    u32 flags;
    void (*restorer)(void);
    u32 mask[2];
};

void restorer(void);
__asm__("restorer: mov $173, %eax; int $0x80");

static volatile u32 signal_got, signal_address, skip_to;

/* siginfo: si_addr is word 3; ucontext: EIP is word 5 + 14. */
static void handler(int sig, u32 *info, u32 *context)
{
    signal_got = (u32)sig;
    signal_address = info[3];
    context[5 + 14] = skip_to;
}

#define FAULT(name, insns)                                                                         \
    do {                                                                                           \
        signal_got = signal_address = 0;                                                           \
        __asm__ volatile("movl $1f, %0; " insns "; 1:"                                             \
                         : "=m"(skip_to)                                                           \
                         :                                                                         \
                         : "eax", "ecx", "edx", "memory", "cc");                                   \
        text(name);                                                                                \
        number(signal_got);                                                                        \
        number(signal_address);                                                                    \
        end();                                                                                     \
    } while (0)

const u32 bounds[2] = {0, 4};

static void faults(void)
{
    struct action a = {
        handler, 0x4 /* SA_SIGINFO */ | 0x04000000 /* SA_RESTORER */, restorer, {0, 0}};
    for (u32 sig = 4; sig <= 11; sig++)
        if (sig != 9)
            system_call(SYS_SIGACTION, sig, (u32)&a, 0, 8);
    FAULT("null", "movl $1, 16");
    FAULT("divide", "xor %%eax, %%eax; xor %%edx, %%edx; divl %%eax");
    FAULT("into", "movb $0x7f, %%al; addb $1, %%al; into");
    FAULT("bound", "movl $5, %%eax; bound %%eax, bounds");
    FAULT("privileged", "hlt");
    FAULT("undefined", "ud2");
    FAULT("selector", "movl $0x1234, %%eax; movl %%eax, %%es");
    FAULT("ss null", "xor %%eax, %%eax; movl %%eax, %%ss");
}

/* ---- segments ---- */

struct user_desc {
    u32 entry, base, limit;
    u32 flags; /* seg_32bit, contents:2, read_exec_only, limit_in_pages, seg_not_present, useable */
};

static u32 thread[16] = {0x11, 0x22, 0x33};

static void thread_area(void)
{
    struct user_desc d = {(u32)-1, (u32)&thread[2], 0xfffff, 0x51};
    u32 a, b;
    if (system_call(SYS_SET_THREAD_AREA, (u32)&d, 0, 0, 0)) {
        text("no thread area");
        number((u32)system_call(SYS_SET_THREAD_AREA, (u32)&d, 0, 0, 0));
        end();
        return;
    }
    __asm__ volatile("mov %w2, %%gs; mov %%gs:0, %0; mov %%gs:-4, %1"
                     : "=&r"(a), "=&r"(b)
                     : "r"(d.entry * 8 + 3));
    text("thread");
    number(a);
    number(b);
    end();
}

static u8 window[4096];

static void ldt(void)
{
    struct user_desc limited = {1, (u32)window, 99, 0x41};
    struct user_desc down = {2, (u32)window, 999, 0x41 | 1 << 1};
    if (system_call(SYS_MODIFY_LDT, 0x11, (u32)&limited, sizeof limited, 0) ||
        system_call(SYS_MODIFY_LDT, 0x11, (u32)&down, sizeof down, 0)) {
        text("no LDT");
        end();
        return;
    }
    FAULT("in limit", "mov $0x0f, %%eax; mov %%ax, %%fs; movb $1, %%fs:99");
    FAULT("above limit", "mov $0x0f, %%eax; mov %%ax, %%fs; movw $1, %%fs:99");
    FAULT("expand-down", "mov $0x17, %%eax; mov %%ax, %%fs; movb $1, %%fs:1000");
    FAULT("below it", "mov $0x17, %%eax; mov %%ax, %%fs; movb $1, %%fs:999");
    FAULT("its limit", "mov $0x0f, %%eax; lsl %%eax, %%ecx; cmp $99, %%ecx; je 1f; ud2");
    say("window", (u32)window[99] << 8 | window[1000]);
}

/* Code of 64 bits, and back. */
static void far_calls(void)
{
    u32 r, high;
    __asm__ volatile("mov $0x12345678, %%eax; lcall $0x33, $1f; jmp 2f; "
                     /* shl rax, 20; add rax, 1; mov rdx, rax; shr rdx, 32; retf */
                     "1: .byte 0x48,0xc1,0xe0,0x14, 0x48,0xff,0xc0, 0x48,0x89,0xc2, "
                     "0x48,0xc1,0xea,0x20, 0xcb; 2:"
                     : "=a"(r), "=d"(high)
                     :
                     : "memory", "cc");
    text("64 bits");
    number(high);
    number(r);
    end();
}

static void processes(void)
{
    u32 status = 0;
    int pid = system_call(SYS_FORK, 0, 0, 0, 0);
    if (!pid)
        system_call(SYS_EXIT, 42, 0, 0, 0);
    system_call(SYS_WAITPID, (u32)pid, (u32)&status, 0, 0);
    say("child", status);
}

static u32 pushed(void)
{
    u32 a, f;
    __asm__ volatile(
        "pusha; movl $7, 28(%%esp); push %%ds; pop %%ecx; popa; mov %%eax, %0; pushw $0x1234; "
        "popw %%ax; movzwl %%ax, %1"
        : "=&r"(a), "=&r"(f)
        :
        : "eax", "memory");
    return a << 16 | f;
}

void start(u32 *stack)
{
    u32 *p = stack + 1 + stack[0] + 1;
    while (*p++)
        ;
    for (; p[0]; p += 2)
        if (p[0] == 32)
            sysinfo = p[1];
    say("pusha", pushed());
    compute();
    strings();
    decimal();
    faults();
    thread_area();
    ldt();
    far_calls();
    processes();
    system_call(SYS_EXIT, 0, 0, 0, 0);
}
__asm__(".globl _start; _start: mov %esp, %eax; push %eax; call start");
