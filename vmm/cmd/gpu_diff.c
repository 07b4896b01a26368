/*
 * `reprise gpu diff`: two streams, or two drivers, frame by frame; where they part.
 *
 * Two players go side by side. When a picture differs, they go back to where all targets were still
 * the same and on by single commands, at last by single virgl commands of one submit.
 */
#include "cmd/gpu_play.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "host/output_file.h"
#include "virtio-gpu-log/picture.h"
#include "virtio-gpu-log/print.h"

enum { O_DRIVERS = 256, O_TOLERANCE, O_JSON, O_FORCE, O_FRAMES, O_SCANOUT };

/* clang-format off */
static const struct argp_option options[] = {
    {"drivers", O_DRIVERS, "X,Y", 0, "Driver of the first and of the second (`gpu replay --driver`); default: llvmpipe,llvmpipe", 0},
    {"tolerance", O_TOLERANCE, "N", 0, "Channels (0 to 255) that differ by no more are the same (default: 0)", 0},
    {"frames", O_FRAMES, "A..B", 0, "Only these frames (default: all)", 0},
    {"scanout", O_SCANOUT, "N", 0, "What is looked at (default: 0)", 0},
    {"output", 'o', "FILE", 0, "Write the first difference there: a PNG of how much each channel differs", 0},
    {"force", O_FORCE, NULL, 0, "Replace FILE", 0},
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Draws two streams of GPU commands, or one on two drivers, and compares them frame by frame. "
    "Names the first frame that differs and the first command after which anything that was drawn "
    "to differs: NUMBER, or NUMBER.DWORD inside of a SUBMIT_3D. Exit code 0: the same; 3: they "
    "differ." EXIT_HELP;

struct diff_args {
    const char *path[2], *output;
    char *driver[2];
    struct frame_range frames;
    u32 scanout;
    u8 tolerance;
    bool json, force;
};

static void option_drivers(struct argp_state *state, char *arg, struct diff_args *a)
{
    char *comma = strchr(arg, ',');
    if (!comma || comma == arg || !comma[1] || strchr(comma + 1, ','))
        argp_error(state, "--drivers: '%s' is not two drivers, such as llvmpipe,softpipe", arg);
    *comma = 0;
    a->driver[0] = arg;
    a->driver[1] = comma + 1;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct diff_args *a = state->input;
    u64 n;
    switch (key) {
    case O_DRIVERS: option_drivers(state, arg, a); break;
    case O_TOLERANCE:
        n = option_number(state, arg, "--tolerance");
        if (n > 255)
            argp_error(state, "--tolerance: a channel has at most 255");
        a->tolerance = (u8)n;
        break;
    case O_FRAMES: option_frames(state, arg, &a->frames); break;
    case O_SCANOUT: a->scanout = gpu_option_scanout(state, arg); break;
    case 'o': a->output = arg; break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG:
        if (a->path[0] && a->path[1])
            argp_error(state, "two streams at a time");
        a->path[a->path[0] != NULL] = arg;
        break;
    case ARGP_KEY_END:
        if (!a->path[0])
            argp_error(state, "which recordings or " GPU_LOG_NAME "s?");
        if (!a->path[1] && !a->driver[0])
            argp_error(state, "one stream is compared on two drivers: say which (--drivers X,Y)");
        if (a->force && !a->output)
            argp_error(state, "--force is for --output");
        a->path[1] = a->path[1] ?: a->path[0];
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* One of the two. */
struct side {
    struct gpu_log_reader *log;
    struct gpu_player *p;
    u64 number; /* the command after which they part */
    u32 dword;
    bool inner;
    char name[96];
};

struct diff {
    const struct diff_args *a;
    struct side side[2];
    struct gpu_progress progress;
    u64 frame;    /* first that differs; 0: none */
    u64 parted;   /* frame in which targets part */
    u64 pixels;   /* that differ */
    u8 most;      /* by how much */
    u32 x, y;     /* the first */
    bool sizes;   /* the pictures' sizes differ */
    bool other;   /* the streams themselves: the commands are not the same kind */
    u32 resource; /* in which they part; 0: not found */
};

/* --- Pictures --- */

/* How two pictures of `n` bytes a pixel differ. */
static bool differ(struct diff *d, const u8 *a, const u8 *b, u32 width, u32 height, u32 n)
{
    u64 pixels = 0;
    u8 most = 0;
    u64 first = 0;
    for (u64 i = 0; i < (u64)width * height; i++) {
        u8 by = 0;
        for (u32 k = 0; k < 3; k++) {
            u8 x = a[i * n + k], y = b[i * n + k], by_k = x > y ? x - y : y - x;
            by = MAX(by, by_k);
        }
        if (by <= d->a->tolerance)
            continue;
        first = pixels++ ? first : i;
        most = MAX(most, by);
    }
    d->pixels = pixels;
    d->most = most;
    if (pixels) {
        d->x = (u32)(first % width);
        d->y = (u32)(first / width);
    }
    return pixels != 0;
}

static bool shots_differ(struct diff *d, const struct gpu_shot *a, const struct gpu_shot *b)
{
    d->sizes = a->width != b->width || a->height != b->height;
    return d->sizes || (a->hash != b->hash && differ(d, a->rgb, b->rgb, a->width, a->height, 3));
}

static int write_difference(const struct diff *d, struct gpu_shot *a, const struct gpu_shot *b,
                            struct err *err)
{
    if (d->sizes)
        return err_set(err, -EINVAL,
                       "%s: no difference can be drawn: the pictures are %ux%u and %ux%u",
                       d->a->output, a->width, a->height, b->width, b->height);
    for (size_t i = 0; i < (size_t)a->width * a->height * 3; i++)
        a->rgb[i] = a->rgb[i] > b->rgb[i] ? a->rgb[i] - b->rgb[i] : b->rgb[i] - a->rgb[i];
    return gpu_shot_write(a, d->a->output, d->a->force, err);
}

/* --- Targets --- */

/* Can pictures of it be compared? */
static bool comparable(const struct track_resource *r)
{
    return r->shape.target && r->shape.nr_samples <= 1 && gpu_picture_format(r->shape.format);
}

/* Compares a resource of both; 1: it differs. */
static int compare_resource(struct diff *d, u32 id, struct err *err)
{
    struct gpu_shot shot[2] = {0};
    int code = 0;
    for (int i = 0; i < 2 && !code; i++)
        code = gpu_player_pixels(d->side[i].p, id, NULL, &shot[i], err);
    if (code == -ENOTSUP) /* one of the drivers cannot tell */
        code = 0;
    else if (!code && (shot[0].width != shot[1].width || shot[0].height != shot[1].height))
        code = 1;
    else if (!code)
        code = differ(d, shot[0].rgb, shot[1].rgb, shot[0].width, shot[0].height, 4);
    gpu_shot_free(&shot[0]);
    gpu_shot_free(&shot[1]);
    return code;
}

/* Compares what may have changed since this was last asked; 1: d->resource differs. */
static int targets_differ(struct diff *d, bool compare, struct err *err)
{
    const struct gpu_track *a = gpu_player_track(d->side[0].p);
    const struct gpu_track *b = gpu_player_track(d->side[1].p);
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        for (struct track_resource *r = a->resources[i]; r; r = r->next) {
            struct track_resource *other = gpu_track_resource(b, r->id);
            if (!other || !comparable(r) || !comparable(other) ||
                (r->looked == r->changes && other->looked == other->changes))
                continue;
            r->looked = r->changes;
            other->looked = other->changes;
            int code = compare ? compare_resource(d, r->id, err) : 0;
            if (code) {
                d->resource = r->id;
                return code;
            }
        }
    return 0;
}

/* --- Where they part --- */

static void name_command(struct side *s, const struct gpu_command *c)
{
    s->number = gpu_player_place(s->p)->commands;
    s->inner = false;
    snprintf(s->name, sizeof(s->name), "%s", gpu_command_name(c->type));
}

static int seek_both(struct diff *d, u64 a, u64 b, bool frames, struct err *err)
{
    const u64 to[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct gpu_player *p = d->side[i].p;
        int code =
            frames ? gpu_player_seek_frame(p, to[i], err) : gpu_player_seek_command(p, to[i], err);
        if (code)
            return code;
    }
    return targets_differ(d, false, err);
}

/* Where the index-th virgl command of a submit ends; its name. False: there is none. */
static bool inner_end(struct side *s, const struct gpu_command *c, u32 index, u32 *end, u32 *id)
{
    struct virgl_walk w;
    struct virgl_command v;
    virgl_walk_start(&w, c->payload, c->payload_size);
    for (u32 i = 0; virgl_next(&w, &v); i++)
        if (i == index) {
            s->dword = v.at;
            s->inner = true;
            *end = v.at + v.length + 1;
            *id = v.id;
            virgl_title(&v, s->name, sizeof(s->name));
            return true;
        }
    return false;
}

/* Both are in front of the submit after which they part: which of its commands is it? */
static int find_inner(struct diff *d, struct err *err)
{
    for (u32 index = 0;; index++) {
        u32 end[2], id[2];
        for (int i = 0; i < 2; i++) {
            const struct gpu_command *c = gpu_player_peek(d->side[i].p, err);
            if (!c || !inner_end(&d->side[i], c, index, &end[i], &id[i]))
                return err->code;
        }
        d->other = id[0] != id[1];
        if (d->other)
            return 1;
        for (int i = 0; i < 2; i++)
            if (gpu_player_part(d->side[i].p, end[i], err))
                return err->code;
        int code = targets_differ(d, true, err);
        if (code)
            return code;
    }
}

/* Both are at the end of frame `parted` - 1. */
static int find_command(struct diff *d, struct err *err)
{
    for (;;) {
        const struct gpu_command *c[2];
        u32 type[2];
        for (int i = 0; i < 2; i++) {
            c[i] = gpu_player_peek(d->side[i].p, err);
            if (!c[i])
                return err->code;
            name_command(&d->side[i], c[i]);
            type[i] = c[i]->response ? 0 : c[i]->type;
        }
        if (type[0] != type[1]) {
            d->other = true;
            return 1;
        }
        for (int i = 0; i < 2; i++)
            if (gpu_player_step(d->side[i].p, err) < 0)
                return err->code;
        int code = targets_differ(d, true, err);
        if (code < 0)
            return code;
        if (code && type[0] == VIRTIO_GPU_CMD_SUBMIT_3D)
            return seek_both(d, d->side[0].number, d->side[1].number, false, err)
                       ? err->code
                       : find_inner(d, err);
        if (code || gpu_player_place(d->side[0].p)->frames >= d->frame)
            return code;
    }
}

/* The first frame at whose end any target differs: drawing may show much later. */
static int find_parting(struct diff *d, struct err *err)
{
    int code = seek_both(d, 0, 0, true, err);
    for (u64 f = 1; !code && f <= d->frame; f++) {
        gpu_progress(&d->progress, "back: frame", f);
        for (int i = 0; i < 2 && !code; i++)
            code = gpu_player_seek_frame(d->side[i].p, f, err);
        code = code ? code : targets_differ(d, true, err);
        d->parted = f;
    }
    if (code == 1)
        code = seek_both(d, d->parted - 1, d->parted - 1, true, err);
    return code ? code : find_command(d, err);
}

/* --- Frames --- */

/* Goes to the end of a frame; false: there is none, or an error. */
static bool reach(struct diff *d, int i, u64 frame, struct err *err)
{
    err->code = 0;
    int code = gpu_player_seek_frame(d->side[i].p, frame, err);
    if (code == -ENOENT)
        err->code = 0;
    return !code;
}

static int compare_frames(struct diff *d, struct err *err)
{
    const struct frame_range *f = &d->a->frames;
    for (u64 frame = f->first; frame <= f->last; frame++) {
        struct gpu_shot shot[2] = {0};
        bool there[2];
        gpu_progress(&d->progress, "frame", frame);
        /* Both draw at the same time: each is asked before either is waited for. */
        for (int i = 0; i < 2; i++) {
            there[i] = reach(d, i, frame, err);
            if (err->code || (there[i] && gpu_player_ask_shot(d->side[i].p, d->a->scanout, err)))
                return err_prefix(err, "frame %" PRIu64, frame);
        }
        if (!there[0] && !there[1])
            return 0;
        int code = 0;
        for (int i = 0; i < 2 && !code; i++)
            if (there[i] && (code = gpu_player_take_shot(d->side[i].p, &shot[i], err)))
                code = err_prefix(err, "frame %" PRIu64, frame);
        if (!code && (there[0] != there[1] || shots_differ(d, &shot[0], &shot[1]))) {
            d->frame = frame;
            if (there[0] && there[1] && d->a->output)
                code = write_difference(d, &shot[0], &shot[1], err);
            code = code ? code : 1;
        }
        gpu_shot_free(&shot[0]);
        gpu_shot_free(&shot[1]);
        if (code)
            return there[0] && there[1] ? code : 2;
    }
    return 0;
}

/* --- Report --- */

static void print_side(const struct diff *d, int i)
{
    const struct side *s = &d->side[i];
    printf("%" PRIu64, s->number);
    if (s->inner)
        printf(".%u", s->dword);
    printf(" (%s)", s->name);
}

static void report(const struct diff *d, const struct diff *picture)
{
    printf("frame %" PRIu64 " differs: ", d->frame);
    if (picture->sizes)
        puts("the pictures are of different sizes");
    else
        printf("%" PRIu64 " pixels, by up to %u, the first at %u,%u\n", picture->pixels,
               picture->most, picture->x, picture->y);
    if (!d->resource && !d->other) {
        puts("no target that can be compared differs before");
        return;
    }
    fputs(d->other ? "the streams themselves part at command " : "first after command ", stdout);
    print_side(d, 0);
    if (d->other || strcmp(d->a->path[0], d->a->path[1])) {
        fputs(" of the first, ", stdout);
        print_side(d, 1);
        fputs(" of the second", stdout);
    }
    if (d->resource)
        printf(": resource %u, %" PRIu64 " pixels, by up to %u, the first at %u,%u", d->resource,
               d->pixels, d->most, d->x, d->y);
    if (d->parted != d->frame)
        printf(" (in frame %" PRIu64 ")", d->parted);
    putchar('\n');
}

static void json_report(const struct diff *d, const struct diff *picture)
{
    printf("{\"same\":false,\"frame\":%" PRIu64 ",\"sizes_differ\":%s,\"pixels\":%" PRIu64
           ",\"most\":%u,\"x\":%u,\"y\":%u",
           d->frame, picture->sizes ? "true" : "false", picture->pixels, picture->most, picture->x,
           picture->y);
    if (d->resource || d->other) {
        printf(",\"parted\":%" PRIu64 ",\"streams_differ\":%s,\"commands\":[", d->parted,
               d->other ? "true" : "false");
        for (int i = 0; i < 2; i++) {
            const struct side *s = &d->side[i];
            printf("%s{\"number\":%" PRIu64, i ? "," : "", s->number);
            if (s->inner)
                printf(",\"dword\":%u", s->dword);
            fputs(",\"command\":", stdout);
            json_text(stdout, s->name);
            putchar('}');
        }
        putchar(']');
    }
    if (d->resource)
        printf(",\"resource\":%u,\"target_pixels\":%" PRIu64 ",\"target_most\":%u", d->resource,
               d->pixels, d->most);
    puts("}");
}

static int run(struct diff *d)
{
    struct err err = {0};
    gpu_progress_start(&d->progress);
    int code = compare_frames(d, &err);
    struct diff picture = *d;
    if (code == 1 && find_parting(d, &err) < 0)
        code = -1;
    gpu_progress_end(&d->progress);
    if (code < 0)
        return cmd_fail(&err);
    u64 frames = MAX(gpu_player_place(d->side[0].p)->frames, 0ull);
    if (code == 2) {
        u64 least = d->frame - 1;
        if (d->a->json)
            printf("{\"same\":false,\"frames\":%" PRIu64 "}\n", least);
        else
            printf("only one has a frame %" PRIu64 "; those before are the same\n", d->frame);
        return EX_DIVERGED;
    }
    if (code == 1) {
        (d->a->json ? json_report : report)(d, &picture);
        return EX_DIVERGED;
    }
    if (d->a->frames.given && frames < d->a->frames.first) {
        err_set(&err, -ENOENT, "there is no frame %" PRIu64 ": the log has %" PRIu64,
                d->a->frames.first, frames);
        return cmd_fail(&err);
    }
    frames -= d->a->frames.given ? d->a->frames.first - 1 : 0;
    if (d->a->json)
        printf("{\"same\":true,\"frames\":%" PRIu64 "}\n", frames);
    else
        printf("%" PRIu64 " frames are the same\n", frames);
    int ended = EX_FINE;
    for (int i = 0; i < 2 && !ended; i++)
        if (gpu_log_damage(d->side[i].log)->state != CHUNKS_READING)
            ended = gpu_end(d->side[i].log);
    return ended;
}

int gpu_diff(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "A B\nFILE --drivers X,Y", .doc = doc};
    struct diff_args a = {.frames = {1, UINT64_MAX, false}};
    struct diff d = {.a = &a};
    struct err err;
    option_parse(&argp, argc, argv, &a);
    int code = EX_FINE;
    struct output_file probe = OUTPUT_CLOSED;
    if (a.output && output_open(&probe, a.output, a.force, &err))
        return cmd_fail(&err);
    output_discard(&probe);
    for (int i = 0; i < 2; i++) {
        sandbox_read(a.path[i]);
        sandbox_outside()->driver[i] = a.driver[i];
    }
    for (int i = 0; i < 2 && !code; i++)
        if (gpu_play_open(a.path[i], a.driver[i], 0, false, &d.side[i].log, &d.side[i].p, &err))
            code = cmd_fail(&err);
    if (!code)
        code = run(&d);
    for (int i = 0; i < 2; i++) {
        gpu_player_destroy(d.side[i].p);
        gpu_log_reader_destroy(d.side[i].log);
    }
    return code;
}
