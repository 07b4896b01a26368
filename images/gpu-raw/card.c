/* See card.h. */
#include "card.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MODES = 128, FLIP_TIMEOUT_MS = 20000 };

static int request(const struct card *c, unsigned long number, void *argument, const char *what)
{
    int result;
    do
        result = ioctl(c->fd, number, argument);
    while (result && (errno == EINTR || errno == EAGAIN));
    if (!result)
        return 0;
    int error = errno;
    if (!c->quiet)
        printf("display: %s: %s\n", what, strerror(error));
    return -error;
}

int card_open(struct card *c)
{
    c->fd = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
    return c->fd < 0 ? -errno : 0;
}

void card_close(struct card *c)
{
    close(c->fd);
    c->fd = -1;
}

int card_has_3d(const struct card *c)
{
    u32 value = 0;
    struct drm_virtgpu_getparam get = {.param = VIRTGPU_PARAM_3D_FEATURES,
                                       .value = (uintptr_t)&value};
    return !ioctl(c->fd, DRM_IOCTL_VIRTGPU_GETPARAM, &get) && value;
}

int card_find_mode(struct card *c, u32 width, u32 height)
{
    static struct drm_mode_modeinfo modes[MODES];
    u32 connectors[8], crtcs[8], encoders[8];
    struct drm_mode_card_res all = {.connector_id_ptr = (uintptr_t)connectors,
                                    .crtc_id_ptr = (uintptr_t)crtcs,
                                    .encoder_id_ptr = (uintptr_t)encoders,
                                    .count_connectors = 8,
                                    .count_crtcs = 8,
                                    .count_encoders = 8};
    int error = request(c, DRM_IOCTL_MODE_GETRESOURCES, &all, "mode: resources");
    if (error)
        return error;
    if (!all.count_connectors || !all.count_crtcs)
        return -ENODEV;
    c->connector = connectors[0];
    c->crtc = crtcs[0];
    /* Without room for modes the kernel probes them; then it hands them out. */
    for (u32 count = 0, turn = 0; turn < 2; turn++) {
        struct drm_mode_get_connector get = {
            .connector_id = c->connector, .modes_ptr = (uintptr_t)modes, .count_modes = count};
        error = request(c, DRM_IOCTL_MODE_GETCONNECTOR, &get, "mode: connector");
        if (error)
            return error;
        count = get.count_modes < MODES ? get.count_modes : MODES;
        for (u32 i = 0; turn && i < count; i++)
            if ((!width && !height) ||
                (modes[i].hdisplay == width && modes[i].vdisplay == height)) {
                c->mode = modes[i];
                return 0;
            }
    }
    return -ENOENT;
}

int card_buffer(const struct card *c, const struct shape *shape, struct buffer *b)
{
    memset(b, 0, sizeof(*b));
    b->stride = shape->target == VT_BUFFER ? 0 : shape->width * 4;
    b->size = b->stride ? b->stride * shape->height : shape->width;
    struct drm_virtgpu_resource_create create = {.target = shape->target,
                                                 .format = shape->format,
                                                 .bind = shape->bind,
                                                 .width = shape->width,
                                                 .height = shape->height,
                                                 .depth = 1,
                                                 .array_size = 1,
                                                 .size = b->size,
                                                 .stride = b->stride};
    int error = request(c, DRM_IOCTL_VIRTGPU_RESOURCE_CREATE, &create, "resource");
    if (error)
        return error;
    b->bo = create.bo_handle;
    b->resource = create.res_handle;
    struct drm_virtgpu_map map = {.handle = b->bo};
    error = request(c, DRM_IOCTL_VIRTGPU_MAP, &map, "map");
    if (error)
        return error;
    b->memory = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, (off_t)map.offset);
    return b->memory == MAP_FAILED ? -errno : 0;
}

void card_release(const struct card *c, struct buffer *b)
{
    struct drm_gem_close gem = {.handle = b->bo};
    munmap(b->memory, b->size);
    request(c, DRM_IOCTL_GEM_CLOSE, &gem, "close");
}

int card_framebuffer(const struct card *c, struct buffer *b)
{
    struct drm_mode_fb_cmd fb = {.width = c->mode.hdisplay,
                                 .height = c->mode.vdisplay,
                                 .pitch = b->stride,
                                 .bpp = 32,
                                 .depth = 24,
                                 .handle = b->bo};
    int error = request(c, DRM_IOCTL_MODE_ADDFB, &fb, "framebuffer");
    b->framebuffer = fb.fb_id;
    return error;
}

static int flip_done(const struct card *c)
{
    char event[256];
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (poll(&p, 1, FLIP_TIMEOUT_MS) == 1 && read(c->fd, event, sizeof(event)) > 0)
        return 0;
    printf("display: the page flip does not end\n");
    return -ETIMEDOUT;
}

int card_show(const struct card *c, const struct buffer *b, bool first)
{
    u32 connector = c->connector;
    struct drm_mode_crtc crtc = {.crtc_id = c->crtc,
                                 .fb_id = b->framebuffer,
                                 .set_connectors_ptr = (uintptr_t)&connector,
                                 .count_connectors = 1,
                                 .mode_valid = 1,
                                 .mode = c->mode};
    if (first)
        return request(c, DRM_IOCTL_MODE_SETCRTC, &crtc, "mode");
    struct drm_mode_crtc_page_flip flip = {
        .crtc_id = c->crtc, .fb_id = b->framebuffer, .flags = DRM_MODE_PAGE_FLIP_EVENT};
    int error = request(c, DRM_IOCTL_MODE_PAGE_FLIP, &flip, "page flip");
    return error ? error : flip_done(c);
}

int card_submit(const struct card *c, const struct words *w, const u32 *bos, u32 count)
{
    struct drm_virtgpu_execbuffer e = {.size = w->n * 4,
                                       .command = (uintptr_t)w->w,
                                       .bo_handles = (uintptr_t)bos,
                                       .num_bo_handles = count,
                                       .fence_fd = -1};
    return request(c, DRM_IOCTL_VIRTGPU_EXECBUFFER, &e, "submit");
}

int card_to_host(const struct card *c, const struct buffer *b, struct drm_virtgpu_3d_box box,
                 u32 offset)
{
    struct drm_virtgpu_3d_transfer_to_host t = {.bo_handle = b->bo, .box = box, .offset = offset};
    return request(c, DRM_IOCTL_VIRTGPU_TRANSFER_TO_HOST, &t, "transfer to host");
}

int card_from_host(const struct card *c, const struct buffer *b, struct drm_virtgpu_3d_box box)
{
    struct drm_virtgpu_3d_transfer_from_host t = {.bo_handle = b->bo, .box = box};
    return request(c, DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST, &t, "transfer from host");
}

int card_wait(const struct card *c, const struct buffer *b)
{
    struct drm_virtgpu_3d_wait w = {.handle = b->bo};
    return request(c, DRM_IOCTL_VIRTGPU_WAIT, &w, "wait");
}
