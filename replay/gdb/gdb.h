/*
 * A server of gdb's remote serial protocol (gdb manual, appendix E). It knows nothing of replay or
 * recording: its owner drives it and answers through struct gdb_target, so that one stub serves a
 * replay, which can run backwards, and a live recording, which cannot.
 *
 *     gdb_server_create
 *     for (;;) {
 *         gdb_server_wait      serves packets until gdb asks to run, leave, ...
 *         run the machine      looking at gdb_server_poll now and then
 *         gdb_server_stopped   why it stopped; gdb sees it when the next wait serves it
 *     }
 *
 * Not thread-safe, but for gdb_server_wake. What a peer sends is untrusted: every length is
 * bounded, a wrong packet costs its sender an error reply.
 */
#ifndef REPRISE_GDB_H
#define REPRISE_GDB_H

#include <stdio.h>

#include "base/err.h"
#include "base/types.h"
#include "machine/machine.h"

/* The numbers are those of the packets Z0 to Z4. */
enum gdb_point_kind {
    GDB_BREAK_SOFT,
    GDB_BREAK_HARD,
    GDB_WATCH_WRITE,
    GDB_WATCH_READ,
    GDB_WATCH_ACCESS
};

struct gdb_condition; /* a list of agent expressions (gdb manual, appendix F) */

/* A breakpoint or watchpoint gdb has inserted. */
struct gdb_point {
    enum gdb_point_kind kind;
    u64 address;
    u64 length;    /* watchpoints: bytes, at least 1, not beyond the end of the address space */
    bool physical; /* watchpoints: `address` is guest-physical (Qqemu.PhyMemMode:1) */
    const struct gdb_condition *conditions; /* NULL: unconditional */
};

/* An instruction of the function that gdb steps back through: it would stop at none of a group
 * (from 1 on) as long as it comes from one of the same. 0: it may stop. */
struct gdb_insn {
    u64 address;
    u32 group;
};

/* All of them, ascending; and those from which a group of others is entered (0: any). */
struct gdb_code {
    struct gdb_insn *insns, *entries;
    size_t ninsns, nentries;
};

/* Which process the machine runs, as far as can be known; read-only registers to gdb. */
struct gdb_process {
    u64 pgd;    /* physical address of the page tables' root, one for each address space */
    bool known; /* the rest */
    i32 pid;    /* of the thread */
    char comm[16];
};

/* A thread of the process that gdb is shown. */
struct gdb_thread {
    i32 id;            /* the guest's number of it, at least 1 */
    i32 process;       /* ... and of its process */
    char name[16];     /* printable */
    const char *where; /* NULL: it is no thread of a process but the CPU */
};

/* MOVED: the machine is not where gdb thinks; MOVED_HOOK: and gdb finds out by "qreprise.Moved". */
enum gdb_monitor { GDB_MONITOR_UNKNOWN, GDB_MONITOR_OK, GDB_MONITOR_MOVED, GDB_MONITOR_MOVED_HOOK };

enum gdb_shows { GDB_SHOWS_SAME, GDB_SHOWS_MACHINE, GDB_SHOWS_PROCESS };

struct vcpu;

/* What a gdb is shown: without GDB_VIEW_AVX no upper halves of YMM, without GDB_VIEW_AVX512 no ZMM,
 * masks and registers above the 16th; with GDB_VIEW_32 an i386, and
 * with GDB_VIEW_16 besides an i8086. With GDB_VIEW_LONG its EIP has 64 bits: the kernel's has, and
 * gdb knows a breakpoint there by all of them. */
#define GDB_VIEW_AVX  1u
#define GDB_VIEW_32   2u
#define GDB_VIEW_16   4u
#define GDB_VIEW_LONG 8u
/* No machine but a process: nothing that is the whole CPU's. */
#define GDB_VIEW_PROCESS 16u
#define GDB_VIEW_AVX512  32u

/* What a gdb that asks now should be shown: an i386 while the CPU executes code of 32 bits, an
 * i8086 of
 * 16. It is told of another CPU when it asks again ("qreprise.Changed"). `vectors`: which of
 * GDB_VIEW_AVX and GDB_VIEW_AVX512 the CPU has. */
unsigned gdb_view(const struct vcpu *c, unsigned vectors);

#define GDB_PATH_MAX     4096u
#define GDB_SIGINFO_SIZE 128u

/* What the owner provides. All functions are called from within gdb_server_wait, set_points also
 * from gdb_server_destroy and when a peer goes. */
