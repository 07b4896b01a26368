/*
 * Ways of processes to end, with threads (tests/suite/life_points.py): by a signal that one thread
 * gets, by exit() or execve() of one while others run, which looks to the kernel as if it killed
 * those; and a tree of processes that each say whose child they are. At an address of its own.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

static volatile int ready;

static void *waits(void *arg)
{
    ready = 1;
    for (;;)
        pause();
    return arg;
}

static void *dies(void *how)
{
    while (!ready)
        usleep(1000);
    if (!strcmp(how, "segv"))
        *(volatile int *)8 = 1;
    else if (!strcmp(how, "abort"))
        abort();
    else if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    else if (!strcmp(how, "then"))
        execl("/bin/deaths", "/bin/deaths", "plain", NULL);
    else
        exit(4);
    return NULL;
}

/* `width` children each, `depth` deep. */
static int tree(int depth, int width)
{
    printf("tree %d %d\n", getpid(), getppid());
    fflush(stdout);
    for (int i = 0; depth && i < width; i++) {
        if (!fork())
            return tree(depth - 1, width);
        if (i % 2)
            wait(NULL);
    }
    while (wait(NULL) > 0)
        ;
    return depth;
}

int main(int argc, char **argv)
{
    pthread_t other[2];
    if (argc > 3 && !strcmp(argv[1], "tree"))
        return tree(atoi(argv[2]), atoi(argv[3]));
    if (argc < 2 || !strcmp(argv[1], "plain"))
        return 5;
    printf("%s %d\n", argv[1], getpid());
    fflush(stdout);
    pthread_create(&other[0], NULL, waits, NULL);
    pthread_create(&other[1], NULL, dies, argv[1]);
    waits(NULL);
    return 1;
}
