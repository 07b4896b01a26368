/* `reprise gpu`: its verbs are in gpu_VERB.c. */
#include "cmd/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "replay/pack.h"

static const struct verb verbs[] = {
    {"list", gpu_list, SANDBOX_READ, "the commands, one a line"},
    {"show", gpu_show, SANDBOX_READ, "one command in full, with the state that was bound"},
    {"replay", gpu_replay, SANDBOX_READ, "draws it without the machine: frames, times, hashes"},
    {"diff", gpu_diff, SANDBOX_READ, "where two streams, or two drivers, part"},
    {"trim", gpu_trim, SANDBOX_READ, "a smaller stream that draws the same frames"},
    {"who", gpu_who, SANDBOX_READ, "the draw that a pixel is from"},
    {"extract", gpu_extract, SANDBOX_READ | SANDBOX_CODE,
     "the stream of a recording that was made without it"},
};

int cmd_gpu(int argc, char **argv)
{
    struct verb_choice c = {.verbs = verbs, .n = ARRAY_SIZE(verbs), .what = "verb"};
    verb_choose(&c,
                "Inspects the stream of GPU commands of a recording (the file " GPU_LOG_NAME
                ", which stands alone).",
                "`reprise gpu VERB --help` says more about each." EXIT_HELP, argc, argv);
    return verb_run(&c, "reprise gpu");
}

static int no_gpu_log(const char *path, struct err *err)
{
    return err_set(err, -ENOENT,
                   "%s: there is no " GPU_LOG_NAME " in it: no recording, or one made without a "
                   "GPU, or without this log (`reprise gpu extract` makes it)",
                   path);
}

/* The stream in a packed recording, behind the door; takes over `fd`. */
static int open_packed(int fd, const char *path, struct blob *log, struct err *err)
{
    struct pack *p;
    int code = pack_open(&p, fd, path, err);
    if (code)
        return code;
    code = pack_has(p, GPU_LOG_NAME) ? 0 : no_gpu_log(path, err);
    if (!code && (code = pack_file(p, GPU_LOG_NAME, log, err)))
        err_prefix(err, "%s", path);
    pack_close(p);
    return code;
}

int gpu_open(const char *path, struct gpu_log_reader **out, struct err *err)
{
    struct stat st;
    struct blob log = BLOB_CLOSED;
    sandbox_read(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, "%s", path);
    if (!fstat(fd, &st) && S_ISDIR(st.st_mode)) {
        int found = file_open_regular(fd, GPU_LOG_NAME, NEVER, NULL, err);
        close(fd);
        fd = found;
        if (fd == -ENOENT)
            return no_gpu_log(path, err);
        if (fd < 0)
            return err_prefix(err, "%s", path);
    }
    int code = sandbox_enter(err);
    if (code)
        close(fd);
    else if (pack_is(fd))
        code = open_packed(fd, path, &log, err);
    else
        log.fd = fd;
    if (code)
        return code;
    code = gpu_log_open_blob(out, log, err);
    return code ? err_prefix(err, "%s", path) : 0;
}

int gpu_end(const struct gpu_log_reader *r)
{
    const struct chunk_damage *d = gpu_log_damage(r);
    if (d->state == CHUNKS_COMPLETE)
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
