/* See pack.h. */
#define _GNU_SOURCE /* asprintf */
#include "cmd/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "replay/recording.h"

#define BESIDE ".recording" /* what the directory is called after the file */

bool packed_name(const char *output)
{
    size_t n = strlen(output), end = sizeof(PACKED_END) - 1;
    return n > end && !strcmp(output + n - end, PACKED_END);
}

/* Until the child has ended, signals are handed on to it. Its status, or -1. */
static int await(pid_t child, const sigset_t *handed_on)
{
    int status = 0, sig;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return status;
        if (ended < 0 && errno != EINTR)
            return -1;
        if (!sigwait(handed_on, &sig) && sig != SIGCHLD)
            kill(child, sig);
    }
}

/* In a process of its own, which may lock itself in. Its status, or -1. What a terminal sends it
 * sends to that one, too. */
static int apart(int (*run)(void *opaque, const char *dir), void *opaque, const char *dir)
{
    static const int on[] = {SIGCHLD, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t handed_on, before;
    sigemptyset(&handed_on);
    for (size_t i = 0; i < ARRAY_SIZE(on); i++)
        sigaddset(&handed_on, on[i]);
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &handed_on, &before);
    pid_t child = fork();
    if (!child) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        int code = run(opaque, dir);
        if (fflush(stdout) && code == EX_FINE)
            code = EX_ERROR;
        outside_end();
        _exit(code);
    }
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    int status = child < 0 ? -1 : await(child, &handed_on);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

struct packing {
    const char *output;
    bool force;
};

static int pack(void *opaque, const char *dir)
{
    const struct packing *p = opaque;
    const char *argv[7] = {"reprise pack", "-o", p->output};
    int argc = 3;
    if (p->force)
        argv[argc++] = "--force";
    argv[argc++] = "--";
    argv[argc++] = dir;
    /* Its result is the recording's, which has been told. */
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0)
        return EX_ERROR;
    close(nowhere);
    sandbox_plan(SANDBOX_READ | SANDBOX_CODE);
    return cmd_pack(argc, (char **)(uintptr_t)argv);
}

/* Before anything is recorded. */
static int check_places(const char *output, const char *dir, const bool *force, struct err *err)
{
    struct stat st;
    if (!lstat(output, &st) && (!force || !*force || !S_ISREG(st.st_mode)))
        return err_set(err, -EEXIST, "%s exists already%s", output,
                       force && S_ISREG(st.st_mode) ? "; --force replaces it" : "");
    if (!lstat(dir, &st))
        return err_set(err, -EEXIST,
                       "%s exists: a recording that was not packed? `reprise pack` packs it", dir);
    return 0;
}

int packed_record(const char *output, const bool *force,
                  int (*record)(void *opaque, const char *dir), void *opaque, int failed)
{
    struct err err = {0};
    struct packing packing = {output, force && *force};
    char *dir;
    if (asprintf(&dir, "%s" BESIDE, output) < 0)
        return cmd_fail((err_set(&err, -ENOMEM, "no memory"), &err)), failed;
    int code = check_places(output, dir, force, &err);
    if (code) {
        free(dir);
        return cmd_fail(&err), failed;
    }
    int status = apart(record, opaque, dir);
    bool ended = status >= 0 && WIFEXITED(status), there = !access(dir, F_OK);
    int result = ended ? WEXITSTATUS(status) : failed;
    if (!ended)
        fprintf(stderr, "reprise: the recorder ended too early%s%s\n",
                there ? "; what it has is in " : "", there ? dir : "");
    if (ended && there) {
        int packed = apart(pack, &packing, dir);
        int did = packed >= 0 && WIFEXITED(packed) ? WEXITSTATUS(packed) : EX_ERROR;
        if (did != EX_FINE && did != EX_DAMAGE) {
            fprintf(stderr, "reprise: not packed; the recording is %s, `reprise pack` packs it\n",
                    dir);
            if (result != EX_FINE && result != failed)
                fprintf(stderr, "reprise: without that the exit code were %d\n", result);
            result = failed;
        } else if (recording_remove(dir, &err)) {
            fprintf(stderr, "reprise: packed, and %s stays: %s\n", dir, err.text);
        }
    }
    free(dir);
    return result;
}
