/*
 * Walks through a recording at random (seeks, steps, steps back, runs backwards to a breakpoint or
 * a watched word) and compares where it lands with a straight replay that was stopped at the same
 * position: all digests of CPU, devices, output and, at some, of RAM.
 *
 *     walk DIR [--seed S] [--places N] [--moves N] [--memory MIB] [--no-files] [--each-file]
 *              [--engine dbt|kvm]: which walks; the straight replay is dbt's
 *              [--disk N=FILE]...: its images, as `reprise replay` has them named
 *
 * Prints the seed; exits 1 at the first difference with the moves that led there. With --each-file
 * it goes to the instant of every checkpoint file instead, each from that file, and to a few places
 * after it.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "board/ram.h"
#include "cpu/vcpu.h"
#include "host/disk_spec.h"
#include "replay/player.h"
#include "replay/timeline.h"
#include "tests/splitmix.h"

struct place {
    pos_t position;
    vns_t time;
    u64 cpu, all, ram; /* digests; ram 0: not taken */
    u64 rip, cr3;
    bool timed; /* it is an instant: `time` counts too, and RAM is always looked at */
};

static u64 state;

static u64 next_random(void)
{
    return splitmix64(&state);
}

static u64 below(u64 n)
{
    return next_random() % n;
}

static u64 digest(struct machine *m)
{
    XXH3_state_t h;
    XXH3_64bits_reset(&h);
    for (unsigned i = 0; i < machine_components(m); i++) {
        u64 d = machine_component_digest(m, i);
        XXH3_64bits_update(&h, &d, sizeof(d));
    }
    for (int i = 0; i < OUT_COUNT; i++) {
        u64 bytes, d = machine_output_digest(m, (enum dev_output)i, &bytes);
        XXH3_64bits_update(&h, &d, sizeof(d));
        XXH3_64bits_update(&h, &bytes, sizeof(bytes));
    }
    return XXH3_64bits_digest(&h);
}

static u64 ram_hash(struct machine *m)
{
    XXH3_state_t h;
    XXH3_64bits_reset(&h);
    for (unsigned i = 0; i < machine_ram_regions(m); i++) {
        gpa_t gpa;
        u64 d = machine_ram_region_digest(m, i, &gpa);
        XXH3_64bits_update(&h, &d, sizeof(d));
    }
    u64 d = XXH3_64bits_digest(&h);
    return d ? d : 1;
}

static void look(struct machine *m, bool ram, struct place *p)
{
    const struct vcpu *c = machine_vcpu(m);
    *p = (struct place){.position = machine_position(m),
                        .time = machine_now(m),
                        .cpu = machine_cpu_digest(m, false),
                        .all = digest(m),
                        .ram = ram ? ram_hash(m) : 0,
                        .rip = c->rip,
                        .cr3 = c->cr3};
}

static void die(const struct err *err)
{
    fprintf(stderr, "walk: %s\n", err->text);
    exit(2);
}

static int by_position(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->time < y->time ? -1 : x->time > y->time;
}

/* A replay from power-on, without checkpoints or anything else of the timeline. */
static void straight(const char *dir, const struct disk_named *named, struct place *places,
                     unsigned n)
{
    struct opened o;
    struct machine *m = NULL;
    struct player *player;
    struct err err = {0};
    if (open_recording(&o, dir, &err))
        die(&err);
    o.named = named;
    if (build_machine(&o, &m, &err))
        die(&err);
    struct player_config config = {.log = o.log, .dir = dir, .contents = o.rec.contents};
    o.log = NULL;
    if (player_create(&player, &config, m, &err))
        die(&err);
    for (unsigned i = 0; i < n; i++) {
        bool timed = places[i].timed;
        struct run_limits limits = {.stop_at = places[i].position,
                                    .stop_time = timed ? places[i].time : 0};
        struct run_end end;
        if (machine_run(m, player_source(player), &limits, &end, &err) || end.reason != RUN_STOP) {
            fprintf(stderr, "walk: the straight replay ended before position %" PRIu64 " (%s)\n",
                    places[i].position, err.text);
            exit(2);
        }
        look(m, timed || i % 4 == 0, &places[i]);
        places[i].timed = timed;
    }
    player_destroy(player);
    machine_destroy(m);
    close_recording(&o);
}

