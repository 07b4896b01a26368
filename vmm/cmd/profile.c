/* See profile.h. */
#include "cmd/profile.h"

enum { O_STATS = 1024, O_PERF_MAP, O_JITDUMP };

/* clang-format off */
static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "What the run costs:", 2},
    {"stats", O_STATS, NULL, 0, "Print at the end how long it took, where the CPU time went, and what the engine counted (of a replay with --json: in the JSON)", 2},
    {"perf-map", O_PERF_MAP, NULL, 0, "Write /tmp/perf-PID.map at the end, by which perf names translated code after what it is of the guest (docs/performance.md)", 2},
    {"jitdump", O_JITDUMP, "DIR", 0, "Write DIR/jit-PID.dump, for perf inject --jit: names with the code itself, also of code that was dropped", 2},
    {0},
};
/* clang-format on */

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct profile_options *o = state->input;
    switch (key) {
    case O_STATS: o->stats = true; break;
    case O_PERF_MAP: o->perf.map = true; break;
    case O_JITDUMP: o->perf.dir = arg; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp profile_argp = {.options = options, .parser = parse};

bool profile_wanted(const struct profile_options *o)
{
    return o->stats || o->perf.map || o->perf.dir;
}

int profile_open(struct profile *p, const struct profile_options *o, enum engine_kind engine,
                 struct err *err)
{
    int code = o->stats ? stats_prepare(&p->stats, err) : 0;
    return code ? code : perf_open(&p->perf, &o->perf, engine, err);
}

void profile_close(struct profile *p)
{
    stats_close(&p->stats);
    perf_close(&p->perf);
}
