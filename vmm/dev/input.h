/*
 * An input: what enters the machine from outside. It is applied at an exact position, and recorded;
 * a device that takes one does not know from whom it comes.
 */
#ifndef REPRISE_DEV_INPUT_H
#define REPRISE_DEV_INPUT_H

#include "base/types.h"

/* INPUT_NAME: what the rows say. */
enum input_kind {
    INPUT_NONE,
#define INPUT(NAME, ...) INPUT_##NAME,
#include "dev/inputs.def"
#undef INPUT
    INPUT_KINDS
};

#define INPUT_MAX         (32u << 10) /* bytes of one input */
#define INPUT_CONSOLE_MAX 64u         /* of INPUT_CONSOLE */
#define INPUT_EVENT_SIZE  8u
#define INPUT_PLACE_SIZE  32u
#define INPUT_CONTENT_MAX (128u << 10) /* of INPUT_CONTENT */

#define INPUT_GENERATION_SIZE 16u
#define INPUT_SEED_SIZE       8u

enum quit_reason {
    QUIT_USER = 1, /* Ctrl-A x */
    QUIT_SIGNAL,   /* SIGINT, SIGTERM, SIGHUP */
    QUIT_TIMEOUT,  /* --timeout */
    QUIT_TEXT,     /* --stop-at TEXT was printed */
    QUIT_INSNS,    /* --max-insns */
    QUIT_DISK,     /* the log could not be written any more */
    QUIT_IDLE,     /* no input is left and the guest does nothing but wait (--idle-limit) */
    QUIT_ENGINE,   /* the host's part of the engine could not go on (KVM) */
};

/* Of INPUT_CHAOS. */
enum chaos_part { CHAOS_ALL, CHAOS_TURNS, CHAOS_DELAYS };

struct input {
    enum input_kind kind;
    u32 unit, arg;
    u32 len;
    const u8 *data; /* the source's, until it is asked again; of INPUT_CONTENT `arg` bytes, len 0 */
};

#endif
