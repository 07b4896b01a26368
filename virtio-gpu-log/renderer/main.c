/*
 * reprise-gpu: draws what a guest's GPU commands say. Started by reprise with a socket on file
 * descriptor 3; --check tells whether this host can render at all.
 */
#define _GNU_SOURCE
#include <argp.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "virtio-gpu-log/renderer/sandbox.h"
#include "virtio-gpu-log/renderer/serve.h"
#include "virtio-gpu-log/renderer/shadow.h"

#define CLIENT_FD 3

struct options {
    const char *driver;
    bool check;
};

static const struct argp_option options[] = {
    {"driver", 'd', "DRIVER", 0,
     "llvmpipe (default), softpipe, or device:PATH, a render node such as /dev/dri/renderD128", 0},
    {"check", 'c', NULL, 0,
     "say what this host can render with and what its sandbox refuses, and end", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'd': o->driver = arg; return 0;
    case 'c': o->check = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int check(const char *driver)
{
    char text[4096];
    struct virgl_caps caps;
    struct host *h = host_create(driver, text, sizeof(text));
    if (!h) {
        fprintf(stderr, "reprise-gpu: %s\n", text);
        return 1;
    }
    printf("driver: %s\n", host_driver(h));
    host_caps(h, &caps);
    unsigned missing = model_missing(WIRE_MODEL_NEWEST, &caps, text, sizeof(text));
    printf("missing from capability model %u: %s\n", WIRE_MODEL_NEWEST, missing ? text : "nothing");
    fflush(stdout);
    unsigned holes = sandbox_probe(false, 4ull << 30) + sandbox_probe(true, 4ull << 30);
    if (!sandbox_enter(host_is_device(h), 4ull << 30, text, sizeof(text))) {
        fprintf(stderr, "reprise-gpu: %s\n", text);
        return 1;
    }
    printf("sandbox: %s\n", holes ? "does not hold" : "holds");
    return missing || holes ? 1 : 0;
}

/* Left at once: what runs at exit was written for processes that may do what they like. */
static _Noreturn void leave(int status)
{
    fflush(NULL);
    _exit(status);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {options,
                                     parse,
                                     NULL,
                                     "Draws the GPU commands of a guest that reprise runs. "
                                     "Started by reprise; by hand only with --check.",
                                     NULL,
                                     NULL,
                                     NULL};
    struct options o = {.driver = "llvmpipe"};
    char text[1024];
    int type;
    socklen_t size = sizeof(type);

    if (argp_parse(&argp, argc, argv, 0, NULL, &o))
        return 2;
    if (o.check)
        leave(check(o.driver));
    if (getsockopt(CLIENT_FD, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_STREAM) {
        fprintf(stderr,
                "reprise-gpu: started by reprise, not by hand (file descriptor %d is no "
                "socket); --check tells whether this host can render\n",
                CLIENT_FD);
        return 2;
    }
    /* The machine decides when this ends: with its own end at the latest, not with ^C. */
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* already gone: then the socket is at its end */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    fcntl(CLIENT_FD, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_NAME, "reprise-gpu");

    struct host *h = host_create(o.driver, text, sizeof(text));
    if (h && !shadow_init()) {
        snprintf(text, sizeof(text), "cannot watch memory for writes");
        h = NULL;
    }
    leave(serve(CLIENT_FD, h, h ? NULL : text));
}
