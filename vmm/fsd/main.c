/*
 * reprise-fs: see fsd.h. Started by reprise (vmm/host/share.c) for `record --share`, with a socket,
 * memory and a directory (host/share_protocol.h); --check tells whether this host can.
 */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fsd/fsd.h"

struct server {
    struct fsd fsd;
    u8 *memory;
    struct fsd_message in;
};

static void serve(struct server *s)
{
    for (;;) {
        ssize_t n = recv(FSD_SOCKET, &s->in, sizeof(s->in), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)sizeof(s->in.head))
            return; /* the machine has gone */
        const struct fsd_head *h = &s->in.head;
        if (h->kind == FSD_RESET) {
            fsd_reset(&s->fsd);
            continue;
        }
        if (h->kind == FSD_HIDE && (size_t)n == sizeof(*h) + sizeof(s->fsd.hidden)) {
            memcpy(&s->fsd.hidden, s->in.body, sizeof(s->fsd.hidden));
            continue;
        }
        bool replies = h->slot < FSD_SLOTS;
        u8 *out = s->memory + (replies ? (size_t)h->slot * FSD_SLOT_SIZE : 0);
        struct fsd_reply r = {.slot = h->slot};
        r.size = fsd_serve(&s->fsd, s->in.body, (u32)n - (u32)sizeof(*h), h->total, out,
                           replies ? MIN(h->room, FSD_SLOT_SIZE) : 0);
        if (replies && write(FSD_SOCKET, &r, sizeof(r)) != sizeof(r))
            return;
    }
}

static bool prepare(struct server *s, u32 epoch, struct fsd_hello *hello)
{
    enum fsd_step step = FSD_NO_MEMORY;
    void *p = mmap(NULL, FSD_MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, FSD_MEMORY, 0);
    bool good = p != MAP_FAILED;
    if (good) {
        s->memory = p;
        close(FSD_MEMORY);
        good = fsd_open(&s->fsd, FSD_DIRECTORY, epoch, &step);
    }
    if (good) {
        step = FSD_NO_SANDBOX;
        good = sandbox_enter(FSD_DIRECTORY);
    }
    hello->step = good ? FSD_READY : step;
    hello->error = good ? 0 : errno;
    return good;
}

static int run(void)
{
    struct server *s = calloc(1, sizeof(*s));
    struct fsd_start start;
    struct fsd_hello hello = {
        .magic = FSD_MAGIC, .version = FSD_VERSION, .step = FSD_OTHER_VERSION};
    if (!s || recv(FSD_SOCKET, &start, sizeof(start), 0) != sizeof(start) ||
        start.magic != FSD_MAGIC) {
        fprintf(stderr, "reprise-fs: reprise starts this, for record --share; --check tells "
                        "whether this host can\n");
        return 2;
    }
    /* The machine decides when this ends: with its own end at the latest, not with ^C. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    fcntl(FSD_SOCKET, F_SETFD, FD_CLOEXEC);
    bool good = start.version == FSD_VERSION && prepare(s, start.epoch, &hello);
    if (write(FSD_SOCKET, &hello, sizeof(hello)) < 0 || !good)
        return 1;
    serve(s);
    return 0;
}

static int check(void)
{
    printf("files: FUSE %u.%u\n", FUSE_KERNEL_VERSION, FSD_MINOR);
    fflush(stdout);
    unsigned holes = sandbox_probe();
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
        {"check", 'c', NULL, 0, "say what its sandbox refuses, and end", 0},
        {0},
    };
    static const struct argp argp = {options,
                                     parse,
                                     NULL,
                                     "The file server of `reprise record --share`. Started by "
                                     "reprise; by hand only with --check.",
                                     NULL,
                                     NULL,
                                     NULL};
    bool only_check = false;
    if (argp_parse(&argp, argc, argv, 0, NULL, &only_check))
        return 2;
    return only_check ? check() : run();
}
