/*
 * Tiny guests recorded under KVM with inputs at random positions, and replayed under KVM and under
 * dbt: digests of CPU, devices and output must be the same at every position sampled, those of RAM
 * at some.
 *
 *     inject [--seed S] [--turn N] [--inputs N] [--window N] [--engine kvm|dbt] GUEST.elf...
 *
 * A turn is one recording. dbt runs the guest up to a random place in it (or to none: some are
 * KVM's from power-on), the engine takes over there and runs for a window of positions, in which
 * NMIs, bytes typed, BREAKs and the power button come every few positions. Turns go on, each with
 * the next guest, until that many inputs were given. Exits 1 at the first difference, with the
 * command that repeats that turn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <Zydis/Zydis.h>

#include "board/ram.h"
#include "cpu/vcpu.h"
#include "replay/player.h"
#include "replay/recorder.h"

#define MEMORY  (16ull << 20)
#define BOOT    20000u   /* positions before a guest's own code, about */
#define LONGEST 3000000u /* places beyond are not looked for */
#define SAMPLES 4096u
#define AHEAD   64u /* instructions without a branch: a branchless stretch */

struct sample {
    pos_t position;
    vns_t time;
    u64 rip, cpu, all, ram; /* digests; ram 0: not taken */
};

struct guest {
    const char *path, *name;
    void *elf;
    size_t size;
    pos_t length; /* without inputs */
};

struct totals {
    u64 turns, inputs, nmis, in_rep, branchless, ring3, delivered, samples, steps;
};

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
    return next_random() % n;
}

static _Noreturn void die(const char *what, const struct err *err)
{
    fprintf(stderr, "inject: %s: %s\n", what, err->text);
    exit(2);
}

/* ---- the source of inputs ---- */

struct injector {
    struct input_source src;
    pos_t next, end;
    bool now; /* one is due although its position has not come: the guest waits for it */
    bool quit, silent;
    unsigned nmis; /* so many inputs of ten are NMIs */
    u8 data[8];
    struct totals *totals;
};

static u64 gap(void)
{
    switch (below(8)) {
    case 0: return 1 + below(6);
    case 1:
    case 2: return 1 + below(1500);
    default: return 1 + below(500);
    }
}

static bool is_branch(const ZydisDecodedInstruction *in)
{
    switch (in->meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_SYSCALL: return true;
    default: return false;
    }
}

/* What the guest is at: in a REP string with more than one iteration left, in a stretch without
 * branches. */
static void look_where(struct machine *m, struct totals *t)
{
    const struct vcpu *c = machine_vcpu(m);
    ZydisDecoder dec;
    ZydisDecodedInstruction in;
    ZydisDecoderInit(&dec, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    t->ring3 += (c->seg_sel[SEG_CS] & 3) == 3;
    u64 rip = c->rip;
    for (unsigned i = 0;; i++) {
        u8 bytes[15];
        if (i == AHEAD) {
            t->branchless++;
            return;
        }
        if (!machine_peek(m, rip, bytes, sizeof(bytes)) ||
            !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&dec, NULL, bytes, sizeof(bytes), &in)))
            return;
        bool rep =
            in.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE);
        if (i == 0 && rep && c->gpr[RCX] > 1)
            t->in_rep++;
        if (is_branch(&in))
            return;
        rip += in.length;
    }
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct injector *s = (struct injector *)src;
    pos_t to = MIN(s->next, s->end), now = machine_position(m);
    return to > now ? to : now + 1;
}

