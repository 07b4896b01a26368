/*
 * Runs inside the guest: `modeset WIDTH HEIGHT` shows a picture with known pixels in that mode on
 * the first display, says so, and keeps it until a line comes in.
 */
#include <libdrm/drm.h>
#include <libdrm/drm_mode.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static struct drm_mode_modeinfo modes[128];
static uint32_t crtcs[8], connectors[8];

static int ask(int fd, unsigned long what, void *arg, const char *name)
{
    int r = ioctl(fd, what, arg);
    if (r)
        perror(name);
    return r;
}

static struct drm_mode_modeinfo *make_mode(int fd, uint32_t connector, int width, int height)
{
    struct drm_mode_get_connector c = {.connector_id = connector};
    if (ask(fd, DRM_IOCTL_MODE_GETCONNECTOR, &c, "connector"))
        return NULL;
    if (c.count_modes > 128)
        c.count_modes = 128;
    c.modes_ptr = (uintptr_t)modes;
    c.count_props = c.count_encoders = 0;
    if (ask(fd, DRM_IOCTL_MODE_GETCONNECTOR, &c, "modes"))
        return NULL;
    /* The driver takes what is up to 16 pixels smaller than its one mode. */
    modes[0].hdisplay = (uint16_t)width;
    modes[0].vdisplay = (uint16_t)height;
    return modes;
}

/* As tests/suite/display_live.py has it. */
static void paint(uint32_t *pixels, uint32_t pitch, int width, int height)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            pixels[(size_t)y * pitch / 4 + (size_t)x] = (uint32_t)((x * 3 + y) & 255) << 16 |
                                                        (uint32_t)((x ^ y) & 255) << 8 |
                                                        (uint32_t)((y * 5 + x / 7) & 255);
}

int main(int argc, char **argv)
{
    int width = argc == 3 ? atoi(argv[1]) : 0, height = argc == 3 ? atoi(argv[2]) : 0;
    int fd = open("/dev/dri/card0", O_RDWR);
    struct drm_mode_card_res res = {.crtc_id_ptr = (uintptr_t)crtcs,
                                    .connector_id_ptr = (uintptr_t)connectors,
                                    .count_crtcs = 8,
                                    .count_connectors = 8};
    if (fd < 0 || ask(fd, DRM_IOCTL_MODE_GETRESOURCES, &res, "resources"))
        return 1;
    struct drm_mode_modeinfo *mode = make_mode(fd, connectors[0], width, height);
    struct drm_mode_create_dumb dumb = {
        .width = (uint32_t)width, .height = (uint32_t)height, .bpp = 32};
    if (!mode || ask(fd, DRM_IOCTL_MODE_CREATE_DUMB, &dumb, "buffer"))
        return 1;
    struct drm_mode_map_dumb map = {.handle = dumb.handle};
    if (ask(fd, DRM_IOCTL_MODE_MAP_DUMB, &map, "mapping"))
        return 1;
    uint32_t *pixels =
        mmap(NULL, dumb.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)map.offset);
    if (pixels == MAP_FAILED)
        return 1;
    paint(pixels, dumb.pitch, width, height);
    struct drm_mode_fb_cmd fb = {.width = dumb.width,
                                 .height = dumb.height,
                                 .pitch = dumb.pitch,
                                 .bpp = 32,
                                 .depth = 24,
                                 .handle = dumb.handle};
    if (ask(fd, DRM_IOCTL_MODE_ADDFB, &fb, "framebuffer"))
        return 1;
    struct drm_mode_crtc crtc = {.set_connectors_ptr = (uintptr_t)connectors,
                                 .count_connectors = 1,
                                 .crtc_id = crtcs[0],
                                 .fb_id = fb.fb_id,
                                 .mode_valid = 1,
                                 .mode = *mode};
    if (ask(fd, DRM_IOCTL_MODE_SETCRTC, &crtc, "mode"))
        return 1;
    printf("MODE %dx%d\n", width, height);
    fflush(stdout);
    getchar();
    return 0;
}
