#define _GNU_SOURCE
/* `reprise ls` and `reprise rm`: the recordings of `reprise run`. They look at no contents. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/run_place.h"
#include "replay/recording.h"

enum { O_JSON = 0x3100 };

struct ls_args {
    bool json;
};

static error_t parse_ls(int key, char *arg, struct argp_state *state)
{
    struct ls_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

struct entry {
    char *name;
    u64 when; /* ns since 1970 */
    u64 bytes;
};

/* What is its own alone: files with other names, too, are other recordings' as well. */
static u64 bytes_below(int dir, unsigned depth)
{
    DIR *d = fdopendir(dir);
    u64 bytes = 0;
    struct dirent *e;
    struct stat st;
    while (d && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISREG(st.st_mode) && st.st_nlink == 1)
            bytes += (u64)st.st_blocks * 512;
        if (!S_ISDIR(st.st_mode) || !depth)
            continue;
        int below = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            bytes += bytes_below(below, depth - 1);
    }
    if (d)
        closedir(d);
    else
        close(dir);
    return bytes;
}

static int by_time(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->when != y->when ? (x->when < y->when ? -1 : 1) : strcmp(x->name, y->name);
}

static struct entry *gather(const char *place, size_t *n, struct err *err)
{
    struct entry *list = NULL;
    struct dirent *e;
    struct stat st;
    DIR *d = opendir(place);
    *n = 0;
    if (!d && errno != ENOENT)
        err_errno(err, "cannot look through %s", place);
    while (d && (e = readdir(d))) {
        int dir = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0 || fstatat(dir, "machine.dtb", &st, AT_SYMLINK_NOFOLLOW) || fstat(dir, &st)) {
            if (dir >= 0)
                close(dir);
            continue;
        }
        struct entry *bigger = realloc(list, (*n + 1) * sizeof(*list));
        char *name = strdup(e->d_name);
        if (!bigger || !name) {
            err_set(err, -ENOMEM, "no memory");
            free(name);
            close(dir);
            break;
        }
        list = bigger;
        list[(*n)++] =
            (struct entry){name, (u64)st.st_mtim.tv_sec * 1000000000u + (u64)st.st_mtim.tv_nsec,
                           bytes_below(dir, 2)};
    }
    if (d)
        closedir(d);
    if (*n)
        qsort(list, *n, sizeof(*list), by_time);
    return list;
}

static void print_entry(const struct entry *e, const char *place, bool last, bool json)
{
    char date[64], size[32], shown[512];
    text_time(e->when / 1000000000u, date);
    if (!json) {
        printf("%-20s %10s  %s%s\n", date, text_bytes(e->bytes, size),
               text_printable(e->name, shown, sizeof(shown)), last ? "  (latest)" : "");
        return;
    }
    fputs("{\"name\":", stdout);
    json_text(stdout, e->name);
    fputs(",\"directory\":", stdout);
    json_text(stdout, place);
    printf(",\"made\":\"%s\",\"bytes\":%" PRIu64 ",\"latest\":%s}\n", date, e->bytes,
           last ? "true" : "false");
}

int cmd_ls(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"json", O_JSON, NULL, 0, "One JSON object a line", 0}, {0}};
    static const char doc[] =
        "Lists the recordings that `reprise run` made without -o, oldest first: when, what "
        "each takes of the disk (but for what it shares with others), and its name.";
    static const struct argp argp = {options, parse_ls, NULL, doc, NULL, NULL, NULL};
    struct ls_args a = {0};
    struct err err = {0};
    size_t n = 0;
    option_parse(&argp, argc, argv, &a);
    char *place = run_place(false, &err);
    struct entry *list = place ? gather(place, &n, &err) : NULL;
    char *last = (char *)(uintptr_t)run_place_last();
    const char *name = last ? strrchr(last, '/') + 1 : "";
    for (size_t i = 0; i < n; i++) {
        print_entry(&list[i], place, !strcmp(list[i].name, name), a.json);
        free(list[i].name);
    }
    if (!n && !err.code && !a.json)
        fprintf(stderr, "reprise: no recordings in %s\n", place);
    free(list);
    free(last);
    free(place);
    return err.code ? cmd_fail(&err) : EX_FINE;
}

struct rm_args {
    char **names;
};

static error_t parse_rm(int key, char *arg, struct argp_state *state)
{
    struct rm_args *a = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_ARGS: a->names = state->argv + state->next; return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which recordings?"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The link that names the last one, where that has gone. */
static int renew_latest(struct err *err)
{
    size_t n;
    char *last = (char *)(uintptr_t)run_place_last();
    char *place = last ? NULL : run_place(false, err);
    struct entry *list = place ? gather(place, &n, err) : NULL;
    if (place && !err->code)
        run_place_latest(n ? list[n - 1].name : NULL, err);
    for (size_t i = 0; list && i < n; i++)
        free(list[i].name);
    free(list);
    free(place);
    free(last);
    return err->code;
}

/* A name without a slash is one that `ls` lists. */
static int remove_one(const char *name, struct err *err)
{
    if (!strcmp(name, RUN_LATEST)) {
        char *last = (char *)(uintptr_t)run_place_last();
        int code = last ? recording_remove(last, err)
                        : err_set(err, -ENOENT, "there is no latest recording");
        free(last);
        return code;
    }
    if (strchr(name, '/'))
        return recording_remove(name, err);
    char *place = run_place(false, err), *path = NULL;
    if (!place)
        return err->code;
    int code = asprintf(&path, "%s/%s", place, name) < 0 ? err_set(err, -ENOMEM, "no memory")
                                                         : recording_remove(path, err);
    free(place);
    free(path);
    return code;
}

int cmd_rm(int argc, char **argv)
{
    static const char doc[] =
        "Removes recordings, NAME as `reprise ls` has it, or a path with a slash (./DIR). A "
        "directory that holds anything else stays.";
    static const struct argp argp = {NULL, parse_rm, "NAME...", doc, NULL, NULL, NULL};
    struct rm_args a = {0};
    int code = EX_FINE;
    option_parse(&argp, argc, argv, &a);
    for (char **name = a.names; *name; name++) {
        struct err err = {0};
        if (remove_one(*name, &err) || renew_latest(&err))
            code = cmd_fail(&err);
    }
    return code;
}
