/* See replay_screen.h. */
#include "cmd/replay_screen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/gpu.h"
#include "virtio-gpu-log/play/player.h"

#define KEYFRAMES (256ull << 20) /* bytes of them at most */

struct replay_screen {
    const char *dir;
    struct machine *m;
    struct gpu_log_reader *log;
    struct gpu_player *player; /* NULL: not needed yet, or it cannot be had */
    struct err failed;         /* why not; code 0: not tried */
    struct gpu_shot shot;      /* rgb NULL: rows are the machine's */
    char note[1100];
};

struct replay_screen *replay_screen_create(const char *dir)
{
    struct replay_screen *s = calloc(1, sizeof(*s));
    if (s)
        s->dir = dir;
    return s;
}

static void close_player(struct replay_screen *s)
{
    gpu_player_destroy(s->player);
    gpu_log_reader_destroy(s->log);
    s->player = NULL;
    s->log = NULL;
}

void replay_screen_destroy(struct replay_screen *s)
{
    if (!s)
        return;
    gpu_shot_free(&s->shot);
    close_player(s);
    free(s);
}

static int open_player(struct replay_screen *s)
{
    struct gpu_player_config config = {.keyframes = KEYFRAMES};
    if (s->player || s->failed.code)
        return s->failed.code;
    int code = gpu_open(s->dir, &s->log, &s->failed);
    if (!code)
        code = gpu_player_create(&s->player, s->log, &config, &s->failed);
    return code;
}

/* What the renderer drew with the commands that the machine's GPU has taken. */
static int draw(struct replay_screen *s, u64 commands, struct err *err)
{
    int code = open_player(s);
    if (code) {
        *err = s->failed;
        return code;
    }
    code = gpu_player_seek_command(s->player, commands, err);
    if (!code)
        code = gpu_player_shot(s->player, 0, &s->shot, err);
    if (code)
        close_player(s); /* it may be dead; the next picture tries again */
    return code;
}

int replay_screen_take(struct replay_screen *s, struct machine *m, struct dev_screen *out,
                       struct err *err)
{
    s->m = m;
    s->note[0] = 0;
    gpu_shot_free(&s->shot);
    memset(&s->shot, 0, sizeof(s->shot));
    if (!machine_screen(m, out))
        return err_set(err, -ENOTSUP, "this was recorded without a display (record --gpu)");
    if (!out->width)
        return err_set(err, -ENODATA, "the screen is off here: the guest shows nothing");
    if (!out->drawn)
        return 0;
    int code = draw(s, out->commands, err);
    if (!code && (s->shot.width != out->width || s->shot.height != out->height))
        code = err_set(err, -EIO,
                       "%s/" GPU_LOG_NAME " has another screen here: it is not this "
                       "recording's, or damaged",
                       s->dir);
    if (!code)
        return 0;
    gpu_shot_free(&s->shot);
    memset(&s->shot, 0, sizeof(s->shot));
    if (!out->kept)
        return code;
    snprintf(s->note, sizeof(s->note), "only what 2D commands made is shown: %s", err->text);
    return 0;
}

void replay_screen_row(struct replay_screen *s, u32 y, u8 *rgb)
{
    if (s->shot.rgb)
        memcpy(rgb, s->shot.rgb + (size_t)y * s->shot.width * 3, (size_t)s->shot.width * 3);
    else
        machine_screen_row(s->m, y, rgb);
}

const char *replay_screen_note(const struct replay_screen *s)
{
    return s->note;
}

static bool show(void *opaque, struct dev_screen *out)
{
    struct replay_screen *s = opaque;
    return s->m && machine_screen(s->m, out);
}

/* What cannot be drawn is black: a display has no other way to say it. */
static enum screen_answer fetch(void *opaque, struct dev_screen *out)
{
    struct replay_screen *s = opaque;
    struct err ignored;
    replay_screen_take(s, s->m, out, &ignored);
    return SCREEN_READY;
}

static void row(void *opaque, u32 y, u8 *rgb)
{
    replay_screen_row(opaque, y, rgb);
}

void replay_screen_on(struct replay_screen *s, struct machine *m)
{
    s->m = m;
}

struct screen_source screen_of_replay(struct replay_screen *s)
{
    return (struct screen_source){s, show, fetch, row};
}
