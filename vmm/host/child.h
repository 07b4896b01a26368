/*
 * Runs a program that reads hostile data for us, and takes what it prints: bounded in time, memory
 * and output, without terminal, environment and files of ours, and gone when we are.
 */
#ifndef REPRISE_HOST_CHILD_H
#define REPRISE_HOST_CHILD_H

#include "base/err.h"
#include "host/landlock.h"

struct child_limits {
    unsigned seconds; /* of host time, and of CPU time */
    u64 output;       /* bytes of stdout */
    u64 memory;       /* bytes of address space */
    u64 file;         /* bytes of a file it writes */
    bool confined;    /* no network, and nothing opened but `reads` (confine.h) */
    const struct landlock_path *reads;
    size_t nreads;
};

#define CHILD_PATH "PATH=/usr/sbin:/usr/bin:/sbin:/bin" /* in the environment of what we start */

/* Where a program is, malloc'ed: by PATH, and where tools for administrators are; or its path.
 * NULL: *err, -ENOENT. */
char *child_find(const char *name, struct err *err);

/*
 * Runs argv[0] (a path, or looked for in PATH, /usr/sbin and /sbin) to its end. *out: what it
 * printed, malloc'ed, NUL after it. Not started: -ENOENT when there is no such program. Ended with
 * a status other than 0, or with a signal: -EIO, the text being the last line of its stderr. Took
 * too long: -ETIMEDOUT; printed too much: -EFBIG. A SIGINT, SIGTERM or SIGHUP that the caller has
 * blocked ends it: -EINTR. With an error *out is NULL.
 */
int child_run(const char *const *argv, const struct child_limits *limits, char **out, size_t *size,
              struct err *err);

/* Does somebody want us to end, by one of those signals? */
bool child_interrupted(void);

#endif