static void choose(struct injector *s, struct machine *m, struct input *in)
{
    *in = (struct input){.kind = INPUT_NMI};
    if (below(10) < s->nmis)
        return;
    u32 room = MIN(machine_room(m, INPUT_CONSOLE, 0), (u32)sizeof(s->data));
    u64 what = below(8);
    if (what == 0) {
        in->kind = INPUT_LINE_BREAK;
    } else if (what == 1) {
        in->kind = INPUT_POWER_BUTTON;
    } else if (room) {
        in->kind = INPUT_CONSOLE;
        in->len = 1 + (u32)below(room);
        in->data = s->data;
        for (u32 i = 0; i < in->len; i++)
            s->data[i] = (u8) "abcdefgh \n"[below(10)];
    }
    if (!machine_room(m, in->kind, 0))
        *in = (struct input){.kind = INPUT_NMI};
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct injector *s = (struct injector *)src;
    pos_t now = machine_position(m);
    if (s->quit)
        return 0;
    if (now >= s->end) {
        s->quit = true;
        *in = (struct input){.kind = INPUT_QUIT, .arg = QUIT_INSNS};
        return 1;
    }
    if (now < s->next && !s->now)
        return 0;
    choose(s, m, in);
    s->now = false;
    s->next = now + gap();
    s->totals->inputs++;
    s->totals->nmis += in->kind == INPUT_NMI;
    look_where(m, s->totals);
    return 1;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct injector *s = (struct injector *)src;
    vns_t now = machine_now(m);
    *until = deadline;
    if (s->silent)
        return deadline == NEVER;
    /* Later than now: a sample that was taken right here has come before it in the replay, too. */
    if (deadline == NEVER) {
        *until = now + 1;
        s->now = true;
    } else if (deadline > now + 2 && below(3) == 0 && machine_position(m) + 1000 > s->next) {
        *until = now + 1 + below(deadline - now - 1);
        s->now = true;
    }
    return 0;
}

static const struct input_source_ops injector_ops = {next_position, take, idle, NULL, NULL};

/* ---- machines ---- */

static struct machine *make(const struct guest *g, enum engine_kind engine)
{
    struct machine_description is;
    description_init(&is);
    is.memory = MEMORY;
    is.seed = 1;
    is.wall_clock = 1700000000;
    struct machine_config config = {
        .is = &is, .engine = engine, .kernel = g->elf, .kernel_size = g->size};
    struct machine *m;
    struct err err = {0};
    if (machine_create(&m, &config, &err))
        die(g->name, &err);
    return m;
}

/* The same machine under another engine, from here on. */
static struct machine *hand_over(const struct guest *g, struct machine *m, enum engine_kind engine)
{
    struct machine *to = make(g, engine);
    size_t size = machine_state_size(m), outputs = machine_output_size();
    u8 *state = calloc(1, size), *output = calloc(1, outputs);
    struct err err = {0};
    memcpy(machine_ram(to)->host, machine_ram(m)->host, MEMORY);
    for (u64 i = 0; i < MEMORY / PAGE_SIZE; i++)
        machine_page_changed(to, i);
    machine_state_save(m, state);
    machine_output_save(m, output);
    if (machine_state_load(to, state, size, &err))
        die("handing over", &err);
    machine_output_load(to, output);
    machine_destroy(m);
    free(state);
    free(output);
    return to;
}

static void look(struct machine *m, bool ram, struct sample *s)
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
    }
    *s = (struct sample){.position = machine_position(m),
                         .time = machine_now(m),
                         .rip = machine_vcpu(m)->rip,
                         .cpu = machine_cpu_digest(m, false),
                         .all = XXH3_64bits_digest(&h)};
    for (unsigned i = 0; ram && i < machine_ram_regions(m); i++) {
        gpa_t gpa;
        s->ram = s->ram * 31 + machine_ram_region_digest(m, i, &gpa);
    }
}

static int go(struct machine *m, struct input_source *src, pos_t to, struct run_end *end,
              struct err *err)
{
    struct run_limits limits = {.stop_at = to};
    return machine_run(m, src, &limits, end, err);
}

/* ---- a turn ---- */

struct turn {
    const struct guest *guest;
    enum engine_kind engine;
    pos_t begin, end; /* of the engine's share */
    int log;          /* its file */
    struct sample samples[SAMPLES];
    unsigned n;
};

static struct log_writer *new_log(struct turn *t)
{
    struct log_writer *w;
    struct err err = {0};
    t->log = memfd_create("log", MFD_CLOEXEC);
    if (t->log < 0 || log_writer_create(&w, dup(t->log), &err))
        die("a log", &err);
    return w;
}

