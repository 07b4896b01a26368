/* See disk_option.h. */
#include "cmd/disk_option.h"

#include <stdlib.h>
#include <string.h>

enum { O_DISK = 256, O_PATH, O_TRUST };

/* Names are the program's, to its end: commands copy the struct as they like. */
static void keep(char *name)
{
    static struct kept {
        char *name;
        struct kept *next;
    } * all;
    struct kept *k = malloc(sizeof(*k));
    if (!k)
        return; /* it lives on all the same */
    *k = (struct kept){name, all};
    all = k;
}

void disk_option_take(struct argp_state *state, const char *arg, struct disk_names *names)
{
    struct err err;
    struct disk_spec spec;
    unsigned n = (unsigned)(*arg - '0');
    if (*arg < '0' || n >= DESCRIPTION_DISKS || arg[1] != '=')
        argp_error(state, "--disk: '%s' is not N=FILE with a disk's number N, 0 to %d", arg,
                   DESCRIPTION_DISKS - 1);
    if (names->where.spec[n].file)
        argp_error(state, "--disk: disk %u is named twice", n);
    if (disk_spec_parse(&spec, arg + 2, false, &err))
        argp_error(state, "%s", err.text);
    names->where.spec[n] = spec;
    keep(spec.file);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct disk_names *names = state->input;
    switch (key) {
    case O_DISK: disk_option_take(state, arg, names); return 0;
    case O_PATH:
        if (names->where.npaths == DISK_PATHS)
            argp_error(state, "--disk-path: more than %u directories", DISK_PATHS);
        names->where.path[names->where.npaths++] = arg;
        return 0;
    case O_TRUST: names->trust = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* clang-format off */
#define DISK_ROW \
    {"disk", O_DISK, "N=FILE[,OPTION]...", 0, "Read disk N of the recording from FILE: of recordings that were not made here, or whose image is elsewhere now. FILE may be an NBD URI. Options: %", 0}

#define PATH_ROW \
    {"disk-path", O_PATH, "DIR", 0, "Look in DIR for images of disks that are not where they were: by name and size, and by what is in them where the recording knows that; several", 0}

static const struct argp_option options[] = {DISK_ROW, PATH_ROW, {0}};
static const struct argp_option travel_options[] = {
    DISK_ROW,
    PATH_ROW,
    {"trust-checkpoints", O_TRUST, NULL, 0, TRUST_HELP, 0},
    {0},
};
/* clang-format on */

static char *help(int key, const char *text, void *input)
{
    (void)input;
    return key == O_DISK ? parts_help(&disk_parts, 0, text) : (char *)(uintptr_t)text;
}

static const struct argp argp = {.options = options, .parser = parse, .help_filter = help};

static const struct argp travel_argp = {
    .options = travel_options, .parser = parse, .help_filter = help};

const struct argp_child disk_option_children[] = {{&argp, 0, NULL, 0}, {0}};
const struct argp_child travel_option_children[] = {{&travel_argp, 0, NULL, 0}, {0}};
