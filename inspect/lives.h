/*
 * Every process and thread that a Linux guest ever had: a list that grows while its recording is
 * replayed, by what the kernel's own functions are called with. It needs the kernel's symbols and
 * type information (BTF). All of it is the guest's to forge, and only shown.
 */
#ifndef REPRISE_LIVES_H
#define REPRISE_LIVES_H

#include "inspect/process.h"

/* Where something happened; position NEVER: before anybody looked, or not at all. */
struct life_time {
    pos_t position;
    vns_t time;
};

struct life {
    u64 task; /* its task_struct */
    i32 pid;  /* in the kernel's words: of the thread */
    i32 tgid; /* of the process */
    i32 parent;
    bool kernel;   /* a thread of the kernel's */
    char comm[16]; /* printable */
    char *command; /* its arguments, printable, since it last executed a program; NULL: unknown */
    u32 execs;
    struct life_time began, executed, ended;
    u32 next; /* of those that live, in the same place of the hash */
    u32 code; /* once ended: of do_exit(): signal in bits 0 to 6, core in bit 7, status from 8 on */
};

#define LIVES_NONE UINT32_MAX

/* Functions at whose beginning the machine has to stop. */
#define LIVES_POINTS 3

struct lives {
    struct life *list; /* in the order in which they began */
    u32 count, room;
    size_t text; /* bytes of all commands, as far as they were ever kept */
    u32 *hash;   /* by task: those that live, LIVES_NONE at the end */
    bool cut;    /* there were more than anybody wants to see */
    struct process_layout current;
    u32 parent_at, mm_at, start_at, end_at; /* members of the task and of its mm */
    u32 tgid_at, pid_at, comm_at;
    u64 points[LIVES_POINTS];
};

/* Learns from the kernel, where the machine stands, and takes what lives there. -ENOENT with a
 * text: it does not say (yet). */
int lives_learn(struct lives *l, struct machine *m, const struct symbols *s, struct err *err);
/* The machine stands at l->points[point]. <0: no memory. */
int lives_hit(struct lives *l, struct machine *m, unsigned point, struct err *err);
/* Names and parents of those that live, as they are where the machine stands now. */
void lives_now(struct lives *l, struct machine *m);
void lives_free(struct lives *l); /* safe on zeros */

#endif
