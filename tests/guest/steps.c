/*
 * What happens to a program while a debugger steps through it (tests/suite/gdb_user.py): pages
 * touched for the first time, timer ticks, signals, threads, other processes with the same
 * addresses, its end. At an address of its own, for gdb.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES   12
#define WORKERS 4
#define ROUNDS  3

static volatile int signals, sum;
static volatile unsigned long spins;
static volatile int note; /* each worker has its own, at one address */
static volatile int met[2];

static void on_signal(int sig)
{
    signals += sig;
}

static void touch(char *p)
{
    for (int i = 0; i < PAGES; i++)
        p[4096 * i] = (char)i;
    for (int i = 0; i < PAGES; i++)
        sum += p[4096 * i];
    return;
}

static void spin(unsigned long n)
{
    for (spins = 0; spins < n; spins++)
        continue;
}

static void work(int k)
{
    for (int n = 1; n <= ROUNDS; n++) {
        note = 100 * k + n;
        sched_yield();
    }
    if (k == 2)
        abort();
    _exit(k);
}

/* Two threads that take turns at each line. */
static void *thread(void *number)
{
    int k = *(int *)number;
    for (int n = 0; n < 10; n++) {
        met[k]++;
        while (met[!k] < met[k])
            sched_yield();
    }
    return NULL;
}

int main(void)
{
    int numbers[2] = {0, 1}, status, ends = 0;
    pthread_t other;
    char *p = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    touch(p);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    spin(4000000);
    for (int k = 0; k < WORKERS; k++)
        if (!fork())
            work(k);
    while (wait(&status) > 0)
        ends += WIFSIGNALED(status) ? 100 : WEXITSTATUS(status);
    pthread_create(&other, NULL, thread, &numbers[1]);
    thread(&numbers[0]);
    pthread_join(other, NULL);
    printf("steps %d %d %d %d\n", sum, signals, ends, met[0] + met[1]);
    return 7;
}
