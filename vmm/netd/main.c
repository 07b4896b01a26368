/*
 * reprise-net: see netd.h. Started by reprise (vmm/host/net_user.c) for `record --net user`, with a
 * socket at NETD_SOCKET; --check tells whether this host can.
 */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "host/clock.h"
#include "netd/netd.h"

#define BURST       256u       /* messages that are taken at once */
#define BACKLOG_MAX (4u << 20) /* bytes for a machine that does not take them; more is lost */
#define SOCKET_ROOM (1 << 20)  /* bytes under way, as far as the host lets us */

/* A message that waits for the machine. */
struct waiting {
    struct waiting *next;
    size_t len;
    u8 data[];
};

struct link {
    struct nat *nat;
    struct waiting *first, *last; /* oldest first */
    size_t bytes;
    struct netd_message in;
};

/* ---- to the machine ---- */

static bool gone(ssize_t n)
{
    return n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS;
}

/* The oldest first, as many as it takes. */
static void send_waiting(struct link *l)
{
    while (l->first) {
        struct waiting *w = l->first;
        ssize_t n = write(NETD_SOCKET, w->data, w->len);
        if (gone(n))
            _exit(0);
        if (n < 0)
            return;
        l->first = w->next;
        if (!l->first)
            l->last = NULL;
        l->bytes -= w->len;
        free(w);
    }
}

/* Never waits. A frame that finds no room is lost, as on a wire; nothing else is. */
static void say(struct link *l, enum netd_kind kind, const void *body, size_t len)
{
    struct netd_head head = {kind};
    struct iovec parts[] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, len}};
    if (len > NETD_FRAME_MAX)
        return;
    send_waiting(l);
    ssize_t n = l->first ? -1 : writev(NETD_SOCKET, parts, 2);
    if (n >= 0)
        return;
    if (!l->first && gone(n))
        _exit(0);
    if (kind == NETD_FRAME && l->bytes + len > BACKLOG_MAX)
        return;
    struct waiting *w = malloc(sizeof(*w) + sizeof(head) + len);
    if (!w)
        return;
    w->next = NULL;
    w->len = sizeof(head) + len;
    memcpy(w->data, &head, sizeof(head));
    memcpy(w->data + sizeof(head), body, len);
    if (l->last)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
    l->bytes += w->len;
}

static void on_frame(void *opaque, const void *frame, size_t len)
{
    say(opaque, NETD_FRAME, frame, len);
}

/* ---- from the machine ---- */

/* One look at the sockets, which does not wait. */
static void look(struct link *l)
{
    struct pollfd *fds;
    u64 until = NEVER;
    unsigned n = nat_prepare(l->nat, &fds, 0, &until);
    nat_serve(l->nat, poll(fds, n, 0) > 0 ? fds : NULL, n);
}

/* false: none has come. */
static bool take_message(struct link *l)
{
    ssize_t n = recv(NETD_SOCKET, &l->in, sizeof(l->in), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < (ssize_t)sizeof(l->in.head))
        _exit(0); /* the machine has gone */
    size_t len = (size_t)n - sizeof(l->in.head);
    if (l->in.head.kind == NETD_FRAME) {
        nat_input(l->nat, l->in.body, len);
    } else if (l->in.head.kind == NETD_SYNC) {
        look(l);
        say(l, NETD_SYNC, l->in.body, len);
    }
    return true;
}

static void serve(struct link *l)
{
    for (;;) {
        struct pollfd *fds;
        struct timespec wait;
        u64 until = NEVER, now;
        unsigned n = nat_prepare(l->nat, &fds, 1, &until);
        fds[0] = (struct pollfd){.fd = NETD_SOCKET,
                                 .events = (short)(POLLIN | (l->first ? POLLOUT : 0))};
        now = host_ns();
        until = until > now ? until - now : 0;
        wait = (struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        bool ready = ppoll(fds, n, until == NEVER ? NULL : &wait, NULL) > 0;
        bool more = ready && fds[0].revents & (POLLIN | POLLHUP | POLLERR);
        nat_serve(l->nat, ready ? fds : NULL, n);
        for (unsigned i = 0; more && i < BURST; i++)
            more = take_message(l);
        send_waiting(l);
    }
}

/* ---- start ---- */

static bool receive_start(struct netd_start *s)
{
    struct net_options *o = &s->options;
    ssize_t n = recv(NETD_SOCKET, s, sizeof(*s), 0);
    return n == sizeof(*s) && s->magic == NETD_MAGIC && o->forwards.n <= NET_FORWARDS &&
           memchr(o->hostname, 0, sizeof(o->hostname));
}

static int run(void)
{
    struct link *l = calloc(1, sizeof(*l));
    struct netd_start start;
    struct netd_hello hello = {
        .magic = NETD_MAGIC, .version = NETD_VERSION, .step = NETD_OTHER_VERSION};
    if (!l || !receive_start(&start)) {
        fprintf(stderr, "reprise-net: reprise starts this, for record --net user; --check tells "
                        "whether this host can\n");
        return 2;
    }
    /* The machine decides when this ends: with its own end at the latest, not with ^C. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    fcntl(NETD_SOCKET, F_SETFD, FD_CLOEXEC);
    if (start.version == NETD_VERSION) {
        resolv_open();
        l->nat = nat_create(&start, &hello, on_frame, l);
    }
    if (l->nat && !sandbox_enter(start.options.restricted == NET_ON)) {
        hello.step = NETD_NO_SANDBOX;
        hello.error = errno;
    }
    if (write(NETD_SOCKET, &hello, sizeof(hello)) < 0 || hello.step != NETD_READY)
        return 1;
    fcntl(NETD_SOCKET, F_SETFL, O_NONBLOCK);
    setsockopt(NETD_SOCKET, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_ROOM}, sizeof(int));
    serve(l);
    return 0;
}

static int check(void)
{
    printf("network: libslirp %s\n", nat_version());
    fflush(stdout);
    unsigned holes = sandbox_probe(false) + sandbox_probe(true);
    printf("sandbox: %s\n", holes ? "does not hold" : "holds");
    return holes ? 1 : 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case 'c': *(bool *)state->input = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"check", 'c', NULL, 0, "say which libslirp this is and what its sandbox refuses, and end",
         0},
        {0},
    };
    static const struct argp argp = {options,
                                     parse,
                                     NULL,
                                     "The network of `reprise record --net user`. Started by "
                                     "reprise; by hand only with --check.",
                                     NULL,
                                     NULL,
                                     NULL};
    bool only_check = false;
    if (argp_parse(&argp, argc, argv, 0, NULL, &only_check))
        return 2;
    return only_check ? check() : run();
}
