/*
 * libvirglrenderer, as the rest of the renderer sees it: one EGL display without a surface, calls
 * from one thread, errors that contexts latched, certain completion.
 */
#ifndef REPRISE_GPU_HOST_H
#define REPRISE_GPU_HOST_H

#include "virtio-gpu-log/renderer/protocol.h"
#include "virtio-gpu-log/renderer/model.h"

struct host;

/* Takes driver "llvmpipe", "softpipe" or "device:/dev/dri/renderD128". NULL: the text says what is
 * wrong and what to install. Changes the environment. Once in a process. */
struct host *host_create(const char *driver, char *text, size_t size);
/* What OpenGL calls itself, for people. */
const char *host_driver(const struct host *h);
bool host_is_device(const struct host *h);
void host_caps(struct host *h, struct virgl_caps *caps);

/* The result codes of protocol.h. Ids were checked: contexts and resources exist or do not. */
u32 host_context_create(struct host *h, u32 context, const char *name);
void host_context_destroy(struct host *h, u32 context);
void host_context_attach(struct host *h, u32 context, u32 resource, bool attach);
u32 host_resource_create(struct host *h, const struct wire_resource_create *r);
void host_resource_unref(struct host *h, u32 resource);
/* The memory stays the caller's, until it is detached. */
u32 host_attach(struct host *h, u32 resource, void *memory, size_t size);
void host_detach(struct host *h, u32 resource);
/* Copies a box of one layer out of, or into, `memory`. */
u32 host_transfer(struct host *h, bool write, u32 resource, u32 level, u32 stride,
                  const struct wire_box *box, void *memory, size_t size);
/* Runs the commands to the end; the library may change the words. REFUSED: it said no, the context
 * goes on. CONTEXT_ERROR: the context latched an error. */
u32 host_submit(struct host *h, u32 context, u32 *words, u32 count);
/* Does a context that was told to do something still take commands? */
bool host_context_alive(struct host *h, u32 context);
/* Everything before is done, and results of queries are in the shadows. */
void host_finish(struct host *h);

/* The error that the library reported since it was last asked: true once, with the context. */
bool host_fault(struct host *h, u32 *context, char text[WIRE_FAULT_TEXT]);

#endif
