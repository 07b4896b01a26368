/* See live.h. */
#define _GNU_SOURCE /* ppoll */
#include "live/live.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/phase.h"
#include "host/clock.h"
#include "live/gpu.h"
#include "live/keys.h"
#include "live/pace.h"
#include "live/share.h"
#include "live/turns.h"
#include "host/terminal.h"
#include "machine/machine.h"

#define FDS_OWN 4 /* terminal, signals, a debugger's two */

/* While the machine waits for the renderer or a file server, the rest is looked at this often. */
#define REPLY_MS 20u

#define POLL_NS 1000000u /* a busy machine looks at stdin and signals this often */

/* A wait that took this much longer than asked for says that this program, or the host, was
 * stopped. No single wait is longer than this, so that a stop shows. */
#define STOPPED_NS 1000000000u

/* A guest that executes in less than this part of each window is idle. A tick of 250 Hz takes a
 * hundredth of it, a Linux at its prompt a thousandth. */
#define IDLE_WINDOW_NS 250000000u
#define IDLE_BUSY_PART 10

/* Ctrl-A x from a script waits this long at most for a guest that still reads what was typed
 * before. */
#define SCRIPT_QUIT_NS 1000000000u

struct live {
    struct input_source src;
    struct live_config config;
    int fd;    /* -1 once at its end */
    bool file; /* regular file or the like: has input, but is not live */
    bool raw;
    int signal_fd;
    sigset_t old_mask;
    u32 quit; /* enum quit_reason that waits; 0: none */
    bool quit_given;
    u64 next_poll;  /* coarse host time */
    u64 timeout_at; /* host time; NEVER: none */
    vns_t ends_at;  /* virtual time; NEVER: none */
    struct pace pace;
    struct keys keys;
    struct pollfd *fds; /* room for nfds; at least FDS_OWN */
    unsigned nfds;
    unsigned turn; /* the feed that is asked first */
    bool seeded;   /* the entropy device is */
    char *text;    /* stop_at */
    size_t text_len, text_at;
    size_t *text_fail; /* for each prefix of the text, its longest proper border */
    bool text_seen;
    bool printed, fed; /* since the last look at the idle limit */
    vns_t quiet_since; /* neither input, nor output, nor work */
    vns_t window_time; /* where the window of IDLE_WINDOW_NS began */
    pos_t window_position;
};

static struct live *self(struct input_source *src)
{
    return (struct live *)src;
}

static bool feed_live(const struct live *l)
{
    for (unsigned i = 0; i < l->config.nfeeds; i++)
        if (l->config.feeds[i]->ops->live(l->config.feeds[i]))
            return true;
    return false;
}

/* May input come at a time that the host decides? */
static bool is_live(const struct live *l)
{
    return (l->fd >= 0 && !l->file) || feed_live(l);
}

static bool is_paced(const struct live *l)
{
    return l->config.realtime && is_live(l);
}

static void want_quit(struct live *l, enum quit_reason why)
{
    if (!l->quit)
        l->quit = why;
}

static void read_typed(struct live *l)
{
    u8 buf[1024];
    size_t room = MIN(keys_room(&l->keys), sizeof(buf));
    if (!room && l->raw)
        room = sizeof(buf); /* a full queue must not keep Ctrl-A x from being seen */
    if (!room)
        return;
    ssize_t n = read(l->fd, buf, room);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        /* End of input. The terminal that hung up says so by SIGHUP as well. */
        l->fd = -1;
        return;
    }
    unsigned ask = keys_typed(&l->keys, buf, (size_t)n);
    if (ask & KEYS_QUIT)
        want_quit(l, QUIT_USER);
    if (ask & KEYS_HELP && l->config.help) {
        keys_help(l->config.help);
        fflush(l->config.help);
    }
}

static void read_signal(struct live *l)
{
    struct signalfd_siginfo info;
    if (read(l->signal_fd, &info, sizeof(info)) == sizeof(info))
        want_quit(l, QUIT_SIGNAL);
}

/* Room for a feed's descriptors from l->fds[at] on; returns how many there are. */
static unsigned prepare_feed(struct live *l, unsigned i, unsigned at, u64 *until)
{
    struct feed *f = l->config.feeds[i];
    u64 ignored = NEVER;
    for (;;) {
        unsigned room = l->nfds - at;
        unsigned n = f->ops->prepare(f, l->fds + at, room, until ? until : &ignored);
        if (n <= room)
            return n;
        struct pollfd *more = realloc(l->fds, (at + n) * sizeof(*more));
        if (!more)
            return f->ops->prepare(f, l->fds + at, 0, &ignored), 0; /* served next time */
        l->fds = more;
        l->nfds = at + n;
    }
}

