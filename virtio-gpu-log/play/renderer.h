/*
 * The GPU renderer of a machine: a process of its own (reprise-gpu), started, spoken to, watched
 * and ended here. Protocol and result codes: virtio-gpu-log/renderer/protocol.h.
 *
 * Requests are numbered and carried out in order. They are sent as far as the socket takes them and
 * otherwise wait here; few have a reply of their own (fence, transfer from the host, read). The
 * rest leave a result code in the next fence's reply.
 *
 * A renderer that dies, hangs or talks nonsense is dead: it is killed, renderer_death() says why,
 * every reply that is still owed arrives with the result WIRE_R_LOST, and requests may go on being
 * made, with the same end. Nothing here ever ends the machine.
 */
#ifndef REPRISE_GPU_RENDERER_CLIENT_H
#define REPRISE_GPU_RENDERER_CLIENT_H

#include "base/err.h"
#include "virtio-gpu-log/renderer/protocol.h"

struct renderer;

struct renderer_config {
    const char *program; /* NULL: reprise-gpu beside this program */
    const char *driver;  /* "llvmpipe" (NULL), "softpipe", "device:PATH" */
    u32 model;           /* of the capabilities; 0: the newest that the renderer knows */
    bool lenient;        /* start although the host lacks some of the model: see about->missing */
    /* Budgets, 0: the renderer's defaults. */
    u32 contexts, resources;
    u64 texture_bytes, backing_bytes;
    /* Milliseconds. 0: 20000 to start; 60000 for a reply to come, or a request to be taken. */
    u32 start_timeout, hang_timeout;
};

/* What the renderer said of itself. */
struct renderer_about {
    char driver[128]; /* for people */
    u32 model, capset_id, capset_version, capset_size;
    u8 capset[512];   /* the model's, the same on every host */
    u32 missing;      /* things of the model that the host lacks */
    char lacks[1024]; /* ... and which, for people */
};

/* A reply; its arrays are inside it. It is consistent in itself, but it comes from a process that a
 * guest may have taken over: ids and offsets of ranges must be checked against what is attached. */
struct renderer_reply {
    u64 seq;
    u32 type;   /* WIRE_FENCE, WIRE_TRANSFER_FROM_HOST, WIRE_READ */
    u32 result; /* of the request itself */
    /* WIRE_FENCE: results of the requests since the fence before, faults of contexts. */
    const struct wire_run *runs;
    const struct wire_fault *faults;
    /* Bytes of backings that changed: ranges[i].size bytes each, one after the other in data. */
    const struct wire_range *ranges;
    u32 run_count, fault_count, range_count;
    /* WIRE_READ: what data holds, packed. */
    u32 width, height, depth, row_bytes;
    const u8 *data;
    u64 data_size;
    struct renderer_reply *next; /* private */
    u64 size;                    /* private: of this memory */
};

/* Starts the renderer and greets it. Errors say what to install. */
int renderer_create(struct renderer **out, const struct renderer_config *c, struct err *err);
/* Ends the process, whatever it does. NULL is safe. */
void renderer_destroy(struct renderer *r);

const struct renderer_about *renderer_about(const struct renderer *r);
/* NULL: alive. Otherwise why it is dead, for people; stays so. */
const char *renderer_death(const struct renderer *r);

/* The process; 0 when dead. */
int renderer_pid(const struct renderer *r);

/* To wait for it with others: a descriptor (-1 when dead), what to wait for, and renderer_poll()
 * when there is something, and every second or so, as nobody else notices a renderer that hangs. */
int renderer_fd(const struct renderer *r);
void renderer_poll(struct renderer *r);

/* The next reply, in the order of the requests; the caller's, to be given to free(). NULL: none
 * has come yet. */
struct renderer_reply *renderer_next(struct renderer *r);
/* Waits until the reply to request `seq` has come and returns it; replies before it stay for
 * renderer_next(). milliseconds: after them NULL; 0: until it comes or the renderer is dead, which
 * it is when hang_timeout has passed. NULL too if no reply to it is owed. */
struct renderer_reply *renderer_wait(struct renderer *r, u64 seq, u32 milliseconds);
/* Nobody will ask for the reply to request `seq`: it is thrown away, now or when it comes. */
void renderer_forget(struct renderer *r, u64 seq);
/* The result of request `seq`, from the reply to the first fence after it; WIRE_R_NOT_KEPT if it
 * is not in there, WIRE_R_LOST if the renderer died before. */
u32 renderer_result(const struct renderer_reply *fence, u64 seq);
/* Replies that are waited for. */
u32 renderer_owed(const struct renderer *r);

/*
 * Requests. Each returns its number, the first 1. When too much waits to be sent (64 MiB) they wait
 * for the renderer to take some.
 */
u64 renderer_context_create(struct renderer *r, u32 context, const char *name, size_t length);
u64 renderer_context_destroy(struct renderer *r, u32 context);
u64 renderer_context_attach(struct renderer *r, u32 context, u32 resource);
u64 renderer_context_detach(struct renderer *r, u32 context, u32 resource);
u64 renderer_resource_create(struct renderer *r, const struct wire_resource_create *args);
u64 renderer_resource_unref(struct renderer *r, u32 resource);

/*
 * Guest memory behind a resource. The renderer has a shadow of it, all zeros at first. What the
 * guest has there must be written before each command that reads it: a transfer to the host, and
 * commands inside a submit (TRANSFER3D, COPY_TRANSFER3D to the host).
 *
 * A submit may also write guest memory (GET_QUERY_RESULT: 16 bytes at offset 0 of the query's
 * resource; TRANSFER3D from the host). The next fence reports the bytes that then differ from what
 * was written here last. So these bytes must be written before such a submit too, or a result that
 * is the same as the last one is not reported although the guest has overwritten it.
 */
u64 renderer_attach_backing(struct renderer *r, u32 resource, u64 size);
u64 renderer_detach_backing(struct renderer *r, u32 resource);
/* Any size: sent as several requests if need be; the last one's number. */
u64 renderer_write_backing(struct renderer *r, u32 resource, u64 offset, const void *bytes,
                           size_t size);
u64 renderer_transfer_to_host(struct renderer *r, const struct wire_transfer *t);
/* Reply: every byte of the box, as ranges of the backing. */
u64 renderer_transfer_from_host(struct renderer *r, const struct wire_transfer *t);

/* count 32-bit words. More than a request holds (4 million): WIRE_R_MALFORMED, without them. */
u64 renderer_submit(struct renderer *r, u32 context, const u32 *words, size_t count);
/* Reply: when everything before is done, query results included. */
u64 renderer_fence(struct renderer *r);
/* Reply: pixels of a level. box NULL: all of it. */
u64 renderer_read(struct renderer *r, u32 resource, u32 level, const struct wire_box *box,
                  enum wire_layout layout);
/* All contexts and resources are gone. */
u64 renderer_reset(struct renderer *r);

#endif
