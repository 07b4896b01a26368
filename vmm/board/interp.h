/*
 * Programs that were added to an initrd and want a loader that is not in it: the guest's shell then
 * says "not found" of a program that is there.
 */
#ifndef REPRISE_INTERP_H
#define REPRISE_INTERP_H

#include "base/types.h"

#define INTERP_MAX 256

/* Walks the archive's entries from byte `from` on and calls `fn` for each program whose loader
 * (PT_INTERP) is nowhere in it, by its file name. Not where a part of the initrd is packed: it may
 * be in there. Any bytes are safe. */
void interp_missing(const void *initrd, size_t size, size_t from,
                    void (*fn)(void *opaque, const char *program, const char *loader),
                    void *opaque);

#endif
