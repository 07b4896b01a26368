/*
 * What a driver of virtio-gpu does in 2D: modes, EDID, resources with backing in pieces, uploads of
 * all and of parts, scanouts of all and of parts, formats, a cursor, fences, and all of it again
 * after a reset; polling, by INTx and by MSI-X, with and without indirect descriptors and event
 * indexes. Needs record --gpu 2d.
 */
#include "virtio_gpu.h"

#define WIDTH  96u
#define HEIGHT 64u
#define FRAMES 24u
#define PIECES 4u

static u32 pixels[PIECES][WIDTH * HEIGHT / PIECES] __attribute__((aligned(4096)));
static u32 arrow[64 * 64] __attribute__((aligned(4096)));
static union {
    struct virtio_gpu_ctrl_hdr hdr;
    struct virtio_gpu_resp_display_info info;
    struct virtio_gpu_resp_edid edid;
} answer;
static struct {
    struct virtio_gpu_resource_attach_backing c;
    struct virtio_gpu_mem_entry e[PIECES];
} attach;
static struct gpu_desc table[3];
static u64 fence;
static bool indirect;

/* The pieces lie in memory in another order than in the resource. */
static u32 *pixel(u32 x, u32 y)
{
    u32 at = y * WIDTH + x, piece = at / COUNT(pixels[0]);

    return &pixels[PIECES - 1 - piece][at % COUNT(pixels[0])];
}

static u32 ask(void *request, u32 len, u32 type)
{
    struct virtio_gpu_ctrl_hdr *h = request;
    volatile struct gpu_queue *q = &gpu_queue[GPU_CONTROL];

    h->type = type;
    if (!indirect)
        return gpu_ask(request, len, &answer, sizeof answer);
    memset(&answer, 0, sizeof answer);
    table[0] = (struct gpu_desc){(u64)request, 8, DESC_NEXT, 2};
    table[2] = (struct gpu_desc){(u64)request + 8, len - 8, DESC_NEXT, 1};
    table[1] = (struct gpu_desc){(u64)&answer, sizeof answer, DESC_WRITE, 0};
    q->desc[5] = (struct gpu_desc){(u64)table, sizeof table, DESC_INDIRECT, 0};
    gpu_offer(GPU_CONTROL, 5);
    return gpu_wait(GPU_CONTROL) ? *(volatile u32 *)&answer : 0;
}

static u32 create(u32 id, u32 format, u32 width, u32 height)
{
    struct virtio_gpu_resource_create_2d c = {
        .resource_id = id, .format = format, .width = width, .height = height};

    return ask(&c, sizeof c, VIRTIO_GPU_CMD_RESOURCE_CREATE_2D);
}

static u32 attach_pixels(u32 id)
{
    attach.c = (struct virtio_gpu_resource_attach_backing){.resource_id = id, .nr_entries = PIECES};
    for (u32 i = 0; i < PIECES; i++)
        attach.e[i] = (struct virtio_gpu_mem_entry){.addr = (u64)pixels[PIECES - 1 - i],
                                                    .length = sizeof pixels[0]};
    return ask(&attach, sizeof attach, VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING);
}

static u32 attach_arrow(u32 id)
{
    attach.c = (struct virtio_gpu_resource_attach_backing){.resource_id = id, .nr_entries = 1};
    attach.e[0] = (struct virtio_gpu_mem_entry){.addr = (u64)arrow, .length = sizeof arrow};
    return ask(&attach, sizeof attach.c + sizeof attach.e[0],
               VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING);
}

static u32 transfer(u32 id, u32 x, u32 y, u32 width, u32 height, u32 of)
{
    struct virtio_gpu_transfer_to_host_2d c = {
        .r = {x, y, width, height}, .offset = ((u64)y * of + x) * 4, .resource_id = id};

    return ask(&c, sizeof c, VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D);
}

static u32 scanout(u32 id, u32 x, u32 y, u32 width, u32 height)
{
    struct virtio_gpu_set_scanout c = {.r = {x, y, width, height}, .resource_id = id};

    return ask(&c, sizeof c, VIRTIO_GPU_CMD_SET_SCANOUT);
}

/* Fenced, as the kernel's are: it completes later, and says so. */
static u32 flush(u32 id, u32 width, u32 height)
{
    struct virtio_gpu_resource_flush c = {
        .hdr = {.flags = VIRTIO_GPU_FLAG_FENCE, .fence_id = ++fence},
        .r = {0, 0, width, height},
        .resource_id = id};
    u32 response = ask(&c, sizeof c, VIRTIO_GPU_CMD_RESOURCE_FLUSH);

    return answer.hdr.flags == VIRTIO_GPU_FLAG_FENCE && answer.hdr.fence_id == fence ? response : 0;
}

static u32 by_id(u32 id, u32 type)
{
    struct virtio_gpu_resource_unref c = {.resource_id = id};

    return ask(&c, sizeof c, type);
}

static bool move_cursor(u32 type, u32 id, u32 x, u32 y)
{
    static struct virtio_gpu_update_cursor c;

    c = (struct virtio_gpu_update_cursor){
        .hdr.type = type, .pos = {.x = x, .y = y}, .resource_id = id, .hot_x = 1, .hot_y = 2};
    return gpu_cursor(&c);
}

