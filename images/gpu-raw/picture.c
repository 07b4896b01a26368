/* See picture.h. */
#include "picture.h"

#include <stdio.h>

/* The geometry of a frame, in pixels; sides of triangle and squares are on pixels' edges. */
struct places {
    u32 triangle_x, triangle_y, side;
    u32 square_x, texture_x, squares_y;
    u32 square_colour;
};

static struct places places_of(const struct picture *p, u32 frame)
{
    return (struct places){.triangle_x = p->width / 16 + frame * 8 % (p->width / 2),
                           .triangle_y = p->height / 8,
                           .side = MIN(p->width / 4, p->height / 3),
                           .square_x = p->width / 16,
                           .texture_x = p->width / 2,
                           .squares_y = p->height * 5 / 8,
                           .square_colour =
                               (frame * 3 & 255) << 16 | 200u << 8 | (255 - (frame * 5 & 255))};
}

static u32 texel(u32 frame, u32 x, u32 y)
{
    return ((x * 4 + frame) & 255) << 16 | (y * 4) << 8 | (frame * 7 & 255);
}

static u32 expected(const struct places *p, u32 frame, u32 x, u32 y)
{
    u32 row = y - p->squares_y, column = x - p->triangle_x;
    if (row < SQUARE && x - p->square_x < SQUARE)
        return p->square_colour;
    if (row < SQUARE && x - p->texture_x < SQUARE)
        return texel(frame, x - p->texture_x, row);
    row = y - p->triangle_y;
    if (row < p->side && column < p->side && row + column < p->side)
        return TRIANGLE_COLOUR;
    return BACKGROUND;
}

static struct vertex vertex(const struct picture *p, float x, float y)
{
    return (struct vertex){
        .position = {2 * x / (float)p->width - 1, 2 * y / (float)p->height - 1, 0, 1}};
}

static void colour(struct vertex *v, u32 count, u32 rgb)
{
    for (u32 i = 0; i < count; i++) {
        for (u32 k = 0; k < 3; k++)
            v[i].value[k] = (float)(rgb >> (16 - 8 * k) & 255) / 255;
        v[i].value[3] = 1;
    }
}

static void square(const struct picture *p, struct vertex *v, u32 x, u32 y)
{
    static const u8 corner[6][2] = {{0, 0}, {1, 0}, {0, 1}, {0, 1}, {1, 0}, {1, 1}};
    for (u32 i = 0; i < 6; i++) {
        v[i] = vertex(p, (float)(x + corner[i][0] * SQUARE), (float)(y + corner[i][1] * SQUARE));
        v[i].value[0] = corner[i][0];
        v[i].value[1] = corner[i][1];
    }
}

/* The long side lies half a pixel further out, so that it goes through no pixel's centre. */
void picture_vertices(const struct picture *p, u32 frame, struct vertex v[VERTICES])
{
    struct places at = places_of(p, frame);
    float x = (float)at.triangle_x, y = (float)at.triangle_y, side = (float)at.side + 0.5f;
    v[TRIANGLE] = vertex(p, x, y);
    v[TRIANGLE + 1] = vertex(p, x + side, y);
    v[TRIANGLE + 2] = vertex(p, x, y + side);
    colour(v + TRIANGLE, 3, TRIANGLE_COLOUR);
    square(p, v + COLOURED, at.square_x, at.squares_y);
    colour(v + COLOURED, 6, at.square_colour);
    square(p, v + TEXTURED, at.texture_x, at.squares_y);
}

void picture_texture(u32 frame, u8 *rgba)
{
    for (u32 y = 0; y < SQUARE; y++)
        for (u32 x = 0; x < SQUARE; x++, rgba += 4) {
            u32 rgb = texel(frame, x, y);
            rgba[0] = (u8)(rgb >> 16);
            rgba[1] = (u8)(rgb >> 8);
            rgba[2] = (u8)rgb;
            rgba[3] = 255;
        }
}

static u32 crc_byte(u32 crc, u32 byte)
{
    static u32 table[256];
    for (u32 i = 0; !table[255] && i < 256; i++) {
        u32 r = i;
        for (int k = 0; k < 8; k++)
            r = r >> 1 ^ (r & 1 ? 0xedb88320u : 0);
        table[i] = r;
    }
    return table[(crc ^ byte) & 255] ^ crc >> 8;
}

void picture_check(const struct picture *p, u32 frame, const u32 *pixels, struct check *result)
{
    struct places at = places_of(p, frame);
    struct check r = {.crc = ~0u};
    for (u32 y = 0, i = 0; y < p->height; y++)
        for (u32 x = 0; x < p->width; x++, i++) {
            u32 is = pixels[i] & 0xffffff, should = expected(&at, frame, x, y);
            for (int shift = 16; shift >= 0; shift -= 8)
                r.crc = crc_byte(r.crc, is >> shift & 255);
            if (is != should && !r.wrong++) {
                r.x = x;
                r.y = y;
                r.is = is;
                r.should = should;
            }
        }
    r.crc = ~r.crc;
    r.triangle = pixels[(at.triangle_y + 10) * p->width + at.triangle_x + 10] & 0xffffff;
    r.square = pixels[(at.squares_y + 10) * p->width + at.square_x + 10] & 0xffffff;
    r.texel = pixels[(at.squares_y + 40) * p->width + at.texture_x + 10] & 0xffffff;
    r.background = pixels[10 * p->width + 10] & 0xffffff;
    *result = r;
}

void picture_print(u32 n, const struct check *c)
{
    printf("frame %u: crc %08x, triangle %06x, square %06x, texture %06x, background %06x, ", n,
           c->crc, c->triangle, c->square, c->texel, c->background);
    if (c->wrong)
        printf("%u pixels wrong, first %u,%u: %06x, should be %06x", c->wrong, c->x, c->y, c->is,
               c->should);
    else
        printf("right");
}
