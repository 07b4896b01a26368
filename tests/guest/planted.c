/*
 * Races that were planted, for hunts (tests/suite/hunt.py) and whoever looks for them by chaos:
 *
 *     planted KIND [N]
 *
 *     counter   two threads add to an unlocked counter: "lost ...", status 3
 *     wakeup    a thread looks at a flag, and then waits for a signal that was sent in between:
 *               it hangs
 *     deadlock  two locks that are taken in either order: it hangs
 *     publish   a pointer is published before what it points to is there: SIGSEGV
 *
 * Without N the window is as narrow as it comes: some instructions. With N it is held open in one
 * of N runs, as the kernel's randomness will have it, so that a seed decides. Otherwise "fine",
 * status 0.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define ADDED   50    /* by each thread */
#define ROUNDS  30    /* of publishing */
#define HELD_US 20000 /* longer than a turn of the scheduler */

static int held; /* in this run the window is held open */
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rings = PTHREAD_COND_INITIALIZER;

/* Threads begin one after the other, and end long before the next one begins. */
static void together(void)
{
    static atomic_int there;
    there++;
    while (there < 2)
        sched_yield();
}

static void window(void)
{
    if (held)
        usleep(HELD_US);
}

/* Into the middle of a window that is held open. */
static void late(void)
{
    if (held)
        usleep(HELD_US / 2);
}

/* ---- counter ---- */

static volatile int counter;

static void *adds(void *unused)
{
    together();
    for (int i = 0; i < ADDED; i++) {
        int was = counter;
        if (i == ADDED / 2)
            window();
        counter = was + 1;
    }
    return unused;
}

/* ---- wakeup ---- */

static volatile int ready;

static void *waits(void *unused)
{
    together();
    if (!ready) {
        window();
        pthread_mutex_lock(&a);
        pthread_cond_wait(&rings, &a); /* and does not look again */
        pthread_mutex_unlock(&a);
    }
    return unused;
}

static void *wakes(void *unused)
{
    together();
    late();
    ready = 1;
    pthread_cond_signal(&rings);
    return unused;
}

/* ---- deadlock ---- */

static void *locks(pthread_mutex_t *first, pthread_mutex_t *second)
{
    pthread_mutex_lock(first);
    window();
    pthread_mutex_lock(second);
    counter++;
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
    return NULL;
}

static void *a_then_b(void *unused)
{
    (void)unused;
    together();
    return locks(&a, &b);
}

static void *b_then_a(void *unused)
{
    (void)unused;
    together();
    return locks(&b, &a);
}

/* ---- publish ---- */

struct item {
    int *value;
};
static struct item *volatile published;
static struct item item;
static int value = 42;

static void *writes(void *unused)
{
    together();
    for (int i = 0; i < ROUNDS; i++) {
        item.value = NULL;
        published = &item;
        if (!i)
            window();
        *(int *volatile *)&item.value = &value;
        published = NULL;
    }
    return unused;
}

static void *reads(void *unused)
{
    together();
    late();
    for (int i = 0; i < ROUNDS; i++) {
        struct item *got = published;
        if (got)
            counter = **(int *volatile *)&got->value;
    }
    return unused;
}

static const struct {
    const char *name;
    void *(*one)(void *), *(*other)(void *);
} kinds[] = {{"counter", adds, adds},
             {"wakeup", waits, wakes},
             {"deadlock", a_then_b, b_then_a},
             {"publish", writes, reads}};

int main(int argc, char **argv)
{
    unsigned char drawn;
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (n > 0 && getrandom(&drawn, 1, 0) == 1)
        held = drawn % n == 0;
    for (unsigned i = 0; argc > 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        pthread_t one, other;
        if (strcmp(kinds[i].name, argv[1]))
            continue;
        pthread_create(&one, NULL, kinds[i].one, NULL);
        pthread_create(&other, NULL, kinds[i].other, NULL);
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        if (!strcmp(argv[1], "counter") && counter != 2 * ADDED) {
            printf("lost %d of %d\n", 2 * ADDED - counter, 2 * ADDED);
            return 3;
        }
        puts("fine");
        return 0;
    }
    fputs("planted counter|wakeup|deadlock|publish [N]\n", stderr);
    return 2;
}
