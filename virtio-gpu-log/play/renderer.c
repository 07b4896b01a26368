/* See renderer.h. Requests wait in `out`, what arrives is gathered in `in`; neither ever blocks,
 * except where the caller waits (renderer_wait, too much unsent). Long,
 * because starting, watching and both directions work on one struct that nobody else may see. */
#define _GNU_SOURCE
#include "virtio-gpu-log/play/renderer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/companion.h"
#include "virtio-gpu-log/play/grow.h"

#define OUT_MAX        (64u << 20)  /* unsent bytes above which requests wait */
#define OUT_EAGER      (64u << 10)  /* ... from which they are sent without being asked */
#define WRITE_PIECE    (4u << 20)   /* of a backing, a request */
#define HELD_MAX       (256u << 20) /* bytes of replies that nobody took, above which none is read */
#define COMPLAINTS_MAX 16u /* reads of what it says, at a time: it could talk without end */
#define START_TIMEOUT  20000u
#define HANG_TIMEOUT   60000u
#define MILLISECOND    1000000ull
#define REPLY_OVERHEAD (sizeof(struct wire_header) + sizeof(struct wire_reply))

struct owed {
    u64 seq;
    u32 type;
    bool unwanted;
};

struct queue {
    u8 *data;
    size_t start, end, room;
};

struct renderer {
    pid_t pid; /* 0: reaped */
    int fd, complaints;
    u64 seq;
    struct queue out, in;
    struct owed *owed; /* oldest first */
    u32 owed_start, owed_end;
    size_t owed_room;
    struct renderer_reply *first, **last;
    u64 held;     /* bytes of them */
    u64 waited;   /* the request whose reply somebody waits for; 0: nobody */
    u64 progress; /* host_ns when something moved, or when there began to be something to wait for
                   */
    u64 hang;     /* ns */
    bool dead;
    char death[1024];
    char said[512]; /* the end of what it wrote to stderr */
    size_t said_size;
    struct renderer_about about;
};

/* Queues of bytes */

/* NULL: no memory; what is in it stays. */
static u8 *queue_room(struct queue *q, size_t size)
{
    if (q->start && q->room - q->end < size) {
        memmove(q->data, q->data + q->start, q->end - q->start);
        q->end -= q->start;
        q->start = 0;
    }
    if (q->room - q->end < size) {
        size_t room = MAX(q->end + size, q->room * 2);
        u8 *data = realloc(q->data, room);
        if (!data)
            return NULL;
        q->data = data;
        q->room = room;
    }
    return q->data + q->end;
}

static size_t queue_used(const struct queue *q)
{
    return q->end - q->start;
}

static void queue_take(struct queue *q, size_t size)
{
    q->start += size;
    if (q->start < q->end)
        return;
    q->start = q->end = 0;
    /* What one big picture took is not kept. */
    if (q->room > 16u << 20) {
        free(q->data);
        *q = (struct queue){0};
    }
}

/* Life and death */

static void listen_to_complaints(struct renderer *r)
{
    char text[4096];
    ssize_t n;
    if (r->complaints < 0)
        return;
    for (u32 i = 0; i < COMPLAINTS_MAX && (n = read(r->complaints, text, sizeof(text))) > 0; i++) {
        /* Its end is kept. */
        size_t keep = sizeof(r->said) - 1, add = MIN((size_t)n, keep);
        size_t old = MIN(r->said_size, keep - add);
        memmove(r->said, r->said + r->said_size - old, old);
        memcpy(r->said + old, text + n - add, add);
        r->said_size = old + add;
        r->said[r->said_size] = 0;
    }
}

/* The last line it wrote, without its name. */
static const char *last_words(struct renderer *r)
{
    while (r->said_size && r->said[r->said_size - 1] == '\n')
        r->said[--r->said_size] = 0;
    const char *line = strrchr(r->said, '\n');
    line = line ? line + 1 : r->said;
    for (char *c = r->said; *c; c++)
        if ((unsigned char)*c < ' ' && *c != '\n')
            *c = ' ';
    return !strncmp(line, "reprise-gpu: ", 13) ? line + 13 : line;
}

static void give(struct renderer *r, struct renderer_reply *reply)
{
    reply->next = NULL;
    *r->last = reply;
    r->last = &reply->next;
    r->held += reply->size;
}

