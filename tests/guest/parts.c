/*
 * A process for gdb alone (tests/suite/gdb_process.py): threads that spin, wait and sleep with
 * known registers, which they print themselves; two of it run at once. At an address of its own,
 * for gdb.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>

static int never[2];
static char *block; /* what is overwritten */
static volatile int ready;
static volatile unsigned long spins;

static void say(const char *what, unsigned long mark)
{
    printf("%s %d tid %ld fs %lx mark %lx\n", what, getpid(), syscall(SYS_gettid),
           (unsigned long)pthread_self(), mark);
    fflush(stdout);
    ready++;
}

/* Blocks in read() with `mark` in R12 and XMM7. */
static void *waits(void *arg)
{
    unsigned long mark = 0xaaaa000000000000ul + (unsigned long)getpid(), got;
    say("waits", mark);
    char byte;
    __asm__ volatile("mov %1, %%r12\n\tmovq %1, %%xmm7\n\txor %%eax, %%eax\n\t"
                     ".globl waits_there\n\tsyscall\nwaits_there:\n\tmov %%r12, %1"
                     : "=&a"(got), "+r"(mark)
                     : "D"((long)never[0]), "S"(&byte), "d"(1L)
                     : "rcx", "r11", "r12", "xmm7", "memory");
    return arg;
}

/* Spins with it in R13 and XMM6. */
static void *spins_on(void *arg)
{
    unsigned long mark = 0xbbbb000000000000ul + (unsigned long)getpid();
    say("spins", mark);
    __asm__ volatile("mov %0, %%r13\n\tmovq %0, %%xmm6\n\t"
                     ".globl spins_first\nspins_first:\n\tincq %1\n\tjmp spins_first"
                     :
                     : "r"(mark), "m"(spins)
                     : "r13", "xmm6", "memory");
    return arg;
}

static void __attribute__((noinline)) overwrite(char *at, int with)
{
    memset(at, with, 24);
}

static void __attribute__((noinline)) work(int round)
{
    overwrite(block + 8 * (round % 3), 'a' + round);
    usleep(3000);
}

int main(int argc, char **argv)
{
    pthread_t other[2];
    if (pipe(never))
        return 1;
    if (argc > 1 && !strcmp(argv[1], "then")) { /* becomes another program */
        execl("/bin/parts", "parts", "plain", NULL);
        return 1;
    }
    block = malloc(64);
    if (argc > 1 && !strcmp(argv[1], "plain")) {
        overwrite(block, 'x');
        return 5;
    }
    pthread_create(&other[0], NULL, waits, NULL);
    pthread_create(&other[1], NULL, spins_on, NULL);
    while (ready < 2)
        usleep(1000);
    say("main", 0);
    for (int i = 0; i < 6; i++)
        work(i);
    printf("end %d\n", getpid());
    return 3;
}
