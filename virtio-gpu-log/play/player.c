/* See player.h: the log, places in it, and keyframes on the way. */
#include "virtio-gpu-log/play/play_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "host/clock.h"
#include "virtio-gpu-log/play/grow.h"

/* What one command may read of guest memory: a forged log may say it reads the same piece a million
 * times. */
#define UPLOADS_MAX (256u << 20)
/* A keyframe is due when playing has taken so many times what the last one took. */
#define KEYFRAME_SHARE 10u
#define KEYFRAME_LEAST 100000000ull /* ns */
/* As many as the device lets a guest have. */
#define CONTEXTS  1024u
#define RESOURCES 16384u

int gpu_player_create(struct gpu_player **out, struct gpu_log_reader *log,
                      const struct gpu_player_config *config, struct err *err)
{
    *out = NULL;
    struct gpu_player *p = calloc(1, sizeof(*p));
    if (p)
        p->track = gpu_track_create(keyframe_forget);
    if (!p || !p->track) {
        free(p);
        return play_no_memory(err);
    }
    p->log = log;
    p->config = *config;
    p->last_kept = host_ns();
    struct renderer_config renderer = config->renderer;
    renderer.contexts = renderer.contexts ?: CONTEXTS;
    renderer.resources = renderer.resources ?: RESOURCES;
    int code = gpu_drive_create(&p->drive, &renderer, err);
    if (code) {
        gpu_player_destroy(p);
        return code;
    }
    gpu_log_rewind(log);
    *out = p;
    return 0;
}

int play_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for playing the GPU log");
}

void gpu_player_destroy(struct gpu_player *p)
{
    if (!p)
        return;
    if (p->drive)
        play_forget(p);
    for (u32 i = 0; i < p->kept_count; i++)
        gpu_keyframe_destroy(p->kept[i].keyframe, p->track);
    gpu_track_destroy(p->track);
    gpu_drive_destroy(p->drive);
    free(p->kept);
    free(p->requested);
    free(p->words);
    free(p->uploads);
    free(p->bytes);
    free(p->cut);
    free(p);
}

const struct gpu_place *gpu_player_place(const struct gpu_player *p)
{
    return &p->place;
}

const struct gpu_track *gpu_player_track(const struct gpu_player *p)
{
    return p->track;
}

void gpu_player_tally(const struct gpu_player *p, struct gpu_tally *out)
{
    *out = p->tally;
}

const struct renderer_about *gpu_player_about(const struct gpu_player *p)
{
    return renderer_about(gpu_drive_renderer(p->drive));
}

/* Nothing is done yet. The tracker goes on where it was if it is needed there. */
int play_restart(struct gpu_player *p, struct err *err)
{
    play_forget(p);
    gpu_log_rewind(p->log);
    p->place = (struct gpu_place){0};
    p->screen = (struct gpu_screen){0};
    p->records = p->frame_records = p->done = 0;
    p->loaded = LOADED_NOTHING;
    p->base = NULL;
    p->lost = false;
    if (!p->config.keyframes) {
        gpu_track_reset(p->track);
        p->tracked = p->tracked_dword = 0;
    }
    return gpu_drive_reset(p->drive, err);
}

/* --- The next command --- */

/* What the buffer held is lost. */
static int room(u8 **buffer, size_t *have, size_t want, struct err *err)
{
    if (want <= *have)
        return 0;
    u8 *more = malloc(want);
    if (!more)
        return play_no_memory(err);
    free(*buffer);
    *buffer = more;
    *have = want;
    return 0;
}

