/*
 * The live input source: terminal or pipe on stdin, signals, limits. All that enters a machine
 * while it is recorded comes through here, and host time decides when: this is where nondeterminism
 * enters, and why the recorder stands between it and the machine.
 *
 * Keys: Ctrl-A x quits, Ctrl-A h lists the others (keys.c). They work in piped input too, where
 * Ctrl-A x waits until the guest has taken what stands before it and was quiet for a second of
 * virtual time.
 *
 * Pacing: while there is a live input (a terminal or pipe that is still open), an idle machine
 * waits in host time. A regular file or /dev/null as stdin is read but is not live.
 *
 * Idle limit: a guest that waits for input when none is left would run through virtual time for
 * ever, waking up for its kernel's timers only. That ends the run once it lasted long enough.
 */
#ifndef REPRISE_LIVE_LIVE_H
#define REPRISE_LIVE_LIVE_H

#include <stdio.h>

#include "live/feed.h"

struct live;
struct turns;
struct gpu_host;
struct share_host;

#define LIVE_FEEDS 16u

struct live_config {
    int fd;              /* where typed input comes from; -1: nowhere */
    bool hvc0;           /* it goes to port 0 of the virtio console, not to the serial port */
    bool realtime;       /* pace when there is a live input */
    double timeout;      /* seconds of host time; 0: none */
    pos_t max_position;  /* quit exactly there; NEVER: none */
    vns_t max_time;      /* quit after so much virtual time, from where it begins; 0: none */
    vns_t idle_limit;    /* of virtual time without input, output and work; 0: none */
    const char *stop_at; /* quit once the console printed this; NULL: none */
    bool signals;        /* SIGINT, SIGTERM, SIGHUP quit; they are blocked while it lives */
    FILE *help;          /* where Ctrl-A h prints */
    /* A debugger: when `wants` says so the run ends with RUN_STOP; its descriptors (at most 2) wake
     * an idle wait. NULL: none. */
    bool (*wants)(void *debugger);
    unsigned (*fds)(void *debugger, int fds[2]);
    void *debugger;
    struct feed **feeds; /* they outlive the source */
    unsigned nfeeds;     /* at most LIVE_FEEDS */
    /* Before anything else the machine gets this seed for its entropy device, and this ID. */
    bool reseed;
    u64 seed;
    u8 generation[INPUT_GENERATION_SIZE];
    /* ... and this of chaos. */
    bool unruly;
    u64 chaos;
    enum chaos_part part;
    struct turns *turns;  /* what turns vCPUs get otherwise; NULL: none. Outlives the source */
    struct gpu_host *gpu; /* whose replies the machine gets; NULL: none. Outlives the source */
    struct share_host *const *shares; /* the same of shares, DESCRIPTION_SHARES; NULL: none */
};

int live_create(struct live **out, const struct live_config *config, struct err *err);
struct input_source *live_source(struct live *l);

/* For who gives the machine something else first: does the user want to end? 1: *in is the QUIT. */
int live_quits(struct live *l, struct machine *m, struct input *in);
/* The machine has come to where it is by that; from here on it is the source's. */
void live_begin(struct live *l, struct machine *m);

/* The machine's console output passes through here, for stop_at. */
void live_output(struct live *l, struct machine *m, const void *data, size_t len);
bool live_stop_text_seen(const struct live *l);

/* Readable while a signal waits to be taken; -1: none. */
int live_signal_fd(const struct live *l);

/* Is the input a terminal, in raw mode? */
bool live_raw(const struct live *l);

/* Gives the terminal back and unblocks signals. NULL is safe. */
void live_destroy(struct live *l);

#endif
