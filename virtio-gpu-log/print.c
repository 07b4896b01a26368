/* See print.h. */
#include "virtio-gpu-log/print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"

#define SHORT_BYTES 16u

static float as_float(u64 value)
{
    u32 word = (u32)value;
    float f;
    memcpy(&f, &word, 4);
    return f;
}

static double as_double(u64 value)
{
    double d;
    memcpy(&d, &value, 8);
    return d;
}

static void print_quoted(FILE *out, const u8 *data, u32 size)
{
    fputc('"', out);
    for (u32 i = 0; i < size; i++)
        fputc(data[i] >= ' ' && data[i] <= '~' ? data[i] : data[i] == '\n' ? ' ' : '?', out);
    fputc('"', out);
}

static u32 text_size(const u8 *data, u32 size)
{
    return (u32)strnlen((const char *)data, size);
}

static void print_hex(FILE *out, const u8 *data, u32 size, u32 most)
{
    for (u32 i = 0; i + 4 <= size && i < most; i += 4)
        fprintf(out, "%s%08x", i ? " " : "", gpu_u32(data + i));
    if (size > most)
        fprintf(out, " ... (%u bytes)", size);
}

static void print_floats(FILE *out, const u8 *data, u32 size, u32 most)
{
    for (u32 i = 0; i + 4 <= size && i < most; i += 4)
        fprintf(out, "%s%g", i ? " " : "", (double)as_float(gpu_u32(data + i)));
    if (size > most)
        fprintf(out, " ... (%u bytes)", size);
}

static void print_value(FILE *out, const struct gpu_field *f, u32 most)
{
    char text[512];
    const struct gpu_format *format;
    switch (f->kind) {
    case GPU_SIGNED: fprintf(out, "%d", (int)(u32)f->value); break;
    case GPU_HEX:
    case GPU_HEX64: fprintf(out, "0x%" PRIx64, f->value); break;
    case GPU_FLOAT: fprintf(out, "%g", (double)as_float(f->value)); break;
    case GPU_DOUBLE: fprintf(out, "%g", as_double(f->value)); break;
    case GPU_NAMED: fputs(gpu_value_text(f->names, (u32)f->value, text, sizeof(text)), out); break;
    case GPU_FORMAT:
        format = gpu_format((u32)f->value);
        if (format)
            fputs(format->name, out);
        else
            fprintf(out, "%" PRIu64, f->value);
        break;
    case GPU_NAME: print_quoted(out, f->data, f->size); break;
    case GPU_TEXT: print_quoted(out, f->data, text_size(f->data, f->size)); break;
    case GPU_DATA: print_hex(out, f->data, f->size, most); break;
    case GPU_FLOATS: print_floats(out, f->data, f->size, most); break;
    case GPU_SHADER:
    case GPU_COMMANDS: fprintf(out, "(%u bytes)", f->size); break;
    default: fprintf(out, "%" PRIu64, f->value); break;
    }
}

const struct gpu_print_style gpu_print_line = {.repeats = 4, .most = SHORT_BYTES};
const struct gpu_print_style gpu_print_whole = {.repeats = UINT32_MAX, .most = 256};

void gpu_print_fields(FILE *out, struct gpu_fields *it, const struct gpu_print_style *style)
{
    struct gpu_field f;
    u32 index = GPU_NOT_REPEATED;
    while (gpu_field_next(it, &f)) {
        bool tail = f.kind >= GPU_DATA && f.kind <= GPU_COMMANDS;
        if (f.kind == GPU_COMMANDS || (tail && !f.size) || (!style->zeros && f.packed && !f.value))
            continue;
        if (f.index != GPU_NOT_REPEATED && f.index != index) {
            index = f.index;
            if (index >= style->repeats) {
                fputs(" ...", out);
                return;
            }
            fprintf(out, " [%u]", index);
        }
        fprintf(out, " %s=", f.name);
        print_value(out, &f, style->most);
    }
}

