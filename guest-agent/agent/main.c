/*
 * reprise-agent. As process 1 it is a guest that runs one program of its host: boots, waits for the
 * host, makes the program's root, runs it, and ends the machine with its status. In a system of the
 * guest's own it serves the host (serve.h), or makes a mark (reprise-mark.h).
 */
#include <signal.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "boot.h"
#include "end.h"
#include "guest-agent/reprise-mark.h"
#include "network.h"
#include "program.h"
#include "relay.h"
#include "root.h"
#include "serve.h"
#include "start.h"
#include "talk.h"
#include "written.h"

/* Signals come when they are asked for. */
static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* *layer: where what the program writes is. */
static bool prepare(const char *bytes, size_t len, struct start *s, struct program *p, int *layer,
                    struct failure *f)
{
    f->status = STATUS_TROUBLE;
    *layer = root_layer();
    int file = root_file();
    if (*layer < 0 || file < 0) {
        snprintf(f->text, sizeof(f->text), "the layer of memory is not there");
        return false;
    }
    if (!start_read(s, (char *)bytes, len, f->text) || !root_enter(f->text, sizeof(f->text)))
        return false;
    if (*s->host && sethostname(s->host, strlen(s->host))) {
        snprintf(f->text, sizeof(f->text), "cannot be called %s", s->host);
        return false;
    }
    if (clock_settime(CLOCK_REALTIME, &s->clock)) {
        snprintf(f->text, sizeof(f->text), "the clock cannot be set");
        return false;
    }
    if (!network_begin(&s->network, file, f->text, sizeof(f->text)))
        return false;
    close(file);
    return program_start(p, s, f);
}

static void run_one(void)
{
    static struct talk talk;
    struct start start = {0};
    struct program program;
    struct failure failure;
    size_t len;
    int layer;
    block_signals();
    talk_init(&talk, boot());
    mlockall(MCL_CURRENT);
    dprintf(STDOUT_FILENO, "reprise-agent: ready\n");
    tcdrain(STDOUT_FILENO);
    const char *bytes = talk_start(&talk, &len);
    if (!prepare(bytes, len, &start, &program, &layer, &failure)) {
        talk_fail(&talk, failure.status, failure.text);
        machine_end((int)failure.status);
    }
    talk_send(&talk, AGENT_STARTED, NULL, 0);
    uint32_t status = (uint32_t)relay(&talk, &program, start.window);
    written_send(&talk, layer, start.writes);
    talk_send(&talk, AGENT_ENDED, &status, sizeof(status));
    machine_end(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static int usage(FILE *out)
{
    fprintf(out,
            "usage: reprise-agent serve         what `reprise exec`, `cp` and `shutdown` ask for\n"
            "       reprise-agent mark NAME...  name this instant: `reprise marks` lists it\n"
            "       reprise-agent --version     the version of its protocol\n");
    return out == stdout ? 0 : 2;
}

static int mark(int n, char **names)
{
    for (int i = 0; i < n; i++) {
        if (!*names[i] || strlen(names[i]) > REPRISE_MARK_MAX) {
            fprintf(stderr, "reprise-agent: mark '%s': a name has 1 to %u bytes\n", names[i],
                    REPRISE_MARK_MAX);
            return 2;
        }
        reprise_mark(names[i]);
    }
    return n ? 0 : usage(stderr);
}

int main(int argc, char **argv)
{
    const char *name = argc ? strrchr(argv[0], '/') : NULL;
    if (getpid() == 1 && name && !strcmp(name, "/init"))
        run_one();
    if (argc == 2 && !strcmp(argv[1], "serve"))
        return serve();
    if (argc >= 2 && !strcmp(argv[1], "mark"))
        return mark(argc - 2, argv + 2);
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("reprise-agent, protocol %u\n", AGENT_VERSION) < 0;
    return usage(argc == 2 && !strcmp(argv[1], "--help") ? stdout : stderr);
}
