/* virtio-console: the driver's side of the specification, and drivers that do not keep to it. */
#include "virtio_driver.h"

#include "dev/virtio/console.h"

enum { READY, ADD, REMOVE, PORT_READY, CONSOLE, RESIZE, OPEN, NAME };
enum { CONTROL_RX = 2, CONTROL_TX = 3, ONE_RX = 4, ONE_TX = 5, TWO_RX = 6, TWO_TX = 7 };
#define MULTIPORT 2u

struct message {
    u32 id;
    u16 event, value;
    char name[33];
};

static const char *const names[CONSOLE_PORTS] = {NULL, "one", "two"};

static struct driver *start(bool terminal)
{
    struct driver *d = malloc(sizeof(*d));
    struct err err;
    driver_init(d);
    assert_int_equal(virtio_console_create(&d->dev, &d->env, &d->pci, SLOT, terminal, names, &err),
                     0);
    driver_start(d, MULTIPORT, 8);
    return d;
}

static void end(struct driver *d)
{
    check_state(d);
    device_destroy(&d->dev);
    device_destroy(&d->pci);
    free(d);
}

static void say(struct driver *d, u32 id, u16 event, u16 value)
{
    struct message m = {id, event, value, ""};
    offer(d, CONTROL_TX, &m, 8);
    notify(d, CONTROL_TX);
}

static void room_for_messages(struct driver *d, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        offer(d, CONTROL_RX, NULL, 64);
    notify(d, CONTROL_RX);
}

static void hear(struct driver *d, u32 id, u16 event, u16 value, const char *name)
{
    const u8 *bytes = NULL;
    u32 len = 0;
    struct message m = {0};
    if (!came_back(d, CONTROL_RX, &bytes, &len))
        fail_msg("no message; event %u of port %u was expected", event, id);
    assert_true(len >= 8 && len < sizeof(m));
    memcpy(&m, bytes, len);
    assert_int_equal(m.id, id);
    assert_int_equal(m.event, event);
    assert_int_equal(m.value, value);
    assert_int_equal(len, 8 + strlen(name));
    assert_string_equal(m.name, name);
}

static void silence(struct driver *d)
{
    const u8 *bytes;
    u32 len;
    assert_false(came_back(d, CONTROL_RX, &bytes, &len));
}

static void bring_up(struct driver *d)
{
    room_for_messages(d, 16);
    say(d, 0, READY, 1);
    for (u32 i = 0; i < 3; i++)
        hear(d, i, ADD, 1, "");
    for (u32 i = 0; i < 3; i++)
        say(d, i, PORT_READY, 1);
    hear(d, 0, CONSOLE, 1, "");
    hear(d, 0, OPEN, 1, "");
    hear(d, 1, NAME, 1, "one");
    hear(d, 2, NAME, 1, "two");
    for (u32 i = 0; i < 3; i++)
        say(d, i, OPEN, 1);
    silence(d);
}

static void announces_its_ports(void **state)
{
    struct driver *d = start(true);
    assert_int_equal(bar_load(d, 0x12, 2), 8);   /* queues of three ports */
    assert_int_equal(bar_load(d, 0x2004, 4), 3); /* max_nr_ports */
    bring_up(d);
    assert_false(broken(d));
    end(d);
    /* Without a console there is no port 0, but its queues are there. */
    d = start(false);
    room_for_messages(d, 4);
    say(d, 0, READY, 1);
    hear(d, 1, ADD, 1, "");
    hear(d, 2, ADD, 1, "");
    say(d, 0, PORT_READY, 1); /* there is none */
    silence(d);
    offer(d, 1, "lost", 4);
    notify(d, 1);
    assert_int_equal(d->m.out_len, 0);
    end(d);
}

static void messages_wait_for_buffers(void **state)
{
    struct driver *d = start(true);
    say(d, 0, READY, 1);
    silence(d);
    check_state(d);
    room_for_messages(d, 2);
    hear(d, 0, ADD, 1, "");
    hear(d, 1, ADD, 1, "");
    silence(d);
    room_for_messages(d, 1);
    hear(d, 2, ADD, 1, "");
    say(d, 1, PORT_READY, 1);
    virtio_console_open(&d->dev, 1, true);
    virtio_console_open(&d->dev, 1, false);
    virtio_console_open(&d->dev, 1, true);
    room_for_messages(d, 3);
    hear(d, 1, NAME, 1, "one");
    hear(d, 1, OPEN, 1, ""); /* how it is now, once */
    silence(d);
    end(d);
}

