/*
 * The display's DRM device: buffers that host and guest share, command buffers, modes. Functions
 * that return int give 0 or a negative errno, and have said on the console what was refused.
 */
#ifndef GPU_RAW_CARD_H
#define GPU_RAW_CARD_H

#include <drm.h>
#include <drm_mode.h>
#include <virtgpu_drm.h>

#include "tests/tools/virgl_words.h"

struct card {
    int fd;
    bool quiet; /* says nothing about what the kernel refuses */
    u32 connector, crtc;
    struct drm_mode_modeinfo mode;
};

/* A virgl resource with the memory of the guest behind it. */
struct buffer {
    u32 bo;       /* the kernel's handle */
    u32 resource; /* what commands call it */
    u32 size, stride;
    u32 framebuffer;
    void *memory;
};

/* What a resource is to be; one of pixels has four bytes for each. */
struct shape {
    u32 target, format, bind, width, height;
};

int card_open(struct card *c);
void card_close(struct card *c);

/* 1 if the device takes virgl commands, 0 if not. */
int card_has_3d(const struct card *c);

/* Finds a connected connector and a mode of that size; 0 by 0: the preferred one. */
int card_find_mode(struct card *c, u32 width, u32 height);

int card_buffer(const struct card *c, const struct shape *shape, struct buffer *b);
void card_release(const struct card *c, struct buffer *b);
int card_framebuffer(const struct card *c, struct buffer *b);

/* Shows b, the first time by setting the mode, later by a page flip, whose end it waits for. */
int card_show(const struct card *c, const struct buffer *b, bool first);

int card_submit(const struct card *c, const struct words *w, const u32 *bos, u32 count);
int card_to_host(const struct card *c, const struct buffer *b, struct drm_virtgpu_3d_box box,
                 u32 offset);
int card_from_host(const struct card *c, const struct buffer *b, struct drm_virtgpu_3d_box box);

/* Waits until the device has done with b. */
int card_wait(const struct card *c, const struct buffer *b);

#endif
