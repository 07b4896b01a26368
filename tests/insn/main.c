/*
 * tests/insn: the engine against the host CPU. Prints the seed, what was covered and, for each
 * case that differs, what differs and the command that repeats it. Exit status 1 if any does.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/insn/insn.h"

#define MAX_CATEGORIES 96
#define MAX_MNEMONICS  64
#define MAX_BAD        1024
#define RERUNS         3u /* of a case that differs, and how many of them must differ again */
#define RERUNS_BAD     2u
#define WAVERING       25000u /* one case in so many may differ without doing so again, or 20 */

struct tally {
    const char *name;
    u64 cases, bad;
};

struct trouble {
    const char *what, *skip; /* between whom; why there is no verdict */
    unsigned soft, rules;
    struct difference d;
};

struct run {
    enum cpu_model model;
    enum engine_kind engine;
    const char *model_arg, *only;
    u64 seed, cases, first;
    u64 one; /* NEVER: all */
    unsigned show;
    bool native_only, stops, counters, paranoid, often, canonical;
    struct forms forms;
    struct guest *guest;
    struct icase *batch;
    u8 *mem; /* the data window before a case */
    u64 done, skipped, failed, soft, faults, wavered, rules;
    struct tally category[MAX_CATEGORIES], bad[MAX_BAD], why[MAX_MNEMONICS];
    u64 vectors[32];
    u8 *seen; /* forms met, by mnemonic */
    struct outcome native, before, fast, single;
};

static void count(struct tally *t, unsigned n, const char *name, bool bad)
{
    for (unsigned i = 0; i < n; i++) {
        if (t[i].name && strcmp(t[i].name, name) != 0)
            continue;
        t[i].name = name;
        t[i].cases++;
        t[i].bad += bad;
        return;
    }
}

static const char *name_of(const struct icase *c)
{
    return c->sequence  ? "(sequence)"
           : c->decoded ? ZydisMnemonicGetString(c->insn.mnemonic)
                        : "(undecoded)";
}

static void show(const struct run *run, const struct icase *c, const char *verdict,
                 const struct trouble *t)
{
    printf("%s %s: %s\n", verdict, name_of(c), t->what);
    print_case(c, run->model);
    fputs(t->d.text, stdout);
    printf("  again: tests/insn --code %u --model %s --engine %s --seed %llu%s%s --case %llu\n",
           test_bits(), run->model_arg, engine_kind_name(run->engine),
           (unsigned long long)run->seed, run->only ? " --only " : "", run->only ? run->only : "",
           (unsigned long long)c->number);
}

static void run_native(struct run *run, const struct icase *c)
{
    u8 *mem = native_mem();

    for (unsigned i = 0; i < DATA_PAGES; i++)
        if (DATA_RW >> i & 1)
            memcpy(mem + i * PAGE_SIZE, run->mem + i * PAGE_SIZE, PAGE_SIZE);
    native_run(&c->st, &run->native);
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if (DATA_RW >> i & 1)
            memcpy(run->native.mem + i * PAGE_SIZE, mem + i * PAGE_SIZE, PAGE_SIZE);
}

/* XSAVE and XRSTOR touch the end of the area of everything in XCR0, and the host's has more in it.
 */
static bool host_area(const struct icase *c, const struct outcome *n)
{
    return c->decoded && c->insn.meta.isa_set == ZYDIS_ISA_SET_XSAVE && n->vector == EXC_PF &&
           n->cr2 - c->image_ea >= XSAVE_SIZE - 1 && n->cr2 - c->image_ea < 16384;
}

static bool differs(struct trouble *t, const char *what, enum verdict v)
{
    if (v != DIFFERENT)
        return false;
    t->what = what;
    return true;
}

/*
 * The rule of dead flags must hold on this CPU: flags that it calls dead in front of the code may
 * have any value, and nothing comes out differently. (Some CPU makers leave other "undefined"
 * flags alone than others.)
 */
static bool rule_breaks(struct run *run, const struct icase *c, struct trouble *t)
{
    u32 dead = FL_ARITH & ~guest_live(run->guest, c->st.rip);
    struct icase flipped = {.st = c->st};

    if (!dead || run->native.kind != OUT_EXCEPTION || run->native.vector != EXC_BP ||
        run->native.st.rip == c->st.rip)
        return false;
    flipped.st.rflags ^= dead;
    memcpy(&run->before, &run->native, sizeof run->before);
    run_native(run, &flipped);
    t->rules = 1;
    return differs(t, "flags that the rule calls dead matter to the hardware",
                   compare_engine(c, &run->before, &run->native, &t->d));
}

/* Is the oracle of one mind? */
static bool native_differs(struct run *run, const struct icase *c, struct trouble *t)
{
    memcpy(&run->before, &run->native, sizeof run->before);
    run_native(run, c);
    return differs(t, "two native runs differ",
                   compare_engine(c, &run->before, &run->native, &t->d));
}

