/* `reprise exec`: a program of the guest's, run by its agent while it is recorded. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/agent_call.h"
#include "cmd/cmd.h"
#include "cmd/run_talk.h"

#define OURS 125 /* exit code for what is not the program's, as of `run` */

enum { O_TIME = AGENT_TIMEOUT_KEY + 1 };

/* clang-format off */
static const struct argp_option options[] = {
    {"chdir", 'C', "DIR", 0, "Its working directory in the guest (default /)", 0},
    {"env", 'e', "NAME=VALUE", 0, "A variable of its environment; may be repeated", 0},
    {"user", 'u', "UID[:GID]", 0, "As whom it runs, by numbers (default 0:0, root)", 0},
    {"no-terminal", 'T', NULL, 0, "It gets pipes, also where standard input or output here is a terminal", 0},
    {"set-time", O_TIME, NULL, 0, "Set the guest's clock to this host's first", 0},
    AGENT_TIMEOUT_ROW,
    {0},
};
/* clang-format on */

static const char doc[] =
    "Runs a program in a guest that is being recorded with `record --agent` and has an agent "
    "(docs/agent.md). Standard input, output, error, signals and the terminal's size are handed "
    "on; two "
    "Ctrl-C within a second end it. WHERE is the recording's DIR or the agent's socket; without it "
    "the "
    "only one that is there. The exit code is the program's, 127 if there is none, 126 if it "
    "cannot be "
    "executed, 125 for all else.";

struct exec_args {
    struct agent_call call;
    struct run_there there;
    const char **variables;
    unsigned n;
    bool no_terminal;
    char **program;
};

static const char *const usual[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "USER=root",
    "LOGNAME=root",
    "SHELL=/bin/sh",
};

/* Of one name the last one counts. */
static void add_variable(struct exec_args *a, const char *text)
{
    size_t name = strcspn(text, "=") + 1;
    for (unsigned i = 0; i < a->n; i++)
        if (!strncmp(a->variables[i], text, name)) {
            a->variables[i] = text;
            return;
        }
    const char **more = realloc(a->variables, (a->n + 2) * sizeof(*more));
    if (!more) {
        fputs("reprise: no memory\n", stderr);
        exit(OURS);
    }
    a->variables = more;
    a->variables[a->n++] = text;
    a->variables[a->n] = NULL;
}

static void parse_user(struct argp_state *state, const char *arg, struct run_there *out)
{
    char *end;
    errno = 0;
    unsigned long uid = strtoul(arg, &end, 10), gid = uid;
    bool good = *arg >= '0' && *arg <= '9';
    if (good && *end == ':' && end[1] >= '0' && end[1] <= '9')
        gid = strtoul(end + 1, &end, 10);
    if (!good || *end || errno || uid >= UINT32_MAX || gid >= UINT32_MAX)
        argp_error(state, "--user: '%s' is no UID[:GID], by numbers", arg);
    out->uid = (u32)uid;
    out->gid = (u32)gid;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct exec_args *a = state->input;
    switch (key) {
    case 'C': a->there.directory = arg; break;
    case 'e':
        if (*arg == '=' || !strchr(arg, '='))
            argp_error(state, "--env: '%s' is not NAME=VALUE", arg);
        add_variable(a, arg);
        break;
    case 'u': parse_user(state, arg, &a->there); break;
    case 'T': a->no_terminal = true; break;
    case O_TIME: a->call.flags |= AGENT_SET_TIME; break;
    case AGENT_TIMEOUT_KEY: agent_option_timeout(state, arg, &a->call); break;
    case ARGP_KEY_ARG:
        if (state->arg_num)
            argp_error(state, "'%s': one WHERE is enough, and -- stands in front of the program",
                       arg);
        a->call.where = arg;
        break;
    case ARGP_KEY_END:
        if (!a->program || !*a->program)
            argp_error(state, "which program? It stands behind --: reprise exec [WHERE] -- PROGRAM "
                              "ARG...");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* OPTION... [WHERE] -- PROGRAM ARG...: argp sees what is in front of the --. */
static int split(int argc, char **argv, struct exec_args *a)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--")) {
            a->program = argv + i + 1;
            return i;
        }
    return argc;
}

int cmd_exec(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "[WHERE] -- PROGRAM [ARG...]", doc, NULL,
                                     NULL,    NULL};
    struct exec_args a = {.there = {.directory = "/"}};
    struct err err = {0};
    char term[80];
    for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
        add_variable(&a, usual[i]);
    const char *ours = getenv("TERM");
    snprintf(term, sizeof(term), "TERM=%.70s", ours && *ours ? ours : "dumb");
    add_variable(&a, term);
    argp_err_exit_status = OURS;
    int n = split(argc, argv, &a);
    char *after = n < argc ? argv[n] : NULL;
    if (after)
        argv[n] = NULL;
    option_parse(&argp, n, argv, &a);
    a.there.variables = a.variables;
    a.there.terminal = !a.no_terminal;
    signal(SIGPIPE, SIG_IGN);
    int fd = agent_call(&a.call, &err), status = OURS;
    if (fd < 0) {
        free(a.variables);
        cmd_fail(&err);
        return OURS;
    }
    const struct run_program p = {.argv = a.program, .socket = fd, .there = &a.there};
    enum run_result result = run_talk(&p, &status, &err);
    free(a.variables);
    if (result == RUN_FAILED)
        fprintf(stderr, "reprise: %s\n", err.text);
    if (result == RUN_FAILED)
        return status;
    if (result == RUN_GONE) {
        fprintf(stderr, "reprise: the program's end is not known: the recording or its agent has "
                        "ended, or this was interrupted\n");
        return OURS;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
