/*
 * Tests the module reprise_tsc from a program's side: `tsc-test` runs all, `tsc-test plain` what
 * also holds without the module, `tsc-test compat` 32-bit code, for engines that have it. One line
 * for each test; status 0 if all are good.
 */
#include "tsc-test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *test;
static int wrong, wrong_before;

void check(bool good, const char *what, ...)
{
    if (good)
        return;
    va_list list;
    va_start(list, what);
    printf("FAIL %s: ", test);
    vprintf(what, list);
    puts("");
    va_end(list);
    wrong++;
}

static long long parameter(const char *name)
{
    char path[80], text[32] = "";
    snprintf(path, sizeof(path), "/sys/module/reprise_tsc/parameters/%s", name);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    return n > 0 ? atoll(text) : -1;
}

long long answers_user(void)
{
    return parameter("user_answers");
}

long long answers_kernel(void)
{
    return parameter("kernel_answers");
}

uint64_t msr_tsc(void)
{
    return (uint64_t)parameter("tsc");
}

int signal_of(void (*f)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        f();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void run(const char *name, void (*f)(void))
{
    test = name;
    wrong_before = wrong;
    f();
    if (wrong == wrong_before)
        printf("ok %s\n", name);
    fflush(stdout);
}

static volatile sig_atomic_t ended;

static void on_term(int number)
{
    ended = 1;
}

/* Reads the TSC until SIGTERM, and sleeps a little in between. */
static void test_endless(void)
{
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    uint64_t last = 0;
    for (unsigned i = 0; !ended; i++) {
        uint32_t aux;
        if (i % 16 == 0)
            usleep(500);
        uint64_t a = rdtsc(), b = rdtscp(&aux);
        check(a >= last && b >= a, "it goes back");
        last = b;
    }
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "all";
    bool all = !strcmp(word, "all"), compat = !strcmp(word, "compat"),
         endless = !strcmp(word, "endless");
    if (argc > 2 || !(all || compat || endless || !strcmp(word, "plain"))) {
        fprintf(stderr, "usage: tsc-test [all | plain | compat | endless]\n");
        return 2;
    }
    if (compat || endless) {
        run(word, compat ? test_compat : test_endless);
        return wrong ? 1 : 0;
    }
    if (all) {
        run("values", test_values);
        run("processes", test_processes);
        run("prctl", test_prctl);
        run("clocks", test_clocks);
    }
    run("prefixes", test_prefixes);
    run("page-ends", test_page_ends);
    run("other-faults", test_other_faults);
    run("umip", test_umip);
    run("trap-flag", test_trap_flag);
    run("ptrace", test_ptrace);
    printf("tsc-test: %lld answers to programs, %lld to the kernel, %d wrong\n", answers_user(),
           answers_kernel(), wrong);
    return wrong ? 1 : 0;
}
