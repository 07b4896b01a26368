/* `reprise gpu list`: the commands of a stream, one a line; or counts of them. */
#include "cmd/gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "replay/record.h"
#include "virtio-gpu-log/print.h"

enum { O_FROM = 256, O_TO, O_JSON, O_INNER, O_STATS };

/* clang-format off */
static const struct argp_option options[] = {
    {"from", O_FROM, "WHERE", 0, "From there on", 0},
    {"to", O_TO, "WHERE", 0, "Up to there, inclusive", 0},
    {"inner", O_INNER, NULL, 0, "The virgl commands inside of SUBMIT_3D too, as NUMBER.DWORD", 0},
    {"stats", O_STATS, NULL, 0, "Counts and bytes by type and by context instead", 0},
    {"json", O_JSON, NULL, 0, "One JSON object a line; with --stats: one", 0},
    {0},
};
/* clang-format on */

static const char doc[] = "Prints a stream of GPU commands: number (for `show`), position, virtual "
                          "time in seconds, context, "
                          "command, answer unless it is a plain OK. A command that completes a "
                          "frame says which. A log that "
                          "is damaged is printed up to there. WHERE is frame:N (from: its first "
                          "command; to: its last) or "
                          "a position." EXIT_HELP;

struct where {
    bool given, frame;
    u64 n;
};

struct list_args {
    const char *path;
    struct where from, to;
    bool json, inner, stats;
};

static void option_where(struct argp_state *state, const char *arg, const char *what,
                         struct where *out)
{
    out->given = true;
    out->frame = !strncmp(arg, "frame:", 6);
    if (!strncmp(arg, "insn:", 5))
        arg += 5;
    out->n = option_number(state, out->frame ? arg + 6 : arg, what);
    if (out->frame && !out->n)
        argp_error(state, "%s: frames are numbered from 1", what);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct list_args *a = state->input;
    switch (key) {
    case O_FROM: option_where(state, arg, "--from", &a->from); break;
    case O_TO: option_where(state, arg, "--to", &a->to); break;
    case O_JSON: a->json = true; break;
    case O_INNER: a->inner = true; break;
    case O_STATS: a->stats = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->path); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->path);
        if (a->stats && a->inner)
            argp_error(state, "--stats counts the commands inside anyway; leave out --inner");
        if (a->from.given && a->to.given && a->from.frame == a->to.frame && a->to.n < a->from.n)
            argp_error(state, "--to lies before --from");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Is a command in the range? `frames`: completed before it. */
static bool in_range(const struct list_args *a, pos_t position, u64 frames)
{
    if (a->from.given && (a->from.frame ? frames + 1 < a->from.n : position < a->from.n))
        return false;
    return !a->to.given || (a->to.frame ? frames < a->to.n : position <= a->to.n);
}

/* --- One line a command --- */

static u64 ranges_bytes(const struct gpu_ranges *ranges)
{
    struct gpu_range range;
    u64 sum = 0;
    for (u32 at = 0; gpu_ranges_next(ranges, &at, &range);)
        sum += range.bytes.size;
    return sum;
}

/* "12 commands: 3 DRAW_VBO, 1 CLEAR": how many there are, and those that may change what resources
 * hold, by effect. */
static void print_summary(const struct gpu_command *c)
{
    u32 counts[256] = {0}, all = 0;
    bool some[GPU_EFFECTS] = {0};
    struct virgl_walk w;
    struct virgl_command v;
    const char *sep = ": ";
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v)) {
        counts[v.id]++;
        some[virgl_effect(&v)] = true;
        all++;
    }
    printf(" %u commands", all);
    for (u32 effect = GPU_DRAWS; effect < GPU_EFFECTS; effect++)
        for (u32 i = 0; some[effect] && i < virgl_table_size; i++) {
            const struct gpu_desc *d = &virgl_table[i];
            if (d->effect == effect && counts[d->number]) {
                printf("%s%u %s", sep, counts[d->number], d->name);
                sep = ", ";
            }
        }
}

