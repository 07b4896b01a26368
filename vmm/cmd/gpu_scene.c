/* See gpu_scene.h. */
#include "cmd/gpu_scene.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "cmd/gpu.h"
#include "machine/machine.h"
#include "virtio-gpu-log/print.h"

static void note(struct gpu_scene *p, const struct gpu_record *rec, const struct gpu_command *c)
{
    struct gpu_scene_command *last = &p->last[rec->number % GPU_SCENE_COMMANDS];
    struct virgl_walk w;
    struct virgl_command v;
    *last = (struct gpu_scene_command){.number = rec->number,
                                       .frame = rec->frame,
                                       .position = rec->position,
                                       .type = c->type,
                                       .ctx = c->ctx,
                                       .size = c->size};
    p->commands = rec->number + 1;
    p->frames = rec->frame ? rec->frame : p->frames;
    if (c->type != VIRTIO_GPU_CMD_SUBMIT_3D)
        return;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v)) {
        last->inner++;
        last->draws += virgl_draws(&v);
    }
}

int gpu_scene_find(struct gpu_scene *out, const char *dir, struct machine *m, struct err *err)
{
    struct gpu_log_reader *log;
    struct gpu_record rec;
    struct gpu_command c;
    struct dev_screen screen;
    memset(out, 0, sizeof(*out));
    if (!machine_screen(m, &screen))
        return err_set(err, -ENOTSUP, "this was recorded without a GPU (record --gpu)");
    int code = gpu_open(dir, &log, err);
    if (code)
        return code;
    out->state = gpu_stream_create();
    if (!out->state)
        code = err_set(err, -ENOMEM, "no memory for the GPU's state");
    while (!code && gpu_log_next(log, &rec)) {
        if (rec.type == GPU_REC_COMMAND) {
            if (rec.number == screen.commands)
                break;
            gpu_record_command(&rec, &c);
            note(out, &rec, &c);
        }
        code = gpu_stream_step(out->state, log, &rec, GPU_NO_DWORD, err);
    }
    if (!code && out->commands < screen.commands)
        code = err_set(err, -EIO, "%s/" GPU_LOG_NAME " ends before this place: %s", dir,
                       gpu_log_damage(log)->text);
    gpu_log_reader_destroy(log);
    if (code)
        gpu_scene_free(out);
    return code;
}

void gpu_scene_free(struct gpu_scene *p)
{
    gpu_stream_destroy(p->state);
    memset(p, 0, sizeof(*p));
}

static u32 objects_of(const struct gpu_stream_context *c, u32 *subs)
{
    u32 n = 0;
    *subs = 0;
    for (const struct gpu_sub *s = c->subs; s; s = s->next) {
        ++*subs;
        for (u32 i = 0; i < GPU_BUCKETS; i++)
            for (const struct gpu_object *o = s->objects[i]; o; o = o->next)
                n++;
    }
    return n;
}

/* Resources in the order of their ids. */
static const struct gpu_stream_resource *next_resource(const struct gpu_stream *s, u64 from)
{
    const struct gpu_stream_resource *next = NULL;
    for (u32 i = 0; i < GPU_BUCKETS; i++)
        for (const struct gpu_stream_resource *r = s->resources[i]; r; r = r->next)
            if (r->id >= from && (!next || r->id < next->id))
                next = r;
    return next;
}

static const struct gpu_stream_context *next_context(const struct gpu_stream *s, u64 from)
{
    const struct gpu_stream_context *next = NULL;
    for (const struct gpu_stream_context *c = s->contexts; c; c = c->next)
        if (c->id >= from && (!next || c->id < next->id))
            next = c;
    return next;
}

static const char *format_name(u32 format)
{
    const struct gpu_format *f = gpu_format(format);
    return f ? f->name : "unknown format";
}

static const struct gpu_scene_command *oldest(const struct gpu_scene *p, u64 *n)
{
    *n = p->commands > GPU_SCENE_COMMANDS ? p->commands - GPU_SCENE_COMMANDS : 0;
    return &p->last[*n % GPU_SCENE_COMMANDS];
}

