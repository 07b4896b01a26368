/* See picture.h. */
#include "host/picture.h"

#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>

int picture_write(FILE *out, u32 width, u32 height, void (*row)(void *opaque, u32 y, u8 *rgb),
                  void *opaque, struct err *err)
{
    u8 *rgb = malloc((size_t)width * 3 + 1);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int code = 0;
    if (!rgb || !info) {
        code = err_set(err, -ENOMEM, "no memory for the picture");
    } else if (setjmp(png_jmpbuf(png))) {
        code = err_errno(err, "cannot write the picture");
    } else {
        png_init_io(png, out);
        png_set_compression_level(png, 3); /* half the time of the default for 3% more bytes */
        png_set_IHDR(png, info, width, height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
        png_write_info(png, info);
        for (u32 y = 0; y < height; y++) {
            row(opaque, y, rgb);
            png_write_row(png, rgb);
        }
        png_write_end(png, NULL);
        if (fflush(out))
            code = err_errno(err, "cannot write the picture");
    }
    png_destroy_write_struct(&png, &info);
    free(rgb);
    return code;
}
