/*
 * Fuzz target: the reader of checkpoint files on any bytes; each input once as it is and once with
 * its checksums repaired, so that what lies beyond them is reached too.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "mutate.h"
#include "replay/checkpoint_format.h"

#define PAGES      64u
#define STATE_SIZE 100u

static struct recording rec = {.path = "R", .dir = -1, .machine_hash = {1, 2}};
static char where[] = "/dev/shm/reprise-fuzz-XXXXXX";

static void leave(void)
{
    checkpoint_remove(&rec, CHECKPOINT_DIR);
    rmdir(where);
}

static void enter(void)
{
    if (rec.dir >= 0)
        return;
    if (!mkdtemp(where) && !mkdtemp(strcpy(where, "/tmp/reprise-fuzz-XXXXXX")))
        abort();
    rec.dir = open(where, O_RDONLY | O_DIRECTORY);
    mkdirat(rec.dir, CHECKPOINT_DIR, 0777);
    atexit(leave);
}

static void repair(u8 *data, size_t size)
{
    struct checkpoint_header h;
    if (size < sizeof(h))
        return;
    memcpy(&h, data, sizeof(h));
    memcpy(h.magic, CHECKPOINT_MAGIC, sizeof(h.magic));
    h.version = CHECKPOINT_VERSION;
    h.size = sizeof(h);
    h.machine = rec.machine_hash;
    h.parent = h.sequence = 0;
    h.state_size = STATE_SIZE;
    if (h.meta_packed <= size - sizeof(h))
        h.meta_check = XXH3_64bits(data + size - h.meta_packed, h.meta_packed);
    h.header_check = XXH3_64bits(&h, offsetof(struct checkpoint_header, header_check));
    memcpy(data, &h, sizeof(h));
}

static int put(void *opaque, u64 index, const u8 *page)
{
    return page ? page_image_set(opaque, index, page) : page_image_drop(opaque, index);
}

static void read_it(void)
{
    struct checkpoint_set s;
    struct page_store store = {0};
    struct err err;
    checkpoint_set_open(&s, &rec, PAGES, STATE_SIZE, &err);
    if (s.count) {
        struct page_image *image = page_image_create(&store, PAGES);
        checkpoint_set_load(&s, 0, s.count - 1, put, image, &err);
        page_image_destroy(image);
        if (store.bytes)
            abort();
    }
    checkpoint_set_close(&s);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    enter();
    for (int pass = 0; pass < 2; pass++) {
        u8 *copy = malloc(size + 1);
        memcpy(copy, data, size);
        if (pass)
            repair(copy, size);
        int fd = openat(rec.dir, CHECKPOINT_DIR "/000000", O_RDWR | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || write(fd, copy, size) != (ssize_t)size)
            abort();
        close(fd);
        free(copy);
        read_it();
    }
    return 0;
}

static const u8 *page(void *opaque, size_t i)
{
    static u8 bytes[PAGE_SIZE];
    (void)opaque;
    if (i % 5 == 0)
        return NULL;
    for (unsigned k = 0; k < PAGE_SIZE; k++)
        bytes[k] = (u8)(k * i >> (i % 7));
    return bytes;
}

u8 *fuzz_sample(size_t *size)
{
    struct checkpoint_writer w;
    struct err err;
    struct stat st;
    u32 pages[40];
    u8 state[STATE_SIZE] = "state";
    enter();
    for (u32 i = 0; i < ARRAY_SIZE(pages); i++)
        pages[i] = i + i / 2;
    struct checkpoint_part part = {.at = {1000, 2000},
                                   .state = state,
                                   .state_size = sizeof(state),
                                   .pages = pages,
                                   .npages = ARRAY_SIZE(pages),
                                   .page = page};
    part.output[OUT_CONSOLE].data = (const u8 *)"hello, world";
    part.output[OUT_CONSOLE].len = part.output[OUT_CONSOLE].total = 12;
    if (checkpoint_writer_open(&w, &rec, CHECKPOINT_DIR, 0, &err) ||
        checkpoint_write(&w, &part, &err))
        abort();
    checkpoint_writer_close(&w);
    int fd = openat(rec.dir, CHECKPOINT_DIR "/000000", O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        abort();
    u8 *data = malloc((size_t)st.st_size);
    if (read(fd, data, (size_t)st.st_size) != st.st_size)
        abort();
    close(fd);
    *size = (size_t)st.st_size;
    return data;
}