static char history[8][160];
static unsigned moves_done;

static PRINTF(1, 2) void did(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(history[moves_done++ % 8], sizeof(history[0]), fmt, ap);
    va_end(ap);
}

static bool same(const struct place *want, const struct place *got)
{
    if (want->position == got->position && want->time == got->time && want->all == got->all &&
        (!want->ram || !got->ram || want->ram == got->ram))
        return true;
    printf("FAIL: a straight replay and the walk differ at position %" PRIu64 "\n", want->position);
    printf("  position %" PRIu64 " / %" PRIu64 ", time %" PRIu64 " / %" PRIu64 ", RIP %" PRIx64
           " / %" PRIx64 "\n",
           want->position, got->position, want->time, got->time, want->rip, got->rip);
    printf("  CPU %s, devices and output %s, RAM %s\n", want->cpu == got->cpu ? "same" : "differs",
           want->all == got->all ? "same" : "differ",
           !want->ram || !got->ram ? "not compared"
           : want->ram == got->ram ? "same"
                                   : "differs");
    for (unsigned i = moves_done < 8 ? 0 : moves_done - 8; i < moves_done; i++)
        printf("  move %u: %s\n", i + 1, history[i % 8]);
    return false;
}

/* Where the last `count` positions before place i are, walked there one by one. */
static bool steps(struct timeline *t, struct place *places, unsigned i, unsigned count)
{
    struct err err;
    enum timeline_stop stop;
    struct place trail[16], now;
    pos_t from = places[i].position;
    if (from < count)
        return true;
    did("to %" PRIu64 ", %u steps, and back", from - count, count);
    if (timeline_seek(t, (struct instant){from - count, 0}, &stop, &err))
        die(&err);
    for (unsigned k = 0; k < count; k++) {
        look(timeline_machine(t), false, &trail[k]);
        struct instant to = {timeline_now(t).position + 1, 0};
        if (timeline_forward(t, to, true, &stop, &err))
            die(&err);
    }
    look(timeline_machine(t), true, &now);
    if (!same(&places[i], &now))
        return false;
    for (unsigned k = count; k-- > 0;) {
        if (timeline_step_back(t, &stop, &err))
            die(&err);
        look(timeline_machine(t), false, &now);
        if (!same(&trail[k], &now))
            return false;
    }
    return true;
}

/* From place j back to the last time that the instruction of place i was executed before. */
static bool run_back(struct timeline *t, struct place *places, unsigned i, unsigned j)
{
    struct err err;
    enum timeline_stop stop;
    struct place now;
    struct debug_point point = {.kind = DEBUG_EXEC, .address = places[i].rip};
    if (i >= j || places[i].position == places[j].position)
        return true;
    did("from %" PRIu64 " back to RIP %" PRIx64 ", which was there at %" PRIu64, places[j].position,
        places[i].rip, places[i].position);
    if (timeline_seek(t, (struct instant){places[j].position, 0}, &stop, &err) ||
        timeline_set_points(t, &point, 1, &err) || timeline_backward(t, &stop, &err))
        die(&err);
    look(timeline_machine(t), false, &now);
    bool ok = now.position < places[j].position;
    /* A place may be an interrupt's or a halt's, where the instruction did not come next. */
    if (ok && stop == TIMELINE_HIT)
        ok = now.rip == places[i].rip;
    if (!ok)
        printf("FAIL: run back from %" PRIu64 " stopped at %" PRIu64 ", RIP %" PRIx64 "\n",
               places[j].position, now.position, now.rip);
    /* And forwards again: nothing lies between but where it came from. */
    struct instant to = {places[j].position, 0};
    if (ok && stop == TIMELINE_HIT) {
        if (timeline_forward(t, to, true, &stop, &err))
            die(&err);
        look(timeline_machine(t), false, &now);
        if (stop != TIMELINE_REACHED) {
            printf("FAIL: run back from %" PRIu64 " passed a hit at %" PRIu64 "\n",
                   places[j].position, now.position);
            ok = false;
        } else {
            ok = same(&places[j], &now);
        }
    }
    if (timeline_set_points(t, NULL, 0, &err))
        die(&err);
    return ok;
}

