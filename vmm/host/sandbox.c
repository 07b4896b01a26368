/* See sandbox.h. Opens nothing but the paths of the plan, O_PATH, through landlock.c. */
#define _GNU_SOURCE
#include "host/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/calls.h"
#include "host/landlock.h"

#define PATHS   8u
#define TMPFILE (O_TMPFILE & ~O_DIRECTORY)

/* The sanitizers start processes, and coverage writes files at the end. dev says what it died of.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(REPRISE_NO_SANDBOX)
#define LOCKS false
#else
#define LOCKS true
#endif
#ifdef REPRISE_SANDBOX_TRAP
#define DENIED SCMP_ACT_TRAP
#else
#define DENIED SCMP_ACT_KILL_PROCESS
#endif

/* One a process, as what it says is about the process. */
static struct {
    bool planned, entered;
    unsigned needs;
    struct landlock_path path[PATHS];
    unsigned npaths;
    struct outside_rules outside;
} plan;

void sandbox_plan(unsigned needs)
{
    plan.planned = true;
    plan.needs = needs;
}

void sandbox_plan_more(unsigned needs)
{
    plan.needs |= needs;
}

bool sandbox_planned(void)
{
    return plan.planned;
}

static void add_path(const char *path, unsigned may)
{
    for (unsigned i = 0; i < plan.npaths; i++)
        if (!strcmp(plan.path[i].path, path) && plan.path[i].may == may)
            return;
    char *copy = plan.planned && !plan.entered && plan.npaths < PATHS ? strdup(path) : NULL;
    if (copy)
        plan.path[plan.npaths++] =
            (struct landlock_path){.path = copy, .may = may, .optional = true};
}

void sandbox_read(const char *path)
{
    add_path(path, LANDLOCK_READ);
}

void sandbox_write(const char *path)
{
    plan.needs |= SANDBOX_WRITE;
    add_path(path, LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_CREATE);
}

struct outside_rules *sandbox_outside(void)
{
    return &plan.outside;
}

/* ---- system calls ---- */

static const int always[] = {
    /* what is open */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(preadv),
    SCMP_SYS(pwritev),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(fstat),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fallocate),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(sync_file_range),
    SCMP_SYS(flock),
    SCMP_SYS(getdents64),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(select),
    SCMP_SYS(pselect6),
    /* what is there; it tells no more of a file */
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    /* peers that are connected: the renderer, the display, the disks' server, gdb */
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    /* between us and ourselves */
    SCMP_SYS(pipe2),
    SCMP_SYS(eventfd2),
    SCMP_SYS(signalfd4),
    SCMP_SYS(memfd_create),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(mincore),
    SCMP_SYS(msync),
    /* threads, signals, time */
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(membarrier),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigpending),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(rt_sigsuspend),
    SCMP_SYS(pause),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(getrandom),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(gettid),
    SCMP_SYS(getpgrp),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getrusage),
    SCMP_SYS(getcpu),
    SCMP_SYS(getcwd),
    SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    SCMP_SYS(arch_prctl),
    /* children from before */
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* By path. They fail where the need or Landlock says no; nobody is ended for them. */
static const int opening[] = {
    SCMP_SYS(open),      SCMP_SYS(openat),     SCMP_SYS(openat2), SCMP_SYS(creat),
    SCMP_SYS(readlink),  SCMP_SYS(readlinkat), SCMP_SYS(mkdirat), SCMP_SYS(unlinkat),
    SCMP_SYS(unlink),    SCMP_SYS(rmdir),      SCMP_SYS(linkat),  SCMP_SYS(renameat),
    SCMP_SYS(renameat2), SCMP_SYS(rename),     SCMP_SYS(mkdir),
};

static const int writing[] = {
    SCMP_SYS(openat), SCMP_SYS(mkdirat),  SCMP_SYS(unlinkat),
    SCMP_SYS(linkat), SCMP_SYS(renameat), SCMP_SYS(renameat2),
    SCMP_SYS(unlink), SCMP_SYS(rename),   SCMP_SYS(rmdir),
};

/* They send signals to the process itself. */
static const int timing[] = {SCMP_SYS(timer_create), SCMP_SYS(timer_settime),
                             SCMP_SYS(timer_gettime), SCMP_SYS(timer_getoverrun),
                             SCMP_SYS(timer_delete)};

static int allow(scmp_filter_ctx f, const int *calls, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 0);
    return r;
}

