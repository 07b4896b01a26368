/* `reprise import-libvirt`: a file of a domain's XML as a command line of `record`, or recorded at
 * once. */
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"

struct import_args {
    const char *file, *output;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct import_args *a = state->input;
    switch (key) {
    case 'o': a->output = arg; return 0;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "one FILE; options of `record` stand behind --");
        a->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->file || !*a->file)
            argp_error(state, "FILE is missing: a domain's XML, as `virsh dumpxml NAME` prints it "
                              "(-: standard input)");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_import_libvirt(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"output", 'o', "DIR", 0, "Record it, in the directory DIR, as `record -o DIR` does", 0},
        {0},
    };
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "FILE [-- OPTION...]",
        .doc = "Prints the command line of `reprise record` that is the machine of a libvirt "
               "domain's XML, and on standard error what of it "
               "cannot be taken over, each with what to do; with -o it is recorded. OPTIONs are "
               "those of `record`, and have the last word."};
    struct import_args a = {0};
    int own = 1, n = 0; /* what stands behind -- is of `record` */
    while (own < argc && strcmp(argv[own], "--"))
        own++;
    char *end = argv[own];
    argv[own] = NULL;
    option_parse(&argp, own, argv, &a);
    argv[own] = end;
    char **all = calloc((size_t)argc + 8, sizeof(*all));
    if (!all) {
        fputs("reprise: no memory\n", stderr);
        return EX_ERROR;
    }
    all[n++] = "reprise record";
    all[n++] = "--libvirt-xml";
    all[n++] = (char *)(uintptr_t)a.file;
    all[n++] = a.output ? "-o" : "--dry-run";
    if (a.output)
        all[n++] = (char *)(uintptr_t)a.output;
    for (int i = own + 1; i < argc; i++)
        all[n++] = argv[i];
    int code = cmd_record(n, all);
    free(all);
    return code;
}
