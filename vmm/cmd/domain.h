/*
 * `record --libvirt`: a domain of libvirt's becomes options of `record`, by reprise-libvirt, which
 * is a program of its own (vmm/libvirt). Here its table is taken, told, and made a command line.
 */
#ifndef REPRISE_CMD_DOMAIN_H
#define REPRISE_CMD_DOMAIN_H

#include "cmd/record_options.h"
#include "host/domain_table.h"

/* The options of `record` that a domain is, and the user's own behind them. */
struct domain_command {
    int argc;
    char **argv; /* NULL at its end */
    char name[64];
    struct domain_table table; /* texts of argv are in it */
};

/*
 * Asks, says on stderr what cannot be taken over, and makes the command line of `a->domain` and the
 * words of argv that are the user's. false: an error was told, *code is the exit code. A domain
 * that runs and writes to its disks is refused unless this is a dry run. Without -o a dry run has
 * the domain's name.
 */
bool domain_command(struct domain_command *d, int argc, char **argv, const struct record_args *a,
                    int *code);
/* On stdout, as a shell takes it. */
void domain_print(const struct domain_command *d);
void domain_command_free(struct domain_command *d); /* safe on zeros */

#endif
