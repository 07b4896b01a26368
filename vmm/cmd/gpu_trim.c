/*
 * `reprise gpu trim`: a smaller stream that draws the same frames.
 *
 * What came before them is replaced by a keyframe (virtio-gpu-log/play/keyframe.h) right in front
 * of them, or, where there can be none, by an earlier one and the commands since.
 */
#include "cmd/gpu_play.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/output_file.h"
#include "virtio-gpu-log/play/grow.h"
#include "virtio-gpu-log/play/keyframe.h"

enum { O_FRAMES = 256, O_DRIVER, O_FORCE, O_NO_VERIFY, O_JSON, O_SCANOUT };

/* clang-format off */
static const struct argp_option options[] = {
    {"frames", O_FRAMES, "A..B", 0, "The frames to keep", 0},
    {"output", 'o', "FILE", 0, "The smaller " GPU_LOG_NAME, 0},
    {"force", O_FORCE, NULL, 0, "Replace FILE", 0},
    {"no-verify", O_NO_VERIFY, NULL, 0, "Do not draw both and compare", 0},
    {"scanout", O_SCANOUT, "N", 0, "What is compared (default: 0)", 0},
    {"driver", O_DRIVER, GPU_DRIVER_ARG, 0, "As for `gpu replay`: contents are as it draws them", 0},
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Writes a smaller stream that draws the same frames: commands that set up what there was "
    "before frame A, then the stream's own commands up to the end of frame B. It is a "
    "whole " GPU_LOG_NAME
    " again; its frame 1 is frame A. The pictures of both are compared before FILE "
    "is there." EXIT_HELP;

struct trim_args {
    const char *path, *output, *driver;
    struct frame_range frames;
    u32 scanout;
    bool force, no_verify, json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct trim_args *a = state->input;
    switch (key) {
    case O_FRAMES: option_frames(state, arg, &a->frames); break;
    case O_DRIVER: a->driver = arg; break;
    case O_SCANOUT: a->scanout = gpu_option_scanout(state, arg); break;
    case O_FORCE: a->force = true; break;
    case O_NO_VERIFY: a->no_verify = true; break;
    case O_JSON: a->json = true; break;
    case 'o': a->output = arg; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->path); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->path);
        if (!a->output)
            argp_error(state, "where to? give -o FILE");
        if (!a->frames.given)
            argp_error(state, "which frames? give --frames A..B");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct trim {
    const struct trim_args *a;
    struct gpu_log_reader *log;
    struct gpu_player *p;
    struct gpu_keyframe *keyframe; /* NULL: from the start */
    struct gpu_place from;         /* where it is */
    struct gpu_log_mark mark;
    u64 last; /* frame */
    u64 *hashes;
    u64 hash_count;
    size_t hash_room;
    struct gpu_log_writer *out;
    u8 *bytes;
    u64 bytes_room;
    /* Numbers of commands, in FILE, by number in the stream less that of the first. */
    u64 *numbers;
    u64 number_count, waiting;
    size_t number_room;
    u64 set_up; /* commands of the keyframe */
    struct gpu_log_sizes sizes;
    struct gpu_progress progress;
};

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the part of the GPU log");
}

/* --- Which keyframe --- */

static int remember(struct trim *t, struct err *err)
{
    struct gpu_shot shot;
    int code = gpu_player_shot(t->p, t->a->scanout, &shot, err);
    if (code)
        return code;
    u64 hash = shot.hash;
    gpu_shot_free(&shot);
    u64 *hashes = list_grow(t->hashes, t->hash_count, &t->hash_room, sizeof(*hashes));
    if (!hashes)
        return no_memory(err);
    t->hashes = hashes;
    hashes[t->hash_count++] = hash;
    return 0;
}

