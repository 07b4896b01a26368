/* `reprise info`: what a recording holds. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "replay/point.h"

enum { O_JSON = 256 };

static const struct argp_option options[] = {
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};

static const char doc[] = "Prints what a recording holds: machine, kernel, how it ended, sizes, "
                          "and whether it is damaged. "
                          "The kept files are checked." EXIT_HELP;

struct info_args {
    const char *dir;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct info_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END: option_need_recording(state, a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const char *state_name(enum log_state state)
{
    static const char *const names[] = {
        [LOG_READING] = "reading", [LOG_COMPLETE] = "complete",   [LOG_CUT] = "cut",
        [LOG_KILLED] = "killed",   [LOG_TRUNCATED] = "truncated", [LOG_DAMAGED] = "damaged",
    };
    return names[state];
}

static void hash_line(const u8 *bytes, char out[HASH_TEXT])
{
    struct hash128 h = description_hash128(bytes);
    hash_text(&h, out);
}

/* What was added to a recording later: checkpoints and marks. */
struct additions {
    u32 checkpoints;
    u64 bytes;
    unsigned marks;
};

static void count_mark(void *opaque, struct instant at, const char *name, size_t len)
{
    struct additions *a = opaque;
    (void)at;
    (void)name;
    (void)len;
    a->marks++;
}

static void find_additions(const struct opened *o, struct additions *a)
{
    struct err ignored;
    memset(a, 0, sizeof(*a));
    a->checkpoints = checkpoint_count(&o->rec, &a->bytes);
    marks_each(o->rec.path, count_mark, a, &ignored);
}

static const char *unit_text(const char *unit)
{
    return strcmp(unit, "insn") ? "branches and events" : "instructions";
}

static void print_text(const char *dir, const struct opened *o, const struct log_summary *s,
                       const char *files)
{
    struct additions added;
    const struct machine_description *d = &o->desc;
    char a[32], b[32], hash[HASH_TEXT], how[256], name[sizeof(d->append)];
    printf("recording     %s\n", dir);
    printf("recorded by   %s, on a CPU by %s\n", d->creator, d->host_cpu);
    printf("engine        %s%s%s, positions are %s\n", d->engine[0] ? d->engine : "dbt",
           d->engine[0] ? " with counter " : "", d->counter, unit_text(d->position_unit));
    printf("machine       %s of RAM, CPU model %s, seed %" PRIu64 "\n", text_bytes(d->memory, a),
           d->cpu_model, d->seed);
    hash_line(d->kernel_hash, hash);
    printf("kernel        %s, %s, %s\n", text_printable(d->kernel_name, name, sizeof(name)),
           text_bytes(d->kernel_size, a), hash);
    if (d->initrd_size) {
        hash_line(d->initrd_hash, hash);
        printf("initrd        %s, %s\n", text_bytes(d->initrd_size, a), hash);
    }
    if (d->gpu_width)
        printf("display       %u by %u, %u Hz, %s\n", d->gpu_width, d->gpu_height,
               d->gpu_hz ? d->gpu_hz : MACHINE_GPU_HZ, d->capset_size ? "3D (virgl)" : "2D");
    for (unsigned i = 0; i < DESCRIPTION_NETS && d->net[i].mtu; i++) {
        const u8 *e = d->net[i].mac;
        printf("network %u     %s, %02x:%02x:%02x:%02x:%02x:%02x, MTU %u\n", i,
               text_printable(d->net[i].backend, name, sizeof(name)), e[0], e[1], e[2], e[3], e[4],
               e[5], d->net[i].mtu);
    }
    if (d->hvc0)
        puts("console       hvc0 (virtio)");
    for (unsigned i = 1; i < DESCRIPTION_PORTS && d->port[i].name[0]; i++) {
        printf("port %u        %s", i, text_printable(d->port[i].name, name, sizeof(name)));
        printf(", %s\n", text_printable(d->port[i].backend, name, sizeof(name)));
    }
    if (d->input)
        puts("input         keyboard, tablet");
    for (unsigned i = 0; i < DESCRIPTION_DISKS && d->disk[i].size; i++)
        printf("disk %u        %s, %s, %s%s\n", i,
               text_printable(d->disk[i].path, name, sizeof(name)),
               text_printable(d->disk[i].format, b, sizeof(b)), text_bytes(d->disk[i].size, a),
               d->disk[i].readonly ? ", read-only" : "");
    printf("command line  %s\n", text_printable(d->append, name, sizeof(name)));
    printf("pacing        %s\n", d->realtime ? "real time while there is live input" : "off");
    if (s->has_end) {
        struct run_end end = {(enum run_reason)s->end_reason, (u32)s->end_arg};
        run_end_sentence(&end, false, how, sizeof(how));
    } else {
        snprintf(how, sizeof(how), "unknown: the log ends early");
    }
    printf("end           %s\n", how);
    printf("length        %" PRIu64 " positions, %s of virtual time, %s of host time\n",
           s->last_position, text_seconds(s->last_time, a), text_seconds(s->host_ns, b));
    printf("log           %s, %s unpacked, %u chunks, %" PRIu64 " records\n",
           text_bytes(s->file_bytes, a), text_bytes(s->raw_bytes, b), s->chunks, s->records);
    for (size_t i = 0; i < record_table_size; i++)
        if (s->counts[i])
            printf("                %-14s %" PRIu64 "\n", record_table[i].name, s->counts[i]);
    if (s->remarks)
        printf("                %-14s %" PRIu64 "\n", "unknown", s->remarks);
    find_additions(o, &added);
    if (added.checkpoints)
        printf("checkpoints   %u, %s\n", added.checkpoints, text_bytes(added.bytes, a));
    if (added.marks)
        printf("marks         %u\n", added.marks);
    printf("state         %s%s%s\n", state_name(s->damage.state), s->damage.text[0] ? ": " : "",
           s->damage.text);
    if (*files)
        printf("files         damaged: %s\n", files);
}

