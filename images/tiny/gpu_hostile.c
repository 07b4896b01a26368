/*
 * What a driver of virtio-gpu must not do: commands with ids, sizes and lengths that are none,
 * backing outside of memory, queues that break each rule, resets while commands are under way, and
 * a few thousand commands of random fields. Whatever comes, the device refuses it or asks for a
 * reset, and draws as before afterwards. Needs record --gpu 2d.
 */
#include "virtio_gpu.h"

#define NOWHERE 0x4000000000ull /* no memory, no device */
#define EDGE    32u
#define RANDOM  3000u

#define OK        VIRTIO_GPU_RESP_OK_NODATA
#define UNSPEC    VIRTIO_GPU_RESP_ERR_UNSPEC
#define NO_MEMORY VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY
#define SCANOUT   VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID
#define RESOURCE  VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID
#define PARAMETER VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER

enum {
    CREATE = VIRTIO_GPU_CMD_RESOURCE_CREATE_2D,
    UNREF = VIRTIO_GPU_CMD_RESOURCE_UNREF,
    SET = VIRTIO_GPU_CMD_SET_SCANOUT,
    FLUSH = VIRTIO_GPU_CMD_RESOURCE_FLUSH,
    TRANSFER = VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D,
    ATTACH = VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING,
    DETACH = VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING,
};

static u32 pixels[EDGE * EDGE] __attribute__((aligned(4096)));
static u8 answer[512], request[4096] __attribute__((aligned(16)));
static u64 seen = 1, state = 1;

static void note(u64 v)
{
    seen = (seen ^ v) * 0x9e3779b97f4a7c15ull;
    seen ^= seen >> 29;
}

/* A command: its type, and the words after the header. */
static u32 ask(u32 type, unsigned n, const u32 *words)
{
    u32 r;

    memset(request, 0, 24);
    *(u32 *)request = type;
    memcpy(request + 24, words, n * 4);
    r = gpu_ask(request, 24 + n * 4, answer, sizeof answer);
    note(r);
    return r;
}
#define ASK(type, ...) ask(type, sizeof((u32[]){__VA_ARGS__}) / 4, (const u32[]){__VA_ARGS__})

/* Does it work as ever? */
static void draws(const char *name)
{
    u64 at = (u64)pixels;
    u32 good = gpu_start(0, GPU_INTX);

    good += ASK(CREATE, 7, VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM, EDGE, EDGE) == OK;
    good += ASK(ATTACH, 7, 1, (u32)at, (u32)(at >> 32), sizeof pixels, 0) == OK;
    good += ASK(TRANSFER, 0, 0, EDGE, EDGE, 0, 0, 7, 0) == OK;
    good += ASK(SET, 0, 0, EDGE, EDGE, 0, 7) == OK;
    good += ASK(FLUSH, 0, 0, EDGE, EDGE, 7, 0) == OK;
    check_eq(good, 6, name);
}

/* ---- commands ---- */

