/* Numbers to names, from enums.def and formats.def. */
#include "virtio-gpu-log/names.h"

#include <stdio.h>
#include <stdlib.h>

struct value {
    u32 number;
    const char *name;
};

/* clang-format off */
#define ENUM(name) static const struct value name##_values[] = {
#define FLAGS(name) static const struct value name##_values[] = {
#define VALUE(name, number) {number, #name},
#define END(name) };
#include "virtio-gpu-log/enums.def"
#undef ENUM
#undef FLAGS
#undef VALUE
#undef END

static const struct {
    const struct value *values;
    u32 count;
    bool flags;
} enums[] = {
    [GPU_ENUM_none] = {0},
#define ENUM(name) [GPU_ENUM_##name] = {name##_values, ARRAY_SIZE(name##_values), false},
#define FLAGS(name) [GPU_ENUM_##name] = {name##_values, ARRAY_SIZE(name##_values), true},
#define VALUE(name, number)
#define END(name)
#include "virtio-gpu-log/enums.def"
#undef ENUM
#undef FLAGS
#undef VALUE
#undef END
};

static const struct gpu_format formats[] = {
#define FORMAT(number, name, width, height, bytes, layout) \
    {number, #name, width, height, bytes, layout},
#include "virtio-gpu-log/formats.def"
#undef FORMAT
};
/* clang-format on */

const char *gpu_value_name(enum gpu_enum e, u32 value)
{
    for (u32 i = 0; i < enums[e].count; i++)
        if (enums[e].values[i].number == value)
            return enums[e].values[i].name;
    return NULL;
}

char *gpu_value_text(enum gpu_enum e, u32 value, char *out, size_t size)
{
    const char *name = enums[e].flags ? NULL : gpu_value_name(e, value);
    if (name || !enums[e].flags || !value) {
        if (name)
            snprintf(out, size, "%s", name);
        else
            snprintf(out, size, "%u", value);
        return out;
    }
    size_t at = 0;
    u32 rest = value;
    for (u32 i = 0; i < enums[e].count && at < size; i++) {
        const struct value *v = &enums[e].values[i];
        if ((value & v->number) == v->number) {
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? "|" : "", v->name);
            rest &= ~v->number;
        }
    }
    if (rest && at < size)
        snprintf(out + at, size - at, "%s0x%x", at ? "|" : "", rest);
    return out;
}

static int compare(const void *key, const void *row)
{
    u32 a = *(const u32 *)key, b = ((const struct gpu_format *)row)->number;
    return a < b ? -1 : a > b;
}

const struct gpu_format *gpu_format(u32 number)
{
    return bsearch(&number, formats, ARRAY_SIZE(formats), sizeof(formats[0]), compare);
}
