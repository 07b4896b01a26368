/*
 * gpu-raw: draws with virgl on /dev/dri/card0, without Mesa, and checks what it drew. As process 1
 * it is all of a machine's user space; otherwise a program. images/README.md has its words.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "boot.h"
#include "options.h"
#include "scene.h"
#include "wrong.h"

/* Draws a frame, shows it; a line about it when it is checked, or when there is no end. */
static enum status one_frame(struct scene *s, const struct options *o, u32 n)
{
    struct check r = {0};
    bool check = options_check(o, n);
    u32 samples = 0;
    int error = scene_draw(s, n - 1, n == o->planted);
    if (!error)
        error = card_show(s->card, &s->screen[(n - 1) & 1], n == 1);
    if (!error && check)
        error = scene_check(s, n - 1, &r, &samples);
    if (error) {
        printf("frame %u: %s\n", n, strerror(-error));
        return REFUSED;
    }
    if (!check) {
        if (!o->frames)
            printf("frame %u\n", n);
        return RIGHT;
    }
    picture_print(n, &r);
    printf(", %u samples%s\n", samples, samples == SQUARE * SQUARE ? "" : ": wrong");
    return r.wrong || samples != SQUARE * SQUARE ? WRONG_PIXELS : RIGHT;
}

static enum status frames(struct card *c, const struct options *o)
{
    static struct scene s;
    enum status worst = RIGHT;
    u32 bad = 0;
    if (scene_init(&s, c) || card_framebuffer(c, &s.screen[0]) || card_framebuffer(c, &s.screen[1]))
        return REFUSED;
    double began = options_now();
    for (u32 n = 1; !o->frames || n <= o->frames; n++) {
        enum status one = one_frame(&s, o, n);
        bad += one != RIGHT;
        if (one > worst)
            worst = one;
        if (n == 1)
            printf("gpu-raw: first frame at %.3f s\n", options_now());
        if (one == REFUSED && o->frames)
            break;
    }
    printf("gpu-raw: %u frames in %.3f s, %u of the checked ones wrong\n", o->frames,
           options_now() - began, bad);
    scene_fini(&s);
    return worst;
}

static enum status run(int count, char **words)
{
    struct options o = {.frames = 300, .every = 30};
    struct card c = {0};
    if (options_parse(&o, "gpu-raw", true, count, words))
        return BAD_WORD;
    int error = card_open(&c);
    if (error) {
        printf("gpu-raw: no display: /dev/dri/card0: %s\n", strerror(-error));
        return NO_3D;
    }
    if (!card_has_3d(&c)) {
        printf("gpu-raw: the display has no 3D: the machine needs a virtio-gpu with virgl\n");
        return NO_3D;
    }
    error = card_find_mode(&c, o.width, o.height);
    if (error || c.mode.hdisplay < PICTURE_MIN || c.mode.vdisplay < PICTURE_MIN) {
        printf("gpu-raw: the display has no mode of %ux%u that is at least %ux%u\n", o.width,
               o.height, PICTURE_MIN, PICTURE_MIN);
        return BAD_WORD;
    }
    printf("gpu-raw: %ux%u, %u frames\n", c.mode.hdisplay, c.mode.vdisplay, o.frames);
    if (o.wrong)
        wrong_requests(&c);
    if (o.flood)
        wrong_flood();
    if (o.random)
        wrong_random(&c, o.seed, o.random);
    return frames(&c, &o);
}

int main(int argc, char **argv)
{
    bool first = getpid() == 1;
    if (first)
        boot_start();
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum status status = run(argc - 1, argv + 1);
    printf("gpu-raw: ended with status %d\n", status);
    if (first)
        boot_end(status);
    return status;
}