static void commands(void)
{
    static const struct {
        u32 type, response, n, words[10];
        const char *name;
    } c[] = {
        {0, UNSPEC, 0, {0}, "type 0"},
        {0xffffffff, UNSPEC, 2, {1, 1}, "type 0xffffffff"},
        {VIRTIO_GPU_CMD_SUBMIT_3D, UNSPEC, 3, {4, 0, 0}, "3D where there is none"},
        {VIRTIO_GPU_RESP_OK_NODATA, UNSPEC, 0, {0}, "an answer"},
        {VIRTIO_GPU_CMD_UPDATE_CURSOR, UNSPEC, 8, {0}, "a cursor in the wrong queue"},
        {CREATE, RESOURCE, 4, {0, 1, 8, 8}, "resource 0"},
        {CREATE, RESOURCE, 4, {7, 1, 8, 8}, "a resource that is there"},
        {CREATE, PARAMETER, 4, {8, 0, 8, 8}, "format 0"},
        {CREATE, PARAMETER, 4, {8, 0xffffffff, 8, 8}, "format 0xffffffff"},
        {CREATE, PARAMETER, 4, {8, 1, 0, 8}, "no width"},
        {CREATE, PARAMETER, 4, {8, 1, 0xffffffff, 0xffffffff}, "a product that overflows"},
        {CREATE, PARAMETER, 4, {8, 1, 0x10001, 0x10000}, "one that overflows to little"},
        {CREATE, NO_MEMORY, 4, {8, 1, 16384, 16384}, "more than there is"},
        {CREATE, PARAMETER, 3, {8, 1, 8}, "a command that is too short"},
        {UNREF, RESOURCE, 2, {0, 0}, "unref of 0"},
        {UNREF, RESOURCE, 2, {0xffffffff, 0}, "unref of what is not there"},
        {SET, SCANOUT, 6, {0, 0, 16, 16, 1, 7}, "scanout 1"},
        {SET, SCANOUT, 6, {0, 0, 16, 16, 0xffffffff, 7}, "scanout 0xffffffff"},
        {SET, RESOURCE, 6, {0, 0, 16, 16, 0, 9}, "a scanout of nothing"},
        {SET, PARAMETER, 6, {0xfffffff0, 0, 32, 32, 0, 7}, "a scanout that wraps around"},
        {SET, PARAMETER, 6, {17, 0, 16, 16, 0, 7}, "a scanout beyond the edge"},
        {SET, PARAMETER, 6, {0, 0, 1, 1, 0, 7}, "a tiny scanout"},
        {FLUSH, RESOURCE, 6, {0, 0, 8, 8, 9, 0}, "a flush of nothing"},
        {FLUSH, PARAMETER, 6, {1, 0xffffffff, 8, 8, 7, 0}, "a flush that wraps around"},
        {TRANSFER, RESOURCE, 8, {0, 0, 8, 8, 0, 0, 9, 0}, "an upload to nothing"},
        {TRANSFER, PARAMETER, 8, {0xffffffff, 0, 2, 8, 0, 0, 7, 0}, "a box that wraps around"},
        {TRANSFER, PARAMETER, 8, {0, 0, 8, 8, 0xffffffff, 0xffffffff, 7, 0}, "offset 2^64 - 1"},
        {TRANSFER, PARAMETER, 8, {0, 0, 8, 8, EDGE * EDGE * 4 - 4, 0, 7, 0}, "an upload of more"},
        {TRANSFER, OK, 8, {0, 0, 0, 0, 0, 0, 7, 0}, "an empty box"},
        {ATTACH, UNSPEC, 6, {7, 1, 0, 0, 4096, 0}, "backing for what has it"},
        {ATTACH, RESOURCE, 6, {9, 1, 0, 0, 4096, 0}, "backing for nothing"},
        {ATTACH, PARAMETER, 6, {7, 0xffffffff, 0, 0, 4096, 0}, "2^32 - 1 entries in one"},
        {ATTACH, PARAMETER, 6, {7, 0x10000001, 0, 0, 4096, 0}, "entries that overflow to one"},
        {DETACH, RESOURCE, 2, {9, 0}, "detaching from nothing"},
    };

    for (unsigned i = 0; i < COUNT(c); i++)
        check_eq(ask(c[i].type, c[i].n, c[i].words), c[i].response, c[i].name);
    for (u32 len = 1; len < 24; len++)
        if (gpu_ask(request, len, answer, sizeof answer)) {
            check_eq(len, 0, "a header that is too short");
            break;
        } else if (!gpu_start(0, GPU_POLLED))
            check_eq(len, 0, "a start after a header that is too short");
    draws("headers that are too short");
}

static void backing(void)
{
    u32 e = EDGE * EDGE * 4;

    check_eq(ASK(DETACH, 7, 0), OK, "detached");
    check_eq(ASK(DETACH, 7, 0), UNSPEC, "detached twice");
    check_eq(ASK(TRANSFER, 0, 0, 8, 8, 0, 0, 7, 0), PARAMETER, "an upload from nowhere");
    check_eq(ASK(ATTACH, 7, 0), UNSPEC, "no entries");
    check_eq(ASK(ATTACH, 7, 1, 0, (u32)(NOWHERE >> 32), e, 0), OK, "backing outside of memory");
    check_eq(ASK(TRANSFER, 0, 0, EDGE, EDGE, 0, 0, 7, 0), OK, "reads as zeros");
    ASK(DETACH, 7, 0);
    check_eq(ASK(ATTACH, 7, 1, 0xfffff000, 0xffffffff, e, 0), OK, "backing that wraps around");
    check_eq(ASK(TRANSFER, 0, 0, EDGE, EDGE, 0, 0, 7, 0), OK, "reads as zeros, too");
    ASK(DETACH, 7, 0);
    check_eq(ASK(ATTACH, 7, 1, (u32)LAPIC, 0, e, 0), OK, "backing in a device");
    check_eq(ASK(TRANSFER, 0, 0, EDGE, EDGE, 0, 0, 7, 0), OK, "reads nothing of it");
    ASK(DETACH, 7, 0);
    check_eq(ASK(ATTACH, 7, 3, 0x10000, 0, 0xffffffff, 0, 0, 0, 0, 0, 0, 0x10, 0xffffffff, 0), OK,
             "entries of 0 and of 2^32 - 1 bytes");
    check_eq(ASK(TRANSFER, 0, 0, EDGE, EDGE, 0xfffffc00, 1, 7, 0), PARAMETER, "after the last");
    check_eq(ASK(TRANSFER, 0, 0, EDGE, EDGE, 0xfffff000, 0, 7, 0), OK, "across two");
    ASK(DETACH, 7, 0);
    check_eq(ASK(ATTACH, 7, 1, (u32)(u64)gpu_queue, 0, e, 0), OK, "backing in the queues");
    check_eq(ASK(TRANSFER, 0, 0, 8, 8, 0, 0, 7, 0), OK, "is memory as any");
}