/* Plays with a keyframe after frame `at`; 1: it holds to the last frame. */
static int try_keyframe(struct trim *t, u64 at, struct err *err)
{
    const char *why;
    gpu_player_keyframe_free(t->p, t->keyframe);
    t->keyframe = NULL;
    int code = gpu_player_seek_frame(t->p, at, err);
    if (code == -ENOENT)
        return err_set(err, code, "there is no frame %" PRIu64 ": the log has %" PRIu64,
                       t->a->frames.first, gpu_player_place(t->p)->frames);
    if (code)
        return code;
    t->from = *gpu_player_place(t->p);
    gpu_player_mark(t->p, &t->mark);
    if (at && (code = gpu_player_keyframe(t->p, true, &t->keyframe, &why, err)) <= 0)
        return code;
    t->hash_count = 0;
    for (u64 f = at + 1; f <= t->a->frames.last; f++) {
        gpu_progress(&t->progress, "frame", f);
        code = gpu_player_seek_frame(t->p, f, err);
        if (code == -ENOENT && f > t->a->frames.first && t->a->frames.last == UINT64_MAX)
            break; /* "A..": up to where it ends */
        if (code)
            return code;
        if (t->keyframe && t->keyframe->pending.broken)
            return 0;
        if (f >= t->a->frames.first && (code = remember(t, err)))
            return code;
        t->last = f;
    }
    return 1;
}

static int choose(struct trim *t, struct err *err)
{
    u64 at = t->a->frames.first - 1;
    for (u64 back = 1;; back *= 2) {
        int code = try_keyframe(t, at, err);
        if (code)
            return MIN(code, 0);
        at = at > back ? at - back : 0;
    }
}

/* --- Writing --- */

static int load(struct trim *t, struct gpu_blob *blob, u64 at, struct err *err)
{
    int code = gpu_log_read(t->log, blob, 0, t->bytes + at, blob->size, err);
    blob->data = t->bytes + at;
    return code;
}

/* Ranges of a record, with their bytes; *list is the caller's. */
static int load_ranges(struct trim *t, const struct gpu_ranges *ranges, struct gpu_range **list,
                       u32 *count, u64 more, struct err *err)
{
    struct gpu_range range;
    u64 size = more, at = 0;
    u32 n = 0;
    *count = 0;
    *list = NULL;
    for (u32 i = 0; gpu_ranges_next(ranges, &i, &range); n++)
        if (__builtin_add_overflow(size, range.bytes.size, &size) || size > GPU_BLOB_MAX)
            return err_set(err, -EINVAL, "the GPU log has more bytes in a record than any GPU");
    if (size > t->bytes_room) {
        free(t->bytes);
        t->bytes = malloc(size);
        t->bytes_room = t->bytes ? size : 0;
        if (!t->bytes)
            return no_memory(err);
    }
    *list = calloc(n ? n : 1, sizeof(**list));
    if (!*list)
        return no_memory(err);
    int code = 0;
    for (u32 i = 0; !code && gpu_ranges_next(ranges, &i, &range);) {
        code = load(t, &range.bytes, at, err);
        at += range.bytes.size;
        (*list)[(*count)++] = range;
    }
    return code;
}

static bool is_flush(const struct gpu_record *rec)
{
    struct gpu_command c;
    gpu_record_command(rec, &c);
    return c.type == VIRTIO_GPU_CMD_RESOURCE_FLUSH;
}

/* Notes which number a command has in FILE; NEVER: it is not there. */
static int map(struct trim *t, u64 number, struct err *err)
{
    u64 *numbers = list_grow(t->numbers, t->number_count, &t->number_room, sizeof(*numbers));
    if (!numbers)
        return no_memory(err);
    t->numbers = numbers;
    numbers[t->number_count++] = number;
    return 0;
}

static int write_command(struct trim *t, const struct gpu_record *rec, struct err *err)
{
    struct gpu_range *list;
    u32 count;
    const struct gpu_rec_command *c = &rec->command;
    int code = load_ranges(t, &c->uploads, &list, &count, 0, err);
    if (!code)
        code = map(t, gpu_log_next_number(t->out), err);
    t->waiting++;
    if (!code)
        code = gpu_log_command(t->out, rec->position, rec->time, (u32)c->queue, c->words.data,
                               c->words.len, list, count, (u32)c->refused, err);
    free(list);
    return code;
}