/* Who waits for a reply for which there is no memory learns of the death all the same. */
static void lose_owed(struct renderer *r)
{
    while (r->owed_start < r->owed_end) {
        const struct owed *o = &r->owed[r->owed_start++];
        if (o->unwanted)
            continue;
        struct renderer_reply *reply = calloc(1, sizeof(*reply));
        if (!reply)
            continue;
        reply->seq = o->seq;
        reply->type = o->type;
        reply->result = WIRE_R_LOST;
        give(r, reply);
    }
}

/* It is dead; how it ended is in `death`. What it said goes with it, unless a signal ended it: the
 * library talks a lot, and does not know that it will crash. */
static void bury(struct renderer *r, bool with_words)
{
    r->dead = true;
    r->pid = 0;
    listen_to_complaints(r);
    const char *words = last_words(r);
    size_t n = strlen(r->death);
    if (*words && with_words)
        snprintf(r->death + n, sizeof(r->death) - n, ": %s", words);
    close(r->fd);
    if (r->complaints >= 0)
        close(r->complaints);
    r->fd = r->complaints = -1;
    free(r->out.data);
    free(r->in.data);
    r->out = r->in = (struct queue){0};
    lose_owed(r);
}

/* Ends it, for the reason given. */
static void PRINTF(2, 3) end(struct renderer *r, const char *fmt, ...)
{
    va_list ap;
    if (r->dead)
        return;
    if (r->pid)
        companion_kill(r->pid);
    va_start(ap, fmt);
    vsnprintf(r->death, sizeof(r->death), fmt, ap);
    va_end(ap);
    bury(r, false);
}

/* It goes on without one, as if it had died. */
static void end_no_memory(struct renderer *r)
{
    end(r, "there is no memory to speak to it");
}

/* The socket is at its end: so is the process, or it is about to be. */
static void lost(struct renderer *r)
{
    if (r->dead)
        return;
    int status = companion_wait(r->pid);
    companion_how(status, r->death, sizeof(r->death));
    bury(r, !WIFSIGNALED(status));
}

/* Sending */

