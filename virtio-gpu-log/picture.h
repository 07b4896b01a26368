/* Uploaded texels as PNG, for the plain colour formats (formats.def has their layouts). */
#ifndef REPRISE_GPU_PICTURE_H
#define REPRISE_GPU_PICTURE_H

#include <stdio.h>

#include "base/err.h"
#include "virtio-gpu-log/names.h"

/* Can a picture be made of it? */
bool gpu_picture_format(u32 format);
/* One row of texels to R, G, B, A bytes; alpha is 255 where the format has none. */
void gpu_picture_row(u32 format, const u8 *texels, u32 width, u8 *rgba);
/* Writes rows of texels, `stride` bytes apart, as a PNG: RGB, or RGBA when the format has alpha and
 * `alpha` is wanted. -errno with a text; `f` is left unflushed. */
int gpu_picture_write(FILE *f, u32 format, u32 width, u32 height, const u8 *texels, u64 stride,
                      bool alpha, struct err *err);

#endif
