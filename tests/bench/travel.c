/*
 * Times of going about in a recording, through replay/timeline.h: one JSON object a line with the
 * samples of one thing ("name", "wall" and "cpu" in seconds, "from" where it began, "n" positions
 * it went).
 *
 *     travel DIR STAGE [--seed S] [--count N] [--only SEARCH]
 *
 * STAGE: replay, seek, step, back, search, memory. travel.py judges.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/vcpu.h"
#include "inspect/guest_linux.h"
#include "replay/player.h"
#include "replay/timeline.h"

#define FAR 100000000u /* positions that a run back covers */

static u64 state = 1;
static const char *only = ""; /* of the searches: part of their names */
static struct err err;

static u64 next_random(void)
{
    state += 0x9e3779b97f4a7c15ull;
    u64 z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static double clock_s(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- samples ---- */

static struct {
    double wall, cpu;
    pos_t from, n; /* from where, how many positions */
} sample[4096];
static unsigned samples;
static double wall, cpu;

static void begin(void)
{
    wall = clock_s(CLOCK_MONOTONIC);
    cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

static void end(pos_t from, pos_t n)
{
    if (samples == ARRAY_SIZE(sample))
        return;
    sample[samples].wall = clock_s(CLOCK_MONOTONIC) - wall;
    sample[samples].cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    sample[samples].from = from;
    sample[samples++].n = n;
}

static void print(const char *name)
{
    printf("{\"name\":\"%s\",\"wall\":[", name);
    for (unsigned i = 0; i < samples; i++)
        printf("%s%.6f", i ? "," : "", sample[i].wall);
    printf("],\"cpu\":[");
    for (unsigned i = 0; i < samples; i++)
        printf("%s%.6f", i ? "," : "", sample[i].cpu);
    printf("],\"from\":[");
    for (unsigned i = 0; i < samples; i++)
        printf("%s%" PRIu64, i ? "," : "", sample[i].from);
    printf("],\"n\":[");
    for (unsigned i = 0; i < samples; i++)
        printf("%s%" PRIu64, i ? "," : "", sample[i].n);
    printf("]}\n");
    fflush(stdout);
    samples = 0;
}

/* ---- shorthands ---- */

static void must(int code)
{
    if (!code)
        return;
    fprintf(stderr, "travel: %s\n", err.text);
    exit(1);
}

static void warn(void *opaque, const char *text)
{
    (void)opaque;
    fprintf(stderr, "travel: %s\n", text);
}

static struct timeline *open_timeline(const char *dir)
{
    struct timeline_config config = {.warn = warn};
    struct timeline *t;
    must(timeline_open(&t, dir, &config, &err));
    return t;
}

static pos_t position(struct timeline *t)
{
    return timeline_now(t).position;
}

static enum timeline_stop seek(struct timeline *t, pos_t to)
{
    enum timeline_stop stop;
    must(timeline_seek(t, (struct instant){to, 0}, &stop, &err));
    return stop;
}

static enum timeline_stop step_back(struct timeline *t)
{
    enum timeline_stop stop;
    must(timeline_step_back(t, &stop, &err));
    return stop;
}

static enum timeline_stop forward(struct timeline *t, pos_t to)
{
    enum timeline_stop stop;
    must(timeline_forward(t, (struct instant){to, 0}, true, &stop, &err));
    return stop;
}

static enum timeline_stop backward(struct timeline *t)
{
    enum timeline_stop stop;
    must(timeline_backward(t, &stop, &err));
    return stop;
}

static void point(struct timeline *t, enum debug_kind kind, bool physical, u64 address)
{
    struct debug_point p;
    memset(&p, 0, sizeof(p));
    p.kind = kind;
    p.physical = physical;
    p.address = address;
    p.length = kind == DEBUG_EXEC ? 1 : 8;
    must(timeline_set_points(t, &p, 1, &err));
}

static void no_points(struct timeline *t)
{
    must(timeline_set_points(t, NULL, 0, &err));
}

static pos_t somewhere(struct timeline *t)
{
    pos_t last = timeline_end(t).position;
    return last / 50 + next_random() % (last - last / 50);
}

static u64 symbol(struct timeline *t, const char *name)
{
    static struct symbols s;
    u64 address;
    if (!s.count)
        must(guest_symbols_read(&s, timeline_machine(t), &err));
    if (symbols_address(&s, name, &address))
        return address;
    fprintf(stderr, "travel: the guest's kernel has no %s\n", name);
    exit(1);
}

/* ---- stages ---- */

/* From power-on to the end, without anything of the timeline; a sample is a piece of the way. */
static void stage_replay(const char *dir, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct opened o;
        struct machine *m;
        struct player *player;
        struct run_limits limits = {0};
        struct run_end how;
        must(open_recording(&o, dir, &err));
        must(build_machine(&o, &m, &err));
        struct player_config config = {.log = o.log, .dir = dir, .contents = o.rec.contents};
        o.log = NULL;
        must(player_create(&player, &config, m, &err));
        do {
            pos_t from = machine_position(m);
            limits.stop_at = from + FAR;
            begin();
            must(machine_run(m, player_source(player), &limits, &how, &err));
            end(from, machine_position(m) - from);
        } while (how.reason == RUN_STOP);
        print("replay");
        player_destroy(player);
        machine_destroy(m);
        close_recording(&o);
    }
}

/* Random seeks in one session: the first, the next ones, and once everything was replayed. */
static void stage_seek(const char *dir, unsigned count)
{
    begin();
    struct timeline *t = open_timeline(dir);
    end(0, 0);
    print("open");
    static const char *const names[] = {"seek, new session", "seek, later", "seek, all replayed"};
    for (unsigned k = 0; k < ARRAY_SIZE(names); k++) {
        if (k == 2) {
            seek(t, 0);
            forward(t, NEVER);
        }
        for (unsigned i = 0; i < count; i++) {
            pos_t to = somewhere(t);
            begin();
            seek(t, to);
            end(to, 0);
        }
        print(names[k]);
    }
    timeline_close(t);
}

/* Steps back: the first after a seek, the next ones, after a breakpoint was run to. */
static void stage_step(const char *dir, unsigned count)
{
    struct timeline *t = open_timeline(dir);
    pos_t *places = calloc(count, sizeof(*places));
    for (unsigned i = 0; i < count; i++) {
        places[i] = somewhere(t);
        seek(t, places[i]);
        begin();
        step_back(t);
        end(position(t), 1);
    }
    print("step back after a seek");
    for (unsigned i = 0; i < count; i++) {
        seek(t, places[i]);
        for (unsigned k = 0; k < 20; k++) {
            step_back(t);
            begin();
            step_back(t);
            end(position(t), 1);
        }
    }
    print("steps back in a row");
    u64 rip = symbol(t, "do_exit");
    for (unsigned i = 0; i < count; i++) {
        no_points(t);
        seek(t, places[i]);
        point(t, DEBUG_EXEC, false, rip);
        if (forward(t, NEVER) != TIMELINE_HIT)
            continue;
        no_points(t);
        begin();
        step_back(t);
        end(position(t), 1);
    }
    print("step back after continue");
    free(places);
    timeline_close(t);
}

/* Where `address` was hit last at least FAR before some place; from each such place back. */
static void run_back(const char *dir, const char *what, enum debug_kind kind, const char *name,
                     unsigned count)
{
    struct timeline *t = open_timeline(dir);
    pos_t *from = calloc(count, sizeof(*from)), last = 0, limit = timeline_end(t).position;
    unsigned n = 0;
    seek(t, limit - 1000);
    u64 address = symbol(t, name);
    seek(t, limit / 10);
    point(t, kind, false, address);
    while (n < count) {
        enum timeline_stop stop = forward(t, NEVER);
        pos_t now = stop == TIMELINE_HIT ? timeline_hit(t)->position : limit;
        if (last && now - last > FAR + FAR / 50)
            from[n++] = last + FAR;
        last = now;
        if (stop != TIMELINE_HIT)
            break;
    }
    timeline_close(t);
    t = open_timeline(dir); /* without what the way forward has left */
    for (unsigned i = 0; i < n; i++) {
        no_points(t);
        seek(t, from[n - 1 - i]);
        point(t, kind, false, address);
        begin();
        enum timeline_stop stop = backward(t);
        end(from[n - 1 - i], from[n - 1 - i] - position(t));
        if (stop != TIMELINE_HIT)
            fprintf(stderr, "travel: nothing was hit before %" PRIu64 "\n", from[n - 1 - i]);
    }
    print(what);
    free(from);
    timeline_close(t);
}

static void stage_back(const char *dir, unsigned count)
{
    run_back(dir, "back to a breakpoint", DEBUG_EXEC, "do_exit", count);
    run_back(dir, "back to a watchpoint", DEBUG_WRITE, "total_forks", count);
}

/* ---- the last write to a word ---- */

#define WORDS (PAGE_SIZE / 8)
#define LOOKS 60
#define TASKS 64

enum { TASK, KERNEL_STACK, USER_STACK, JIFFIES, COLD, TARGETS };

struct target {
    const char *name;
    bool physical, known;
    u64 page;
    u64 value[WORDS];
    bool varies[WORDS];
    u64 word; /* what is searched for */
};

/* The page as it is here, compared with how it was. */
static void compare(struct timeline *t, struct target *g)
{
    struct machine *m = timeline_machine(t);
    u64 now[WORDS];
    if (!(g->physical ? machine_peek_physical(m, g->page, now, PAGE_SIZE)
                      : machine_peek(m, g->page, now, PAGE_SIZE)))
        return;
    for (unsigned i = 0; i < WORDS; i++)
        g->varies[i] = g->varies[i] || (g->known && now[i] != g->value[i]);
    memcpy(g->value, now, sizeof(now));
    g->known = true;
}

/* A word in the middle of those that were never seen to change, else the first. */
static void choose(struct target *g)
{
    unsigned same = 0, seen = 0;
    for (unsigned i = 0; i < WORDS; i++)
        same += !g->varies[i];
    g->word = g->page;
    for (unsigned i = 0; i < WORDS; i++)
        if (!g->varies[i] && seen++ == same / 2)
            g->word = g->page + 8 * i;
}

/* Pages that are written all the time: the task that is seen most often in the second half, its
 * stacks, jiffies_64's; and one that is not, of which a word is known. */
static void find_targets(struct timeline *t, struct target target[TARGETS])
{
    static struct {
        u64 task, kernel_stack, user_stack;
        unsigned n;
    } seen[TASKS];
    pos_t limit = timeline_end(t).position;
    unsigned n = 0, best = 0;
    seek(t, limit / 2);
    u64 current = symbol(t, "current_task"), top = symbol(t, "cpu_current_top_of_stack");
    for (unsigned i = 0; i < LOOKS; i++) {
        seek(t, limit / 2 + limit / 2 / LOOKS * i);
        struct machine *m = timeline_machine(t);
        const struct vcpu *c = machine_vcpu(m);
        bool user = (c->seg_sel[SEG_CS] & 3) == 3;
        u64 gs = user ? c->kernel_gs_base : c->seg_base[SEG_GS], who = 0, stack = 0;
        unsigned k = 0;
        if (!machine_peek(m, gs + current, &who, 8) || !machine_peek(m, gs + top, &stack, 8))
            continue;
        while (k < n && seen[k].task != who)
            k++;
        if (k == TASKS)
            continue;
        n = MAX(n, k + 1);
        seen[k].task = who;
        seen[k].kernel_stack = (stack - 1) & ~(u64)(PAGE_SIZE - 1);
        u64 gpa;
        if (user && machine_linear_to_physical(m, c->gpr[4], &gpa))
            seen[k].user_stack = gpa & ~(u64)(PAGE_SIZE - 1);
        if (seen[k].user_stack && ++seen[k].n > seen[best].n)
            best = k;
    }
    u64 cold = symbol(t, "saved_command_line");
    target[TASK] = (struct target){.name = "slab page", .page = seen[best].task & ~0xfffull};
    target[KERNEL_STACK] = (struct target){.name = "kernel stack", .page = seen[best].kernel_stack};
    target[USER_STACK] = (struct target){
        .name = "user stack, physical", .physical = true, .page = seen[best].user_stack};
    target[JIFFIES] =
        (struct target){.name = "page of jiffies_64", .page = symbol(t, "jiffies_64") & ~0xfffull};
    target[COLD] = (struct target){.name = "written early only", .word = cold};
    for (unsigned i = 0; i < LOOKS; i++) {
        seek(t, limit / 4 + limit / 4 * 3 / LOOKS * i);
        for (unsigned k = 0; k < COLD; k++)
            compare(t, &target[k]);
    }
    for (unsigned k = 0; k < COLD; k++)
        choose(&target[k]);
}

/* From the end back to the last write, and on until it is known for most of the recording. */
static void stage_search(const char *dir, unsigned count)
{
    static struct target target[TARGETS];
    struct timeline *t = open_timeline(dir);
    pos_t limit = timeline_end(t).position;
    char name[64];
    find_targets(t, target);
    u64 jiffies = symbol(t, "jiffies_64");
    timeline_close(t);
    for (unsigned k = 0; k < TARGETS; k++) {
        if (!strstr(target[k].name, only))
            continue;
        t = open_timeline(dir);
        seek(t, limit - 1);
        point(t, DEBUG_WRITE, target[k].physical, target[k].word);
        enum timeline_stop stop = TIMELINE_HIT;
        for (unsigned i = 0; stop == TIMELINE_HIT && position(t) > limit / 4 && i < 200; i++) {
            pos_t from = position(t);
            begin();
            stop = backward(t);
            end(from, from - position(t));
        }
        snprintf(name, sizeof(name), "search: %s", target[k].name);
        print(name);
        timeline_close(t);
    }
    t = open_timeline(dir);
    for (unsigned i = 0; i < count; i++) {
        no_points(t);
        seek(t, somewhere(t));
        point(t, DEBUG_WRITE, false, jiffies);
        pos_t from = position(t);
        begin();
        backward(t);
        end(from, from - position(t));
    }
    print("back to the last write of jiffies_64");
    timeline_close(t);
}

/* What checkpoints in memory take once everything was replayed. */
static void stage_memory(const char *dir, unsigned count)
{
    struct timeline *t = open_timeline(dir);
    struct timeline_stats s;
    (void)count;
    enum timeline_stop stop;
    seek(t, 0);
    begin();
    must(timeline_forward(t, (struct instant){NEVER, 0}, true, &stop, &err));
    end(0, position(t));
    print("replay that keeps checkpoints");
    timeline_stats(t, &s);
    printf("{\"name\":\"memory\",\"checkpoints\":%u,\"bytes\":%" PRIu64 ",\"budget\":%" PRIu64
           ",\"files\":%u,\"disk\":%" PRIu64 "}\n",
           s.checkpoints, s.memory, s.budget, s.files, s.disk);
    timeline_close(t);
}

static const struct {
    const char *name;
    void (*run)(const char *dir, unsigned count);
} stages[] = {{"replay", stage_replay}, {"seek", stage_seek},     {"step", stage_step},
              {"back", stage_back},     {"search", stage_search}, {"memory", stage_memory}};

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", 1, NULL, 's'}, {"count", 1, NULL, 'c'}, {"only", 1, NULL, 'o'}, {0}};
    unsigned count = 20;
    int o;
    while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (o) {
        case 's': state = strtoull(optarg, NULL, 0); break;
        case 'c': count = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'o': only = optarg; break;
        default: return 2;
        }
    for (size_t i = 0; optind + 2 == argc && i < ARRAY_SIZE(stages); i++)
        if (!strcmp(stages[i].name, argv[optind + 1]))
            return stages[i].run(argv[optind], count), 0;
    fprintf(stderr, "usage: travel DIR replay|seek|step|back|search|memory [--count N]\n");
    return 2;
}