struct gdb_target {
    void *opaque;
    bool can_reverse;
    /* The machine as it is now; asked anew for every packet, so it may be another one each time. */
    struct machine *(*machine)(void *opaque);
    /* The points changed: all of them (count may be 0). They, and their conditions, stay where they
     * are until the next call that succeeds. <0 with a text: those before stay in force. */
    int (*set_points)(void *opaque, const struct gdb_point *points, size_t count, struct err *err);
    /* Before every write that would change registers or memory (the first one forks a what-if
     * branch); machine() is asked again afterwards. <0 with a text refuses the write. NULL: writes
     * are always fine. */
    int (*before_write)(void *opaque, struct err *err);
    /* `monitor COMMAND`; what it prints on `out` is shown at every fflush. After MOVED the user is
     * told how to make gdb look again. NULL: no commands. */
    enum gdb_monitor (*monitor)(void *opaque, const char *command, FILE *out);
    /* Something the user of this program should know: who was turned away. NULL: nobody is told. */
    void (*warn)(void *opaque, const char *text);
    /* gdb has read anew what its watchpoints watch: it knows what conditions have left out. NULL:
     * nobody asks. */
    void (*seen)(void *opaque);
    /* What follows are gdb's steps back in the function with this code, which stays where it is
     * until the next call; an empty one: no more. NULL: nobody asks. */
    void (*back)(void *opaque, const struct gdb_code *code);
    /* NULL: nothing is known of processes. */
    void (*process)(void *opaque, struct gdb_process *out);
    /* gdb is shown one process: its threads where the machine stands, valid until the machine
     * moves; *now: the one that a stop is of, 0: there is none. Where it has just made another one,
     * those of that too. False, or NULL: the machine. */
    bool (*threads)(void *opaque, const struct gdb_thread **list, size_t *count, i32 *now);
    /* What a thread has in ring 3; false: not known. *fpu: x87 and vectors too. *call: Linux's
     * orig_ax. */
    bool (*thread)(void *opaque, i32 id, struct vcpu *out, bool *fpu, u64 *call);
    /* The memory of the process with that thread (0: the one shown), within a page. */
    bool (*peek)(void *opaque, i32 thread, u64 address, void *out, size_t len);
    /* Its auxiliary vector, of at most `size` bytes, as its own words; 0: not known. */
    size_t (*auxv)(void *opaque, void *out, size_t size);
    /* System calls of the process stop from now on: the `n` of these numbers, all of them for 0; or
     * none. <0 with a text: they cannot. */
    int (*catch_calls)(void *opaque, bool on, const u32 *calls, size_t n, struct err *err);
    /* What gdb will be shown when it attaches again, if something else. NULL: always the same. */
    enum gdb_shows (*shows)(void *opaque);
    /* Linux's siginfo_t of the signal that the process was stopped by here; false: there is none.
     */
    bool (*siginfo)(void *opaque, u8 out[GDB_SIGINFO_SIZE]);
    /* Files as they are in the guest, to be read only; never one of this host. Opens one: a handle,
     * or <0: -ENOENT, -EMFILE, -ENOMEM. */
    int (*file_open)(void *opaque, const char *path, u64 *size);
    /* Bytes from there on, as many as there are; <0: they are not known. */
    i64 (*file_read)(void *opaque, int handle, u64 offset, void *out, size_t len);
    void (*file_close)(void *opaque, int handle);
    /* What a link leads to; false: it is none. */
    bool (*file_link)(void *opaque, const char *path, char out[GDB_PATH_MAX]);
    /* Running backwards, tell processes that it made: gdb would follow them otherwise. */
    void (*back_forks)(void *opaque, bool on);
    /* gdb forgets that process; true: it still knows another one. */
    bool (*leave)(void *opaque, i32 process);
};

enum gdb_action {
    GDB_CONTINUE,
    GDB_STEP,
    GDB_RANGE_STEP, /* step while start <= rip < end, at least once */
    GDB_REVERSE_CONTINUE,
    GDB_REVERSE_STEP,
    GDB_DETACH,      /* gdb leaves (it is disconnected now); the machine may go on */
    GDB_KILL,        /* gdb asks to end the machine (it is disconnected now) */
    GDB_GONE,        /* the peer vanished; with "-": nobody will come back */
    GDB_INTERRUPTED, /* gdb_server_wake */
};

#define GDB_TELLS_FORK   1u
#define GDB_TELLS_VFORK  2u
#define GDB_TELLS_EXEC   4u
#define GDB_SIGNAL_WORDS 3u

struct gdb_resume {
    enum gdb_action action;
    u64 start, end; /* GDB_RANGE_STEP */
    i32 thread;     /* of a process, that steps; 0: whichever the stop was of */
    i32 process;    /* which runs; 0: the one that is shown */
    /* What of a process may be told: GDB_TELLS_..., and signals that it gets without a stop, a bit
     * for each of gdb's numbers. */
    unsigned tells;
    u64 passes[GDB_SIGNAL_WORDS];
};

