/* `reprise checkpoint`: writes checkpoints of a recording to disk, so that it opens anywhere. */
#include <errno.h>
#include <inttypes.h>

#include "cmd/interrupt.h"
#include "cmd/travel.h"
#include "host/clock.h"

#define DEFAULT_EVERY 0.25

enum { O_EVERY = 256, O_REMOVE, O_JSON, O_CODE_CACHE };

/* clang-format off */
static const struct argp_option options[] = {
    {"every", O_EVERY, "SECONDS", 0, "One for so much host time of replay (default 0.25): about as long as going to a point takes later", 0},
    {"remove", O_REMOVE, NULL, 0, "Remove the checkpoints that are there instead", 0},
    {"code-cache", O_CODE_CACHE, "SIZE", 0, CODE_CACHE_HELP, 0},
    {"json", O_JSON, NULL, 0, "Print the result as JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording and writes checkpoints into it, in place of those that are there. The "
    "recording itself does not change; checkpoints can be removed at any time. They are noted as "
    "this "
    "user's own: those of others are not used, unless `reprise verify` has checked them." EXIT_HELP;

struct checkpoint_args {
    const char *dir;
    double every;
    u64 code_cache;
    bool remove, json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct checkpoint_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_EVERY:
        a->every = option_seconds(state, arg, "--every");
        if (a->every <= 0)
            argp_error(state, "--every: must be more than 0");
        break;
    case O_REMOVE: a->remove = true; break;
    case O_JSON: a->json = true; break;
    case O_CODE_CACHE: a->code_cache = option_code_cache(state, arg); break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (a->remove && a->code_cache)
            argp_error(state, "--code-cache is for making checkpoints, not for --remove");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int remove_all(const struct checkpoint_args *a)
{
    struct opened o;
    struct err err = {0};
    sandbox_plan(SANDBOX_READ); /* no machine runs */
    sandbox_write(a->dir);
    if (sandbox_enter(&err) || open_recording(&o, a->dir, &err))
        return cmd_fail(&err);
    int code = recording_writable(&o.rec, &err);
    if (!code)
        checkpoint_remove(&o.rec, CHECKPOINT_DIR);
    close_recording(&o);
    return code ? cmd_fail(&err) : EX_FINE;
}

int cmd_checkpoint(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = disk_option_children};
    struct checkpoint_args a = {.every = DEFAULT_EVERY};
    option_parse(&argp, argc, argv, &a);
    if (a.remove)
        return remove_all(&a);
    struct err err = {0}, not_noted = {0};
    struct travel tr;
    const struct travel_with with = {
        .named = &a.disks.where, .code_cache = a.code_cache, .make_files = true};
    u32 files = 0;
    u64 bytes = 0, began = host_ns();
    char size[32], took[32];
    interrupt_catch();
    sandbox_write(a.dir);
    if (travel_open(&tr, a.dir, &with, &err))
        return cmd_fail(&err);
    int code =
        timeline_write_checkpoints(tr.t, (u64)(a.every * 1e9), &files, &bytes, &not_noted, &err);
    travel_quiet(&tr);
    if (!code && not_noted.code)
        fprintf(stderr,
                "reprise: the checkpoints cannot be noted as your own: %s; they will not be used "
                "without --trust-checkpoints\n",
                not_noted.text);
    if (code)
        code = cmd_fail(&err);
    else if (a.json)
        printf("{\"checkpoints\":%u,\"bytes\":%" PRIu64 ",\"host_ns\":%" PRIu64 "}\n", files, bytes,
               host_ns() - began);
    else
        fprintf(stderr, "reprise: %u checkpoints, %s, in %s\n", files, text_bytes(bytes, size),
                text_seconds(host_ns() - began, took));
    travel_close(&tr);
    return code;
}