/* What the command reads of guest memory; what lies in no backing is left out. */
static int load_uploads(struct gpu_player *p, struct err *err)
{
    const struct gpu_ranges *ranges = &p->record.command.uploads;
    struct gpu_range range;
    u64 size = 0, at = 0;
    u32 count = 0;
    for (u32 i = 0; gpu_ranges_next(ranges, &i, &range);) {
        if (!gpu_drive_backing(p->drive, range.resource, range.offset, range.bytes.size))
            continue;
        size += range.bytes.size;
        count++;
        if (size > UPLOADS_MAX)
            return err_set(err, -EINVAL,
                           "command %" PRIu64 " reads more guest memory than any GPU command",
                           p->record.number);
    }
    if (room(&p->bytes, &p->bytes_room, size, err))
        return err->code;
    if (count > p->upload_room) {
        struct gpu_range *uploads = realloc(p->uploads, count * sizeof(*uploads));
        if (!uploads)
            return play_no_memory(err);
        p->uploads = uploads;
        p->upload_room = count;
    }
    p->upload_count = 0;
    for (u32 i = 0; gpu_ranges_next(ranges, &i, &range);) {
        if (!gpu_drive_backing(p->drive, range.resource, range.offset, range.bytes.size))
            continue;
        int code = gpu_log_read(p->log, &range.bytes, 0, p->bytes + at, range.bytes.size, err);
        if (code)
            return err_prefix(err, "command %" PRIu64, p->record.number);
        range.bytes.data = p->bytes + at;
        at += range.bytes.size;
        p->uploads[p->upload_count++] = range;
    }
    return 0;
}

/* Memory was short where the log, the renderer or the tracker had gone on: it cannot be made up
 * for. */
static int fail(struct gpu_player *p, int code, const struct err *err)
{
    if (code == -ENOMEM)
        p->failed = *err;
    return code;
}

/* Makes the next command or reset the loaded one: 1; 0: there is none. Answers on the way are
 * compared. */
static int load(struct gpu_player *p, struct err *err)
{
    if (p->failed.code) {
        *err = p->failed;
        return err->code;
    }
    while (p->loaded == LOADED_NOTHING) {
        struct gpu_record *rec = &p->record;
        gpu_log_mark(p->log, &p->mark);
        if (!gpu_log_next(p->log, rec))
            return 0;
        if (rec->type == GPU_REC_LOST)
            p->lost = true;
        if (rec->type == GPU_REC_REPLY && p->config.compare && !p->pinning && !p->lost &&
            play_compare(p, rec, err))
            return fail(p, err->code, err);
        if (rec->type == GPU_REC_RESET)
            p->loaded = LOADED_RESET;
        if (rec->type != GPU_REC_COMMAND)
            continue;
        if (room(&p->words, &p->words_room, rec->command.words.len, err))
            return fail(p, err->code, err);
        if (rec->command.words.len)
            memcpy(p->words, rec->command.words.data, rec->command.words.len);
        rec->command.words.data = p->words;
        gpu_record_command(rec, &p->command);
        if (load_uploads(p, err))
            return fail(p, err->code, err);
        p->loaded = LOADED_COMMAND;
    }
    return 1;
}

void gpu_player_mark(const struct gpu_player *p, struct gpu_log_mark *out)
{
    if (p->loaded == LOADED_NOTHING)
        gpu_log_mark(p->log, out);
    else
        *out = p->mark;
}

/* --- Doing it --- */

/* The tracker follows what it has not seen. */
static int track(struct gpu_player *p, u32 from, u32 to, struct err *err)
{
    if (p->records < p->tracked)
        return 0;
    from = MAX(from, p->tracked_dword);
    return from < to || !to ? gpu_track_command(p->track, &p->command, from, to, err) : 0;
}

static bool is_submit(const struct gpu_command *c)
{
    return c->type == VIRTIO_GPU_CMD_SUBMIT_3D && !c->response;
}

/* The virgl commands of the loaded submit from dword `from` in front of `to`, or all of a command
 * (`to` UINT32_MAX). */
