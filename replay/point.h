/*
 * Points in a recording, as users write them; one grammar for every command and for gdb:
 *
 *     insn:N             after N positions (instructions); N alone means the same
 *     time:T             at virtual time T: 1.5s, 200ms, 30us, 7ns; a plain number is seconds
 *     event:N            after record N of the log (`reprise events` numbers them)
 *     end, end-N         the end; N positions before it
 *     console:TEXT[#K]   where the K-th TEXT (default: first) had just been printed
 *     mark:NAME[#K]      where that mark was set (`monitor mark`); else right after the K-th
 * (default: first) mark of that name that a program in the guest made frame:N            where the
 * N-th frame had just been shown on the screen gpu:N              in front of the instruction that
 * hands command N of gpu.log to the GPU exec:NAME[#K]      the K-th (default: first) program NAME
 * that was executed: its first instruction comes next exit:PID[#K]       where the last thread of
 * process PID begins to end, in its kernel's do_exit(); K counts processes of that number crash[#K]
 * where the kernel begins to end a process for a signal (do_coredump(), or do_group_exit()), or to
 * report a fault of its own (oops_begin()) panic              where the kernel panics (panic())
 *
 * The last four are of a Linux that says what it is made of. They, and marks that the guest made,
 * are found by a replay with inspect/lives.h: the commands go there (cmd/history.h). N may end in
 * k, M or G (thousands), or be hexadecimal with 0x. TEXT may hold \n, \r, \t, \\, \#.
 */
#ifndef REPRISE_POINT_H
#define REPRISE_POINT_H

#include "replay/timeline.h"

enum point_kind {
    POINT_INSN,
    POINT_TIME,
    POINT_EVENT,
    POINT_END,
    POINT_CONSOLE,
    POINT_MARK,
    POINT_FRAME,
    POINT_GPU,
    POINT_EXEC,
    POINT_EXIT,
    POINT_CRASH,
    POINT_PANIC
};

struct point {
    enum point_kind kind;
    u64 n;          /* positions, ns, record, K, frame, command */
    char text[256]; /* console, mark; exec: with a NUL */
    size_t len;
    i32 pid; /* exit */
};

#define POINT_FORMS                                                                                \
    "insn:N, time:T (1.5s, 20ms), event:N, end, end-N, console:TEXT[#K], mark:NAME[#K], "          \
    "frame:N, gpu:N, exec:NAME[#K], exit:PID[#K], crash[#K] or panic"
#define POINT_HELP "A POINT is " POINT_FORMS "."

/* -EINVAL with a text that says what is wrong. */
int point_parse(const char *text, struct point *out, struct err *err);

/* Is it one in a process' life, or of the kernel's end? Nothing here goes there. */
bool point_is_life(const struct point *p);
/* May it take what the guest's processes did to find it? Those, and marks. */
bool point_takes_lives(const struct point *p);

/* A point that the log alone knows (all but console:, frame: and those): its instant. Outside the
 * recording, or no such event or mark: an error that says so. */
int point_in_log(const struct point *p, const char *dir, struct instant *at, struct err *err);

/* Goes there. Errors leave the machine where it was, or at the end for a damaged recording. */
int point_seek(struct timeline *t, const struct point *p, enum timeline_stop *stop,
               struct err *err);

/* A mark in the file `marks` of the recording; a name that is there already is refused. */
int mark_add(const struct recording *r, struct instant at, const char *name, struct err *err);
/* Calls fn for each mark of the recording's file and log. */
int marks_each(const char *dir,
               void (*fn)(void *opaque, struct instant at, const char *name, size_t len),
               void *opaque, struct err *err);

#endif