static void paint(u32 step)
{
    for (u32 y = 0; y < HEIGHT; y++)
        for (u32 x = 0; x < WIDTH; x++)
            *pixel(x, y) =
                (x * 2 + step) << 16 | (y * 4) << 8 | ((x ^ y) + step * 3) % 256 | 0xff000000u;
}

/* A box that moves is all that is sent. */
static void animate(void)
{
    unsigned good = 0;

    for (u32 i = 0; i < FRAMES; i++) {
        u32 x = i * 3, y = i * 2 % (HEIGHT - 8);

        for (u32 j = 0; j < 64; j++)
            *pixel(x + j % 8, y + j / 8) = 0xff00ff00u + i;
        good += transfer(1, x, y, 8, 8, WIDTH) == VIRTIO_GPU_RESP_OK_NODATA;
        good += flush(1, WIDTH, HEIGHT) == VIRTIO_GPU_RESP_OK_NODATA;
        good += move_cursor(VIRTIO_GPU_CMD_MOVE_CURSOR, 0, x + 4, y + 4);
    }
    check_eq(good, 3 * FRAMES, "frames and moves of the cursor");
}

static void question(void)
{
    struct virtio_gpu_cmd_get_edid e = {.scanout = 0};
    struct virtio_gpu_ctrl_hdr h = {0};
    u8 sum = 0;

    check_eq(ask(&h, sizeof h, VIRTIO_GPU_CMD_GET_DISPLAY_INFO), VIRTIO_GPU_RESP_OK_DISPLAY_INFO,
             "display info");
    print("mode %ux%u\n", answer.info.pmodes[0].r.width, answer.info.pmodes[0].r.height);
    check_eq(ask(&e, sizeof e, VIRTIO_GPU_CMD_GET_EDID), VIRTIO_GPU_RESP_OK_EDID, "EDID");
    for (unsigned i = 0; i < 128; i++)
        sum = (u8)(sum + answer.edid.edid[i]);
    check(answer.edid.size == 128 && !sum, "its checksum");
}

static void draw(void)
{
    u32 good = 0, ok = VIRTIO_GPU_RESP_OK_NODATA;

    paint(0);
    good += create(1, VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM, WIDTH, HEIGHT) == ok;
    good += attach_pixels(1) == ok;
    good += transfer(1, 0, 0, WIDTH, HEIGHT, WIDTH) == ok;
    good += scanout(1, 0, 0, WIDTH, HEIGHT) == ok;
    good += flush(1, WIDTH, HEIGHT) == ok;
    check_eq(good, 5, "a picture");
    for (u32 i = 0; i < 64 * 64; i++)
        arrow[i] = i % 64 <= i / 64 && i / 64 < 20 ? 0x80404040u + i : 0;
    good = create(3, VIRTIO_GPU_FORMAT_B8G8R8A8_UNORM, 64, 64) == ok;
    good += attach_arrow(3) == ok;
    good += transfer(3, 0, 0, 64, 64, 64) == ok;
    good += move_cursor(VIRTIO_GPU_CMD_UPDATE_CURSOR, 3, 10, 10);
    check_eq(good, 4, "a cursor");
    animate();
    /* Another format of the same bytes; a part of it is shown. */
    good = by_id(1, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING) == ok;
    good += create(2, VIRTIO_GPU_FORMAT_R8G8B8A8_UNORM, WIDTH, HEIGHT) == ok;
    good += attach_pixels(2) == ok;
    good += transfer(2, 8, 8, WIDTH - 16, HEIGHT - 16, WIDTH) == ok;
    good += scanout(2, 4, 4, 48, 32) == ok;
    good += flush(2, WIDTH, HEIGHT) == ok;
    good += by_id(1, VIRTIO_GPU_CMD_RESOURCE_UNREF) == ok;
    check_eq(good, 7, "part of another one");
}

static void refusals(void)
{
    check_eq(create(2, VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM, 8, 8),
             VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID, "an id that is taken");
    check_eq(flush(1, 8, 8), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID, "a flush of what is gone");
    check_eq(transfer(2, 90, 0, 8, 8, WIDTH), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER,
             "an upload beside the resource");
    check_eq(scanout(2, 0, 60, 16, 16), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER,
             "a scanout beside it");
}

void guest_main(void)
{
    static const struct {
        u64 features;
        enum gpu_irq irq;
        bool indirect;
        const char *name;
    } ways[] = {{1u << VIRTIO_GPU_F_EDID, GPU_POLLED, false, "polled"},
                {1u << VIRTIO_GPU_F_EDID | F_INDIRECT, GPU_INTX, true, "INTx, indirect"},
                {1u << VIRTIO_GPU_F_EDID | F_INDIRECT | F_EVENT_IDX, GPU_MSIX, true,
                 "MSI-X, indirect, event index"}};

    if (!gpu_find()) {
        print("there is no virtio-gpu: record --gpu 2d\n");
        exit_guest(0);
    }
    for (unsigned i = 0; i < COUNT(ways); i++) {
        u64 before = gpu_interrupts;

        indirect = ways[i].indirect;
        print("%s\n", ways[i].name);
        check(gpu_start(ways[i].features, ways[i].irq), "features");
        question();
        draw();
        refusals();
        check((gpu_interrupts > before) == (ways[i].irq != GPU_POLLED), "interrupts");
    }
    exit_guest(0);
}
