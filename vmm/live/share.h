/*
 * A share of a machine that is recorded: hands what its virtio-fs takes to the file server, and
 * makes the replies of that into inputs (INPUT_SHARE, INPUT_CONTENT). Reading goes on beside the
 * machine; the machine waits only where a request is due.
 */
#ifndef REPRISE_LIVE_SHARE_H
#define REPRISE_LIVE_SHARE_H

#include "base/err.h"
#include "dev/device.h"
#include "host/share.h"

struct share_host;

/* As share_create(). `text` NULL: there is no directory, every request gets an error. */
int share_host_create(struct share_host **out, const char *text, unsigned unit, u32 epoch,
                      struct share_identity *id, struct err *err);
void share_host_destroy(struct share_host *h); /* NULL is safe */

/* As share_hide(). */
void share_host_hide(struct share_host *h, int dir);

/* What the machine emits as EMIT_SHARE of this share. */
void share_host_emit(struct share_host *h, const struct dev_share *what);

/*
 * The reply to request `number`, for which the machine waits; its next part if it comes in several.
 * false: not there after so many milliseconds. in->data is valid until the next call; in->unit is
 * the caller's.
 */
bool share_host_reply(struct share_host *h, u64 number, u32 milliseconds, struct input *in);

/* Once the machine has ended: asks the server as a guest would, and waits for the reply, at most
 * `milliseconds`. Bytes of it without its header, at most `room`; <0: -errno, the server's or why
 * there is none. What was under way is dropped. */
int share_host_ask(struct share_host *h, u32 opcode, u64 node, const void *body, u32 size,
                   void *out, u32 room, u32 milliseconds);
/* Programs and libraries that the guest has read the beginning of, FUSE's node ids, in the order in
 * which it did; how many. */
u32 share_host_programs(const struct share_host *h, const u64 **nodes);

#endif
