/* `reprise gpu extract`: replays, and writes the gpu.log that recording could have written. */
#define _GNU_SOURCE /* asprintf */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/gpu.h"
#include "cmd/interrupt.h"
#include "cmd/travel.h"
#include "replay/gpu_recorder.h"

enum { O_FORCE = 256, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "The file (default: " GPU_LOG_NAME " in DIR)", 0},
    {"force", O_FORCE, NULL, 0, "Replace FILE", 0},
    {"json", O_JSON, NULL, 0, "What was written, as JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording that has a GPU and writes the stream of its commands: byte for byte "
    "the " GPU_LOG_NAME
    " that recording writes unless told not to (record --gpu-log). No GPU and no "
    "renderer is needed." EXIT_HELP;

struct extract_args {
    const char *dir, *output;
    bool force, json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct extract_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case 'o': a->output = arg; break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END: option_need_recording(state, &a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct extraction {
    struct machine *m;
    struct gpu_recorder *log;
    u64 commands;
};

static void on_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct extraction *x = opaque;
    if (kind == EMIT_GPU)
        gpu_recorder_emit(x->log, x->m, data);
}

static int extract(struct extraction *x, struct travel *tr, struct output_file *file,
                   struct err *err)
{
    enum timeline_stop stop;
    const struct machine_description *d = &timeline_recording(tr->t)->desc;
    if (!d->gpu.width)
        return err_set(err, -ENOENT, "this was recorded without a GPU (record --gpu)");
    int fd = dup(fileno(file->file));
    if (fd < 0)
        return err_errno(err, "cannot write %s", file->path);
    int code = gpu_recorder_create(&x->log, fd, d, err);
    if (code)
        return code;
    x->m = timeline_machine(tr->t);
    machine_set_emit(x->m, on_emit, x);
    code = timeline_forward(tr->t, (struct instant){NEVER, 0}, false, &stop, err);
    machine_set_emit(x->m, NULL, NULL);
    travel_quiet(tr);
    if (!code && stop == TIMELINE_INTERRUPTED)
        code = err_set(err, -EINTR, "interrupted; nothing was written");
    /* Of a recording that was cut off the log has no end either. */
    struct err late = {0};
    int unfinished = gpu_recorder_finish(x->log, travel_end_code(tr) == EX_DAMAGE ? NULL : x->m,
                                         &x->commands, code ? &late : err);
    return code ? code : unfinished;
}

static int run(const struct extract_args *a, struct output_file *file)
{
    struct extraction x = {0};
    struct travel tr;
    struct err err = {0};
    interrupt_catch();
    const struct travel_with with = {.named = &a->disks.where, .from_start = true};
    int code = travel_open(&tr, a->dir, &with, &err);
    if (!code)
        code = extract(&x, &tr, file, &err);
    int result = code ? EX_ERROR : travel_end_code(&tr);
    if (!code && result)
        fprintf(stderr, "reprise: %s\n", timeline_end_text(tr.t));
    travel_close(&tr);
    char *name = strdup(file->path);
    if (!code)
        code = output_commit(file, &err);
    if (code) {
        free(name);
        return cmd_fail(&err);
    }
    if (a->json) {
        fputs("{\"file\":", stdout);
        json_text(stdout, name ? name : "");
        printf(",\"commands\":%" PRIu64 "}\n", x.commands);
    } else {
        printf("%s: %" PRIu64 " commands\n", name ? name : "", x.commands);
    }
    free(name);
    return result;
}

int gpu_extract(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = disk_option_children};
    struct extract_args a = {0};
    struct output_file file = OUTPUT_CLOSED;
    struct err err = {0};
    char *beside = NULL;
    option_parse(&argp, argc, argv, &a);
    if (!a.output && asprintf(&beside, "%s/" GPU_LOG_NAME, a.dir) < 0)
        return cmd_fail((err_set(&err, -ENOMEM, "no memory"), &err));
    int code = output_open(&file, a.output ? a.output : beside, a.force, &err) ? cmd_fail(&err)
                                                                               : run(&a, &file);
    output_discard(&file);
    free(beside);
    return code;
}
