/*
 * The process locks itself in: a recording is somebody else's file, and what it makes of us must
 * reach nothing of the user's. A command first says what it will still need (sandbox_plan and
 * below), opens what the user named, and sandbox_enter() closes the door: in build_machine() once
 * the disks are open and before anything of the kernel is read, or by the command itself.
 *
 * Landlock, where the kernel has it, says which paths can be opened; seccomp which system calls
 * there are: no socket, connect, execve, fork, ptrace, kill. Anything else ends the process, but
 * for opening files, which fails (the C library looks for files of its own at odd times). What has
 * to be done outside later, outside.h does. docs/security.md has the whole of it.
 */
#ifndef REPRISE_HOST_SANDBOX_H
#define REPRISE_HOST_SANDBOX_H

#include "base/err.h"
#include "host/outside.h"

enum sandbox_need {
    SANDBOX_READ = 1,     /* opens files of the recordings later (checkpoints, marks, gpu.log) */
    SANDBOX_WRITE = 2,    /* makes files in the directory to write to */
    SANDBOX_CODE = 4,     /* makes code and runs it */
    SANDBOX_KVM = 8,      /* KVM and performance counters */
    SANDBOX_LISTEN = 16,  /* accepts connections at sockets that it listens at */
    SANDBOX_ALONE = 64,   /* has nothing done outside: a companion, not a command */
    SANDBOX_COPIES = 128, /* makes copies of this process, which die with it (cpu/dbt/paranoid.h) */
    SANDBOX_TERMINAL = 32, /* changes the mode of its terminal, has threads of its own */
    SANDBOX_TIMER = 128,   /* has timers that interrupt it (--stats) */
};

/* From now on this process has a plan; before, sandbox_enter() does nothing. */
void sandbox_plan(unsigned needs);
void sandbox_plan_more(unsigned needs);
bool sandbox_planned(void);
/* What is read, or written in, later: a directory or file that is there. Kept: the strings stay. */
void sandbox_read(const char *path);
void sandbox_write(const char *path);
/* What is done outside: to be filled in before sandbox_enter(). */
struct outside_rules *sandbox_outside(void);

/* Locks. Once: later calls do nothing. Where the kernel has no seccomp, says so on stderr. */
int sandbox_enter(struct err *err);
/* Whether this build locks at all (sanitizers start processes, coverage writes files). */
bool sandbox_locks(void);
/* After the machine is there: no dumps, and no other process looks in. Without SANDBOX_CODE and
 * SANDBOX_KVM sandbox_enter() does that. */
void sandbox_settle(void);

/* For doctor, which has no plan: what holds on this kernel, tried in children. Text of a line;
 * true: all of it. */
bool sandbox_check(char *text, size_t size);

#endif