static int drive(struct gpu_player *p, u32 from, u32 to, struct err *err)
{
    struct gpu_command c = p->command;
    struct gpu_driven driven;
    if (is_submit(&c) && (from || to < c.payload_size / 4)) {
        if (!virgl_check(c.payload, c.payload_size, NULL))
            from = to = 0; /* none of it */
        u32 end = MIN(to, c.payload_size / 4), size = end > from ? (end - from) * 4 : 0;
        u32 head = (u32)(c.payload - c.bytes);
        if (room(&p->cut, &p->cut_room, head + size, err))
            return err->code;
        memcpy(p->cut, c.bytes, head);
        memcpy(p->cut + head, c.payload + (size_t)from * 4, size);
        memcpy(p->cut + GPU_HEADER, &size, 4);
        gpu_command_decode(GPU_QUEUE_control, p->cut, head + size, &c);
    }
    /* What it reads was read at one instant: all of it goes up in front of its first part. */
    int code =
        gpu_drive_command(p->drive, &c, p->uploads, from ? 0 : p->upload_count, &driven, err);
    code = code ? code : play_requested(p, p->record.number, &driven, err);
    return fail(p, code ? code : track(p, from, to, err), err);
}

static bool worth_a_keyframe(struct gpu_player *p)
{
    u64 due = p->config.keyframe_spacing ?: MAX(p->kept_cost * KEYFRAME_SHARE, KEYFRAME_LEAST);
    return p->config.keyframes && !p->pinning && p->record.frame && p->records == p->tracked &&
           host_ns() - p->last_kept >= due;
}

static void drop_kept(struct gpu_player *p, u32 i)
{
    gpu_keyframe_destroy(p->kept[i].keyframe, p->track);
    p->kept_count--;
    memmove(p->kept + i, p->kept + i + 1, (p->kept_count - i) * sizeof(p->kept[0]));
}

static int keep_keyframe(struct gpu_player *p, struct err *err)
{
    struct gpu_keyframe *k;
    const char *why;
    u64 began = host_ns();
    int code = gpu_player_keyframe(p, false, &k, &why, err);
    p->last_kept = host_ns();
    p->kept_cost = p->last_kept - began;
    if (code <= 0)
        return code;
    struct kept_keyframe *more = list_grow(p->kept, p->kept_count, &p->kept_room, sizeof(*more));
    if (!more) {
        gpu_keyframe_destroy(k, p->track);
        return play_no_memory(err);
    }
    p->kept = more;
    struct kept_keyframe *kept = &p->kept[p->kept_count++];
    *kept = (struct kept_keyframe){
        .keyframe = k, .place = p->place, .screen = p->screen, .records = p->records};
    gpu_log_mark(p->log, &kept->mark);
    /* Broken ones are of no use; every other one, while there are too many bytes. */
    for (u32 i = p->kept_count; i-- > 0;)
        if (p->kept[i].keyframe->pending.broken && p->kept[i].keyframe != p->base)
            drop_kept(p, i);
    for (u32 left = p->kept_count; p->kept_bytes > p->config.keyframes && left-- > 0;)
        if (left % 2 == 0 && left < p->kept_count && p->kept[left].keyframe != p->base)
            drop_kept(p, left);
    return 0;
}

/* After seeking to a keyframe that turns out to be none: once more from elsewhere. */
static int mend(struct gpu_player *p, struct err *err)
{
    struct gpu_place here = p->place;
    if (!p->base || !p->base->pending.broken)
        return 0;
    int code = gpu_player_seek_command(p, here.commands, err);
    return !code && here.dword ? gpu_player_part(p, here.dword, err) : code;
}

static int reset(struct gpu_player *p, struct err *err)
{
    int code = gpu_player_sync(p, err);
    if (code)
        return code;
    if (p->records >= p->tracked)
        gpu_track_reset(p->track);
    p->screen = (struct gpu_screen){0};
    p->lost = false;
    return gpu_drive_reset(p->drive, err);
}

/* The loaded one is done. */
static void finish(struct gpu_player *p)
{
    p->records++;
    if (p->records > p->tracked) {
        p->tracked = p->records;
        p->tracked_dword = 0;
    }
    p->place.position = p->record.position;
    p->place.time = p->record.time;
    p->place.dword = 0;
    p->loaded = LOADED_NOTHING;
}

