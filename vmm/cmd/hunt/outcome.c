/* See outcome.h. */
#define _GNU_SOURCE /* memmem */
#include "cmd/hunt/outcome.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/text.h"
#include "inspect/lives.h"

#define CHUNK (1u << 16)

/* Numbers, which differ from run to run, become N; in place. */
static void make_alike(char *text)
{
    char *to = text;
    for (const char *at = text; *at;) {
        size_t n = 0;
        bool hex = at[0] == '0' && at[1] == 'x' && isxdigit((unsigned char)at[2]);
        if (hex)
            for (n = 2; isxdigit((unsigned char)at[n]);)
                n++;
        else
            while (isdigit((unsigned char)at[n]))
                n++;
        if (n) {
            at += n;
            *to++ = 'N';
        } else {
            *to++ = *at++;
        }
    }
    *to = 0;
}

/* ---- what it printed ---- */

/* The line around bytes [at, at + len) of what is in `fd`. */
static void line_around(int fd, u64 at, size_t len, char out[HUNT_TEXT])
{
    char buf[2 * HUNT_TEXT];
    u64 from = at - MIN(at, HUNT_TEXT / 2);
    ssize_t n = pread(fd, buf, sizeof(buf), (off_t)from);
    size_t have = n > 0 ? (size_t)n : 0, begin = (size_t)(at - from), end = MIN(begin + len, have);
    begin = MIN(begin, have);
    while (begin && buf[begin - 1] != '\n')
        begin--;
    while (end < have && buf[end] != '\n' && buf[end] != '\r')
        end++;
    snprintf(out, HUNT_TEXT, "%.*s", (int)MIN(end - begin, HUNT_TEXT - 1), buf + begin);
}

bool outcome_find_text(int fd, u64 from, const char *text, u64 *found_at, char out[HUNT_TEXT])
{
    size_t len = strlen(text), kept = 0;
    u64 at = from; /* of buf */
    char *buf = malloc(CHUNK + len);
    bool found = false;
    while (buf && !found) {
        ssize_t n = pread(fd, buf + kept, CHUNK, (off_t)(at + kept));
        if (n <= 0)
            break;
        size_t have = kept + (size_t)n;
        const char *hit = memmem(buf, have, text, len);
        if (hit) {
            *found_at = at + (u64)(hit - buf);
            line_around(fd, *found_at, len, out);
            found = true;
        }
        size_t keep = MIN(have, len - 1);
        memmove(buf, buf + have - keep, keep);
        at += have - keep;
        kept = keep;
    }
    free(buf);
    return found;
}

