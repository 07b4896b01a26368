/*
 * See host.h. What is known of libvirglrenderer 0.10 and not in its header is in README.md, with
 * how it was found out.
 */
#define _GNU_SOURCE
#include "virtio-gpu-log/renderer/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <epoxy/gl.h>
#include <virglrenderer.h>

#define DRM_MAJOR 226 /* of the kernel's list of devices */

/* virglrenderer.h declares it and leaves it undefined. */
struct virgl_box {
    u32 x, y, z, w, h, d;
};

struct host {
    char driver[128];
    int device; /* render node, or -1 */
    u32 fence, fence_done;
    bool faulted;
    u32 fault_context;
    char fault_text[WIRE_FAULT_TEXT];
    char last[512]; /* what the library said last */
};

/* The library's callback for messages has no argument for us. */
static struct host *the_host;

static void on_fence(void *cookie, u32 fence)
{
    struct host *h = cookie;
    h->fence_done = fence;
}

static int on_drm_fd(void *cookie)
{
    struct host *h = cookie;
    return fcntl(h->device, F_DUPFD_CLOEXEC, 3);
}

static struct virgl_renderer_callbacks callbacks = {
    .version = 2,
    .write_fence = on_fence,
    .get_drm_fd = on_drm_fd,
};

/* "FUNCTION: context error reported ID "NAME" WHAT NUMBER": the only sign of a latched error. NAME
 * is the guest's: so the pattern must be found before the first quote. */
static void PRINTF(1, 0) on_message(const char *fmt, va_list ap)
{
    struct host *h = the_host;
    unsigned context;
    vsnprintf(h->last, sizeof(h->last), fmt, ap);
    h->last[strcspn(h->last, "\n")] = 0;
    const char *mark = strstr(h->last, ": context error reported ");
    const char *quote = strchr(h->last, '"');
    if (!mark || (quote && quote < mark) || h->faulted ||
        sscanf(mark, ": context error reported %u", &context) != 1 || !context)
        return;
    h->faulted = true;
    h->fault_context = context;
    snprintf(h->fault_text, sizeof(h->fault_text), "%.119s", h->last);
}

bool host_fault(struct host *h, u32 *context, char text[WIRE_FAULT_TEXT])
{
    if (!h->faulted)
        return false;
    h->faulted = false;
    *context = h->fault_context;
    memcpy(text, h->fault_text, WIRE_FAULT_TEXT);
    return true;
}

/*
 * Everything that decides how Mesa draws is set here, nothing is taken from the caller's shell,
 * where a variable could change pixels. What remains says where libraries are.
 */
static void set_environment(const char *gallium)
{
    static const char *const keep[] = {"LD_LIBRARY_PATH", "LIBGL_DRIVERS_PATH",
                                       "__EGL_VENDOR_LIBRARY_FILENAMES",
                                       "__EGL_VENDOR_LIBRARY_DIRS", "GBM_BACKENDS_PATH"};
    char *value[ARRAY_SIZE(keep)];
    for (size_t i = 0; i < ARRAY_SIZE(keep); i++) {
        const char *v = getenv(keep[i]);
        value[i] = v ? strdup(v) : NULL;
    }
    clearenv();
    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        if (value[i])
            setenv(keep[i], value[i], 1);
    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        free(value[i]);
    setenv("LC_ALL", "C", 1);
    setenv("HOME", "/nonexistent", 1); /* no drirc, no cache */
    setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
    setenv("MESA_GLSL_CACHE_DISABLE", "true", 1);
    if (gallium) {
        setenv("EGL_PLATFORM", "surfaceless", 1);
        setenv("LIBGL_ALWAYS_SOFTWARE", "1", 1);
        setenv("GALLIUM_DRIVER", gallium, 1);
    }
}

static bool init(struct host *h, const char *driver, char *text, size_t size)
{
    bool device = !strncmp(driver, "device:", 7);
    if (!device && strcmp(driver, "llvmpipe") && strcmp(driver, "softpipe")) {
        snprintf(text, size,
                 "no driver '%s': give llvmpipe, softpipe or device:PATH (a render node such as "
                 "/dev/dri/renderD128)",
                 driver);
        return false;
    }
    if (device) {
        struct stat st;
        h->device = open(driver + 7, O_RDWR | O_CLOEXEC);
        if (h->device < 0 || fstat(h->device, &st)) {
            snprintf(text, size, "cannot open the render node '%s': %s", driver + 7,
                     strerror(errno));
            return false;
        }
        if (!S_ISCHR(st.st_mode) || major(st.st_rdev) != DRM_MAJOR) {
            snprintf(text, size, "'%s' is no render node (they are /dev/dri/renderD128 and up)",
                     driver + 7);
            return false;
        }
    }
    set_environment(device ? NULL : driver);

    /* libepoxy aborts when it is not there; here it can still be said. */
    if (!dlopen("libEGL.so.1", RTLD_NOW | RTLD_GLOBAL)) {
        snprintf(text, size, "no EGL on this host (%s): install libegl1 and libgl1-mesa-dri",
                 dlerror());
        return false;
    }
    the_host = h;
    virgl_set_debug_callback(on_message);
    callbacks.version = device ? 2 : 1;
    int r =
        virgl_renderer_init(h, VIRGL_RENDERER_USE_EGL | VIRGL_RENDERER_USE_SURFACELESS, &callbacks);
    if (r) {
        snprintf(text, size, "EGL is installed but finds no driver for '%s'%s%.200s%s: install %s",
                 driver, *h->last ? " (" : "", h->last, *h->last ? ")" : "",
                 device ? "the driver of this GPU (libgl1-mesa-dri has Mesa's)"
                        : "libegl-mesa0 and libgl1-mesa-dri");
        return false;
    }
    const char *name = (const char *)glGetString(GL_RENDERER);
    const char *version = (const char *)glGetString(GL_VERSION);
    snprintf(h->driver, sizeof(h->driver), "%.60s, OpenGL %.50s", name ? name : "unknown",
             version ? version : "unknown");
    /* Not silently something else. */
    if (device && (!strncmp(h->driver, "llvmpipe", 8) || !strncmp(h->driver, "softpipe", 8))) {
        snprintf(text, size,
                 "EGL has no driver for '%s' and gave '%s': install the driver of this GPU "
                 "(libgl1-mesa-dri has Mesa's)",
                 driver + 7, h->driver);
        return false;
    }
    if (!device && strncmp(h->driver, driver, strlen(driver))) {
        snprintf(text, size, "asked for %s, EGL gave '%s': install libgl1-mesa-dri", driver,
                 h->driver);
        return false;
    }
    return true;
}