static void exhaust(void)
{
    u32 made = 0;

    /* 256 MiB of pixels, of which nothing was sent. */
    while (made < 1000 && ASK(CREATE, 100 + made, 1, 1024, 1024) == OK)
        made++;
    check(made > 32 && made < 100, "pixels have an end");
    check_eq(ASK(UNREF, 100, 0), OK, "one less");
    check_eq(ASK(CREATE, 100, 1, 1024, 1024), OK, "is one more");
    draws("after all memory was taken");
}

/* ---- queues ---- */

static struct gpu_desc table[GPU_QUEUE + 1] __attribute__((aligned(16)));

static void set(unsigned i, u64 addr, u32 len, u16 flags, u16 next)
{
    gpu_queue[GPU_CONTROL].desc[i] = (struct gpu_desc){addr, len, flags, next};
}

/* What was offered breaks a rule, and the device says so. */
static void breaks(u16 head, const char *name)
{
    gpu_offer(GPU_CONTROL, head);
    check(gpu_status() & STATUS_NEEDS_RESET, name);
    note(gpu_queue[GPU_CONTROL].used_idx);
    memset(request, 0, 24);
    *(u32 *)request = VIRTIO_GPU_CMD_GET_DISPLAY_INFO;
    if (!gpu_start(F_INDIRECT, GPU_POLLED))
        check(false, name);
    set(0, (u64)request, 24, DESC_NEXT, 1);
    set(1, (u64)answer, sizeof answer, DESC_WRITE, 0);
    table[0] = gpu_queue[GPU_CONTROL].desc[0];
    table[1] = gpu_queue[GPU_CONTROL].desc[1];
}

static void queues(void)
{
    volatile struct gpu_queue *q = &gpu_queue[GPU_CONTROL];

    gpu_start(0, GPU_POLLED);
    breaks(GPU_QUEUE, "a head beyond the queue");
    breaks(0xffff, "head 0xffff");
    q->avail_idx += GPU_QUEUE;
    breaks(0, "more available than there are");
    q->desc[1].next = 0, q->desc[1].flags = DESC_WRITE | DESC_NEXT;
    breaks(0, "a loop");
    q->desc[0].next = 0;
    breaks(0, "a loop of one");
    q->desc[0].next = GPU_QUEUE;
    breaks(0, "a next beyond the queue");
    q->desc[0].flags = 0;
    breaks(0, "no room for an answer");
    q->desc[0].flags = DESC_WRITE;
    breaks(0, "no command");
    q->desc[0].flags |= DESC_WRITE, q->desc[1].flags = 0;
    breaks(0, "an answer in front of the command");
    q->desc[0].addr = NOWHERE;
    breaks(0, "a command outside of memory");
    q->desc[0].addr = ~0ull - 8;
    breaks(0, "a command around the end of all addresses");
    q->desc[1].addr = NOWHERE;
    breaks(0, "an answer outside of memory");
    q->desc[1].addr = LAPIC;
    breaks(0, "an answer in a device");
    q->desc[0].len = 0xffffffff;
    breaks(0, "a command of 4 GiB");
    q->desc[0].len = 0;
    breaks(0, "a command of nothing");
    set(0, (u64)table, 32, DESC_INDIRECT | DESC_NEXT, 1);
    breaks(0, "an indirect table and more");
    set(0, (u64)table, 33, DESC_INDIRECT, 0);
    breaks(0, "an indirect table of 33 bytes");
    set(0, (u64)table, 0, DESC_INDIRECT, 0);
    breaks(0, "an empty indirect table");
    set(0, (u64)table, 0xfffffff0, DESC_INDIRECT, 0);
    breaks(0, "an indirect table of 4 GiB");
    set(0, NOWHERE, 32, DESC_INDIRECT, 0);
    breaks(0, "an indirect table outside of memory");
    set(0, (u64)table, 16, DESC_INDIRECT, 0);
    breaks(0, "a next beyond the indirect table");
    table[1] = (struct gpu_desc){(u64)table, 32, DESC_INDIRECT, 0};
    set(0, (u64)table, 32, DESC_INDIRECT, 0);
    breaks(0, "an indirect table in another");
    table[1].flags = DESC_WRITE | DESC_NEXT;
    set(0, (u64)table, 32, DESC_INDIRECT, 0);
    breaks(0, "a loop in an indirect table");
    gpu_start(0, GPU_POLLED);
    set(0, (u64)table, 32, DESC_INDIRECT, 0);
    breaks(0, "an indirect table that was not agreed on");
    q->desc[1].len = 4;
    gpu_offer(GPU_CONTROL, 0);
    check(q->used_idx == 1 && q->used[0].len == 4, "an answer is cut to its room");
    check(!gpu_start(1ull << 40, GPU_POLLED), "a feature that was not offered");
    draws("after all that");
}

