/* See picture.h. */
#include "virtio-gpu-log/picture.h"

#include <errno.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

bool gpu_picture_format(u32 format)
{
    const struct gpu_format *f = gpu_format(format);
    return f && f->layout[0];
}

static bool has_alpha(const struct gpu_format *f)
{
    return strchr(f->layout, 'A') || !strcmp(f->layout, "5551") || !strcmp(f->layout, "4444");
}

/* `bits` bits at `shift`, stretched to 0 to 255. */
static u8 stretch(u32 texel, u32 shift, u32 bits)
{
    u32 most = (1u << bits) - 1;
    return (u8)(((texel >> shift & most) * 255 + most / 2) / most);
}

/* 16 bits a texel: the bits of blue, green, red and alpha from the lowest up. */
static void packed_row(const struct gpu_format *f, const u8 *in, u32 width, u8 *out)
{
    u32 b = (u32)(f->layout[0] - '0'), g = (u32)(f->layout[1] - '0'), r = (u32)(f->layout[2] - '0');
    u32 a = f->layout[3] && f->layout[3] != 'X' ? (u32)(f->layout[3] - '0') : 0;
    for (u32 x = 0; x < width; x++, in += 2, out += 4) {
        u32 texel = in[0] | (u32)in[1] << 8;
        out[0] = stretch(texel, b + g, r);
        out[1] = stretch(texel, b, g);
        out[2] = stretch(texel, 0, b);
        out[3] = a ? stretch(texel, b + g + r, a) : 255;
    }
}

void gpu_picture_row(u32 format, const u8 *texels, u32 width, u8 *rgba)
{
    const struct gpu_format *f = gpu_format(format);
    if (f->layout[0] >= '0' && f->layout[0] <= '9') {
        packed_row(f, texels, width, rgba);
        return;
    }
    for (u32 x = 0; x < width; x++, texels += f->bytes, rgba += 4) {
        rgba[0] = rgba[1] = rgba[2] = 0;
        rgba[3] = 255;
        for (u32 i = 0; i < f->bytes; i++)
            switch (f->layout[i]) {
            case 'R': rgba[0] = texels[i]; break;
            case 'G': rgba[1] = texels[i]; break;
            case 'B': rgba[2] = texels[i]; break;
            case 'A': rgba[3] = texels[i]; break;
            case 'L': rgba[0] = rgba[1] = rgba[2] = texels[i]; break;
            case 'I': memset(rgba, texels[i], 4); break;
            default: break;
            }
        /* One channel is looked at as grey. */
        if (f->bytes == 1 && (f->layout[0] == 'R' || f->layout[0] == 'A')) {
            rgba[0] = rgba[1] = rgba[2] = texels[0];
            rgba[3] = 255;
        }
    }
}

struct target {
    struct err *err;
};

static void png_failed(png_structp png, png_const_charp text)
{
    struct target *t = png_get_error_ptr(png);
    err_set(t->err, errno ? -errno : -EIO, "cannot write the picture: %s",
            errno ? strerror(errno) : text);
    png_longjmp(png, 1);
}

static void png_remark(png_structp png, png_const_charp text)
{
}

/* What may be longjmp'ed out of, with nothing in registers that is needed afterwards. */
static bool write_rows(png_structp png, png_infop info, FILE *f, const struct gpu_format *format,
                       u32 width, u32 height, const u8 *texels, u64 stride, bool alpha, u8 *row)
{
    if (setjmp(png_jmpbuf(png)))
        return false;
    png_init_io(png, f);
    png_set_IHDR(png, info, width, height, 8, alpha ? PNG_COLOR_TYPE_RGBA : PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, 1);
    png_write_info(png, info);
    for (u32 y = 0; y < height; y++) {
        gpu_picture_row(format->number, texels + y * stride, width, row);
        for (u32 x = 0; !alpha && x < width; x++)
            memmove(row + (size_t)x * 3, row + (size_t)x * 4, 3);
        png_write_row(png, row);
    }
    png_write_end(png, info);
    return true;
}

int gpu_picture_write(FILE *f, u32 format, u32 width, u32 height, const u8 *texels, u64 stride,
                      bool alpha, struct err *err)
{
    const struct gpu_format *fmt = gpu_format(format);
    struct target target = {err};
    if (!fmt || !fmt->layout[0])
        return err_set(err, -EINVAL, "no picture is made of the format %s (%u)",
                       fmt ? fmt->name : "unknown", format);
    errno = 0;
    err->code = 0;
    u8 *row = malloc((size_t)width * 4 + 1);
    png_structp png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &target, png_failed, png_remark);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!row || !info)
        err_set(err, -ENOMEM, "no memory for the picture");
    else if (!write_rows(png, info, f, fmt, width, height, texels, stride, alpha && has_alpha(fmt),
                         row) &&
             !err->code)
        err_set(err, -EIO, "cannot write the picture");
    png_destroy_write_struct(&png, &info);
    free(row);
    return err->code;
}
