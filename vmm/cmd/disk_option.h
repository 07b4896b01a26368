/*
 * What the user says about parts of a recording that are not believed, or not in it, as options of
 * all commands that build its machine: `--disk N=FILE[,OPTION]...` and `--disk-path DIR`, the
 * images of its disks (replay/disk_sources.h), and of those that may start from its checkpoints
 * --trust-checkpoints (replay/checkpoint_notes.h). argp children, so that they are the same
 * everywhere; the command's parser gives them a struct disk_names at ARGP_KEY_INIT.
 */
#ifndef REPRISE_CMD_DISK_OPTION_H
#define REPRISE_CMD_DISK_OPTION_H

#include "cmd/cmd.h"

struct disk_names {
    struct disk_named where;
    bool trust; /* --trust-checkpoints */
};

extern const struct argp_child disk_option_children[];
/* With --trust-checkpoints. */
extern const struct argp_child travel_option_children[];
#define TRUST_HELP                                                                                 \
    "Start from the recording's checkpoints even if nobody but its sender made and checked them"

/* The same for a command that has another --disk besides. */
void disk_option_take(struct argp_state *state, const char *arg, struct disk_names *names);

#endif