static void print_line(const struct gpu_record *rec, const struct gpu_command *c, u32 response,
                       const struct list_args *a)
{
    struct gpu_fields it;
    char size[32];
    printf("%6" PRIu64 "  %12" PRIu64 "  %13.9f  ", rec->number, rec->position,
           (double)rec->time / 1e9);
    if (c->ctx)
        printf("ctx %-3u ", c->ctx);
    else
        fputs("        ", stdout);
    if (c->desc) {
        fputs(c->desc->name, stdout);
        gpu_command_fields(c, &it);
        gpu_print_fields(stdout, &it, &gpu_print_line);
    } else {
        printf("command 0x%x", c->type);
    }
    if (c->type == VIRTIO_GPU_CMD_SUBMIT_3D && c->payload)
        print_summary(c);
    if (c->flags & VIRTIO_GPU_FLAG_FENCE)
        printf(" fence=%" PRIu64, c->fence);
    if (rec->command.uploads.count)
        printf(" uploads %s", text_bytes(ranges_bytes(&rec->command.uploads), size));
    if (c->problem)
        printf(" (%s)", c->problem);
    struct virgl_problem problem;
    if (c->type == VIRTIO_GPU_CMD_SUBMIT_3D && c->payload &&
        !virgl_check(c->payload, c->payload_size, &problem))
        printf(" (dword %u: %s)", problem.at, problem.text);
    if (rec->frame)
        printf("  = frame %" PRIu64, rec->frame);
    if (response >= VIRTIO_GPU_RESP_ERR_UNSPEC)
        printf(" -> %s", gpu_response_name(response));
    putchar('\n');
    if (!a->inner || !c->payload || c->type != VIRTIO_GPU_CMD_SUBMIT_3D)
        return;
    struct virgl_walk w;
    struct virgl_command v;
    char title[96];
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v)) {
        printf("%6" PRIu64 ".%-5u  %s", rec->number, v.at, virgl_title(&v, title, sizeof(title)));
        virgl_fields(&v, &it);
        gpu_print_fields(stdout, &it, &gpu_print_line);
        if (v.problem)
            printf(" (%s)", v.problem);
        putchar('\n');
    }
}

static void json_ranges(const char *name, const struct gpu_ranges *ranges)
{
    struct gpu_range range;
    const char *comma = "";
    printf(",\"%s\":[", name);
    for (u32 at = 0; gpu_ranges_next(ranges, &at, &range);) {
        printf("%s{\"dword\":%u,\"resource\":%u,\"offset\":%" PRIu64 ",\"size\":%" PRIu64 "}",
               comma, range.at, range.resource, range.offset, range.bytes.size);
        comma = ",";
    }
    putchar(']');
}

static void json_inner(const struct gpu_command *c)
{
    struct virgl_walk w;
    struct virgl_command v;
    struct gpu_fields it;
    char title[96];
    const char *comma = "";
    fputs(",\"commands\":[", stdout);
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v)) {
        printf("%s{\"dword\":%u,\"command\":", comma, v.at);
        json_text(stdout, virgl_title(&v, title, sizeof(title)));
        fputs(",\"fields\":", stdout);
        virgl_fields(&v, &it);
        gpu_json_fields(stdout, &it);
        if (v.problem) {
            fputs(",\"problem\":", stdout);
            json_text(stdout, v.problem);
        }
        putchar('}');
        comma = ",";
    }
    putchar(']');
}

static void print_json(const struct gpu_record *rec, const struct gpu_command *c, u32 response,
                       const struct list_args *a)
{
    struct gpu_fields it;
    struct virgl_problem problem;
    printf("{\"number\":%" PRIu64 ",\"position\":%" PRIu64 ",\"time\":%" PRIu64
           ",\"queue\":\"%s\",\"ctx\":%u,\"type\":%u,\"command\":",
           rec->number, rec->position, rec->time,
           rec->command.queue == GPU_QUEUE_cursor ? "cursor" : "control", c->ctx, c->type);
    json_text(stdout, gpu_command_name(c->type));
    fputs(",\"fields\":", stdout);
    gpu_command_fields(c, &it);
    gpu_json_fields(stdout, &it);
    if (c->flags & VIRTIO_GPU_FLAG_FENCE)
        printf(",\"fence\":%" PRIu64, c->fence);
    printf(",\"size\":%" PRIu64, c->size + rec->command.dropped);
    json_ranges("uploads", &rec->command.uploads);
    if (a->inner && c->payload && c->type == VIRTIO_GPU_CMD_SUBMIT_3D)
        json_inner(c);
    if (c->problem) {
        fputs(",\"problem\":", stdout);
        json_text(stdout, c->problem);
    } else if (c->type == VIRTIO_GPU_CMD_SUBMIT_3D &&
               !virgl_check(c->payload, c->payload_size, &problem)) {
        printf(",\"problem_dword\":%u,\"problem\":", problem.at);
        json_text(stdout, problem.text);
    }
    if (rec->frame)
        printf(",\"frame\":%" PRIu64, rec->frame);
    if (response) {
        fputs(",\"response\":", stdout);
        json_text(stdout, gpu_response_name(response));
    }
    puts("}");
}

