/*
 * Process 1 of a guest that runs one program of its host: boots, waits for the host, makes the
 * program's root, runs it, and ends the machine with its status.
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
#include "network.h"
#include "program.h"
#include "relay.h"
#include "root.h"
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

int main(void)
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
    uint32_t status = (uint32_t)relay(&talk, &program);
    written_send(&talk, layer, start.writes);
    talk_send(&talk, AGENT_ENDED, &status, sizeof(status));
    machine_end(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
