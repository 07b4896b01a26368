#define _GNU_SOURCE
/* `reprise run`: records one program as if it ran here. A recorder in a process of its own has the
 * machine; this one has the user. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest-agent/agent/protocol.h"
#include "cmd/apart.h"
#include "cmd/chaos_option.h"
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "cmd/pack.h"
#include "cmd/run_base.h"
#include "cmd/run_place.h"
#include "cmd/run_talk.h"
#include "cmd/run_write.h"
#include "host/net_options.h"

#define RECORD_MORE         8 /* options for the recorder besides its own */
#define RUN_CHAOS_CPUS      4
#define RUN_CHAOS_CPUS_TEXT "4"

#define OURS 125 /* exit code for what is not the program's, as of env and timeout */

enum {
    O_MEMORY = 0x3000,
    O_CPU,
    O_CPUS,
    O_SEED,
    O_CHECKPOINT,
    O_ANEW,
    O_WRITE,
    O_NET,
    O_GPU,
    O_CHAOS,
    O_TURNS
};

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "The new recording (default: PROGRAM-N in ~/.local/share/reprise, and `latest` names it). DIR.reprise: one file, packed when it has ended", 0},
    {"write", O_WRITE, "DIR", 0, "What it writes, changes and removes beneath DIR is done here when it has ended; may be repeated", 0},
    {"net", O_NET, "user,OPTION...", OPTION_ARG_OPTIONAL, "It has a network, as `reprise record --net user` (--net=user,restrict=on and so on)", 0},
    {"gpu", O_GPU, "WIDTHxHEIGHT", OPTION_ARG_OPTIONAL, "It has OpenGL and a display of that size (default 1280x800), as with `reprise record --gpu virgl`; drawn by software", 0},
    {"memory", O_MEMORY, "SIZE", 0, "Memory of the machine that it runs in (default " RUN_MEMORY ")", 0},
    {"cpu", O_CPU, "MODEL[,+FEATURE][,-FEATURE]", 0, "What CPU it sees (`reprise cpu list`)", 0},
    {"cpus", O_CPUS, "N", 0, "How many CPUs it sees (default 1); one runs at a time", 0},
    {"chaos", O_CHAOS, CHAOS_ARG, OPTION_ARG_OPTIONAL, "With several CPUs (" RUN_CHAOS_CPUS_TEXT " unless --cpus says so): " CHAOS_HELP, 0},
    {"turns", O_TURNS, "FILE", 0, "Which CPU gets its turn when, as `reprise record --turns`", 0},
    {"seed", O_SEED, "N", 0, "The randomness that it gets (default: random)", 0},
    {"checkpoint-every", O_CHECKPOINT, "SECONDS", 0, "Write a checkpoint each so many seconds of host time", 0},
    {"remake", O_ANEW, NULL, 0, "Make the machine that programs run in anew first", 0},
    {"verbose", 'v', NULL, 0, "Say what the recorder says", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Records PROGRAM, as if it ran here: with this host's files (what it writes stays in its "
    "machine, "
    "but for --write), in this directory, with this environment, its input and output being this "
    "command's. Its exit status is this command's; 125 is for what is not the program's doing.";

struct run_args {
    const char *packed; /* what `output` is to become, or NULL */
    const char *output, *seed, *checkpoint_every, *net, *turns;
    bool unruly; /* --chaos was given */
    struct chaos chaos;
    struct run_machine machine;
    bool anew, verbose;
    char *write[AGENT_WRITES];
    unsigned writes;
    u64 memory; /* bytes */
    struct agent_network network;
    char **program;
    int program_at;    /* in argv */
    char *const *more; /* options for the recorder; NULL: none */
};

/* A display's size as `record --gpu` has it, which knows what there may be. */
static void parse_gpu(struct argp_state *state, const char *arg, char *out, size_t size)
{
    unsigned width, height;
    char after;
    if (sscanf(arg, "%5ux%5u%c", &width, &height, &after) != 2)
        argp_error(state, "--gpu: '%s' is no WIDTHxHEIGHT", arg);
    snprintf(out, size, "virgl,xres=%u,yres=%u", width, height);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct run_args *a = state->input;
    struct cpu_choice cpu;
    switch (key) {
    case 'o': a->output = arg; break;
    case O_NET: a->net = arg ? arg : "user"; break;
    case O_GPU:
        parse_gpu(state, arg ? arg : "1280x800", a->machine.gpu, sizeof(a->machine.gpu));
        break;
    case O_MEMORY: a->machine.memory = arg; break;
    case O_CPU:
        cpu_option(state, arg, &cpu);
        cpu_text(&cpu, a->machine.cpu);
        break;
    case O_CPUS:
        a->machine.cpus = option_number(state, arg, "--cpus");
        if (!a->machine.cpus || a->machine.cpus > DESCRIPTION_CPUS_MAX)
            argp_error(state, "--cpus: 1 to %u are possible", DESCRIPTION_CPUS_MAX);
        break;
    case O_CHAOS:
        a->unruly = true;
        chaos_option(state, arg, &a->chaos);
        break;
    case O_TURNS: a->turns = arg; break;
    case O_SEED: a->seed = arg; break;
    case O_CHECKPOINT: a->checkpoint_every = arg; break;
    case O_ANEW: a->anew = true; break;
    case O_WRITE:
        if (a->writes == AGENT_WRITES)
            argp_error(state, "--write: %u directories are the most", AGENT_WRITES);
        a->write[a->writes++] = arg;
        break;
    case 'v': a->verbose = true; break;
    case ARGP_KEY_ARGS:
        a->program = state->argv + state->next;
        a->program_at = state->next;
        if (a->net && !strcmp(a->program[0], "user"))
            argp_error(state, "--net=user, with a =; or is a program called so? ./user");
        break;
    case ARGP_KEY_END:
        a->memory = option_size(state, a->machine.memory, "--memory");
        if (!a->machine.cpus)
            a->machine.cpus = a->unruly ? RUN_CHAOS_CPUS : 1;
        if ((a->unruly || a->turns) && a->machine.cpus < 2)
            argp_error(state, "--%s is about turns of several CPUs, and there is one: --cpus N",
                       a->turns ? "turns" : "chaos");
        break;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which program?"); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct attempt {
    enum run_result result;
    int status;   /* the program's, or an exit code */
    int recorder; /* its exit code */
    bool lost;    /* not all that it wrote was written here */
    struct err err;
};

/* Its addresses. What has no meaning here is said, before the machine is. */
static int read_network(const char *spec, struct agent_network *out, struct err *err)
{
    struct net_options o;
    int code = spec ? net_options_parse(&o, spec, err) : 0;
    if (code || !spec)
        return code;
    if (o.kind != NET_USER)
        return err_set(err, -EINVAL,
                       "--net: only `user` is there for a program: its machine is told "
                       "its addresses, and asks nobody");
    if (*o.hostname)
        return err_set(err, -EINVAL,
                       "--net: hostname= is told by DHCP, which is not asked: the "
                       "program's machine is called as this one is");
    for (unsigned i = 0; i < o.forwards.n; i++)
        if (!o.forwards.at[i].host_port)
            return err_set(err, -EINVAL,
                           "--net: hostfwd from which port of this host? 0, any that is "
                           "free, would be said to nobody");
    *out = (struct agent_network){o.dhcp, o.network.mask, o.host, o.dns};
    return 0;
}

static int try(const struct run_args *a, char *base, char *output, struct run_write *write,
               struct attempt *out, struct err *err)
{
    char seed[32];
    u64 random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return err_errno(err, "no random numbers");
    snprintf(seed, sizeof(seed), "%" PRIu64, random);
    char chaos[CHAOS_TEXT];
    chaos_option_text(&a->chaos, chaos);
    const char *pairs[][2] = {{"-o", output},
                              {"--from", base},
                              {"--share", RUN_SHARE},
                              {"--net", a->net ? a->net : "none"},
                              {"--seed", a->seed ? a->seed : seed},
                              {"--checkpoint-every", a->checkpoint_every},
                              {"--turns", a->turns}};
    const char *argv[2 * ARRAY_SIZE(pairs) + RECORD_MORE + 3] = {"reprise record"};
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
        for (size_t k = 0; k < 2 && pairs[i][1]; k++)
            argv[n++] = pairs[i][k];
    if (a->unruly)
        argv[n++] = chaos;
    for (char *const *more = a->more; more && *more && n < ARRAY_SIZE(argv) - 1; more++)
        argv[n++] = *more;
    argv[n] = NULL;
    int ends[2], voice = memfd_create("said", MFD_CLOEXEC);
    if (voice < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return err_errno(err, "cannot connect to a recorder");
    struct run_program p = {
        .argv = a->program, .socket = ends[0], .network = a->network, .write = write};
    const struct apart_ends with = {.agent = ends[1], .voice = voice, .keys = true};
    p.recorder = apart_record(argv, &with);
    close(ends[1]);
    if (p.recorder < 0) {
        close(ends[0]);
        close(voice);
        return err_errno(err, "cannot start a recorder");
    }
    out->result = run_talk(&p, &out->status, &out->err);
    out->recorder = apart_wait(p.recorder);
    if (a->verbose || out->result == RUN_GONE)
        apart_repeat(voice);
    close(voice);
    return 0;
}

/* A machine that nothing can begin in is made anew, once. */
static int record_program(const struct run_args *a, char *output, struct attempt *out,
                          struct err *err)
{
    int code = 0;
    for (unsigned n = 0; n < 2 && !code; n++) {
        char *base = run_base(&a->machine, a->anew || n, err);
        struct run_write *write = NULL;
        if (!base)
            return err->code;
        code = a->writes ? run_write_open(&write, a->write, a->writes, a->memory, err) : 0;
        code = code ? code : try(a, base, output, write, out, err);
        free(base);
        bool again = !code && out->result == RUN_GONE && access(output, F_OK) && !n;
        if (write && !code && !again && out->result != RUN_FAILED)
            out->lost = !run_write_end(write, out->result == RUN_ENDED, a->verbose);
        run_write_close(write);
        if (!again)
            break;
        fprintf(stderr, "reprise: that machine is of no use\n");
    }
    return code;
}

static void read_options(int argc, char **argv, struct run_args *a)
{
    static const struct argp argp = {options, parse, "[--] PROGRAM [ARG...]", doc, NULL,
                                     NULL,    NULL};
    *a = (struct run_args){.machine = {.memory = RUN_MEMORY, .gpu = "none"}};
    option_parse_in_order(&argp, argc, argv, a);
}

void run_said(int argc, char **argv, struct run_said *out)
{
    struct run_args a;
    read_options(argc, argv, &a);
    *out = (struct run_said){a.output, a.seed, a.writes, a.program_at};
}

static int run(struct run_args *a, struct run_outcome *out);

static int run_in(void *opaque, const char *dir)
{
    struct run_args *a = opaque;
    struct run_outcome ignored;
    a->packed = a->output;
    a->output = dir;
    return run(a, &ignored);
}

int cmd_run(int argc, char **argv)
{
    struct run_args a;
    struct run_outcome ignored;
    read_options(argc, argv, &a);
    if (a.output && packed_name(a.output))
        return packed_record(a.output, NULL, run_in, &a, OURS);
    return run(&a, &ignored);
}

int run_with(int argc, char **argv, char *const *more, struct run_outcome *out)
{
    struct run_args a;
    read_options(argc, argv, &a);
    a.more = more;
    return run(&a, out);
}

static int run(struct run_args *a, struct run_outcome *out)
{
    struct err err = {0};
    struct attempt done = {0};
    *out = (struct run_outcome){0};
    int lock = -1;
    if (read_network(a->net, &a->network, &err))
        return cmd_fail(&err), OURS;
    char *output = a->output ? strdup(a->output) : run_place_new(a->program[0], &lock, &err);
    if (!output)
        return cmd_fail(&err), OURS;
    int code = record_program(a, output, &done, &err);
    run_place_taken(output, lock);
    if (!code && done.result != RUN_GONE && !a->output)
        code = run_place_latest(output, &err);
    if (code)
        cmd_fail(&err);
    else if (done.result == RUN_FAILED)
        fprintf(stderr, "reprise: %s\n", done.err.text);
    else if (done.result == RUN_GONE)
        fprintf(stderr, "reprise: the program's end is not known: its machine has ended\n");
    if (!code && (a->verbose || isatty(STDERR_FILENO)) && done.result == RUN_ENDED)
        fprintf(stderr, "reprise: recorded in %s\n", a->packed ? a->packed : output);
    free(output);
    *out = (struct run_outcome){!code, done.result, done.status};
    if (code || done.result == RUN_GONE)
        return OURS;
    int s = done.status;
    if (done.result == RUN_ENDED)
        s = WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
    if (done.lost)
        fprintf(stderr, "reprise: the program itself ended with %d\n", s);
    return done.lost ? OURS : s;
}
