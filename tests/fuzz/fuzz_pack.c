/*
 * Fuzz target: a packed recording. The archive, its manifest, frames and a map of a disk are read
 * as `verify` and a replay read them. Checksums of headers are made right, so that what lies behind
 * them is reached.
 */
#define _GNU_SOURCE /* memfd_create */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/tar.h"
#include "mutate.h"
#include "replay/pack.h"
#include "replay/pack_disk.h"

#define DISK (64u << 12)

static int file_of(const u8 *data, size_t size)
{
    int fd = memfd_create("pack", MFD_CLOEXEC);
    if (fd < 0 || (size && !file_write_at(fd, data, size, 0)))
        abort();
    return fd;
}

/* The sum of each header that can be found, where most of it is as it was. */
static void repair(u8 *data, size_t size)
{
    for (size_t at = 0; size - at >= TAR_BLOCK; at += TAR_BLOCK) {
        u8 *h = data + at;
        if (memcmp(h + 257, "ustar", 5))
            continue;
        u32 sum = 0;
        memset(h + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
            sum += h[i];
        for (size_t i = 0; i < 6; i++)
            h[153 - i] = (u8)('0' + (sum >> 3 * i & 7));
    }
}

static void read_all(struct pack *p)
{
    struct err err = {0};
    const struct manifest *m = pack_manifest(p, &err);
    if (!m) {
        if (!err.code || !err.text[0])
            abort();
        return;
    }
    if (pack_check(p, &err) && !err.text[0])
        abort();
    for (u32 i = 0; i < m->n; i++)
        if (!pack_name_known(m->file[i].name) || strstr(m->file[i].name, ".."))
            abort();
}

static void read_disk(struct pack *p)
{
    struct recording r = RECORDING_CLOSED;
    struct blob image;
    struct err err = {0};
    u8 data[1024];
    r.pack = p;
    r.path = (char *)"P";
    if (pack_disk_blob(&r, 0, DISK, &image, &err))
        return;
    for (u64 at = 0; at < DISK; at += sizeof(data))
        if (!blob_read_at(&image, data, sizeof(data), at) && !blob_why(&image)[0])
            abort();
    blob_close(&image);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    u8 *copy = malloc(size + 1);
    struct pack *p;
    struct err err = {0};
    memcpy(copy, data, size);
    repair(copy, size);
    if (!pack_open(&p, file_of(copy, size), "P", &err)) {
        read_all(p);
        read_disk(p);
        pack_close(p);
    } else if (!err.code || !err.text[0]) {
        abort();
    }
    free(copy);
    return 0;
}

static void must(int code)
{
    if (code)
        abort();
}

/* Of every kind of file one. */
u8 *fuzz_sample(size_t *size)
{
    struct pack_writer *w;
    struct err err;
    u64 bytes;
    u8 data[300];
    struct disk_map_header head = {.magic = DISK_MAP_MAGIC, .version = 1, .size = DISK, .pages = 2};
    const struct disk_map_entry entry[] = {{.page = 1, .slot = 0, .sectors = 3},
                                           {.page = 9, .slot = 1, .sectors = 0xff}};
    static const char *const names[] = {"files/0123456789abcdef0123456789abcdef", "log", "contents",
                                        "checkpoints/000000"};
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (u8)(i * i);
    int fd = file_of(NULL, 0);
    must(pack_writer_create(&w, fd, "P", &err));
    must(pack_add(w, "machine.dtb", data, sizeof(data), &err));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        must(pack_add(w, names[i], data, 100 * i, &err));
    must(pack_begin(w, PACK_PAGES, &err));
    for (unsigned i = 0; i < 2 * PAGE_SIZE / 256; i++)
        must(pack_put(w, data, 256, &err));
    must(pack_end(w, &err));
    must(pack_begin(w, "disks/0.map", &err));
    must(pack_put(w, &head, sizeof(head), &err));
    must(pack_put(w, entry, sizeof(entry), &err));
    must(pack_end(w, &err));
    pack_writer_manifest(w)->ndisks = 1;
    must(manifest_leave_out(pack_writer_manifest(w), &err, "%s", "a thing"));
    must(pack_finish(w, &bytes, &err));
    pack_writer_destroy(w);
    u8 *out = malloc((size_t)bytes);
    if (!file_read_at(fd, out, (size_t)bytes, 0))
        abort();
    close(fd);
    *size = (size_t)bytes;
    return out;
}
