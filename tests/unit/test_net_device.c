/* virtio-net from the driver's side: one machine of cardboard with 64 KiB of memory. */
#include "dev_mock.h"

#include "dev/pci.h"
#include "dev/virtio/net.h"

#define RAM        65536u
#define HEADER     12u
#define F_MTU      3
#define F_MAC      5
#define F_MRG      15
#define F_STATUS   16
#define NEXT       1u
#define WRITE      2u
#define NEED_RESET 64u

/* Rings: descriptors, available, used; of queue 1 half a page on. */
#define DESC  0x1000u
#define AVAIL 0x3000u
#define USED  0x4000u
#define DATA  0x8000u

static struct {
    struct mock m;
    struct dev_env env;
    u8 ram[RAM];
    struct device pci, dev;
    unsigned sent;
    u8 last[NET_FRAME_MAX];
    size_t last_len;
    u16 avail[2];
} w;

static bool dma_read(void *opaque, gpa_t gpa, void *out, size_t len)
{
    if (gpa > RAM || len > RAM - gpa)
        return false;
    memcpy(out, w.ram + gpa, len);
    return true;
}

static bool dma_write(void *opaque, gpa_t gpa, const void *in, size_t len)
{
    if (gpa > RAM || len > RAM - gpa)
        return false;
    memcpy(w.ram + gpa, in, len);
    return true;
}

static void emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    assert_int_equal(kind, EMIT_PACKET);
    assert_int_equal(unit, 3);
    w.sent++;
    w.last_len = len;
    memcpy(w.last, data, len);
}

static void store(u32 offset, unsigned size, u64 value)
{
    w.pci.ops->mmio_write(&w.pci, 0x200000 + offset, size, value);
}

static u64 load(u32 offset, unsigned size)
{
    return w.pci.ops->mmio_read(&w.pci, 0x200000 + offset, size);
}

static void configure(unsigned offset, unsigned size, u32 value)
{
    w.pci.ops->pio_write(&w.pci, 0xcf8, 4, 0x80000000u | 2u << 11 | (offset & 0xfc));
    w.pci.ops->pio_write(&w.pci, (u16)(0xcfc + (offset & 3)), size, value);
}

static void negotiate(u32 features)
{
    memset(w.ram, 0, sizeof(w.ram));
    w.avail[0] = w.avail[1] = 0;
    store(0x14, 1, 0);
    store(0x14, 1, 3);
    store(8, 4, 0);
    store(12, 4, features);
    store(8, 4, 1);
    store(12, 4, 1);
    store(0x14, 1, 11);
    for (unsigned q = 0; q < 2; q++) {
        store(0x16, 2, q);
        store(0x18, 2, 16);
        store(0x20, 8, DESC + 0x800 * q);
        store(0x28, 8, AVAIL + 0x800 * q);
        store(0x30, 8, USED + 0x800 * q);
        store(0x1c, 2, 1);
    }
    store(0x14, 1, 15);
    assert_int_equal(load(0x14, 1), 15);
}

static void set_up(u16 mtu, u32 features)
{
    static const u8 mac[6] = {2, 3, 4, 5, 6, 7};
    struct err err = {0};
    w.env = mock_env(&w.m);
    w.env.dma_read = dma_read;
    w.env.dma_write = dma_write;
    w.env.emit = emit;
    w.sent = 0;
    assert_int_equal(pci_create(&w.pci, &w.env, &err), 0);
    assert_int_equal(virtio_net_create(&w.dev, &w.env, &w.pci, 2, 3, mac, mtu, &err), 0);
    assert_string_equal(w.dev.name, "net3");
    configure(0x10, 4, 0xe0200000u);
    configure(4, 2, 6);
    negotiate(features);
}

static void tear_down(void)
{
    device_destroy(&w.dev);
    device_destroy(&w.pci);
}

static void descriptor(unsigned q, unsigned i, u64 gpa, u32 len, u16 flags)
{
    u8 *d = w.ram + DESC + 0x800 * q + 16 * i;
    u16 next = (u16)(i + 1);
    memcpy(d, &gpa, 8);
    memcpy(d + 8, &len, 4);
    memcpy(d + 12, &flags, 2);
    memcpy(d + 14, &next, 2);
}

/* Makes the chain at `head` available, without a notification. */
static void offer(unsigned q, u16 head)
{
    u8 *ring = w.ram + AVAIL + 0x800 * q;
    memcpy(ring + 4 + 2 * (w.avail[q] % 16), &head, 2);
    w.avail[q]++;
    memcpy(ring + 2, &w.avail[q], 2);
}

