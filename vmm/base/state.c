#include "base/state.h"

#include <errno.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

size_t state_size(const struct state_desc *desc)
{
    size_t n = 0;
    for (size_t i = 0; i < desc->nfields; i++)
        n += (size_t)desc->fields[i].elem * desc->fields[i].count;
    return n;
}

u64 state_hash(const struct state_desc *desc, const void *state)
{
    XXH3_state_t h;
    XXH3_64bits_reset(&h);
    for (size_t i = 0; i < desc->nfields; i++) {
        const struct state_field *f = &desc->fields[i];
        XXH3_64bits_update(&h, (const u8 *)state + f->offset, (size_t)f->elem * f->count);
    }
    return XXH3_64bits_digest(&h);
}

void state_save(const struct state_desc *desc, const void *state, u8 *out)
{
    for (size_t i = 0; i < desc->nfields; i++) {
        const struct state_field *f = &desc->fields[i];
        size_t n = (size_t)f->elem * f->count;
        memcpy(out, (const u8 *)state + f->offset, n);
        out += n;
    }
}

int state_load(const struct state_desc *desc, void *state, const u8 *in, size_t len,
               struct err *err)
{
    if (len != state_size(desc))
        return err_set(err, -EINVAL, "state of %s has %zu bytes where %zu are expected", desc->name,
                       len, state_size(desc));
    for (size_t i = 0; i < desc->nfields; i++) {
        const struct state_field *f = &desc->fields[i];
        size_t n = (size_t)f->elem * f->count;
        memcpy((u8 *)state + f->offset, in, n);
        in += n;
    }
    return 0;
}

static u64 element(const struct state_field *f, const void *state, unsigned index)
{
    u64 v = 0;
    memcpy(&v, (const u8 *)state + f->offset + (size_t)f->elem * index, f->elem);
    return v;
}

void state_diff(const struct state_desc *desc, const void *a, const void *b,
                void (*fn)(void *opaque, const struct state_field *field, unsigned index, u64 va,
                           u64 vb),
                void *opaque)
{
    for (size_t i = 0; i < desc->nfields; i++) {
        const struct state_field *f = &desc->fields[i];
        for (unsigned k = 0; k < f->count; k++) {
            u64 va = element(f, a, k), vb = element(f, b, k);
            if (va != vb) {
                fn(opaque, f, k, va, vb);
                break;
            }
        }
    }
}