static bool record(struct turn *t, struct totals *totals)
{
    struct machine *m = make(t->guest, t->begin ? ENGINE_DBT : t->engine);
    struct injector source = {.src = {&injector_ops},
                              .next = t->begin + gap(),
                              .end = t->end,
                              .nmis = (unsigned)below(11),
                              .totals = totals};
    struct recorder_config config = {.log = new_log(t), .live = &source.src};
    struct recorder *r;
    struct machine_stats stats;
    struct run_end end = {.reason = RUN_STOP};
    struct err err = {0};
    if (recorder_create(&r, &config, m, &err))
        die("the recorder", &err);
    int code = 0;
    if (t->begin)
        code = go(m, recorder_source(r), t->begin, &end, &err);
    if (t->begin && !code && end.reason == RUN_STOP)
        m = hand_over(t->guest, m, t->engine);
    for (pos_t at = t->begin; !code && end.reason == RUN_STOP;) {
        at = MAX(at, machine_position(m)) + 1 + below(below(4) ? 300 : 4000);
        if (t->n == SAMPLES)
            at = NEVER;
        code = go(m, recorder_source(r), at, &end, &err);
        if (!code && end.reason == RUN_STOP)
            look(m, below(4) == 0, &t->samples[t->n++]);
    }
    if (code) {
        printf("FAIL: the recording: %s\n", err.text);
    } else if (recorder_finish(r, m, &end, &err)) {
        die("the recorder", &err);
    }
    machine_stats(m, &stats);
    totals->delivered += stats.interrupts;
    totals->steps += stats.kvm_steps;
    totals->samples += t->n;
    recorder_destroy(r);
    machine_destroy(m);
    return !code;
}

static bool same(const struct sample *want, const struct sample *got, enum engine_kind engine)
{
    if (want->position == got->position && want->time == got->time && want->all == got->all &&
        (!want->ram || want->ram == got->ram))
        return true;
    printf("FAIL: the replay under %s differs at position %" PRIu64 ": position %" PRIu64
           ", time %" PRIu64 " / %" PRIu64 ", RIP %" PRIx64 " / %" PRIx64
           ", CPU %s, devices and output %s, RAM %s\n",
           engine_kind_name(engine), want->position, got->position, want->time, got->time,
           want->rip, got->rip, want->cpu == got->cpu ? "same" : "differs",
           want->all == got->all ? "same" : "differ",
           !want->ram              ? "not compared"
           : want->ram == got->ram ? "same"
                                   : "differs");
    return false;
}

static bool replay(struct turn *t, enum engine_kind engine)
{
    struct machine *m = make(t->guest, t->begin ? ENGINE_DBT : engine);
    struct player_config config = {.verify = true};
    struct player *p;
    struct run_end end = {.reason = RUN_STOP};
    struct err err = {0}, run_err = {0};
    bool good = true;
    lseek(t->log, 0, SEEK_SET);
    if (log_reader_create(&config.log, dup(t->log), &err) || player_create(&p, &config, m, &err))
        die("the player", &err);
    if (t->begin)
        go(m, player_source(p), t->begin, &end, &run_err);
    if (t->begin && end.reason == RUN_STOP && engine != ENGINE_DBT)
        m = hand_over(t->guest, m, engine);
    for (unsigned i = 0; good && end.reason == RUN_STOP && i < t->n; i++) {
        struct sample now;
        if (go(m, player_source(p), t->samples[i].position, &end, &run_err) ||
            end.reason != RUN_STOP)
            break;
        look(m, t->samples[i].ram, &now);
        good = same(&t->samples[i], &now, engine);
    }
    if (good && end.reason == RUN_STOP)
        go(m, player_source(p), NEVER, &end, &run_err);
    if (good && player_finish(p, m, &end, &run_err, &err) != PLAYER_SAME) {
        printf("FAIL: the replay under %s: %s\n%s", engine_kind_name(engine), err.text,
               player_report(p));
        good = false;
    }
    player_destroy(p);
    machine_destroy(m);
    return good;
}

static bool one_turn(const struct guest *g, enum engine_kind engine, u64 window,
                     struct totals *totals)
{
    static struct turn t;
    pos_t room = g->length > BOOT ? g->length - BOOT : 1;
    t = (struct turn){.guest = g, .engine = engine};
    t.begin = below(8) == 0 ? 0 : BOOT + below(room);
    t.end = t.begin + (t.begin ? 0 : BOOT) + window;
    bool good = record(&t, totals) && replay(&t, engine) && replay(&t, ENGINE_DBT);
    totals->turns++;
    close(t.log);
    return good;
}

/* ---- the guests ---- */