static int write_reply(struct trim *t, const struct gpu_record *rec, struct err *err)
{
    struct gpu_range *list;
    u32 count;
    const struct gpu_rec_reply *r = &rec->reply;
    if (rec->number < t->from.commands || rec->number - t->from.commands >= t->number_count)
        return 0;
    u64 number = t->numbers[rec->number - t->from.commands];
    if (number == NEVER)
        return 0;
    int code = load_ranges(t, &r->readback, &list, &count, r->body.size, err);
    struct gpu_blob body = r->body;
    if (!code)
        code = load(t, &body, t->bytes_room - body.size, err);
    t->waiting -= t->waiting != 0;
    if (!code)
        code = gpu_log_reply(t->out, rec->position, rec->time, number, (u32)r->response, body.data,
                             (u32)body.size, list, count, err);
    free(list);
    return code;
}

static int write_event(struct trim *t, const struct gpu_record *rec, struct err *err)
{
    char why[512];
    const struct gpu_bytes *text = rec->type == GPU_REC_FAULT ? &rec->fault.why : &rec->lost.why;
    if (rec->type == GPU_REC_RESET)
        return gpu_log_reset(t->out, rec->position, rec->time, err);
    if (rec->type != GPU_REC_FAULT && rec->type != GPU_REC_LOST)
        return 0;
    snprintf(why, sizeof(why), "%.*s", (int)MIN(text->len, (u32)sizeof(why) - 1),
             (const char *)text->data);
    return rec->type == GPU_REC_LOST
               ? gpu_log_lost(t->out, rec->position, rec->time, why, err)
               : gpu_log_fault(t->out, rec->position, rec->time, (u32)rec->fault.context, why, err);
}

static int write_keyframe(struct trim *t, struct err *err)
{
    const struct gpu_keyframe *k = t->keyframe;
    pos_t position = t->from.position;
    vns_t time = t->from.time;
    for (u32 i = 0; k && i < k->count; i++) {
        const struct keyframe_command *c = &k->list[i];
        if (c->use && !k->pending.needed[c->use - 1])
            continue;
        t->set_up++;
        u64 number = gpu_log_next_number(t->out);
        int code = gpu_log_command(t->out, position, time, c->queue, c->bytes, c->size, &c->upload,
                                   c->has_upload, 0, err);
        if (!code)
            code = gpu_log_reply(t->out, position, time, number, VIRTIO_GPU_RESP_OK_NODATA, NULL, 0,
                                 NULL, 0, err);
        if (code)
            return code;
    }
    return 0;
}

/* The stream's own commands, then answers that are still awaited. */
static int write_rest(struct trim *t, struct err *err)
{
    struct gpu_record rec;
    u64 frames = t->from.frames;
    pos_t position = t->from.position;
    vns_t time = t->from.time;
    int code = 0;
    gpu_log_return(t->log, &t->mark);
    while (!code && (frames < t->last || t->waiting) && gpu_log_next(t->log, &rec)) {
        bool command = rec.type == GPU_REC_COMMAND;
        if (rec.type == GPU_REC_END || (frames == t->last && rec.type != GPU_REC_REPLY)) {
            if (command)
                code = map(t, NEVER, err);
            continue;
        }
        if (command && frames + 1 < t->a->frames.first && is_flush(&rec))
            code = map(t, NEVER, err); /* frames that are not asked for are drawn, not shown */
        else if (command)
            code = write_command(t, &rec, err);
        else if (rec.type == GPU_REC_REPLY)
            code = write_reply(t, &rec, err);
        else
            code = write_event(t, &rec, err);
        frames += command && rec.frame;
        position = rec.position;
        time = rec.time;
    }
    if (code)
        return code;
    if (frames < t->last)
        return err_set(err, -EIO, "the GPU log changed while it was read");
    return gpu_log_end(t->out, position, time, err);
}

