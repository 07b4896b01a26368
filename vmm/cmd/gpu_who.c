/* `reprise gpu who`: the draw that a pixel is from. */
#include "cmd/gpu_play.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/play/who.h"
#include "virtio-gpu-log/print.h"

enum { O_DRIVER = 256, O_FRAME, O_AT, O_SCANOUT, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"frame", O_FRAME, "N", 0, "Where frame N is complete (default: the end of the stream)", 0},
    {"at", O_AT, "POSITION", 0, "... or at a position", 0},
    {"scanout", O_SCANOUT, "N", 0, "Of this scanout (default: 0)", 0},
    {"driver", O_DRIVER, GPU_DRIVER_ARG, 0, "As for `gpu replay`", 0},
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Names the last draw (or clear, blit, copy, upload) that changed the pixel at column X, row Y "
    "of the screen, the cursor left out: NUMBER.DWORD as `reprise gpu show` takes it, its shaders "
    "and what it drew to. A picture that is composed of others is the work of the draw that "
    "composed it." EXIT_HELP;

struct who_args {
    const char *path, *driver;
    u32 x, y, scanout;
    bool has_pixel;
    u64 frame, position;
    bool has_position, json;
};

static u32 coordinate(struct argp_state *state, const char *arg, const char *what)
{
    u64 n = option_number(state, arg, what);
    if (n > UINT32_MAX)
        argp_error(state, "%s: no screen has %" PRIu64, what, n);
    return (u32)n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct who_args *a = state->input;
    switch (key) {
    case O_DRIVER: a->driver = arg; break;
    case O_FRAME:
        a->frame = option_number(state, arg, "--frame");
        if (!a->frame)
            argp_error(state, "--frame: frames are numbered from 1");
        break;
    case O_AT:
        a->position = option_number(state, arg, "--at");
        a->has_position = true;
        break;
    case O_SCANOUT: a->scanout = gpu_option_scanout(state, arg); break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARGS: {
        char **pixel = option_recording_and(state, 2, &a->path);
        if (pixel) {
            a->x = coordinate(state, pixel[0], "the column");
            a->y = coordinate(state, pixel[1], "the row");
            a->has_pixel = true;
        }
        break;
    }
    case ARGP_KEY_END:
        if (!a->has_pixel)
            argp_error(state, "which pixel? its column and its row");
        if (!a->path || !*a->path)
            argp_error(state, "which recording or " GPU_LOG_NAME "?");
        if (a->frame && a->has_position)
            argp_error(state, "either --frame or --at");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The state right after the command. */
static int state_after(struct gpu_log_reader *log, const struct gpu_who *w, struct gpu_stream *s,
                       u32 *ctx, char *name, size_t size, struct err *err)
{
    struct gpu_record rec;
    struct gpu_command c;
    struct virgl_walk walk;
    struct virgl_command v;
    gpu_log_rewind(log);
    while (gpu_log_next(log, &rec)) {
        bool it = rec.type == GPU_REC_COMMAND && rec.number == w->number;
        if (gpu_stream_step(s, log, &rec, it ? w->dword : GPU_NO_DWORD, err))
            return err->code;
        if (!it)
            continue;
        gpu_record_command(&rec, &c);
        *ctx = c.ctx;
        snprintf(name, size, "%s", gpu_command_name(c.type));
        virgl_walk_start(&walk, c.payload, c.payload ? c.payload_size : 0);
        while (w->dword != GPU_WHO_COMMAND && virgl_next(&walk, &v))
            if (v.at == w->dword)
                virgl_title(&v, name, size);
        return 0;
    }
    return err_set(err, -EIO, "the GPU log changed while it was read");
}

static const struct gpu_sub *sub_of(const struct gpu_stream *s, u32 ctx)
{
    const struct gpu_stream_context *c = gpu_stream_context(s, ctx);
    return c ? c->current : NULL;
}

/* Shaders and targets that were bound. */
static void bound(FILE *out, const struct gpu_who *w, const struct gpu_stream *s, u32 ctx,
                  bool json)
{
    const struct gpu_sub *sub = sub_of(s, ctx);
    const char *comma = "";
    char text[64];
    if (json)
        fputs(",\"shaders\":[", out);
    for (u32 stage = 0; sub && stage < VIRGL_SHADERS && w->dword != GPU_WHO_COMMAND; stage++) {
        const struct gpu_bound *b = gpu_stream_bound(sub, VIRGL_CCMD_BIND_SHADER, stage, 0);
        const struct gpu_object *o = b ? gpu_stream_object(sub, virgl_word(&b->command, 1)) : NULL;
        if (!o)
            continue;
        gpu_value_text(GPU_ENUM_shader, stage, text, sizeof(text));
        if (json)
            fprintf(out, "%s{\"stage\":\"%s\",\"handle\":%u,\"command\":%" PRIu64 ",\"dword\":%u}",
                    comma, text, o->handle, o->created.number, o->created.at);
        else
            fprintf(out, "    %s shader %u, made by %" PRIu64 ".%u\n", text, o->handle,
                    o->created.number, o->created.at);
        comma = ",";
    }
    comma = "";
    if (json)
        fputs("],\"targets\":[", out);
    const struct gpu_bound *fb =
        sub ? gpu_stream_bound(sub, VIRGL_CCMD_SET_FRAMEBUFFER_STATE, 0, 0) : NULL;
    for (u32 i = 2; fb && w->dword != GPU_WHO_COMMAND && i <= fb->command.length; i++) {
        const struct gpu_object *o = gpu_stream_object(sub, virgl_word(&fb->command, i));
        if (!o)
            continue;
        const char *what = i == 2 ? "depth" : "colour";
        u32 resource = virgl_word(&o->command, 2);
        if (json)
            fprintf(out, "%s{\"kind\":\"%s\",\"surface\":%u,\"resource\":%u}", comma, what,
                    o->handle, resource);
        else
            fprintf(out, "    %s surface %u of resource %u\n", what, o->handle, resource);
        comma = ",";
    }
    if (json)
        fputc(']', out);
}

int gpu_who_report(FILE *out, const char *path, const struct gpu_who *w, struct gpu_log_reader *log,
                   bool json, struct err *err)
{
    struct gpu_stream *s = gpu_stream_create();
    char name[96] = "", number[40];
    u32 ctx = 0;
    int code = s ? state_after(log, w, s, &ctx, name, sizeof(name), err)
                 : err_set(err, -ENOMEM, "no memory for the state of the GPU stream");
    bool inner = w->dword != GPU_WHO_COMMAND;
    if (inner)
        snprintf(number, sizeof(number), "%" PRIu64 ".%u", w->number, w->dword);
    else
        snprintf(number, sizeof(number), "%" PRIu64, w->number);
    if (!code && json) {
        fprintf(out, "{\"number\":%" PRIu64, w->number);
        if (inner)
            fprintf(out, ",\"dword\":%u", w->dword);
        fputs(",\"command\":", out);
        json_text(stdout, name);
        fprintf(out,
                ",\"frame\":%" PRIu64 ",\"position\":%" PRIu64
                ",\"ctx\":%u,\"resource\":%u,\"x\":%u,\"y\":%u,\"before\":[%u,%u,%u],\"after\":[%u,"
                "%u,%u]",
                w->frame, w->position, ctx, w->resource, w->x, w->y, w->before[0], w->before[1],
                w->before[2], w->after[0], w->after[1], w->after[2]);
        bound(out, w, s, ctx, true);
        fputs("}\n", out);
    } else if (!code) {
        fprintf(out, "%s: %s, context %u, frame %" PRIu64 ", position %" PRIu64 "\n", number, name,
                ctx, w->frame, w->position);
        fprintf(out, "    pixel %u,%u of resource %u: %u,%u,%u became %u,%u,%u\n", w->x, w->y,
                w->resource, w->before[0], w->before[1], w->before[2], w->after[0], w->after[1],
                w->after[2]);
        bound(out, w, s, ctx, false);
        fprintf(out, "`reprise gpu show %s %s` has all of it\n", path, number);
    }
    gpu_stream_destroy(s);
    return code;
}

static int run(const struct who_args *a, struct gpu_log_reader *log, struct gpu_player *p)
{
    struct gpu_who w;
    struct err err;
    int code = a->frame          ? gpu_player_seek_frame(p, a->frame, &err)
               : a->has_position ? gpu_player_seek_instant(p, a->position, NEVER, &err)
                                 : gpu_player_seek_instant(p, NEVER, NEVER, &err);
    bool damaged = gpu_log_damage(log)->state > CHUNKS_COMPLETE;
    code = code ? code : gpu_who_drew(p, a->scanout, a->x, a->y, &w, &err);
    code = code ? code : gpu_who_report(stdout, a->path, &w, log, a->json, &err);
    if (code)
        return cmd_fail(&err);
    if (!damaged)
        return EX_FINE;
    while (gpu_player_step(p, &err) > 0) /* to where the log ends, so that it is told */
        ;
    return gpu_end(log);
}

int gpu_who(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR|FILE] X Y", .doc = doc};
    struct who_args a = {0};
    struct gpu_log_reader *log;
    struct gpu_player *p;
    struct err err;
    option_parse(&argp, argc, argv, &a);
    if (gpu_play_open(a.path, a.driver, 0, false, &log, &p, &err))
        return cmd_fail(&err);
    int code = run(&a, log, p);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return code;
}
