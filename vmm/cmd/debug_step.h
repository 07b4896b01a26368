/*
 * gdb's session on a recording, as debug.c (requests and commands) and debug_step.c (steps) share
 * it, and steps.
 *
 * In the scope of a process a step that begins in ring 3 ends in ring 3 of the same thread: what
 * the kernel does between, for it and for others, is a part of the step. One that restarts the
 * instruction (a page fault, a timer tick) does not end it. Backwards likewise. A debug point on
 * the way stops, and so does the thread's end.
 */
#ifndef REPRISE_CMD_DEBUG_STEP_H
#define REPRISE_CMD_DEBUG_STEP_H

#include "cmd/scope.h"
#include "cmd/travel.h"
#include "cmd/watch.h"
#include "inspect/guest_file.h"
#include "replay/gdb/gdb.h"

/* What happens to a process that is shown: debug_events.c has the kernel's functions. */
enum process_event {
    EVENT_END,
    EVENT_EXEC,
    EVENT_BEGIN, /* it makes a process, or a thread */
    EVENT_CALL,  /* a system call: of 64 bits; INT 80h; SYSENTER and SYSCALL of 32 */
    EVENT_CALL_INT,
    EVENT_CALL_FAST,
    EVENT_RETURN,
    EVENT_CORE, /* a signal ends it: with a dump, without */
    EVENT_GROUP_EXIT,
    EVENT_HANDLER, /* ... is handed to it */
    EVENTS
};

#define STEP_POINTS ((unsigned)EVENTS)

#define DEBUG_FILES 16u

/* One of the guest's that gdb has open: debug_files.c. */
struct debug_file {
    bool open;
    char *text; /* made here; NULL: `file` */
    size_t size;
    struct guest_file file;
};

struct debug_session {
    struct travel *tr;
    struct gdb_server *server;
    struct gdb_target target;
    const struct gdb_point *points; /* the stub's */
    unsigned npoints;
    /* The same for the engine, and room for those of a step. */
    struct debug_point *engine_points;
    bool step_armed; /* the engine has the latter too */
    enum { STEP_ON, STEP_BACK, STEP_PROCESS, STEP_TURN } step_by; /* ... which */
    u32 step_cpu;                                                 /* whose steps they are */
    /* The thread that a step waits for. */
    bool step_waits, step_fs_base;
    bool step_turn; /* ... or for the turn of step_cpu to come or go */
    struct process step_thread;
    struct { /* gdb's steps back: debug_back.c */
        struct gdb_code code;
        u32 group;      /* where the last began */
        unsigned steps; /* so many one after the other in that */
        bool waits;     /* for an instruction that is not of it */
        struct process thread;
    } back;
    struct { /* the process that gdb is shown: debug_process.c; zeros: the machine */
        struct program_layout layout;
        struct program program;
        bool looked;
        struct instant at; /* where */
        struct gdb_thread *list;
        u32 count, room;
        char next[272];  /* what gdb is shown once it comes again: a process, or */
        bool next_there; /* "" for the machine; false: the same */
        i32 stopped;     /* the thread that a stop is of */
        bool run;        /* what happens to it counts: of these, by their point */
        enum process_event events[EVENTS];
        struct debug_file files[DEBUG_FILES];
        struct guest_file_more more; /* what the recording has of them */
        struct program other;        /* that gdb knows besides: one that it made, or was made by */
        bool vfork_waits;            /* gdb waits for the end of a vfork */
        bool catches, back_forks;
        u32 *calls; /* system calls that stop; NULL: all */
        size_t ncalls;
        struct gdb_resume resume; /* what the run was asked for */
        bool happened;            /* the last stop was of an event, */
        enum process_event event; /* this, */
        struct instant when;      /* ... there */
    } shown;
    struct scope scope;
    struct watch watch;
    int child;           /* gdb itself, when we started it */
    struct {             /* of what gdb waits for */
        u64 began, next; /* host time */
        bool drawn;
        FILE *out; /* a monitor command's; NULL: a run */
    } progress;
};

/* One step from where the machine is, of the vCPU step_cpu: the others run until it has its turn,
 * and it alone is looked at where the step ends. Of a process that is shown, of its thread
 * shown.stopped. `stop` gets a text where *what does not say it all: the thread has ended
 * (TIMELINE_INTERRUPTED), or not yet begun (TIMELINE_BEGIN). */
int debug_step(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
               struct err *err);
int debug_step_back(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
                    struct err *err);
/* debug_step_back, or as many of them as gdb would not have stopped at (Qreprise.Back). *skipped:
 * so it was; the thread's own points have been met then. */
int debug_back(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
               bool *skipped, struct err *err);
/* The hit of a point that debug_back() waits for. */
bool debug_back_holds(struct debug_session *s);
/* Does the thread run a program, and is a step to stay in that? */
bool debug_steps_program(struct debug_session *s);
/* To where s->step_thread is in ring 3 again, or ends; *own: so it is. */
int debug_step_cross(struct debug_session *s, bool back, enum timeline_stop *what, bool *own,
                     struct err *err);
/* Only gdb's points count again. */
int debug_step_disarm(struct debug_session *s, struct err *err);
/* The hit of a point that is none of gdb's. */
bool debug_step_holds(struct debug_session *s, unsigned point);

#endif