/* ---- in the middle ---- */

/* Fenced commands under way, none of them waited for. */
static void begin(unsigned n)
{
    static struct virtio_gpu_resource_flush f[GPU_QUEUE / 2];
    static u8 answers[GPU_QUEUE / 2][24];

    gpu_start(0, GPU_POLLED);
    ASK(CREATE, 7, 1, EDGE, EDGE);
    for (u16 i = 0; i < n; i++) {
        f[i] = (struct virtio_gpu_resource_flush){
            .hdr = {.type = FLUSH, .flags = VIRTIO_GPU_FLAG_FENCE, .fence_id = i},
            .r = {0, 0, 8, 8},
            .resource_id = 7};
        set(2 * i, (u64)&f[i], sizeof f[i], DESC_NEXT, (u16)(2 * i + 1));
        set(2 * i + 1, (u64)answers[i], 24, DESC_WRITE, 0);
        gpu_offer(GPU_CONTROL, (u16)(2 * i));
    }
}

static void pass_time(void)
{
    for (volatile u32 i = 0; i < 50000; i++)
        ;
}

static void in_the_middle(void)
{
    volatile struct gpu_queue *q = &gpu_queue[GPU_CONTROL];
    u32 command = pci_read(gpu_at.slot, 4) & 0xffff;

    begin(8);
    check(q->used_idx == 1 && gpu_wait(GPU_CONTROL), "fences come later");
    begin(8);
    gpu_start(0, GPU_POLLED);
    pass_time();
    check_eq(q->used_idx, 0, "nothing comes after a reset");
    begin(4);
    set(3, (u64)answer, 24, DESC_WRITE | DESC_NEXT, 2);
    pass_time();
    check(gpu_status() & STATUS_NEEDS_RESET, "a chain that became a loop");
    begin(4);
    set(1, (u64)answer, 0, DESC_WRITE, 0);
    pass_time();
    check(gpu_status() & STATUS_NEEDS_RESET, "an answer that lost its room");
    begin(4);
    ASK(UNREF, 7, 0);
    pass_time();
    note(q->used_idx);
    check(!(gpu_status() & STATUS_NEEDS_RESET), "a resource that is gone meanwhile");
    begin(4);
    pci_write(gpu_at.slot, 4, command & ~4u);
    pass_time();
    note(q->used_idx);
    check(q->used_idx == 1, "nothing is written without being a bus master");
    pci_write(gpu_at.slot, 4, command);
    pci_write(gpu_at.slot, 4, command & ~2u);
    check_eq(MMIO(u32, gpu_at.common), 0xffffffff, "registers that are not decoded");
    pci_write(gpu_at.slot, 4, command);
    pci_write(gpu_at.slot, 0x10, (u32)gpu_at.bar + 0x100000);
    note(MMIO(u32, gpu_at.common + 0x100000 + 0x14));
    pci_write(gpu_at.slot, 0x10, (u32)gpu_at.bar);
    draws("after being cut off");
}