static void json_member(const char *name, const char *value)
{
    printf("\"%s\":", name);
    json_text(stdout, value);
    putchar(',');
}

static void json_engine(const struct machine_description *d)
{
    json_member("engine", d->engine[0] ? d->engine : "dbt");
    if (d->counter[0])
        json_member("counter", d->counter);
    json_member("position_unit", d->position_unit);
}

static void print_json(const struct opened *o, const struct log_summary *s, const char *files)
{
    const struct machine_description *d = &o->desc;
    char hash[HASH_TEXT];
    struct additions added;
    find_additions(o, &added);
    putchar('{');
    json_member("creator", d->creator);
    json_member("host_cpu", d->host_cpu);
    json_member("cpu", d->cpu_model);
    json_engine(d);
    json_member("append", d->append);
    json_member("kernel", d->kernel_name);
    hash_line(d->kernel_hash, hash);
    json_member("kernel_hash", hash);
    if (d->initrd_size) {
        hash_line(d->initrd_hash, hash);
        json_member("initrd_hash", hash);
    }
    json_member("end", s->has_end ? run_reason_name(s->end_reason) : "unknown");
    if (s->has_end && s->end_reason == RUN_QUIT)
        json_member("why", quit_reason_name(s->end_arg));
    json_member("state", state_name(s->damage.state));
    json_member("damage", s->damage.text);
    json_member("files_damage", files);
    printf("\"memory\":%" PRIu64 ",\"seed\":%" PRIu64 ",\"wall_clock\":%" PRIu64
           ",\"realtime\":%s,\"kernel_size\":%" PRIu64 ",\"initrd_size\":%" PRIu64,
           d->memory, d->seed, d->wall_clock, d->realtime ? "true" : "false", d->kernel_size,
           d->initrd_size);
    printf(",\"checkpoints\":%u,\"checkpoint_bytes\":%" PRIu64 ",\"marks\":%u", added.checkpoints,
           added.bytes, added.marks);
    printf(",\"hvc0\":%s,\"input\":%s,\"ports\":[", d->hvc0 ? "true" : "false",
           d->input ? "true" : "false");
    for (unsigned i = 1; i < DESCRIPTION_PORTS && d->port[i].name[0]; i++) {
        fputs(i > 1 ? "," : "", stdout);
        json_text(stdout, d->port[i].name);
    }
    putchar(']');
    printf(",\"end_arg\":%" PRIu64 ",\"position\":%" PRIu64 ",\"time\":%" PRIu64
           ",\"host_ns\":%" PRIu64 ",\"log_bytes\":%" PRIu64 ",\"raw_bytes\":%" PRIu64
           ",\"chunks\":%u,\"records\":%" PRIu64 ",\"counts\":{",
           s->end_arg, s->last_position, s->last_time, s->host_ns, s->file_bytes, s->raw_bytes,
           s->chunks, s->records);
    for (size_t i = 0; i < record_table_size; i++)
        printf("%s\"%s\":%" PRIu64, i ? "," : "", record_table[i].name, s->counts[i]);
    puts("}}");
}

/* The first kept file that is missing or changed; "" when all are as they were. */
static void check_files(struct opened *o, struct err *err)
{
    const struct machine_description *d = &o->desc;
    struct hash128 kernel = description_hash128(d->kernel_hash);
    struct hash128 initrd = description_hash128(d->initrd_hash);
    void *data;
    size_t size;
    if (recording_load(&o->rec, &kernel, "kernel", &data, &size, err))
        return;
    free(data);
    if (!d->initrd_size || recording_load(&o->rec, &initrd, "initrd", &data, &size, err))
        return;
    free(data);
}

int cmd_info(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "DIR", .doc = doc};
    struct info_args a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    struct err err = {0}, files = {0};
    struct opened o;
    struct log_summary summary;
    if (open_recording(&o, a.dir, &err))
        return cmd_fail(&err);
    log_summarise(o.log, &summary);
    check_files(&o, &files);
    if (a.json)
        print_json(&o, &summary, files.text);
    else
        print_text(a.dir, &o, &summary, files.text);
    close_recording(&o);
    return files.code ? EX_ERROR : summary.damage.state != LOG_COMPLETE ? EX_DAMAGE : EX_FINE;
}
