/* `reprise cp`: files and directories into a guest that is being recorded, and out of it, by its
 * agent. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/agent_call.h"
#include "cmd/agent_frames.h"
#include "cmd/cmd.h"
#include "guest-agent/agent/copy.h"

static const struct argp_option options[] = {
    {"recursive", 'r', NULL, 0, "Directories, too, with all beneath them", 0},
    {"verbose", 'v', NULL, 0, "Say how much was copied", 0},
    AGENT_TIMEOUT_ROW,
    {0},
};

static const char doc[] =
    "Copies files into a guest that is being recorded with `record --agent` and has an agent "
    "(docs/agent.md), or out of it. The guest's side is WHERE:PATH, where WHERE is the recording's "
    "DIR or "
    "the agent's socket, or :PATH, of the only one that is there; a name here that has a colon is "
    "written "
    "./NAME. As with cp(1) a TARGET that is a directory gets the sources under their names. A file "
    "comes "
    "under its name when it is whole, with its permissions and time." EXIT_HELP;

struct cp_args {
    struct agent_call call;
    bool recursive, verbose;
    char **names;
    int n;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct cp_args *a = state->input;
    switch (key) {
    case 'r': a->recursive = true; break;
    case 'v': a->verbose = true; break;
    case AGENT_TIMEOUT_KEY: agent_option_timeout(state, arg, &a->call); break;
    case ARGP_KEY_ARGS:
        a->names = state->argv + state->next;
        a->n = state->argc - state->next;
        break;
    case ARGP_KEY_END:
        if (a->n < 2)
            argp_error(state, "a SOURCE and a TARGET are needed, one of them WHERE:PATH");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The path in the guest of WHERE:PATH, and WHERE, malloc'ed; NULL: it is a name of this host. */
static const char *in_guest(const char *name, char **where)
{
    const char *colon = strchr(name, ':');
    *where = NULL;
    if (!colon || (name[0] == '.' && name[1] == '/' && access(name, F_OK) == 0))
        return NULL;
    if (colon > name)
        *where = strndup(name, (size_t)(colon - name));
    return colon + 1;
}

/* ---- a session ---- */

struct copying {
    int fd;
    struct agent_frames frames;
    struct copy_sink sink;
    bool sinks; /* out of the guest */
    u32 under_way, taken;
    bool over;
    struct agent_copied done;
    struct err *err;
};

static int broke(struct copying *c)
{
    return err_set(c->err, -EPROTO, "the agent broke the protocol");
}

static void on_output(void *opaque, int fd, const void *data, size_t len)
{
    (void)fd;
    (void)data;
    (void)len;
    broke(opaque);
}

static void take_entry(struct copying *c, enum agent_type type, const void *data, size_t len)
{
    if (!copy_take(&c->sink, type, data, len)) {
        err_set(c->err, -EIO, "%s", c->sink.why);
        return;
    }
    c->over = c->sink.over;
    c->done = c->sink.done;
    c->taken += (u32)len;
    if (c->taken < AGENT_WINDOW / 4 || c->over)
        return;
    if (!agent_send(c->fd, AGENT_TAKEN, &c->taken, sizeof(c->taken), c->err))
        c->taken = 0;
}

static void on_frame(void *opaque, enum agent_type type, const void *data, size_t len)
{
    struct copying *c = opaque;
    u32 n;
    if (c->err->code || c->over) {
        return;
    } else if (type == AGENT_FAILED) {
        err_set(c->err, -EIO, "in the guest: %.*s", (int)(len - sizeof(struct agent_failed)),
                (const char *)data + sizeof(struct agent_failed));
    } else if (c->sinks) {
        take_entry(c, type, data, len);
    } else if (type == AGENT_ROOM) {
        memcpy(&n, data, sizeof(n));
        if (n > c->under_way)
            broke(c);
        else
            c->under_way -= n;
    } else if (type == AGENT_COPIED) {
        memcpy(&c->done, data, sizeof(c->done));
        c->over = true;
    } else {
        broke(c);
    }
}

/* What the agent says; `wait`: something of it. */
static int hear(struct copying *c, bool wait)
{
    u8 bytes[64 << 10];
    while (!c->err->code) {
        ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return err_set(c->err, -ECONNRESET,
                           "the recording, or the agent's session, has ended before the copy had");
        if (n < 0 && !wait)
            return 0;
        if (n < 0) {
            poll(&p, 1, -1);
            continue;
        }
        agent_frames_take(&c->frames, bytes, (size_t)n);
        if (c->frames.broken && !c->err->code)
            return broke(c);
        wait = false;
    }
    return c->err->code;
}

