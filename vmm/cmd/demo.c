#define _GNU_SOURCE /* asprintf */
/* `reprise demo`: a real boot recorded, replayed, verified (images/demo.sh). */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/cmd.h"
#include "cmd/installed.h"
#include "cmd/run_place.h"

struct args {
    const char *output;
};

static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0,
     "Where the recording goes, as DIR/boot (default: ~/.cache/reprise/demo)", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case 'o': a->output = arg; return 0;
    case ARGP_KEY_ARG: argp_error(state, "'%s' belongs to no option", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const char doc[] =
    "Records a boot of Debian's kernel, replays it, compares the two, says what that took and what "
    "to try next. The image `linux` is made for it if it is not there (`reprise image`): 40 MB "
    "from the network." EXIT_HELP;

int cmd_demo(int argc, char **argv)
{
    static const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
    struct args a = {0};
    struct err err = {0};
    char *home = NULL, *output = NULL;
    option_parse(&argp, argc, argv, &a);
    char *images = installed_images(&err);
    if (images && !a.output) {
        home = run_home("XDG_CACHE_HOME", ".cache", " (-o DIR does)", true, &err);
        if (home && asprintf(&output, "%s/demo", home) < 0)
            err_set(&err, -1, "no memory");
    }
    const char *list[] = {a.output ? a.output : output, images, NULL};
    if (images && list[0])
        installed_become("images/demo.sh", list, &err);
    free(home);
    free(output);
    free(images);
    return cmd_fail(&err);
}