static bool ud_missing(struct run *run, const struct icase *c, struct trouble *t)
{
    return differs(t, "the model lacks it, so #UD was expected",
                   compare_ud(c, run->mem, &run->fast, &t->d)) ||
           differs(t, "the model lacks it, so #UD was expected (single step)",
                   compare_ud(c, run->mem, &run->single, &t->d));
}

/* Runs a case in all ways and says whether any two come out differently. */
static bool case_differs(struct run *run, const struct icase *c, struct trouble *t)
{
    struct difference *d = &t->d;

    memset(t, 0, sizeof *t);
    if (!c->lacks) {
        run_native(run, c);
        if (run->native.kind == OUT_HANG) {
            t->skip = "does not end natively";
            return false;
        }
    }
    if (run->native_only)
        return !c->lacks && native_differs(run, c, t);
    guest_run(run->guest, &c->st, run->mem, false, c->ninsn, &run->fast);
    guest_run(run->guest, &c->st, run->mem, true, c->ninsn, &run->single);
    if (c->lacks)
        return ud_missing(run, c, t);
    if (host_area(c, &run->native)) {
        t->skip = "the host's XSAVE area is larger";
        return false;
    }
    bool known = !run->canonical || canon_expect(c, &run->native);
    if (known && differs(t, "the engine's block differs from the hardware",
                         compare_native(c, &run->native, &run->fast, d)))
        return true;
    t->skip = d->excused;
    t->soft = d->soft != 0;
    *d = (struct difference){.used = 0};
    if (known && differs(t, "the engine's single step differs from the hardware",
                         compare_native(c, &run->native, &run->single, d)))
        return true;
    *d = (struct difference){.used = 0};
    if (differs(t, "block (expected) and single step (got) differ",
                compare_engine(c, &run->fast, &run->single, d)))
        return true;
    return !t->skip && !run->canonical && c->number % 4 == 0 && rule_breaks(run, c, t);
}

/*
 * A virtual machine's CPU under load may lose something once in many millions of cases, in the
 * native run or in one of the engine's. What is wrong with the engine happens again.
 */
static bool repeats(struct run *run, const struct icase *c, struct trouble *t)
{
    struct trouble again;
    unsigned times = 0;

    for (unsigned i = 0; i < RERUNS; i++) {
        if (run->guest) /* translated afresh: the first time may be what matters */
            guest_code_changed(run->guest);
        if (case_differs(run, c, &again)) {
            times++;
            *t = again;
        }
    }
    return times >= RERUNS_BAD;
}

static void skip(struct run *run, const char *why)
{
    run->skipped++;
    count(run->why, MAX_MNEMONICS, why, false);
}

static void run_case(struct run *run, const struct icase *c)
{
    struct trouble t;
    bool bad;

    if (c->skip) {
        skip(run, c->why);
        return;
    }
    bad = case_differs(run, c, &t);
    if (bad && !repeats(run, c, &t)) {
        bad = false;
        if (run->wavered++ < run->show)
            show(run, c, "ONCE", &t);
    }
    if (!bad && t.skip) {
        skip(run, t.skip);
        return;
    }
    run->done++;
    if (c->decoded)
        run->seen[c->insn.mnemonic] = 1;
    if (!c->lacks) {
        run->faults += run->native.vector != EXC_BP;
        run->vectors[run->native.vector & 31]++;
    }
    run->soft += t.soft;
    run->rules += t.rules;
    if (bad) {
        count(run->bad, MAX_BAD, name_of(c), true);
        if (run->failed++ < run->show)
            show(run, c, "FAIL", &t);
    }
    count(run->category, MAX_CATEGORIES, c->category, bad);
}

static void apply_patches(struct run *run, const struct icase *c, u8 *saved, bool undo)
{
    for (unsigned i = 0; i < c->npatches; i++) {
        /* Undone backwards: patches may overlap. */
        const struct patch *p = &c->patches[undo ? c->npatches - 1 - i : i];

        if (undo) {
            memcpy(run->mem + p->off, saved + p->at, p->len);
        } else {
            memcpy(saved + p->at, run->mem + p->off, p->len);
            memcpy(run->mem + p->off, c->patch_data + p->at, p->len);
        }
    }
}

static const u8 int3[SLOT_SIZE] = {[0 ... SLOT_SIZE - 1] = 0xcc};

/* Other code for the host than for the engine: no other case of the batch may read it. */
static bool is_twofold(const struct icase *c)
{
    return memcmp(c->native, c->code, c->len) != 0;
}

static void put_case(struct run *run, const struct icase *c, const u8 *native, const u8 *guest)
{
    native_code(c->address - T_CODE, native, c->len);
    if (run->guest)
        guest_code(run->guest, c->address - T_CODE, guest, c->len);
}

