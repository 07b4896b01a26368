/*
 * What the machine and its renderer say to each other: the one declaration, for both ends.
 *
 * A stream socket, little-endian. Every message is a header, a fixed body and, for some, a tail.
 * The client numbers its requests 1, 2, 3...; the renderer carries them out in that order, one
 * after the other, and answers only those marked "reply". A request without a reply leaves a result
 * code, which the next fence's reply carries.
 *
 * A message whose size cannot be right ends the renderer (there is no way to find the next one);
 * all else that is wrong in a request is a result code. Fields named `zero` are sent as zero and
 * not looked at. Changing anything here needs a new WIRE_VERSION.
 */
#ifndef REPRISE_GPU_PROTOCOL_H
#define REPRISE_GPU_PROTOCOL_H

#include "base/types.h"

#define WIRE_MAGIC   0x55504752u /* "RGPU" */
#define WIRE_VERSION 1u

/* The newest model of capabilities (model.h). */
#define WIRE_MODEL_NEWEST 2u

/* The largest request and reply, header included. */
#define WIRE_REQUEST_MAX (16u << 20)
#define WIRE_REPLY_MAX   (256u << 20)

struct wire_header {
    u32 size; /* of the message, this header included */
    u32 type;
    u64 seq; /* of the request; a reply repeats it */
};

/* X(NAME, number, body, tail allowed, has a reply) */
#define WIRE_REQUESTS(X)                                                                           \
    X(HELLO, 1, struct wire_hello, 0, 1)                                                           \
    X(CONTEXT_CREATE, 2, struct wire_context, 1, 0) /* tail: name */                               \
    X(CONTEXT_DESTROY, 3, struct wire_context, 0, 0)                                               \
    X(CONTEXT_ATTACH, 4, struct wire_pair, 0, 0)                                                   \
    X(CONTEXT_DETACH, 5, struct wire_pair, 0, 0)                                                   \
    X(RESOURCE_CREATE, 6, struct wire_resource_create, 0, 0)                                       \
    X(RESOURCE_UNREF, 7, struct wire_resource, 0, 0)                                               \
    X(ATTACH_BACKING, 8, struct wire_backing, 0, 0) /* offset: its size */                         \
    X(DETACH_BACKING, 9, struct wire_resource, 0, 0)                                               \
    X(WRITE_BACKING, 10, struct wire_backing, 1, 0) /* tail: the bytes */                          \
    X(TRANSFER_TO_HOST, 11, struct wire_transfer, 0, 0)                                            \
    X(TRANSFER_FROM_HOST, 12, struct wire_transfer, 0, 1)                                          \
    X(SUBMIT, 13, struct wire_context, 1, 0) /* tail: command words */                             \
    X(FENCE, 14, struct wire_nothing, 0, 1)                                                        \
    X(READ, 15, struct wire_read, 0, 1)                                                            \
    X(RESET, 16, struct wire_nothing, 0, 0)

enum wire_request {
#define X(name, number, body, tail, reply) WIRE_##name = number,
    WIRE_REQUESTS(X)
#undef X
        WIRE_REQUEST_END
};

#define WIRE_REPLY 0x80000000u /* | the request's type: the type of its reply */

/* X(NAME, number, text): what became of a request. */
#define WIRE_RESULTS(X)                                                                            \
    X(OK, 0, "ok")                                                                                 \
    X(MALFORMED, 1, "malformed request")                                                           \
    X(NO_CONTEXT, 2, "no such context")                                                            \
    X(NO_RESOURCE, 3, "no such resource")                                                          \
    X(EXISTS, 4, "the id is in use")                                                               \
    X(INVALID, 5, "invalid argument")                                                              \
    X(NO_BACKING, 6, "the resource has no backing")                                                \
    X(BUDGET, 7, "over the renderer's budget")                                                     \
    X(REFUSED, 8, "refused by the renderer's library")                                             \
    X(CONTEXT_ERROR, 9, "latched a context error: the context takes no more commands")             \
    X(LATCHED, 10, "dropped: the context latched an error earlier")                                \
    X(UNREADABLE, 11, "cannot be read back")                                                       \
    X(NOT_KEPT, 12, "not kept: too many results since the last fence")                             \
    X(LOST, 13, "the renderer is dead")

enum wire_result {
#define X(name, number, text) WIRE_R_##name = number,
    WIRE_RESULTS(X)
#undef X
        WIRE_R_END
};

/* Budgets: beyond them a request's result is BUDGET. 0 takes the default. */
struct wire_hello {
    u32 magic, version;
    u32 model; /* of the capabilities: model.h */
    u32 contexts, resources;
    u32 zero;
    u64 texture_bytes; /* of all resources, estimated from their formats */
    u64 backing_bytes; /* of all shadows together */
};

struct wire_nothing {
    u64 zero;
};

struct wire_context {
    u32 context;
    u32 zero;
};

struct wire_resource {
    u32 resource;
    u32 zero;
};

struct wire_pair {
    u32 context, resource;
};

/* As in virtio-gpu's VIRTIO_GPU_CMD_RESOURCE_CREATE_3D. */
struct wire_resource_create {
    u32 resource, target, format, bind, width, height, depth, array_size, last_level, nr_samples,
        flags, zero;
};

struct wire_backing {
    u32 resource, zero;
    u64 offset;
};

struct wire_box {
    u32 x, y, z, w, h, d;
};

/* As VIRTIO_GPU_CMD_TRANSFER_{TO,FROM}_HOST_3D; `offset` is into the backing. A stride or layer
 * stride of 0 is that of the whole level. */
struct wire_transfer {
    u32 resource, level, stride, layer_stride;
    struct wire_box box;
    u64 offset;
};

/* How READ lays pixels out: RAW as the resource's format has them; the others 4 bytes a pixel. */
enum wire_layout { WIRE_RAW, WIRE_BGRA, WIRE_RGBA };

struct wire_read {
    u32 resource, level;
    struct wire_box box; /* w 0: the whole level */
    u32 layout, zero;
};

/* HELLO's reply; tail: capset, driver, text, without terminating zeros. `text` is what is missing
 * from the model, or, with a result other than OK, what is wrong. */
struct wire_hello_reply {
    u32 magic, version;
    u32 result;
    u32 missing; /* capabilities of the model that this host does not have */
    u32 capset_id, capset_version, capset_size;
    u32 driver_size, text_size, zero;
};

/* The reply to FENCE, TRANSFER_FROM_HOST and READ; tail: the arrays in this order, then data. */
struct wire_reply {
    u32 result;
    u32 runs, faults, ranges;
    u32 width, height, depth, row_bytes; /* READ: of the data; rows and layers are packed */
    u64 data_size;                       /* ranges' bytes one after the other, or pixels */
};

/* Results of the requests seq .. seq + count - 1 since the last fence (FENCE only). */
struct wire_run {
    u64 seq;
    u32 count;
    u32 result;
};

/* A context that latched an error since the last fence; the text is the library's own, for people.
 */
#define WIRE_FAULT_TEXT 120
struct wire_fault {
    u32 context;
    u32 zero;
    char text[WIRE_FAULT_TEXT]; /* ends with a zero */
};

/* Bytes of a backing. From FENCE: those that differ from what the client wrote there last. */
struct wire_range {
    u32 resource;
    u32 size;
    u64 offset;
};

/* The text of a result code, for people. */
static inline const char *wire_result_text(u32 result)
{
    static const char *const text[] = {
#define X(name, number, words) [number] = words,
        WIRE_RESULTS(X)
#undef X
    };
    return result < WIRE_R_END ? text[result] : "unknown result";
}

#endif