static bool printed(const struct hunt_run *r, const char *text, char out[HUNT_TEXT])
{
    static const char *const names[] = {"out", "err"};
    bool found = false;
    u64 at;
    for (unsigned i = 0; i < ARRAY_SIZE(names) && !found; i++) {
        int fd = openat(r->dir, names[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        found = fd >= 0 && outcome_find_text(fd, 0, text, &at, out);
        if (fd >= 0)
            close(fd);
    }
    return found;
}

/* The last line of what is not ours in a file; "": none. */
static void last_line(const struct hunt_run *r, const char *name, char out[HUNT_TEXT])
{
    char buf[4096];
    int fd = openat(r->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t from = size - MIN(size, (off_t)sizeof(buf));
    ssize_t n = fd < 0 ? 0 : pread(fd, buf, sizeof(buf), from);
    *out = 0;
    for (size_t end = n > 0 ? (size_t)n : 0; end && !*out;) {
        size_t begin = end - 1;
        while (begin && buf[begin - 1] != '\n')
            begin--;
        size_t len = strcspn(buf + begin, "\r\n");
        len = MIN(len, end - begin);
        if (len && strncmp(buf + begin, "reprise: ", MIN(len, 9u)))
            snprintf(out, HUNT_TEXT, "%.*s", (int)MIN(len, HUNT_TEXT - 1), buf + begin);
        end = begin;
    }
    if (fd >= 0)
        close(fd);
}

/* ---- what it came to ---- */

/* The signal by which the program, or one that a shell ran for it, died; 0: none. */
static int signal_of(const struct hunt_run *r)
{
    int s = r->program.status;
    if (!r->program.known || r->program.result != RUN_ENDED)
        return 0;
    int number = WIFSIGNALED(s) ? WTERMSIG(s) : WEXITSTATUS(s) > 128 ? WEXITSTATUS(s) - 128 : 0;
    return signal_dumps_core(number) ? number : 0;
}

static bool hangs(const struct hunt_run *r)
{
    return r->end.reason == RUN_HALTED ||
           (r->end.reason == RUN_QUIT && (r->end.arg == QUIT_TIMEOUT || r->end.arg == QUIT_IDLE));
}

static u32 status_of(const struct hunt_args *a, const struct hunt_run *r)
{
    if (a->record)
        return r->end.reason == RUN_EXIT ? r->end.arg : 0;
    int s = r->program.status;
    return r->program.result != RUN_ENDED ? (u32)s
           : WIFEXITED(s)                 ? (u32)WEXITSTATUS(s)
                                          : 128 + (u32)WTERMSIG(s);
}

static bool exit_means(const struct hunt_args *a, u32 status)
{
    for (unsigned i = 0; i < a->nstops; i++) {
        const struct hunt_stop *s = &a->stops[i];
        if (s->kind == STOP_EXIT && (s->any || (s->status == status) != s->unequal))
            return true;
    }
    return false;
}

/* ", in ..." */
static bool where(const struct hunt_args *a, const struct hunt_run *r, enum hunt_wanted wanted,
                  char out[HUNT_TEXT])
{
    struct hunt_where w;
    struct err err = {0};
    const char *program = a->record ? "" : text_base_name(a->rest[a->program]);
    const struct instant *begin = r->end.begun ? &r->end.begin : NULL;
    if (hunt_look_where(r->recording, wanted, begin, program, &w, &err)) {
        snprintf(out, HUNT_TEXT, "(where: %.150s)", err.text);
        return false;
    }
    snprintf(out, HUNT_TEXT, "%s", w.found ? w.text : "");
    return w.found;
}

static void PRINTF(2, 3) say(struct hunt_outcome *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(o->kind, sizeof(o->kind), fmt, ap);
    va_end(ap);
    text_ascii(o->kind);
}

static bool crashed(const struct hunt_args *a, const struct hunt_run *r, struct hunt_outcome *o)
{
    char at[HUNT_TEXT];
    int number = a->record ? 0 : signal_of(r);
    if (r->end.reason == RUN_TRIPLE_FAULT) {
        say(o, "crash: triple fault");
        return true;
    }
    /* A guest of its own says nothing of how its processes end: a replay knows. */
    if (!number && !(a->record && hunt_stop_of(a, STOP_CRASH)))
        return false;
    bool there = where(a, r, HUNT_PROCESS, at);
    if (!number && !there)
        return false;
    if (there)
        say(o, "crash: %s", at);
    else
        say(o, "crash: signal %d %s", number, at);
    return true;
}

static bool ended(const struct hunt_args *a, const struct hunt_run *r, struct hunt_outcome *o)
{
    u32 status = status_of(a, r);
    char line[HUNT_TEXT] = "";
    if (status && !a->record) {
        last_line(r, "err", line);
        if (!*line)
            last_line(r, "out", line);
        make_alike(line);
    }
    if (a->record && r->end.reason != RUN_EXIT)
        say(o, "%s",
            r->end.reason == RUN_POWEROFF ? "powered off"
            : r->end.reason == RUN_RESET  ? "reset the machine"
            : r->end.reason == RUN_QUIT   ? "ended by an option of record"
                                          : "cannot be run any further");
    else
        say(o, "status %u%s%s", status, *line ? ": " : "", line);
    return exit_means(a, status);
}

void hunt_outcome(const struct hunt_args *a, const struct hunt_run *r, struct hunt_outcome *o)
{
    char line[HUNT_TEXT], at[HUNT_TEXT];
    *o = (struct hunt_outcome){.found = false};
    if (*r->end.panic) {
        snprintf(line, sizeof(line), "%s", r->end.panic);
        make_alike(line);
        where(a, r, HUNT_PANIC, at);
        say(o, "panic: %s%s%s", line, *at ? "; " : "", at);
        o->found = hunt_stop_of(a, STOP_PANIC);
        if (o->found)
            return;
    }
    /* A panic's text may be what is hunted for, too. */
    for (unsigned i = 0; i < a->nstops; i++)
        if (a->stops[i].kind == STOP_TEXT && printed(r, a->stops[i].text, line)) {
            make_alike(line);
            say(o, "text: %s", line);
            o->found = true;
            return;
        }
    if (*r->end.panic)
        return;
    if (crashed(a, r, o)) {
        o->found = hunt_stop_of(a, STOP_CRASH) || (!a->record && exit_means(a, status_of(a, r)));
    } else if (hangs(r)) {
        if (a->record)
            *at = 0;
        else
            where(a, r, HUNT_STANDS, at);
        say(o, "hang%s%s", *at ? ": " : "", at);
        o->found = hunt_stop_of(a, STOP_HANG);
    } else {
        o->found = ended(a, r, o);
    }
}
