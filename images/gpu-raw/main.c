/*
 * gpu-raw: draws with virgl on /dev/dri/card0, without Mesa, and checks what it drew. As process 1
 * it is all of a machine's user space; otherwise a program. images/README.md has its words.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "boot.h"
#include "scene.h"
#include "wrong.h"

enum status { RIGHT, WRONG_PIXELS, BAD_WORD, NO_3D, REFUSED };

struct options {
    u32 frames; /* 0: without end */
    u32 every, planted, width, height, random;
    u64 seed;
    bool wrong;
};

static bool number(const char *text, u32 *value)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    *value = (u32)v;
    return *text >= '0' && *text <= '9' && !*end && v <= 0x7fffffff;
}

static bool option(struct options *o, const char *word)
{
    u32 seed;
    char after;
    if (!strncmp(word, "frames=", 7))
        return number(word + 7, &o->frames) && o->frames;
    if (!strncmp(word, "every=", 6))
        return number(word + 6, &o->every) && o->every;
    if (!strncmp(word, "bug=", 4))
        return number(word + 4, &o->planted) && o->planted;
    if (!strncmp(word, "size=", 5))
        return sscanf(word + 5, "%4ux%4u%c", &o->width, &o->height, &after) == 2;
    if (!strncmp(word, "random=", 7))
        return number(word + 7, &o->random) && o->random;
    if (!strncmp(word, "seed=", 5)) {
        bool good = number(word + 5, &seed);
        o->seed = seed;
        return good;
    }
    if (!strcmp(word, "endless"))
        o->frames = 0;
    else if (!strcmp(word, "wrong"))
        o->wrong = true;
    else
        return false;
    return true;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Draws a frame, shows it; a line about it when it is checked, or when there is no end. */
static enum status one_frame(struct scene *s, const struct options *o, u32 n)
{
    struct check r = {0};
    bool check = n == 1 || n % o->every == 0 || n == o->frames || n == o->planted;
    int error = scene_draw(s, n - 1, n == o->planted);
    if (!error)
        error = card_show(s->card, &s->screen[(n - 1) & 1], n == 1);
    if (!error && check)
        error = scene_check(s, n - 1, &r);
    if (error) {
        printf("frame %u: %s\n", n, strerror(-error));
        return REFUSED;
    }
    if (!check) {
        if (!o->frames)
            printf("frame %u\n", n);
        return RIGHT;
    }
    printf("frame %u: crc %08x, triangle %06x, square %06x, texture %06x, background %06x, "
           "%u samples: ",
           n, r.crc, r.triangle, r.square, r.texel, r.background, r.samples);
    if (r.wrong)
        printf("%u pixels wrong, first %u,%u: %06x, should be %06x\n", r.wrong, r.x, r.y, r.is,
               r.should);
    else
        printf("%s\n", r.samples == SQUARE * SQUARE ? "right" : "samples wrong");
    return r.wrong || r.samples != SQUARE * SQUARE ? WRONG_PIXELS : RIGHT;
}

static enum status frames(struct card *c, const struct options *o)
{
    static struct scene s;
    enum status worst = RIGHT;
    u32 bad = 0;
    if (scene_init(&s, c) || card_framebuffer(c, &s.screen[0]) || card_framebuffer(c, &s.screen[1]))
        return REFUSED;
    double began = now();
    for (u32 n = 1; !o->frames || n <= o->frames; n++) {
        enum status one = one_frame(&s, o, n);
        bad += one != RIGHT;
        if (one > worst)
            worst = one;
        if (n == 1)
            printf("gpu-raw: first frame at %.3f s\n", now());
        if (one == REFUSED && o->frames)
            break;
    }
    printf("gpu-raw: %u frames in %.3f s, %u of the checked ones wrong\n", o->frames, now() - began,
           bad);
    scene_fini(&s);
    return worst;
}

static enum status run(int count, char **words)
{
    struct options o = {.frames = 300, .every = 30};
    struct card c = {0};
    for (int i = 0; i < count; i++)
        if (!option(&o, words[i])) {
            printf("gpu-raw: '%s' is none of frames=N every=N size=WxH bug=N random=N seed=N "
                   "wrong endless\n",
                   words[i]);
            return BAD_WORD;
        }
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
    if (error || c.mode.hdisplay < SCENE_MIN || c.mode.vdisplay < SCENE_MIN) {
        printf("gpu-raw: the display has no mode of %ux%u that is at least %ux%u\n", o.width,
               o.height, SCENE_MIN, SCENE_MIN);
        return BAD_WORD;
    }
    printf("gpu-raw: %ux%u, %u frames\n", c.mode.hdisplay, c.mode.vdisplay, o.frames);
    if (o.wrong)
        wrong_requests(&c);
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
