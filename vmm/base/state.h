/*
 * The saved state of a device or vCPU, declared once. A component writes an X-macro with one row a
 * field; the struct and its descriptor come from the same rows, so that a field cannot be saved
 * and yet not hashed, or the reverse:
 *
 *     #define UART_STATE(F, A) F(u8, ier) A(u8, rx, 16)
 *     STATE(uart, "uart16550", UART_STATE);
 *
 * declares struct uart_state and static const struct state_desc uart_desc. A file has one of these.
 *
 * A field is a little-endian integer of 1, 2, 4 or 8 bytes, or an array of them. Host handles live
 * in a second struct and are never saved.
 */
#ifndef REPRISE_STATE_H
#define REPRISE_STATE_H

#include "base/err.h"
#include "base/types.h"

struct state_field {
    const char *name;
    u32 offset;
    u16 elem;  /* bytes of one element: 1, 2, 4 or 8 */
    u16 count; /* elements; 1 for a scalar */
};

struct state_desc {
    const char *name;
    const struct state_field *fields;
    size_t nfields;
    size_t size; /* sizeof the struct */
};

/* A scalar is an array of one in the struct's layout, but not in C: two member macros. */
#define STATE_MEMBER(type, name)          type name;
#define STATE_MEMBER_ARRAY(type, name, n) type name[n];
/* The rows of a struct that has the typedef state_here: a field's offset in it. */
#define STATE_FIELD(type, name)          {#name, (u32)offsetof(state_here, name), sizeof(type), 1},
#define STATE_FIELD_ARRAY(type, name, n) {#name, (u32)offsetof(state_here, name), sizeof(type), n},

#define STATE_STRUCT(tag, ROWS)                                                                    \
    struct tag##_state {                                                                           \
        ROWS(STATE_MEMBER, STATE_MEMBER_ARRAY)                                                     \
    }
/* The descriptor alone, of a struct that several files share. */
#define STATE_DESC(tag, label, ROWS)                                                               \
    typedef struct tag##_state state_here;                                                         \
    static const struct state_field tag##_fields[] = {ROWS(STATE_FIELD, STATE_FIELD_ARRAY)};       \
    static const struct state_desc tag##_desc = {label, tag##_fields, ARRAY_SIZE(tag##_fields),    \
                                                 sizeof(state_here)}
#define STATE(tag, label, ROWS)                                                                    \
    STATE_STRUCT(tag, ROWS);                                                                       \
    STATE_DESC(tag, label, ROWS)

/* Bytes that state_save writes. */
size_t state_size(const struct state_desc *desc);

/* XXH3-64 over all fields in row order (padding does not count). */
u64 state_hash(const struct state_desc *desc, const void *state);

/* Writes state_size(desc) bytes. */
void state_save(const struct state_desc *desc, const void *state, u8 *out);

/* Reads what state_save wrote. -EINVAL with a text when `len` is not state_size(desc); the state
 * is then unchanged. The component validates what the values mean. */
int state_load(const struct state_desc *desc, void *state, const u8 *in, size_t len,
               struct err *err);

/* Calls `fn` for each field in which `a` and `b` differ; `index` is the first element that does. */
void state_diff(const struct state_desc *desc, const void *a, const void *b,
                void (*fn)(void *opaque, const struct state_field *field, unsigned index, u64 va,
                           u64 vb),
                void *opaque);

#endif
