/* Landlock: what a child that entered it still reaches. Skipped by a kernel without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/landlock.h"

static char top[64], mine[96], theirs[96], file[128], other[128];

static int touch(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd;
}

static int setup(void **state)
{
    strcpy(top, "/tmp/test-landlock-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(mine, sizeof(mine), "%s/mine", top);
    snprintf(theirs, sizeof(theirs), "%s/theirs", top);
    snprintf(file, sizeof(file), "%s/file", mine);
    snprintf(other, sizeof(other), "%s/file", theirs);
    return mkdir(mine, 0700) || mkdir(theirs, 0700) || touch(file) < 0 || touch(other) < 0;
}

static int teardown(void **state)
{
    unlink(file);
    unlink(other);
    rmdir(mine);
    rmdir(theirs);
    rmdir(top);
    return 0;
}

/* The errno of what is tried, 0: it worked. */
static int tried(int fd)
{
    int why = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return why;
}

/* Runs `inside` in a child that has entered; its exit status. */
static int confined(unsigned may, int (*inside)(void))
{
    struct landlock_path p = {.path = mine, .may = may};
    int status;
    pid_t child = fork();
    if (!child) {
        int code = landlock_enter(&p, 1);
        _exit(code ? 99 : inside());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define EXPECT(what, code)                                                                         \
    do                                                                                             \
        if (tried(what) != (code))                                                                 \
            return __LINE__ % 90 + 1;                                                              \
    while (0)

static int reader(void)
{
    EXPECT(open(file, O_RDONLY), 0);
    EXPECT(open(file, O_WRONLY), EACCES);
    EXPECT(open(other, O_RDONLY), EACCES);
    EXPECT(open("/etc/passwd", O_RDONLY), EACCES);
    EXPECT(open(mine, O_RDONLY | O_DIRECTORY), 0);
    EXPECT(open("/", O_RDONLY | O_DIRECTORY), EACCES);
    return 0;
}

static int writer(void)
{
    char made[160];
    snprintf(made, sizeof(made), "%s/made", mine);
    EXPECT(open(made, O_WRONLY | O_CREAT | O_EXCL, 0600), 0);
    if (unlink(made))
        return 98;
    snprintf(made, sizeof(made), "%s/made", theirs);
    EXPECT(open(made, O_WRONLY | O_CREAT | O_EXCL, 0600), EACCES);
    return 0;
}

static int network(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    at.sin_port = htons(9);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        return 97;
    if (!connect(fd, (struct sockaddr *)&at, sizeof(at)) || errno != EACCES)
        return 96;
    return !kill(getppid(), 0) ? 95 : 0;
}

static void need(int abi)
{
    if (landlock_abi() < abi)
        skip();
}

static void test_reads(void **state)
{
    need(1);
    assert_int_equal(confined(LANDLOCK_READ, reader), 0);
}

static void test_creates(void **state)
{
    need(1);
    assert_int_equal(confined(LANDLOCK_READ | LANDLOCK_CREATE, writer), 0);
}

static void test_network(void **state)
{
    need(6);
    assert_int_equal(confined(LANDLOCK_READ, network), 0);
}

static void test_missing(void **state)
{
    struct landlock_path p[2] = {{.path = "/no/such/path", .may = LANDLOCK_READ, .optional = true},
                                 {.path = "/no/such/path", .may = LANDLOCK_READ}};
    int status;
    need(1);
    pid_t child = fork();
    if (!child)
        _exit(landlock_enter(p, 1) ? 1 : landlock_enter(p + 1, 1) != -ENOENT ? 2 : 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_creates),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
