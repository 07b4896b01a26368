/*
 * The input source: the one interface through which anything enters the machine. Live when
 * recording (terminal, signals), the log when replaying; no device and no part of the machine
 * knows which. The run loop asks at every stop; an input applies at exactly that position.
 */
#ifndef REPRISE_INPUT_H
#define REPRISE_INPUT_H

#include "base/err.h"
#include "base/types.h"

struct machine;

enum input_kind {
    INPUT_CONSOLE = 1,  /* bytes typed on the serial port; never more than there is room for */
    INPUT_BREAK,        /* BREAK on the serial line */
    INPUT_NMI,          /* the NMI button */
    INPUT_POWER_BUTTON, /* ACPI power button */
    INPUT_QUIT,         /* end of the recording at the user's wish; arg is enum quit_reason */
    INPUT_PACKET,       /* an Ethernet frame for network `unit`, 14 bytes to INPUT_MAX */
    INPUT_LINK,         /* link of network `unit`; arg is 1 up, 0 down */
    INPUT_PORT,         /* bytes for port `unit` of the virtio console; typed ones if it is 0 */
    INPUT_PORT_OPEN,    /* the host's end of port `unit`; arg is 1 opened, 0 closed */
    INPUT_EVENTS,       /* for input device `unit`: 8 bytes each (virtio 1.2, 5.8.6) */
    INPUT_DISK_ERROR,   /* the host cannot do request `arg` of disk `unit` */
    INPUT_GPU,          /* the renderer's reply to the GPU command that waits, or a part of one */
    INPUT_PLACE,        /* the CPU is at this struct engine_place; arg ns pass (between()) */
};

#define INPUT_MAX         (32u << 10) /* bytes of one input */
#define INPUT_CONSOLE_MAX 64u         /* of INPUT_CONSOLE */
#define INPUT_EVENT_SIZE  8u

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

struct input {
    enum input_kind kind;
    u32 unit, arg;
    u32 len;
    const u8 *data; /* the source's, until it is asked again */
};

struct input_source;

struct input_source_ops {
    /*
     * The next position at which the machine must stop and call take(), as far as known now:
     * replay gives the next record's; a live source gives NEVER and is asked at every slice end.
     */
    pos_t (*next_position)(struct input_source *src, struct machine *m);
    /*
     * Takes the next input that applies at this very instant (machine_position, machine_now).
     * 1: *in filled; 0: none now; <0: error or divergence, with text: the run ends.
     * Called until it returns 0. Also the place where progress is recorded and verified.
     */
    int (*take)(struct input_source *src, struct machine *m, struct input *in, struct err *err);
    /*
     * The machine is idle (halted) until virtual time `deadline` (NEVER: until an input). Live:
     * waits in host time when paced. Replay: never waits unless asked to pace. Sets *until, now <=
     * *until <= deadline: the virtual time to go on from. If something is to be taken before the
     * deadline then *until < deadline. 0, or 1: nothing will ever come (only when deadline is
     * NEVER), or <0 error.
     */
    int (*idle)(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err);
    /*
     * The guest executes without end and nothing counts (ENGINE_BETWEEN): 1: *in is an INPUT_PLACE,
     * so that time passes and it can be interrupted; 0: it is to go on. NULL: it always is.
     */
    int (*between)(struct input_source *src, struct machine *m, struct input *in, struct err *err);
};

struct input_source {
    const struct input_source_ops *ops;
};

#endif
