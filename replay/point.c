#define _GNU_SOURCE
#include "replay/point.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "virtio-gpu-log/log.h"

#define MARKS_FILE "marks"
#define MARKS_MAX  (1u << 20) /* bytes of that file */

static bool number(const char *s, u64 *out)
{
    char *end;
    if (!isdigit((unsigned char)*s))
        return false;
    errno = 0;
    u64 n = strtoull(s, &end, s[0] == '0' && (s[1] | 32) == 'x' ? 16 : 10);
    u64 unit = *end == 'k' || *end == 'K' ? 1000
               : *end == 'M'              ? 1000000
               : *end == 'G'              ? 1000000000
                                          : 1;
    if (unit > 1)
        end++;
    return !errno && !*end && !__builtin_mul_overflow(n, unit, out);
}

static bool duration(const char *s, u64 *out)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"s", 1e9}, {"", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    char *end;
    if (!isdigit((unsigned char)*s) || (s[0] == '0' && (s[1] | 32) == 'x'))
        return false;
    double v = strtod(s, &end);
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        if (!strcmp(end, units[i].name) && isfinite(v) && v * units[i].ns < 1.8e19) {
            *out = (u64)(v * units[i].ns + 0.5);
            return true;
        }
    return false;
}

/* TEXT with its escapes, and #K; `what` is asked for. */
static int counted_text(const char *s, const char *what, struct point *p, struct err *err)
{
    const char *hash = strrchr(s, '#'), *end = s + strlen(s);
    p->n = 1;
    if (hash && hash > s && hash[-1] != '\\' && hash[1] &&
        !hash[1 + strspn(hash + 1, "0123456789")]) {
        if (!number(hash + 1, &p->n) || !p->n)
            return err_set(err, -EINVAL, "%s: the first %s is #1", hash, what);
        end = hash;
    }
    for (; s < end; s++) {
        char c = *s;
        if (c == '\\' && s + 1 < end) {
            static const char from[] = "nrt\\#", to[] = "\n\r\t\\#";
            const char *f = strchr(from, s[1]);
            if (!f)
                return err_set(err, -EINVAL, "\\%c: only \\n, \\r, \\t, \\\\ and \\# are known",
                               s[1]);
            c = to[f - from];
            s++;
        }
        if (p->len == sizeof(p->text))
            return err_set(err, -EINVAL, "the text is longer than %zu bytes", sizeof(p->text));
        p->text[p->len++] = c;
    }
    return p->len ? 0 : err_set(err, -EINVAL, "which %s?", what);
}

/* The rest of crash[#K] and exit:PID[#K]; "" or the #K. */
static bool count(const char *s, u64 *k)
{
    *k = 1;
    return !*s || (*s == '#' && number(s + 1, k) && *k);
}

static bool process(const char *s, struct point *p)
{
    char digits[16];
    size_t n = strspn(s, "0123456789");
    u64 pid;
    snprintf(digits, sizeof(digits), "%.*s", (int)MIN(n, sizeof(digits) - 1), s);
    if (n >= sizeof(digits) || !number(digits, &pid) || pid > INT32_MAX || !count(s + n, &p->n))
        return false;
    p->pid = (i32)pid;
    return true;
}

static int program(const char *s, struct point *p, struct err *err)
{
    int code = counted_text(s, "program", p, err);
    if (code || p->len < sizeof(p->text))
        return code;
    return err_set(err, -EINVAL, "the name is longer than %zu bytes", sizeof(p->text) - 1);
}

bool point_is_life(const struct point *p)
{
    return p->kind == POINT_EXEC || p->kind == POINT_EXIT || p->kind == POINT_CRASH ||
           p->kind == POINT_PANIC;
}

bool point_takes_lives(const struct point *p)
{
    return p->kind == POINT_MARK || point_is_life(p);
}

static int bad(struct err *err, const char *text, const char *why)
{
    return err_set(err, -EINVAL, "'%.80s' is no point in a recording: %s. " POINT_HELP, text, why);
}

int point_parse(const char *text, struct point *p, struct err *err)
{
    static const char *const names[] = {"insn:",  "time:", "event:", "",      "console:", "mark:",
                                        "frame:", "gpu:",  "exec:",  "exit:", "crash",    "panic"};
    memset(p, 0, sizeof(*p));
    if (number(text, &p->n))
        return 0;
    if (!strncmp(text, "end", 3)) {
        p->kind = POINT_END;
        if (!text[3] || (text[3] == '-' && number(text + 4, &p->n)))
            return 0;
        return bad(err, text, "end-N takes a number");
    }
    const char *arg = NULL;
    for (unsigned k = 0; k < ARRAY_SIZE(names) && !arg; k++)
        if (*names[k] && !strncmp(text, names[k], strlen(names[k]))) {
            p->kind = (enum point_kind)k;
            arg = text + strlen(names[k]);
        }
    if (!arg)
        return bad(err, text, "it starts as none");
    switch (p->kind) {
    case POINT_TIME:
        return duration(arg, &p->n) ? 0 : bad(err, text, "time: takes a time like 1.5s or 20ms");
    case POINT_CONSOLE: return counted_text(arg, "text", p, err);
    case POINT_EXEC: return program(arg, p, err);
    case POINT_EXIT:
        return process(arg, p) ? 0 : bad(err, text, "exit: takes the number of a process");
    case POINT_CRASH:
        return count(arg, &p->n) ? 0 : bad(err, text, "crash#K takes a number from 1 on");
    case POINT_PANIC: return !*arg ? 0 : bad(err, text, "nothing follows panic");
    case POINT_MARK:
        if (!*arg || strlen(arg) >= sizeof(p->text))
            return bad(err, text, "mark: takes a name");
        p->len = strlen(arg);
        memcpy(p->text, arg, p->len);
        return 0;
    default: return number(arg, &p->n) ? 0 : bad(err, text, "it takes a whole number");
    }
}

