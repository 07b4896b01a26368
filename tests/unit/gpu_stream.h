/* Streams of GPU commands made by hand, for tests: encoders, and a whole small log. */
#ifndef REPRISE_TEST_GPU_STREAM_H
#define REPRISE_TEST_GPU_STREAM_H

#include "virtio-gpu-log/log.h"

/* Dwords of a SUBMIT_3D's buffer. */
struct words {
    u32 at[16384];
    u32 n;
};
void put(struct words *w, u32 value);
void put_float(struct words *w, float value);
void put_header(struct words *w, u32 id, u32 object, u32 length);
/* A whole command: header and `length` dwords. */
void put_command(struct words *w, u32 id, u32 object, u32 length, ...);
void put_shader(struct words *w, u32 handle, u32 stage, const char *text);

/* A stream that goes into a log, each command one microsecond after the last. */
struct stream {
    struct gpu_log_writer *log; /* may be NULL: only counts */
    pos_t position;
    u64 number; /* of the next command */
    u64 fence;
    u64 words; /* bytes of SUBMIT_3D buffers */
};
/* Adds a command: header made from the arguments, then the body; answered with `response`. Returns
 * its number. */
u64 stream_add(struct stream *s, u32 type, u32 ctx, const void *body, u32 size,
               const struct gpu_range *uploads, u32 count, u32 response);
u64 stream_submit(struct stream *s, u32 ctx, const struct words *w, const struct gpu_range *uploads,
                  u32 count, u32 response);

#define SAMPLE_WIDTH  64
#define SAMPLE_HEIGHT 48
enum { SAMPLE_TARGET = 1, SAMPLE_VERTICES = 2, SAMPLE_TEXTURE = 3, SAMPLE_2D = 4 };

/*
 * Writes a log to `fd`: a context that draws a textured triangle for `frames` frames, with a
 * TRANSFER3D of its vertices in each, a 2D resource, a cursor, a refused submit, a read-back, the
 * renderer's end; closed with an end record if `whole`. <0 with a text.
 */
int sample_gpu_log(int fd, unsigned frames, bool whole, struct gpu_log_sizes *sizes,
                   struct err *err);

/* Its two kinds of buffers: all objects; a frame, with a TRANSFER3D at dword *transfer_at. */
void sample_setup(struct words *w);
void sample_draw(struct words *w, unsigned frame, u32 *transfer_at);

/* The texture's texels (R8G8B8A8, 8x8). */
void sample_texture(u8 out[256]);

#endif