/* Waits until host time `until` (0: does not wait) for typed input, a signal or a feed, and reads
 * it. */
static void look(struct live *l, u64 until)
{
    bool typed = l->fd >= 0 && (keys_room(&l->keys) || l->raw);
    int more[2];
    unsigned n = 2, debugger = l->config.fds ? l->config.fds(l->config.debugger, more) : 0;
    struct pollfd *fds = l->fds;
    fds[0] = (struct pollfd){.fd = typed ? l->fd : -1, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = l->signal_fd, .events = POLLIN};
    for (unsigned i = 0; i < debugger; i++)
        fds[n++] = (struct pollfd){.fd = more[i], .events = POLLIN};
    unsigned first[LIVE_FEEDS + 1];
    for (unsigned i = 0; i < l->config.nfeeds; i++) {
        first[i] = n;
        n += prepare_feed(l, i, n, until ? &until : NULL);
    }
    first[l->config.nfeeds] = n;
    fds = l->fds; /* may have moved */
    struct timespec wait = {0}, *timeout = &wait;
    if (until == NEVER) {
        timeout = NULL;
    } else if (until) {
        u64 now = host_ns();
        u64 ns = until > now ? until - now : 0;
        wait.tv_sec = (time_t)(ns / 1000000000u);
        wait.tv_nsec = (long)(ns % 1000000000u);
    }
    bool ready = ppoll(fds, n, timeout, NULL) > 0;
    for (unsigned i = 0; i < l->config.nfeeds; i++) {
        struct feed *f = l->config.feeds[i];
        f->ops->serve(f, fds + first[i], ready ? first[i + 1] - first[i] : 0);
    }
    if (!ready)
        return;
    if (fds[1].revents)
        read_signal(l);
    if (fds[0].revents)
        read_typed(l);
}

static vns_t time_after(const struct feed *f, vns_t (*when)(const struct feed *), vns_t now)
{
    vns_t t = when ? when(f) : NEVER;
    return t > now ? t : NEVER;
}

/* Virtual time at which the next of the feeds' inputs is due that know theirs; NEVER: none. One
 * that was due before `now` waits for the guest to make room. */
static vns_t feeds_due(const struct live *l, vns_t now)
{
    vns_t first = NEVER;
    for (unsigned i = 0; i < l->config.nfeeds; i++)
        first = MIN(first, time_after(l->config.feeds[i], l->config.feeds[i]->ops->due, now));
    return first;
}

/* ... and at which one wants to look at the machine, or it is to end. */
static vns_t feeds_stop(const struct live *l, vns_t now)
{
    vns_t first = MIN(feeds_due(l, now), l->ends_at > now ? l->ends_at : NEVER);
    for (unsigned i = 0; i < l->config.nfeeds; i++)
        first = MIN(first, time_after(l->config.feeds[i], l->config.feeds[i]->ops->looks, now));
    return first;
}

static u32 typed_room(const struct live *l, struct machine *m)
{
    return machine_room(m, l->config.hvc0 ? INPUT_PORT : INPUT_CONSOLE, 0);
}

static bool take_typed(struct live *l, struct machine *m, struct input *in)
{
    if (!l->keys.count || !keys_take(&l->keys, typed_room(l, m), in))
        return false;
    if (in->kind == INPUT_CONSOLE && l->config.hvc0)
        in->kind = INPUT_PORT;
    return true;
}

static bool feed_ready(struct live *l, struct machine *m)
{
    struct input in;
    for (unsigned i = 0; i < l->config.nfeeds; i++)
        if (l->config.feeds[i]->ops->peek(l->config.feeds[i], m, &in))
            return true;
    return false;
}

