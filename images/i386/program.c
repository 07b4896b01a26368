/*
 * One program for 32 bits, 64 bits and x32: what it prints is the same in all but the first line,
 * and the same on every CPU. Integers of 64 bits, floating point, jumps out of signal handlers,
 * threads, processes, files.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t mixed(uint64_t h, uint64_t v)
{
    h ^= v;
    h *= 0x9e3779b97f4a7c15;
    return h ^ h >> 29;
}

static void integers(void)
{
    uint64_t h = 1, q = 0;
    int64_t s = -1;
    for (uint64_t i = 1; i < 200000; i++) {
        h = mixed(h, i);
        q += h / (i * 77777 + 1) + h % (i | 1);
        s = s * 3 + (int64_t)(h >> (i & 63)) / -(int64_t)(i + 2);
    }
    printf("integers %llx %llx %lld\n", (unsigned long long)h, (unsigned long long)q, (long long)s);
}

static void floats(void)
{
    volatile double d = 0;
    volatile long double l = 1;
    volatile float f = 0;
    for (int i = 1; i < 2000; i++) {
        d = d + 1.0 / i;
        l = l * (1 + 1.0L / i);
        f = f + 0.1f;
    }
    printf("floats %.15g %.18Lg %.7g %.9f %lld\n", d, l, f, floor(-2.5) + fmod(17.25, 4),
           llrint(1e15 / 3));
}

static sigjmp_buf back;
static volatile sig_atomic_t count, info;

static void leave(int sig)
{
    count++;
    siglongjmp(back, sig);
}

static void note(int sig, siginfo_t *i, void *context)
{
    (void)context;
    count++;
    info = sig * 100 + i->si_value.sival_int;
}

static void signals(void)
{
    struct sigaction a = {.sa_handler = leave};
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGFPE, &a, NULL);
    volatile int sum = 0;
    for (volatile int i = 0; i < 200; i++) {
        int sig = sigsetjmp(back, 1);
        if (!sig && i & 1)
            *(volatile int *)(uintptr_t)(8 * i) = 1;
        if (!sig) {
            volatile int zero = 0;
            sum += i / zero;
        }
        sum += sig;
    }
    struct sigaction b = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 3, &b, NULL);
    sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 42});
    printf("signals %d %d %d\n", sum, (int)count, (int)info);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t shared;
static __thread uint64_t mine = 7;

static void *thread(void *arg)
{
    for (int i = 0; i < 3000; i++) {
        mine = mixed(mine, (uintptr_t)arg + (unsigned)i);
        pthread_mutex_lock(&lock);
        shared += mine >> 32;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t t[4];
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, thread, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    printf("threads %llu %llu\n", (unsigned long long)shared, (unsigned long long)mine);
}

static void processes(void)
{
    int fds[2], status, sum = 0;
    if (pipe(fds))
        return;
    for (int i = 0; i < 5; i++)
        if (!fork()) {
            char c = (char)(i + 1);
            _exit(write(fds[1], &c, 1) == 1 ? i : 99);
        }
    for (int i = 0; i < 5; i++) {
        char c = 0;
        sum += read(fds[0], &c, 1) == 1 ? c : 1000;
        wait(&status);
        sum += 10 * WEXITSTATUS(status);
    }
    printf("processes %d\n", sum);
}

static void files(void)
{
    char name[] = "/tmp/programXXXXXX", buf[32] = "";
    int fd = mkstemp(name);
    struct iovec v[2] = {{"first ", 6}, {"second", 6}};
    struct stat st;
    unlink(name);
    long n = writev(fd, v, 2);
    long at = lseek(fd, 3, SEEK_SET);
    long got = pread(fd, buf, sizeof buf - 1, 6);
    fstat(fd, &st);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    printf("files %ld %ld %ld %s %lld %.5s\n", n, at, got, buf, (long long)st.st_size,
           map == MAP_FAILED ? "none" : map);
    munmap(map, 4096);
    close(fd);
}

/* Clocks through the vDSO and by the system call. */
static void clocks(void)
{
    struct timespec a, b, c;
    int wrong = 0;
    for (int i = 0; i < 1000; i++) {
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a);
        clock_gettime(CLOCK_MONOTONIC, &b);
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &c);
        wrong += b.tv_sec < a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec < a.tv_nsec) ||
                 c.tv_sec < b.tv_sec || (c.tv_sec == b.tv_sec && c.tv_nsec < b.tv_nsec);
    }
    struct timespec ms = {0, 1000000};
    struct timeval tv;
    printf("clocks %d %d %d\n", wrong, nanosleep(&ms, NULL), gettimeofday(&tv, NULL));
}

int main(void)
{
    printf("pointers %zu long %zu\n", sizeof(void *), sizeof(long));
    integers();
    floats();
    fflush(stdout);
    signals();
    threads();
    fflush(stdout);
    processes();
    files();
    clocks();
    long none = syscall(9999);
    printf("errors %ld %s\n", none, strerror(errno));
    return 0;
}