static u16 used_index(unsigned q)
{
    u16 i;
    memcpy(&i, w.ram + USED + 0x800 * q + 2, 2);
    return i;
}

static u32 used_len(unsigned q, unsigned i)
{
    u32 v;
    memcpy(&v, w.ram + USED + 0x800 * q + 4 + 8 * (i % 16) + 4, 4);
    return v;
}

static void fill(gpa_t gpa, unsigned len)
{
    for (unsigned i = 0; i < len; i++)
        w.ram[gpa + i] = (u8)(i * 7 + 1);
}

static bool is_filled(const u8 *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != (u8)(i * 7 + 1))
            return false;
    return true;
}

static void configuration(void **state)
{
    static const u8 want[12] = {2, 3, 4, 5, 6, 7, 1, 0, 1, 0, 0x28, 0x23};
    set_up(9000, 1u << F_MTU | 1u << F_MAC | 1u << F_STATUS);
    for (unsigned i = 0; i < 12; i++)
        assert_int_equal(load(0x2000 + i, 1), want[i]);
    assert_int_equal(load(0x2000 + 12, 1), 0);
    u64 generation = load(0x15, 1);
    virtio_net_link(&w.dev, true); /* no change */
    assert_int_equal(load(0x15, 1), generation);
    virtio_net_link(&w.dev, false);
    assert_int_not_equal(load(0x15, 1), generation);
    assert_int_equal(load(0x2006, 2), 0);
    assert_int_equal(load(0x1000, 1), 2); /* ISR: configuration */
    assert_int_equal(virtio_net_room(&w.dev), 0);
    store(0x14, 1, 0); /* the cable does not know of a reset */
    assert_int_equal(load(0x2006, 2), 0);
    negotiate(0); /* a driver that does not want to know */
    virtio_net_link(&w.dev, true);
    assert_int_equal(load(0x1000, 1), 0);
    tear_down();
}

/* Cuts one frame of 100 bytes after its header into pieces of all sizes. */
static void sending(void **state)
{
    for (unsigned piece = 1; piece <= 112; piece++) {
        unsigned n = 0;
        if ((112 + piece - 1) / piece > 16)
            continue;
        set_up(1500, 1u << F_MTU);
        fill(DATA + HEADER, 100);
        for (unsigned at = 0; at < 112; at += piece, n++)
            descriptor(1, n, DATA + at, MIN(piece, 112 - at), at + piece < 112 ? NEXT : 0);
        offer(1, 0);
        store(0x3004, 2, 1);
        assert_int_equal(w.sent, 1);
        assert_int_equal(w.last_len, 100);
        assert_true(is_filled(w.last, 100));
        assert_int_equal(used_index(1), 1);
        assert_int_equal(used_len(1, 0), 0);
        tear_down();
    }
}

static void send_one(u32 len)
{
    descriptor(1, 0, DATA, HEADER, NEXT);
    descriptor(1, 1, DATA + HEADER, len, 0);
    offer(1, 0);
    store(0x3004, 2, 1);
}

static void not_sent(void **state)
{
    set_up(1500, 1u << F_MTU | 1u << F_STATUS);
    send_one(13);
    send_one(1500 + 22 + 1);
    send_one(40000);
    assert_int_equal(w.sent, 0);
    assert_int_equal(used_index(1), 3); /* but all given back */
    send_one(1500 + 22);
    send_one(14);
    assert_int_equal(w.sent, 2);
    virtio_net_link(&w.dev, false);
    send_one(60);
    assert_int_equal(w.sent, 2);
    descriptor(1, 0, DATA, 5, 0); /* not even a header */
    offer(1, 0);
    store(0x3004, 2, 1);
    assert_int_equal(used_index(1), 7);
    assert_int_equal(load(0x14, 1), 15);
    virtio_net_link(&w.dev, true);
    descriptor(1, 0, DATA, HEADER, NEXT);
    descriptor(1, 1, 0xffffff00, 60, 0); /* outside RAM */
    offer(1, 0);
    store(0x3004, 2, 1);
    assert_int_equal(w.sent, 2);
    assert_true(load(0x14, 1) & NEED_RESET);
    negotiate(0);
    send_one(60);
    assert_int_equal(w.sent, 3);
    tear_down();
}

