/*
 * A process that stays outside when we lock ourselves in (sandbox.h), and does the few things for
 * us that were agreed on before: gives the files of -o their names, makes pictures where the user
 * said, starts and ends our renderer, removes sockets at the end. It takes nothing else from us,
 * so whoever took us over by a recording gains no more than that.
 *
 * While there is none (before the lock, and in programs that never lock) callers do it themselves:
 * each function says so.
 */
#ifndef REPRISE_HOST_OUTSIDE_H
#define REPRISE_HOST_OUTSIDE_H

#include <sys/types.h>

#include "base/err.h"
#include "host/companion.h"

struct output_file;

/* What it may do, besides finishing the files of -o that were open before, and opening them again.
 */
struct outside_rules {
    bool renderer;         /* start reprise-gpu, */
    const char *driver[2]; /* with one of these drivers or the default; NULL: none */
    bool pictures;         /* make new files *.png wherever asked: never in the place of another */
    const char *directory; /* make files in it; NULL: in none */
};

/* Forks it. It ends with us, however we end. */
int outside_start(const struct outside_rules *rules, struct err *err);
bool outside_runs(void);
/* Lets it remove what it has to, and end. */
void outside_end(void);

/* Files and empty directories to remove at the end, in this order: told before outside_start, and
 * removed only by it. */
void outside_remove(const char *path);

/* For output_file.c. Numbers of files that are open before it starts are kept in `outside`. */
void outside_keep(struct output_file *o);
void outside_forget(const struct output_file *o);
int outside_create(struct output_file *o, const char *path, bool replace, struct err *err);
/* 0 or -errno; the file is its user's then, or gone. */
int outside_name(const struct output_file *o);
void outside_drop(const struct output_file *o);

/* For companion.c and whoever has started a process: the child becomes ours. */
int outside_spawn(pid_t *pid, const struct companion_config *c, struct err *err);
/* Of a child of ours; kill() itself when it does not run. 0 or -errno. */
int outside_kill(pid_t pid, int sig);

#endif
