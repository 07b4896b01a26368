/* `reprise shutdown`: the guest's own end, asked for by its agent. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cmd/agent_call.h"
#include "cmd/agent_frames.h"
#include "cmd/cmd.h"

enum { O_NOW = AGENT_TIMEOUT_KEY + 1 };

static const struct argp_option options[] = {
    {"reboot", 'r', NULL, 0, "It starts anew", 0},
    {"now", O_NOW, NULL, 0, "Without ending what runs: file systems are written, and that is all",
     0},
    AGENT_TIMEOUT_ROW,
    {0},
};

static const char doc[] =
    "Powers off a guest that is being recorded with `record --agent` and has an agent "
    "(docs/agent.md): "
    "by systemd where it has that, else at once. WHERE is the recording's DIR or the agent's "
    "socket; "
    "without it the only one that is there. Comes back when the guest has begun with it." EXIT_HELP;

struct shutdown_args {
    struct agent_call call;
    bool again, now;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct shutdown_args *a = state->input;
    switch (key) {
    case 'r': a->again = true; break;
    case O_NOW: a->now = true; break;
    case AGENT_TIMEOUT_KEY: agent_option_timeout(state, arg, &a->call); break;
    case ARGP_KEY_ARG:
        if (state->arg_num)
            argp_error(state, "'%s': one WHERE is enough", arg);
        a->call.where = arg;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct answer {
    bool going;
    struct err *err;
};

static void on_output(void *opaque, int fd, const void *data, size_t len)
{
    (void)fd;
    (void)data;
    (void)len;
    err_set(((struct answer *)opaque)->err, -EPROTO, "the agent broke the protocol");
}

static void on_frame(void *opaque, enum agent_type type, const void *data, size_t len)
{
    struct answer *a = opaque;
    if (type == AGENT_GOING)
        a->going = true;
    else if (type == AGENT_FAILED)
        err_set(a->err, -EIO, "%.*s", (int)(len - sizeof(struct agent_failed)),
                (const char *)data + sizeof(struct agent_failed));
    else
        err_set(a->err, -EPROTO, "the agent broke the protocol");
}

/* A machine that ends at once does not answer. */
static int await(int fd, struct err *err)
{
    struct answer a = {.err = err};
    struct agent_frames frames = {.output = on_output, .frame = on_frame, .opaque = &a};
    while (!a.going && !err->code && !frames.broken) {
        u8 bytes[4096];
        ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return 0;
        if (n < 0)
            poll(&p, 1, -1);
        else
            agent_frames_take(&frames, bytes, (size_t)n);
    }
    return frames.broken ? err_set(err, -EPROTO, "the agent broke the protocol") : err->code;
}

int cmd_shutdown(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "[WHERE]", doc, NULL, NULL, NULL};
    struct shutdown_args a = {0};
    struct err err = {0};
    option_parse(&argp, argc, argv, &a);
    u32 how = a.again ? (a.now ? AGENT_REBOOT_NOW : AGENT_REBOOT)
                      : (a.now ? AGENT_POWER_OFF_NOW : AGENT_POWER_OFF);
    int fd = agent_call(&a.call, &err);
    if (fd < 0)
        return cmd_fail(&err);
    int code = agent_send(fd, AGENT_POWER, &how, sizeof(how), &err);
    if (!code)
        code = await(fd, &err);
    close(fd);
    return code ? cmd_fail(&err) : EX_FINE;
}