/* A ring that is full of frames is one notification's work; the rest waits for the next. */
static void whole_ring(void **state)
{
    set_up(1500, 0);
    descriptor(1, 0, DATA, HEADER + 60, 0);
    for (unsigned i = 0; i < 16; i++)
        offer(1, 0);
    store(0x3004, 2, 1);
    assert_int_equal(w.sent, 16);
    for (unsigned i = 0; i < 17; i++) /* more than the ring has */
        offer(1, 0);
    store(0x3004, 2, 1);
    assert_int_equal(w.sent, 16);
    assert_true(load(0x14, 1) & NEED_RESET);
    tear_down();
}

static u8 frame[NET_FRAME_MAX];

static void merged(void **state)
{
    set_up(9000, 1u << F_MRG);
    for (unsigned i = 0; i < sizeof(frame); i++)
        frame[i] = (u8)(i * 7 + 1);
    assert_int_equal(virtio_net_room(&w.dev), 0);
    virtio_net_receive(&w.dev, frame, 60); /* nobody there */
    for (u16 i = 0; i < 4; i++) {
        descriptor(0, i, DATA + 0x400 * i, 0x400, WRITE);
        offer(0, i);
    }
    assert_int_equal(virtio_net_room(&w.dev), NET_FRAME_MAX);
    virtio_net_receive(&w.dev, frame, 2500); /* three of them */
    assert_int_equal(used_index(0), 3);
    assert_int_equal(used_len(0, 0), 0x400);
    assert_int_equal(used_len(0, 1), 0x400);
    assert_int_equal(used_len(0, 2), 2500 + HEADER - 0x800);
    assert_int_equal(w.ram[DATA + 10], 3); /* num_buffers */
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(w.ram[DATA + i], 0);
    assert_memory_equal(w.ram + DATA + HEADER, frame, 2500);
    virtio_net_receive(&w.dev, frame, 2500); /* one is left, which does not do, and stays */
    assert_int_equal(used_index(0), 3);
    virtio_net_receive(&w.dev, frame, 0x400 - HEADER);
    assert_int_equal(used_index(0), 4);
    assert_int_equal(used_len(0, 3), 0x400);
    assert_int_equal(w.ram[DATA + 0xc00 + 10], 1);
    assert_int_equal(virtio_net_room(&w.dev), 0);
    tear_down();
}

static void single(void **state)
{
    set_up(1500, 1u << F_MTU);
    for (u16 i = 0; i < 6; i += 2) { /* the header in a descriptor of its own */
        descriptor(0, i, DATA + 0x800 * i, HEADER, NEXT | WRITE);
        descriptor(0, i + 1, DATA + 0x800 * i + 0x40, 1522, WRITE);
        offer(0, i);
    }
    virtio_net_receive(&w.dev, frame, 1522);
    assert_int_equal(used_index(0), 1);
    assert_int_equal(used_len(0, 0), 1522 + HEADER);
    assert_int_equal(w.ram[DATA + 10], 1);
    assert_memory_equal(w.ram + DATA + 0x40, frame, 1522);
    virtio_net_receive(&w.dev, frame, 1523); /* longer than the link's */
    assert_int_equal(used_index(0), 1);
    store(0x14, 1, 0); /* the driver goes away with buffers in flight */
    virtio_net_receive(&w.dev, frame, 60);
    assert_int_equal(virtio_net_room(&w.dev), 0);
    negotiate(0);
    descriptor(0, 0, DATA, HEADER - 1, WRITE); /* 5.1.6.3.1 */
    offer(0, 0);
    virtio_net_receive(&w.dev, frame, 60);
    assert_true(load(0x14, 1) & NEED_RESET);
    virtio_net_receive(&w.dev, frame, 60);
    assert_int_equal(used_index(0), 0);
    tear_down();
}

/* Buffers that lie over the ring itself: nothing worse than a broken driver. */
static void overlapping(void **state)
{
    memset(frame, 0xff, sizeof(frame));
    for (unsigned at = DESC; at < DESC + 64; at += 4) {
        set_up(9000, 1u << F_MRG);
        for (u16 i = 0; i < 4; i++) {
            descriptor(0, i, i ? DATA : at, 0x100, WRITE);
            offer(0, i);
        }
        virtio_net_receive(&w.dev, frame, 600);
        negotiate(0);
        tear_down();
    }
    for (unsigned i = 0; i < sizeof(frame); i++)
        frame[i] = (u8)(i * 7 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configuration), cmocka_unit_test(sending), cmocka_unit_test(not_sent),
        cmocka_unit_test(whole_ring),    cmocka_unit_test(merged),  cmocka_unit_test(single),
        cmocka_unit_test(overlapping)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
