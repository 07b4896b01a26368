/*
 * Programs that are not ours and read hostile data for us (qemu-nbd, grub-fstest): what they may
 * still do. They make no connection and no socket, send to nobody but whom they were connected to,
 * start nothing with more rights, touch no other process, and where the kernel has Landlock they
 * open nothing but the files that they were started for and the system's own programs and
 * libraries, which anybody may read. On a kernel without Landlock the rest holds.
 *
 * Prepared before fork() by whoever starts one (child.c, nbd.c), entered by the child before
 * exec(). A kernel that refuses the filter of system calls is an error: nothing runs unconfined.
 */
#ifndef REPRISE_HOST_CONFINE_H
#define REPRISE_HOST_CONFINE_H

#include "base/err.h"
#include "host/landlock.h"

#define CONFINE_PATHS 100u

struct confine {
    struct landlock_path paths[CONFINE_PATHS];
    size_t npaths;
    void *filter; /* struct sock_filter */
    u16 length;
};

/* `program`: its path. `files`: what it reads, and how; they must stay until it was started. */
int confine_prepare(struct confine *c, const char *program, const struct landlock_path *files,
                    size_t nfiles, struct err *err);
void confine_free(struct confine *c); /* safe on zeros */

/* In the child, after what it opens and before what moves descriptors; allocates nothing. A
 * PR_SET_PDEATHSIG from before is void. 0 or -errno. */
int confine_enter(const struct confine *c);

#endif
