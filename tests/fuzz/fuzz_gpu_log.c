/*
 * Fuzz target: the reader of gpu.log, the state rebuilt from it and what prints them, on any bytes;
 * each input once as it is and once with its checksums repaired, so that what lies behind them is
 * reached too.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/gpu_stream.h"
#include "gpu_repair.h"
#include "mutate.h"
#include "virtio-gpu-log/print.h"

static void read_log(struct gpu_log_reader *r, FILE *out)
{
    struct gpu_state *s = gpu_state_create();
    struct gpu_record rec;
    struct gpu_range range;
    struct err err;
    u8 head[256];
    u64 commands = 0;
    while (gpu_log_next(r, &rec)) {
        if (rec.type == GPU_REC_REPLY && rec.number >= commands)
            abort();
        commands += rec.type == GPU_REC_COMMAND;
        gpu_state_step(s, r, &rec, GPU_NO_DWORD, &err);
        const struct gpu_ranges *ranges = rec.type == GPU_REC_COMMAND ? &rec.command.uploads
                                          : rec.type == GPU_REC_REPLY ? &rec.reply.readback
                                                                      : NULL;
        for (u32 at = 0; ranges && gpu_ranges_next(ranges, &at, &range);)
            gpu_log_read(r, &range.bytes, range.bytes.size / 2, head,
                         MIN(range.bytes.size - range.bytes.size / 2, sizeof(head)), &err);
    }
    if (gpu_log_damage(r)->state == GPU_LOG_READING)
        abort();
    for (const struct gpu_stream_context *c = s->contexts; c; c = c->next) {
        gpu_print_bound(out, s, c->id);
        gpu_json_bound(out, s, c->id);
        u32 draw[13] = {VIRGL_CCMD_DRAW_VBO | 12 << 16, 0, 100, 4};
        struct virgl_command v = {.id = VIRGL_CCMD_DRAW_VBO,
                                  .length = 12,
                                  .words = (u8 *)draw,
                                  .desc = virgl_desc(VIRGL_CCMD_DRAW_VBO, 0)};
        gpu_print_vertices(out, s, c->id, &v, 4);
        draw[4] = 1; /* indexed */
        gpu_print_vertices(out, s, c->id, &v, 4);
    }
    gpu_state_destroy(s);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    for (int pass = 0; pass < 2; pass++) {
        struct gpu_log_reader *r;
        struct err err;
        char *text;
        size_t text_size;
        u8 *copy = malloc(size + 1);
        memcpy(copy, data, size);
        if (pass)
            gpu_log_repair(copy, size);
        int fd = memfd_create("gpu.log", 0);
        if (write(fd, copy, size) != (ssize_t)size)
            abort();
        free(copy);
        FILE *out = open_memstream(&text, &text_size);
        if (!gpu_log_open(&r, fd, &err)) {
            read_log(r, out);
            gpu_log_rewind(r);
            gpu_log_reader_destroy(r);
        }
        fclose(out);
        free(text);
    }
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    struct err err;
    int fd = memfd_create("gpu.log", 0);
    if (sample_gpu_log(dup(fd), 4, true, NULL, &err))
        abort();
    *size = (size_t)lseek(fd, 0, SEEK_END);
    u8 *data = malloc(*size);
    if (pread(fd, data, *size, 0) != (ssize_t)*size)
        abort();
    close(fd);
    return gpu_log_unpacked(data, size);
}
