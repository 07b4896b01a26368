/* See confine.h. Opens nothing itself; the paths are its callers' and those of the table below. */
#define _GNU_SOURCE /* unshare, memfd_create */
#include "host/confine.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "base/calls.h"
#include "base/file_io.h"

/* Programs may be scripts around others: these are everybody's. */
static const struct landlock_path everybody[] = {
    {.path = "/usr/bin", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/usr/sbin", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/usr/lib", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/usr/lib64", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/usr/libexec", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/usr/local/lib", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/bin", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/sbin", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/lib", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/lib64", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/nix/store", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/gnu/store", .may = LANDLOCK_EXECUTE, .optional = true},
    {.path = "/etc/ld.so.cache", .may = LANDLOCK_READ, .optional = true},
    {.path = "/dev/null", .may = LANDLOCK_READ | LANDLOCK_WRITE, .optional = true},
    {.path = "/dev/urandom", .may = LANDLOCK_READ, .optional = true},
};

/* What reading an image never takes: connections, other processes, other name spaces, the kernel's
 * rarer doors. io_uring makes system calls that a filter does not see. */
static const int forbidden[] = {
    SCMP_SYS(socket),
    SCMP_SYS(connect),
    SCMP_SYS(bind),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise),
    SCMP_SYS(kill),
    SCMP_SYS(tkill),
    SCMP_SYS(tgkill),
    SCMP_SYS(rt_sigqueueinfo),
    SCMP_SYS(rt_tgsigqueueinfo),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(kcmp),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(reboot),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(mq_open),
    SCMP_SYS(shmget),
    SCMP_SYS(msgget),
    SCMP_SYS(semget),
};

static int add_rules(scmp_filter_ctx filter)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(forbidden) && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), forbidden[i], 0);
    r = r ? r : calls_forbid_addresses(filter);
    r = r ? r : calls_forbid_signals(filter);
    /* Limits of others: one of no time at all ends them. */
    return r ? r
             : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(prlimit64), 1,
                                SCMP_A0(SCMP_CMP_NE, 0));
}

/* The filter as the kernel takes it, so that the child has only to hand it over. */
static int compile(struct confine *c, struct err *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int fd = memfd_create("filter", MFD_CLOEXEC);
    int r = !filter ? -ENOMEM : fd < 0 ? -errno : add_rules(filter);
    if (!r)
        r = seccomp_export_bpf(filter, fd);
    if (filter)
        seccomp_release(filter);
    off_t size = r || fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (!r && (size <= 0 || size / (off_t)sizeof(struct sock_filter) > BPF_MAXINSNS))
        r = -EINVAL;
    if (!r && !(c->filter = malloc((size_t)size)))
        r = -ENOMEM;
    if (!r && !file_read_at(fd, c->filter, (size_t)size, 0))
        r = -EIO;
    c->length = (u16)((size_t)size / sizeof(struct sock_filter));
    if (fd >= 0)
        close(fd);
    return r ? err_set(err, r, "cannot make a filter of system calls: %s", strerror(-r)) : 0;
}

int confine_prepare(struct confine *c, const char *program, const struct landlock_path *files,
                    size_t nfiles, struct err *err)
{
    memset(c, 0, sizeof(*c));
    if (nfiles + ARRAY_SIZE(everybody) + 1 > CONFINE_PATHS)
        return err_set(err, -E2BIG, "more than %zu files for one program",
                       CONFINE_PATHS - ARRAY_SIZE(everybody) - 1);
    memcpy(c->paths, everybody, sizeof(everybody));
    c->npaths = ARRAY_SIZE(everybody);
    c->paths[c->npaths++] = (struct landlock_path){.path = program, .may = LANDLOCK_EXECUTE};
    if (nfiles)
        memcpy(c->paths + c->npaths, files, nfiles * sizeof(*files));
    c->npaths += nfiles;
    int code = compile(c, err);
    if (code)
        confine_free(c);
    return code;
}

void confine_free(struct confine *c)
{
    free(c->filter);
    memset(c, 0, sizeof(*c));
}

int confine_enter(const struct confine *c)
{
    struct sock_fprog program = {.len = c->length, .filter = c->filter};
    /* A network with nobody in it, where that is allowed; without it there are still no sockets.
     * Root stays root: in a user name space of its own it could not read what others own. */
    if (unshare(CLONE_NEWNET | (geteuid() ? CLONE_NEWUSER : 0)))
        errno = 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -errno;
    int code = landlock_enter(c->paths, c->npaths);
    if (code && code != -ENOSYS)
        return code;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) ? -errno : 0;
}