/* Of terminals: what they are and how they are set; not what types into them. Of a network device
 * whether it is up. */
static int allow_ioctl(scmp_filter_ctx f, unsigned needs)
{
    static const unsigned long asking[] = {TCGETS,  TIOCGWINSZ, FIONREAD,
                                           FIONBIO, TIOCGPGRP,  SIOCGIFFLAGS};
    static const unsigned long setting[] = {TCSETS, TCSETSW, TCSETSF, TCFLSH};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(asking) && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_EQ, asking[i]));
    for (size_t i = 0; i < ARRAY_SIZE(setting) && !r && (needs & SANDBOX_TERMINAL); i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_EQ, setting[i]));
    /* KVM's letter, and perf's. */
    if (!r && (needs & SANDBOX_KVM))
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, 0xff00, 0xae00));
    if (!r && (needs & SANDBOX_KVM))
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, 0xff00, 0x2400));
    return r;
}

static int allow_memory(scmp_filter_ctx f, unsigned needs)
{
    static const int calls[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
    if (needs & SANDBOX_CODE)
        return allow(f, calls, ARRAY_SIZE(calls));
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(calls) && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, calls[i], 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

static int allow_self(scmp_filter_ctx f)
{
    static const int names[] = {PR_SET_NAME, PR_SET_VMA, PR_GET_NAME};
    scmp_datum_t self = (scmp_datum_t)getpid();
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)names[i]));
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 2,
                             SCMP_A0(SCMP_CMP_EQ, PR_SET_DUMPABLE), SCMP_A1(SCMP_CMP_EQ, 0));
    /* abort(), raise(). */
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, SCMP_A0(SCMP_CMP_EQ, self));
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(kill), 1, SCMP_A0(SCMP_CMP_EQ, self));
    /* Limits are asked for, not set. */
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, SCMP_A2(SCMP_CMP_EQ, 0));
    /* Threads, not processes. What clone3() is asked for lies in memory that a filter cannot see;
     * without it the C library falls back to clone(). */
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    return r;
}

/* fork(), but without the signal at the child's end; which has its own end with ours. */
static int allow_copies(scmp_filter_ctx f)
{
    int r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_EQ, 0));
    return r ? r
             : seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 2,
                                SCMP_A0(SCMP_CMP_EQ, PR_SET_PDEATHSIG),
                                SCMP_A1(SCMP_CMP_EQ, SIGKILL));
}

/* Files by name: where Landlock says which, all that the need is; else reading at most. */
static int allow_paths(scmp_filter_ctx f, unsigned needs)
{
    int r = 0;
    if (needs & SANDBOX_WRITE)
        r = allow(f, writing, ARRAY_SIZE(writing));
    else if (needs & SANDBOX_READ)
        r = seccomp_rule_add(
            f, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
            SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC | TMPFILE, O_RDONLY));
    for (size_t i = 0; i < ARRAY_SIZE(opening) && !r; i++) {
        bool allowed = opening[i] == SCMP_SYS(openat) && (needs & (SANDBOX_READ | SANDBOX_WRITE));
        for (size_t k = 0; k < ARRAY_SIZE(writing) && (needs & SANDBOX_WRITE); k++)
            allowed |= opening[i] == writing[k];
        if (!allowed)
            r = seccomp_rule_add(f, SCMP_ACT_ERRNO(EACCES), opening[i], 0);
    }
    /* openat() with other flags than those that are allowed for reading. */
    if (!r && (needs & SANDBOX_READ) && !(needs & SANDBOX_WRITE)) {
        static const unsigned flags[] = {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, TMPFILE};
        for (size_t i = 0; i < ARRAY_SIZE(flags) && !r; i++)
            r = seccomp_rule_add(f, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(openat), 1,
                                 SCMP_A2(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
    }
    return r;
}

/* The processor's counter: of this process, on cores of its kind, with a signal to it. */
static int allow_counter(scmp_filter_ctx f)
{
    const scmp_datum_t who[] = {0, (scmp_datum_t)getpid()};
    int r = calls_allow_own_signals(f);
    for (size_t i = 0; i < ARRAY_SIZE(who) && !r; i++) {
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(perf_event_open), 1,
                             SCMP_A1(SCMP_CMP_EQ, who[i]));
        if (!r)
            r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sched_setaffinity), 1,
                                 SCMP_A0(SCMP_CMP_EQ, who[i]));
    }
    return r;
}

