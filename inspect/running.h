/*
 * Which process a Linux guest runs, where its machine stands: for looking at each instruction. It
 * reads RAM and changes nothing; what it finds is the guest's to forge, and only shown.
 */
#ifndef REPRISE_RUNNING_H
#define REPRISE_RUNNING_H

#include "inspect/btf.h"

struct running_task {
    i32 pid, tgid; /* of the thread; of the process */
    char comm[16]; /* with a NUL; any bytes */
};

struct running {
    bool known; /* the kernel says where to look */
    struct guest_current where;
    /* As last looked up; NULL: not mapped then. */
    const u8 *offsets, *variable;
    u64 gdt; /* where a kernel of 32 bits says what `offsets` does else */
    unsigned cpu;
    gpa_t variable_at, comm_at;
    u64 base, task;
    const u8 *pid, *tgid, *comm;
};

/* Learns from the guest's kernel where to look; false: it does not say (here). */
bool running_learn(struct running *r, struct machine *m, const struct symbols *s);
/* What runs now; false if that cannot be seen (the kernel has not begun). */
bool running_look(struct running *r, struct machine *m, struct running_task *out);

#endif
