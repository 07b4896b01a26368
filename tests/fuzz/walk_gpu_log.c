/* See walk_gpu_log.h. */
#include "walk_gpu_log.h"

#include <stdlib.h>

#include "virtio-gpu-log/print.h"

struct gpu_log_count walk_gpu_log(struct gpu_log_reader *r, FILE *out)
{
    struct gpu_stream *s = gpu_stream_create();
    struct gpu_record rec;
    struct gpu_range range;
    struct err err;
    u8 head[256];
    struct gpu_log_count n = {0};
    while (gpu_log_next(r, &rec)) {
        if (rec.type == GPU_REC_REPLY && rec.number >= n.commands)
            abort();
        n.commands += rec.type == GPU_REC_COMMAND;
        n.replies += rec.type == GPU_REC_REPLY;
        gpu_stream_step(s, r, &rec, GPU_NO_DWORD, &err);
        const struct gpu_ranges *ranges = rec.type == GPU_REC_COMMAND ? &rec.command.uploads
                                          : rec.type == GPU_REC_REPLY ? &rec.reply.readback
                                                                      : NULL;
        for (u32 at = 0; ranges && gpu_ranges_next(ranges, &at, &range);)
            gpu_log_read(r, &range.bytes, range.bytes.size / 2, head,
                         MIN(range.bytes.size - range.bytes.size / 2, sizeof(head)), &err);
    }
    if (gpu_log_damage(r)->state == CHUNKS_READING)
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
    gpu_stream_destroy(s);
    return n;
}
