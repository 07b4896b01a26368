/* See write_behind.h. A ring between the two threads: bytes are copied into it, and written out of
 * it, without the lock, which holds what each has done. */
#include "base/write_behind.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file_io.h"

#define RING  (8u << 20)
#define PIECE (1u << 20) /* written at once, so that there is room again soon */

/* Waking a thread costs who wakes it as much as copying a page or two. So the thread looks by
 * itself as long as more may come, and is woken only when nothing came for a while. */
#define LOOK_NS 1000000
#define LOOKS   50u

struct write_behind {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less; /* there is something to write; something was written */
    int fd;
    u64 start;     /* of the file, where byte 0 goes */
    u64 put, done; /* bytes that came, and that are in the file */
    int failed;
    unsigned looks; /* of the thread in which there was nothing, one after the other */
    bool sleeps;    /* it waits to be told of more */
    bool over;
    bool alone; /* there is no thread: what is put is written at once */
    u8 ring[RING];
};

static u32 next_part(const struct write_behind *w)
{
    u64 at = w->done % RING;
    return (u32)MIN(MIN(w->put - w->done, RING - at), (u64)PIECE);
}

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

static void *write_on(void *opaque)
{
    struct write_behind *w = opaque;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        u32 n = next_part(w);
        if (!n && w->over)
            break;
        if (!n) {
            rest(w);
            continue;
        }
        w->looks = 0;
        int failed = w->failed;
        u64 at = w->done;
        pthread_mutex_unlock(&w->lock);
        if (!failed && !file_write_at(w->fd, w->ring + at % RING, n, w->start + at))
            failed = errno ? -errno : -EIO;
        pthread_mutex_lock(&w->lock);
        w->failed = failed;
        w->done += n;
        pthread_cond_signal(&w->less);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct write_behind *write_behind_create(int fd, u64 end)
{
    struct write_behind *w = malloc(sizeof(*w)); /* memory only as far as it is used */
    sigset_t all, before;
    if (!w)
        return NULL;
    memset(w, 0, offsetof(struct write_behind, ring));
    w->fd = fd;
    w->start = end;
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

static void write_now(struct write_behind *w, const struct iovec *part)
{
    if (!w->failed && !file_write_at(w->fd, part->iov_base, part->iov_len, w->start + w->put))
        w->failed = errno ? -errno : -EIO;
    w->put = w->done = w->put + part->iov_len;
}

/* So many bytes more can be written. */
static int tell(struct write_behind *w, size_t copied)
{
    pthread_mutex_lock(&w->lock);
    w->put += copied;
    bool wake = w->sleeps && copied;
    w->sleeps = w->sleeps && !wake;
    int failed = w->failed;
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->more);
    return failed;
}

/* How many fit, once some do. */
static size_t wait_for_room(struct write_behind *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->put - w->done == RING)
        pthread_cond_signal(&w->more);
    while (w->put - w->done == RING)
        pthread_cond_wait(&w->less, &w->lock);
    size_t room = (size_t)(RING - (w->put - w->done));
    pthread_mutex_unlock(&w->lock);
    return room;
}

int write_behind_put(struct write_behind *w, const struct iovec *parts, unsigned n)
{
    size_t room = 0, copied = 0; /* copied: and not told of */
    if (!w->alone)
        room = wait_for_room(w);
    for (unsigned i = 0; i < n; i++) {
        const u8 *from = parts[i].iov_base;
        size_t left = parts[i].iov_len;
        if (w->alone)
            write_now(w, &parts[i]);
        while (!w->alone && left) {
            if (!room) {
                tell(w, copied);
                copied = 0;
                room = wait_for_room(w);
            }
            u64 at = (w->put + copied) % RING;
            size_t k = MIN(MIN(left, room), (size_t)(RING - at));
            memcpy(w->ring + at, from, k);
            from += k;
            left -= k;
            room -= k;
            copied += k;
        }
    }
    return tell(w, copied);
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
