/*
 * The host's side of a program that runs in a guest (`reprise run`): this process' standard input
 * goes to it, what it prints comes here, signals and the size of the terminal are handed on. The
 * other end is the agent's port, which a recorder in another process has.
 */
#ifndef REPRISE_CMD_RUN_TALK_H
#define REPRISE_CMD_RUN_TALK_H

#include <sys/types.h>

#include "base/err.h"
#include "guest-agent/agent/protocol.h"

struct run_write;

/* How a program begins in a guest that runs its own system: nothing is of this host. */
struct run_there {
    const char *directory;
    const char *const *variables; /* NAME=VALUE; NULL at the end */
    u32 uid, gid;
    bool terminal; /* it gets one where ours are */
};

struct run_program {
    char **argv;                   /* the file and its arguments, NULL at the end */
    int socket;                    /* the agent's port; closed at the end */
    pid_t recorder;                /* to be told when the user gives up; not waited for here */
    struct agent_network network;  /* all zeros: it has none */
    const struct run_there *there; /* in a guest of its own system; NULL: as if it ran here */
    struct run_write *write;       /* what it writes goes there; NULL: nowhere */
};

enum run_result {
    RUN_ENDED,  /* *status: as waitpid() says it */
    RUN_FAILED, /* there was no program: *err, and *status an exit code */
    RUN_GONE,   /* the recorder, or what it runs, was gone before */
};

/* Until the program has ended, or there is no way to know. */
enum run_result run_talk(const struct run_program *p, int *status, struct err *err);

#endif
