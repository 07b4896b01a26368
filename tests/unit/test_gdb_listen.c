/* Where the server listens, and whom it serves. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include "gdb_peer.h"

static void test_endpoints(void **state)
{
    static const struct {
        const char *text;
        int kind; /* -1: refused */
        const char *host, *port;
    } cases[] = {
        {"1234", ENDPOINT_TCP, "127.0.0.1", "1234"},
        {":0", ENDPOINT_TCP, "127.0.0.1", "0"},
        {"0.0.0.0:65535", ENDPOINT_TCP, "0.0.0.0", "65535"},
        {"localhost:1", ENDPOINT_TCP, "localhost", "1"},
        {"[::1]:80", ENDPOINT_TCP, "::1", "80"},
        {"0.0.0.0:1,open", ENDPOINT_TCP, "0.0.0.0", "1"},
        {"1,closed", -1, "", ""},
        {",open", -1, "", ""},
        {"-", ENDPOINT_STDIO, "", ""},
        {"unix:/tmp/x", ENDPOINT_UNIX, "", ""},
        {"", -1, "", ""},
        {":", -1, "", ""},
        {"host", -1, "", ""},
        {"host:", -1, "", ""},
        {"host:port", -1, "", ""},
        {":65536", -1, "", ""},
        {":-1", -1, "", ""},
        {":+1", -1, "", ""},
        {": 1", -1, "", ""},
        {":1x", -1, "", ""},
        {"::1:80", -1, "", ""},
        {"[::1:80", -1, "", ""},
        {"[]:80", -1, "", ""},
        {"unix:", -1, "", ""},
    };
    char long_name[600];
    struct endpoint e;
    struct err err;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        int code = endpoint_parse(&e, cases[i].text, &err);
        if ((code < 0) != (cases[i].kind < 0))
            fail_msg("\"%s\" gives %d", cases[i].text, code);
        if (code < 0)
            continue;
        assert_int_equal(e.kind, cases[i].kind);
        assert_string_equal(e.host, cases[i].host);
        assert_string_equal(e.port, cases[i].port);
    }
    memset(long_name, 'a', sizeof(long_name));
    strcpy(long_name + 500, ":1");
    assert_true(endpoint_parse(&e, long_name, &err) < 0);
    memcpy(long_name, "unix:", 5);
    assert_true(endpoint_parse(&e, long_name, &err) < 0);
}

static int connect_to(const char *address)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(strncmp(address, "127.0.0.1:", 10), 0);
    a.sin_port = htons((u16)atoi(address + 10));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* Polls until there is news; a moment may pass on a real socket. */
static bool news(struct gdb_server *s)
{
    for (unsigned i = 0; i < 2000; i++) {
        if (gdb_server_poll(s))
            return true;
        usleep(1000);
    }
    return false;
}