/* What happened besides commands. */
static void print_event(const struct gpu_record *rec, bool json)
{
    struct gpu_bytes why = {0};
    const char *name = NULL;
    char text[64] = "";
    if (rec->type == GPU_REC_LOST) {
        name = "lost";
        why = rec->lost.why;
        strcpy(text, "the renderer is gone: ");
    } else if (rec->type == GPU_REC_FAULT) {
        name = "fault";
        why = rec->fault.why;
        snprintf(text, sizeof(text), "context %" PRIu64 " draws no more: ", rec->fault.context);
    } else if (rec->type == GPU_REC_RESET) {
        name = "reset";
        strcpy(text, "the driver reset the device");
    }
    if (name && json) {
        printf("{\"position\":%" PRIu64 ",\"time\":%" PRIu64 ",\"%s\":", rec->position, rec->time,
               name);
        json_string(stdout, why.data, why.len);
        if (rec->type == GPU_REC_FAULT)
            printf(",\"context\":%" PRIu64, rec->fault.context);
        puts("}");
    } else if (name) {
        printf("        %12" PRIu64 "  %13.9f  %s", rec->position, (double)rec->time / 1e9, text);
        for (u32 i = 0; i < why.len; i++)
            putchar(why.data[i] < ' ' || why.data[i] > '~' ? '?' : why.data[i]);
        putchar('\n');
    }
}

/* --- Counts --- */

struct count {
    u32 number; /* type, or context */
    u32 object;
    char name[65];
    u64 count, bytes, carried, draws, refused;
};
struct counts {
    struct count *rows;
    size_t used, room;
};

static struct count *count_of(struct counts *c, u32 number, u32 object)
{
    for (size_t i = 0; i < c->used; i++)
        if (c->rows[i].number == number && c->rows[i].object == object)
            return &c->rows[i];
    if (c->used == c->room) {
        size_t room = c->room ? c->room * 2 : 64;
        struct count *rows = realloc(c->rows, room * sizeof(*rows));
        if (!rows)
            return NULL;
        c->rows = rows;
        c->room = room;
    }
    c->rows[c->used] = (struct count){.number = number, .object = object};
    return &c->rows[c->used++];
}

/* A guest may name contexts and unknown types without end: what is beyond is one row. */
#define MOST_ROWS 4096
static struct count *bounded(struct counts *c, u32 number, u32 object)
{
    return c->used < MOST_ROWS ? count_of(c, number, object) : count_of(c, UINT32_MAX, 0);
}

struct stats {
    struct counts commands, inner, contexts;
    u64 replies, errors, lost, readback;
    pos_t last_position;
    vns_t last_time;
};

static bool stats_command(struct stats *s, const struct gpu_record *rec,
                          const struct gpu_command *c)
{
    struct count *row = bounded(&s->commands, c->type, 0);
    u64 carried = ranges_bytes(&rec->command.uploads);
    if (!row)
        return false;
    row->count++;
    row->bytes += c->size;
    row->carried += carried;
    struct count *ctx = c->ctx ? bounded(&s->contexts, c->ctx, 0) : NULL;
    if (ctx) {
        ctx->count++;
        ctx->bytes += c->size;
        ctx->carried += carried;
    }
    if (c->type == VIRTIO_GPU_CMD_CTX_CREATE && ctx && !c->response) {
        const u8 *name = c->bytes + offsetof(struct virtio_gpu_ctx_create, debug_name);
        memset(ctx->name, 0, sizeof(ctx->name));
        for (u32 i = 0; i < 64 && name[i]; i++)
            ctx->name[i] = (char)(name[i] < ' ' || name[i] > '~' ? '?' : name[i]);
    }
    if (c->type != VIRTIO_GPU_CMD_SUBMIT_3D || !c->payload)
        return true;
    struct virgl_walk w;
    struct virgl_command v;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v)) {
        struct count *in =
            bounded(&s->inner, v.id, v.id == VIRGL_CCMD_CREATE_OBJECT ? v.object : 0);
        if (!in)
            return false;
        in->count++;
        in->bytes += 4 + (u64)v.length * 4;
        in->refused += v.problem || v.desc->treatment == GPU_REFUSE;
        if (ctx && virgl_effect(&v) == GPU_DRAWS)
            ctx->draws++;
    }
    return true;
}

static int by_count(const void *a, const void *b)
{
    const struct count *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->object < y->object ? -1 : x->object > y->object;
}

