/* See gpu_play.h. */
#include "cmd/gpu_play.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "host/clock.h"
#include "host/picture.h"
#include "host/output_file.h"

void option_frames(struct argp_state *state, const char *arg, struct frame_range *out)
{
    char text[64];
    snprintf(text, sizeof(text), "%s", arg);
    char *dots = strstr(text, "..");
    *out = (struct frame_range){1, UINT64_MAX, true};
    if (dots)
        *dots = 0;
    if (!dots || *text)
        out->first = option_number(state, text, "--frames");
    if (!dots)
        out->last = out->first;
    else if (dots[2])
        out->last = option_number(state, dots + 2, "--frames");
    if (!out->first || out->last < out->first || strlen(arg) >= sizeof(text))
        argp_error(state, "--frames: '%s' is no range of frames, such as 10..20; the first is 1",
                   arg);
}

u32 gpu_option_scanout(struct argp_state *state, const char *arg)
{
    u64 n = option_number(state, arg, "--scanout");
    if (n >= VIRTIO_GPU_MAX_SCANOUTS)
        argp_error(state, "--scanout: there are only %u", VIRTIO_GPU_MAX_SCANOUTS);
    return (u32)n;
}

int gpu_play_start(struct gpu_log_reader **log, const char *driver, u64 keyframes, bool compare,
                   struct gpu_player **out, struct err *err)
{
    struct gpu_player_config config = {.renderer = {.driver = driver, .lenient = true},
                                       .keyframes = keyframes,
                                       .compare = compare};
    *out = NULL;
    int code = gpu_player_create(out, *log, &config, err);
    if (code) {
        gpu_log_reader_destroy(*log);
        *log = NULL;
        return code;
    }
    const struct renderer_about *about = gpu_player_about(*out);
    if (about->missing)
        fprintf(stderr, "reprise: %s lacks what guests were promised: %s\n", about->driver,
                about->lacks);
    return 0;
}

int gpu_play_open(const char *path, const char *driver, u64 keyframes, bool compare,
                  struct gpu_log_reader **log, struct gpu_player **out, struct err *err)
{
    struct outside_rules *outside = sandbox_outside();
    outside->renderer = true;
    if (!outside->driver[0])
        outside->driver[0] = driver;
    *out = NULL;
    int code = gpu_open(path, log, err);
    return code ? code : gpu_play_start(log, driver, keyframes, compare, out, err);
}

static void shot_row(void *opaque, u32 y, u8 *rgb)
{
    const struct gpu_shot *s = opaque;
    memcpy(rgb, s->rgb + (size_t)y * s->width * 3, (size_t)s->width * 3);
}

int gpu_shot_write(const struct gpu_shot *s, const char *path, bool force, struct err *err)
{
    struct output_file out;
    if (!s->width)
        return err_set(err, -ENODATA, "the screen is off there: the guest shows nothing");
    int code = output_open(&out, path, force, err);
    if (!code)
        code = picture_write(out.file, s->width, s->height, shot_row,
                             (struct gpu_shot *)(uintptr_t)s, err);
    if (!code)
        code = output_commit(&out, err);
    output_discard(&out);
    return code;
}

int gpu_pictures_directory(const char *path, struct err *err)
{
    struct stat st;
    if (!mkdir(path, DIRECTORY_PRIVATE))
        return 0;
    if (errno != EEXIST)
        return err_errno(err, "cannot make the directory '%s'", path);
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return err_set(err, -ENOTDIR, "'%s' is there already and no directory", path);
    return 0;
}

void gpu_progress_start(struct gpu_progress *p)
{
    *p = (struct gpu_progress){.began = host_ns(), .on = isatty(STDERR_FILENO)};
    p->next = p->began + 2000000000ull;
}

void gpu_progress(struct gpu_progress *p, const char *what, u64 n)
{
    u64 now = p->on ? host_ns() : 0;
    if (!p->on || now < p->next)
        return;
    p->next = now + 250000000ull;
    p->shown = true;
    fprintf(stderr, "\r\033[K%s %" PRIu64 ", %.0f s", what, n, (double)(now - p->began) / 1e9);
}

void gpu_progress_end(struct gpu_progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = p->on = false;
}