/* ---- marks ---- */

int mark_add(const struct recording *r, struct instant at, const char *name, struct err *err)
{
    char line[400];
    if (!*name || strlen(name) > 200)
        return err_set(err, -EINVAL, "a mark needs a name of at most 200 bytes");
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20)
            return err_set(err, -EINVAL, "the mark's name has control characters");
    struct point p = {.kind = POINT_MARK, .len = strlen(name)};
    struct instant there;
    struct err none;
    memcpy(p.text, name, p.len);
    if (!point_in_log(&p, r->path, &there, &none))
        return err_set(err, -EEXIST, "there is a mark '%s' already, at position %" PRIu64, name,
                       there.position);
    int code = recording_writable(r, err);
    if (code)
        return code;
    int fd = openat(r->dir, MARKS_FILE, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                    FILE_PRIVATE);
    if (fd < 0)
        return err_errno(err, "cannot open %s/%s", r->path, MARKS_FILE);
    int n =
        snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu64 " %s\n", at.position, at.time, name);
    code = write(fd, line, (size_t)n) == n
               ? 0
               : err_errno(err, "cannot write %s/%s", r->path, MARKS_FILE);
    if (close(fd) && !code)
        code = err_errno(err, "cannot write %s/%s", r->path, MARKS_FILE);
    return code;
}

static int marks_in_file(const struct recording *r,
                         void (*fn)(void *opaque, struct instant at, const char *name, size_t len),
                         void *opaque, struct err *err)
{
    struct blob blob;
    int code = recording_file(r, MARKS_FILE, MARKS_MAX, &blob, err);
    if (code == -ENOENT)
        return 0;
    if (code)
        return err_prefix(err, "%s", r->path);
    char line[512], *text = malloc(blob.size + 1);
    if (text && !blob_read_at(&blob, text, blob.size, 0))
        code = err_set(err, -EIO, "cannot read %s/%s: %s", r->path, MARKS_FILE, blob_why(&blob));
    FILE *f = text && !code && blob.size ? fmemopen(text, blob.size, "r") : NULL;
    if (!text || (!f && !code && blob.size))
        code = err_set(err, -ENOMEM, "no memory to read %s/%s", r->path, MARKS_FILE);
    blob_close(&blob);
    while (f && fgets(line, sizeof(line), f)) {
        struct instant at;
        int used = 0;
        if (sscanf(line, "%" SCNu64 " %" SCNu64 " %n", &at.position, &at.time, &used) != 2 || !used)
            continue;
        fn(opaque, at, line + used, strcspn(line + used, "\n"));
    }
    if (f)
        fclose(f);
    free(text);
    return code;
}

int marks_each(const char *dir,
               void (*fn)(void *opaque, struct instant at, const char *name, size_t len),
               void *opaque, struct err *err)
{
    struct opened o;
    struct record rec;
    int code = open_recording(&o, dir, err);
    if (code)
        return code;
    while (log_next(o.log, &rec))
        if (rec.type == REC_MARK)
            fn(opaque, (struct instant){rec.position, rec.time}, (const char *)rec.mark.name.data,
               rec.mark.name.len);
    code = marks_in_file(&o.rec, fn, opaque, err);
    close_recording(&o);
    return code;
}

struct mark_search {
    const struct point *p;
    struct instant at;
    bool found;
};

static void look_at_mark(void *opaque, struct instant at, const char *name, size_t len)
{
    struct mark_search *s = opaque;
    if (s->found || len != s->p->len || memcmp(name, s->p->text, len))
        return;
    s->at = at;
    s->found = true;
}

/* ---- where a point is ---- */

static int event_at(const char *dir, u64 n, struct instant *at, struct err *err)
{
    struct opened o;
    struct record rec = {.index = 0};
    bool found = false;
    int code = open_recording(&o, dir, err);
    if (code)
        return code;
    while (!found && log_next(o.log, &rec))
        found = rec.index == n;
    close_recording(&o);
    if (!found)
        return err_set(err, -ERANGE, "the log has no event %" PRIu64 ": the last one is %" PRIu64,
                       n, rec.index);
    *at = (struct instant){rec.position, rec.time};
    return 0;
}

