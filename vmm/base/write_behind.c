/* See write_behind.h. A ring between the two threads: messages, each after its length, are copied
 * into it, and put into their form out of it, without the lock, which holds what each has done. */
#include "base/write_behind.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/file_io.h"

#define RING  (8u << 20)
#define BATCH (1u << 20) /* written at once, so that there is room again soon */
#define ROOM  (WRITE_BEHIND_MOST + WRITE_BEHIND_MOST / 128 + 64) /* of a message in its form */

/* Waking a thread costs who wakes it as much as copying a page or two. So the thread looks by
 * itself as long as more may come, and is woken only when nothing came for a while. */
#define LOOK_NS 1000000
#define LOOKS   50u

struct write_behind {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less; /* there is something to write; something was written */
    int fd;
    write_behind_form *form;
    u64 end;       /* of the file; the thread's */
    u64 put, done; /* bytes of the ring's that came, and that are in the file */
    int failed;
    unsigned looks; /* of the thread in which there was nothing, one after the other */
    bool sleeps;    /* it waits to be told of more */
    bool over;
    bool alone; /* there is no thread: what is put is written at once */
    u8 message[WRITE_BEHIND_MOST];
    u8 out[BATCH + ROOM];
    u8 ring[RING];
};

/* Until there may be more. */
static void rest(struct write_behind *w)
{
    struct timespec until;
    if (w->looks++ >= LOOKS) {
        w->sleeps = true;
        pthread_cond_wait(&w->more, &w->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->more, &w->lock, &until);
}

static void ring_read(const struct write_behind *w, u64 at, void *out, size_t len)
{
    size_t first = MIN(len, (size_t)(RING - at % RING));
    memcpy(out, w->ring + at % RING, first);
    memcpy((u8 *)out + first, w->ring, len - first);
}

static void ring_write(struct write_behind *w, u64 at, const void *from, size_t len)
{
    size_t first = MIN(len, (size_t)(RING - at % RING));
    memcpy(w->ring + at % RING, from, first);
    memcpy(w->ring, (const u8 *)from + first, len - first);
}

/* The message at `at` comes to w->out in its form, from *n on. Returns where the next one is. */
static u64 take(struct write_behind *w, u64 at, size_t *n)
{
    u32 len;
    ring_read(w, at, &len, sizeof(len));
    at += sizeof(len);
    const u8 *message = w->ring + at % RING;
    if (len > RING - at % RING) { /* it goes on at the ring's beginning */
        ring_read(w, at, w->message, len);
        message = w->message;
    }
    *n += w->form(message, len, w->out + *n);
    return at + len;
}

/* The first of what lies from `from` up to `to`. Returns up to where. */
static u64 write_some(struct write_behind *w, u64 from, u64 to, int *failed)
{
    size_t n = 0;
    while (from != to && n < BATCH)
        from = take(w, from, &n);
    if (!*failed && !file_write_at(w->fd, w->out, n, w->end))
        *failed = errno ? -errno : -EIO;
    w->end += n;
    return from;
}

static void *write_on(void *opaque)
{
    struct write_behind *w = opaque;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        u64 done = w->done, put = w->put;
        if (done == put && w->over)
            break;
        if (done == put) {
            rest(w);
            continue;
        }
        w->looks = 0;
        int failed = w->failed;
        pthread_mutex_unlock(&w->lock);
        done = write_some(w, done, put, &failed);
        pthread_mutex_lock(&w->lock);
        w->failed = failed;
        w->done = done;
        pthread_cond_signal(&w->less);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct write_behind *write_behind_create(int fd, u64 end, write_behind_form *form)
{
    struct write_behind *w = malloc(sizeof(*w)); /* memory only as far as it is used */
    sigset_t all, before;
    if (!w)
        return NULL;
    memset(w, 0, offsetof(struct write_behind, message));
    w->fd = fd;
    w->end = end;
    w->form = form;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->more, &clock);
    pthread_condattr_destroy(&clock);
    pthread_cond_init(&w->less, NULL);
    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->alone = pthread_create(&w->thread, NULL, write_on, w) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w;
}

void write_behind_destroy(struct write_behind *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    if (!w->alone)
        pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->more);
    pthread_cond_destroy(&w->less);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Until so many bytes fit. */
static void wait_for_room(struct write_behind *w, u64 len)
{
    pthread_mutex_lock(&w->lock);
    if (RING - (w->put - w->done) < len)
        pthread_cond_signal(&w->more);
    while (RING - (w->put - w->done) < len)
        pthread_cond_wait(&w->less, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* So many bytes more can be written. */
static int tell(struct write_behind *w, u64 len)
{
    if (w->alone) {
        w->put += len;
        w->done = write_some(w, w->done, w->put, &w->failed);
        return w->failed;
    }
    pthread_mutex_lock(&w->lock);
    w->put += len;
    bool wake = w->sleeps;
    w->sleeps = false;
    int failed = w->failed;
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->more);
    return failed;
}

int write_behind_put(struct write_behind *w, const struct iovec *parts, unsigned n)
{
    u32 len = 0;
    for (unsigned i = 0; i < n; i++)
        len += (u32)parts[i].iov_len;
    CHECK(len <= WRITE_BEHIND_MOST, "a message of %u bytes", len);
    wait_for_room(w, sizeof(len) + len);
    u64 at = w->put;
    ring_write(w, at, &len, sizeof(len));
    at += sizeof(len);
    for (unsigned i = 0; i < n; i++) {
        ring_write(w, at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    return tell(w, at - w->put);
}

int write_behind_wait(struct write_behind *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->done != w->put)
        pthread_cond_signal(&w->more);
    while (w->done != w->put)
        pthread_cond_wait(&w->less, &w->lock);
    int failed = w->failed;
    pthread_mutex_unlock(&w->lock);
    return failed;
}

bool write_behind_busy(struct write_behind *w)
{
    pthread_mutex_lock(&w->lock);
    bool busy = w->done != w->put;
    pthread_mutex_unlock(&w->lock);
    return busy;
}

u64 write_behind_end(const struct write_behind *w)
{
    return w->end;
}
