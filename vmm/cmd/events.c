/* `reprise events`: the log as text, or as JSON with one object a line. */
#include <errno.h>
#include <inttypes.h>

#include "cmd/travel.h"

enum { O_FROM = 256, O_TO, O_JSON, O_ALL };

/* clang-format off */
static const struct argp_option options[] = {
    {"from", O_FROM, "POINT", 0, "From there on", 0},
    {"to", O_TO, "POINT", 0, "Up to there", 0},
    {"all", O_ALL, NULL, 0, "Print all digests, and the bytes of packets", 0},
    {"json", O_JSON, NULL, 0, "One JSON object a line, with everything", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Prints the event log of a recording: number (for event:N), position, virtual time in seconds, "
    "event. A log that is "
    "damaged is printed up to there. " POINT_HELP EXIT_HELP;

struct events_args {
    const char *dir;
    struct point from, to;
    bool has_from, has_to;
    bool json, all;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct events_args *a = state->input;
    switch (key) {
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
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, a->dir);
        if (a->has_from && a->has_to && a->from.kind == POINT_INSN && a->to.kind == POINT_INSN &&
            a->to.n < a->from.n)
            argp_error(state, "--to lies before --from");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int cmd_events(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "DIR", .doc = doc};
    struct events_args a = {0};
    pos_t from = 0, to = NEVER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    struct err err = {0};
    struct opened o;
    if ((a.has_from && point_position(a.dir, &a.from, &from, &err)) ||
        (a.has_to && point_position(a.dir, &a.to, &to, &err)))
        return cmd_fail(&err);
    if (to < from) {
        err_set(&err, -EINVAL, "--to, position %" PRIu64 ", lies before --from, %" PRIu64, to,
                from);
        return cmd_fail(&err);
    }
    if (open_recording(&o, a.dir, &err))
        return cmd_fail(&err);
    struct record rec;
    while (log_next(o.log, &rec)) {
        if (rec.position < from || rec.position > to)
            continue;
        if (a.json)
            record_print_json(stdout, &rec);
        else {
            printf("%6" PRIu64 "  ", rec.index);
            record_print(stdout, &rec, a.all);
        }
        putchar('\n');
    }
    const struct log_damage damage = *log_damage(o.log);
    close_recording(&o);
    if (damage.state == LOG_COMPLETE)
        return EX_FINE;
    fflush(stdout);
    fprintf(stderr, "reprise: the log ends early: %s\n", damage.text);
    return EX_DAMAGE;
}