/* They take turns, so that a busy one does not keep the others waiting. */
static bool take_fed(struct live *l, struct machine *m, struct input *in)
{
    for (unsigned k = 0; k < l->config.nfeeds; k++) {
        unsigned i = (l->turn + k) % l->config.nfeeds;
        struct feed *f = l->config.feeds[i];
        if (!f->ops->peek(f, m, in))
            continue;
        f->ops->taken(f, in);
        l->turn = i + 1;
        l->fed = true;
        return true;
    }
    return false;
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct live *l = self(src);
    pos_t position = machine_position(m);
    pos_t next = l->config.max_position > position ? l->config.max_position : NEVER;
    vns_t now = machine_now(m), due = feeds_stop(l, now);
    if (due != NEVER)
        next = MIN(next, position + machine_positions(m, due - now));
    if (l->config.turns)
        next = MIN(next, turns_next(l->config.turns, m));
    return next;
}

/* While a reply is waited for: does the user want to end? */
static bool still_waits(struct live *l)
{
    look(l, 0);
    if (host_ns_coarse() >= l->timeout_at)
        want_quit(l, QUIT_TIMEOUT);
    return !l->quit;
}

/* The machine stands until the renderer has done what the guest is to be told of, */
static bool take_gpu(struct live *l, struct machine *m, struct input *in)
{
    u64 number;
    if (!l->config.gpu || !machine_gpu_waiting(m, &number))
        return false;
    while (!gpu_host_reply(l->config.gpu, number, REPLY_MS, in))
        if (!still_waits(l))
            return false;
    return true;
}

/* ... and until a file server has what it is to read. */
static bool take_share(struct live *l, struct machine *m, struct input *in)
{
    u64 number;
    unsigned unit;
    if (!l->config.shares || !machine_share_waiting(m, &unit, &number))
        return false;
    while (!share_host_reply(l->config.shares[unit], number, REPLY_MS, in))
        if (!still_waits(l))
            return false;
    in->unit = unit;
    return true;
}

static void poll_host(struct live *l, struct machine *m)
{
    u64 now = host_ns_coarse();
    if (now < l->next_poll)
        return;
    l->next_poll = now + POLL_NS;
    look(l, 0);
    if (now >= l->timeout_at)
        want_quit(l, QUIT_TIMEOUT);
    if (l->config.wants && l->config.wants(l->config.debugger))
        machine_stop(m);
}

static int give_quit(struct live *l, struct input *in)
{
    if (l->quit_given)
        return 0;
    l->quit_given = true;
    *in = (struct input){.kind = INPUT_QUIT, .arg = l->quit};
    return 1;
}

int live_quits(struct live *l, struct machine *m, struct input *in)
{
    poll_host(l, m);
    return l->quit ? give_quit(l, in) : 0;
}

/* The entropy first: the guest's kernel may take of it as soon as it is told. Of the two a machine
 * without a generation ID has the one. */
static bool take_seed(struct live *l, struct machine *m, struct input *in)
{
    if (!l->config.reseed)
        return false;
    bool told = l->seeded;
    l->config.reseed = !told && machine_room(m, INPUT_GENERATION, 0);
    l->seeded = true;
    *in = (struct input){.kind = told ? INPUT_GENERATION : INPUT_RESEED,
                         .data = told ? l->config.generation : (const u8 *)&l->config.seed,
                         .len = told ? INPUT_GENERATION_SIZE : INPUT_SEED_SIZE};
    return true;
}

static bool take_chaos(struct live *l, struct machine *m, struct input *in)
{
    if (!l->config.unruly || !machine_room(m, INPUT_CHAOS, 0))
        return false;
    l->config.unruly = false;
    *in = (struct input){.kind = INPUT_CHAOS,
                         .arg = l->config.part,
                         .data = (const u8 *)&l->config.chaos,
                         .len = INPUT_SEED_SIZE};
    return true;
}

static int take_any(struct live *l, struct machine *m, struct input *in)
{
    if (take_seed(l, m, in) || take_chaos(l, m, in))
        return 1;
    if (l->config.turns && turns_take(l->config.turns, m, in))
        return 1;
    if (!l->quit && (take_gpu(l, m, in) || take_share(l, m, in)))
        return 1;
    poll_host(l, m);
    if (machine_position(m) >= l->config.max_position)
        want_quit(l, QUIT_INSNS);
    if (machine_now(m) >= l->ends_at)
        want_quit(l, QUIT_TIMEOUT);
    if (l->quit)
        return give_quit(l, in);
    if (machine_disk_failing(m, in))
        return 1;
    if (take_typed(l, m, in))
        return 1;
    return take_fed(l, m, in);
}

/* Virtual time that the guest has spent waiting for input that cannot come: without output or work
 * (nor anything left to type, but for a Ctrl-A x). */
