/*
 * What numbers are called: enumerations and flags of virtio-gpu and gallium (enums.def), formats of
 * resources (formats.def).
 */
#ifndef REPRISE_GPU_NAMES_H
#define REPRISE_GPU_NAMES_H

#include "base/types.h"

/* clang-format off */
enum gpu_enum {
    GPU_ENUM_none,
#define ENUM(name) GPU_ENUM_##name,
#define FLAGS(name) GPU_ENUM_##name,
#define VALUE(name, number)
#define END(name)
#include "virtio-gpu-log/enums.def"
#undef ENUM
#undef FLAGS
#undef VALUE
#undef END
};
/* clang-format on */

/* The name of a value of an ENUM; NULL when it has none. */
const char *gpu_value_name(enum gpu_enum e, u32 value);
/* As text: a name, or names joined by '|' with what is left over in hex, or the number alone. At
 * most `size` bytes with the NUL; returns out. */
char *gpu_value_text(enum gpu_enum e, u32 value, char *out, size_t size);

enum gpu_format_number {
#define FORMAT(number, name, width, height, bytes, layout) VIRGL_FORMAT_##name = number,
#include "virtio-gpu-log/formats.def"
#undef FORMAT
};

struct gpu_format {
    u32 number;
    const char *name;
    u32 block_width, block_height; /* texels */
    u32 bytes;                     /* of a block; 0: planar */
    const char *layout;            /* "": no picture is made of it (picture.h) */
};

/* NULL: there is no such format. */
const struct gpu_format *gpu_format(u32 number);

#endif