static void flush(struct renderer *r)
{
    while (!r->dead && queue_used(&r->out)) {
        ssize_t n = send(r->fd, r->out.data + r->out.start, queue_used(&r->out),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
            return;
        if (n < 0) {
            lost(r);
            return;
        }
        queue_take(&r->out, (size_t)n);
        r->progress = host_ns();
    }
}

static void wait_for_it(struct renderer *r, u64 until);

static bool has_reply(u32 type)
{
    switch (type) {
#define X(name, number, body, tail, reply)                                                         \
    case number: return reply;
        WIRE_REQUESTS(X)
#undef X
    default: return false;
    }
}

/* A request of `size` bytes of body and `more` of tail, to be filled in; NULL: dead. */
static u8 *request(struct renderer *r, u32 type, size_t size, size_t extra)
{
    struct wire_header head = {(u32)(sizeof(head) + size + extra), type, ++r->seq};
    while (!r->dead && queue_used(&r->out) > OUT_MAX)
        wait_for_it(r, NEVER);
    if (r->owed_start == r->owed_end && !queue_used(&r->out))
        r->progress = host_ns();
    if (has_reply(type)) {
        if (r->owed_start > r->owed_room / 2) {
            r->owed_end -= r->owed_start;
            memmove(r->owed, r->owed + r->owed_start, r->owed_end * sizeof(*r->owed));
            r->owed_start = 0;
        }
        struct owed *owed = list_grow(r->owed, r->owed_end, &r->owed_room, sizeof(*owed));
        if (!owed) {
            end_no_memory(r);
            return NULL;
        }
        r->owed = owed;
        r->owed[r->owed_end++] = (struct owed){r->seq, type, false};
    }
    if (r->dead) {
        lose_owed(r);
        return NULL;
    }
    u8 *to = queue_room(&r->out, head.size);
    if (!to) {
        end_no_memory(r);
        return NULL;
    }
    memcpy(to, &head, sizeof(head));
    r->out.end += head.size;
    return to + sizeof(head);
}

static u64 send_request(struct renderer *r, u32 type, const void *body, size_t size,
                        const void *tail, size_t extra)
{
    u8 *to = request(r, type, size, extra);
    u64 seq = r->seq;
    if (!to)
        return seq;
    if (size)
        memcpy(to, body, size);
    if (extra)
        memcpy(to + size, tail, extra);
    if (type == WIRE_SUBMIT || has_reply(type) || queue_used(&r->out) >= OUT_EAGER)
        flush(r);
    return seq;
}

/* Receiving */

/* NULL: it is not. */
static struct owed *find_owed(const struct renderer *r, u64 seq)
{
    for (u32 i = r->owed_start; i < r->owed_end; i++)
        if (r->owed[i].seq == seq)
            return &r->owed[i];
    return NULL;
}

/* Arrays one after the other: the next one, or NULL when there is no room for it. */
static const u8 *part(const u8 **at, u64 *left, u64 count, u64 size)
{
    const u8 *here = *at;
    if (count > *left / size)
        return NULL;
    *at += count * size;
    *left -= count * size;
    return here;
}

/* False: what arrived is no reply to what was asked. */
static bool take_reply(struct renderer *r, const struct wire_header *head, const u8 *bytes)
{
    struct wire_reply b;
    if (r->owed_start == r->owed_end || head->size < REPLY_OVERHEAD)
        return false;
    const struct owed *o = &r->owed[r->owed_start];
    if (head->seq != o->seq || head->type != (o->type | WIRE_REPLY))
        return false;
    memcpy(&b, bytes, sizeof(b));

    u64 left = head->size - REPLY_OVERHEAD;
    size_t size = sizeof(struct renderer_reply) + left + 1;
    struct renderer_reply *reply = malloc(size);
    if (!reply) {
        end_no_memory(r);
        return true;
    }
    u8 *copy = (u8 *)(reply + 1);
    memcpy(copy, bytes + sizeof(b), left);
    const u8 *at = copy;
    const u8 *runs = part(&at, &left, b.runs, sizeof(struct wire_run));
    const u8 *faults = runs ? part(&at, &left, b.faults, sizeof(struct wire_fault)) : NULL;
    const u8 *ranges = faults ? part(&at, &left, b.ranges, sizeof(struct wire_range)) : NULL;
    bool good = ranges && left == b.data_size && b.result < WIRE_R_LOST;
    *reply = (struct renderer_reply){
        .seq = head->seq,
        .type = o->type,
        .result = b.result,
        .runs = (const void *)runs,
        .faults = (const void *)faults,
        .ranges = (const void *)ranges,
        .run_count = b.runs,
        .fault_count = b.faults,
        .range_count = b.ranges,
        .width = b.width,
        .height = b.height,
        .depth = b.depth,
        .row_bytes = b.row_bytes,
        .data = at,
        .data_size = b.data_size,
        .size = size,
    };
    u64 sum = 0;
    for (u32 i = 0; good && i < b.ranges; i++)
        sum += reply->ranges[i].size;
    for (u32 i = 0; good && i < b.faults; i++)
        good = !reply->faults[i].text[WIRE_FAULT_TEXT - 1];
    for (u32 i = 0; good && i < b.runs; i++)
        good = reply->runs[i].result < WIRE_R_LOST;
    if (good && o->type != WIRE_READ)
        good = sum == b.data_size;
    if (good && o->type == WIRE_READ)
        good = !b.ranges && (!b.result || !b.data_size);
    if (!good) {
        free(reply);
        return false;
    }
    r->owed_start++;
    if (o->unwanted)
        free(reply);
    else
        give(r, reply);
    return true;
}

static void receive(struct renderer *r)
{
    for (;;) {
        /* It waits until somebody takes one; but who waits for one gets it. */
        if (r->held > HELD_MAX && !find_owed(r, r->waited)) {
            r->progress = host_ns();
            return;
        }
        /* Room for the rest of a message that has begun, or a little. */
        size_t want = 64u << 10;
        struct wire_header head;
        if (queue_used(&r->in) >= sizeof(head)) {
            memcpy(&head, r->in.data + r->in.start, sizeof(head));
            if (head.size < sizeof(head) || head.size > WIRE_REPLY_MAX) {
                end(r, "sent nonsense (a message of %u bytes)", head.size);
                return;
            }
            if (queue_used(&r->in) >= head.size) {
                if (!take_reply(r, &head, r->in.data + r->in.start + sizeof(head))) {
                    end(r, "sent nonsense (a reply of type 0x%x to request %llu)", head.type,
                        (unsigned long long)head.seq);
                    return;
                }
                queue_take(&r->in, head.size);
                continue;
            }
            want = MAX(want, head.size - queue_used(&r->in));
        }
        u8 *to = queue_room(&r->in, want);
        if (!to) {
            end_no_memory(r);
            return;
        }
        ssize_t n = recv(r->fd, to, r->in.room - r->in.end, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lost(r);
            return;
        }
        r->in.end += (size_t)n;
        r->progress = host_ns();
    }
}

void renderer_poll(struct renderer *r)
{
    if (r->dead)
        return;
    listen_to_complaints(r);
    flush(r);
    if (!r->dead)
        receive(r);
    if (!r->dead && (renderer_owed(r) || queue_used(&r->out)) && host_ns() - r->progress > r->hang)
        end(r, "hangs: nothing came from it for %llu s",
            (unsigned long long)((host_ns() - r->progress) / (1000 * MILLISECOND)));
}

static short renderer_events(const struct renderer *r)
{
    return (short)(POLLIN | (queue_used(&r->out) ? POLLOUT : 0));
}

/* Until something moves, it is dead, or `until` (host_ns). */
static void wait_for_it(struct renderer *r, u64 until)
{
    renderer_poll(r);
    if (r->dead)
        return;
    u64 now = host_ns(), end = MIN(until, r->progress + r->hang + MILLISECOND);
    struct pollfd p[2] = {{r->fd, renderer_events(r), 0}, {r->complaints, POLLIN, 0}};
    if (end > now)
        poll(p, 2, (int)MIN((end - now) / MILLISECOND + 1, 1000u));
    if (p[1].revents & (POLLHUP | POLLERR) && !(p[1].revents & POLLIN)) {
        close(r->complaints); /* or poll() would return at once for ever */
        r->complaints = -1;
    }
    renderer_poll(r);
}

/* Starting */

static int spawn(struct renderer *r, const char *program, const char *driver, struct err *err)
{
    int pair[2], complain[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return err_errno(err, "cannot create a socket for the renderer");
    r->fd = pair[0];
    if (pipe2(complain, O_CLOEXEC)) {
        close(pair[1]);
        return err_errno(err, "cannot create a pipe for the renderer");
    }
    r->complaints = complain[0];
    fcntl(r->complaints, F_SETFL, O_NONBLOCK);
    const char *const args[] = {"--driver", driver, NULL};
    struct companion_config c = {.what = "the renderer",
                                 .name = "reprise-gpu",
                                 .program = program,
                                 .args = args,
                                 .fds = {pair[1]},
                                 .nfds = 1,
                                 .voice = complain[1]};
    int code = companion_start(&r->pid, &c, err);
    close(pair[1]);
    close(complain[1]);
    if (code)
        r->pid = 0;
    return code;
}

/* The reply to the greeting, which has a form of its own. */
static int take_greeting(struct renderer *r, const struct renderer_config *c, const char *driver,
                         u32 model, struct err *err)
{
    struct wire_header head;
    struct wire_hello_reply b;
    u64 until = host_ns() + (c->start_timeout ? c->start_timeout : START_TIMEOUT) * MILLISECOND;
    for (;;) {
        size_t used = queue_used(&r->in);
        if (used >= sizeof(head)) {
            memcpy(&head, r->in.data + r->in.start, sizeof(head));
            if (head.size < sizeof(head) + sizeof(b) || head.size > 65536)
                return err_set(err, -EPROTO, "the renderer sent nonsense instead of a greeting");
            if (used >= head.size)
                break;
        }
        u8 *to = queue_room(&r->in, 65536);
        if (!to)
            return err_set(err, -ENOMEM, "no memory for the renderer's greeting");
        ssize_t n = recv(r->fd, to, r->in.room - r->in.end, MSG_DONTWAIT);
        if (n > 0) {
            r->in.end += (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            lost(r);
            return err_set(err, -EPIPE, "the renderer did not start: %s", r->death);
        }
        u64 now = host_ns();
        if (now >= until) {
            end(r, "did not start within %llu s",
                (unsigned long long)(c->start_timeout ? c->start_timeout : START_TIMEOUT) / 1000);
            return err_set(err, -ETIMEDOUT, "the renderer %s", r->death);
        }
        listen_to_complaints(r);
        struct pollfd p = {r->fd, POLLIN, 0};
        poll(&p, 1, (int)MIN((until - now) / MILLISECOND + 1, 1000u));
    }
    const u8 *at = r->in.data + r->in.start + sizeof(head);
    struct renderer_about *a = &r->about;
    memcpy(&b, at, sizeof(b));
    at += sizeof(b);
    u64 left = head.size - sizeof(head) - sizeof(b);
    if (b.magic != WIRE_MAGIC || (u64)b.capset_size + b.driver_size + b.text_size != left ||
        b.capset_size > sizeof(a->capset))
        return err_set(err, -EPROTO, "the renderer sent nonsense instead of a greeting");
    *a = (struct renderer_about){.model = model,
                                 .capset_id = b.capset_id,
                                 .capset_version = b.capset_version,
                                 .capset_size = b.capset_size,
                                 .missing = b.missing};
    memcpy(a->capset, at, b.capset_size);
    memcpy(a->driver, at + b.capset_size, MIN(b.driver_size, sizeof(a->driver) - 1));
    memcpy(a->lacks, at + b.capset_size + b.driver_size, MIN(b.text_size, sizeof(a->lacks) - 1));
    queue_take(&r->in, head.size);
    if (b.result)
        return err_set(err, -ENODEV, "the GPU renderer cannot start: %s", a->lacks);
    if (b.missing && !c->lenient)
        return err_set(err, -ENOTSUP,
                       "'%s' (%s) lacks what capability model %u of the GPU promises to guests: %s",
                       driver, a->driver, model, a->lacks);
    return 0;
}

int renderer_create(struct renderer **out, const struct renderer_config *c, struct err *err)
{
    const char *driver = c->driver ? c->driver : "llvmpipe";
    u32 model = c->model ? c->model : WIRE_MODEL_NEWEST;
    *out = NULL;
    struct renderer *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, -ENOMEM, "out of memory for the renderer");
    r->fd = r->complaints = -1;
    r->last = &r->first;
    r->hang = (c->hang_timeout ? c->hang_timeout : HANG_TIMEOUT) * MILLISECOND;
    int e = spawn(r, c->program, driver, err);
    if (!e) {
        struct wire_hello hello = {WIRE_MAGIC,       WIRE_VERSION,    model,
                                   c->contexts,      c->resources,    0,
                                   c->texture_bytes, c->backing_bytes};
        struct wire_header head = {sizeof(head) + sizeof(hello), WIRE_HELLO, 0};
        u8 *to = queue_room(&r->out, head.size);
        if (to) {
            memcpy(to, &head, sizeof(head));
            memcpy(to + sizeof(head), &hello, sizeof(hello));
            r->out.end += head.size;
            flush(r);
        } else {
            end_no_memory(r);
        }
        e = r->dead ? err_set(err, -EPIPE, "the renderer did not start: %s", r->death)
                    : take_greeting(r, c, driver, model, err);
    }
    if (e) {
        renderer_destroy(r);
        return e;
    }
    r->said_size = 0; /* what drivers say while they start */
    r->said[0] = 0;
    *out = r;
    return 0;
}

void renderer_destroy(struct renderer *r)
{
    if (!r)
        return;
    end(r, "ended");
    while (r->first) {
        struct renderer_reply *next = r->first->next;
        free(r->first);
        r->first = next;
    }
    free(r->owed);
    free(r);
}

/* What it is and has */

const struct renderer_about *renderer_about(const struct renderer *r)
{
    return &r->about;
}

const char *renderer_death(const struct renderer *r)
{
    return r->dead ? r->death : NULL;
}

int renderer_pid(const struct renderer *r)
{
    return r->pid;
}

int renderer_fd(const struct renderer *r)
{
    return r->fd;
}

u32 renderer_owed(const struct renderer *r)
{
    return r->owed_end - r->owed_start;
}

struct renderer_reply *renderer_next(struct renderer *r)
{
    struct renderer_reply *reply = r->first;
    if (!reply)
        return NULL;
    r->first = reply->next;
    if (!r->first)
        r->last = &r->first;
    r->held -= reply->size;
    return reply;
}

static struct renderer_reply *take(struct renderer *r, u64 seq)
{
    for (struct renderer_reply **at = &r->first; *at; at = &(*at)->next) {
        struct renderer_reply *reply = *at;
        if (reply->seq != seq)
            continue;
        *at = reply->next;
        if (!*at)
            r->last = at;
        r->held -= reply->size;
        return reply;
    }
    return NULL;
}

struct renderer_reply *renderer_wait(struct renderer *r, u64 seq, u32 milliseconds)
{
    u64 until = milliseconds ? host_ns() + milliseconds * MILLISECOND : NEVER;
    r->waited = seq;
    renderer_poll(r);
    while (find_owed(r, seq) && host_ns() < until)
        wait_for_it(r, until);
    r->waited = 0;
    return take(r, seq);
}

void renderer_forget(struct renderer *r, u64 seq)
{
    struct owed *o = find_owed(r, seq);
    if (o)
        o->unwanted = true;
    else
        free(take(r, seq));
}

u32 renderer_result(const struct renderer_reply *fence, u64 seq)
{
    if (fence->result == WIRE_R_LOST)
        return WIRE_R_LOST;
    for (u32 i = 0; i < fence->run_count; i++)
        if (seq >= fence->runs[i].seq && seq - fence->runs[i].seq < fence->runs[i].count)
            return fence->runs[i].result;
    return WIRE_R_NOT_KEPT;
}

/* Requests */

u64 renderer_context_create(struct renderer *r, u32 context, const char *name, size_t length)
{
    struct wire_context b = {context, 0};
    return send_request(r, WIRE_CONTEXT_CREATE, &b, sizeof(b), name, MIN(length, (size_t)64));
}

u64 renderer_context_destroy(struct renderer *r, u32 context)
{
    struct wire_context b = {context, 0};
    return send_request(r, WIRE_CONTEXT_DESTROY, &b, sizeof(b), NULL, 0);
}

u64 renderer_context_attach(struct renderer *r, u32 context, u32 resource)
{
    struct wire_pair b = {context, resource};
    return send_request(r, WIRE_CONTEXT_ATTACH, &b, sizeof(b), NULL, 0);
}

u64 renderer_context_detach(struct renderer *r, u32 context, u32 resource)
{
    struct wire_pair b = {context, resource};
    return send_request(r, WIRE_CONTEXT_DETACH, &b, sizeof(b), NULL, 0);
}

u64 renderer_resource_create(struct renderer *r, const struct wire_resource_create *args)
{
    return send_request(r, WIRE_RESOURCE_CREATE, args, sizeof(*args), NULL, 0);
}

u64 renderer_resource_unref(struct renderer *r, u32 resource)
{
    struct wire_resource b = {resource, 0};
    return send_request(r, WIRE_RESOURCE_UNREF, &b, sizeof(b), NULL, 0);
}

u64 renderer_attach_backing(struct renderer *r, u32 resource, u64 size)
{
    struct wire_backing b = {resource, 0, size};
    return send_request(r, WIRE_ATTACH_BACKING, &b, sizeof(b), NULL, 0);
}

u64 renderer_detach_backing(struct renderer *r, u32 resource)
{
    struct wire_resource b = {resource, 0};
    return send_request(r, WIRE_DETACH_BACKING, &b, sizeof(b), NULL, 0);
}

u64 renderer_write_backing(struct renderer *r, u32 resource, u64 offset, const void *bytes,
                           size_t size)
{
    const u8 *at = bytes;
    u64 seq;
    do {
        size_t piece = MIN(size, (size_t)WRITE_PIECE);
        struct wire_backing b = {resource, 0, offset};
        seq = send_request(r, WIRE_WRITE_BACKING, &b, sizeof(b), at, piece);
        at += piece;
        offset += piece;
        size -= piece;
    } while (size);
    return seq;
}

u64 renderer_transfer_to_host(struct renderer *r, const struct wire_transfer *t)
{
    return send_request(r, WIRE_TRANSFER_TO_HOST, t, sizeof(*t), NULL, 0);
}

u64 renderer_transfer_from_host(struct renderer *r, const struct wire_transfer *t)
{
    return send_request(r, WIRE_TRANSFER_FROM_HOST, t, sizeof(*t), NULL, 0);
}

u64 renderer_submit(struct renderer *r, u32 context, const u32 *words, size_t count)
{
    struct wire_context b = {context, 0};
    size_t size = count * sizeof(*words);
    if (size > WIRE_REQUEST_MAX - sizeof(struct wire_header) - sizeof(b))
        return send_request(r, WIRE_SUBMIT, NULL, 0, NULL, 0); /* no body: malformed */
    return send_request(r, WIRE_SUBMIT, &b, sizeof(b), words, size);
}

u64 renderer_fence(struct renderer *r)
{
    struct wire_nothing b = {0};
    return send_request(r, WIRE_FENCE, &b, sizeof(b), NULL, 0);
}

u64 renderer_read(struct renderer *r, u32 resource, u32 level, const struct wire_box *box,
                  enum wire_layout layout)
{
    struct wire_read b = {.resource = resource, .level = level, .layout = layout};
    if (box)
        b.box = *box;
    return send_request(r, WIRE_READ, &b, sizeof(b), NULL, 0);
}

u64 renderer_reset(struct renderer *r)
{
    struct wire_nothing b = {0};
    return send_request(r, WIRE_RESET, &b, sizeof(b), NULL, 0);
}
