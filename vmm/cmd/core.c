/* `reprise core`: a core dump of the guest, for crash, drgn and gdb. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/gpu_scene.h"
#include "cmd/travel.h"
#include "inspect/core.h"
#include "inspect/symbols.h"

enum { O_AT = 256, O_FORCE, O_GPU, O_JSON };

static const struct argp_option options[] = {
    {"at", O_AT, "POINT", 0, "Where (default: the recording's end)", 0},
    {"output", 'o', "FILE", 0, "The core file (required)", 0},
    {"gpu", O_GPU, NULL, 0,
     "With a note of the GPU's contexts and resources (name REPRISE, type 0x52500001, JSON)", 0},
    {"force", O_FORCE, NULL, 0, "Replace FILE", 0},
    {"json", O_JSON, NULL, 0, "What was written, as JSON", 0},
    {0},
};

static const char doc[] =
    "Replays a recording up to a point and writes the guest's memory and registers as an ELF core "
    "of physical memory, as kdump does. crash and drgn read it with the kernel's debug "
    "information, gdb also with the file that `reprise symbols` writes. Pages of zeros are holes: "
    "the file is as long as the guest's memory but takes less." EXIT_HELP;

struct core_args {
    const char *dir, *output;
    struct point at;
    bool force, gpu, json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct core_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_AT: option_point(state, arg, "--at", &a->at); break;
    case O_FORCE: a->force = true; break;
    case O_GPU: a->gpu = true; break;
    case O_JSON: a->json = true; break;
    case 'o': a->output = arg; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (!a->output || !*a->output)
            argp_error(state, "-o FILE is missing: where to?");
        if (!strcmp(a->output, "-"))
            argp_error(state, "-o -: a core has holes, which a pipe cannot; name a file");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void print_json(const struct core_args *a, const struct core_report *r, pos_t position)
{
    fputs("{\"file\":", stdout);
    json_text(stdout, a->output);
    printf(",\"position\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"data_bytes\":%" PRIu64
           ",\"segments\":%u,\"vmcoreinfo\":%s,\"direct_map\":%s,\"cut\":%s,\"release\":",
           position, r->bytes, r->data, r->segments, r->vmcoreinfo ? "true" : "false",
           r->direct_map ? "true" : "false", r->cut ? "true" : "false");
    json_text(stdout, r->release);
    printf(",\"cpus\":%u,\"turn\":%u,\"tasks\":%u", r->cpus, r->turn, r->tasks);
    if (r->comm[0]) {
        printf(",\"pid\":%d,\"comm\":", r->pid);
        json_text(stdout, r->comm);
    }
    puts("}");
}

static void print_text(const struct core_args *a, const struct core_report *r, pos_t position)
{
    char all[32], data[32];
    printf("%s: %s of memory, %s of it not zero, at position %" PRIu64 "\n", a->output,
           text_bytes(r->bytes, all), text_bytes(r->data, data), position);
    if (r->comm[0])
        printf(r->tasks ? "Linux %s; running: %s (pid %d), of %u tasks\n"
                        : "Linux %s; running: %s (pid %d)\n",
               r->release, r->comm, r->pid, r->tasks);
    if (r->cpus > 1)
        printf("%u CPUs, to gdb threads 1 to %u; it was the turn of CPU %u, thread %u\n", r->cpus,
               r->cpus, r->turn, r->turn + 1);
    if (!r->vmcoreinfo)
        puts("There is no VMCOREINFO in the guest at this position (no Linux, or not booted far "
             "enough): gdb reads the core, crash and drgn do not.");
    if (!r->direct_map)
        puts("There is no kernel to ask for its direct map: addresses in the core are physical.");
    if (r->cut)
        puts("The guest has more mappings than a core has room for: some of vmalloc is left out.");
}

/* The note's text; to be freed by the caller. */
static int describe_gpu(const struct core_args *a, struct machine *m, struct core_note *note,
                        struct err *err)
{
    struct gpu_scene place;
    char *text = NULL;
    size_t size = 0;
    int code = gpu_scene_find(&place, a->dir, m, err);
    if (code)
        return code;
    FILE *f = open_memstream(&text, &size);
    if (f)
        gpu_scene_json(f, &place);
    gpu_scene_free(&place);
    if (!f || fclose(f))
        return err_set(err, -ENOMEM, "no memory for the GPU's note");
    *note = (struct core_note){CORE_NOTE_GPU, text, size};
    return 0;
}

static int write_core(const struct core_args *a, struct machine *m)
{
    struct output_file out;
    struct core_report report;
    struct err err = {0};
    struct core_note note = {0};
    int code = a->gpu ? describe_gpu(a, m, &note, &err) : 0;
    if (code)
        return cmd_fail(&err);
    code = output_open(&out, a->output, a->force, &err);
    if (!code && core_write(m, fileno(out.file), a->gpu ? &note : NULL, &report, &err))
        code = err_prefix(&err, "%s", a->output);
    if (!code)
        code = output_commit(&out, &err);
    output_discard(&out);
    free((void *)note.data);
    if (code)
        return cmd_fail(&err);
    if (a->json)
        print_json(a, &report, machine_position(m));
    else
        print_text(a, &report, machine_position(m));
    return EX_FINE;
}

int cmd_core(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct core_args a = {.at = {.kind = POINT_END}};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct output_file probe = OUTPUT_CLOSED;
    struct travel tr;
    /* Before the replay, which may take long. */
    if (output_open(&probe, a.output, a.force, &err))
        return cmd_fail(&err);
    output_discard(&probe);
    const struct travel_with with = {.named = &a.disks.where, .trust = a.disks.trust};
    int code = travel_open_at(&tr, a.dir, &with, &a.at);
    struct machine *m = tr.t ? timeline_machine(tr.t) : NULL;
    if (code == EX_FINE || code == EX_DAMAGE) {
        int done = write_core(&a, m);
        code = done ? done : code;
    }
    travel_close(&tr);
    return code;
}
