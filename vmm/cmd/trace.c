/* `reprise trace`: replays, and prints each instruction executed between two positions. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/trace_line.h"
#include "cmd/trace_only.h"
#include "cmd/travel.h"
#include "cpu/vcpu.h"

enum { O_FROM = 256, O_TO, O_ONLY, O_JSON };

#define WORDS_MAX 64 /* of --only */
/* Until the kernel says what it runs: how far to go before looking again. */
#define LOOK_AGAIN 1000000u

/* clang-format off */
static const struct argp_option options[] = {
    {"from", O_FROM, "POINT", 0, "Where to begin (default 0)", 0},
    {"to", O_TO, "POINT", 0, "Last position (required)", 0},
    {"only", O_ONLY, "RANGE|FUNCTION|PROCESS", 0, "Only the instructions in a range of addresses (FIRST..LAST, hexadecimal), of a function of the guest's kernel, or of a process (its number or its name); may be repeated. Places and processes: both must hold. pid:N, comm:NAME and function:NAME say which is meant", 0},
    {"json", O_JSON, NULL, 0, "One JSON object a line", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording up to a point and then prints every instruction executed: position "
    "(first and last, of REP iterations), "
    "privilege level, RIP, bytes, disassembly; the registers it changed, the memory it read "
    "(r8[ADDRESS]=VALUE) and wrote "
    "(w8[...]); where it is in the guest's kernel, and the process that ran. " POINT_HELP EXIT_HELP;

struct trace_args {
    const char *dir;
    struct point from, to;
    bool has_from, has_to, json;
    struct disk_names disks;
    const char *only[WORDS_MAX];
    unsigned nonly;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct trace_args *a = state->input;
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
    case O_ONLY: {
        struct err err = {0};
        if (a->nonly == WORDS_MAX)
            argp_error(state, "--only: at most %d of them", WORDS_MAX);
        if (only_check(arg, &err))
            argp_error(state, "--only: %s", err.text);
        a->only[a->nonly++] = arg;
        break;
    }
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (!a->has_to)
            argp_error(state, "--to POINT is missing: up to where?");
        if (a->has_from && a->has_to && a->from.kind == POINT_INSN && a->to.kind == POINT_INSN &&
            a->to.n < a->from.n)
            argp_error(state, "--to lies before --from");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct tracing {
    struct travel *tr;
    struct only only;
    struct running running;
    struct tracer *tracer;
};

static bool wants(void *opaque, const struct running_task *task)
{
    const struct tracing *g = opaque;
    return only_wants(&g->only, task);
}

/* The kernel's symbols, and where it says what it runs: at the beginning, or if there was no kernel
 * yet, where the trace ends. They are the same everywhere. */
static int learn(struct tracing *g, struct instant last, struct err *err)
{
    enum timeline_stop stop;
    struct timeline *t = g->tr->t;
    struct machine *m = timeline_machine(t);
    struct instant first = timeline_now(t);
    const struct symbols *s = travel_symbols(g->tr);
    if ((s && running_learn(&g->running, m, s)) || machine_by_branch(m))
        return 0; /* by branches an instruction has no position of its own to come back to */
    int code = timeline_seek(t, last, &stop, err);
    if (code)
        return code;
    if (!s)
        s = travel_symbols(g->tr);
    if (s)
        running_learn(&g->running, m, s);
    return timeline_seek(t, first, &stop, err);
}

static int understand(struct tracing *g, const struct trace_args *a, struct err *err)
{
    const struct symbols *s = g->tr->have_symbols ? &g->tr->symbols : NULL;
    for (unsigned i = 0; i < a->nonly; i++) {
        int code = only_add(&g->only, a->only[i], s, err);
        if (code)
            return code;
    }
    only_finish(&g->only);
    if (g->only.nprocesses && !g->running.known)
        return err_set(err, -ENOENT,
                       "--only: what process runs cannot be seen here: the guest is no Linux with "
                       "BTF, or it has not booted so far");
    return 0;
}

/* Stops when another task runs, or when the one that runs is called otherwise. */
static int watch_tasks(struct tracing *g, bool known, struct err *err)
{
    struct debug_point points[2] = {
        {.kind = DEBUG_WRITE, .physical = true, .address = g->running.variable_at, .length = 8},
        {.kind = DEBUG_WRITE, .physical = true, .address = g->running.comm_at, .length = 16}};
    return timeline_set_points(g->tr->t, points, !known ? 0 : g->only.by_name ? 2 : 1, err);
}

/* Goes on to `last`. What is not wanted runs at the engine's speed. */
static int trace_to(struct tracing *g, struct instant last, struct err *err)
{
    struct timeline *t = g->tr->t;
    struct machine *m = timeline_machine(t);
    struct machine_trace trace = {.before = tracer_before,
                                  .after = tracer_after,
                                  .opaque = g->tracer,
                                  .only = g->only.place,
                                  .n = g->only.nplaces};
    enum timeline_stop stop = TIMELINE_HIT;
    int code = 0;
    while (!code && timeline_now(t).position < last.position) {
        struct running_task task;
        struct instant to = last;
        bool by_process = g->only.nprocesses;
        bool known = by_process && running_look(&g->running, m, &task);
        if (by_process)
            code = watch_tasks(g, known, err);
        if (by_process && !known)
            to.position = MIN(to.position, timeline_now(t).position + LOOK_AGAIN);
        bool on = !by_process || (known && only_wants(&g->only, &task));
        if (!code && machine_set_trace(m, on ? &trace : NULL))
            code = err_set(err, -ENOMEM, "no memory for the trace");
        if (!code)
            code = timeline_forward(t, to, true, &stop, err);
        if (stop != TIMELINE_HIT && stop != TIMELINE_REACHED)
            break;
    }
    machine_set_trace(m, NULL);
    return code;
}

static int trace_all(const struct trace_args *a, struct travel *tr, pos_t to, struct err *err)
{
    struct instant last = {to + 1, 0};
    struct tracing *g = calloc(1, sizeof(*g));
    if (!g)
        return err_set(err, -ENOMEM, "no memory for the trace");
    g->tr = tr;
    int code = learn(g, last, err);
    tr->way.shown = false;
    if (!code)
        code = understand(g, a, err);
    if (!code) {
        g->tracer =
            tracer_create(stdout, a->json, tr->have_symbols ? &tr->symbols : NULL, &g->running);
        if (!g->tracer)
            code = err_set(err, -ENOMEM, "no memory for the trace");
    }
    if (!code) {
        tracer_set_wants(g->tracer, wants, g);
        code = trace_to(g, last, err);
        if (!code && a->nonly && !tracer_lines(g->tracer))
            fputs("reprise: of what --only names nothing ran there\n", stderr);
    }
    tracer_free(g->tracer);
    free(g);
    return code;
}

static int run(const struct trace_args *a, pos_t to, struct travel *tr, struct err *err)
{
    enum timeline_stop stop = TIMELINE_REACHED;
    struct machine *m = timeline_machine(tr->t);
    struct run_end end;
    int code = 0;
    if (a->has_from)
        code = travel_to(tr, &a->from, &stop, err);
    if (!code && to < timeline_now(tr->t).position)
        code = err_set(err, -EINVAL, "--to, position %" PRIu64 ", lies before --from, %" PRIu64, to,
                       timeline_now(tr->t).position);
    if (!code)
        code = trace_all(a, tr, to, err);
    if (code)
        return cmd_fail(err);
    if (timeline_at_end(tr->t, &end)) {
        enum player_result result = timeline_result(tr->t);
        char how[256];
        run_end_sentence(&end, false, how, sizeof(how));
        fflush(stdout);
        if (result != PLAYER_SAME)
            fprintf(stderr, "reprise: %s\n%s", timeline_end_text(tr->t), timeline_report(tr->t));
        else
            fprintf(stderr, "reprise: %s at position %" PRIu64 "\n", how, machine_position(m));
        return result == PLAYER_SAME       ? EX_FINE
               : result == PLAYER_DIVERGED ? EX_DIVERGED
               : result == PLAYER_DAMAGE   ? EX_DAMAGE
                                           : EX_ERROR;
    }
    return EX_FINE;
}

int cmd_trace(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct trace_args a = {0};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct travel tr;
    pos_t to;
    struct travel_with with = {.named = &a.disks.where, .trust = a.disks.trust};
    int code = point_position(a.dir, &with, &a.to, &to, &err);
    with.told = point_is_found(&a.to);
    with.history = a.has_from && point_is_life(&a.from);
    if (code || travel_open(&tr, a.dir, &with, &err))
        return cmd_fail(&err);
    code = run(&a, to, &tr, &err);
    travel_close(&tr);
    return code;
}
