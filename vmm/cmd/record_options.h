/* The options of `reprise record`. */
#ifndef REPRISE_CMD_RECORD_OPTIONS_H
#define REPRISE_CMD_RECORD_OPTIONS_H

#include "cmd/chaos_option.h"
#include "cmd/cmd.h"
#include "cmd/displays.h"
#include "cmd/guest.h"
#include "cmd/profile.h"
#include "replay/point.h"

struct record_args {
    const char *output, *stop_at;
    const char *packed; /* what `output` becomes when it has ended; NULL: it stays */
    bool seeded;        /* --seed was given */
    const char *from;   /* a recording to begin in; NULL: at power-on */
    struct point at;    /* ... there */
    bool at_given;
    const char *machine; /* an option that was given of what the machine is; NULL: none */
    struct guest_config guest;
    int engine;              /* enum engine_kind; -1: auto */
    enum position_unit unit; /* of engine kvm: UNIT_BRANCH is pmu, UNIT_INSN step; 0: auto */
    bool verbose;
    bool unruly; /* --chaos was given */
    struct chaos chaos;
    const char *turns;     /* a file; NULL: none */
    const char *turns_out; /* a file to be made; NULL: none */
    pos_t max_position;
    double timeout, idle_limit; /* negative: not given */
    double max_time;            /* seconds of virtual time; 0: none */
    bool unpaced;
    bool force, gdb, gdb_wait, no_notes;
    double checkpoint_every; /* 0: none */
    bool checkpoint_end;     /* one where it is ended from outside */
    const char *endpoint;    /* --gdb; NULL: a socket of its own */
    bool gpu_log;
    u64 gpu_log_limit, overlay_limit, keep_free; /* bytes; 0: none */
    const char *domain; /* of libvirt's, or a file of its XML: not looked at yet (domain.h) */
    bool domain_file, dry_run;
    int dropped[4]; /* words of argv that said so */
    unsigned ndropped;
    struct display_options display;
    struct profile_options profile;
};

/* Reads them; what is wrong is printed, and ends the process. `add` is the caller's to free, texts
 * are argv's. */
void record_options(int argc, char **argv, struct record_args *out);

#endif