static void run_batch(struct run *run, u64 first, u64 n)
{
    u8 saved[sizeof run->batch->patch_data];

    native_code(0, int3, SLOT_FIRST);
    for (u64 i = 0; i < BATCH; i++) {
        native_code(SLOT_FIRST + i * SLOT_SIZE, int3, SLOT_SIZE);
        if (run->guest)
            guest_code(run->guest, SLOT_FIRST + i * SLOT_SIZE, int3, SLOT_SIZE);
    }
    if (run->guest)
        guest_code(run->guest, 0, int3, SLOT_FIRST);
    for (u64 i = 0; i < n; i++) {
        struct icase *c = &run->batch[i];

        case_generate(c, &run->forms, run->model, run->seed, first + i, !run->only);
        if (!is_twofold(c))
            put_case(run, c, c->native, c->code);
    }
    if (run->guest)
        guest_code_changed(run->guest);
    for (u64 i = 0; i < n; i++) {
        struct icase *c = &run->batch[i];

        if (is_twofold(c)) {
            put_case(run, c, c->native, c->code);
            if (run->guest)
                guest_code_changed(run->guest);
        }
        apply_patches(run, c, saved, false);
        run_case(run, c);
        apply_patches(run, c, saved, true);
        if (is_twofold(c))
            put_case(run, c, int3, int3);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void summary(struct run *run, double took)
{
    unsigned met = 0;

    for (unsigned i = 0; i <= ZYDIS_MNEMONIC_MAX_VALUE; i++)
        met += run->seen[i];
    printf("%-14s %10s %8s\n", "category", "cases", "failed");
    for (unsigned i = 0; i < MAX_CATEGORIES && run->category[i].name; i++)
        printf("%-14s %10llu %8llu\n", run->category[i].name,
               (unsigned long long)run->category[i].cases,
               (unsigned long long)run->category[i].bad);
    for (unsigned i = 0; i < MAX_MNEMONICS && run->why[i].name; i++)
        printf("skipped %llu: %s\n", (unsigned long long)run->why[i].cases, run->why[i].name);
    printf("vectors:");
    for (unsigned i = 0; i < 32; i++)
        if (run->vectors[i])
            printf(" %u:%llu", i, (unsigned long long)run->vectors[i]);
    printf("\n");
    for (unsigned i = 0; i < MAX_BAD && run->bad[i].name; i++)
        printf("failed %s: %llu\n", run->bad[i].name, (unsigned long long)run->bad[i].cases);
    printf("%zu forms, %u mnemonics; %llu with FIP/FDP/FOP kept differently; dead flags flipped in "
           "%llu; %llu did not repeat; %.1f s, %.0f cases/s\n",
           run->forms.n, met, (unsigned long long)run->soft, (unsigned long long)run->rules,
           (unsigned long long)run->wavered, took, (double)run->done / took);
    printf("insn: model %s seed %llu: %llu cases; %llu passed, %llu failed, %llu skipped\n",
           run->model_arg, (unsigned long long)run->seed,
           (unsigned long long)(run->done + run->skipped),
           (unsigned long long)(run->done - run->failed), (unsigned long long)run->failed,
           (unsigned long long)run->skipped);
}

static void usage(FILE *f)
{
    fputs("usage: insn [--cases N] [--seed S] [--model v2|v3|NAME] [--only MNEMONIC] [--case K]\n"
          "            [--show N] [--native-only] [--stops [--interrupts]|--counters]\n"
          "            [--engine dbt|kvm|dbt,paranoid] [--code 64|32|16] [--canonical]\n"
          "Runs random instructions natively and under the engine and compares; with --stops,\n"
          "random programs under the engine with and without stops; with --canonical what is "
          "undefined\n"
          "is expected as the rules of today have it; with --counters those that\n"
          "use a CPU's performance counters (--model skylake, zen2, ...).\n",
          f);
}

static int parse(struct run *run, int argc, char **argv)
{
    static const struct option opts[] = {
        {"cases", 1, NULL, 'n'},  {"seed", 1, NULL, 's'},        {"model", 1, NULL, 'm'},
        {"only", 1, NULL, 'o'},   {"case", 1, NULL, 'c'},        {"show", 1, NULL, 'w'},
        {"help", 0, NULL, 'h'},   {"native-only", 0, NULL, 'N'}, {"stops", 0, NULL, 'S'},
        {"engine", 1, NULL, 'e'}, {"interrupts", 0, NULL, 'i'},  {"counters", 0, NULL, 'P'},
        {"code", 1, NULL, 'C'},   {"canonical", 0, NULL, 'K'},   {0}};
    int o;

    if (getrandom(&run->seed, sizeof run->seed, 0) != sizeof run->seed)
        run->seed = (u64)time(NULL);
    run->seed >>= 32;
    while ((o = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
        switch (o) {
        case 'n': run->cases = strtoull(optarg, NULL, 0); break;
        case 's': run->seed = strtoull(optarg, NULL, 0); break;
        case 'm': run->model_arg = optarg; break;
        case 'o': run->only = optarg; break;
        case 'c': run->one = strtoull(optarg, NULL, 0); break;
        case 'w': run->show = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'N': run->native_only = true; break;
        case 'S': run->stops = true; break;
        case 'P': run->counters = true; break;
        case 'i': run->often = true; break;
        case 'K': run->canonical = true; break;
        case 'e':
            run->paranoid = !strcmp(optarg, "dbt,paranoid");
            if (run->paranoid)
                break;
            if (engine_kind_find(optarg) < 0)
                return -1;
            run->engine = (enum engine_kind)engine_kind_find(optarg);
            break;
        case 'C':
            if (strcmp(optarg, "64") && strcmp(optarg, "32") && strcmp(optarg, "16"))
                return -1;
            test_code = !strcmp(optarg, "64") ? CODE_64 : !strcmp(optarg, "32") ? CODE_32 : CODE_16;
            break;
        case 'h': usage(stdout); exit(0);
        default: return -1;
        }
    }
    test_revision =
        run->canonical || run->stops || run->counters ? ENGINE_REVISION : REVISION_HOSTS;
    char cpu[CPU_CHANGES + 64];
    struct err err;
    snprintf(cpu, sizeof cpu, "%s%s", run->model_arg[0] == 'v' ? "x86-64-" : "", run->model_arg);
    if (cpu_choose(cpu, &test_cpu, &err)) {
        fprintf(stderr, "insn: %s\n", err.text);
        return -1;
    }
    run->model = test_cpu.model;
    if (run->paranoid && !run->counters)
        return -1;
    return optind < argc ? -1 : 0;
}

static int setup(struct run *run)
{
    struct rng r;
    char why[256];

    forms_build(&run->forms, run->model, run->only);
    if (!run->forms.n) {
        fprintf(stderr, "insn: no instruction is called %s\n", run->only);
        return -1;
    }
    run->batch = calloc(BATCH, sizeof *run->batch);
    run->seen = calloc(ZYDIS_MNEMONIC_MAX_VALUE + 1, 1);
    run->mem = calloc(1, DATA_SIZE);
    rng_seed(&r, run->seed, NEVER);
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if ((DATA_RW | DATA_RO) >> i & 1)
            value_vector(&r, run->mem + i * PAGE_SIZE, PAGE_SIZE);
    if (native_init() < 0)
        return -1;
    if (test_code != CODE_64 && native_ldt() < 0) {
        printf("insn: this host's kernel gives programs no LDT: not compared\n");
        exit(77);
    }
    host_probe();
    host_print();
    for (unsigned i = 0; i < DATA_PAGES; i++)
        if ((DATA_RW | DATA_RO) >> i & 1)
            memcpy(native_mem() + i * PAGE_SIZE, run->mem + i * PAGE_SIZE, PAGE_SIZE);
    native_seal();
    if (!run->native_only &&
        guest_create(&run->guest, run->model, run->engine, false, run->mem, why, sizeof why) < 0) {
        fprintf(stderr, "insn: %s\n", why);
        return -1;
    }
    native_signals();
    return 0;
}

int main(int argc, char **argv)
{
    static struct run run = {.model_arg = "v3", .cases = 1000000, .show = 10, .one = NEVER};
    double start;

    if (parse(&run, argc, argv) < 0) {
        usage(stderr);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("insn: seed %llu\n", (unsigned long long)run.seed);
    if (run.stops) {
        forms_build(&run.forms, run.model, NULL);
        return stops_main(run.model, run.engine, run.often, &run.forms, run.seed,
                          run.one == NEVER ? 0 : run.one, run.one == NEVER ? run.cases : 1);
    }
    if (run.counters) {
        forms_build(&run.forms, run.model, NULL);
        return counters_main(run.model, run.paranoid, &run.forms, run.seed,
                             run.one == NEVER ? 0 : run.one, run.one == NEVER ? run.cases : 1);
    }
    if (setup(&run) < 0)
        return 2;
    start = seconds();
    if (run.one != NEVER) {
        run_batch(&run, run.one, 1);
        print_case(&run.batch[0], run.model);
    } else {
        for (u64 n = 0; n < run.cases; n += BATCH)
            run_batch(&run, n, MIN((u64)BATCH, run.cases - n));
    }
    summary(&run, seconds() - start);
    native_fini();
    if (run.guest)
        guest_destroy(run.guest);
    if (run.wavered > MAX(20u, run.done / WAVERING)) {
        fprintf(stderr, "insn: %llu cases came out differently, but not again\n",
                (unsigned long long)run.wavered);
        return 1;
    }
    return run.failed != 0;
}
