/* See input_file.h; the text's grammar is in docs/input.md. The file is the user's: every line that
 * is not understood is refused by its number. */
#include "live/input_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/input-event-codes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/keymap.h"
#include "machine/machine.h"

#define STEP_NS   10000000ull /* between the reports of one command, and after the last */
#define TIME_MAX  (1ull << 62)
#define WHEEL_MAX 1000

struct input_file {
    struct feed feed; /* first */
    struct input_report *report;
    size_t n, room, next;
};

/* ---- names ---- */

struct name {
    const char *name;
    u16 code;
};

static const struct name keys[] = {
#include "keynames.h"
};

static const struct name buttons[] = {
    {"left", BTN_LEFT}, {"right", BTN_RIGHT}, {"middle", BTN_MIDDLE},
    {"side", BTN_SIDE}, {"extra", BTN_EXTRA},
};

/* ---- the parser ---- */

struct parser {
    struct input_file *file;
    const char *name;
    unsigned line;
    const char *at, *end; /* of the line */
    vns_t now;            /* when a command without a time begins */
    struct err *err;
};

static int bad(struct parser *p, const char *fmt, ...) PRINTF(2, 3);
static int bad(struct parser *p, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((u8)*c < ' ' || *c == 127)
            *c = '?';
    return err_set(p->err, -EINVAL, "%s:%u: %s", p->name, p->line, text);
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        p->at++;
}

/* The next word; its length, 0 at the end of the line or at a comment. */
static int word(struct parser *p, const char **start)
{
    skip_blanks(p);
    *start = p->at;
    if (p->at < p->end && *p->at == '#')
        return 0;
    while (p->at < p->end && *p->at != ' ' && *p->at != '\t')
        p->at++;
    return (int)MIN(p->at - *start, 100);
}

static bool is(const char *w, int len, const char *name)
{
    return (size_t)len == strlen(name) && !memcmp(w, name, (size_t)len);
}

static bool find(const struct name *list, size_t n, const char *w, int len, u16 *code)
{
    for (size_t i = 0; i < n; i++)
        if (is(w, len, list[i].name)) {
            *code = list[i].code;
            return true;
        }
    return false;
}

/* A decimal number, exact to the nanosecond, with its unit. */
static bool duration(const char *w, int len, u64 *out)
{
    static const struct {
        const char *name;
        u64 ns;
    } units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};
    u64 whole = 0, fraction = 0, scale = 1;
    int i = 0;
    for (; i < len && isdigit((unsigned char)w[i]); i++) {
        if (whole > TIME_MAX / 10)
            return false;
        whole = 10 * whole + (u64)(w[i] - '0');
    }
    if (i == 0)
        return false;
    if (i < len && w[i] == '.') {
        int digits = ++i;
        for (; i < len && isdigit((unsigned char)w[i]) && i - digits < 9; i++, scale *= 10)
            fraction = 10 * fraction + (u64)(w[i] - '0');
        if (i == digits)
            return false;
    }
    for (size_t k = 0; k < ARRAY_SIZE(units); k++) {
        if (!is(w + i, len - i, units[k].name))
            continue;
        if (whole > TIME_MAX / units[k].ns || (fraction * units[k].ns) % scale)
            return false;
        *out = whole * units[k].ns + fraction * units[k].ns / scale;
        return true;
    }
    return false;
}

static bool integer(const char *w, int len, int least, int most, int *out)
{
    int v = 0, i = len > 1 && *w == '-';
    bool negative = i;
    if (i == len)
        return false;
    for (; i < len; i++) {
        if (!isdigit((unsigned char)w[i]) || v > 1000000)
            return false;
        v = 10 * v + (w[i] - '0');
    }
    *out = negative ? -v : v;
    return *out >= least && *out <= most;
}

/* ---- reports ---- */

static int report(struct parser *p, u32 unit, const struct input_change *changes, unsigned n)
{
    struct input_file *f = p->file;
    if (f->n == f->room) {
        size_t room = MAX(2 * f->room, (size_t)64);
        struct input_report *more = realloc(f->report, room * sizeof(*more));
        if (!more)
            return err_set(p->err, -ENOMEM, "no memory for %s", p->name);
        f->report = more;
        f->room = room;
    }
    struct input_report *r = &f->report[f->n++];
    input_report_make(r, unit, changes, n);
    r->at = p->now;
    p->now += STEP_NS;
    return 0;
}

