/* `reprise unpack`: the directory that a packed recording (replay/pack.h) was made of. */
#define _GNU_SOURCE /* asprintf */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/room.h"
#include "cmd/cmd.h"
#include "cmd/pack.h"
#include "replay/pack.h"

enum { O_FORCE = 256, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "The directory (default: FILE's name without .reprise)", 0},
    {"force", O_FORCE, NULL, 0, "Replace a recording in DIR", 0},
    {"json", O_JSON, NULL, 0, "What was unpacked, as JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Makes a directory of a packed recording, as `reprise pack` found it: to add checkpoints and "
    "marks, or to sign it. Every file is checked against its hash; when one is not right nothing "
    "stays.\vExit codes: 0 unpacked; 1 error; 2 wrong usage.";

struct unpack_args {
    const char *file, *output;
    bool force, json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct unpack_args *a = state->input;
    switch (key) {
    case 'o': a->output = arg; break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "only one file at a time");
        a->file = arg;
        break;
    case ARGP_KEY_END:
        if (!a->file)
            argp_error(state, "which file?");
        if (!a->output && !packed_name(a->file))
            argp_error(state, "-o DIR is missing: where to?");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* All that it would take, before anything is written: a pack may say any sizes. */
static int check_room(const struct recording *to, const struct manifest *m, struct err *err)
{
    struct statvfs fs;
    u64 all = 0;
    for (u32 i = 0; i < m->n; i++)
        all = m->file[i].size > UINT64_MAX - all ? UINT64_MAX : all + m->file[i].size;
    if (fstatvfs(to->dir, &fs))
        return err_errno(err, "cannot tell how much room there is for %s", to->path);
    u64 free_bytes = (u64)fs.f_bavail * fs.f_frsize;
    char wants[32], has[32];
    return all <= free_bytes
               ? 0
               : err_set(err, -ENOSPC, "it takes %s, and there are %s for %s",
                         text_bytes(all, wants), text_bytes(free_bytes, has), to->path);
}

static bool copy(const struct blob *from, int to)
{
    u8 *piece = malloc(1 << 20);
    bool good = piece;
    for (u64 at = 0; good && at < from->size;) {
        size_t n = (size_t)MIN(from->size - at, (u64)1 << 20);
        good = blob_read_at(from, piece, n, at) && file_write_at(to, piece, n, at);
        at += n;
    }
    free(piece);
    return good;
}

static int unpack_one(const struct recording *from, const struct recording *to, const char *name,
                      struct err *err)
{
    struct blob b;
    char folder[PACK_NAME_MAX];
    size_t n = strcspn(name, "/");
    snprintf(folder, sizeof(folder), "%.*s", (int)n, name);
    if (name[n] && mkdirat(to->dir, folder, DIRECTORY_PRIVATE) && errno != EEXIST)
        return err_errno(err, "cannot create %s/%s", to->path, folder);
    int code = recording_file(from, name, NEVER, &b, err);
    if (code)
        return code;
    int fd = file_create_at(to->dir, name);
    errno = fd < 0 ? errno : 0;
    if (fd < 0 || !copy(&b, fd) || fsync(fd))
        code = err_set(err, -EIO, "cannot unpack %s to %s: %s", name, to->path, blob_why(&b));
    if (fd >= 0)
        close(fd);
    blob_close(&b);
    return code;
}

/* The log last: what has none is no recording. */
static int unpack(struct recording *from, struct recording *to, u32 *files, struct err *err)
{
    int code = pack_check(from->pack, err);
    const struct manifest *m = code ? NULL : pack_manifest(from->pack, err);
    if (m)
        code = check_room(to, m, err);
    if (!code)
        code = recording_write_file(to, "machine.dtb", from->machine, from->machine_size, err);
    for (u32 i = 1; !code && i < m->n; i++)
        if (strcmp(m->file[i].name, "log"))
            code = unpack_one(from, to, m->file[i].name, err);
    if (!code)
        code = unpack_one(from, to, "log", err);
    *files = m ? m->n : 0;
    return code;
}

static int run(const struct unpack_args *a, const char *output)
{
    struct recording from, to = RECORDING_CLOSED;
    struct err err = {0};
    u32 files = 0;
    sandbox_read(a->file);
    int code = recording_open(&from, a->file, &err);
    if (code)
        return cmd_fail(&err);
    if (!from.pack)
        code = err_set(&err, -EINVAL, "%s is a directory, and not packed", a->file);
    if (!code)
        code = recording_create(&to, output, a->force, &err);
    if (!code) {
        sandbox_write(output);
        outside_remove(output);
        code = sandbox_enter(&err);
        if (!code)
            code = unpack(&from, &to, &files, &err);
        if (code)
            recording_discard(&to);
    }
    recording_close(&from);
    recording_close(&to);
    if (code)
        return cmd_fail(&err);
    if (a->json) {
        fputs("{\"directory\":", stdout);
        json_text(stdout, output);
        printf(",\"files\":%u}\n", files);
    } else {
        printf("%s: %u files\n", output, files);
    }
    return EX_FINE;
}

int cmd_unpack(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "FILE", .doc = doc};
    struct unpack_args a = {0};
    struct err err;
    option_parse(&argp, argc, argv, &a);
    char *output =
        a.output ? strdup(a.output) : strndup(a.file, strlen(a.file) - strlen(PACKED_END));
    if (!output)
        return cmd_fail((err_set(&err, -ENOMEM, "no memory"), &err));
    int code = run(&a, output);
    free(output);
    return code;
}