void gpu_scene_print(FILE *out, const struct gpu_scene *p)
{
    const struct gpu_stream *s = p->state;
    char text[128];
    u64 n;
    fprintf(out, "%" PRIu64 " commands, %" PRIu64 " frames; %u contexts, %u resources", p->commands,
            p->frames, s->context_count, s->resource_count);
    if (s->shown[0])
        fprintf(out, "; shown: resource %u\n", s->shown[0]);
    else
        fputs("; the screen is off\n", out);
    if (s->contexts)
        fputs(" context  sub-contexts  objects  bound  name\n", out);
    for (const struct gpu_stream_context *c = next_context(s, 0); c;
         c = next_context(s, c->id + 1ull)) {
        u32 subs, objects = objects_of(c, &subs);
        fprintf(out, "%8u  %12u  %7u  %5u  %s\n", c->id, subs, objects, c->current->count, c->name);
    }
    if (s->resource_count)
        fputs("resource  size                 memory      kind and format\n", out);
    for (const struct gpu_stream_resource *r = next_resource(s, 0); r;
         r = next_resource(s, r->id + 1ull)) {
        char size[48];
        snprintf(size, sizeof(size), "%ux%ux%u", r->shape.width, r->shape.height,
                 MAX(r->shape.depth, r->shape.array_size));
        fprintf(out, "%8u  %-20s %-10" PRIu64 "  %s %s%s\n", r->id, size, r->backing,
                gpu_value_text(GPU_ENUM_target, r->shape.target, text, sizeof(text)),
                format_name(r->shape.format), r->id == s->shown[0] ? ", shown" : "");
    }
    for (const struct gpu_scene_command *c = oldest(p, &n); n < p->commands;
         c = &p->last[++n % GPU_SCENE_COMMANDS]) {
        fprintf(out, "%8" PRIu64 "  position %" PRIu64 ": %s", c->number, c->position,
                gpu_command_name(c->type));
        if (c->ctx)
            fprintf(out, ", context %u", c->ctx);
        if (c->inner)
            fprintf(out, ", %u commands, %u of them draw", c->inner, c->draws);
        if (c->frame)
            fprintf(out, ", frame %" PRIu64, c->frame);
        fputc('\n', out);
    }
}

void gpu_scene_json(FILE *out, const struct gpu_scene *p)
{
    const struct gpu_stream *s = p->state;
    const char *comma = "";
    u64 n;
    fprintf(out, "{\"commands\":%" PRIu64 ",\"frames\":%" PRIu64 ",\"shown\":%u,\"contexts\":[",
            p->commands, p->frames, s->shown[0]);
    for (const struct gpu_stream_context *c = next_context(s, 0); c;
         c = next_context(s, c->id + 1ull)) {
        u32 subs, objects = objects_of(c, &subs);
        fprintf(out, "%s{\"context\":%u,\"name\":", comma, c->id);
        json_text(out, c->name);
        fprintf(out, ",\"sub_contexts\":%u,\"objects\":%u,\"bound\":", subs, objects);
        gpu_json_bound(out, s, c->id);
        fputc('}', out);
        comma = ",";
    }
    fputs("],\"resources\":[", out);
    comma = "";
    for (const struct gpu_stream_resource *r = next_resource(s, 0); r;
         r = next_resource(s, r->id + 1ull)) {
        fprintf(out,
                "%s{\"resource\":%u,\"target\":%u,\"format\":\"%s\",\"width\":%u,\"height\":%u,"
                "\"depth\":%u,\"array_size\":%u,\"levels\":%u,\"samples\":%u,\"backing\":%" PRIu64
                "}",
                comma, r->id, r->shape.target, format_name(r->shape.format), r->shape.width,
                r->shape.height, r->shape.depth, r->shape.array_size, r->shape.last_level + 1,
                r->shape.nr_samples, r->backing);
        comma = ",";
    }
    fputs("],\"last\":[", out);
    comma = "";
    for (const struct gpu_scene_command *c = oldest(p, &n); n < p->commands;
         c = &p->last[++n % GPU_SCENE_COMMANDS]) {
        fprintf(out,
                "%s{\"number\":%" PRIu64 ",\"position\":%" PRIu64
                ",\"command\":\"%s\",\"ctx\":%u,\"inner\":%u,\"draws\":%u}",
                comma, c->number, c->position, gpu_command_name(c->type), c->ctx, c->inner,
                c->draws);
        comma = ",";
    }
    fputs("]}\n", out);
}