static const char *inner_name(const struct count *row, char *out, size_t size)
{
    struct virgl_command v = {
        .id = row->number, .object = row->object, .desc = virgl_desc(row->number, row->object)};
    if (row->number == VIRGL_CCMD_BIND_OBJECT || row->number == VIRGL_CCMD_DESTROY_OBJECT)
        snprintf(out, size, "%s", v.desc->name);
    else
        virgl_title(&v, out, size);
    return out;
}

static const char *command_name(const struct count *row, char *out, size_t size)
{
    if (gpu_command_desc(row->number))
        snprintf(out, size, "%s", gpu_command_name(row->number));
    else
        snprintf(out, size, "command 0x%x", row->number);
    return out;
}

static void print_table(const char *title, const struct counts *c,
                        const char *(*name)(const struct count *, char *, size_t))
{
    char text[96], a[32], b[32];
    if (!c->used)
        return;
    puts(title);
    for (size_t i = 0; i < c->used; i++) {
        const struct count *row = &c->rows[i];
        printf("%10" PRIu64 "  %10s  ", row->count, text_bytes(row->bytes, a));
        printf("%10s  %s", row->carried ? text_bytes(row->carried, b) : "",
               name(row, text, sizeof(text)));
        if (row->refused)
            printf("  (%" PRIu64 " refused)", row->refused);
        putchar('\n');
    }
}

static void print_stats(const struct gpu_log_reader *r, const struct stats *s)
{
    const struct gpu_rec_start *h = gpu_log_start(r);
    struct gpu_log_sizes z;
    char a[32], b[32];
    gpu_log_reader_sizes(r, &z);
    printf("made for      %s, %" PRIu64 "x%" PRIu64 ", %" PRIu64 " Hz, %" PRIu64 " scanout%s",
           h->virgl ? "virgl" : "2d", h->width, h->height, h->hz, h->scanouts,
           h->scanouts == 1 ? "" : "s");
    if (h->capset_id)
        printf(", capset %" PRIu64 " version %" PRIu64 " (%u bytes)", h->capset_id,
               h->capset_version, h->capset.len);
    printf("\nlength        %" PRIu64 " commands, %" PRIu64 " frames, to position %" PRIu64
           ", %s\n",
           z.commands, z.frames, s->last_position, text_seconds(s->last_time, a));
    printf("answers       %" PRIu64 ", %" PRIu64 " of them errors\n", s->replies, s->errors);
    if (s->lost)
        printf("renderer      lost %" PRIu64 " time%s\n", s->lost, s->lost == 1 ? "" : "s");
    printf("records       %s", text_bytes(z.words, a));
    printf(" in %s\n", text_bytes(z.packed, b));
    printf("carried       %s", text_bytes(z.carried, a));
    printf(" in %" PRIu64 " pieces of together %s\n", z.contents, text_bytes(z.kept, b));
    printf("file          %s\n", text_bytes(z.file, a));
    print_table("     count       bytes     carried  command", &s->commands, command_name);
    print_table("     count       bytes              inside SUBMIT_3D", &s->inner, inner_name);
    if (!s->contexts.used)
        return;
    puts("     count       bytes     carried       draws  context");
    for (size_t i = 0; i < s->contexts.used; i++) {
        const struct count *c = &s->contexts.rows[i];
        printf("%10" PRIu64 "  %10s  ", c->count, text_bytes(c->bytes, a));
        printf("%10s  %10" PRIu64 "  %u %s\n", c->carried ? text_bytes(c->carried, b) : "",
               c->draws, c->number, c->name);
    }
}

static void json_table(const char *title, const struct counts *c,
                       const char *(*name)(const struct count *, char *, size_t))
{
    char text[96];
    printf(",\"%s\":[", title);
    for (size_t i = 0; i < c->used; i++) {
        const struct count *row = &c->rows[i];
        printf("%s{", i ? "," : "");
        if (name) {
            fputs("\"command\":", stdout);
            json_text(stdout, name(row, text, sizeof(text)));
        } else {
            printf("\"ctx\":%u,\"draws\":%" PRIu64 ",\"name\":", row->number, row->draws);
            json_text(stdout, row->name);
        }
        printf(",\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"carried\":%" PRIu64
               ",\"refused\":%" PRIu64 "}",
               row->count, row->bytes, row->carried, row->refused);
    }
    putchar(']');
}

