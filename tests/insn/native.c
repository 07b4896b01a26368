/*
 * The oracle: runs a case on the host CPU. A case is entered through rt_sigreturn with a frame of
 * ours, which loads every register, flags and the XSAVE image at once, and left through a signal:
 * the fault under test, or the INT3 that surrounds all code. The handler switches straight back to
 * the stack of native_run, so that a case costs one system call and one signal.
 *
 * The pages under test have fixed low addresses; code is written through a second mapping.
 */
#define _GNU_SOURCE
#include <asm/ldt.h>
#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include "tests/insn/insn.h"

/* Used by the assembly below; one native machine per process, as signals are. */
struct native_shared {
    u64 rsp;              /* 0: stack to return to */
    u64 host_fs, host_gs; /* 8, 16 */
    u64 case_fs, case_gs; /* 24, 32 */
    u64 out_fs, out_gs;   /* 40, 48 */
    u16 sel[6];           /* 56: ds, es, fs, gs, ss, - */
    u32 active;           /* 68 */
    u32 ticks;            /* 72 */
    u32 sig;              /* 76 */
    u64 case_flags;       /* 80: NT and ID, which sigreturn leaves as they are */
    u64 has_fsgsbase;     /* 88 */
    u16 in_sel[4];        /* 96: ds, es, fs, gs of a case that is not 64-bit code, */
    u32 segments;         /* 104: that this is one */
};
_Static_assert(offsetof(struct native_shared, active) == 68, "the assembly below");
_Static_assert(offsetof(struct native_shared, case_flags) == 80, "the assembly below");
_Static_assert(offsetof(struct native_shared, segments) == 104, "the assembly below");
struct native_shared native_shared __attribute__((visibility("hidden")));

ucontext_t *native_enter(const void *uc);
void native_handler(int sig, siginfo_t *info, void *uc);
void native_alarm(int sig, siginfo_t *info, void *uc);
void native_crash(int sig, siginfo_t *info, void *uc);

/* clang-format off */
__asm__(
    ".text\n"
    ".globl native_enter, native_handler, native_alarm\n"
    ".hidden native_shared\n"
    "native_enter:\n"
    "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "  lea native_shared(%rip), %rax\n"
    "  mov %rsp, (%rax)\n"
    "  movl $0, 72(%rax)\n"
    "  movl $1, 68(%rax)\n"
    "  mov 80(%rax), %rcx\n"
    "  cmpl $0, 104(%rax)\n"
    "  je 2f\n"
    "  mov 96(%rax), %ds; mov 98(%rax), %es; mov 100(%rax), %fs; mov 102(%rax), %gs\n"
    "  jmp 1f\n"
    "2: cmpq $0, 88(%rax)\n"
    "  je 1f\n"
    "  mov 24(%rax), %rdx; wrfsbase %rdx\n"
    "  mov 32(%rax), %rdx; wrgsbase %rdx\n"
    "1: mov %rdi, %rsp\n"
    "  mov $15, %eax\n" /* rt_sigreturn: the frame's ucontext is where RSP points */
    "  lea -128(%rsp), %rsp; push %rcx; popfq; lea 128(%rsp), %rsp\n"
    "  syscall\n"
    "  ud2\n"
    "native_alarm:\n"
    "  cmpl $0, native_shared+68(%rip)\n"
    "  je 1f\n"
    "  incl native_shared+72(%rip)\n"
    "  cmpl $3, native_shared+72(%rip)\n"
    "  jae native_handler\n"
    "1: ret\n"
    "native_handler:\n"
    "  push $0x202; popfq\n" /* AC, NT and ID of the case are still on */
    "  lea native_shared(%rip), %rax\n"
    "  cmpl $0, 68(%rax)\n"
    "  je native_crash\n"
    "  movl $0, 68(%rax)\n"
    "  mov %edi, 76(%rax)\n"
    "  mov %ds, %ecx; mov %cx, 56(%rax)\n"
    "  mov %es, %ecx; mov %cx, 58(%rax)\n"
    "  mov %fs, %ecx; mov %cx, 60(%rax)\n"
    "  mov %gs, %ecx; mov %cx, 62(%rax)\n"
    "  cmpq $0, 88(%rax)\n"
    "  je 1f\n"
    "  rdfsbase %rcx; mov %rcx, 40(%rax)\n"
    "  rdgsbase %rcx; mov %rcx, 48(%rax)\n"
    "  xor %ecx, %ecx\n"
    "  mov %ecx, %ds; mov %ecx, %es; mov %ecx, %fs; mov %ecx, %gs\n"
    "  mov 8(%rax), %rcx; wrfsbase %rcx\n"
    "  mov 16(%rax), %rcx; wrgsbase %rcx\n"
    "1: mov (%rax), %rsp\n"
    "  mov %rdx, %rax\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
    "  ret\n");
/* clang-format on */

static struct {
    u8 *code; /* writable alias of the code pages */
    u8 *altstack;
    u8 *block; /* scratch stack, ucontext, XSAVE image */
    u8 *frame; /* the ucontext */
    u8 *xsave;
    size_t xsize;
    u32 wide[3]; /* where it has components 5, 6 and 7; 0: nowhere */
} nat;

