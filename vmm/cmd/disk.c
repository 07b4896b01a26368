/* `reprise disk`: the disks of a recording, as they were at any point. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/travel.h"

enum { O_AT = 256, O_DISK, O_FORCE, O_JSON, O_TRUST };

/* clang-format off */
static const struct argp_option options[] = {
    {"at", O_AT, "POINT", 0, "export: as it was there (default: the recording's end)", 0},
    {"disk", O_DISK, "N|N=FILE[,OPTION]...", 0, "export: which one (default 0). N=FILE: read disk N of the recording from FILE, as with `reprise replay`", 0},
    {"output", 'o', "FILE", 0, "export: where the raw image goes (required)", 0},
    {"trust-checkpoints", O_TRUST, NULL, 0, "export: " TRUST_HELP, 0},
    {"force", O_FORCE, NULL, 0, "With -o: replace FILE", 0},
    {"json", O_JSON, NULL, 0, "Print the result as JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "`reprise disk DIR` lists a recording's disks. `reprise disk DIR export -o FILE` writes one as "
    "a "
    "raw image with all that the guest had written by then, as after a power cut at that "
    "instant. " POINT_HELP EXIT_HELP;

struct disk_args {
    const char *dir, *verb, *output;
    struct point at;
    unsigned disk;
    bool force, json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct disk_args *a = state->input;
    switch (key) {
    case O_AT: option_point(state, arg, "--at", &a->at); break;
    case O_DISK:
        if (strchr(arg, '='))
            disk_option_take(state, arg, &a->disks);
        else
            a->disk = (unsigned)option_number(state, arg, "--disk");
        break;
    case O_FORCE: a->force = true; break;
    case O_TRUST: a->disks.trust = true; break;
    case O_JSON: a->json = true; break;
    case 'o': a->output = arg; break;
    case ARGP_KEY_ARG:
        if (!a->verb && !strcmp(arg, "export"))
            a->verb = arg;
        else if (!a->dir)
            a->dir = arg;
        else
            argp_error(state, "'%s': the one thing to do with a disk is `export`", arg);
        break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (a->verb && (!a->output || !*a->output))
            argp_error(state, "export: -o FILE is missing");
        if (!a->verb && (a->output || a->force || a->disks.trust))
            argp_error(state, "-o, --force and --trust-checkpoints are for `export`");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int list(const struct disk_args *a)
{
    struct opened o;
    struct err err = {0};
    char size[32], path[1024];
    sandbox_plan(SANDBOX_READ); /* no machine runs */
    sandbox_read(a->dir);
    if (sandbox_enter(&err) || open_recording(&o, a->dir, &err))
        return cmd_fail(&err);
    fputs(a->json ? "[" : "", stdout);
    for (unsigned i = 0; i < DESCRIPTION_DISKS && o.desc.disk[i].size; i++) {
        const struct description_disk *d = &o.desc.disk[i];
        if (a->json) {
            printf("%s{\"disk\":%u,\"size\":%" PRIu64 ",\"readonly\":%s,\"path\":", i ? "," : "", i,
                   d->size, d->readonly ? "true" : "false");
            json_text(stdout, d->path);
            fputs(",\"format\":", stdout);
            json_text(stdout, d->format);
            fputs(",\"serial\":", stdout);
            json_text(stdout, d->serial);
            putchar('}');
        } else {
            char format[sizeof(d->format)];
            printf("%u  %10s  %-9s  %-6s  %s\n", i, text_bytes(d->size, size),
                   d->readonly ? "read-only" : "",
                   text_printable(d->format, format, sizeof(format)),
                   text_printable(d->path, path, sizeof(path)));
        }
    }
    fputs(a->json ? "]\n" : "", stdout);
    close_recording(&o);
    return EX_FINE;
}

static int export(const struct disk_args *a, struct travel *tr)
{
    struct output_file out;
    struct err err = {0};
    struct machine *m = timeline_machine(tr->t);
    char size[32];
    if (a->disk >= machine_disks(m)) {
        err_set(&err, -ENOENT, "the recording has %u disks; there is no disk %u", machine_disks(m),
                a->disk);
        return cmd_fail(&err);
    }
    struct disk *d = machine_disk(m, a->disk);
    int code = output_open(&out, a->output, a->force, &err);
    if (!code && disk_export(d, fileno(out.file), &err))
        code = err_prefix(&err, "%s", a->output);
    if (!code)
        code = output_commit(&out, &err);
    output_discard(&out);
    if (code)
        return cmd_fail(&err);
    if (a->json) {
        printf("{\"disk\":%u,\"size\":%" PRIu64 ",\"position\":%" PRIu64 ",\"file\":", a->disk,
               d->size, machine_position(m));
        json_text(stdout, a->output);
        puts("}");
    } else {
        printf("%s: disk %u, %s, as it was at position %" PRIu64 "\n", a->output, a->disk,
               text_bytes(d->size, size), machine_position(m));
    }
    return EX_FINE;
}

int cmd_disk(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR] [export]", .doc = doc};
    struct disk_args a = {.at = {.kind = POINT_END}};
    option_parse(&argp, argc, argv, &a);
    if (!a.verb)
        return list(&a);
    struct err err = {0};
    struct output_file probe;
    struct travel tr;
    /* Before the replay, which may take long. */
    if (output_open(&probe, a.output, a.force, &err))
        return cmd_fail(&err);
    output_discard(&probe);
    const struct travel_with with = {.named = &a.disks.where, .trust = a.disks.trust};
    int code = travel_open_at(&tr, a.dir, &with, &a.at);
    if (code == EX_FINE || code == EX_DAMAGE) {
        int done = export(&a, &tr);
        code = done ? done : code;
    }
    travel_close(&tr);
    return code;
}
