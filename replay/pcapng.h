/*
 * Writing pcapng (draft-ietf-opsawg-pcapng), little-endian, nanoseconds: a section, its interfaces,
 * then packets. Errors are the stream's: look at ferror() in the end.
 */
#ifndef REPRISE_PCAPNG_H
#define REPRISE_PCAPNG_H

#include <stdio.h>

#include "base/types.h"

/* The section header. */
void pcapng_begin(FILE *out, const char *application);
/* An Ethernet interface; they are numbered from 0 in the order of these calls. */
void pcapng_interface(FILE *out, const char *name, const char *description, const u8 mac[6]);

struct pcapng_packet {
    u32 interface;
    u64 time; /* Unix time in ns */
    bool inbound;
    const u8 *frame;
    u32 len;
    const char *comment;
};
void pcapng_packet(FILE *out, const struct pcapng_packet *p);

#endif