/* Every register, in every width, also where there is none; through configuration space as well. */
static void registers(void)
{
    for (u32 at = 0; at < 0x4000; at += 2) {
        if (at >= 0x100 && at % 0x100 >= 0x40)
            continue;
        note(MMIO(u8, gpu_at.bar + at));
        note(MMIO(u16, gpu_at.bar + at));
        if (at % 4 == 0)
            note(MMIO(u32, gpu_at.bar + at));
        if (at % 8 == 0)
            note(MMIO(u64, gpu_at.bar + at));
    }
    for (u32 at = 0x18; at < 0x4000; at += 0xe4) { /* not the status */
        MMIO(u8, gpu_at.bar + at) = (u8)at;
        MMIO(u32, gpu_at.bar + at) = 0xffffffff - at;
        MMIO(u64, gpu_at.bar + at) = 0x123456789abcdefull * at;
    }
    for (u32 i = 0; i < 200; i++) {
        pci_write(gpu_at.slot, gpu_at.cfg_cap + 4, (i % 7 == 6) << 0);
        pci_write(gpu_at.slot, gpu_at.cfg_cap + 8, i * 0x5d);
        pci_write(gpu_at.slot, gpu_at.cfg_cap + 12, 1u << i % 4);
        note(pci_read(gpu_at.slot, gpu_at.cfg_cap + 16));
        if (i % 3 == 0 && i * 0x5d > 0x40)
            pci_write(gpu_at.slot, gpu_at.cfg_cap + 16, i * 0x1234567);
    }
    for (u32 reg = 0; reg < 0x100; reg += 4)
        if (reg != 4 && reg != 0x10) {
            pci_write(gpu_at.slot, (u8)reg, 0xffffffff);
            note(pci_read(gpu_at.slot, (u8)reg));
            pci_write(gpu_at.slot, (u8)reg, 0);
        }
    draws("after registers were read and written");
}

/* ---- at random ---- */

static u32 pick(u32 n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)(state >> 33) % n;
}

static u32 word(void)
{
    static const u32 words[] = {0,  0,  0,   1,     2,          3,          7,          8,
                                16, 32, 100, 16384, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff};
    static const u32 types[] = {CREATE, UNREF, SET, FLUSH, TRANSFER, ATTACH, DETACH};

    return pick(12) ? words[pick(COUNT(words))] : types[pick(COUNT(types))];
}

static void at_random(void)
{
    static const u8 lengths[] = {4, 2, 6, 6, 8, 6, 2, 2};
    u32 resets = 0, fine = 0;

    for (u32 i = 0; i < RANDOM; i++) {
        u32 words[14], kind = pick(COUNT(lengths)), type = CREATE + kind, r;
        u32 n = pick(4) ? lengths[kind] : pick(COUNT(words));

        for (u32 j = 0; j < n; j++)
            words[j] = word();
        if ((type == UNREF || type == DETACH) && n && pick(2))
            words[0] = pick(6);
        if (type == FLUSH && n > 4 && pick(2))
            words[0] = words[1] = 0, words[2] = words[3] = 1 + pick(30), words[4] = pick(6);
        if (type == CREATE && n > 3 && pick(2))
            words[0] = pick(6), words[1] = 1, words[2] = 1 + pick(100), words[3] = 1 + pick(100);
        if (type == ATTACH && n > 5 && pick(2))
            words[0] = pick(6), words[1] = 1, words[2] = pick(1 << 24), words[3] = 0;
        if (type == TRANSFER && n > 7 && pick(2))
            words[2] = pick(50), words[3] = pick(50), words[6] = pick(6);
        if (type == SET && n > 5 && pick(2))
            words[0] = words[1] = words[4] = 0, words[2] = words[3] = 16, words[5] = pick(6);
        if (pick(50) == 0) {
            volatile struct gpu_queue *q = &gpu_queue[GPU_CONTROL];

            q->desc[2] = (struct gpu_desc){word(), word(), (u16)pick(2), (u16)pick(20)};
            gpu_offer(GPU_CONTROL, (u16)(2 + pick(2)));
        }
        r = ask(type, n, words);
        fine += r >= OK && r < UNSPEC;
        if (!r) {
            resets++;
            gpu_start(pick(2) ? F_INDIRECT : 0, (enum gpu_irq)pick(3));
        }
    }
    print("random: %u fine, %u resets\n", fine, resets);
    check(fine > RANDOM / 20 && resets > 10, "some were fine, some broke rules");
    draws("after them");
}

void guest_main(void)
{
    if (!gpu_find()) {
        print("there is no virtio-gpu: record --gpu 2d\n");
        exit_guest(0);
    }
    for (u32 i = 0; i < COUNT(pixels); i++)
        pixels[i] = i * 0x10203;
    draws("a picture");
    commands();
    backing();
    exhaust();
    queues();
    in_the_middle();
    registers();
    at_random();
    print("seen %lx\n", seen);
    exit_guest(0);
}