static void json_value(FILE *out, const struct gpu_field *f, u32 most)
{
    char text[512];
    double d;
    const struct gpu_format *format;
    switch (f->kind) {
    case GPU_SIGNED: fprintf(out, "%d", (int)(u32)f->value); break;
    case GPU_BOOL: fputs(f->value ? "true" : "false", out); break;
    case GPU_FLOAT:
    case GPU_DOUBLE:
        d = f->kind == GPU_FLOAT ? (double)as_float(f->value) : as_double(f->value);
        /* JSON has no number for the rest. */
        if (isfinite(d))
            fprintf(out, f->kind == GPU_FLOAT ? "%.9g" : "%.17g", d);
        else
            fprintf(out, "\"%s\"", isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        break;
    case GPU_NAMED:
        gpu_value_text(f->names, (u32)f->value, text, sizeof(text));
        json_text(out, text);
        break;
    case GPU_FORMAT:
        format = gpu_format((u32)f->value);
        if (format)
            json_text(out, format->name);
        else
            fprintf(out, "%" PRIu64, f->value);
        break;
    case GPU_NAME: json_string(out, f->data, f->size); break;
    case GPU_TEXT: json_string(out, f->data, text_size(f->data, f->size)); break;
    case GPU_DATA:
    case GPU_FLOATS:
        fputc('[', out);
        for (u32 i = 0; i + 4 <= f->size && i < most; i += 4)
            fprintf(out, "%s%u", i ? "," : "", gpu_u32(f->data + i));
        fputc(']', out);
        break;
    case GPU_SHADER:
    case GPU_COMMANDS: fprintf(out, "%u", f->size); break;
    default: fprintf(out, "%" PRIu64, f->value); break;
    }
}

static void json_fields(FILE *out, struct gpu_fields *it, u32 most)
{
    struct gpu_field f;
    u32 index = GPU_NOT_REPEATED;
    bool comma = false;
    fputc('{', out);
    while (gpu_field_next(it, &f)) {
        if (f.index != GPU_NOT_REPEATED && f.index != index) {
            if (index == GPU_NOT_REPEATED)
                fprintf(out, "%s\"each\":[{", comma ? "," : "");
            else
                fputs("},{", out);
            index = f.index;
            comma = false;
        }
        fprintf(out, "%s\"%s\":", comma ? "," : "", f.name);
        json_value(out, &f, most);
        comma = true;
    }
    fputs(index == GPU_NOT_REPEATED ? "}" : "}]}", out);
}

void gpu_json_fields(FILE *out, struct gpu_fields *it)
{
    json_fields(out, it, SHORT_BYTES);
}

char *virgl_title(const struct virgl_command *c, char *out, size_t size)
{
    char text[64];
    bool typed = c->id == VIRGL_CCMD_BIND_OBJECT || c->id == VIRGL_CCMD_DESTROY_OBJECT;
    if (c->id == VIRGL_CCMD_CREATE_OBJECT && c->desc)
        snprintf(out, size, "CREATE_OBJECT %s", c->desc->name);
    else if (c->id == VIRGL_CCMD_CREATE_OBJECT)
        snprintf(out, size, "CREATE_OBJECT type %u", c->object);
    else if (c->desc)
        snprintf(out, size, "%s%s%s", c->desc->name, typed ? " " : "",
                 typed ? gpu_value_text(GPU_ENUM_object, c->object, text, sizeof(text)) : "");
    else
        snprintf(out, size, "command %u", c->id);
    return out;
}

/* Lines of a guest's text, each after `indent` blanks. */
static void print_text(FILE *out, const u8 *text, u32 size, int indent)
{
    bool start = true;
    for (u32 i = 0; i < size && text[i]; i++) {
        if (start)
            fprintf(out, "%*s", indent, "");
        start = text[i] == '\n';
        fputc((text[i] >= ' ' && text[i] <= '~') || start ? text[i] : '?', out);
    }
    if (!start)
        fputc('\n', out);
}

/* The parts of a shader's tail: stream outputs, then text. `data` is what follows its fields. */
static void print_shader(FILE *out, u32 stage, u32 outputs, const u8 *data, u32 size, int indent)
{
    enum { COMPUTE = 5, MOST = 64 };
    u32 skip = 0;
    if (stage != COMPUTE && outputs && outputs <= MOST && size >= 16 + outputs * 8) {
        for (u32 i = 0; i < 4; i++)
            fprintf(out, "%*sso_stride[%u]: %u\n", indent, "", i, gpu_u32(data + i * 4));
        for (u32 i = 0; i < outputs; i++) {
            u32 o = gpu_u32(data + 16 + i * 8), stream = gpu_u32(data + 20 + i * 8);
            fprintf(out,
                    "%*sso_output[%u]: register %u, components %u from %u, buffer %u, offset %u, "
                    "stream %u\n",
                    indent, "", i, o & 0xff, o >> 10 & 7, o >> 8 & 3, o >> 13 & 7, o >> 16,
                    stream & 3);
        }
        skip = 16 + outputs * 8;
    }
    fprintf(out, "%*stext:\n", indent, "");
    print_text(out, data + skip, size - skip, indent + 4);
}

void gpu_print_long(FILE *out, struct gpu_fields *it, int indent, u32 most)
{
    struct gpu_field f;
    u32 index = GPU_NOT_REPEATED, stage = 0, outputs = 0;
    while (gpu_field_next(it, &f)) {
        if (f.index != GPU_NOT_REPEATED && f.index != index) {
            index = f.index;
            fprintf(out, "%*s[%u]\n", indent, "", index);
        }
        if (f.names == GPU_ENUM_shader)
            stage = (u32)f.value;
        outputs = (u32)f.value; /* the field right before a shader's tail */
        if (f.kind == GPU_COMMANDS)
            continue;
        if (f.kind == GPU_SHADER) {
            print_shader(out, stage, outputs, f.data, f.size, indent);
            continue;
        }
        fprintf(out, "%*s%s: ", indent + (f.index == GPU_NOT_REPEATED ? 0 : 4), "", f.name);
        print_value(out, &f, most);
        fputc('\n', out);
    }
}

void gpu_json_long(FILE *out, struct gpu_fields *it, u32 most)
{
    json_fields(out, it, most);
}

static void print_resource_line(FILE *out, const struct gpu_stream *s, u32 id, int indent)
{
    const struct gpu_stream_resource *r = gpu_stream_resource(s, id);
    char text[128];
    if (!r) {
        fprintf(out, "%*sresource %u: there is none\n", indent, "", id);
        return;
    }
    const struct gpu_format *f = gpu_format(r->shape.format);
    fprintf(out, "%*sresource %u: %s %s %ux%u", indent, "", id,
            gpu_value_text(GPU_ENUM_target, r->shape.target, text, sizeof(text)),
            f ? f->name : "unknown format", r->shape.width, r->shape.height);
    if (r->shape.depth > 1)
        fprintf(out, "x%u", r->shape.depth);
    if (r->shape.array_size > 1)
        fprintf(out, ", %u layers", r->shape.array_size);
    if (r->shape.last_level)
        fprintf(out, ", levels 0 to %u", r->shape.last_level);
    if (r->shape.nr_samples > 1)
        fprintf(out, ", %u samples", r->shape.nr_samples);
    fprintf(out, ", made by command %" PRIu64, r->created.number);
    if (r->written.number != NEVER)
        fprintf(out, ", last uploaded by %" PRIu64, r->written.number);
    fputc('\n', out);
}

static void print_origin(FILE *out, struct gpu_origin o)
{
    fprintf(out, "%" PRIu64, o.number);
    if (o.at != GPU_NO_DWORD)
        fprintf(out, ".%u", o.at);
}

static void print_object(FILE *out, const struct gpu_stream *s, const struct gpu_sub *sub,
                         u32 handle, int indent)
{
    const struct gpu_object *o = gpu_stream_object(sub, handle);
    char title[96];
    struct gpu_fields it;
    struct gpu_field f;
    u32 resources[GPU_RESOURCES_MAX];
    if (!handle)
        return;
    if (!o) {
        fprintf(out, "%*sobject %u: there is none\n", indent, "", handle);
        return;
    }
    fprintf(out, "%*s%s %u (made by ", indent, "",
            gpu_value_text(GPU_ENUM_object, o->type, title, sizeof(title)), handle);
    print_origin(out, o->created);
    fputs("):", out);
    if (!o->text) {
        virgl_fields(&o->command, &it);
        gpu_print_fields(out, &it, &gpu_print_whole);
    }
    fputc('\n', out);
    if (o->text) {
        virgl_fields(&o->command, &it);
        while (gpu_field_next(&it, &f))
            if (f.names == GPU_ENUM_shader)
                fprintf(out, "%*sstage: %s\n", indent + 4, "",
                        gpu_value_text(f.names, (u32)f.value, title, sizeof(title)));
        if (o->text_size > strlen(o->text))
            fprintf(out, "%*s(%zu of %u bytes)\n", indent + 4, "", strlen(o->text), o->text_size);
        print_text(out, (const u8 *)o->text, UINT32_MAX, indent + 4);
        return;
    }
    u32 n = virgl_resources(&o->command, resources);
    for (u32 i = 0; i < n; i++)
        print_resource_line(out, s, resources[i], indent + 4);
}

static const char *stage_name(const struct gpu_bound *b, char *text, size_t size)
{
    for (u32 i = 0; b->command.desc && i < b->command.desc->nrows; i++)
        if (b->command.desc->rows[i].names == GPU_ENUM_shader)
            return gpu_value_text(GPU_ENUM_shader, b->stage, text, size);
    return virgl_effect(&b->command) == GPU_BINDS
               ? gpu_value_text(GPU_ENUM_object, b->stage, text, size)
               : "";
}

static const struct gpu_sub *current(const struct gpu_stream *s, u32 ctx)
{
    const struct gpu_stream_context *c = gpu_stream_context(s, ctx);
    return c ? c->current : NULL;
}

void gpu_print_bound(FILE *out, const struct gpu_stream *s, u32 ctx)
{
    const struct gpu_stream_context *c = gpu_stream_context(s, ctx);
    char stage[96];
    if (!c) {
        fprintf(out, "context %u: there is none\n", ctx);
        return;
    }
    fprintf(out, "context %u \"%s\", sub-context %u\n", c->id, c->name, c->current->id);
    for (u32 i = 0; i < c->current->count; i++) {
        const struct gpu_bound *b = &c->current->bound[i];
        struct gpu_fields it;
        struct gpu_field f;
        u32 resources[GPU_RESOURCES_MAX];
        fprintf(out, "%s", b->command.desc->name);
        if (*stage_name(b, stage, sizeof(stage)))
            fprintf(out, " %s", stage_name(b, stage, sizeof(stage)));
        fprintf(out, " [%u] (set by ", b->slot);
        print_origin(out, b->origin);
        fputs("):", out);
        virgl_fields(&b->command, &it);
        gpu_print_fields(out, &it, &gpu_print_whole);
        fputc('\n', out);
        virgl_fields(&b->command, &it);
        while (gpu_field_next(&it, &f))
            if (f.kind == GPU_OBJECT)
                print_object(out, s, c->current, (u32)f.value, 4);
        u32 n = virgl_resources(&b->command, resources);
        for (u32 k = 0; k < n; k++)
            print_resource_line(out, s, resources[k], 4);
    }
}

static void json_origin(FILE *out, const char *name, struct gpu_origin o)
{
    fprintf(out, "\"%s\":%" PRIu64, name, o.number);
    if (o.at != GPU_NO_DWORD)
        fprintf(out, ",\"%s_at\":%u", name, o.at);
}

static void json_resource(FILE *out, const struct gpu_stream *s, u32 id)
{
    const struct gpu_stream_resource *r = gpu_stream_resource(s, id);
    char text[512];
    fprintf(out, "{\"resource\":%u", id);
    if (r) {
        const struct gpu_format *f = gpu_format(r->shape.format);
        fputs(",\"target\":", out);
        json_text(out, gpu_value_text(GPU_ENUM_target, r->shape.target, text, sizeof(text)));
        fputs(",\"format\":", out);
        json_text(out, f ? f->name : "unknown");
        fprintf(out, ",\"width\":%u,\"height\":%u,\"depth\":%u,\"array_size\":%u,", r->shape.width,
                r->shape.height, r->shape.depth, r->shape.array_size);
        json_origin(out, "created", r->created);
        if (r->written.number != NEVER) {
            fputc(',', out);
            json_origin(out, "written", r->written);
        }
    }
    fputc('}', out);
}

/* Objects and resources that a command names. */
static void json_named(FILE *out, const struct gpu_stream *s, const struct gpu_sub *sub,
                       const struct virgl_command *c, bool objects)
{
    struct gpu_fields it;
    struct gpu_field f;
    u32 resources[GPU_RESOURCES_MAX];
    char text[96];
    const char *comma = "";
    if (objects) {
        fputs(",\"objects\":[", out);
        virgl_fields(c, &it);
        while (gpu_field_next(&it, &f)) {
            const struct gpu_object *o =
                f.kind == GPU_OBJECT ? gpu_stream_object(sub, (u32)f.value) : NULL;
            if (!o)
                continue;
            struct gpu_fields inner;
            fprintf(out, "%s{\"handle\":%u,\"type\":", comma, o->handle);
            json_text(out, gpu_value_text(GPU_ENUM_object, o->type, text, sizeof(text)));
            fputc(',', out);
            json_origin(out, "created", o->created);
            fputs(",\"fields\":", out);
            virgl_fields(&o->command, &inner);
            json_fields(out, &inner, 256);
            if (o->text) {
                fputs(",\"text\":", out);
                json_string(out, o->text, strlen(o->text));
            }
            json_named(out, s, sub, &o->command, false);
            fputc('}', out);
            comma = ",";
        }
        fputc(']', out);
    }
    fputs(",\"resources\":[", out);
    u32 n = virgl_resources(c, resources);
    for (u32 i = 0; i < n; i++) {
        fputs(i ? "," : "", out);
        json_resource(out, s, resources[i]);
    }
    fputc(']', out);
}

void gpu_json_bound(FILE *out, const struct gpu_stream *s, u32 ctx)
{
    const struct gpu_sub *sub = current(s, ctx);
    char stage[96];
    fputc('[', out);
    for (u32 i = 0; sub && i < sub->count; i++) {
        const struct gpu_bound *b = &sub->bound[i];
        struct gpu_fields it;
        fprintf(out, "%s{\"command\":", i ? "," : "");
        json_text(out, b->command.desc->name);
        if (*stage_name(b, stage, sizeof(stage))) {
            fputs(",\"stage\":", out);
            json_text(out, stage);
        }
        fprintf(out, ",\"slot\":%u,", b->slot);
        json_origin(out, "set", b->origin);
        fputs(",\"fields\":", out);
        virgl_fields(&b->command, &it);
        json_fields(out, &it, 4096);
        json_named(out, s, sub, &b->command, true);
        fputc('}', out);
    }
    fputc(']', out);
}

/* One attribute: numbers for 32-bit floats and 8-bit channels, else its bytes. */
static void print_attribute(FILE *out, const struct gpu_format *f, const u8 *p)
{
    if (strstr(f->name, "R32") && strstr(f->name, "FLOAT")) {
        for (u32 i = 0; i + 4 <= f->bytes; i += 4)
            fprintf(out, "%s%g", i ? "," : "", (double)as_float(gpu_u32(p + i)));
    } else if (f->layout[0] && (f->layout[0] < '0' || f->layout[0] > '9')) {
        for (u32 i = 0; i < f->bytes; i++)
            fprintf(out, "%s%u", i ? "," : "", p[i]);
    } else {
        for (u32 i = 0; i < f->bytes; i++)
            fprintf(out, "%02x", p[i]);
    }
}

/* Index `i` of a draw: from its index buffer, or counted. false: not known. */
static bool vertex_index(const struct gpu_stream *s, const struct gpu_sub *sub,
                         const struct virgl_command *draw, u32 i, u32 *out)
{
    u32 start = virgl_word(draw, 1);
    *out = start + i;
    if (!virgl_word(draw, 4))
        return true;
    const struct gpu_bound *b = gpu_stream_bound(sub, VIRGL_CCMD_SET_INDEX_BUFFER, 0, 0);
    const struct gpu_stream_resource *r =
        b ? gpu_stream_resource(s, virgl_word(&b->command, 1)) : NULL;
    u32 size = b ? virgl_word(&b->command, 2) : 0;
    if (!r || !r->contents || (size != 1 && size != 2 && size != 4))
        return false;
    u64 at = (u64)virgl_word(&b->command, 3) + ((u64)start + i) * size;
    if (at + size > r->contents_size)
        return false;
    u32 index = 0;
    memcpy(&index, r->contents + at, size);
    *out = index + virgl_word(draw, 6);
    return true;
}

static void print_vertex(FILE *out, const struct gpu_stream *s, const struct gpu_sub *sub,
                         const struct gpu_object *elements, u32 index)
{
    u32 n = elements->command.length ? (elements->command.length - 1) / 4 : 0;
    for (u32 e = 0; e < n; e++) {
        const struct virgl_command *c = &elements->command;
        u32 offset = virgl_word(c, 2 + e * 4), divisor = virgl_word(c, 3 + e * 4);
        u32 slot = virgl_word(c, 4 + e * 4);
        const struct gpu_format *f = gpu_format(virgl_word(c, 5 + e * 4));
        const struct gpu_bound *b = gpu_stream_bound(sub, VIRGL_CCMD_SET_VERTEX_BUFFERS, 0, slot);
        const struct gpu_stream_resource *r =
            b ? gpu_stream_resource(s, virgl_word(&b->command, 3)) : NULL;
        fprintf(out, "  IN[%u]=", e);
        if (!b || !r || !f || !r->contents) {
            fputs("?", out);
            continue;
        }
        u64 row = divisor ? 0 : index; /* of the first instance */
        u64 at = (u64)virgl_word(&b->command, 2) + row * virgl_word(&b->command, 1) + offset;
        if (at + f->bytes > r->contents_size)
            fputs("outside", out);
        else
            print_attribute(out, f, r->contents + at);
    }
}

void gpu_print_vertices(FILE *out, const struct gpu_stream *s, u32 ctx,
                        const struct virgl_command *draw, u32 most)
{
    const struct gpu_sub *sub = current(s, ctx);
    const struct gpu_bound *b =
        sub ? gpu_stream_bound(sub, VIRGL_CCMD_BIND_OBJECT, VIRGL_OBJECT_VERTEX_ELEMENTS, 0) : NULL;
    const struct gpu_object *elements =
        b ? gpu_stream_object(sub, virgl_word(&b->command, 1)) : NULL;
    u32 count = virgl_word(draw, 2);
    if (!elements || elements->type != VIRGL_OBJECT_VERTEX_ELEMENTS)
        return;
    fprintf(out, "vertices, as uploaded (%u):\n", count);
    for (u32 i = 0; i < count && i < most; i++) {
        u32 index;
        if (!vertex_index(s, sub, draw, i, &index)) {
            fputs("    the index buffer was not uploaded\n", out);
            return;
        }
        fprintf(out, "    %u:", index);
        print_vertex(out, s, sub, elements, index);
        fputc('\n', out);
    }
    if (count > most)
        fprintf(out, "    ... %u more\n", count - most);
}