static u32 fences_owed(const struct gpu_player *p)
{
    u32 n = 0;
    for (u32 i = 0; i < p->owed_count; i++)
        n += p->owed[i].kind == OWED_FENCE;
    return n;
}

/* Does the loaded one. */
static int step(struct gpu_player *p, struct err *err)
{
    int code;
    if (p->loaded == LOADED_RESET) {
        code = reset(p, err);
        finish(p);
        return code;
    }
    /* A context's error is learnt with a fence: while its id is still its own. */
    if (p->command.type == VIRTIO_GPU_CMD_CTX_DESTROY && (code = gpu_player_sync(p, err)))
        return code;
    u64 number = p->record.number, frame = p->record.frame;
    code = drive(p, p->place.dword, UINT32_MAX, err);
    if (code)
        return code;
    gpu_screen_step(&p->screen, &p->command);
    finish(p);
    p->place.commands = number + 1;
    p->place.frames += frame != 0;
    if (frame) {
        p->frame_records = p->records;
        /* So that no more than a frame is under way. */
        code = play_fence(p, number, false, err);
        while (!code && fences_owed(p) > 1)
            code = play_settle(p, p->owed_count - 1, err);
        if (!code && worth_a_keyframe(p))
            code = keep_keyframe(p, err);
        if (code == -ENOMEM)
            code = 0; /* it goes without */
    }
    return code ? code : mend(p, err);
}

const struct gpu_command *gpu_player_peek(struct gpu_player *p, struct err *err)
{
    err->code = 0;
    while (load(p, err) == 1) {
        if (p->loaded == LOADED_COMMAND)
            return &p->command;
        if (step(p, err)) /* a reset */
            break;
    }
    return NULL;
}

int gpu_player_step(struct gpu_player *p, struct err *err)
{
    int code;
    do {
        code = load(p, err);
        if (code != 1)
            return code;
        bool command = p->loaded == LOADED_COMMAND;
        code = step(p, err);
        if (code || command)
            return code ? code : 1;
    } while (true);
}

/* Where the first virgl command starts that is not in front of the dword. */
static u32 boundary(const struct gpu_command *c, u32 dword)
{
    struct virgl_walk w;
    struct virgl_command v;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v))
        if (v.at >= dword)
            return v.at;
    return c->payload_size / 4;
}

int gpu_player_part(struct gpu_player *p, u32 dword, struct err *err)
{
    if (!gpu_player_peek(p, err))
        return err->code ? err->code : err_set(err, -ENOENT, "the GPU log ends here");
    CHECK(is_submit(&p->command), "parts of a command that has none");
    dword = boundary(&p->command, dword);
    if (dword <= p->place.dword)
        return 0;
    int code = drive(p, p->place.dword, dword, err);
    p->place.dword = dword;
    if (!code && p->records >= p->tracked)
        p->tracked_dword = MAX(p->tracked_dword, dword);
    return code ? code : mend(p, err);
}

/* --- Keyframes --- */

int gpu_player_keyframe(struct gpu_player *p, bool observe, struct gpu_keyframe **out,
                        const char **why, struct err *err)
{
    *out = NULL;
    *why = "it is ahead of this place";
    if (p->records != p->tracked || p->place.dword)
        return 0;
    int code = gpu_player_sync(p, err);
    return code ? code
                : gpu_keyframe_make(out, p->track, p->drive, observe, &p->kept_bytes, why, err);
}

void gpu_player_keyframe_free(struct gpu_player *p, struct gpu_keyframe *k)
{
    gpu_keyframe_destroy(k, p->track);
}

void gpu_player_keyframes(const struct gpu_player *p, struct gpu_player_keyframes *out)
{
    *out = (struct gpu_player_keyframes){
        .count = p->kept_count, .bytes = p->kept_bytes, .used = p->kept_used};
    for (u32 i = 0; i < p->kept_count; i++)
        out->broken += p->kept[i].keyframe->pending.broken;
}

