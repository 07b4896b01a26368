/*
 * The engine kvm with the counter pmu is stopped at random positions of recordings; at each, the
 * vCPU, the devices and the output must be what dbt has there, and at some RAM.
 *
 *     stops [--seed S] [--stops N] [--gap N] [--turn N] [--lost N] DIR...
 *
 * The recordings' positions are branches (record --counter pmu). A turn is a replay of one of them,
 * by dbt and by kvm, with up to some thousand stops from a random position on; turns go on until
 * there were that many. Two stops are up to twice `gap` positions apart: let it be larger than the
 * counter's margin, or the core of the engine does all of the way.
 *
 * With --lost the host misbehaves, and turns go on until that many of them were ended by the
 * engine, which says that it went too far; whatever it stopped at before is compared all the same.
 * Without, such an end is a failure.
 *
 * Exit code 0: all the same; 1: not, with the command that repeats that turn; 2: wrong usage, or
 * something failed; 77: there is no counter, the reason is printed.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "cpu/vcpu.h"
#include "replay/opened.h"
#include "replay/player.h"

enum { TURN = 8192, NOT_HERE = 77 };

struct stop {
    pos_t position;
    vns_t time;
    u64 rip, cpu, all, ram; /* digests; ram 0: not taken */
};

static struct {
    u64 seed, stops, gap, lost;
} ask;

static struct {
    u64 stops, counted, ram, lost, exits; /* counted: KVM ran some of the way there */
    struct err last;                      /* of those that were lost */
} all;

static u64 random_state;