static int press(struct parser *p, u32 unit, u16 code, bool down)
{
    struct input_change c = {EV_KEY, code, down};
    return report(p, unit, &c, 1);
}

/* [down|up] NAME */
static int do_button(struct parser *p, u32 unit, const struct name *list, size_t n,
                     const char *what)
{
    const char *w;
    int len = word(p, &w);
    bool up = is(w, len, "up"), down = is(w, len, "down");
    const char *mark = p->at;
    if (up || down) {
        /* `up` and `down` are keys too: alone they are. */
        const char *second;
        int len2 = word(p, &second);
        if (len2) {
            w = second;
            len = len2;
        } else {
            p->at = mark;
            up = down = false;
        }
    }
    u16 code;
    if (!len)
        return bad(p, "which %s?", what);
    if (!find(list, n, w, len, &code))
        return bad(p, "there is no %s '%.*s'", what, len, w);
    int r = 0;
    if (!up)
        r = press(p, unit, code, true);
    if (!r && !down)
        r = press(p, unit, code, false);
    return r;
}

static int do_key(struct parser *p)
{
    return do_button(p, INPUT_UNIT_KEYBOARD, keys, ARRAY_SIZE(keys), "key");
}

static int do_click(struct parser *p)
{
    return do_button(p, INPUT_UNIT_TABLET, buttons, ARRAY_SIZE(buttons), "button");
}

static int type_one(struct parser *p, char c)
{
    u16 code;
    bool shift;
    if (!keymap_char(c, &code, &shift))
        return bad(p, "no key of a US keyboard gives the byte 0x%02x", (u8)c);
    int r = shift ? press(p, INPUT_UNIT_KEYBOARD, KEY_LEFTSHIFT, true) : 0;
    if (!r)
        r = press(p, INPUT_UNIT_KEYBOARD, code, true);
    if (!r)
        r = press(p, INPUT_UNIT_KEYBOARD, code, false);
    return !r && shift ? press(p, INPUT_UNIT_KEYBOARD, KEY_LEFTSHIFT, false) : r;
}

static int do_text(struct parser *p)
{
    skip_blanks(p);
    if (p->at == p->end || *p->at != '"')
        return bad(p, "the text stands in \"quotes\"");
    for (p->at++; p->at < p->end && *p->at != '"'; p->at++) {
        char c = *p->at;
        if (c == '\\') {
            static const char from[] = "nt\\\"", to[] = "\n\t\\\"";
            const char *f = ++p->at < p->end && *p->at ? strchr(from, *p->at) : NULL;
            if (!f)
                return bad(p, "after \\ only n, t, \\ and \" have a meaning");
            c = to[f - from];
        }
        int r = type_one(p, c);
        if (r)
            return r;
    }
    if (p->at == p->end)
        return bad(p, "the text has no \" at its end");
    p->at++;
    return 0;
}

static int do_move(struct parser *p)
{
    struct input_change c[2] = {{EV_ABS, ABS_X, 0}, {EV_ABS, ABS_Y, 0}};
    for (unsigned i = 0; i < 2; i++) {
        const char *w;
        int len = word(p, &w), v;
        if (!integer(w, len, 0, (int)INPUT_AXIS_MAX, &v))
            return bad(p, "move takes two numbers from 0 to %d", (int)INPUT_AXIS_MAX);
        c[i].value = v;
    }
    return report(p, INPUT_UNIT_TABLET, c, 2);
}

static int wheel(struct parser *p, u16 code, const char *name)
{
    const char *w;
    int len = word(p, &w), v;
    if (!integer(w, len, -WHEEL_MAX, WHEEL_MAX, &v) || !v)
        return bad(p, "%s takes a number of steps from -%d to %d, not 0", name, WHEEL_MAX,
                   WHEEL_MAX);
    struct input_change c = {EV_REL, code, v};
    return report(p, INPUT_UNIT_TABLET, &c, 1);
}

static int do_wheel(struct parser *p)
{
    return wheel(p, REL_WHEEL, "wheel");
}

static int do_hwheel(struct parser *p)
{
    return wheel(p, REL_HWHEEL, "hwheel");
}

static const struct {
    const char *name;
    int (*run)(struct parser *p);
} commands[] = {
    {"key", do_key},     {"text", do_text},   {"move", do_move},
    {"click", do_click}, {"wheel", do_wheel}, {"hwheel", do_hwheel},
};

