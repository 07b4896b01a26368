/* flags.c: the frozen rule of dead flags. */
#ifndef REPRISE_X86_FLAGS_H
#define REPRISE_X86_FLAGS_H

#include "cpu/x86/core.h"

/* `end`: where in the page the bytes end that it depends on; they begin at the offset. */
u32 flags_live(struct core *d, const u8 *page_bytes, unsigned offset, unsigned *end);
u32 flags_live_at(struct core *d, u64 lin);
void flags_make_visible(struct core *d); /* masks d->flags by what is live at RIP */

#endif
