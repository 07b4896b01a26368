/* host/child.h: what a program prints is taken, and every bound holds. */
#include "host/child.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/clock.h"

static const struct child_limits usual = {.seconds = 20, .output = 1 << 20, .memory = 1ull << 30};

static int sh(const char *script, const struct child_limits *l, char **out, size_t *size,
              struct err *err)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    *err = (struct err){0};
    return child_run(argv, l, out, size, err);
}

static void good(const char *script, const char *result)
{
    char *out;
    size_t size;
    struct err err;
    if (sh(script, &usual, &out, &size, &err))
        fail_msg("%s: %s", script, err.text);
    assert_int_equal(size, strlen(result));
    assert_string_equal(out, result);
    free(out);
}

static void bad(const char *script, const struct child_limits *l, int code, const char *text)
{
    char *out;
    size_t size;
    struct err err;
    u64 began = host_ns();
    assert_int_equal(sh(script, l, &out, &size, &err), code);
    assert_null(out);
    if (!strstr(err.text, text))
        fail_msg("%s: '%s'", script, err.text);
    assert_true(host_ns() - began < 15000000000ull); /* not until it ended by itself */
}

static void output(void **state)
{
    good("echo hello; echo error >&2", "hello\n");
    good("exit 0", "");
    good("cat", "");                               /* no input of ours */
    good("echo $HOME$REPRISE_TEST$LC_ALL", "C\n"); /* no environment of ours */
    good("head -c 300000 /dev/zero >&2; echo still here", "still here\n");
    char *out;
    size_t size;
    struct err err;
    assert_int_equal(sh("head -c 700000 /dev/zero", &usual, &out, &size, &err), 0);
    assert_int_equal(size, 700000);
    free(out);
}

static void bounds(void **state)
{
    struct child_limits l = usual;
    bad("echo one >&2; echo two >&2; exit 3", &l, -EIO, "two");
    bad("printf 'a\\033[31mb' >&2; exit 1", &l, -EIO, "a?[31mb");
    bad("exit 3", &l, -EIO, "sh failed");
    bad("kill -SEGV $$", &l, -EIO, "signal 11");
    bad("head -c 2000000 /dev/zero; sleep 20", &l, -EFBIG, "more than 1048576 bytes");
    bad("echo x >file", &l, -EIO, "");
    l.seconds = 1;
    bad("sleep 20", &l, -ETIMEDOUT, "longer than 1 s");
    bad("while :; do :; done", &l, -ETIMEDOUT, "longer than 1 s");
    bad("exec >&- 2>&-; sleep 20", &l, -ETIMEDOUT, "longer than 1 s");
    const char *none[] = {"reprise-no-such-program", NULL};
    char *out;
    size_t size;
    struct err err;
    assert_int_equal(child_run(none, &usual, &out, &size, &err), -ENOENT);
    assert_null(out);
}

static void interrupted(void **state)
{
    sigset_t set, old, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGTERM);
    bad("sleep 20", &usual, -EINTR, "interrupted");
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGTERM), 1); /* still ours to take */
    signal(SIGTERM, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output),
        cmocka_unit_test(bounds),
        cmocka_unit_test(interrupted),
    };
    char dir[] = "/tmp/reprise-child-XXXXXX";
    if (setenv("REPRISE_TEST", "seen", 1) || !mkdtemp(dir) || chdir(dir))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink("file");
    return rmdir(dir) ? 1 : failed;
}
