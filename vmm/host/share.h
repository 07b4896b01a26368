/*
 * A directory of the host that a machine shares with its guest, and the file server that reads it:
 * reprise-fs, a process of its own (vmm/fsd), as what it is asked comes from the guest. Nothing
 * that it says is believed, and it may die: then every request gets an error.
 */
#ifndef REPRISE_HOST_SHARE_H
#define REPRISE_HOST_SHARE_H

#include "base/err.h"
#include "base/types.h"

struct share;

struct share_identity {
    char tag[37];
    char path[1024]; /* absolute */
};

/* Starts the server of share `unit`, as --share says it: DIR[,tag=NAME]. `epoch`: another one than
 * any server had that this guest asked before; 0: there was none. */
int share_create(struct share **out, const char *text, unsigned unit, u32 epoch,
                 struct share_identity *id, struct err *err);
void share_destroy(struct share *s); /* NULL is safe */

/* A directory that the guest is to find empty: that of the recording. */
void share_hide(struct share *s, int dir);

/* Hands a request on; at most FSD_SLOTS have no reply yet. Its slot; -1: the server is gone, or
 * there is none to reply in, of a request that has no reply. */
int share_request(struct share *s, const u8 *request, u32 size, u64 total, u32 room, bool awaited);
/* The reply in a slot: 1 with its bytes, the slot's until it is freed; 0: not there after so many
 * milliseconds; -1: it will not come. */
int share_reply(struct share *s, int slot, u32 milliseconds, const u8 **data, u32 *size);
/* What is in the slot, or will be, is not needed any more. */
void share_free(struct share *s, int slot);
/* The driver has reset its device. No reply comes to what was asked before. */
void share_reset(struct share *s);

#endif