static int load_filter(unsigned needs)
{
    static const int accepting[] = {SCMP_SYS(accept4)};
    scmp_filter_ctx f = seccomp_init(DENIED);
    int r = f ? allow(f, always, ARRAY_SIZE(always)) : -ENOMEM;
    r = r ? r : calls_allow_fcntl(f);
    r = r ? r : calls_allow_send(f);
    r = r ? r : calls_allow_pairs(f);
    r = r ? r : allow_ioctl(f, needs);
    r = r ? r : allow_memory(f, needs);
    r = r ? r : allow_self(f);
    r = r ? r : allow_paths(f, needs);
    if (!r && (needs & SANDBOX_COPIES))
        r = allow_copies(f);
    if (!r && (needs & SANDBOX_LISTEN))
        r = allow(f, accepting, ARRAY_SIZE(accepting));
    if (!r && (needs & SANDBOX_KVM))
        r = allow_counter(f);
    if (!r && (needs & (SANDBOX_KVM | SANDBOX_TIMER | SANDBOX_ALONE)))
        r = allow(f, timing, ARRAY_SIZE(timing));
    /* libgcrypt, below libvncserver, tells syslog of its self-tests at the first password. */
    if (!r && (needs & SANDBOX_ALONE))
        r = seccomp_rule_add(f, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 0);
    if (!r)
        r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!r)
        r = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree: some calls are frequent */
    if (!r)
        r = seccomp_load(f);
    if (f)
        seccomp_release(f);
    return r;
}

/* ---- the door ---- */

#ifdef REPRISE_SANDBOX_TRAP
static void on_denied(int sig, siginfo_t *info, void *context)
{
    char text[80];
    int n = snprintf(text, sizeof(text), "reprise: the sandbox has no system call %d\n",
                     info->si_syscall);
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(126);
    signal(sig, SIG_DFL);
    raise(sig);
}
#endif

/* Root is nothing special inside. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    syscall(SYS_capset, &head, none);
}

static int confine(struct err *err)
{
    struct landlock_path path[PATHS + 4];
    unsigned n = plan.npaths;
    memcpy(path, plan.path, n * sizeof(*path));
    /* The engine looks up which pages of the guest were touched. */
    if (plan.needs & (SANDBOX_CODE | SANDBOX_KVM))
        path[n++] = (struct landlock_path){
            .path = "/proc/self/pagemap", .may = LANDLOCK_READ, .optional = true};
    if (plan.needs & SANDBOX_KVM) {
        path[n++] = (struct landlock_path){.path = "/dev/kvm",
                                           .may = LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_DEVICE,
                                           .optional = true};
        path[n++] =
            (struct landlock_path){.path = "/sys/devices", .may = LANDLOCK_READ, .optional = true};
        path[n++] = (struct landlock_path){
            .path = "/proc/sys/kernel", .may = LANDLOCK_READ, .optional = true};
        plan.needs |= SANDBOX_WRITE; /* opens the device for writing */
    }
    int code = landlock_enter(path, n);
    if (code && code != -ENOSYS) {
        errno = -code;
        return err_errno(err, "cannot lock this process in");
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return err_errno(err, "cannot lock this process in");
    drop_capabilities();
#ifdef REPRISE_SANDBOX_TRAP
    struct sigaction sa = {.sa_sigaction = on_denied, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    sigaction(SIGSYS, &sa, NULL);
#endif
    code = load_filter(plan.needs);
    if (code == -EINVAL || code == -ENOSYS || code == -ECANCELED)
        fprintf(stderr, "reprise: this kernel has no system call filters: what a recording does "
                        "is not confined (see docs/security.md)\n");
    else if (code)
        return err_set(err, code, "cannot load the system call filter: %s", strerror(-code));
    return 0;
}

int sandbox_enter(struct err *err)
{
    if (!LOCKS || !plan.planned || plan.entered)
        return 0;
    plan.entered = true;
    tzset(); /* reads its file now */
    int code = plan.needs & SANDBOX_ALONE ? 0 : outside_start(&plan.outside, err);
    code = code ? code : confine(err);
    /* Those that run a machine still open files beneath /proc/self. */
    if (!code && !(plan.needs & (SANDBOX_CODE | SANDBOX_KVM)))
        sandbox_settle();
    return code;
}

bool sandbox_locks(void)
{
    return LOCKS;
}

void sandbox_settle(void)
{
#ifndef REPRISE_SANDBOX_TRAP
    if (plan.entered)
        prctl(PR_SET_DUMPABLE, 0);
#endif
}