static bool walk(struct timeline *t, struct place *places, unsigned n, unsigned moves)
{
    struct err err;
    enum timeline_stop stop;
    for (unsigned k = 0; k < moves; k++) {
        unsigned i = (unsigned)below(n), kind = (unsigned)below(10);
        struct place now;
        bool ok;
        if (kind < 6) {
            did("seek to %" PRIu64, places[i].position);
            if (timeline_seek(t, (struct instant){places[i].position, 0}, &stop, &err))
                die(&err);
            look(timeline_machine(t), places[i].ram, &now);
            ok = same(&places[i], &now);
        } else if (kind < 8) {
            ok = steps(t, places, i, 1 + (unsigned)below(16));
        } else {
            unsigned j = i + 1 + (unsigned)below(3);
            ok = run_back(t, places, i, MIN(n - 1, j));
        }
        if (!ok)
            return false;
    }
    return true;
}

/* ---- checkpoint files ---- */

#define AFTER 3 /* places after each file */

/* The instants of all files, and places up to the next one. Returns how many there are. */
static unsigned file_places(const char *dir, struct place **out, struct instant **files, u32 *count)
{
    struct timeline *t;
    struct timeline_config config = {.ignore_files = true};
    struct checkpoint_set set;
    struct err err = {0};
    if (timeline_open(&t, dir, &config, &err))
        die(&err);
    struct machine *m = timeline_machine(t);
    checkpoint_set_open(&set, &timeline_recording(t)->rec, machine_ram(m)->size / PAGE_SIZE,
                        machine_state_size(m), &err);
    if (err.text[0])
        die(&err);
    unsigned n = 0;
    *count = set.count;
    *files = calloc(set.count + 1, sizeof(**files));
    *out = calloc((size_t)set.count * (AFTER + 1) + 1, sizeof(**out));
    for (u32 i = 0; i < set.count; i++) {
        struct instant at = set.file[i].at;
        pos_t next = i + 1 < set.count ? set.file[i + 1].at.position : timeline_end(t).position;
        u64 room = next > at.position ? next - at.position : 1;
        (*files)[i] = at;
        (*out)[n++] = (struct place){.position = at.position, .time = at.time, .timed = true};
        for (unsigned k = 0; k < AFTER && room > 2; k++) {
            u64 by = k == 0 ? 1 : k == 1 ? 1 + below(MIN(room - 1, 20000)) : 1 + below(room - 1);
            (*out)[n++] = (struct place){.position = at.position + by};
        }
    }
    checkpoint_set_close(&set);
    timeline_close(t);
    qsort(*out, n, sizeof(**out), by_position);
    return n;
}

static bool has_checkpoint(const struct timeline *t, struct instant at)
{
    const struct checkpoint *c;
    for (unsigned i = 0; (c = timeline_checkpoint_at(t, i)); i++)
        if (c->at.position == at.position && c->at.time == at.time)
            return true;
    return false;
}

/* Nothing is in memory before: the first move can only start from the file or from power-on. */
static bool one_file(const char *dir, const struct timeline_config *config, struct instant at,
                     struct instant next, const struct place *places, unsigned n)
{
    struct timeline *t;
    struct err err = {0};
    bool ok = true, first = true;
    if (timeline_open(&t, dir, config, &err))
        die(&err);
    for (unsigned i = 0; ok && i < n; i++) {
        struct instant to = {places[i].position, places[i].timed ? places[i].time : 0};
        struct place now;
        enum timeline_stop stop;
        if (instant_before((struct instant){to.position, places[i].time}, at) ||
            !instant_before((struct instant){to.position, places[i].time}, next))
            continue;
        did("seek to position %" PRIu64 ", %" PRIu64 " ns, by the file of %" PRIu64, to.position,
            places[i].time, at.position);
        if (timeline_seek(t, to, &stop, &err))
            die(&err);
        look(timeline_machine(t), true, &now);
        ok = same(&places[i], &now);
        if (ok && first && !has_checkpoint(t, at)) {
            printf("FAIL: the file of position %" PRIu64 " was not used\n", at.position);
            ok = false;
        }
        first = false;
    }
    timeline_close(t);
    return ok;
}

