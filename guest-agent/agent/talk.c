/* See talk.h. */
#include "talk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "end.h"

void talk_init(struct talk *t, int fd)
{
    t->fd = fd;
    t->have = 0;
    /* Asked by poll(), a port whose other end is closed says so at once and always; the signal
     * comes when that changes. */
    if (fcntl(fd, F_SETOWN, getpid()) || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK | O_ASYNC))
        give_up("the port: %s", strerror(errno));
}

/* Some bytes; 0: there are none now. */
static size_t some(struct talk *t, void *to, size_t len)
{
    ssize_t n = read(t->fd, to, len);
    if (n > 0)
        return (size_t)n;
    if (n == 0)
        host_gone();
    if (errno != EAGAIN && errno != EINTR)
        give_up("the port: %s", strerror(errno));
    return 0;
}

static void wait_for(struct talk *t, short events)
{
    struct pollfd p = {.fd = t->fd, .events = events};
    if (poll(&p, 1, -1) < 0 && errno != EINTR)
        give_up("the port: %s", strerror(errno));
}

static void all(struct talk *t, void *to, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = some(t, (char *)to + at, len - at);
        at += n;
        if (!n)
            wait_for(t, POLLIN);
    }
}

void talk_await_host(struct talk *t)
{
    sigset_t io;
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    fcntl(t->fd, F_SETFL, O_RDWR | O_NONBLOCK | O_ASYNC);
    while (poll(&p, 1, 0) < 0 || p.revents & POLLHUP)
        sigwaitinfo(&io, NULL);
    /* From here on poll() is enough. */
    fcntl(t->fd, F_SETFL, O_RDWR | O_NONBLOCK);
}

char *talk_start(struct talk *t, size_t *len)
{
    struct agent_frame head;
    talk_await_host(t);
    all(t, &head, sizeof(head));
    if (head.type != AGENT_START || head.len > AGENT_START_MAX)
        give_up("the host begins with a frame of type %u and %u bytes", head.type, head.len);
    char *bytes = malloc((size_t)head.len + 1);
    if (!bytes)
        give_up("no memory for %u bytes of START", head.len);
    all(t, bytes, head.len);
    *len = head.len;
    return bytes;
}

bool talk_next(struct talk *t)
{
    const size_t head = sizeof(t->frame.head);
    uint8_t *bytes = (uint8_t *)&t->frame;
    if (t->have >= head && t->have == head + t->frame.head.len)
        t->have = 0; /* the one before */
    for (;;) {
        if (t->have >= head &&
            (t->frame.head.len > AGENT_DATA_MAX ||
             !agent_frame_fits(t->frame.head.type, t->frame.head.len, AGENT_HOST)))
            give_up("the host sent a frame of type %u and %u bytes", t->frame.head.type,
                    t->frame.head.len);
        size_t want = t->have < head ? head : head + t->frame.head.len;
        if (t->have >= head && t->have == want)
            return true;
        size_t n = some(t, bytes + t->have, want - t->have);
        if (!n)
            return false;
        t->have += n;
    }
}

void talk_wait(struct talk *t)
{
    while (!talk_next(t))
        wait_for(t, POLLIN);
}

void talk_send(struct talk *t, uint32_t type, const void *data, size_t len)
{
    struct {
        struct agent_frame head;
        uint8_t data[AGENT_DATA_MAX];
    } out = {.head = {type, (uint32_t)len}};
    if (len)
        memcpy(out.data, data, len);
    for (size_t at = 0; at < sizeof(out.head) + len;) {
        ssize_t n = write(t->fd, (char *)&out + at, sizeof(out.head) + len - at);
        if (n > 0)
            at += (size_t)n;
        else if (n < 0 && errno == EAGAIN)
            wait_for(t, POLLOUT);
        else if (n == 0 || errno != EINTR)
            host_gone();
    }
}

void talk_fail(struct talk *t, uint32_t status, const char *text)
{
    struct {
        struct agent_failed head;
        char text[1024];
    } out = {.head = {status}};
    size_t len = strnlen(text, sizeof(out.text));
    memcpy(out.text, text, len);
    talk_send(t, AGENT_FAILED, &out, sizeof(out.head) + len);
}
