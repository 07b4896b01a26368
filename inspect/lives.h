/*
 * Every process and thread that a Linux guest ever had, as a list of what happened to them
 * (life_events.def), in order; and what they all are after it. lives_watch.h fills one from a
 * machine that runs, lives_file.h keeps one, life_search.h looks for an instant in one. All of it
 * is the guest's to forge, and only shown.
 */
#ifndef REPRISE_LIVES_H
#define REPRISE_LIVES_H

#include "base/err.h"
#include "base/types.h"

#define LIVES_NONE UINT32_MAX
#define LIVES_MAX  (1u << 20) /* processes and threads */
#define EVENTS_MAX (3u << 20)
#define TEXTS_MAX  (64u << 20) /* bytes of all texts */

/* Where something happened; position NEVER: before anybody looked, or not at all. */
struct life_time {
    pos_t position;
    vns_t time;
};

enum life_event_kind {
#define LIFE_EVENT(name, fields) LIFE_##name,
#include "inspect/life_events.def"
#undef LIFE_EVENT
    LIFE_KINDS
};

/* What of it counts says its row. Texts are offsets in the list's; 0: none. */
struct life_event {
    enum life_event_kind kind;
    u32 who;  /* whose, by the order in which they began; LIVES_NONE: nobody's that is known */
    u32 by;   /* who made it; LIVES_NONE: not known */
    u32 code; /* of do_exit(): signal in bits 0 to 6, core in bit 7, status from 8 on; a signal */
    struct life_time at;
    u64 task;      /* its task_struct */
    i32 pid, tgid; /* in the kernel's words: of the thread, of the process */
    i32 parent;    /* a process */
    bool kernel;   /* a thread of the kernel's */
    char comm[16]; /* printable */
    u32 command;   /* its arguments, printable, a blank between them */
    u32 first;     /* bytes of the first of them */
    u32 program;   /* the name of its file, without directories */
};

/* What one is after all that happened. */
struct life {
    u64 task;
    i32 pid, tgid, parent;
    bool kernel;
    char comm[16];
    u32 command; /* since it last executed a program; 0: unknown */
    u32 execs;
    struct life_time began, executed, ended;
    u32 code;    /* once ended */
    bool oopsed; /* it was in an oops */
    u32 process; /* the first thread of its process: itself, or another life */
    /* Of a process, in its first thread: */
    u32 threads;             /* that live */
    u32 crash;               /* the one that ends it, as far as is known; LIVES_NONE */
    struct life_time leaves; /* where one of its threads began to end all of them */
    struct life_time left;   /* where the last one ended */
};

/* A fatal signal of a process, or an oops. A thread that is told to end because another one ends
 * the process or executes a program looks as if killed: which it was shows later. */
struct life_crash {
    u32 event;
    enum { CRASH_OPEN, CRASH_SURE, CRASH_NOT } is;
};

/* A signal of which a program dies by a fault of its own, signal(7): the others are sent to end it.
 */
bool signal_dumps_core(int number);

struct lives {
    struct life_event *events;
    u32 nevents, events_room;
    struct life *list; /* in the order in which they began */
    u32 count, room;
    struct life_crash *crashes;
    u32 ncrashes, crashes_room;
    u32 panic;   /* the event; LIVES_NONE: none */
    char *texts; /* each with its NUL; at 0 "" */
    u32 texts_size, texts_room;
    bool borrowed;   /* texts are another's */
    bool cut;        /* there was more than anybody wants to see: the rest is missing */
    char lacks[128]; /* why only oopses and panics are known; "": all is */
};

void lives_init(struct lives *l);
void lives_free(struct lives *l); /* safe on zeros */

/* Adds it and does what it says. It is the caller's to see to that `who` and `by` are lives and the
 * time is none before the last one's. Over the limits: cut, and 0. -ENOMEM. */
int lives_add(struct lives *l, const struct life_event *e, struct err *err);
/* A text of printable ASCII for an event; 0 where there is no room for it. */
u32 lives_add_text(struct lives *l, const char *text, size_t len);
const char *lives_text(const struct lives *l, u32 text);

/* What all were at a position, what happened in front of its instruction included; texts are those
 * of `l`, which must outlive it. It has no events of its own. -ENOMEM. */
int lives_as_of(struct lives *out, const struct lives *l, pos_t position, struct err *err);

/* What the fields of a kind are. */
enum {
    F_WHO = 1,
    F_TASK = 2,
    F_BY = 4,
    F_NUMBERS = 8,
    F_PARENT = 16,
    F_KERNEL = 32,
    F_COMM = 64,
    F_COMMAND = 128,
    F_PROGRAM = 256,
    F_CODE = 512
};
extern const u16 life_event_fields[LIFE_KINDS];

#endif