static int each_file(const char *dir, const struct timeline_config *config)
{
    struct place *places;
    struct instant *files;
    u32 count;
    unsigned n = file_places(dir, &places, &files, &count);
    bool ok = true;
    straight(dir, config->named, places, n);
    for (u32 i = count; ok && i-- > 0;) {
        struct instant next = i + 1 < count ? files[i + 1] : (struct instant){NEVER, NEVER};
        ok = one_file(dir, config, files[i], next, places, n);
    }
    printf("walk: %u files, %u places: %s\n", count, n,
           ok ? "all as in a straight replay" : "FAILED");
    free(places);
    free(files);
    return !ok;
}

static void warn(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "walk: %s\n", text);
}

/* "N=FILE" */
static void name_disk(struct disk_spec disk[DESCRIPTION_DISKS], const char *text)
{
    char *end;
    struct err err = {0};
    unsigned long n = strtoul(text, &end, 10);
    if (n >= DESCRIPTION_DISKS || *end != '=') {
        fprintf(stderr, "walk: --disk N=FILE\n");
        exit(2);
    }
    if (disk_spec_parse(&disk[n], end + 1, false, &err))
        die(&err);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", 1, NULL, 's'},   {"places", 1, NULL, 'p'},   {"moves", 1, NULL, 'm'},
        {"memory", 1, NULL, 'M'}, {"no-files", 0, NULL, 'f'}, {"each-file", 0, NULL, 'e'},
        {"engine", 1, NULL, 'E'}, {"disk", 1, NULL, 'd'},     {0}};
    struct disk_named named = {.npaths = 0};
    struct disk_spec *disk = named.spec;
    struct timeline_config config = {.warn = warn, .named = &named};
    unsigned n = 50, moves = 100;
    bool files = false;
    u64 seed;
    int o;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return 2;
    seed >>= 32;
    while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (o) {
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 'p': n = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'm': moves = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'M': config.memory = strtoull(optarg, NULL, 0) << 20; break;
        case 'f': config.ignore_files = true; break;
        case 'e': files = true; break;
        case 'E':
            if (engine_kind_find(optarg) < 0)
                return 2;
            config.engine = (enum engine_kind)engine_kind_find(optarg);
            break;
        case 'd': name_disk(disk, optarg); break;
        default: return 2;
        }
    if (optind != argc - 1 || n < 2)
        return fprintf(stderr, "usage: walk DIR [--seed S] [--places N] [--moves N]\n"), 2;
    printf("walk: seed %" PRIu64 "\n", seed);
    setvbuf(stdout, NULL, _IOLBF, 0);
    state = seed;
    if (files)
        return each_file(argv[optind], &config);
    struct timeline *t;
    struct err err = {0};
    if (timeline_open(&t, argv[optind], &config, &err))
        die(&err);
    struct place *places = calloc(n + 1, sizeof(*places));
    pos_t last = timeline_end(t).position;
    for (unsigned i = 0; i < n; i++)
        places[i].position = below(last);
    /* Checkpoints of the files, too: each of them once at least. */
    qsort(places, n, sizeof(*places), by_position);
    straight(argv[optind], &named, places, n);
    bool ok = walk(t, places, n, moves);
    struct timeline_stats s;
    timeline_stats(t, &s);
    printf("walk: %u moves among %u places of %.2f G positions: %s; %u checkpoints in memory "
           "(%.0f MiB), %u files\n",
           moves_done, n, (double)last * 1e-9, ok ? "all as in a straight replay" : "FAILED",
           s.checkpoints, (double)s.memory / 1048576, s.files);
    timeline_close(t);
    free(places);
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++)
        disk_spec_free(&disk[i]);
    return !ok;
}
