/*
 * A file that grows at its end, written by a thread of its own: who has a message goes on as soon
 * as it is copied. The thread may put it into another form first (compress it). Messages reach the
 * file in their order. Not there until they were waited for; a process that is killed leaves the
 * file with the first part of them.
 */
#ifndef REPRISE_WRITE_BEHIND_H
#define REPRISE_WRITE_BEHIND_H

#include <sys/uio.h>

#include "base/types.h"

struct write_behind;

#define WRITE_BEHIND_MOST (256u << 10) /* bytes of a message */

/* What the file gets for a message: its bytes to `out`, which has room for len + len / 128 + 64.
 * Returns how many. Called by the thread. */
typedef size_t write_behind_form(const u8 *message, size_t len, u8 *out);

/* What is put goes to `fd`, which stays the caller's, from byte `end` on. NULL: no memory. */
struct write_behind *write_behind_create(int fd, u64 end, write_behind_form *form);
/* Waits for what was put; NULL is safe. */
void write_behind_destroy(struct write_behind *w);

/* A message, at most WRITE_BEHIND_MOST: `parts` follow each other. Waits only where 8 MiB are on
 * their way already. 0, or -errno of the first write that failed, after which nothing is written.
 */
int write_behind_put(struct write_behind *w, const struct iovec *parts, unsigned n);
/* Until all that was put is in the file; the same. */
int write_behind_wait(struct write_behind *w);
/* Would write_behind_wait() wait? */
bool write_behind_busy(struct write_behind *w);
/* Where the file ends; to be asked when it was waited for and nothing failed. */
u64 write_behind_end(const struct write_behind *w);

#endif