static void test_tcp(void **state)
{
    struct gdb_server *s, *other;
    struct gdb_resume resume;
    struct err err;
    char text[128];
    int fds[GDB_SERVER_FDS];
    t.m = fake_machine(CPU_X86_64_V2);
    assert_int_equal(gdb_server_create(&s, ":0", &target, &err), 0);
    assert_true(gdb_server_create(&other, gdb_server_address(s), &target, &err) < 0);
    assert_non_null(strstr(err.text, "in use"));
    assert_false(gdb_server_poll(s));
    assert_int_equal(gdb_server_fds(s, fds), 1);
    int fd = connect_to(gdb_server_address(s));
    /* Who connects and says nothing is not yet anybody. */
    for (unsigned i = 0; i < 5; i++, usleep(1000))
        assert_false(gdb_server_poll(s));
    say(fd, "c", 1);
    assert_true(news(s));
    assert_int_equal(gdb_server_wait(s, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_CONTINUE);
    assert_true(gdb_server_connected(s));
    assert_int_equal(gdb_server_fds(s, fds), 2);
    assert_false(gdb_server_poll(s));
    /* A second debugger is told so, and the first does not notice. */
    int second = connect_to(gdb_server_address(s));
    say(second, "qSupported", 10);
    for (unsigned i = 0; i < 5; i++, usleep(1000))
        assert_false(gdb_server_poll(s));
    ssize_t n = recv(second, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "another debugger"));
    assert_int_equal(recv(second, text, sizeof(text), 0), 0);
    close(second);
    /* It interrupts, then vanishes. */
    assert_int_equal(send(fd, "\x03", 1, 0), 1);
    assert_true(news(s));
    struct gdb_stop stop = {.reason = GDB_STOP_INTERRUPT};
    gdb_server_stopped(s, &stop);
    close(fd);
    assert_int_equal(gdb_server_wait(s, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_GONE);
    assert_false(gdb_server_connected(s));
    /* And another one comes. */
    fd = connect_to(gdb_server_address(s));
    say(fd, "D", 1);
    assert_int_equal(gdb_server_wait(s, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_DETACH);
    close(fd);
    gdb_server_destroy(s);
}

static unsigned warnings;
static char warning[400];

static void warn(void *opaque, const char *text)
{
    warnings++;
    snprintf(warning, sizeof(warning), "%s", text);
}

/* What no gdb says hangs up, from the first byte on and without a word of it being served: a web
 * page's request, also one whose method is a packet. The owner does not notice. */
static void test_strangers(void **state)
{
    static const char *const requests[] = {"POST / HTTP/1.1\r\n\r\n$c#63", "\x16\x03\x01", " $c#63",
                                           "\n$c#63", "c$c#63"};
    struct gdb_target warned = target;
    struct gdb_server *s;
    struct gdb_resume resume;
    struct err err;
    char byte;
    t.m = fake_machine(CPU_X86_64_V2);
    warned.warn = warn;
    warnings = 0;
    assert_int_equal(gdb_server_create(&s, ":0", &warned, &err), 0);
    for (unsigned i = 0; i < ARRAY_SIZE(requests); i++) {
        int fd = connect_to(gdb_server_address(s));
        assert_int_equal(send(fd, requests[i], strlen(requests[i]), 0), strlen(requests[i]));
        for (unsigned turn = 0; turn < 2000 && warnings == i; turn++, usleep(1000))
            assert_false(gdb_server_poll(s));
        for (unsigned turn = 0; turn < 3; turn++)
            assert_false(gdb_server_poll(s));
        assert_int_equal(warnings, i + 1);
        assert_non_null(strstr(warning, "not gdb's protocol"));
        assert_false(gdb_server_poll(s));
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
    /* The same while the owner waits: who comes next is served. */
    int fd = connect_to(gdb_server_address(s)), next = connect_to(gdb_server_address(s));
    assert_int_equal(send(fd, "GET", 3, 0), 3);
    say(next, "c", 1);
    assert_int_equal(gdb_server_wait(s, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_CONTINUE);
    close(fd);
    close(next);
    gdb_server_destroy(s);
}

/* "$g#67 / HTTP/1.1": what follows a packet is looked at as well. */
static void test_garbage_later(void **state)
{
    struct gdb_resume resume;
    struct err err;
    say(peer, "qC", 2);
    static const char later[] = " / HTTP/1.1\r\n\r\n$c#63";
    assert_int_equal(send(peer, later, sizeof(later) - 1, 0), sizeof(later) - 1);
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_GONE);
    assert_false(gdb_server_connected(server));
}

/* Other addresses are opened only on request. */
static void test_open(void **state)
{
    struct gdb_server *s;
    struct err err;
    assert_int_equal(gdb_server_create(&s, "0.0.0.0:0", &target, &err), -EACCES);
    assert_non_null(strstr(err.text, ",open"));
    assert_int_equal(gdb_server_create(&s, "0.0.0.0:0,open", &target, &err), 0);
    assert_true(gdb_server_open_to_all(s));
    gdb_server_destroy(s);
    assert_int_equal(gdb_server_create(&s, "127.0.0.1:0", &target, &err), 0);
    assert_false(gdb_server_open_to_all(s));
    gdb_server_destroy(s);
}

/* Without an endpoint: a socket in a directory of its own, both for this user alone. */
static void test_private(void **state)
{
    char path[120];
    struct gdb_server *s;
    struct stat st;
    struct err err;
    assert_int_equal(gdb_server_create(&s, NULL, &target, &err), 0);
    snprintf(path, sizeof(path), "%s", gdb_server_address(s));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    *strrchr(path, '/') = 0;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    gdb_server_destroy(s);
    assert_int_equal(stat(path, &st), -1);
}

static void test_unix(void **state)
{
    char directory[] = "/tmp/gdb-test-XXXXXX", path[64], endpoint[80];
    struct gdb_server *s, *other;
    struct stat st;
    struct err err;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/socket", directory);
    snprintf(endpoint, sizeof(endpoint), "unix:%s", path);
    assert_int_equal(gdb_server_create(&s, endpoint, &target, &err), 0);
    assert_string_equal(gdb_server_address(s), path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(gdb_server_create(&other, endpoint, &target, &err) < 0);
    assert_non_null(strstr(err.text, "in use"));
    /* Nobody listens there any more, but the file stays: as after a crash. */
    s->listener.made_file = false;
    gdb_server_destroy(s);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(gdb_server_create(&s, endpoint, &target, &err), 0);
    gdb_server_destroy(s);
    assert_true(stat(path, &st) < 0);
    /* A file that is no socket is left alone. */
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_true(gdb_server_create(&s, endpoint, &target, &err) < 0);
    assert_non_null(strstr(err.text, "not a socket"));
    assert_int_equal(unlink(path), 0);
    snprintf(endpoint, sizeof(endpoint), "unix:%s/none/socket", directory);
    assert_true(gdb_server_create(&s, endpoint, &target, &err) < 0);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endpoints), cmocka_unit_test(test_tcp), cmocka_unit_test(test_unix),
        cmocka_unit_test(test_strangers), CASE(test_garbage_later),   cmocka_unit_test(test_open),
        cmocka_unit_test(test_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