static vns_t quiet_for(struct live *l, struct machine *m)
{
    vns_t now = machine_now(m);
    pos_t position = machine_position(m);
    bool over = l->fd < 0 || (l->file && l->keys.count);
    bool worked = false;
    over = (over && feeds_due(l, now) == NEVER) || keys_quit_next(&l->keys);
    if (now - l->window_time >= IDLE_WINDOW_NS) {
        worked = position - l->window_position > (now - l->window_time) / IDLE_BUSY_PART;
        l->window_time = now;
        l->window_position = position;
    }
    if (!over || worked || l->printed || l->fed) {
        l->quiet_since = now;
        l->printed = l->fed = false;
    }
    return now - l->quiet_since;
}

static void check_quiet(struct live *l, struct machine *m, vns_t deadline)
{
    vns_t quiet = quiet_for(l, m);
    if (keys_quit_next(&l->keys) && (quiet >= SCRIPT_QUIT_NS || deadline == NEVER))
        want_quit(l, QUIT_USER);
    else if (l->config.idle_limit && quiet >= l->config.idle_limit)
        want_quit(l, QUIT_IDLE);
}

static bool something(struct live *l, struct machine *m)
{
    struct input in;
    return l->quit || keys_ready(&l->keys, typed_room(l, m)) || feed_ready(l, m) ||
           machine_disk_failing(m, &in);
}

/* look(); what it took longer than asked because everything stood still is not the guest's time. */
static u64 look_paced(struct live *l, u64 until)
{
    u64 before = host_ns(), asked = MIN(until, before + STOPPED_NS);
    look(l, asked);
    u64 host = host_ns(), late = host - MIN(host, MAX(asked, before));
    if (late > STOPPED_NS)
        pace_stopped(&l->pace, late);
    return host;
}

/*
 * Real time: waits for the deadline, for input. Without pacing time jumps, and the
 * only wait is that of a machine that has nothing left but input to wake it.
 */
static int wait_for(struct live *l, struct machine *m, vns_t deadline, vns_t *until)
{
    vns_t now = machine_now(m);
    check_quiet(l, m, deadline);
    if (something(l, m)) {
        *until = l->quit_given ? deadline : now;
        return l->quit_given && deadline == NEVER;
    }
    bool paced = is_paced(l);
    vns_t due = feeds_stop(l, now), end = MIN(deadline, due);
    if (!paced && end != NEVER) {
        /* Time is about to jump: what came before is first. */
        for (unsigned i = 0; i < l->config.nfeeds; i++)
            if (l->config.feeds[i]->ops->settle)
                l->config.feeds[i]->ops->settle(l->config.feeds[i]);
        if ((l->fd >= 0 && !l->keys.count) || l->config.nfeeds)
            look(l, 0);
        *until = something(l, m) ? now : end;
        return 0;
    }
    u64 began = host_ns();
    pace_rebase(&l->pace, began, now);
    for (;;) {
        u64 target = pace_host_time(&l->pace, end);
        u64 look_again = keys_quit_next(&l->keys) ? began + SCRIPT_QUIT_NS : NEVER;
        u64 stop = MIN(MIN(target, look_again), l->timeout_at);
        if (!is_live(l))
            stop = 1; /* a file answers at once; with nothing left there is nothing to wait for */
        u64 host = look_paced(l, stop);
        target = pace_host_time(&l->pace, end);
        if (host >= l->timeout_at)
            want_quit(l, QUIT_TIMEOUT);
        check_quiet(l, m, deadline);
        bool stop_here = l->config.wants && l->config.wants(l->config.debugger);
        if (stop_here)
            machine_stop(m);
        bool alarm = stop_here || host >= look_again;
        if (something(l, m) || (alarm && host < target)) {
            /* When it came, but never at the deadline: what is due there happens first. */
            vns_t last = end == NEVER ? (vns_t)INT64_MAX : end == deadline ? deadline - 1 : end;
            *until = pace_virtual_time(&l->pace, host, now, last);
            return 0;
        }
        if (host >= target || (end != NEVER && !is_live(l))) {
            *until = end; /* reached; or the input closed and there is no pacing any more */
            return 0;
        }
        /* Nothing left to come, or it would have to pass what the guest has no room for. */
        if (end == NEVER && !feed_live(l) && (l->fd < 0 || l->keys.count)) {
            *until = now;
            return 1;
        }
    }
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    enum phase before = phase_enter(PHASE_INPUT);
    int r = take_any(self(src), m, in);
    phase_leave(before);
    return r;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    enum phase before = phase_enter(PHASE_INPUT);
    int r = wait_for(self(src), m, deadline, until);
    phase_leave(before);
    return r;
}

