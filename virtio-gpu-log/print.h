/* Commands and bound state as text and JSON. What the guest wrote is made safe for a terminal. */
#ifndef REPRISE_GPU_PRINT_H
#define REPRISE_GPU_PRINT_H

#include <stdio.h>

#include "virtio-gpu-log/stream.h"

/* " name=value ..." of a command's fields: at most `repeats` of what repeats, bits that are zero
 * only with `zeros`, at most `most` bytes of data. */
struct gpu_print_style {
    u32 repeats, most;
    bool zeros;
};
extern const struct gpu_print_style gpu_print_line, gpu_print_whole;
void gpu_print_fields(FILE *out, struct gpu_fields *it, const struct gpu_print_style *style);
/* {"name":value,...}: repeated ones as an array of objects named "each". */
void gpu_json_fields(FILE *out, struct gpu_fields *it);

/* "CREATE_OBJECT SHADER", "CLEAR", "unknown command 200"; returns `out`. */
char *virgl_title(const struct virgl_command *c, char *out, size_t size);

/* Each field on a line of its own, indented; shader text and data in full up to `most` bytes. */
void gpu_print_long(FILE *out, struct gpu_fields *it, int indent, u32 most);
void gpu_json_long(FILE *out, struct gpu_fields *it, u32 most);

/* Everything bound in the current sub-context of context `ctx`: who set it, with the objects and
 * resources that it names. */
void gpu_print_bound(FILE *out, const struct gpu_stream *s, u32 ctx);
void gpu_json_bound(FILE *out, const struct gpu_stream *s, u32 ctx);

/* The vertices of a DRAW_VBO, attribute by attribute, as far as they were uploaded; at most `most`.
 */
void gpu_print_vertices(FILE *out, const struct gpu_stream *s, u32 ctx,
                        const struct virgl_command *draw, u32 most);

#endif
