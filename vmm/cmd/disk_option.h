/*
 * `--disk N=FILE[,OPTION]...` of all commands that build a recording's machine: the images that
 * the user names for its disks (replay/disk_sources.h). An argp child, so that it is one option
 * everywhere; the command's parser gives it a struct disk_names at ARGP_KEY_INIT.
 */
#ifndef REPRISE_CMD_DISK_OPTION_H
#define REPRISE_CMD_DISK_OPTION_H

#include "cmd/cmd.h"

struct disk_names {
    struct disk_spec spec[DESCRIPTION_DISKS]; /* file NULL: not named. Theirs until the end */
};

extern const struct argp_child disk_option_children[];

/* The same for a command that has another --disk besides. */
void disk_option_take(struct argp_state *state, const char *arg, struct disk_names *names);

#endif
