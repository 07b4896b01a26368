/*
 * How to unwind the stack of a Linux kernel of 32 bits, which has no tables that say it: as rows of
 * orc.h, by what its code does. Functions of C keep a frame pointer
 * (CONFIG_UNWINDER_FRAME_POINTER), but where they begin and end; the kernel's entries (entry_32.S)
 * have the frames of the CPU and struct pt_regs. Code is the guest's to forge: it is only looked
 * at.
 */
#ifndef REPRISE_FRAMES_H
#define REPRISE_FRAMES_H

#include "inspect/guest_linux.h"

/* Adds the rows of a finished table's functions. -ENOMEM with a text. */
int frames_read(struct symbols *s, const struct guest_linux *g, struct err *err);

#endif