static void carries_bytes_in(void **state)
{
    struct driver *d = start(true);
    const u8 *bytes;
    u32 len;
    offer(d, ONE_RX, NULL, 10);
    assert_int_equal(virtio_console_room(&d->dev, 1), 0); /* neither end is open */
    bring_up(d);
    assert_int_equal(virtio_console_room(&d->dev, 1), 0); /* the host's is not */
    virtio_console_open(&d->dev, 1, true);
    hear(d, 1, OPEN, 1, "");
    assert_int_equal(virtio_console_room(&d->dev, 1), 10);
    assert_int_equal(virtio_console_room(&d->dev, 2), 0);
    assert_int_equal(virtio_console_room(&d->dev, 7), 0);
    u64 before = state_hash(d->dev.ops->state, d->dev.state);
    virtio_console_receive(&d->dev, 1, (const u8 *)"more than ten", 13);
    assert_true(state_hash(d->dev.ops->state, d->dev.state) == before);
    virtio_console_receive(&d->dev, 1, (const u8 *)"hello", 5);
    assert_true(came_back(d, ONE_RX, &bytes, &len));
    assert_int_equal(len, 5);
    assert_memory_equal(bytes, "hello", 5);
    assert_int_equal(virtio_console_room(&d->dev, 1), 0);
    /* The console: typed bytes. */
    offer(d, 0, NULL, 64);
    assert_int_equal(virtio_console_room(&d->dev, 0), 64);
    virtio_console_receive(&d->dev, 0, (const u8 *)"ls\n", 3);
    assert_true(came_back(d, 0, &bytes, &len));
    assert_memory_equal(bytes, "ls\n", 3);
    /* The guest closes: no more room. */
    offer(d, ONE_RX, NULL, 10);
    say(d, 1, OPEN, 0);
    assert_int_equal(virtio_console_room(&d->dev, 1), 0);
    /* So does the host. */
    say(d, 1, OPEN, 1);
    assert_int_equal(virtio_console_room(&d->dev, 1), 10);
    virtio_console_open(&d->dev, 1, false);
    hear(d, 1, OPEN, 0, "");
    assert_int_equal(virtio_console_room(&d->dev, 1), 0);
    end(d);
}

static void carries_bytes_out(void **state)
{
    struct driver *d = start(true);
    const u8 *bytes;
    u32 len;
    bring_up(d);
    offer(d, TWO_TX, "nobody there", 12);
    notify(d, TWO_TX);
    assert_true(came_back(d, TWO_TX, &bytes, &len));
    assert_int_equal(d->nemitted, 0);
    u64 before = state_hash(d->dev.ops->state, d->dev.state);
    virtio_console_open(&d->dev, 2, true);
    offer(d, TWO_TX, "to ", 3);
    offer(d, TWO_TX, "two", 3);
    notify(d, TWO_TX);
    assert_int_equal(d->emit_unit, 2);
    assert_int_equal(d->nemitted, 6);
    assert_memory_equal(d->emitted, "to two", 6);
    assert_true(state_hash(d->dev.ops->state, d->dev.state) != before);
    offer(d, 1, "console", 7);
    notify(d, 1);
    assert_int_equal(d->m.out_len, 7);
    assert_memory_equal(d->m.out, "console", 7);
    assert_int_equal(d->nemitted, 6);
    end(d);
}

static void without_multiport(void **state)
{
    struct driver *d = start(true);
    driver_start(d, 0, 2);
    offer(d, 1, "early", 5);
    notify(d, 1);
    assert_memory_equal(d->m.out, "early", 5);
    offer(d, 0, NULL, 8);
    assert_int_equal(virtio_console_room(&d->dev, 0), 8);
    assert_int_equal(virtio_console_room(&d->dev, 1), 0);
    end(d);
}

