/* See session.h. */
#include "session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"
#include "guest-agent/agent/copy.h"
#include "program.h"
#include "relay.h"
#include "start.h"
#include "talk.h"

/* ---- a program ---- */

/* What only a machine of its own has (main.c). */
static bool is_of_system(const struct start *s, struct failure *f)
{
    f->status = STATUS_TROUBLE;
    snprintf(f->text, sizeof(f->text), "START asks for what only a machine of `reprise run` has");
    return !*s->host && !*s->writes && !s->clock.tv_sec && !s->clock.tv_nsec && !s->network.address;
}

static void run_program(struct talk *t)
{
    struct start s = {0};
    struct program p;
    struct failure f = {.status = STATUS_TROUBLE};
    size_t len = t->frame.head.len;
    char *bytes = malloc(len + 1);
    if (!bytes)
        give_up("no memory for a program");
    memcpy(bytes, t->frame.data, len);
    if (!start_read(&s, bytes, len, f.text) || !is_of_system(&s, &f) ||
        !program_start(&p, &s, &f)) {
        talk_fail(t, f.status, f.text);
        return;
    }
    talk_send(t, AGENT_STARTED, NULL, 0);
    uint32_t status = (uint32_t)relay(t, &p, s.window);
    talk_send(t, AGENT_ENDED, &status, sizeof(status));
}

/* ---- copies ---- */

/* The two texts of PUT and GET. */
static bool read_copy(struct talk *t, struct agent_copy *c, const char **path, const char **source)
{
    const char *bytes = (const char *)t->frame.data, *end = bytes + t->frame.head.len;
    memcpy(c, bytes, sizeof(*c));
    *path = bytes + sizeof(*c);
    const char *nul = memchr(*path, 0, (size_t)(end - *path));
    *source = nul ? nul + 1 : end;
    return nul && *source < end && memchr(*source, 0, (size_t)(end - *source)) == end - 1 &&
           !(c->flags & ~(uint32_t)AGENT_RECURSE) && !c->zero;
}

static void put(struct talk *t)
{
    struct agent_copy c;
    const char *path, *source;
    uint32_t taken = 0;
    static struct copy_sink sink;
    if (!read_copy(t, &c, &path, &source))
        give_up("the host sent a PUT that makes no sense");
    bool good = copy_open(&sink, path, source);
    while (good && !sink.over) {
        talk_wait(t);
        const struct agent_frame *head = &t->frame.head;
        if (head->type == AGENT_NOTHING)
            continue;
        good = copy_take(&sink, head->type, t->frame.data, head->len);
        taken += head->len;
        if (good && taken >= AGENT_WINDOW / 4) {
            talk_send(t, AGENT_ROOM, &taken, sizeof(taken));
            taken = 0;
        }
    }
    copy_close(&sink);
    if (good)
        talk_send(t, AGENT_COPIED, &sink.done, sizeof(sink.done));
    else
        talk_fail(t, STATUS_TROUBLE, sink.why);
}

struct getting {
    struct talk *t;
    uint32_t under_way; /* bytes that the host has not said to have taken */
};

static void host_took(struct getting *g)
{
    uint32_t n;
    if (g->t->frame.head.type == AGENT_NOTHING)
        return;
    memcpy(&n, g->t->frame.data, sizeof(n));
    if (g->t->frame.head.type != AGENT_TAKEN || n > g->under_way)
        give_up("the host sent a frame of type %u while it was sent a copy", g->t->frame.head.type);
    g->under_way -= n;
}

static bool send_copy(void *opaque, uint32_t type, const void *data, size_t len)
{
    struct getting *g = opaque;
    while (talk_next(g->t))
        host_took(g);
    while (g->under_way + len > AGENT_WINDOW) {
        talk_wait(g->t);
        host_took(g);
    }
    g->under_way += (uint32_t)len;
    talk_send(g->t, type, data, len);
    return true;
}

static void get(struct talk *t)
{
    struct agent_copy c;
    const char *path, *none;
    struct getting g = {.t = t};
    struct copy_source source = {.send = send_copy, .opaque = &g};
    if (!read_copy(t, &c, &path, &none) || *none)
        give_up("the host sent a GET that makes no sense");
    char *name = strdup(path); /* frames that come meanwhile lie where it does */
    if (!name)
        give_up("no memory for a copy");
    if (!copy_send(&source, name, c.flags))
        talk_fail(t, STATUS_TROUBLE, source.why);
    free(name);
}

/* ---- the end ---- */

static bool by_systemd(const char *verb)
{
    pid_t child = fork();
    int status = 1;
    if (!child) {
        execl("/usr/bin/systemctl", "systemctl", "--no-block", verb, (char *)NULL);
        execl("/bin/systemctl", "systemctl", "--no-block", verb, (char *)NULL);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* A system that has systemd ends in its order; others, and with NOW, end at once, written to disk.
 */
static void power(struct talk *t)
{
    uint32_t how;
    memcpy(&how, t->frame.data, sizeof(how));
    if (how < AGENT_POWER_OFF || how > AGENT_REBOOT_NOW)
        give_up("the host wants the machine to end in way %u", how);
    bool again = how == AGENT_REBOOT || how == AGENT_REBOOT_NOW;
    bool now = how > AGENT_REBOOT || access("/run/systemd/system", F_OK);
    if (!now && !by_systemd(again ? "reboot" : "poweroff")) {
        talk_fail(t, STATUS_TROUBLE,
                  "systemd does not end the machine; `reprise shutdown --now` does without it");
        return;
    }
    if (now)
        sync();
    talk_send(t, AGENT_GOING, NULL, 0);
    if (now && reboot(again ? RB_AUTOBOOT : RB_POWER_OFF))
        talk_fail(t, STATUS_TROUBLE, strerror(errno));
}

void session(struct talk *t, uint64_t number)
{
    for (;;) {
        struct agent_hello h;
        talk_wait(t);
        switch (t->frame.head.type) {
        case AGENT_NOTHING: break;
        case AGENT_START: run_program(t); return;
        case AGENT_PUT: put(t); return;
        case AGENT_GET: get(t); return;
        case AGENT_POWER: power(t); return;
        case AGENT_HELLO: /* said again, before WELCOME came */
            memset(&h, 0, sizeof(h));
            memcpy(&h, t->frame.data,
                   t->frame.head.len < sizeof(h) ? t->frame.head.len : sizeof(h));
            if (h.number == number)
                break;
            give_up("the host began another session within one");
        default:
            give_up("the host sent a frame of type %u where a session begins", t->frame.head.type);
        }
    }
}
