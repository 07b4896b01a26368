/* See diff_console.h. */
#define _GNU_SOURCE /* pipe2 */
#include "cmd/diff_console.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/text.h"
#include "cmd/travel.h"

#define SHOWN 120 /* bytes of a line */

struct transcript {
    char *text; /* malloc'ed */
    size_t len;
    char end[256]; /* how the recording ends */
};

static int replay(const char *dir, struct transcript *out, struct err *err)
{
    struct travel tr;
    enum timeline_stop stop;
    struct run_end end;
    size_t known, now;
    const struct point last = {.kind = POINT_END};
    const struct travel_with with = {0};
    int code = travel_open(&tr, dir, &with, err);
    if (!code)
        code = travel_to(&tr, &last, &stop, err);
    if (!code) {
        const char *text = timeline_output(tr.t, OUT_CONSOLE, &known, &now);
        out->text = malloc(now + 1);
        if (out->text) {
            memcpy(out->text, text, now);
            out->text[now] = 0;
            out->len = now;
        } else {
            code = err_set(err, -ENOMEM, "no memory for the console");
        }
        out->end[0] = 0;
        if (timeline_at_end(tr.t, &end) && *timeline_end_text(tr.t))
            text_printable(timeline_end_text(tr.t), out->end, sizeof(out->end));
        else if (timeline_at_end(tr.t, &end))
            run_end_sentence(&end, false, out->end, sizeof(out->end));
    }
    travel_close(&tr);
    return code;
}

/* The line that begins at `at`, as it is shown. */
static const char *line_at(const struct transcript *t, size_t at, char *out, size_t size)
{
    char line[SHOWN + 1];
    size_t n = strcspn(t->text + at, "\r\n");
    snprintf(line, sizeof(line), "%.*s", (int)MIN(n, (size_t)SHOWN), t->text + at);
    text_printable(line, out, size);
    return out;
}

static void print_side(const char *dir, const struct transcript *t, size_t line)
{
    char name[512], shown[SHOWN + 1];
    text_printable(dir, name, sizeof(name));
    if (line < t->len)
        printf("%s prints '%s'", name, line_at(t, line, shown, sizeof(shown)));
    else
        printf("%s prints no more", name);
}

static void print_json_side(const char *name, const struct transcript *t, size_t line)
{
    printf(",\"%s\":", name);
    if (line < t->len)
        json_string(stdout, t->text + line, strcspn(t->text + line, "\r\n"));
    else
        fputs("null", stdout);
}

static void compare(const char *const dir[2], const struct transcript t[2], bool json)
{
    size_t at = 0, line = 0;
    u64 lines = 0;
    while (at < t[0].len && at < t[1].len && t[0].text[at] == t[1].text[at])
        if (t[0].text[at++] == '\n') {
            lines++;
            line = at;
        }
    bool same = t[0].len == t[1].len && at == t[0].len;
    if (json) {
        printf("{\"same\":%s,\"lines\":%" PRIu64, same ? "true" : "false", lines);
        if (!same) {
            print_json_side("a", &t[0], line);
            print_json_side("b", &t[1], line);
        }
        putchar('}');
        return;
    }
    if (same) {
        printf("the consoles agree: %" PRIu64 " line%s\n", lines, lines == 1 ? "" : "s");
    } else {
        if (lines)
            printf("the consoles agree up to line %" PRIu64 ": ", lines);
        else
            fputs("the consoles differ from their first line on: ", stdout);
        print_side(dir[0], &t[0], line);
        fputs(", ", stdout);
        print_side(dir[1], &t[1], line);
        putchar('\n');
    }
    if (strcmp(t[0].end, t[1].end)) {
        char name[2][512];
        printf("they end otherwise: %s: %s, %s: %s\n",
               text_printable(dir[0], name[0], sizeof(name[0])), t[0].end,
               text_printable(dir[1], name[1], sizeof(name[1])), t[1].end);
    }
}

/* ---- replays, by processes of their own ---- */

struct told {
    int code;
    struct err err;
    size_t len; /* of the text after it */
    char end[256];
};

static _Noreturn void serve(const char *dir, int go, int to)
{
    struct transcript t = {0};
    struct told told = {0};
    char byte;
    if (read(go, &byte, 1) != 1)
        _exit(0);
    sandbox_plan_more(SANDBOX_CODE);
    told.code = replay(dir, &t, &told.err);
    told.len = told.code ? 0 : t.len;
    memcpy(told.end, t.end, sizeof(told.end));
    bool good = file_write_on(to, &told, sizeof(told)) && file_write_on(to, t.text, told.len);
    outside_end();
    _exit(good ? 0 : 1);
}

int diff_consoles_prepare(struct diff_consoles *c, const char *const dir[2], struct err *err)
{
    *c = (struct diff_consoles){.go = {-1, -1}, .from = {-1, -1}};
    fflush(NULL);
    for (unsigned i = 0; i < 2; i++) {
        int go[2], from[2];
        if (pipe2(go, O_CLOEXEC))
            return err_errno(err, "cannot make a pipe");
        c->go[i] = go[1];
        if (pipe2(from, O_CLOEXEC)) {
            close(go[0]);
            return err_errno(err, "cannot make a pipe");
        }
        c->from[i] = from[0];
        c->pid[i] = fork();
        if (c->pid[i] == 0) {
            for (unsigned k = 0; k <= i; k++)
                close(c->go[k]);
            serve(dir[i], go[0], from[1]);
        }
        close(go[0]);
        close(from[1]);
        if (c->pid[i] < 0)
            return err_errno(err, "cannot start a process");
    }
    return 0;
}

void diff_consoles_end(struct diff_consoles *c)
{
    for (unsigned i = 0; i < 2; i++) {
        if (c->go[i] >= 0)
            close(c->go[i]);
        if (c->from[i] >= 0)
            close(c->from[i]);
        while (c->pid[i] > 0 && waitpid(c->pid[i], NULL, 0) < 0 && errno == EINTR)
            ;
        c->pid[i] = 0;
        c->go[i] = c->from[i] = -1;
    }
}

static int fetch(struct diff_consoles *c, unsigned i, struct transcript *t, struct err *err)
{
    struct told told;
    char go = 1;
    if (write(c->go[i], &go, 1) != 1 || !file_read_on(c->from[i], &told, sizeof(told)))
        return err_set(err, -EIO, "the replay ended too early");
    *err = told.err;
    t->text = told.code ? NULL : calloc(told.len + 1, 1);
    if (!told.code && (!t->text || !file_read_on(c->from[i], t->text, told.len)))
        return err_set(err, -EIO, "the replay ended too early");
    t->len = told.len;
    memcpy(t->end, told.end, sizeof(t->end));
    t->end[sizeof(t->end) - 1] = 0;
    return told.code;
}

void diff_consoles(struct diff_consoles *c, const char *const dir[2], bool json)
{
    struct transcript t[2] = {{0}};
    struct err err = {0};
    int code = fetch(c, 0, &t[0], &err);
    if (!code)
        code = fetch(c, 1, &t[1], &err);
    if (json)
        fputs(",\"consoles\":", stdout);
    if (!code)
        compare(dir, t, json);
    else if (json)
        fputs("null", stdout);
    if (code)
        fprintf(stderr, "reprise: the consoles were not compared: %s\n", err.text);
    free(t[0].text);
    free(t[1].text);
}
