/* `reprise gpu show`: one command in full, and what was bound at it. */
#include "cmd/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/picture.h"
#include "host/output_file.h"
#include "virtio-gpu-log/picture.h"
#include "virtio-gpu-log/print.h"

enum { O_JSON = 256, O_STATE, O_PNG, O_RESOURCE, O_FORCE };

/* clang-format off */
static const struct argp_option options[] = {
    {"state", O_STATE, NULL, 0, "Print what is bound for any command; without: for those that draw", 0},
    {"png", O_PNG, "FILE", 0, "Write a resource as the guest had uploaded it by then, or as it was read back", 0},
    {"resource", O_RESOURCE, "ID", 0, "With --png: which (default: the one that the command names)", 0},
    {"force", O_FORCE, NULL, 0, "With --png: replace FILE", 0},
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Prints one command of a stream in full. N is its number, as `reprise gpu list` prints it; N.D "
    "is "
    "the command at dword D inside of a SUBMIT_3D (`list --inner`). The state is that right after "
    "the "
    "command, rebuilt from the stream; contents of resources are what the guest uploaded, not what "
    "the GPU drew." EXIT_HELP;

#define MOST_VERTICES 16u
#define MOST_DATA     256u

struct show_args {
    const char *path, *png;
    u64 number;
    u32 dword;
    bool has_number, has_dword, has_resource, json, state, force;
    u32 resource;
};

static void option_command(struct argp_state *state, char *arg, struct show_args *a)
{
    char *dot = strchr(arg, '.');
    if (dot) {
        *dot = 0;
        u64 dword = option_number(state, dot + 1, "the dword");
        if (dword > UINT32_MAX)
            argp_error(state, "there is no dword %" PRIu64, dword);
        a->dword = (u32)dword;
        a->has_dword = true;
    }
    a->number = option_number(state, arg, "the command");
    a->has_number = true;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct show_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
    case O_STATE: a->state = true; break;
    case O_FORCE: a->force = true; break;
    case O_PNG: a->png = arg; break;
    case O_RESOURCE: {
        u64 id = option_number(state, arg, "--resource");
        if (!id || id > UINT32_MAX)
            argp_error(state, "--resource: there is no resource %" PRIu64, id);
        a->resource = (u32)id;
        a->has_resource = true;
        break;
    }
    case ARGP_KEY_ARGS: {
        char **number = option_recording_and(state, 1, &a->path);
        if (number)
            option_command(state, *number, a);
        break;
    }
    case ARGP_KEY_END:
        if (!a->has_number)
            argp_error(state, "which command? `reprise gpu list` has their numbers");
        if (!a->path || !*a->path)
            argp_error(state, "which recording or " GPU_LOG_NAME "?");
        if (!a->png && (a->has_resource || a->force))
            argp_error(state, "--resource and --force are for --png");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The command that is shown, and what belongs to it. Its bytes are kept: the log moves on. */
struct shown {
    struct gpu_log_reader *log;
    struct gpu_stream *state;
    pos_t position;
    vns_t time;
    u64 frame;
    u8 *words;
    struct gpu_command command;
    struct virgl_command inner; /* desc NULL and words NULL: the command itself */
    bool answered;
    struct gpu_record reply; /* valid until the next record */
};

static bool is_inner(const struct shown *s)
{
    return s->inner.words;
}

static bool draws(const struct shown *s)
{
    return is_inner(s) && virgl_draws(&s->inner);
}

static int find_inner(const struct show_args *a, struct shown *s, struct err *err)
{
    struct virgl_walk w;
    struct virgl_command v;
    if (s->command.type != VIRTIO_GPU_CMD_SUBMIT_3D || !s->command.payload)
        return err_set(err, -EINVAL, "command %" PRIu64 " is a %s: it has no commands inside",
                       a->number, gpu_command_name(s->command.type));
    virgl_walk_start(&w, s->command.payload, s->command.payload_size);
    while (virgl_next(&w, &v))
        if (v.at == a->dword) {
            s->inner = v;
            return 0;
        }
    return err_set(err, -ENOENT,
                   "no command starts at dword %u of command %" PRIu64
                   "; `reprise gpu list --inner` has them",
                   a->dword, a->number);
}

/* Prints uploads or read-backs with their first bytes. */
static int print_ranges(const struct show_args *a, struct shown *s, const char *name,
                        const struct gpu_ranges *ranges, struct err *err)
{
    struct gpu_range range;
    u8 head[64];
    const char *comma = "";
    int code = 0;
    if (a->json)
        printf(",\"%s\":[", name);
    for (u32 at = 0; !code && gpu_ranges_next(ranges, &at, &range);) {
        if (is_inner(s) && range.at != s->inner.at)
            continue;
        u64 n = MIN(range.bytes.size, (u64)sizeof(head));
        code = gpu_log_read(s->log, &range.bytes, 0, head, n, err);
        if (a->json) {
            printf("%s{\"dword\":%u,\"resource\":%u,\"offset\":%" PRIu64 ",\"size\":%" PRIu64
                   ",\"head\":\"",
                   comma, range.at, range.resource, range.offset, range.bytes.size);
            for (u64 i = 0; !code && i < n; i++)
                printf("%02x", head[i]);
            fputs("\"}", stdout);
            comma = ",";
        } else {
            printf("%s: resource %u, offset %" PRIu64 ", %" PRIu64 " bytes", name, range.resource,
                   range.offset, range.bytes.size);
            if (range.at)
                printf(" (dword %u)", range.at);
            putchar(':');
            for (u64 i = 0; !code && i < n; i++)
                printf("%s%02x", i % 4 ? "" : " ", head[i]);
            puts(range.bytes.size > n ? " ..." : "");
        }
    }
    if (a->json)
        putchar(']');
    return code;
}

static void print_head(const struct show_args *a, struct shown *s)
{
    const struct gpu_command *c = &s->command;
    char text[128];
    printf("command %" PRIu64, a->number);
    if (is_inner(s))
        printf(".%u: %s, in a", a->dword, virgl_title(&s->inner, text, sizeof(text)));
    else
        putchar(':');
    printf(" %s, position %" PRIu64 ", %.9f s\n", gpu_command_name(c->type), s->position,
           (double)s->time / 1e9);
    if (s->frame)
        printf("completes frame %" PRIu64 "\n", s->frame);
    printf("    type: 0x%x\n    flags: %s\n    fence_id: %" PRIu64 "\n    ctx_id: %u\n", c->type,
           gpu_value_text(GPU_ENUM_header_flags, c->flags, text, sizeof(text)), c->fence, c->ctx);
    struct gpu_fields it;
    if (is_inner(s))
        virgl_fields(&s->inner, &it);
    else
        gpu_command_fields(c, &it);
    gpu_print_long(stdout, &it, 4, MOST_DATA);
    const char *problem = is_inner(s) ? s->inner.problem : c->problem;
    if (problem)
        printf("    (%s)\n", problem);
}

static void json_head(const struct show_args *a, struct shown *s)
{
    const struct gpu_command *c = &s->command;
    struct gpu_fields it;
    struct virgl_shader_info shader;
    char text[128];
    printf("{\"number\":%" PRIu64 ",\"position\":%" PRIu64 ",\"time\":%" PRIu64
           ",\"ctx\":%u,\"flags\":%u,\"fence\":%" PRIu64,
           a->number, s->position, s->time, c->ctx, c->flags, c->fence);
    if (s->frame)
        printf(",\"frame\":%" PRIu64, s->frame);
    if (is_inner(s))
        printf(",\"dword\":%u,\"command\":", a->dword);
    else
        fputs(",\"command\":", stdout);
    json_text(stdout,
              is_inner(s) ? virgl_title(&s->inner, text, sizeof(text)) : gpu_command_name(c->type));
    fputs(",\"fields\":", stdout);
    if (is_inner(s))
        virgl_fields(&s->inner, &it);
    else
        gpu_command_fields(c, &it);
    gpu_json_long(stdout, &it, UINT32_MAX);
    if (is_inner(s) && virgl_shader(&s->inner, &shader)) {
        fputs(",\"text\":", stdout);
        json_string(stdout, shader.text, shader.size);
    }
    const char *problem = is_inner(s) ? s->inner.problem : c->problem;
    if (problem) {
        fputs(",\"problem\":", stdout);
        json_text(stdout, problem);
    }
}

static int print_reply(const struct show_args *a, struct shown *s, struct err *err)
{
    if (!s->answered) {
        if (!a->json && !is_inner(s))
            puts("no answer");
        return 0;
    }
    const struct gpu_rec_reply *r = &s->reply.reply;
    if (a->json) {
        printf(",\"reply\":{\"position\":%" PRIu64 ",\"time\":%" PRIu64 ",\"type\":%" PRIu64
               ",\"response\":",
               s->reply.position, s->reply.time, r->response);
        json_text(stdout, gpu_response_name((u32)r->response));
        printf(",\"size\":%" PRIu64, r->body.size);
    } else {
        printf("answer: %s, position %" PRIu64 ", %.9f s", gpu_response_name((u32)r->response),
               s->reply.position, (double)s->reply.time / 1e9);
        if (r->body.size)
            printf(", %" PRIu64 " bytes", r->body.size);
        putchar('\n');
    }
    int code = print_ranges(a, s, "readback", &r->readback, err);
    if (a->json)
        putchar('}');
    return code;
}

/* Which resource is meant by --png. */
static u32 named_resource(const struct show_args *a, const struct shown *s)
{
    struct gpu_fields it;
    struct gpu_field f;
    u32 list[GPU_RESOURCES_MAX];
    if (a->has_resource)
        return a->resource;
    if (is_inner(s))
        return virgl_resources(&s->inner, list) ? list[0] : 0;
    gpu_command_fields(&s->command, &it);
    while (gpu_field_next(&it, &f))
        if (f.kind == GPU_RESOURCE)
            return (u32)f.value;
    return 0;
}

/* A row of a resource, without its alpha. */
static void resource_row(void *opaque, u32 y, u8 *rgb)
{
    const struct gpu_stream_resource *r = opaque;
    const struct gpu_format *f = gpu_format(r->shape.format);
    for (u32 x = 0; x < r->shape.width; x++) {
        u8 rgba[4];
        gpu_picture_row(f->number, r->contents + ((u64)y * r->shape.width + x) * f->bytes, 1, rgba);
        memcpy(rgb + (size_t)x * 3, rgba, 3);
    }
}

static int write_png(const struct show_args *a, const struct shown *s, struct err *err)
{
    struct output_file out;
    u32 id = named_resource(a, s);
    const struct gpu_stream_resource *r = gpu_stream_resource(s->state, id);
    if (!id)
        return err_set(err, -EINVAL, "the command names no resource; say which with --resource");
    if (!r)
        return err_set(err, -ENOENT, "there is no resource %u at that command", id);
    const struct gpu_format *f = gpu_format(r->shape.format);
    if (!r->shape.target || !gpu_picture_format(r->shape.format))
        return err_set(err, -EINVAL, "resource %u is %s; no picture is made of it", id,
                       !r->shape.target ? "a buffer"
                       : f              ? f->name
                                        : "of an unknown format");
    if (!r->contents)
        return err_set(err, -ENODATA, "nothing was uploaded to resource %u by then", id);
    int code = output_open(&out, a->png, a->force, err);
    if (!code &&
        picture_write(out.file, r->shape.width, r->shape.height, resource_row, (void *)r, err))
        code = err_prefix(err, "%s", a->png);
    if (!code)
        code = output_commit(&out, err);
    output_discard(&out);
    if (!code && !a->json)
        printf("%s: resource %u, %ux%u %s\n", a->png, id, r->shape.width, r->shape.height, f->name);
    return code;
}

/* Reads up to the command; then the uploads are still there. */
static int seek(const struct show_args *a, struct shown *s, struct gpu_record *rec, struct err *err)
{
    while (gpu_log_next(s->log, rec)) {
        bool found = rec->type == GPU_REC_COMMAND && rec->number == a->number;
        if (found) {
            s->position = rec->position;
            s->time = rec->time;
            s->frame = rec->frame;
            s->words = malloc((size_t)rec->command.words.len + 1);
            if (!s->words)
                return err_set(err, -ENOMEM, "no memory for the command");
            if (rec->command.words.len)
                memcpy(s->words, rec->command.words.data, rec->command.words.len);
            struct gpu_record kept = *rec; /* with bytes that stay */
            kept.command.words.data = s->words;
            gpu_record_command(&kept, &s->command);
            if (a->has_dword && find_inner(a, s, err))
                return err->code;
        }
        int code = gpu_stream_step(s->state, s->log, rec,
                                   found && a->has_dword ? a->dword : GPU_NO_DWORD, err);
        if (code || found)
            return code;
    }
    const struct chunk_damage *d = gpu_log_damage(s->log);
    struct gpu_log_sizes sizes;
    gpu_log_reader_sizes(s->log, &sizes);
    return err_set(err, -ENOENT, "there is no command %" PRIu64 ": the log has %" PRIu64 "%s%s",
                   a->number, sizes.commands, *d->text ? "; it ends early: " : "", d->text);
}

static int show(const struct show_args *a, struct shown *s, struct err *err)
{
    struct gpu_record rec;
    int code = seek(a, s, &rec, err);
    if (code)
        return code;
    if (a->json)
        json_head(a, s);
    else
        print_head(a, s);
    code = print_ranges(a, s, "uploads", &rec.command.uploads, err);
    if (!code && !is_inner(s) && s->command.type == VIRTIO_GPU_CMD_SUBMIT_3D && !a->json) {
        struct virgl_walk w;
        struct virgl_command v;
        struct gpu_fields it;
        char title[96];
        virgl_walk_start(&w, s->command.payload, s->command.payload ? s->command.payload_size : 0);
        while (virgl_next(&w, &v)) {
            printf("    .%-5u %s", v.at, virgl_title(&v, title, sizeof(title)));
            virgl_fields(&v, &it);
            gpu_print_fields(stdout, &it, &gpu_print_line);
            printf(v.problem ? " (%s)\n" : "\n", v.problem);
        }
    }
    if (!code && draws(s) && s->inner.id == VIRGL_CCMD_DRAW_VBO && !a->json)
        gpu_print_vertices(stdout, s->state, s->command.ctx, &s->inner, MOST_VERTICES);
    if (!code && (a->state || draws(s))) {
        if (a->json) {
            fputs(",\"state\":", stdout);
            gpu_json_bound(stdout, s->state, s->command.ctx);
        } else {
            puts("bound:");
            gpu_print_bound(stdout, s->state, s->command.ctx);
        }
    }
    while (!code && !s->answered && gpu_log_next(s->log, &s->reply))
        s->answered = s->reply.type == GPU_REC_REPLY && s->reply.number == a->number;
    if (!code)
        code = print_reply(a, s, err);
    if (!code && s->answered && a->png)
        code = gpu_stream_readback(s->state, s->log, &s->command, &s->reply, err);
    if (a->json)
        puts("}");
    return code ? code : a->png ? write_png(a, s, err) : 0;
}

int gpu_show(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR|FILE] N[.D]", .doc = doc};
    struct show_args a = {0};
    struct shown s = {0};
    struct err err = {0};
    option_parse(&argp, argc, argv, &a);
    struct output_file probe;
    /* Before anything is printed. */
    if (a.png && output_open(&probe, a.png, a.force, &err))
        return cmd_fail(&err);
    if (a.png)
        output_discard(&probe);
    if (gpu_open(a.path, &s.log, &err))
        return cmd_fail(&err);
    s.state = gpu_stream_create();
    int code = s.state ? show(&a, &s, &err)
                       : err_set(&err, -ENOMEM, "no memory for the state of the GPU stream");
    gpu_stream_destroy(s.state);
    gpu_log_reader_destroy(s.log);
    free(s.words);
    return code ? cmd_fail(&err) : EX_FINE;
}