static int write_all(struct trim *t, int fd, struct err *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return err_errno(err, "cannot write '%s'", t->a->output);
    int code = gpu_log_create(&t->out, copy, gpu_log_start(t->log), err);
    if (code)
        return code;
    code = write_keyframe(t, err);
    code = code ? code : write_rest(t, err);
    struct err closing;
    if (gpu_log_close(t->out, &closing) && !code) {
        *err = closing;
        code = err->code;
    }
    return code;
}

/* --- Verifying --- */

static int verify(struct trim *t, int written, struct err *err)
{
    struct gpu_log_reader *log = NULL;
    struct gpu_player *p;
    int fd = fcntl(written, F_DUPFD_CLOEXEC, 3);
    if (fd < 0 || lseek(fd, 0, SEEK_SET))
        return err_errno(err, "cannot read what was written");
    int code = gpu_log_open(&log, fd, err);
    if (!code)
        code = gpu_play_start(&log, t->a->driver, 0, false, &p, err);
    if (code)
        return code;
    for (u64 i = 0; !code && i < t->hash_count; i++) {
        struct gpu_shot shot;
        gpu_progress(&t->progress, "comparing frame", i + t->a->frames.first);
        code = gpu_player_seek_frame(p, i + 1, err);
        code = code ? code : gpu_player_shot(p, t->a->scanout, &shot, err);
        if (!code && shot.hash != t->hashes[i])
            code = err_set(err, -EIO,
                           "frame %" PRIu64 " would be another picture; nothing was written",
                           i + t->a->frames.first);
        if (!code || code == -EIO)
            gpu_shot_free(&shot);
    }
    if (!code)
        gpu_log_reader_sizes(log, &t->sizes);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return code;
}

static void report(const struct trim *t, u64 size)
{
    char bytes[32];
    u64 set_up = t->set_up;
    u64 first = t->a->frames.first;
    if (t->a->json) {
        printf("{\"first\":%" PRIu64 ",\"last\":%" PRIu64 ",\"from\":%" PRIu64
               ",\"set_up\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"verified\":%s}\n",
               first, t->last, t->from.frames, set_up, size, t->a->no_verify ? "false" : "true");
        return;
    }
    printf("%s: frames %" PRIu64 " to %" PRIu64 ", %s\n", t->a->output, first, t->last,
           text_bytes(size, bytes));
    if (t->keyframe)
        printf("%" PRIu64 " commands set up what there was after frame %" PRIu64 "%s\n", set_up,
               t->from.frames,
               t->from.frames + 1 < first ? ", the nearest that can be set up" : "");
    else if (first > 1)
        puts("all commands since the start are needed");
}

static int run(struct trim *t)
{
    struct output_file out;
    struct err err;
    /* Before an hour of drawing. */
    int code = output_open(&out, t->a->output, t->a->force, &err);
    gpu_progress_start(&t->progress);
    code = code ? code : choose(t, &err);
    code = code ? code : write_all(t, fileno(out.file), &err);
    off_t size = code ? 0 : lseek(fileno(out.file), 0, SEEK_END);
    if (!code && !t->a->no_verify)
        code = verify(t, fileno(out.file), &err);
    gpu_progress_end(&t->progress);
    code = code ? code : output_commit(&out, &err);
    if (!code)
        report(t, (u64)size);
    output_discard(&out);
    return code ? cmd_fail(&err) : EX_FINE;
}

int gpu_trim(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR|FILE]", .doc = doc};
    struct trim_args a = {0};
    struct trim t = {.a = &a};
    struct err err;
    option_parse(&argp, argc, argv, &a);
    struct output_file probe;
    if (output_open(&probe, a.output, a.force, &err))
        return cmd_fail(&err);
    output_discard(&probe);
    if (gpu_play_open(a.path, a.driver, 0, false, &t.log, &t.p, &err))
        return cmd_fail(&err);
    int code = run(&t);
    gpu_player_keyframe_free(t.p, t.keyframe);
    gpu_player_destroy(t.p);
    gpu_log_reader_destroy(t.log);
    free(t.hashes);
    free(t.bytes);
    free(t.numbers);
    return code;
}