/* Handlers that somebody else installed after native_init: the engine's. They get the signals that
 * arrive while no case runs natively. */
static struct sigaction others[NSIG];

void native_crash(int sig, siginfo_t *info, void *uc)
{
    const ucontext_t *u = uc;
    greg_t rip = u->uc_mcontext.gregs[REG_RIP];

    if (others[sig].sa_flags & SA_SIGINFO) {
        others[sig].sa_sigaction(sig, info, uc);
        if (u->uc_mcontext.gregs[REG_RIP] != rip)
            return;
    }
    char text[160];
    int n =
        snprintf(text, sizeof text, "insn: the test itself got signal %d at rip %llx cr2 %llx\n",
                 sig, rip, u->uc_mcontext.gregs[REG_CR2]);
    text[MIN((size_t)n, sizeof text - 1)] = 0;

    (void)!write(2, text, (size_t)n);
    _exit(3);
}

static void *map_fixed(u64 address, size_t len, int prot, int fd, off_t off)
{
    int flags = MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    void *p = mmap((void *)address, len, prot, flags, fd, off);

    if (p != (void *)address) {
        fprintf(stderr, "insn: cannot map %zx bytes at %llx: %s\n", len,
                (unsigned long long)address, strerror(errno));
        return NULL;
    }
    return p;
}

static const int case_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

static void set_handler(int sig, void (*fn)(int, siginfo_t *, void *))
{
    struct sigaction sa = {.sa_sigaction = fn,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART};
    struct sigaction old;

    /* Nobody returns from the handler of a case: its frame is read where the next one would be
     * written, so the alarm must stay out until the next case's sigreturn lets it in again. */
    if (fn == native_handler)
        sigaddset(&sa.sa_mask, SIGALRM);
    sigaction(sig, &sa, &old);
    if ((old.sa_flags & SA_SIGINFO) && old.sa_sigaction != fn)
        others[sig] = old;
}

void native_signals(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(case_signals); i++)
        set_handler(case_signals[i], native_handler);
}

/* Takes one signal to learn what a frame looks like on this kernel and CPU. */
static void learn(int sig, siginfo_t *info, void *ctx)
{
    ucontext_t *uc = ctx;
    u8 *fp = (u8 *)uc->uc_mcontext.fpregs;
    u32 magic, ext;

    memcpy(&magic, fp + 464, 4);
    memcpy(&ext, fp + 468, 4);
    nat.xsize = magic == 0x46505853 ? ext : 512;
    for (unsigned i = 0; i < 3; i++) {
        u32 a = 0, b = 0, c = 0, d = 0;
        __cpuid_count(0xd, 5 + i, a, b, c, d);
        nat.wide[i] = a && b + a <= nat.xsize ? b : 0;
    }
    nat.block = aligned_alloc(64, 4096 + ((nat.xsize + 4095) & ~4095ul));
    nat.frame = nat.block + 1024;
    memcpy(nat.frame, uc, sizeof *uc);
    nat.xsave = nat.block + 4096;
    memcpy(nat.xsave, fp, nat.xsize);
    ((ucontext_t *)nat.frame)->uc_mcontext.fpregs = (void *)nat.xsave;
}

int native_init(void)
{
    struct itimerval tick = {{0, 300000}, {0, 300000}};
    size_t altsize = 256 * 1024;
    int fd = memfd_create("insn-code", 0);
    stack_t ss;

    if (fd < 0 || ftruncate(fd, CODE_SIZE + PAGE_SIZE) < 0)
        return -errno;
    nat.code = mmap(NULL, CODE_SIZE + PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!map_fixed(T_CODE, CODE_SIZE, PROT_READ | PROT_EXEC, fd, 0) ||
        !map_fixed(T_LAND, PAGE_SIZE, PROT_READ | PROT_EXEC, fd, CODE_SIZE))
        return -1;
    memset(nat.code, 0xcc, CODE_SIZE + PAGE_SIZE);
    for (unsigned i = 0; i <= CODE_PAGES; i++) /* present before the first case */
        (void)*(volatile u8 *)(i < CODE_PAGES ? T_CODE + i * PAGE_SIZE : T_LAND);
    close(fd);
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if ((DATA_RW | DATA_RO) >> i & 1)
            if (!map_fixed(T_DATA + i * PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE, -1, 0))
                return -1;

    nat.altstack = mmap(NULL, altsize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ss = (stack_t){.ss_sp = nat.altstack, .ss_size = altsize};
    if (sigaltstack(&ss, NULL) < 0)
        return -errno;
    memset(nat.altstack, 1, altsize);
    native_shared.has_fsgsbase = (getauxval(AT_HWCAP2) & 2) != 0;
    if (native_shared.has_fsgsbase) {
        __asm__("rdfsbase %0" : "=r"(native_shared.host_fs));
        __asm__("rdgsbase %0" : "=r"(native_shared.host_gs));
    }
    set_handler(SIGUSR1, learn);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_DFL);
    native_signals();
    set_handler(SIGALRM, native_alarm);
    setitimer(ITIMER_REAL, &tick, NULL);
    return 0;
}

