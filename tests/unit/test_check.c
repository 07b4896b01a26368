/* What a CHECK that fails prints: where, the last events, the command that goes there. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "machine/last.h"

#define EVENTS 25u

static void print(void *opaque)
{
    last_print(opaque, "some/dir", UNIT_INSN, 4711, stderr);
}

static _Noreturn void fail_here(int out)
{
    const struct input in = {.kind = INPUT_PACKET, .len = 60};
    struct last_events last = {.n = 0};
    for (unsigned i = 0; i < EVENTS; i++)
        if (i == 20)
            last_input(&last, 100 + i, &in);
        else
            last_exit(&last, 100 + i, ENGINE_ATTENTION);
    dup2(out, STDERR_FILENO);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(SIGABRT, SIG_DFL); /* cmocka has a handler */
    check_set_context(print, &last);
    CHECK(EVENTS < 3, "%u is too many", EVENTS);
    _exit(0);
}

static void says_where(void **state)
{
    int fd[2];
    char text[4096] = "";
    assert_int_equal(pipe(fd), 0);
    pid_t child = fork();
    if (!child)
        fail_here(fd[1]);
    close(fd[1]);
    size_t n = 0;
    for (ssize_t r; n < sizeof(text) - 1 && (r = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0;)
        n += (size_t)r;
    close(fd[0]);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_check.c:"));
    assert_non_null(strstr(text, "CHECK(EVENTS < 3): 25 is too many\n"));
    assert_non_null(strstr(text, "the last 20 events before it:\n  105 engine: attention\n"));
    assert_null(strstr(text, "  104 "));
    assert_non_null(strstr(text, "  120 input packet, 60 bytes\n  121 engine: attention\n"));
    assert_non_null(strstr(text, "  124 engine: attention\nreprise: to go there: reprise gdb --to "
                                 "insn:4711 some/dir "));
}

static void without_events(void **state)
{
    static const struct {
        const char *dir, *says;
        enum position_unit unit;
    } cases[] = {
        {NULL, "", UNIT_INSN},
        {"it's here", "gdb --to insn:3 'it'\\''s here' (", UNIT_INSN},
        {"-a", "replay --to insn:3 ./-a (", UNIT_BRANCH}, /* which gdb does not take */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct last_events none = {.n = 0};
        char *text;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        last_print(&none, cases[i].dir, cases[i].unit, 3, out);
        fclose(out);
        assert_non_null(strstr(text, cases[i].says));
        assert_int_equal(!*text, !cases[i].dir);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_where),
                                       cmocka_unit_test(without_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
