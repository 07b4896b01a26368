/*
 * heads.c: instructions that were decoded, by what they begin with. All that an instruction is
 * follows from its bytes before the displacement and the immediate, its head; but for these two.
 */
#ifndef REPRISE_X86_HEADS_H
#define REPRISE_X86_HEADS_H

#include "cpu/x86/insn.h"

struct heads;

size_t heads_bytes(void); /* zeros are an empty one */
/* Decodes 15 bytes, `avail` of them the guest's and the others 0, into *in as insn_decode() does,
 * but for bytes[15], `host_lacks` and what is no part of decoding, which are as they were kept.
 * false: it is not known. */
bool heads_find(const struct heads *h, enum code_size code, const u8 bytes[15], unsigned avail,
                struct insn *in);
/* What insn_decode() made is known from now on, if it can be. */
void heads_keep(struct heads *h, const struct insn *in);

#endif