/* How far it goes by itself. */
static pos_t length_of(const struct guest *g)
{
    struct totals none = {0};
    struct injector source = {
        .src = {&injector_ops}, .next = NEVER, .end = NEVER, .silent = true, .totals = &none};
    struct machine *m = make(g, ENGINE_DBT);
    struct run_end end;
    struct err err = {0};
    if (go(m, &source.src, LONGEST, &end, &err))
        die(g->name, &err);
    pos_t at = machine_position(m);
    machine_destroy(m);
    return at;
}

static void load(struct guest *g, const char *path)
{
    struct err err = {0};
    const char *slash = strrchr(path, '/');
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    *g = (struct guest){.path = path, .name = slash ? slash + 1 : path};
    g->elf = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (g->elf == MAP_FAILED) {
        err_errno(&err, "cannot read it");
        die(path, &err);
    }
    close(fd);
    g->size = (size_t)size;
    g->length = length_of(g);
}

static void print_totals(const char *name, const struct totals *t)
{
    printf("inject: %s: %" PRIu64 " recordings, %" PRIu64 " inputs (%" PRIu64 " NMIs; %" PRIu64
           " within REP strings, %" PRIu64 " in stretches of %u instructions without a branch, "
           "%" PRIu64 " in ring 3), %" PRIu64 " other interrupts delivered, %" PRIu64
           " steps by KVM, %" PRIu64 " positions sampled: all the same\n",
           name, t->turns, t->inputs, t->nmis, t->in_rep, t->branchless, AHEAD, t->ring3,
           t->delivered, t->steps, t->samples);
}

static void add(struct totals *to, const struct totals *t)
{
    to->turns += t->turns;
    to->inputs += t->inputs;
    to->nmis += t->nmis;
    to->in_rep += t->in_rep;
    to->branchless += t->branchless;
    to->ring3 += t->ring3;
    to->delivered += t->delivered;
    to->samples += t->samples;
    to->steps += t->steps;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", 1, NULL, 's'},   {"turn", 1, NULL, 't'},
                                            {"inputs", 1, NULL, 'i'}, {"window", 1, NULL, 'w'},
                                            {"engine", 1, NULL, 'E'}, {0}};
    u64 seed, inputs = 1000, window = 15000, only = NEVER;
    int engine = ENGINE_KVM, o;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return 2;
    seed >>= 32;
    while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (o) {
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 't': only = strtoull(optarg, NULL, 0); break;
        case 'i': inputs = strtoull(optarg, NULL, 0); break;
        case 'w': window = strtoull(optarg, NULL, 0); break;
        case 'E': engine = engine_kind_find(optarg); break;
        default: return 2;
        }
    unsigned n = (unsigned)(argc - optind);
    if (!n || engine < 0 || !window)
        return fprintf(stderr, "usage: inject [--seed S] [--turn N] [--inputs N] [--window N] "
                               "[--engine kvm|dbt] GUEST.elf...\n"),
               2;
    struct guest *guests = calloc(n, sizeof(*guests));
    struct totals *totals = calloc(n, sizeof(*totals)), all = {0};
    for (unsigned i = 0; i < n; i++)
        load(&guests[i], argv[optind + (int)i]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("inject: seed %" PRIu64 "\n", seed);
    u64 given = 0;
    for (u64 turn = only == NEVER ? 0 : only; given < inputs; turn++) {
        unsigned i = (unsigned)(turn % n);
        u64 before = totals[i].inputs;
        random_state = seed * 0x2545f4914f6cdd1dull + turn;
        if (!one_turn(&guests[i], (enum engine_kind)engine, window, &totals[i])) {
            printf("again: inject --seed %" PRIu64 " --turn %" PRIu64
                   " --inputs 1 --window %" PRIu64 " --engine %s GUESTS (%s)\n",
                   seed, turn, window, engine_kind_name((enum engine_kind)engine), guests[i].name);
            return 1;
        }
        given += totals[i].inputs - before;
        if (turn > 100 * n && !given)
            return fprintf(stderr, "inject: these guests take no input\n"), 2;
    }
    for (unsigned i = 0; i < n; i++) {
        if (totals[i].turns)
            print_totals(guests[i].name, &totals[i]);
        add(&all, &totals[i]);
    }
    print_totals("all", &all);
    for (unsigned i = 0; i < n; i++)
        munmap(guests[i].elf, guests[i].size);
    free(guests);
    free(totals);
    return 0;
}
