/* `reprise image`: guest images by the recipes that come with reprise (images/image.sh). */
#include <errno.h>
#include <stdlib.h>

#include "cmd/cmd.h"
#include "cmd/installed.h"

#define NAMES_MAX 16u

enum { O_LIST = 256, O_NAMES, O_REMAKE, O_RELEASE };

struct args {
    const char *output, *release, *only; /* --list, --names */
    bool remake;
    const char *name[NAMES_MAX];
    size_t n;
};

static const struct argp_option options[] = {
    {"list", O_LIST, NULL, 0, "Print which there are, and what they are", 0},
    {"names", O_NAMES, NULL, OPTION_HIDDEN, "The same, names only, for completion", 0},
    {"output", 'o', "DIR", 0,
     "Make them in DIR (default: $REPRISE_IMAGES, or ~/.cache/reprise/images; in a source tree "
     "build/images)",
     0},
    {"release", O_RELEASE, "RELEASE", 0,
     "Of packages of that Debian release, such as trixie (default: this host's, if it is Debian, "
     "else bookworm)",
     0},
    {"remake", O_REMAKE, NULL, 0, "Make it anew, if it is there", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case O_LIST: a->only = "--list"; return 0;
    case O_NAMES: a->only = "--names"; return 0;
    case O_REMAKE: a->remake = true; return 0;
    case O_RELEASE: a->release = arg; return 0;
    case 'o': a->output = arg; return 0;
    case ARGP_KEY_ARG:
        if (a->n == NAMES_MAX)
            argp_error(state, "no more than %u at a time", NAMES_MAX);
        a->name[a->n++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->n && !a->only)
            argp_error(state, "which image? --list shows them");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const char doc[] =
    "Makes guest images that `record` boots: IMAGE/vmlinuz with IMAGE/initrd or IMAGE/disk.img, or "
    "both. Their packages are downloaded by apt and unpacked; nothing is installed, and it takes "
    "no "
    "root. One that is there stays as it is." EXIT_HELP;

int cmd_image(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "IMAGE...", doc, NULL, NULL, NULL};
    struct args a = {0};
    struct err err = {0};
    const char *list[NAMES_MAX + 6];
    char *made = NULL;
    size_t n = 0;
    option_parse(&argp, argc, argv, &a);
    if (a.only) {
        list[n++] = a.only;
    } else {
        if (!a.output && !(a.output = made = installed_images(&err)))
            return cmd_fail(&err);
        if (a.release) {
            list[n++] = "--release";
            list[n++] = a.release;
        }
        if (a.remake)
            list[n++] = "--remake";
        list[n++] = a.output;
        for (size_t i = 0; i < a.n; i++)
            list[n++] = a.name[i];
    }
    list[n] = NULL;
    installed_become("images/image.sh", list, &err);
    free(made);
    return cmd_fail(&err);
}
