/*
 * At which instructions vCPUs had their turn taken away in a recording, and where another one comes
 * to the same instructions with the same registers: so a turn has a place in a run that is not as
 * far by count as the one that it is from. Recordings are read and replayed by processes of their
 * own, which lock themselves in.
 */
#ifndef REPRISE_CMD_HUNT_SWITCHES_H
#define REPRISE_CMD_HUNT_SWITCHES_H

#include "base/err.h"
#include "replay/checkpoint.h"

#define HUNT_SWITCHES 48u
#define HUNT_COMES    2u /* times that a place is come to: the first and the last of those alike */

/* `cpu` could have gone on. */
struct hunt_switch {
    u32 cpu, to;
    pos_t position;
    u64 rip, gpr[16];
};
struct hunt_switches {
    u32 n;
    struct hunt_switch of[HUNT_SWITCHES]; /* in order */
};
/* The last ones from `begin` up to the position. */
int hunt_look_switches(const char *dir, const struct instant *begin, pos_t upto,
                       struct hunt_switches *out, struct err *err);

struct hunt_come {
    bool found;
    u32 cpu;
    u64 count; /* what it had counted, as in a file of turns */
    pos_t position;
};
struct hunt_comes {
    struct hunt_come of[HUNT_SWITCHES][HUNT_COMES];
};
/* Where a recording comes to the places of these switches, from `begin` on, after the position;
 * those whose registers are most alike. */
int hunt_look_comes(const char *dir, const struct instant *begin, pos_t after,
                    const struct hunt_switches *to, struct hunt_comes *out, struct err *err);

#endif
