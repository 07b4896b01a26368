/* A machine of cardboard for the device tests: it keeps what a device said, and the time. */
#ifndef REPRISE_TEST_DEV_MOCK_H
#define REPRISE_TEST_DEV_MOCK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dev/device.h"
#include "dev/lapic.h"
#include "dev/util.h"

#define MS 1000000ull
#define US 1000ull

struct mock {
    vns_t time;
    bool line[32];
    unsigned rises[32];
    unsigned msis, eois, changes, events;
    u64 msi_addr;
    u32 msi_data;
    u8 eoi_vector;
    enum dev_event event;
    u32 event_arg;
    char out[64];
    size_t out_len;
    u64 trace; /* hash of everything above in order */
    void (*on_msi)(void *opaque, u64 addr, u32 data);
    void (*on_eoi)(void *opaque, u8 vector);
    void *opaque;
};

static inline void mock_trace(struct mock *m, u64 tag, u64 v)
{
    m->trace = (m->trace ^ (tag << 56) ^ v) * 0x9e3779b97f4a7c15ull;
    m->trace ^= m->trace >> 29;
}

static vns_t mock_now(void *p)
{
    return ((struct mock *)p)->time;
}

static void mock_irq(void *p, unsigned gsi, bool level)
{
    struct mock *m = p;
    assert_true(gsi < 24);
    m->rises[gsi] += level && !m->line[gsi];
    m->line[gsi] = level;
    mock_trace(m, 1, gsi * 2 + level);
}

static void mock_msi(void *p, u64 addr, u32 data)
{
    struct mock *m = p;
    m->msis++;
    m->msi_addr = addr;
    m->msi_data = data;
    mock_trace(m, 2, addr << 16 ^ data);
    if (m->on_msi)
        m->on_msi(m->opaque, addr, data);
}

static void mock_eoi(void *p, u8 vector)
{
    struct mock *m = p;
    m->eois++;
    m->eoi_vector = vector;
    mock_trace(m, 3, vector);
    if (m->on_eoi)
        m->on_eoi(m->opaque, vector);
}

static void mock_changed(void *p)
{
    ((struct mock *)p)->changes++;
}

static void mock_output(void *p, enum dev_output channel, const void *data, size_t len)
{
    struct mock *m = p;
    for (size_t i = 0; i < len; i++) {
        m->out[m->out_len++ % sizeof(m->out)] = ((const char *)data)[i];
        mock_trace(m, 4, ((const u8 *)data)[i]);
    }
}

static void mock_event(void *p, enum dev_event event, u32 arg)
{
    struct mock *m = p;
    m->events++;
    m->event = event;
    m->event_arg = arg;
    mock_trace(m, 5, (u64)event << 32 | arg);
}

static inline struct dev_env mock_env(struct mock *m)
{
    memset(m, 0, sizeof(*m));
    return (struct dev_env){.machine = m,
                            .now = mock_now,
                            .irq = mock_irq,
                            .msi = mock_msi,
                            .eoi = mock_eoi,
                            .changed = mock_changed,
                            .output = mock_output,
                            .event = mock_event};
}

/* A message of a device reaches a local APIC. */
static inline void send_msi(struct device *lapic, u64 addr, u32 data)
{
    struct lapic_message msg;
    if (lapic_message(&msg, addr, data))
        lapic_take(lapic, &msg);
}

static inline u8 inb(struct device *d, u16 port)
{
    return (u8)d->ops->pio_read(d, port, 1);
}

static inline void outb(struct device *d, u16 port, u8 v)
{
    d->ops->pio_write(d, port, 1, v);
}

static inline u32 rd32(struct device *d, gpa_t off)
{
    return (u32)d->ops->mmio_read(d, off, 4);
}

static inline void wr32(struct device *d, gpa_t off, u32 v)
{
    d->ops->mmio_write(d, off, 4, v);
}

static inline vns_t deadline(const struct device *d)
{
    return d->ops->deadline ? d->ops->deadline(d) : NEVER;
}

/* Time passes as in the machine: stopping at every deadline. */
static inline unsigned run_until(struct mock *m, struct device *d, vns_t t)
{
    unsigned n = 0;
    for (vns_t at = deadline(d); at <= t; at = deadline(d), n++) {
        m->time = at > m->time ? at : m->time;
        d->ops->expire(d, m->time);
        assert_true(deadline(d) > m->time);
    }
    m->time = t;
    return n;
}

#define FIXTURE(create_call)                                                                       \
    struct mock m;                                                                                 \
    struct dev_env env = mock_env(&m);                                                             \
    struct device d;                                                                               \
    struct err err = {0};                                                                          \
    assert_int_equal(create_call, 0)

#endif
