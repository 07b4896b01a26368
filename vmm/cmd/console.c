/* See console.h. */
#include "cmd/console.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/cmd.h"
#include "host/clock.h"

#define DRAW_NS 250000000u

static const char panic_text[] = "Kernel panic - not syncing";

static struct console *self(struct input_source *src)
{
    return (struct console *)src;
}

static void erase(struct console *c)
{
    if (c->drawn)
        fputs("\r\033[K", stderr);
    c->drawn = false;
}

static void draw(struct console *c, struct machine *m, u64 now)
{
    char count[32], time[32], size[32];
    pos_t position = machine_position(m);
    double seconds = (double)(now - c->last_time) / 1e9;
    double speed = seconds > 0 ? (double)(position - c->last_position) / seconds / 1e6 : 0;
    c->last_position = position;
    c->last_time = now;
    char line[256];
    size_t n = (size_t)snprintf(line, sizeof(line), "[%s %s, virtual time %s, %.0f M/s",
                                text_count(position, count), machine_positions_name(m),
                                text_seconds(machine_now(m), time), speed);
    if (c->log_bytes)
        n += (size_t)snprintf(line + n, sizeof(line) - n, ", log %s",
                              text_bytes(c->log_bytes(c->opaque), size));
    if (c->total)
        n += (size_t)snprintf(line + n, sizeof(line) - n, ", %.0f%%",
                              100.0 * (double)MIN(position, c->total) / (double)c->total);
    snprintf(line + n, sizeof(line) - n, "]");
    /* A line that wraps could not be erased. */
    struct winsize size_of;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size_of) && size_of.ws_col &&
        size_of.ws_col <= sizeof(line))
        line[size_of.ws_col - 1] = 0;
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    c->drawn = true;
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct console *c = self(src);
    return c->inner->ops->next_position(c->inner, m);
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct console *c = self(src);
    if (c->progress) {
        u64 now = host_ns_coarse();
        if (now >= c->next) {
            c->next = now + DRAW_NS;
            if (c->line_start)
                draw(c, m, now);
        }
    }
    int taken = c->inner->ops->take(c->inner, m, in, err);
    /* Who types at the guest's console reads it: the line would come between the guest's. */
    if (taken > 0 && c->answers && (in->kind == INPUT_CONSOLE || in->kind == INPUT_PORT))
        c->progress = false;
    return taken;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct console *c = self(src);
    return c->inner->ops->idle(c->inner, m, deadline, until, err);
}

static int between(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct console *c = self(src);
    return c->inner->ops->between ? c->inner->ops->between(c->inner, m, in, err) : 0;
}

static const struct input_source_ops ops = {next_position, take, idle, between, NULL};

void console_init(struct console *c, struct input_source *inner, int out, bool answers)
{
    *c = (struct console){
        .src = {&ops}, .inner = inner, .out = out, .stop_fd = -1, .line_start = true};
    struct stat st;
    if (out >= 0 && !fstat(out, &st) && S_ISREG(st.st_mode))
        c->room.keep = ROOM_LEAST;
    c->progress = isatty(STDERR_FILENO);
    c->answers = answers;
    c->mute = !answers && out >= 0 && isatty(out);
    c->start = c->last_time = host_ns_coarse();
    c->next = c->start + DRAW_NS;
}

static void watch_panic(struct console *c, const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (c->panic_open) {
            if (p[i] == '\r' || p[i] == '\n' || c->panic_len + 1 >= sizeof(c->panic_line))
                c->panic_open = false;
            else
                c->panic_line[c->panic_len++] = (char)(p[i] >= ' ' && p[i] < 127 ? p[i] : '?');
        }
        if (c->panicked)
            continue;
        /* No prefix of the text is also a suffix of one, but for its first letter. */
        c->panic_at = p[i] == panic_text[c->panic_at] ? c->panic_at + 1 : p[i] == panic_text[0];
        if (c->panic_at == sizeof(panic_text) - 1) {
            c->panicked = c->panic_open = true;
            c->panic_len = sizeof(panic_text) - 1;
            memcpy(c->panic_line, panic_text, sizeof(panic_text) - 1);
        }
    }
}

#define READER_GRACE_MS 1000

static bool put(struct console *c, const char *p, size_t len)
{
    while (len && c->stop_fd >= 0) {
        struct pollfd fds[2] = {{.fd = c->out, .events = POLLOUT},
                                {.fd = c->stop_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return false;
        if (fds[0].revents) {
            size_t n = MIN(len, (size_t)PIPE_BUF); /* for which there is room */
            if (!file_write_on(c->out, p, n))
                return false;
            p += n;
            len -= n;
        } else if (fds[1].revents && poll(fds, 1, READER_GRACE_MS) == 0) {
            /* The recording is to end, and the console's reader is not just slow. */
            errno = ETIMEDOUT;
            return false;
        }
    }
    return !len || file_write_on(c->out, p, len);
}

/* Leaves out what a terminal answers: CSI ... n (status, cursor position), CSI ... c, ESC Z. */
static bool put_muted(struct console *c, const char *p, size_t len)
{
    bool good = true;
    size_t start = 0; /* what was not held back begins here */
    for (size_t i = 0; i < len && good; i++) {
        if (!c->query_len) {
            if (p[i] != '\033')
                continue;
            good = put(c, p + start, i - start);
            c->query[c->query_len++] = p[i];
            start = i + 1;
            continue;
        }
        c->query[c->query_len++] = p[i];
        start = i + 1;
        bool csi = c->query[1] == '[';
        if (csi && c->query_len < sizeof(c->query) &&
            (c->query_len == 2 || (p[i] >= 0x20 && p[i] < 0x40)))
            continue;
        bool asks = csi ? p[i] == 'n' || p[i] == 'c' : p[i] == 'Z';
        good = asks || put(c, c->query, c->query_len);
        c->query_len = 0;
    }
    return good && put(c, p + start, len - start);
}

void console_output(struct console *c, const void *data, size_t len)
{
    const char *p = data;
    if (!len)
        return;
    if (!c->panicked || c->panic_open)
        watch_panic(c, p, len);
    erase(c);
    c->line_start = p[len - 1] == '\n' || p[len - 1] == '\r';
    c->written += len;
    if (c->out >= 0 && room_ask(&c->room, c->out, c->written)) {
        c->error = ENOSPC;
        c->out = -1;
    }
    if (c->out >= 0 && !(c->mute ? put_muted(c, p, len) : put(c, p, len))) {
        c->error = errno == EPIPE ? 0 : errno;
        c->out = -1;
    }
}

bool console_done(struct console *c)
{
    erase(c);
    fflush(stderr);
    char text[96];
    if (c->error)
        fprintf(stderr, "reprise: cannot write the guest's console to standard output: %s\n",
                c->error == ETIMEDOUT ? "its reader does not read"
                : c->room.answer      ? room_text(&c->room, text, sizeof(text))
                                      : strerror(c->error));
    return !c->error;
}