static void json_stats(const struct gpu_log_reader *r, const struct stats *s)
{
    const struct gpu_rec_start *h = gpu_log_start(r);
    struct gpu_log_sizes z;
    gpu_log_reader_sizes(r, &z);
    printf("{\"virgl\":%s,\"width\":%" PRIu64 ",\"height\":%" PRIu64 ",\"hz\":%" PRIu64
           ",\"scanouts\":%" PRIu64 ",\"capset\":%" PRIu64 ",\"capset_version\":%" PRIu64
           ",\"capset_size\":%u",
           h->virgl ? "true" : "false", h->width, h->height, h->hz, h->scanouts, h->capset_id,
           h->capset_version, h->capset.len);
    printf(",\"commands\":%" PRIu64 ",\"frames\":%" PRIu64 ",\"position\":%" PRIu64
           ",\"time\":%" PRIu64 ",\"replies\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"lost\":%" PRIu64
           ",\"records_raw\":%" PRIu64 ",\"records_packed\":%" PRIu64 ",\"carried\":%" PRIu64
           ",\"readback\":%" PRIu64 ",\"pieces\":%" PRIu64 ",\"kept\":%" PRIu64
           ",\"file\":%" PRIu64,
           z.commands, z.frames, s->last_position, s->last_time, s->replies, s->errors, s->lost,
           z.words, z.packed, z.carried, s->readback, z.contents, z.kept, z.file);
    json_table("by_command", &s->commands, command_name);
    json_table("by_inner", &s->inner, inner_name);
    json_table("by_context", &s->contexts, NULL);
    puts("}");
}

static int stats_run(struct gpu_log_reader *r, const struct list_args *a)
{
    struct stats s = {0};
    struct gpu_record rec;
    struct gpu_command c;
    u64 frames = 0;
    bool fits = true;
    while (fits && gpu_log_next(r, &rec)) {
        if (!in_range(a, rec.position, frames))
            goto next;
        s.last_position = rec.position;
        s.last_time = rec.time;
        if (rec.type == GPU_REC_COMMAND) {
            gpu_record_command(&rec, &c);
            fits = stats_command(&s, &rec, &c);
        } else if (rec.type == GPU_REC_REPLY) {
            s.replies++;
            s.errors += rec.reply.response >= VIRTIO_GPU_RESP_ERR_UNSPEC;
            s.readback += ranges_bytes(&rec.reply.readback);
        } else if (rec.type == GPU_REC_LOST) {
            s.lost++;
        }
    next:
        frames = rec.type == GPU_REC_COMMAND && rec.frame ? rec.frame : frames;
    }
    qsort(s.commands.rows, s.commands.used, sizeof(struct count), by_count);
    qsort(s.inner.rows, s.inner.used, sizeof(struct count), by_count);
    if (fits && a->json)
        json_stats(r, &s);
    else if (fits)
        print_stats(r, &s);
    free(s.commands.rows);
    free(s.inner.rows);
    free(s.contexts.rows);
    if (fits)
        return gpu_end(r);
    struct err err = {0};
    err_set(&err, -ENOMEM, "no memory for the counts");
    return cmd_fail(&err);
}

static int list_run(struct gpu_log_reader *r, const struct list_args *a)
{
    struct gpu_responses answers;
    struct gpu_record rec;
    struct gpu_command c;
    struct err err = {0};
    u64 frames = 0;
    if (gpu_responses_read(r, &answers, &err))
        return cmd_fail(&err);
    while (gpu_log_next(r, &rec)) {
        bool shown = in_range(a, rec.position, frames);
        if (shown)
            print_event(&rec, a->json);
        if (rec.type != GPU_REC_COMMAND)
            continue;
        frames = rec.frame ? rec.frame : frames;
        if (!shown)
            continue;
        gpu_record_command(&rec, &c);
        if (a->json)
            print_json(&rec, &c, gpu_response_of(&answers, rec.number), a);
        else
            print_line(&rec, &c, gpu_response_of(&answers, rec.number), a);
    }
    free(answers.type);
    if (a->from.given && a->from.frame && frames < a->from.n) {
        err_set(&err, -ENOENT, "--from: the stream has %" PRIu64 " frames", frames);
        return cmd_fail(&err);
    }
    return gpu_end(r);
}

int gpu_list(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR|FILE]", .doc = doc};
    struct list_args a = {0};
    struct err err = {0};
    struct gpu_log_reader *r;
    option_parse(&argp, argc, argv, &a);
    if (gpu_open(a.path, &r, &err))
        return cmd_fail(&err);
    int code = a.stats ? stats_run(r, &a) : list_run(r, &a);
    gpu_log_reader_destroy(r);
    return code;
}