/* --- Places --- */

struct target {
    enum { TO_COMMAND, TO_FRAME, TO_INSTANT } kind;
    u64 n; /* command, frame or position */
    vns_t time;
};

/* Is a place at or after the target? */
static bool beyond(const struct gpu_place *at, const struct target *t)
{
    switch (t->kind) {
    case TO_COMMAND: return at->commands > t->n || (at->commands == t->n && at->dword);
    case TO_FRAME: return at->frames > t->n;
    default: return at->position > t->n || (at->position == t->n && at->time > t->time);
    }
}

/* A frame is complete right after the command that completes it. */
static bool behind_frame(const struct gpu_player *p, const struct target *t)
{
    return t->kind == TO_FRAME && p->place.frames == t->n &&
           (p->place.dword || p->records != p->frame_records);
}

/* Is what is loaded part of what the target asks for? */
static bool before(const struct gpu_player *p, const struct target *t)
{
    switch (t->kind) {
    case TO_COMMAND: return p->place.commands < t->n;
    case TO_FRAME: return p->place.frames < t->n;
    default:
        return p->record.position < t->n ||
               (p->record.position == t->n && p->record.time <= t->time);
    }
}

static int go_to_keyframe(struct gpu_player *p, const struct kept_keyframe *k, struct err *err)
{
    play_forget(p);
    int code = gpu_drive_reset(p->drive, err);
    if (code)
        return code;
    code = gpu_keyframe_drive(k->keyframe, p->drive, err);
    if (code)
        return fail(p, code, err);
    gpu_log_return(p->log, &k->mark);
    p->place = k->place;
    p->screen = k->screen;
    p->records = k->records;
    p->frame_records = k->records;
    p->done = k->place.commands;
    p->loaded = LOADED_NOTHING;
    p->base = k->keyframe;
    p->kept_used++;
    return 0;
}

/* Back, if need be, or on to a keyframe that is nearer. */
static int start_from(struct gpu_player *p, const struct target *t, struct err *err)
{
    const struct kept_keyframe *best = NULL;
    bool back = beyond(&p->place, t) || behind_frame(p, t) ||
                (p->base && p->base->pending.broken) || (p->place.dword && !before(p, t));
    for (u32 i = 0; i < p->kept_count; i++) {
        const struct kept_keyframe *k = &p->kept[i];
        if (!k->keyframe->pending.broken && !beyond(&k->place, t) &&
            (back || k->records > p->records))
            best = k;
    }
    if (best)
        return go_to_keyframe(p, best, err);
    return back ? play_restart(p, err) : 0;
}

static int seek(struct gpu_player *p, const struct target *t, struct err *err)
{
    int code = start_from(p, t, err);
    while (!code && (code = load(p, err)) == 1 && before(p, t))
        code = step(p, err);
    return code < 0 ? code : 0;
}

int gpu_player_seek_command(struct gpu_player *p, u64 command, struct err *err)
{
    struct target t = {TO_COMMAND, command, 0};
    int code = seek(p, &t, err);
    if (!code && p->place.commands < command)
        return err_set(err, -ENOENT, "there is no command %" PRIu64 ": the log has %" PRIu64,
                       command ? command - 1 : 0, p->place.commands);
    return code;
}

int gpu_player_seek_frame(struct gpu_player *p, u64 frame, struct err *err)
{
    struct target t = {TO_FRAME, frame, 0};
    int code = seek(p, &t, err);
    if (!code && p->place.frames < frame)
        return err_set(err, -ENOENT, "there is no frame %" PRIu64 ": the log has %" PRIu64, frame,
                       p->place.frames);
    return code;
}

int gpu_player_seek_instant(struct gpu_player *p, pos_t position, vns_t time, struct err *err)
{
    struct target t = {TO_INSTANT, position, time};
    return seek(p, &t, err);
}
