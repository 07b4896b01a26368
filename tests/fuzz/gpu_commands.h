/* Commands of virtio-gpu and of virgl made from bytes of a program: from the tables that declare
 * them, and the ones that a driver would send. */
#ifndef REPRISE_FUZZ_GPU_COMMANDS_H
#define REPRISE_FUZZ_GPU_COMMANDS_H

#include "tests/fuzz/program.h"

#define GPU_COMMAND_BYTES 0x800u

/* kind 0: of the table; 1: SUBMIT_3D; 2: a 2D resource; 3: a 3D resource; 4: backing; 5: transfers;
 * 6: scanout, flush; 7: contexts; 8: the cursor's; 9: of one id. Returns its bytes. */
u32 make_command(u8 out[GPU_COMMAND_BYTES], unsigned kind, struct program *s);
/* One of many: a 2D resource, a 3D resource, a context. */
u32 flood_command(u8 out[GPU_COMMAND_BYTES], unsigned kind, u32 id);

/* Commands of virgl as a SUBMIT_3D's buffer has them; how many dwords. */
u32 make_virgl(u32 *out, u32 room, struct program *s);

#endif
