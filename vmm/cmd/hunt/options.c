/* See options.h. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "cmd/hunt/options.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/record_options.h"
#include "cmd/run.h"
#include "cmd/travel.h"
#include "cmd/hunt/state.h"

#define JOBS_MAX   4096u
#define LIMIT      600 /* seconds of virtual time, unless it says otherwise */
#define OWN_ARGS   8   /* in front of what stands behind --, and a NULL */
#define FIRST_SEED 1
#define TASK_RUNS  10 /* of --on slurm, unless it says otherwise */

enum {
    O_RUNS = 0x3200,
    O_FOR,
    O_JOBS,
    O_FROM,
    O_AT,
    O_STOP,
    O_SEED,
    O_KINDS,
    O_LIMIT,
    O_JSON,
    O_ON,
    O_SLURM,
    O_BATCH,
    O_TASK
};

/* clang-format off */
static const struct argp_option options[] = {
    {"stop-on", O_STOP, "panic|crash|TEXT|exit[=N|!=N]|hang[:SECONDS]", 0, "What is hunted for; may be repeated. panic: of the guest's kernel. crash: a program that dies of a signal such as SIGSEGV or SIGABRT, an oops, a triple fault. hang: it has not ended after that much virtual time, or waits for ever. exit!=0: it ended with another status (exit: with any). Any other TEXT: it was printed (text:TEXT: one that is called like those)", 0},
    {"output", 'o', "DIR", 0, "Where the hunt keeps what it knows and finds (default: hunt); one that is there goes on", 0},
    {"runs", O_RUNS, "N", 0, "End after so many runs (default, without --for: at the first failure)", 0},
    {"for", O_FOR, "TIME", 0, "End after so long, in seconds or with m, h or d (30m); several times' time is added up", 0},
    {"kinds", O_KINDS, "N", 0, "End when so many kinds of failures were found", 0},
    {"jobs", 'j', "J", 0, "So many runs at a time (default: one for each CPU of this host)", 0},
    {"first-seed", O_SEED, "N", 0, "The seed of the first run; each further one has the next (default: 1)", 0},
    {"limit", O_LIMIT, "SECONDS", 0, "A run that has taken so much virtual time is ended (default: what hang: says, or 600)", 0},
    {"from", O_FROM, "DIR", 0, "Each run begins in that recording, as `reprise record --from`", 0},
    {"at", O_AT, "POINT", 0, "With --from: where (default: end); a POINT is " POINT_FORMS, 0},
    {"json", O_JSON, NULL, 0, "The table at the end as JSON", 0},
    {"on", O_ON, "local|slurm", 0, "Where it runs: on this host (default), or as array jobs of the Slurm cluster that sbatch knows; DIR, and all that the runs need, have to be in directories that its nodes share", 0},
    {"slurm-options", O_SLURM, "OPTIONS", 0, "With --on slurm: more options of sbatch, as `--partition=long --mem=2G`", 0},
    {"batch", O_BATCH, "N", 0, "With --on slurm: runs of one task of an array (default 10)", 0},
    {"task", O_TASK, "N", OPTION_HIDDEN, "Does what task N of a hunt on a cluster does", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Records the same thing again and again, each time with another seed, until it fails: keeps "
    "the "
    "first recording of each kind of failure and removes the others. Behind -- stands what "
    "`reprise "
    "run` or `reprise record` takes, after that word (without it: record with --from or --kernel, "
    "else run). Started again in the same DIR it goes on where it was."
    "\vExit codes: 0 something was found; 11 nothing was found; 1 error; 2 wrong usage. Each run's "
    "options get `--seed S`, and a --chaos among them becomes `--chaos=S`; S is the first seed "
    "plus "
    "the run's number.";

static double parse_time(struct argp_state *state, const char *arg, const char *what)
{
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    size_t n = strlen(arg);
    char text[32];
    for (size_t i = 0; n > 1 && n < sizeof(text) && i < ARRAY_SIZE(units); i++)
        if (arg[n - 1] == units[i].unit) {
            snprintf(text, sizeof(text), "%.*s", (int)n - 1, arg);
            return units[i].seconds * option_seconds(state, text, what);
        }
    return option_seconds(state, arg, what);
}

struct hunt_stop hunt_stop_parse(struct argp_state *state, const char *arg)
{
    struct hunt_stop s = {.kind = STOP_TEXT, .text = arg};
    if (!strcmp(arg, "panic")) {
        s.kind = STOP_PANIC;
    } else if (!strcmp(arg, "crash")) {
        s.kind = STOP_CRASH;
    } else if (!strcmp(arg, "hang")) {
        s.kind = STOP_HANG;
    } else if (!strncmp(arg, "hang:", 5)) {
        s.kind = STOP_HANG;
        s.seconds = parse_time(state, arg + 5, "--stop-on hang:");
    } else if (!strncmp(arg, "exit", 4) &&
               (!arg[4] || arg[4] == '=' || !strncmp(arg + 4, "!=", 2))) {
        s.kind = STOP_EXIT;
        s.any = !arg[4];
        s.unequal = arg[4] == '!';
        u64 status = s.any ? 0 : option_number(state, arg + 5 + s.unequal, "--stop-on exit");
        if (status > UINT32_MAX)
            argp_error(state, "--stop-on: %s: no status is so large", arg);
        s.status = (u32)status;
    } else if (!strncmp(arg, "text:", 5)) {
        s.text += 5;
    }
    if (s.kind == STOP_TEXT && !*s.text)
        argp_error(state, "--stop-on: the text is empty");
    return s;
}

static void parse_stop(struct argp_state *state, const char *arg, struct hunt_args *a)
{
    const struct hunt_stop s = hunt_stop_parse(state, arg);
    if (a->nstops == HUNT_STOPS)
        argp_error(state, "--stop-on: at most %u of them", HUNT_STOPS);
    if (s.seconds > 0)
        a->limit = a->limit > 0 ? MIN(a->limit, s.seconds) : s.seconds;
    a->stops[a->nstops++] = s;
}

static u64 parse_count(struct argp_state *state, const char *arg, const char *what, u64 most)
{
    u64 n = option_number(state, arg, what);
    if (!n || n > most)
        argp_error(state, "%s: %s is none of 1 to %" PRIu64, what, arg, most);
    return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct hunt_args *a = state->input;
    switch (key) {
    case 'o': a->dir = arg; break;
    case 'j': a->jobs = (unsigned)parse_count(state, arg, "--jobs", JOBS_MAX); break;
    case O_RUNS: a->runs = parse_count(state, arg, "--runs", HUNT_RUNS_MAX); break;
    case O_FOR: a->seconds = parse_time(state, arg, "--for"); break;
    case O_KINDS: a->kinds = parse_count(state, arg, "--kinds", HUNT_KINDS); break;
    case O_SEED:
        a->seed = option_number(state, arg, "--first-seed");
        a->seed_given = true;
        break;
    case O_LIMIT: a->limit = parse_time(state, arg, "--limit"); break;
    case O_FROM: a->from = arg; break;
    case O_AT: {
        struct point p;
        option_point(state, arg, "--at", &p);
        a->at = arg;
        break;
    }
    case O_STOP: parse_stop(state, arg, a); break;
    case O_JSON: a->json = true; break;
    case O_ON:
        a->slurm = !strcmp(arg, "slurm");
        if (!a->slurm && strcmp(arg, "local"))
            argp_error(state, "--on: '%s' is neither local nor slurm", arg);
        break;
    case O_SLURM: a->slurm_options = arg; break;
    case O_BATCH: a->batch = parse_count(state, arg, "--batch", 1000000); break;
    case O_TASK: a->task = (i64)parse_count(state, arg, "--task", HUNT_RUNS_MAX) - 1; break;
    case ARGP_KEY_ARGS:
        if (state->next < 2 || strcmp(state->argv[state->next - 1], "--"))
            argp_error(state, "'%s' belongs to no option: what is to be run stands behind --",
                       state->argv[state->next]);
        a->rest = state->argv + state->next;
        a->nrest = state->argc - state->next;
        break;
    case ARGP_KEY_NO_ARGS: a->rest = state->argv + state->argc; break;
    case ARGP_KEY_END:
        if (!a->nrest && !a->from)
            argp_error(state, "what is to be run? It stands behind --");
        if (!a->nstops)
            argp_error(state, "--stop-on is missing: what is hunted for?");
        if (!a->dir || !*a->dir)
            argp_error(state, "-o: the directory has no name");
        if (a->at && !a->from)
            argp_error(state, "--at goes with --from");
        if (!a->slurm && a->task < 0 && a->slurm_options)
            argp_error(state, "--slurm-options goes with --on=slurm");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- what stands behind -- ---- */

static void choose(struct hunt_args *a)
{
    a->record = a->from;
    for (int i = 0; i < a->nrest; i++)
        if (!strcmp(a->rest[i], "--kernel") || !strncmp(a->rest[i], "--kernel=", 9))
            a->record = true;
    if (!a->nrest || (strcmp(a->rest[0], "run") && strcmp(a->rest[0], "record")))
        return;
    a->record = !strcmp(a->rest[0], "record");
    a->rest++;
    a->nrest--;
}

static _Noreturn void refuse(const char *what, const char *why)
{
    fprintf(stderr, "reprise hunt: %s behind --: %s\n", what, why);
    _exit(EX_BAD_USAGE);
}

/* `own`, NULL at the end, and what stands behind --. */
static char **with_rest(const struct hunt_args *a, const char *const *own, int *argc)
{
    int n = 0;
    char **argv = calloc((size_t)a->nrest + OWN_ARGS, sizeof(*argv));
    if (!argv) {
        fputs("reprise: no memory\n", stderr);
        _exit(EX_ERROR);
    }
    for (; *own; own++)
        argv[n++] = (char *)(uintptr_t)*own;
    memcpy(argv + n, a->rest, (size_t)a->nrest * sizeof(*argv));
    *argc = n + a->nrest;
    return argv;
}

static void check_record(const struct hunt_args *a)
{
    static const char output[] = "a run's";
    const char *const own[OWN_ARGS] = {"reprise record", "-o", output, a->from ? "--from" : NULL,
                                       a->from};
    struct record_args r;
    int argc;
    char **argv = with_rest(a, own, &argc);
    record_options(argc, argv, &r);
    if (r.output != output)
        refuse("-o", "the hunt has a place for each run");
    if (r.seeded)
        refuse("--seed", "each run has a seed of its own (--first-seed)");
    if (r.gdb)
        refuse("--gdb", "nobody can attach to so many");
    if (r.display.n)
        refuse("--display", "nobody can look at so many");
    if (r.from != a->from || r.at_given)
        refuse("--from and --at", "they are options of the hunt itself");
    if (r.max_time > 0)
        refuse("--max-time", "it is --limit of the hunt");
}

static int check_run(const struct hunt_args *a)
{
    const char *const own[OWN_ARGS] = {"reprise run"};
    struct run_said said;
    int argc;
    char **argv = with_rest(a, own, &argc);
    run_said(argc, argv, &said);
    if (said.output)
        refuse("-o", "the hunt has a place for each run");
    if (said.seed)
        refuse("--seed", "each run has a seed of its own (--first-seed)");
    if (said.writes)
        refuse("--write", "all runs would write there");
    return said.program - 1;
}

/* Wrong options end who reads them: a process of its own. */
static void check_rest(struct hunt_args *a)
{
    int *program =
        mmap(NULL, sizeof(*program), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    pid_t child = program == MAP_FAILED ? -1 : fork();
    int status = 0;
    if (!child) {
        if (a->record)
            check_record(a);
        else
            *program = check_run(a);
        _exit(EX_FINE);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child < 0 || !WIFEXITED(status)) {
        fprintf(stderr, "reprise: cannot start a process\n");
        exit(EX_ERROR);
    }
    if (status)
        exit(WEXITSTATUS(status)); /* it has said why */
    a->program = a->record ? a->nrest : *program;
    munmap(program, sizeof(*program));
    if (a->program < 0 || a->program > a->nrest) /* --help and the like */
        exit(EX_FINE);
}

void hunt_options(int argc, char **argv, struct hunt_args *a)
{
    static const struct argp argp = {options, parse, "-- run|record OPTIONS...", doc, NULL,
                                     NULL,    NULL};
    cpu_set_t set;
    *a = (struct hunt_args){.dir = "hunt", .task = -1, .batch = TASK_RUNS, .seed = FIRST_SEED};
    a->argc = argc;
    a->argv = argv;
    option_parse_in_order(&argp, argc, argv, a);
    if (!a->jobs && !a->slurm)
        a->jobs = sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned)MAX(CPU_COUNT(&set), 1);
    if (a->limit <= 0)
        a->limit = LIMIT;
    if (!a->runs && a->seconds <= 0 && !a->kinds)
        a->kinds = 1;
    choose(a);
    check_rest(a);
}

char *hunt_what(const struct hunt_args *a)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (unsigned i = 0; i < a->nstops; i++) {
        static const char *const names[] = {"panic", "crash", "text:", "exit", "hang"};
        const struct hunt_stop *s = &a->stops[i];
        fprintf(out, "--stop-on %s", names[s->kind]);
        if (s->kind == STOP_TEXT)
            text_put_word(out, s->text);
        if (s->kind == STOP_EXIT && !s->any)
            fprintf(out, "%s%u", s->unequal ? "!=" : "=", s->status);
        fputc(' ', out);
    }
    fprintf(out, "--limit %g ", a->limit);
    if (a->from) {
        fputs("--from ", out);
        text_put_word(out, a->from);
        fputs(" --at ", out);
        text_put_word(out, a->at ? a->at : "end");
        fputc(' ', out);
    }
    fputs(a->record ? "-- record" : "-- run", out);
    for (int i = 0; i < a->nrest; i++) {
        fputc(' ', out);
        text_put_word(out, a->rest[i]);
    }
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    for (char *p = text; *p; p++) /* one line */
        if (*p == '\n')
            *p = ' ';
    return text;
}

const struct hunt_stop *hunt_stop_of(const struct hunt_args *a, int kind)
{
    for (unsigned i = 0; i < a->nstops; i++)
        if ((int)a->stops[i].kind == kind)
            return &a->stops[i];
    return NULL;
}