static int gpu_command_at(const char *dir, u64 n, struct instant *at, struct err *err)
{
    struct opened o;
    struct recording r;
    struct gpu_log_reader *log;
    struct gpu_record rec;
    bool found = false;
    int code = open_recording(&o, dir, err);
    if (code)
        return code;
    bool gpu = o.desc.gpu.width;
    close_recording(&o);
    if (!gpu)
        return err_set(err, -ENOTSUP, "this was recorded without a GPU (record --gpu)");
    code = recording_open(&r, dir, err);
    if (code)
        return code;
    struct blob blob;
    code = recording_file(&r, GPU_LOG_NAME, NEVER, &blob, err);
    if (code == -ENOENT)
        err_set(err, -ENOENT, "there is no " GPU_LOG_NAME " in %s; `reprise gpu extract` makes it",
                dir);
    else if (code)
        err_prefix(err, "%s", dir);
    recording_close(&r);
    if (!code && (code = gpu_log_open_blob(&log, blob, err)))
        err_prefix(err, "%s/" GPU_LOG_NAME, dir);
    if (code)
        return code;
    while (!found && gpu_log_next(log, &rec))
        found = rec.type == GPU_REC_COMMAND && rec.number == n;
    gpu_log_reader_destroy(log);
    if (!found)
        return err_set(err, -ERANGE, "the GPU log has no command %" PRIu64, n);
    *at = (struct instant){rec.position, rec.time};
    return 0;
}

static int check_within(struct instant at, struct instant end, struct err *err)
{
    if (at.position > end.position)
        return err_set(err, -ERANGE,
                       "position %" PRIu64 " lies after the end of the recording, %" PRIu64,
                       at.position, end.position);
    if (at.time > end.time)
        return err_set(err, -ERANGE, "%.9g s lies after the end of the recording, %.9g s",
                       (double)at.time * 1e-9, (double)end.time * 1e-9);
    return 0;
}

static int from_end(u64 n, struct instant end, struct instant *at, struct err *err)
{
    if (n > end.position)
        return err_set(err, -ERANGE, "the recording has only %" PRIu64 " positions", end.position);
    *at = n ? (struct instant){end.position - n, 0} : end;
    return 0;
}

int point_in_log(const struct point *p, const char *dir, struct instant *at, struct err *err)
{
    struct mark_search search = {.p = p};
    struct opened o;
    struct log_summary s;
    int code;
    switch (p->kind) {
    case POINT_EVENT: return event_at(dir, p->n, at, err);
    case POINT_GPU: return gpu_command_at(dir, p->n, at, err);
    case POINT_MARK:
        code = marks_each(dir, look_at_mark, &search, err);
        if (!code && !search.found)
            code = err_set(err, -ENOENT, "there is no mark '%s'", p->text);
        *at = search.at;
        return code;
    case POINT_CONSOLE:
    case POINT_FRAME: return err_set(err, -EINVAL, "what the guest shows is not in the log");
    case POINT_EXEC:
    case POINT_EXIT:
    case POINT_CRASH:
    case POINT_PANIC:
        return err_set(err, -EINVAL, "what the guest's programs do is not in the log");
    default: break;
    }
    code = open_recording(&o, dir, err);
    if (code)
        return code;
    log_summarise(o.log, &s);
    close_recording(&o);
    struct instant end = {s.last_position, s.last_time};
    if (p->kind == POINT_END)
        return from_end(p->n, end, at, err);
    *at = p->kind == POINT_TIME ? (struct instant){0, p->n} : (struct instant){p->n, 0};
    return check_within(*at, end, err);
}

/* The end as the machine finds it, which a log that was cut off does not say. */
static int seek_end(struct timeline *t, u64 n, enum timeline_stop *stop, struct err *err)
{
    struct instant at;
    int code = 0;
    if (n == 0 || !timeline_summary(t)->has_end) {
        code = timeline_seek(t, (struct instant){NEVER, 0}, stop, err);
        if (code || *stop == TIMELINE_INTERRUPTED || n == 0)
            return code;
    }
    code = from_end(n, timeline_end(t), &at, err);
    return code ? code : timeline_seek(t, at, stop, err);
}

int point_seek(struct timeline *t, const struct point *p, enum timeline_stop *stop, struct err *err)
{
    struct instant at;
    if (p->kind == POINT_CONSOLE)
        return timeline_seek_text(t, p->text, p->len, p->n, stop, err);
    if (p->kind == POINT_FRAME)
        return timeline_seek_frame(t, p->n, stop, err);
    if (p->kind == POINT_END)
        return seek_end(t, p->n, stop, err);
    int code = point_in_log(p, timeline_recording(t)->rec.path, &at, err);
    if (!code)
        code = timeline_seek(t, at, stop, err);
    if (!code && *stop == TIMELINE_END) {
        struct instant now = timeline_now(t);
        if (now.position < at.position || now.time < at.time)
            return err_set(err, -ENODATA,
                           "the recording ends before that, at position %" PRIu64 "%s%s",
                           now.position, *timeline_end_text(t) ? ": " : "", timeline_end_text(t));
    }
    return code;
}
