/* Threads that take turns at a counter, by a mutex and a condition; prints who came how often. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, TURNS = 400 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static unsigned turn, order;

static void *work(void *arg)
{
    unsigned me = (unsigned)(size_t)arg, *done = calloc(1, sizeof(*done));
    while (*done < TURNS) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != me && turn < THREADS * TURNS / 2)
            pthread_cond_wait(&moved, &lock);
        turn++;
        order = order * 31 + me;
        ++*done;
        pthread_cond_broadcast(&moved);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

int main(void)
{
    pthread_t t[THREADS];
    unsigned all = 0;
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++) {
        void *done;
        pthread_join(t[i], &done);
        all += *(unsigned *)done;
    }
    printf("%u turns of %d threads, order %08x\n", all, THREADS, order);
    return all != THREADS * TURNS;
}
