/* A storm of signals: timers, a child that sends, faults that are mended, handlers in handlers. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned ticks, sent, faults;
static sigjmp_buf back;

static void on_tick(int s)
{
    ticks++;
    raise(SIGUSR2);
}

static void on_sent(int s)
{
    sent++;
}

static void on_fault(int s)
{
    faults++;
    siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction a;
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    memset(&a, 0, sizeof(a));
    a.sa_flags = SA_RESTART;
    a.sa_handler = on_tick;
    sigaction(SIGALRM, &a, NULL);
    a.sa_handler = on_sent;
    sigaction(SIGUSR1, &a, NULL);
    sigaction(SIGUSR2, &a, NULL);
    a.sa_handler = on_fault;
    sigaction(SIGSEGV, &a, NULL);
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t parent = getpid(), child = fork();
    if (!child) {
        for (int i = 0; i < 100; i++) {
            kill(parent, SIGUSR1);
            usleep(300);
        }
        _exit(0);
    }
    setitimer(ITIMER_REAL, &every, NULL);
    unsigned long sum = 0;
    for (volatile unsigned i = 0; i < 500; i++) {
        if (!sigsetjmp(back, 1))
            none[i & 4095] = 1;
        for (unsigned k = 0; k < 2000; k++)
            sum = sum * 3 + k;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    printf("%u faults, sum %lx, ticks %s, signals %s\n", faults, sum, ticks ? "some" : "none",
           sent > ticks ? "some" : "none");
    return faults != 500;
}
