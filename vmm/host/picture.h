/* Pictures as PNG files, by libpng. */
#ifndef REPRISE_HOST_PICTURE_H
#define REPRISE_HOST_PICTURE_H

#include <stdio.h>

#include "base/err.h"
#include "base/types.h"

/* Writes width x height pixels; row() gives row y as R, G, B bytes. <0 with a text. */
int picture_write(FILE *out, u32 width, u32 height, void (*row)(void *opaque, u32 y, u8 *rgb),
                  void *opaque, struct err *err);

#endif
