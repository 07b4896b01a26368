/* See picture.h. */
#include "virtio-gpu-log/picture.h"

#include <string.h>

bool gpu_picture_format(u32 format)
{
    const struct gpu_format *f = gpu_format(format);
    return f && f->layout[0];
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

/* 4 bytes a texel, as nearly all that is shown: whole rows at a time. */
static bool four_bytes(const struct gpu_format *f, const u8 *in, u32 width, u8 *out)
{
    static const char names[] = "RGBA";
    u32 shift[4] = {32, 32, 32, 32}, known = 0;
    for (u32 i = 0; f->bytes == 4 && i < 4 && f->layout[i]; i++) {
        const char *channel = strchr(names, f->layout[i]);
        known += channel || f->layout[i] == 'X';
        if (channel)
            shift[channel - names] = i * 8;
    }
    if (known != 4 || shift[0] == 32 || shift[1] == 32 || shift[2] == 32)
        return false;
    u32 opaque = shift[3] == 32 ? 0xff : 0, alpha = shift[3] & 31;
    for (u32 x = 0; x < width; x++) {
        u32 t, p;
        memcpy(&t, in + (size_t)x * 4, 4);
        p = (t >> shift[0] & 0xff) | (t >> shift[1] & 0xff) << 8 | (t >> shift[2] & 0xff) << 16 |
            ((t >> alpha & 0xff) | opaque) << 24;
        memcpy(out + (size_t)x * 4, &p, 4);
    }
    return true;
}

void gpu_picture_row(u32 format, const u8 *texels, u32 width, u8 *rgba)
{
    const struct gpu_format *f = gpu_format(format);
    if (f->layout[0] >= '0' && f->layout[0] <= '9') {
        packed_row(f, texels, width, rgba);
        return;
    }
    if (four_bytes(f, texels, width, rgba))
        return;
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
