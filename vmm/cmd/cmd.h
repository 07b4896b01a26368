/*
 * The sub-commands of `reprise`: each is a function in a file of its own, with its options (argp)
 * and its text; what several of them do is in common.c. A command prints its result on stdout,
 * its error once on stderr, and returns an exit code.
 */
#ifndef REPRISE_CMD_H
#define REPRISE_CMD_H

#include <argp.h>
#include <stdio.h>

#include "base/text.h"
#include "board/description.h"
#include "host/sandbox.h"
#include "machine/machine.h"
#include "replay/opened.h"

/* docs/exit-codes.md and EXIT_HELP say these too. */
enum {
    EX_FINE = 0,
    EX_ERROR = 1,
    EX_BAD_USAGE = 2,
    EX_DIVERGED = 3,
    EX_DAMAGE = 4, /* replayed up to the damage */
    EX_CRASH = 5,  /* triple fault */
    EX_HALTED = 6,
    EX_PANIC = 7,
    EX_TIMEOUT = 8,
    EX_NO_TEXT = 9, /* --stop-at: the text was not printed */
    EX_UNSUPPORTED = 10,
    EX_NOT_FOUND = 11, /* hunt */
    EX_GUEST = 64,     /* plus the debug-exit status modulo 64, if that status is not 0 */
};

#define EXIT_HELP                                                                                  \
    "\vExit codes: 0 success; 1 error; 2 wrong usage; 3 replay and recording differ; 4 replayed "  \
    "up "                                                                                          \
    "to the damage; and of `record`: 5 the guest crashed (triple fault); 6 it waits for ever; 7 "  \
    "its "                                                                                         \
    "kernel panicked; 8 the time limit passed; 9 the text of --stop-at was not printed; 10 it "    \
    "used an "                                                                                     \
    "instruction that is not supported; 64+(N mod 64) it ended with status N other than 0 "        \
    "through "                                                                                     \
    "the debug-exit port."

#define COMMAND(name, function, needs, summary) int function(int argc, char **argv);
#include "cmd/commands.def"
/* `record`, with a guest's agent (guest-agent/agent) at the other end of that socket; -1: none. */
int record_with_agent(int argc, char **argv, int agent);
/* Compares the recording's checkpoints, too; for `verify`. */
int cmd_replay_checking(int argc, char **argv);

/* A word of the command line that says what is to be done; the rest of the line belongs to it. */
struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    unsigned needs; /* enum sandbox_need, once it is locked in; 0: it has verbs, or locks nothing */
    const char *summary;
};
struct verb_choice {
    const struct verb *verbs;
    size_t n;
    const char *what;          /* they are: "command" */
    const struct verb *chosen; /* after argp_parse */
    int argc;
    char **argv;
};
/* Finds the verb on the command line, or ends with what is wrong with it. Help is `before`, a list
 * of the verbs, `after`. */
void verb_choose(struct verb_choice *c, const char *before, const char *after, int argc,
                 char **argv);
/* Runs what was chosen, named after `program`; its exit code. */
int verb_run(const struct verb_choice *c, const char *program);

/* argp_parse() for a command: options that do not exist are named with the one that was meant. */
void option_parse(const struct argp *argp, int argc, char **argv, void *input);
/* The same of a command whose options end where another one's begin. */
void option_parse_in_order(const struct argp *argp, int argc, char **argv, void *input);
/* The one of `names` (n of them, `stride` bytes apart) that a typo was meant to be; NULL: none. */
const char *option_meant(const char *typo, const char *const *names, size_t n, size_t stride);

/* Prints "reprise: TEXT" on stderr; returns EX_ERROR. */
int cmd_fail(const struct err *err);

/* Numbers of options: all of the argument must be one. argp_error otherwise. */
u64 option_number(struct argp_state *state, const char *arg, const char *what);
/* With K, M, G: powers of 1024. */
u64 option_size(struct argp_state *state, const char *arg, const char *what);
/* `--code-cache SIZE` of commands that run the machine for long (struct engine_config). */
#define CODE_CACHE_HELP                                                                            \
    "Keep at most so much translated code, 4M to 1G (default 256M); changes nothing but speed "    \
    "and "                                                                                         \
    "memory"
u64 option_code_cache(struct argp_state *state, const char *arg);
/* The argument DIR of a command that takes one; and at the end, that it was there: without it it is
 * the latest of `reprise run` (run_place.h). */
void option_recording(struct argp_state *state, const char *arg, const char **dir);
void option_need_recording(struct argp_state *state, const char **dir);
/* ARGP_KEY_ARGS of a command that takes [DIR] and `more` numbers: where these begin; NULL if some
 * are missing. `*dir` stays NULL if there is neither a DIR nor a latest recording. */
char **option_recording_and(struct argp_state *state, unsigned more, const char **dir);
/* Of an option whose gdb ENDPOINT may be left out or follow after a space. */
const char *option_endpoint(struct argp_state *state);
/* A date and time, UTC unless it says otherwise ("2026-11-22T10:57:29Z", "2026-11-22 10:57+01:00",
 * "2026-11-22"), or Unix time ("1795345049", "@1795345049"). */
u64 option_time(struct argp_state *state, const char *arg, const char *what);
double option_seconds(struct argp_state *state, const char *arg, const char *what);

/* The exit code for how a guest ended. `panicked`: its console said so. */
int run_exit_code(const struct run_end *end, bool panicked);
/* A sentence without full stop: "the guest powered off". */
void run_end_sentence(const struct run_end *end, bool panicked, char *out, size_t size);

/* Test only: the environment's REPRISE_TEST_SLICE, or 0. Where the run loop stops shows nowhere. */
u64 test_slice(void);

/* "1.23 MiB"; returns `out`. */
char *text_bytes(u64 bytes, char out[32]);
/* Virtual or host time "12.345 s". */
char *text_seconds(u64 ns, char out[32]);
/* "1.48 G" */
char *text_count(u64 n, char out[32]);
/* Unix time as "2026-11-22T10:57:29Z" (ISO 8601). */
char *text_time(u64 seconds, char out[64]);

#endif
