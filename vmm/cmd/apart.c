/* See apart.h. */
#define _GNU_SOURCE /* memfd_create, pipe2 */
#include "cmd/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "host/outside.h"
#include "host/sandbox.h"

static int count(const char *const *argv)
{
    int n = 0;
    while (argv[n])
        n++;
    return n;
}

/* 0 in the new process. */
static pid_t start(bool keys)
{
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    sigset_t none;
    if (child)
        return child;
    if ((keys && setpgid(0, 0)) || prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
        _exit(EX_ERROR);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return 0;
}

static void only_speak(int voice)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere < 0 || dup2(nowhere, STDIN_FILENO) < 0 || dup2(nowhere, STDOUT_FILENO) < 0 ||
        dup2(voice, STDERR_FILENO) < 0)
        _exit(EX_ERROR);
    close(voice);
}

pid_t apart_record(const char *const *argv, const struct apart_ends *ends)
{
    pid_t child = start(ends->keys);
    if (child)
        return child;
    if (ends->voice >= 0)
        only_speak(ends->voice);
    signal(SIGPIPE, SIG_IGN);
    sandbox_plan(SANDBOX_CODE | SANDBOX_LISTEN | SANDBOX_TERMINAL);
    int code = record_with_agent(count(argv), (char **)(uintptr_t)argv, ends->agent);
    outside_end(); /* or it removes what the caller has begun there since */
    _exit(code);
}

int apart_record_quietly(const char *const *argv, bool keys, const char *rec)
{
    const struct apart_ends ends = {
        .agent = -1, .voice = memfd_create("said", MFD_CLOEXEC), .keys = keys};
    pid_t child = ends.voice < 0 ? -1 : apart_record(argv, &ends);
    int code = child < 0 ? -1 : apart_wait(child);
    if (rec ? access(rec, F_OK) : code)
        apart_repeat(ends.voice);
    if (ends.voice >= 0)
        close(ends.voice);
    return code;
}

int apart_replay(const char *const *argv, int out, int errors)
{
    pid_t child = start(false);
    if (child)
        return child < 0 ? -1 : apart_wait(child);
    if ((out >= 0 && dup2(out, STDOUT_FILENO) < 0) ||
        (errors >= 0 && dup2(errors, STDERR_FILENO) < 0))
        _exit(EX_ERROR);
    sandbox_plan(SANDBOX_READ | SANDBOX_CODE);
    int code = cmd_replay(count(argv), (char **)(uintptr_t)argv);
    fflush(stdout);
    outside_end();
    _exit(code);
}

int apart_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void apart_repeat(int voice)
{
    char said[4096];
    u64 at = 0;
    for (ssize_t n; (n = pread(voice, said, sizeof(said), (off_t)at)) > 0; at += (u64)n)
        if (!file_write_on(STDERR_FILENO, said, (size_t)n))
            return;
}

int apart_ask(void (*find)(const void *question, void *answer), const void *question, void *answer,
              size_t size, const char *what, struct err *err)
{
    int pair[2];
    memset(answer, 0, size);
    fflush(NULL);
    pid_t child = pipe2(pair, O_CLOEXEC) ? -1 : fork();
    if (!child) {
        find(question, answer);
        bool told = file_write_on(pair[1], answer, size);
        outside_end();
        _exit(told ? 0 : 1);
    }
    if (child < 0)
        return err_errno(err, "cannot start a process");
    close(pair[1]);
    bool read = file_read_on(pair[0], answer, size);
    close(pair[0]);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    if (!read)
        return err_set(err, -EIO, "%s ended too early", what);
    struct apart_answer *said = answer; /* by a process that read what others wrote */
    said->err.text[sizeof(said->err.text) - 1] = 0;
    text_clean(said->err.text);
    *err = said->code ? said->err : (struct err){0};
    return said->code;
}
