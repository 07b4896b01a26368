/* `reprise gpu`: finds the verb; they are in gpu_VERB.c. */
#include "cmd/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"list", gpu_list},
    {"show", gpu_show},
    {"extract", gpu_extract},
    {"replay", gpu_replay},
};

static const char doc[] =
    "Inspects the stream of GPU commands of a recording (the file " GPU_LOG_NAME ", which stands "
    "alone).\n\n"
    "Verbs:\n"
    "  list      the commands, one a line\n"
    "  show      one command in full, with the state that was bound\n"
    "  extract   the stream of a recording that was made without it\n\n"
    "`reprise gpu VERB --help` says more about each." EXIT_HELP;

struct choice {
    int argc;
    char **argv;
    int (*run)(int argc, char **argv);
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct choice *c = state->input;
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "which verb: list, show or extract?");
    if (key != ARGP_KEY_ARG)
        return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (!strcmp(arg, verbs[i].name))
            c->run = verbs[i].run;
    if (!c->run)
        argp_error(state, "there is no verb '%s'", arg);
    c->argv = state->argv + state->next - 1;
    c->argc = state->argc - state->next + 1;
    state->next = state->argc;
    return 0;
}

int cmd_gpu(int argc, char **argv)
{
    static const struct argp argp = {.parser = parse, .args_doc = "VERB [OPTION...]", .doc = doc};
    struct choice c = {0};
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
    char name[64];
    snprintf(name, sizeof(name), "reprise gpu %s", c.argv[0]);
    c.argv[0] = name;
    return c.run(c.argc, c.argv);
}

int gpu_open(const char *path, struct gpu_log_reader **out, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, "%s", path);
    if (!fstat(fd, &st) && S_ISDIR(st.st_mode)) {
        int log = openat(fd, GPU_LOG_NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        int why = errno;
        close(fd);
        fd = log;
        if (fd < 0 && why == ENOENT)
            return err_set(err, -ENOENT,
                           "%s: there is no " GPU_LOG_NAME " in it: no recording, or one made "
                           "without a GPU",
                           path);
        errno = why;
        if (fd < 0)
            return err_errno(err, "%s/" GPU_LOG_NAME, path);
    }
    int code = gpu_log_open(out, fd, err);
    return code ? err_prefix(err, "%s", path) : 0;
}

int gpu_end(const struct gpu_log_reader *r)
{
    const struct gpu_log_damage *d = gpu_log_damage(r);
    if (d->state == GPU_LOG_COMPLETE)
        return EX_FINE;
    fflush(stdout);
    fprintf(stderr, "reprise: the GPU log ends early: %s\n", d->text);
    return EX_DAMAGE;
}

int gpu_responses_read(struct gpu_log_reader *r, struct gpu_responses *out, struct err *err)
{
    struct gpu_record rec;
    u64 room = 0;
    *out = (struct gpu_responses){0};
    while (gpu_log_next(r, &rec)) {
        if (rec.type == GPU_REC_COMMAND && out->count == room) {
            room = MAX(1024u, room * 2);
            u32 *type = realloc(out->type, room * sizeof(*type));
            if (!type) {
                free(out->type);
                *out = (struct gpu_responses){0};
                return err_set(err, -ENOMEM, "no memory for the answers of the GPU log");
            }
            out->type = type;
        }
        if (rec.type == GPU_REC_COMMAND)
            out->type[out->count++] = 0;
        else if (rec.type == GPU_REC_REPLY)
            out->type[rec.number] = (u32)rec.reply.response;
    }
    gpu_log_rewind(r);
    return 0;
}
