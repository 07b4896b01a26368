/*
 * The callers of where a machine stands, by the kernel's own unwind tables (orc.h), as its oopses
 * print them and as gdb finds them with cfi.h: up to the program that entered the kernel. Stacks
 * are the guest's to forge: every step is bounded, and nothing but memory is read.
 */
#ifndef REPRISE_BACKTRACE_H
#define REPRISE_BACKTRACE_H

#include "machine/machine.h"
#include "inspect/symbols.h"

#define BACKTRACE_MAX 64

struct backtrace_frame {
    u64 address;
    bool user; /* of a program: no further */
};

/* Fills `out`, innermost first; returns how many, at least 1. `s` may be NULL: only that one. */
unsigned backtrace_read(struct machine *m, const struct symbols *s,
                        struct backtrace_frame out[BACKTRACE_MAX]);

#endif
