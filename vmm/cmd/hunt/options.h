/* What a hunt is to do: its command line, and what is said in it of each run. */
#ifndef REPRISE_CMD_HUNT_OPTIONS_H
#define REPRISE_CMD_HUNT_OPTIONS_H

#include "cmd/cmd.h"

#define HUNT_STOPS 32u

/* What a run is to end with to be what is hunted for. */
struct hunt_stop {
    enum { STOP_PANIC, STOP_CRASH, STOP_TEXT, STOP_EXIT, STOP_HANG } kind;
    const char *text;  /* STOP_TEXT */
    bool any, unequal; /* STOP_EXIT: whatever the status; one that is not it */
    u32 status;        /* STOP_EXIT */
    double seconds;    /* STOP_HANG; 0: as --limit says */
};

struct hunt_args {
    const char *dir;
    u64 runs, kinds; /* 0: no limit */
    double seconds;  /* 0: no limit */
    double limit;    /* seconds of virtual time that a run may take */
    unsigned jobs;
    u64 seed;
    bool seed_given, json, slurm;
    const char *slurm_options;
    u64 batch; /* runs of a task */
    i64 task;  /* this process is that one; -1: it is the hunt */
    const char *from, *at;
    struct hunt_stop stops[HUNT_STOPS];
    unsigned nstops;
    /* Behind `--`, without the word: */
    bool record; /* for `reprise record`, else `reprise run` */
    char **rest;
    int nrest;
    int program; /* of `run`: where in rest the program is named; of `record` nrest */
    int argc;    /* all of it */
    char **argv;
    char *base; /* with `from`: what each run begins in; hunt.c makes it */
};

/* Reads them; what is wrong is printed, and ends the process. */
void hunt_options(int argc, char **argv, struct hunt_args *out);
/* The command, without what may change when it goes on; one line, malloc'ed. NULL: no memory. */
char *hunt_what(const struct hunt_args *a);
const struct hunt_stop *hunt_stop_of(const struct hunt_args *a, int kind);

/* An argument of --stop-on. What is none ends the program, as argp_error() does. */
struct hunt_stop hunt_stop_parse(struct argp_state *state, const char *arg);

#endif
