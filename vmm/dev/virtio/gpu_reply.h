/*
 * The renderer's reply to a command, as it enters the machine: a list of operations, the last of
 * them DONE. It may come in several inputs, cut between operations, all at one instant. Numbers are
 * varints (base/cursor.h).
 *
 * Of what is written, each whole piece is kept by the device, the last GPU_KEPT_PAGES of them; a
 * later piece with the same bytes is named by its number. So what a guest reads back again and
 * again is in the recording once.
 */
#ifndef REPRISE_DEV_VIRTIO_GPU_REPLY_H
#define REPRISE_DEV_VIRTIO_GPU_REPLY_H

#include "base/types.h"

#define GPU_KEPT_PIECE PAGE_SIZE

enum gpu_reply_op {
    GPU_OP_WRITE = 1, /* resource, offset in its backing, length up to a piece, bytes */
    GPU_OP_SAME,      /* resource, offset, number of the piece */
    GPU_OP_FAULT,     /* context, length, text */
    GPU_OP_LOST,      /* length, text: the renderer is gone until the device is reset */
    GPU_OP_DONE,      /* VIRTIO_GPU_RESP_* */
};

#endif