struct host *host_create(const char *driver, char *text, size_t size)
{
    struct host *h = calloc(1, sizeof(*h));
    if (!h) {
        snprintf(text, size, "out of memory");
        return NULL;
    }
    h->device = -1;
    if (init(h, driver, text, size))
        return h;
    if (h->device >= 0)
        close(h->device);
    free(h);
    return NULL;
}

const char *host_driver(const struct host *h)
{
    return h->driver;
}

bool host_is_device(const struct host *h)
{
    return h->device >= 0;
}

void host_caps(struct host *h, struct virgl_caps *caps)
{
    u32 version = 0, bytes = 0;
    memset(caps, 0, sizeof(*caps));
    virgl_renderer_get_cap_set(MODEL_CAPSET_ID, &version, &bytes);
    if (bytes == sizeof(*caps))
        virgl_renderer_fill_caps(MODEL_CAPSET_ID, MODEL_CAPSET_VERSION, caps);
}

u32 host_context_create(struct host *h, u32 context, const char *name)
{
    return virgl_renderer_context_create(context, (u32)strlen(name), name) ? WIRE_R_REFUSED
                                                                           : WIRE_R_OK;
}

void host_context_destroy(struct host *h, u32 context)
{
    virgl_renderer_context_destroy(context);
}

void host_context_attach(struct host *h, u32 context, u32 resource, bool attach)
{
    if (attach)
        virgl_renderer_ctx_attach_resource((int)context, (int)resource);
    else
        virgl_renderer_ctx_detach_resource((int)context, (int)resource);
}

u32 host_resource_create(struct host *h, const struct wire_resource_create *r)
{
    struct virgl_renderer_resource_create_args args = {
        .handle = r->resource,
        .target = r->target,
        .format = r->format,
        .bind = r->bind,
        .width = r->width,
        .height = r->height,
        .depth = r->depth,
        .array_size = r->array_size,
        .last_level = r->last_level,
        .nr_samples = r->nr_samples,
        .flags = r->flags,
    };
    return virgl_renderer_resource_create(&args, NULL, 0) ? WIRE_R_REFUSED : WIRE_R_OK;
}

void host_resource_unref(struct host *h, u32 resource)
{
    virgl_renderer_resource_unref(resource);
}

u32 host_attach(struct host *h, u32 resource, void *memory, size_t size)
{
    struct iovec *iov = malloc(sizeof(*iov)); /* kept by the library until it is detached */
    if (!iov)
        return WIRE_R_BUDGET;
    *iov = (struct iovec){memory, size};
    if (!virgl_renderer_resource_attach_iov((int)resource, iov, 1))
        return WIRE_R_OK;
    free(iov);
    return WIRE_R_REFUSED;
}

void host_detach(struct host *h, u32 resource)
{
    struct iovec *iov = NULL;
    int count = 0;
    virgl_renderer_resource_detach_iov((int)resource, &iov, &count);
    free(iov);
}

u32 host_transfer(struct host *h, bool write, u32 resource, u32 level, u32 stride,
                  const struct wire_box *box, void *memory, size_t size)
{
    struct virgl_box b = {box->x, box->y, box->z, box->w, box->h, 1};
    struct iovec iov = {memory, size};
    int r = write ? virgl_renderer_transfer_write_iov(resource, 0, (int)level, stride, 0, &b, 0,
                                                      &iov, 1)
                  : virgl_renderer_transfer_read_iov(resource, 0, level, stride, 0, &b, 0, &iov, 1);
    return r ? WIRE_R_REFUSED : WIRE_R_OK;
}

u32 host_submit(struct host *h, u32 context, u32 *words, u32 count)
{
    int r = virgl_renderer_submit_cmd(words, (int)context, (int)count);
    /* Here, while this context is OpenGL's current one: what it drew is done, so that no other
     * context and no read can overtake it. */
    glFinish();
    if (h->faulted && h->fault_context == context)
        return WIRE_R_CONTEXT_ERROR;
    return r ? WIRE_R_REFUSED : WIRE_R_OK;
}

bool host_context_alive(struct host *h, u32 context)
{
    /* A context's error is looked at when it is switched to, not while it is the current one. */
    u32 nop = 0;
    virgl_renderer_force_ctx_0();
    return !virgl_renderer_submit_cmd(&nop, (int)context, 1);
}

void host_finish(struct host *h)
{
    /* Results of queries are collected when a fence retires. All work is done, so the first poll
     * retires it; that is not promised anywhere. */
    u32 fence = ++h->fence;
    glFinish();
    if (virgl_renderer_create_fence((int)fence, 0))
        return;
    for (unsigned i = 0; h->fence_done != fence; i++) {
        virgl_renderer_poll();
        if (i > 1000)
            usleep(100);
    }
}
