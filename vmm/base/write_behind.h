/*
 * A file that grows at its end, written by a thread of its own: who has the bytes goes on as soon
 * as they are copied. They reach the file in their order. Not there until they were waited for; a
 * process that is killed leaves the file with the first part of them.
 */
#ifndef REPRISE_WRITE_BEHIND_H
#define REPRISE_WRITE_BEHIND_H

#include <sys/uio.h>

#include "base/types.h"

struct write_behind;

/* What is put goes to `fd`, which stays the caller's, from byte `end` on. NULL: no memory. */
struct write_behind *write_behind_create(int fd, u64 end);
/* Waits for what was put; NULL is safe. */
void write_behind_destroy(struct write_behind *w);

/* `parts` follow each other. Waits only where 8 MiB are on their way already. 0, or -errno of the
 * first write that failed, after which nothing is written. */
int write_behind_put(struct write_behind *w, const struct iovec *parts, unsigned n);
/* Until all that was put is in the file; the same. */
int write_behind_wait(struct write_behind *w);
/* Would write_behind_wait() wait? */
bool write_behind_busy(struct write_behind *w);

#endif