static void reset_forgets_the_driver_only(void **state)
{
    struct driver *d = start(true);
    bring_up(d);
    virtio_console_open(&d->dev, 1, true);
    driver_start(d, MULTIPORT, 8);
    assert_int_equal(virtio_console_room(&d->dev, 1), 0);
    room_for_messages(d, 16);
    say(d, 1, PORT_READY, 1); /* before DEVICE_READY: nothing */
    silence(d);
    say(d, 0, READY, 1);
    for (u32 i = 0; i < 3; i++)
        hear(d, i, ADD, 1, "");
    say(d, 1, PORT_READY, 1);
    hear(d, 1, NAME, 1, "one");
    hear(d, 1, OPEN, 1, "");  /* the host's end is as it was */
    say(d, 1, PORT_READY, 0); /* the driver cannot */
    virtio_console_open(&d->dev, 1, false);
    silence(d);
    say(d, 0, READY, 0);
    check_state(d);
    end(d);
}

static void hostile_drivers(void **state)
{
    struct driver *d = start(true);
    bring_up(d);
    /* Messages that make no sense are ignored, short ones too. */
    say(d, 77, PORT_READY, 1);
    say(d, 0xffffffff, OPEN, 1);
    say(d, 1, 1000, 1);
    offer(d, CONTROL_TX, "abc", 3);
    notify(d, CONTROL_TX);
    silence(d);
    assert_false(broken(d));
    /* A buffer that a message does not fit into. */
    virtio_console_open(&d->dev, 1, true);
    hear(d, 1, OPEN, 1, "");
    bool open = true;
    while (d->given[CONTROL_RX] != d->seen[CONTROL_RX]) { /* use up the good ones */
        open = !open;
        virtio_console_open(&d->dev, 1, open);
        hear(d, 1, OPEN, open, "");
    }
    offer(d, CONTROL_RX, NULL, 7);
    virtio_console_open(&d->dev, 1, !open);
    assert_true(broken(d));
    assert_int_equal(virtio_console_room(&d->dev, 0), 0);
    check_state(d);
    /* Output longer than is reasonable: the same bytes many times over. */
    driver_start(d, MULTIPORT, 8);
    u32 huge = 0x30000;
    u16 next = 1;
    offer(d, 1, "x", 1);
    for (u16 i = 0; i < 8; i++, next++) {
        u8 *desc = d->ram + ring_of(1) + 16 * i;
        u16 flags = i < 7;
        u64 zero = 0;
        memcpy(desc, &zero, 8);
        memcpy(desc + 8, &huge, 4);
        memcpy(desc + 12, &flags, 2);
        memcpy(desc + 14, &next, 2);
    }
    notify(d, 1);
    assert_true(broken(d));
    end(d);
}

static void refuses_impossible_state(void **state)
{
    struct driver *d = start(true);
    struct err err;
    const struct state_desc *desc = d->dev.ops->state;
    bring_up(d);
    static const char *const fields[] = {"driver_ready", "pending", "ready", "guest_open",
                                         "host_open"};
    for (unsigned i = 0; i < ARRAY_SIZE(fields); i++)
        for (size_t f = 0; f < desc->nfields; f++)
            if (!strcmp(desc->fields[f].name, fields[i])) {
                /* The last: a port that does not exist. */
                u8 *p = (u8 *)d->dev.state + desc->fields[f].offset + desc->fields[f].count - 1;
                u8 good = *p;
                *p = 0x12;
                assert_int_not_equal(d->dev.ops->loaded(&d->dev, &err), 0);
                *p = good;
            }
    end(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(announces_its_ports), cmocka_unit_test(messages_wait_for_buffers),
        cmocka_unit_test(carries_bytes_in),    cmocka_unit_test(carries_bytes_out),
        cmocka_unit_test(without_multiport),   cmocka_unit_test(reset_forgets_the_driver_only),
        cmocka_unit_test(hostile_drivers),     cmocka_unit_test(refuses_impossible_state),
    };
    return cmocka_run_group_tests_name("virtio-console", tests, NULL, NULL);
}
