/* A server of a machine that is faked, and its peer, which is the test. */
#ifndef REPRISE_GDB_PEER_H
#define REPRISE_GDB_PEER_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gdb_fake.h"
#include "replay/gdb/regs.h"
#include "replay/gdb/server.h"

/* What the target was asked. */
static struct {
    struct machine *m;
    const struct gdb_point *points;
    size_t npoints;
    unsigned seen;
    struct gdb_code code;
    unsigned writes;
    bool refuse_writes, refuse_points;
} t;

static struct gdb_server *server;
static int peer; /* our end */

static inline struct machine *machine(void *opaque)
{
    return t.m;
}

static inline int set_points(void *opaque, const struct gdb_point *points, size_t count,
                             struct err *err)
{
    if (t.refuse_points)
        return err_set(err, -1, "no room");
    t.points = points;
    t.npoints = count;
    return 0;
}

static inline int before_write(void *opaque, struct err *err)
{
    if (t.refuse_writes)
        return err_set(err, -1, "not in a recording");
    t.writes++;
    return 0;
}

static inline void seen(void *opaque)
{
    t.seen++;
}

static inline void back(void *opaque, const struct gdb_code *code)
{
    t.code = *code;
}

static inline enum gdb_monitor monitor(void *opaque, const char *command, FILE *out)
{
    if (!strcmp(command, "long"))
        for (unsigned i = 0; i < 1000; i++)
            fprintf(out, "line %u\n", i);
    else if (!strcmp(command, "go"))
        return GDB_MONITOR_MOVED;
    else if (strcmp(command, "help"))
        return GDB_MONITOR_UNKNOWN;
    fputs("done\n", out);
    return GDB_MONITOR_OK;
}

static const struct gdb_target target = {.can_reverse = true,
                                         .machine = machine,
                                         .set_points = set_points,
                                         .before_write = before_write,
                                         .seen = seen,
                                         .back = back,
                                         .monitor = monitor};

static inline int setup(void **state)
{
    struct err err;
    int pair[2];
    memset(&t, 0, sizeof(t));
    t.m = fake_machine(CPU_X86_64_V2);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(server_create_bare(&server, &target, &err), 0);
    server_attach(server, pair[0], pair[0]);
    server->no_ack = true;
    peer = pair[1];
    return 0;
}

static inline int teardown(void **state)
{
    gdb_server_destroy(server);
    close(peer);
    return 0;
}

static inline void say(int fd, const char *packet, size_t len)
{
    char text[512];
    u8 sum = 0;
    assert_true(len + 8 < sizeof(text));
    for (size_t i = 0; i < len; i++)
        sum = (u8)(sum + (u8)packet[i]);
    text[0] = '$';
    memcpy(text + 1, packet, len);
    snprintf(text + 1 + len, 8, "#%02x", sum);
    assert_int_equal(send(fd, text, len + 4, MSG_NOSIGNAL), len + 4);
}

/* The next packet that came back, decoded; NULL when there is none. Acknowledgements are skipped.
 */
static inline const char *hear(int fd)
{
    static struct packet_reader r;
    u8 byte;
    memset(&r, 0, sizeof(r));
    while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1) {
        enum packet_event e = packet_read(&r, byte);
        if (e == PACKET_READY)
            return r.data;
        assert_true(e == PACKET_NONE || e == PACKET_ACK);
    }
    return NULL;
}

static inline void expect_bytes(const char *packet, size_t len, const char *reply)
{
    struct gdb_resume resume;
    struct err err;
    say(peer, packet, len);
    /* Nothing but the end of the conversation ends this wait: a packet that gives the owner its
     * turn follows. */
    say(peer, "bs", 2);
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_REVERSE_STEP);
    server->running = false;
    const char *heard = hear(peer);
    assert_non_null(heard);
    if (strcmp(heard, reply))
        fail_msg("%s: %s, not %s", packet, heard, reply);
    assert_null(hear(peer));
}

static inline void expect(const char *packet, const char *reply)
{
    expect_bytes(packet, strlen(packet), reply);
}

static inline enum gdb_action resumed(const char *packet, struct gdb_resume *resume)
{
    struct err err;
    say(peer, packet, strlen(packet));
    assert_int_equal(gdb_server_wait(server, resume, &err), 0);
    return resume->action;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
