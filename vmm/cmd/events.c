/* `reprise events`: the log as text, or as JSON with one object a line. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cmd/travel.h"
#include "replay/record.h"

#define KIND_MAX 64 /* rows of record_table */

enum { O_FROM = 256, O_TO, O_JSON, O_ALL, O_KIND };

/* clang-format off */
static const struct argp_option options[] = {
    {"from", O_FROM, "POINT", 0, "From there on", 0},
    {"to", O_TO, "POINT", 0, "Up to there", 0},
    {"kind", O_KIND, "KIND[,KIND]...", 0, "Only events of these kinds, progress among them if asked for; 'input': whatever entered the machine", 0},
    {"all", O_ALL, NULL, 0, "Print progress records too, all digests, and the bytes of packets", 0},
    {"json", O_JSON, NULL, 0, "One JSON object a line, with everything", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Prints the event log of a recording: number (for event:N), position, virtual time in seconds, "
    "event. Progress records, at which a replay is compared and nothing happens, are left out "
    "unless "
    "asked for. A log that is "
    "damaged is printed up to there. " POINT_HELP EXIT_HELP;

struct events_args {
    const char *dir;
    struct point from, to;
    bool has_from, has_to;
    bool json, all;
    bool kinds, inputs;  /* only those of these kinds */
    bool kind[KIND_MAX]; /* by place in record_table */
    struct disk_names disks;
};

/* "input,packet": names of the table, or "input" for whatever enters a machine. */
static void parse_kinds(struct argp_state *state, const char *arg, struct events_args *a)
{
    a->kinds = true;
    for (const char *p = arg; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char name[64];
        bool known = false;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(p, ","), p);
        for (size_t i = 0; i < record_table_size && i < KIND_MAX; i++)
            if (!strcmp(name, record_table[i].name))
                a->kind[i] = known = true;
        if (!strcmp(name, "input"))
            a->inputs = known = true;
        if (known)
            continue;
        char all[1024] = "input";
        for (size_t i = 0, n = 5; i < record_table_size && n < sizeof(all); i++)
            n += (size_t)snprintf(all + n, sizeof(all) - n, ", %s", record_table[i].name);
        const char *meant =
            option_meant(name, &record_table[0].name, record_table_size, sizeof(record_table[0]));
        argp_error(state, "--kind: there is no kind '%s'%s%s%s (%s)", name,
                   meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "", all);
    }
}

static bool is_wanted(const struct events_args *a, const struct record *rec)
{
    if (!a->kinds) /* programs get everything */
        return a->all || a->json || rec->type != REC_PROGRESS;
    if (a->inputs && record_input(rec, NULL))
        return true;
    for (size_t i = 0; i < record_table_size && i < KIND_MAX; i++)
        if (record_table[i].id == rec->type)
            return a->kind[i];
    return false;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct events_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_FROM:
        option_point(state, arg, "--from", &a->from);
        a->has_from = true;
        break;
    case O_TO:
        option_point(state, arg, "--to", &a->to);
        a->has_to = true;
        break;
    case O_JSON: a->json = true; break;
    case O_ALL: a->all = true; break;
    case O_KIND: parse_kinds(state, arg, a); break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (a->has_from && a->has_to && a->from.kind == POINT_INSN && a->to.kind == POINT_INSN &&
            a->to.n < a->from.n)
            argp_error(state, "--to lies before --from");
        if (a->disks.trust && !(a->has_from && point_is_found(&a->from)) &&
            !(a->has_to && point_is_found(&a->to)))
            argp_error(state, "--trust-checkpoints is for points that a replay finds: console:, "
                              "time:, frame:");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int cmd_events(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct events_args a = {0};
    pos_t from = 0, to = NEVER;
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct opened o;
    struct travel_with with = {.named = &a.disks.where, .trust = a.disks.trust};
    int code = a.has_from ? point_position(a.dir, &with, &a.from, &from, &err) : 0;
    with.told = a.has_from && point_is_found(&a.from);
    if (!code && a.has_to)
        code = point_position(a.dir, &with, &a.to, &to, &err);
    if (code)
        return cmd_fail(&err);
    if (to < from) {
        err_set(&err, -EINVAL, "--to, position %" PRIu64 ", lies before --from, %" PRIu64, to,
                from);
        return cmd_fail(&err);
    }
    sandbox_read(a.dir);
    if (sandbox_enter(&err) || open_recording(&o, a.dir, &err))
        return cmd_fail(&err);
    struct record rec;
    while (log_next(o.log, &rec)) {
        if (rec.position < from || rec.position > to || !is_wanted(&a, &rec))
            continue;
        if (a.json)
            record_print_json(stdout, &rec);
        else {
            printf("%6" PRIu64 "  ", rec.index);
            record_print(stdout, &rec, a.all);
        }
        putchar('\n');
    }
    const struct chunk_damage damage = *log_damage(o.log);
    close_recording(&o);
    if (damage.state == CHUNKS_COMPLETE)
        return EX_FINE;
    fflush(stdout);
    fprintf(stderr, "reprise: the log ends early: %s\n", damage.text);
    return EX_DAMAGE;
}