static bool waits(struct input_source *src, vns_t deadline)
{
    struct live *l = self(src);
    return deadline == NEVER || is_paced(l);
}

static const struct input_source_ops ops = {next_position, take, idle, NULL, waits};

static int open_signals(struct live *l, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &l->old_mask);
    l->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return l->signal_fd < 0 ? err_errno(err, "cannot listen for signals") : 0;
}

/* Text search that survives any cut of the output into pieces (Knuth, Morris, Pratt). */
static int prepare_text(struct live *l, struct err *err)
{
    l->text = strdup(l->config.stop_at);
    l->text_len = strlen(l->config.stop_at);
    l->text_fail = calloc(l->text_len + 1, sizeof(*l->text_fail));
    if (!l->text || !l->text_fail)
        return err_set(err, -ENOMEM, "no memory");
    for (size_t i = 1, k = 0; i < l->text_len; i++) {
        while (k && l->text[i] != l->text[k])
            k = l->text_fail[k - 1];
        if (l->text[i] == l->text[k])
            k++;
        l->text_fail[i] = k;
    }
    return 0;
}

int live_create(struct live **out, const struct live_config *config, struct err *err)
{
    struct live *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(err, -ENOMEM, "no memory");
    l->src.ops = &ops;
    l->config = *config;
    l->fds = calloc(FDS_OWN, sizeof(*l->fds));
    l->nfds = FDS_OWN;
    if (!l->fds) {
        free(l);
        return err_set(err, -ENOMEM, "no memory");
    }
    l->fd = config->fd;
    l->signal_fd = -1;
    l->pace.host = host_ns();
    l->ends_at = config->max_time ? config->max_time : NEVER;
    l->timeout_at = config->timeout > 0 ? l->pace.host + (u64)(config->timeout * 1e9) : NEVER;
    int code = 0;
    if (config->signals)
        code = open_signals(l, err);
    if (!code && config->stop_at && *config->stop_at)
        code = prepare_text(l, err);
    if (code) {
        live_destroy(l);
        return code;
    }
    struct stat st;
    if (l->fd >= 0 && fstat(l->fd, &st))
        l->fd = -1;
    if (l->fd >= 0 && isatty(l->fd)) {
        l->raw = terminal_raw(l->fd);
        if (!l->raw) {
            l->fd = -1; /* in the background: reading would stop us */
            if (config->help)
                fputs("reprise: in the background: nothing typed here reaches the guest\n",
                      config->help);
        }
    } else if (l->fd >= 0) {
        l->file = !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode);
    }
    l->keys.script = !l->raw;
    *out = l;
    return 0;
}

struct input_source *live_source(struct live *l)
{
    return &l->src;
}

void live_begin(struct live *l, struct machine *m)
{
    l->pace = (struct pace){host_ns(), machine_now(m)};
    l->ends_at = l->config.max_time ? machine_now(m) + l->config.max_time : NEVER;
    l->quiet_since = l->window_time = machine_now(m);
    l->window_position = machine_position(m);
}

void live_output(struct live *l, struct machine *m, const void *data, size_t len)
{
    const char *p = data;
    l->printed = true;
    if (!l->text || l->text_seen)
        return;
    for (size_t i = 0; i < len; i++) {
        while (l->text_at && p[i] != l->text[l->text_at])
            l->text_at = l->text_fail[l->text_at - 1];
        if (p[i] == l->text[l->text_at])
            l->text_at++;
        if (l->text_at == l->text_len) {
            l->text_seen = true;
            want_quit(l, QUIT_TEXT);
            machine_kick(m);
            return;
        }
    }
}

bool live_stop_text_seen(const struct live *l)
{
    return l->text_seen;
}

int live_signal_fd(const struct live *l)
{
    return l->signal_fd;
}

bool live_raw(const struct live *l)
{
    return l->raw;
}

void live_destroy(struct live *l)
{
    if (!l)
        return;
    if (l->raw)
        terminal_restore();
    if (l->signal_fd >= 0)
        close(l->signal_fd);
    if (l->config.signals)
        sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    free(l->fds);
    free(l->text);
    free(l->text_fail);
    free(l);
}