static u64 next_random(void)
{
    random_state += 0x9e3779b97f4a7c15ull;
    u64 z = random_state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static u64 below(u64 n)
{
    return n ? next_random() % n : 0;
}

static _Noreturn void die(const char *what, const struct err *err)
{
    fprintf(stderr, "stops: %s: %s\n", what, err->text);
    exit(2);
}

/* ---- a replay ---- */

struct replay {
    struct opened o;
    struct machine *m;
    struct player *player;
};

static int begin(struct replay *r, const char *dir, enum engine_kind engine, struct err *err)
{
    if (open_recording(&r->o, dir, err))
        die(dir, err);
    r->o.engine = engine;
    int code = build_machine(&r->o, &r->m, err);
    if (code) {
        close_recording(&r->o);
        return code;
    }
    if (!machine_by_branch(r->m)) {
        err_set(err, -EINVAL, "its positions are no branches (record --counter pmu)");
        die(dir, err);
    }
    struct player_config config = {
        .log = r->o.log, .dir = dir, .contents = r->o.rec.contents, .verify = true};
    r->o.log = NULL;
    if (player_create(&r->player, &config, r->m, err))
        die(dir, err);
    return 0;
}

static void end(struct replay *r)
{
    player_destroy(r->player);
    machine_destroy(r->m);
    close_recording(&r->o);
}

static void look(struct machine *m, bool ram, struct stop *s)
{
    XXH3_state_t h;
    gpa_t gpa;
    XXH3_64bits_reset(&h);
    for (unsigned i = 0; i < machine_components(m); i++) {
        u64 d = machine_component_digest(m, i);
        XXH3_64bits_update(&h, &d, sizeof(d));
    }
    for (int i = 0; i < OUT_COUNT; i++) {
        u64 bytes, d = machine_output_digest(m, (enum dev_output)i, &bytes);
        XXH3_64bits_update(&h, &d, sizeof(d));
    }
    *s = (struct stop){.position = machine_position(m),
                       .time = machine_now(m),
                       .rip = machine_vcpu(m)->rip,
                       .cpu = machine_cpu_digest(m, false),
                       .all = XXH3_64bits_digest(&h)};
    for (unsigned i = 0; ram && i < machine_ram_regions(m); i++)
        s->ram = s->ram * 31 + machine_ram_region_digest(m, i, &gpa);
}

/* enum run_reason: RUN_STOP at that position, or why not. */
static enum run_reason go(struct replay *r, pos_t to, struct err *err)
{
    struct run_limits limits = {.stop_at = to};
    struct run_end how = {.reason = RUN_ERROR};
    machine_run(r->m, player_source(r->player), &limits, &how, err);
    return how.reason;
}

/* ---- a turn ---- */

static pos_t length_of(const char *dir)
{
    struct replay r;
    struct err err = {0};
    if (begin(&r, dir, ENGINE_DBT, &err))
        die(dir, &err);
    enum run_reason why = go(&r, NEVER, &err);
    if (why == RUN_ERROR || why == RUN_LOST || why == RUN_UNSUPPORTED)
        die(dir, &err);
    pos_t at = machine_position(r.m);
    end(&r);
    return at;
}

static pos_t gap(void)
{
    return 1 + below(below(8) ? 2 * ask.gap : 200);
}

/* What dbt has at random positions. */
static unsigned expected(const char *dir, pos_t length, struct stop *stops, unsigned most)
{
    struct replay r;
    struct err err = {0};
    unsigned n = 0;
    if (begin(&r, dir, ENGINE_DBT, &err))
        die(dir, &err);
    u64 room = (u64)most * ask.gap;
    for (pos_t at = below(length > room ? length - room : length / 2); n < most;) {
        at += gap();
        if (at >= length)
            break;
        if (go(&r, at, &err) != RUN_STOP)
            die(dir, &err);
        look(r.m, below(512) == 0 || n == most - 1, &stops[n]);
        at = stops[n++].position;
    }
    end(&r);
    return n;
}

static bool same(const struct stop *want, const struct stop *got)
{
    bool ram = !want->ram || want->ram == got->ram;
    if (want->position == got->position && want->time == got->time && want->all == got->all && ram)
        return true;
    printf("FAIL: position %" PRIu64 " is %" PRIu64 ", time %" PRIu64 " / %" PRIu64 ", RIP %" PRIx64
           " / %" PRIx64 ", CPU %s, devices and output %s, RAM %s\n",
           want->position, got->position, want->time, got->time, want->rip, got->rip,
           want->cpu == got->cpu ? "same" : "differs", want->all == got->all ? "same" : "differ",
           !want->ram ? "not compared"
           : ram      ? "same"
                      : "differs");
    return false;
}

static u64 kvm_exits(const struct machine *m)
{
    struct machine_stats s;
    machine_stats(m, &s);
    return s.kvm_exits;
}

/* Is what ended the run what the host was asked for? */
static bool lost(enum run_reason why, const struct err *err)
{
    if (why == RUN_LOST && ask.lost && *err->text) {
        all.last = *err;
        all.lost++;
        return true;
    }
    printf("FAIL: the run ended with %d: %s\n", (int)why, err->text);
    return false;
}

static bool compare(const char *dir, const struct stop *stops, unsigned n)
{
    struct replay r;
    struct err err = {0};
    bool good = true;
    if (begin(&r, dir, ENGINE_KVM, &err)) {
        printf("not tried: %s\n", err.text);
        exit(NOT_HERE);
    }
    for (unsigned i = 0; good && i < n; i++) {
        struct stop now;
        u64 exits = kvm_exits(r.m);
        enum run_reason why = go(&r, stops[i].position, &err);
        if (why != RUN_STOP) {
            good = lost(why, &err);
            break;
        }
        all.counted += kvm_exits(r.m) != exits;
        look(r.m, stops[i].ram, &now);
        good = same(&stops[i], &now);
        all.stops++;
        all.ram += stops[i].ram != 0;
    }
    all.exits += kvm_exits(r.m);
    end(&r);
    return good;
}

static bool one_turn(const char *dir, pos_t length)
{
    static struct stop stops[TURN];
    u64 left = ask.stops - all.stops;
    unsigned n = expected(dir, length, stops, (unsigned)MIN(left, ask.lost ? TURN / 16 : TURN));
    return compare(dir, stops, n);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", 1, NULL, 's'}, {"stops", 1, NULL, 'n'},
                                            {"gap", 1, NULL, 'g'},  {"turn", 1, NULL, 't'},
                                            {"lost", 1, NULL, 'l'}, {0}};
    u64 turn = 0;
    int o;
    ask.stops = 1000;
    ask.gap = 500;
    if (getrandom(&ask.seed, sizeof(ask.seed), 0) != sizeof(ask.seed))
        return 2;
    ask.seed >>= 32;
    while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (o) {
        case 's': ask.seed = strtoull(optarg, NULL, 0); break;
        case 'n': ask.stops = strtoull(optarg, NULL, 0); break;
        case 'g': ask.gap = strtoull(optarg, NULL, 0); break;
        case 't': turn = strtoull(optarg, NULL, 0); break;
        case 'l': ask.lost = strtoull(optarg, NULL, 0); break;
        default: return 2;
        }
    unsigned n = (unsigned)(argc - optind);
    if (!n || !ask.gap)
        return fprintf(stderr, "usage: stops [--seed S] [--stops N] [--gap N] [--lost N] DIR...\n"),
               2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("stops: seed %" PRIu64 "\n", ask.seed);
    pos_t *length = calloc(n, sizeof(*length));
    for (unsigned i = 0; i < n; i++)
        length[i] = length_of(argv[optind + (int)i]);
    for (u64 first = turn; all.stops < ask.stops && (!ask.lost || all.lost < ask.lost); turn++) {
        unsigned i = (unsigned)(turn % n);
        random_state = ask.seed * 0x2545f4914f6cdd1dull + turn;
        if (!one_turn(argv[optind + (int)i], length[i])) {
            printf("again: stops --seed %" PRIu64 " --turn %" PRIu64 " --stops %" PRIu64
                   " --gap %" PRIu64 " --lost %" PRIu64 " RECORDINGS (%s)\n",
                   ask.seed, turn, ask.stops, ask.gap, ask.lost, argv[optind + (int)i]);
            return 1;
        }
        if (turn - first > 100 * n && !all.stops)
            return fprintf(stderr, "stops: these recordings are too short\n"), 2;
    }
    free(length);
    printf("stops: %" PRIu64 " stops exact, %" PRIu64 " of them by the counter in %" PRIu64
           " exits, RAM compared at %" PRIu64 "; %" PRIu64 " runs lost and told%s%s\n",
           all.stops, all.counted, all.exits, all.ram, all.lost, all.lost ? ", the last: " : "",
           all.last.text);
    return 0;
}