/* [TIME] COMMAND ... */
static int parse_line(struct parser *p)
{
    const char *w;
    int len = word(p, &w);
    if (!len)
        return 0;
    bool more = *w == '+';
    if (more || isdigit((unsigned char)*w)) {
        u64 ns;
        if (!duration(w + more, len - more, &ns))
            return bad(p, "'%.*s' is no time like 1.5s or +20ms", len, w);
        if (!more && ns < p->now)
            return bad(p, "time goes back: %.*s is before the end of what comes earlier, %llu ns",
                       len, w, (unsigned long long)p->now);
        p->now = more ? p->now + ns : ns;
        if (p->now > TIME_MAX)
            return bad(p, "that is too late");
        len = word(p, &w);
        if (!len)
            return bad(p, "a time, and nothing to do then");
    }
    size_t i = 0;
    while (i < ARRAY_SIZE(commands) && !is(w, len, commands[i].name))
        i++;
    if (i == ARRAY_SIZE(commands))
        return bad(p, "'%.*s' is none of key, text, move, click, wheel, hwheel", len, w);
    int r = commands[i].run(p);
    if (r)
        return r;
    len = word(p, &w);
    return len ? bad(p, "'%.*s' is too much", len, w) : 0;
}

/* ---- the feed ---- */

static struct input_file *self(struct feed *f)
{
    return (struct input_file *)f;
}

static unsigned feed_prepare(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until)
{
    return 0;
}

static void feed_serve(struct feed *f, const struct pollfd *fds, unsigned n)
{
}

static bool feed_peek(struct feed *f, struct machine *m, struct input *in)
{
    struct input_file *i = self(f);
    const struct input_report *r = &i->report[i->next];
    if (i->next == i->n || r->at > machine_now(m) ||
        machine_room(m, INPUT_EVENTS, r->unit) < r->len)
        return false;
    *in = (struct input){.kind = INPUT_EVENTS, .unit = r->unit, .len = r->len, .data = r->events};
    return true;
}

static void feed_taken(struct feed *f, const struct input *in)
{
    self(f)->next++;
}

static vns_t feed_due(const struct feed *f)
{
    const struct input_file *i = (const struct input_file *)f;
    return i->next == i->n ? NEVER : i->report[i->next].at;
}

static bool feed_live(const struct feed *f)
{
    return false;
}

static const struct feed_ops ops = {.prepare = feed_prepare,
                                    .serve = feed_serve,
                                    .peek = feed_peek,
                                    .taken = feed_taken,
                                    .due = feed_due,
                                    .live = feed_live};

/* ---- */

int input_file_parse(struct input_file **out, const char *name, const char *text, size_t len,
                     struct err *err)
{
    struct input_file *f = calloc(1, sizeof(*f));
    struct parser p = {.file = f, .name = name, .err = err};
    int r = f ? 0 : err_set(err, -ENOMEM, "no memory for %s", name);
    for (const char *at = text, *end = text + len; !r && at < end;) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        p.line++;
        p.at = at;
        p.end = nl ? nl : end;
        at = nl ? nl + 1 : end;
        if (p.end > p.at && p.end[-1] == '\r')
            p.end--;
        r = parse_line(&p);
    }
    if (r) {
        input_file_destroy(f);
        return r;
    }
    f->feed.ops = &ops;
    *out = f;
    return 0;
}

int input_file_load(struct input_file **out, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return err_errno(err, "cannot open the events %s", path);
    size_t len = 0;
    char *text = malloc(INPUT_FILE_MAX + 1);
    int r = 0;
    if (!text)
        r = err_set(err, -ENOMEM, "no memory for %s", path);
    else if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        r = err_set(err, -EINVAL, "the events %s are not in a regular file", path);
    while (!r && len <= INPUT_FILE_MAX) {
        ssize_t n = read(fd, text + len, INPUT_FILE_MAX + 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            r = err_errno(err, "cannot read the events %s", path);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (!r && len > INPUT_FILE_MAX)
        r = err_set(err, -EFBIG, "the events %s are more than %u MiB", path, INPUT_FILE_MAX >> 20);
    if (!r)
        r = input_file_parse(out, path, text, len, err);
    close(fd);
    free(text);
    return r;
}

const struct input_report *input_file_reports(const struct input_file *f, size_t *n)
{
    *n = f->n;
    return f->report;
}

struct feed *input_file_feed(struct input_file *f)
{
    return &f->feed;
}

void input_file_destroy(struct input_file *f)
{
    if (!f)
        return;
    free(f->report);
    free(f);
}
