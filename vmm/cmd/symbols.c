/* `reprise symbols`: the guest kernel's own symbol table, for gdb and others. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/travel.h"
#include "inspect/guest_linux.h"

enum { O_AT = 256, O_FORCE, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"at", O_AT, "POINT", 0, "Where to read it (default: the recording's end)", 0},
    {"output", 'o', "FILE", 0, "Write an ELF file, for gdb's `file` or `add-symbol-file`, instead of a list", 0},
    {"force", O_FORCE, NULL, 0, "With -o: replace FILE", 0},
    {"json", O_JSON, NULL, 0, "As JSON: with -o what was written, else one symbol a line", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording up to a point and reads the symbol table that the guest's Linux kernel "
    "keeps of itself in its memory; no debug package is needed. Prints it as nm does, or writes "
    "it as an ELF file." EXIT_HELP;

struct symbols_args {
    const char *dir, *output;
    struct point at;
    bool force, json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct symbols_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_AT: option_point(state, arg, "--at", &a->at); break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case 'o': a->output = arg; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (a->force && !a->output)
            argp_error(state, "--force is for -o FILE");
        if (a->output && !*a->output)
            argp_error(state, "-o: the file has no name");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void print_json(const struct symbols *s, const struct symbol *y)
{
    fputs("{\"address\":\"", stdout);
    printf("%016" PRIx64 "\",\"size\":%" PRIu64 ",\"type\":\"%c\",\"absolute\":%s,\"name\":",
           y->address, y->size, y->type, y->absolute ? "true" : "false");
    json_text(stdout, s->names + y->name);
    puts("}");
}

static int list(const struct symbols *s, bool json)
{
    for (u32 i = 0; i < s->count; i++) {
        const struct symbol *y = &s->list[i];
        if (json)
            print_json(s, y);
        else
            printf("%016" PRIx64 " %c %s\n", y->address, y->type, s->names + y->name);
    }
    return EX_FINE;
}

static void print_written(const struct symbols_args *a, const struct symbols *s, pos_t position)
{
    if (!a->json) {
        printf("%s: %u symbols of Linux %s at position %" PRIu64 "\n", a->output, s->count,
               s->release[0] ? s->release : "(release unknown)", position);
        return;
    }
    fputs("{\"file\":", stdout);
    json_text(stdout, a->output);
    printf(",\"symbols\":%u,\"position\":%" PRIu64 ",\"release\":", s->count, position);
    json_text(stdout, s->release);
    fputs(",\"build_id\":\"", stdout);
    for (unsigned i = 0; i < s->build_id_size; i++)
        printf("%02x", s->build_id[i]);
    puts("\"}");
}

static int write_file(const struct symbols_args *a, const struct symbols *s, pos_t position)
{
    struct output_file out;
    struct err err = {0};
    int code = output_open(&out, a->output, a->force, &err);
    if (!code && symbols_write_elf(s, out.file, &err))
        code = err_prefix(&err, "%s", a->output);
    if (!code)
        code = output_commit(&out, &err);
    output_discard(&out);
    if (code)
        return cmd_fail(&err);
    print_written(a, s, position);
    return EX_FINE;
}

int cmd_symbols(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct symbols_args a = {.at = {.kind = POINT_END}};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct output_file probe = OUTPUT_CLOSED;
    struct travel tr;
    struct symbols s;
    /* Before the replay, which may take long. */
    if (a.output && output_open(&probe, a.output, a.force, &err))
        return cmd_fail(&err);
    output_discard(&probe);
    const struct travel_with with = {.named = &a.disks.where, .trust = a.disks.trust};
    int code = travel_open_at(&tr, a.dir, &with, &a.at);
    struct machine *m = tr.t ? timeline_machine(tr.t) : NULL;
    if (code == EX_FINE || code == EX_DAMAGE) {
        int done;
        if (guest_symbols_read(&s, m, &err))
            done = cmd_fail(&err);
        else
            done = a.output ? write_file(&a, &s, machine_position(m)) : list(&s, a.json);
        code = done ? done : code;
        symbols_free(&s);
    }
    travel_close(&tr);
    return code;
}