static bool send_one(void *opaque, uint32_t type, const void *data, size_t len)
{
    struct copying *c = opaque;
    if (hear(c, false))
        return false;
    while (c->under_way + len > AGENT_WINDOW)
        if (hear(c, true))
            return false;
    c->under_way += (u32)len;
    return !agent_send(c->fd, type, data, len, c->err);
}

static int say_copy(struct copying *c, const struct cp_args *a, u32 type, const char *path,
                    const char *source)
{
    char bytes[AGENT_DATA_MAX];
    const struct agent_copy head = {.flags = a->recursive ? AGENT_RECURSE : 0};
    size_t n = strlen(path) + 1, m = strlen(source) + 1;
    if (sizeof(head) + n + m > sizeof(bytes))
        return err_set(c->err, -ENAMETOOLONG, "a name is longer than %zu bytes", sizeof(bytes));
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + sizeof(head), path, n);
    memcpy(bytes + sizeof(head) + n, source, m);
    return agent_send(c->fd, type, bytes, sizeof(head) + n + m, c->err);
}

static int put(struct copying *c, const struct cp_args *a, const char *from, const char *to)
{
    struct copy_source source = {.send = send_one, .opaque = c};
    int code = say_copy(c, a, AGENT_PUT, to, from);
    if (!code && !copy_send(&source, from, a->recursive ? AGENT_RECURSE : 0) && !c->err->code)
        code = err_set(c->err, -EIO, "%s", source.why);
    while (!code && !c->err->code && !c->over)
        code = hear(c, true);
    c->done.others = source.done.others;
    return c->err->code;
}

static int get(struct copying *c, const struct cp_args *a, const char *from, const char *to)
{
    c->sinks = true;
    int code = 0;
    if (!copy_open(&c->sink, to, from))
        code = err_set(c->err, -EIO, "%s", c->sink.why);
    if (!code)
        code = say_copy(c, a, AGENT_GET, from, "");
    while (!code && !c->over)
        code = hear(c, true);
    copy_close(&c->sink);
    return c->err->code;
}

/* One source; in a session of its own. */
static int copy_one(const struct cp_args *a, const char *from, const char *to, bool into,
                    struct err *err)
{
    struct copying c = {.frames = {.output = on_output, .frame = on_frame}, .err = err};
    c.frames.opaque = &c;
    struct stat st;
    if (into && stat(from, &st))
        return err_errno(err, "%s", from);
    c.fd = agent_call(&a->call, err);
    if (c.fd < 0)
        return c.fd;
    int code = into ? put(&c, a, from, to) : get(&c, a, from, to);
    close(c.fd);
    char size[32];
    if (!code && c.done.others)
        fprintf(stderr, "reprise: %s: %u FIFOs, sockets or devices in it were left out\n", from,
                c.done.others);
    if (!code && a->verbose)
        fprintf(stderr, "reprise: %s: %u files and directories, %s\n", from, c.done.entries,
                text_bytes(c.done.bytes, size));
    return code;
}

int cmd_cp(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "SOURCE... TARGET", doc, NULL, NULL, NULL};
    struct cp_args a = {0};
    struct err err = {0};
    option_parse(&argp, argc, argv, &a);
    signal(SIGPIPE, SIG_IGN);
    const char *target = a.names[a.n - 1];
    char *there = NULL, *other = NULL;
    const char *to = in_guest(target, &there);
    int code = 0;
    /* Several go into a directory. */
    char place[PATH_MAX];
    if ((size_t)snprintf(place, sizeof(place), "%s%s", to ? to : target, a.n > 2 ? "/" : "") >=
        sizeof(place))
        code = err_set(&err, -ENAMETOOLONG, "%s: the name is too long", target);
    for (int i = 0; i < a.n - 1 && !code; i++) {
        const char *from = in_guest(a.names[i], &other);
        if (!from == !to)
            code =
                err_set(&err, -EINVAL,
                        "%s and %s: one of them is to be in the guest, WHERE:PATH, and the other "
                        "one here",
                        a.names[i], target);
        a.call.where = to ? there : other;
        if (!code)
            code = copy_one(&a, from ? from : a.names[i], place, to != NULL, &err);
        free(other);
        other = NULL;
    }
    free(there);
    return code ? cmd_fail(&err) : EX_FINE;
}
