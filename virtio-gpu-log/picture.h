/* Uploaded texels as pixels, for the plain colour formats (formats.def has their layouts). */
#ifndef REPRISE_GPU_PICTURE_H
#define REPRISE_GPU_PICTURE_H

#include "virtio-gpu-log/names.h"

/* Can a picture be made of it? */
bool gpu_picture_format(u32 format);
/* One row of such texels to R, G, B, A bytes; alpha is 255 where the format has none. */
void gpu_picture_row(u32 format, const u8 *texels, u32 width, u8 *rgba);

#endif