int native_ldt(void)
{
    for (unsigned i = 0; i < LDT_SIZE; i++) {
        u64 raw = test_ldt[i];
        struct user_desc desc = {.entry_number = i,
                                 .base_addr = test_base(LDT_SEL(i)),
                                 .limit = (u32)((raw & 0xffff) | (raw >> 32 & 0xf0000)),
                                 .seg_32bit = raw >> 54 & 1,
                                 .contents = raw >> 42 & 3,
                                 .read_exec_only = !(raw >> 41 & 1),
                                 .limit_in_pages = raw >> 55 & 1};

        if (!native_shared.has_fsgsbase || syscall(SYS_modify_ldt, 0x11, &desc, sizeof desc))
            return -1;
    }
    return 0;
}

void native_fini(void)
{
    struct itimerval off = {{0, 0}, {0, 0}};

    setitimer(ITIMER_REAL, &off, NULL);
    free(nat.block);
}

void native_code(u64 offset, const u8 *bytes, size_t len)
{
    memcpy(nat.code + offset, bytes, MIN(len, CODE_SIZE - offset));
}

void native_seal(void)
{
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if (DATA_RO >> i & 1)
            mprotect((void *)(T_DATA + i * PAGE_SIZE), PAGE_SIZE, PROT_READ);
}

u8 *native_mem(void)
{
    return (u8 *)T_DATA;
}

static const size_t wide_size[] = {64, 512, 1024};

static const u8 greg_of[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};

void native_run(const struct cpu_state *st, struct outcome *out)
{
    ucontext_t *uc = (ucontext_t *)nat.frame;

    for (unsigned i = 0; i < 16; i++)
        uc->uc_mcontext.gregs[greg_of[i]] = (greg_t)st->gpr[i];
    uc->uc_mcontext.gregs[REG_RIP] = (greg_t)st->rip;
    uc->uc_mcontext.gregs[REG_EFL] = (greg_t)st->rflags;
    memcpy(nat.xsave, st->xsave, 464); /* the kernel's own words follow at 464 */
    if (nat.xsize > 512)
        memcpy(nat.xsave + 512, st->xsave + 512, MIN(nat.xsize - 512, XSAVE_SIZE - 512ul));
    for (unsigned i = 0; i < 3 && nat.wide[i]; i++) {
        const void *from[] = {st->mask, st->zmm_high, st->zmm_above};
        memcpy(nat.xsave + nat.wide[i], from[i], wide_size[i]);
    }
    native_shared.segments = st->sel[SEG_CS] != 0x33;
    for (unsigned i = 0; i < 4; i++)
        native_shared.in_sel[i] = st->sel[(const u8[]){SEG_DS, SEG_ES, SEG_FS, SEG_GS}[i]];
    uc->uc_mcontext.gregs[REG_CSGSFS] = (greg_t)((u64)st->sel[SEG_CS] | (u64)st->sel[SEG_SS] << 48);
    native_shared.case_fs = st->fs_base;
    native_shared.case_gs = st->gs_base;
    native_shared.case_flags = 0x202 | (st->rflags & (FL_NT | FL_ID));

    uc = native_enter(nat.frame);

    if (native_shared.sig == SIGALRM) {
        out->kind = OUT_HANG;
        return;
    }
    out->kind = OUT_EXCEPTION;
    out->vector = (u8)uc->uc_mcontext.gregs[REG_TRAPNO];
    out->err = (u32)uc->uc_mcontext.gregs[REG_ERR];
    out->cr2 = (u64)uc->uc_mcontext.gregs[REG_CR2];
    for (unsigned i = 0; i < 16; i++)
        out->st.gpr[i] = (u64)uc->uc_mcontext.gregs[greg_of[i]];
    out->st.rip = (u64)uc->uc_mcontext.gregs[REG_RIP];
    out->st.rflags = (u64)uc->uc_mcontext.gregs[REG_EFL];
    out->st.fs_base = native_shared.has_fsgsbase ? native_shared.out_fs : st->fs_base;
    out->st.gs_base = native_shared.has_fsgsbase ? native_shared.out_gs : st->gs_base;
    out->st.sel[SEG_ES] = native_shared.sel[1];
    out->st.sel[SEG_DS] = native_shared.sel[0];
    out->st.sel[SEG_FS] = native_shared.sel[2];
    out->st.sel[SEG_GS] = native_shared.sel[3];
    out->st.sel[SEG_CS] = (u16)uc->uc_mcontext.gregs[REG_CSGSFS];
    out->st.sel[SEG_SS] = (u16)(uc->uc_mcontext.gregs[REG_CSGSFS] >> 48);
    memcpy(out->st.xsave, uc->uc_mcontext.fpregs, nat.xsize > 512 ? XSAVE_SIZE : 512);
    for (unsigned i = 0; i < 3 && nat.wide[i]; i++) {
        void *to[] = {out->st.mask, out->st.zmm_high, out->st.zmm_above};
        memcpy(to[i], (u8 *)uc->uc_mcontext.fpregs + nat.wide[i], wide_size[i]);
    }
}
