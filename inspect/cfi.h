/*
 * Call frame information (DWARF, .debug_frame) from a guest kernel's unwind tables (orc.h): what a
 * debugger needs to find the callers of a function without frame pointers.
 */
#ifndef REPRISE_CFI_H
#define REPRISE_CFI_H

#include "inspect/symbols.h"

struct cfi {
    u8 *data;
    size_t size, room;
    const struct cfi_width *of; /* what differs between kernels of 64 and 32 bits */
};

/* For the functions of a finished table. Zeroes *c first; empty where there are no unwind tables.
 * -ENOMEM with a text. */
int cfi_make(struct cfi *c, const struct symbols *s, struct err *err);
void cfi_free(struct cfi *c); /* safe on zeros */

#endif