/* Does the process get this signal of Linux without a stop? */
bool gdb_signal_passes(const struct gdb_resume *r, int number);

/* Actions after which gdb waits for gdb_server_stopped. */
static inline bool gdb_action_runs(enum gdb_action action)
{
    return action <= GDB_REVERSE_STEP;
}

enum gdb_stop_reason {
    GDB_STOP_TRAP, /* a step is done, or no other reason fits */
    GDB_STOP_INTERRUPT,
    GDB_STOP_BREAK_SOFT,
    GDB_STOP_BREAK_HARD,
    GDB_STOP_WATCH,         /* watch, address */
    GDB_STOP_HISTORY_BEGIN, /* running backwards reached the beginning */
    GDB_STOP_HISTORY_END,
    GDB_STOP_EXITED, /* status: the exit status, or minus the number of a signal */
    /* Of a process: */
    GDB_STOP_CALL,       /* it calls the system: status is the number of the call */
    GDB_STOP_RETURN,     /* ... has been there */
    GDB_STOP_FORK,       /* it made the process `status` */
    GDB_STOP_VFORK,      /* ... and waits until that one has given its memory back */
    GDB_STOP_VFORK_DONE, /* it waits no longer */
    GDB_STOP_EXEC,       /* it begins to run `path` */
    GDB_STOP_SIGNAL,     /* status: the signal that it gets */
};

struct gdb_stop {
    enum gdb_stop_reason reason;
    enum gdb_point_kind watch; /* the kind of the watchpoint as it was inserted */
    u64 address;               /* the byte that was accessed */
    i32 thread;                /* of the machine's vCPUs: whose stop it is; 0: whose turn it is */
    int status;
    char path[GDB_PATH_MAX];
    char text[256]; /* if not empty, shown to the user first; a newline is added if it has none */
};

struct gdb_server;

/*
 * Listens. `endpoint`: NULL for a Unix socket in a directory of its own; "unix:PATH" (a socket
 * nobody listens at is replaced, anything else there is an error; removed by destroy); "-" for
 * stdin and stdout; "PORT", ":PORT" (on 127.0.0.1), "HOST:PORT", "[::1]:PORT", port 0 for any that
 * is free. `target` is copied.
 *
 * A peer can read and write all of the guest. Unix sockets are this user's alone. At a port of this
 * host other users' processes are turned away, and other addresses are refused; ",open" after
 * either lets anybody in. Who does not begin as gdb does (a web page's request) is turned away.
 */
int gdb_server_create(struct gdb_server **out, const char *endpoint,
                      const struct gdb_target *target, struct err *err);

/* Disconnects (points are removed first); NULL is fine. */
void gdb_server_destroy(struct gdb_server *s);

/* What to give gdb's `target remote`: "127.0.0.1:40123", "[::1]:40123", "/path", or "-". */
const char *gdb_server_address(const struct gdb_server *s);
/* Whoever can connect is served: ",open". */
bool gdb_server_open_to_all(const struct gdb_server *s);

bool gdb_server_connected(const struct gdb_server *s);

/* Accepts a peer if there is none (one at a time: others are told so and closed) and serves it
 * until it asks for one of the actions. 0, or <0 with a text when the host fails. When a run is
 * pending that gdb_server_stopped did not end, it ends as a GDB_STOP_TRAP. */
int gdb_server_wait(struct gdb_server *s, struct gdb_resume *out, struct err *err);

/* During a run; a few system calls, never blocks. True when the run should stop and
 * gdb_server_wait be called: the peer interrupted (report GDB_STOP_INTERRUPT), it vanished, or
 * there was none and one has come that speaks as gdb does. Stays true until then. */
bool gdb_server_poll(struct gdb_server *s);

/* File descriptors that become readable when gdb_server_poll may have news; returns how many. */
#define GDB_SERVER_FDS 2
unsigned gdb_server_fds(const struct gdb_server *s, int fds[GDB_SERVER_FDS]);

/* Makes gdb_server_wait return GDB_INTERRUPTED, now or when it is called next. Async-signal-safe.
 */
void gdb_server_wake(struct gdb_server *s);

/* Ends the pending run: the stop reply. Without one (the peer is gone) it does nothing. */
void gdb_server_stopped(struct gdb_server *s, const struct gdb_stop *stop);
/* Why it stands where it does, to a gdb that comes. */
void gdb_server_stands(struct gdb_server *s, const struct gdb_stop *stop);

/* Text for the user while a run is pending; dropped when none is. */
void gdb_server_print(struct gdb_server *s, const char *text);

/* Whether one of the list is true (not 0) in the state of the target's machine; one that cannot be
 * evaluated is true, so that the user sees it. NULL is true. */
bool gdb_condition_holds(const struct gdb_condition *c, const struct gdb_target *target);

#endif
