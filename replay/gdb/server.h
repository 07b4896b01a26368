/*
 * Inside the server: the connection (server.c), the packets it serves (serve.c), memory and
 * registers (access.c), breakpoints (points.c). Users include gdb.h.
 */
#ifndef REPRISE_GDB_SERVER_H
#define REPRISE_GDB_SERVER_H

#include "host/endpoint.h"
#include "replay/gdb/gdb.h"
#include "replay/gdb/packet.h"

#define GDB_FILES 16u

/* One that the peer has open. */
struct gdb_file {
    int handle; /* the target's; -1: none */
    u64 size;
};

struct gdb_server {
    struct gdb_target target;
    struct listener listener;
    bool open;                                /* to whoever connects */
    struct gdb_thread cpus[MACHINE_CPUS_MAX]; /* access_threads() */
    unsigned turned_away;
    int wake; /* eventfd of gdb_server_wake */

    /* The peer. */
    int in, out; /* -1: none; the same descriptor unless stdio */
    int refused; /* the last other peer that came; -1: none */
    bool socket; /* send() does */
    bool spoke;  /* it has sent something, as gdb would */
    bool vanished;
    bool no_ack;
    bool tells_break;                         /* it understands swbreak and hwbreak */
    bool multi;                               /* it names threads with their processes */
    bool tells_fork, tells_vfork, tells_exec; /* it knows those events */
    u64 passes[GDB_SIGNAL_WORDS];             /* QPassSignals */
    bool moved;                               /* by a monitor command, since it last asked */
    bool told_moved;  /* its user knows what to do after GDB_MONITOR_MOVED */
    bool physical;    /* Qqemu.PhyMemMode:1 */
    bool running;     /* it waits for a stop reply */
    bool interrupted; /* 0x03 came during the run */
    bool waiting;     /* reader holds a packet that is not served yet */
    struct packet_reader reader;
    u8 input[4096]; /* read, not parsed yet: input_at to input_len */
    size_t input_at, input_len;
    u8 sent[GDB_PACKET_SIZE + 4]; /* the last packet, for retransmission */
    size_t sent_len;

    struct reply reply;
    struct gdb_stop last;   /* what '?' is answered with */
    struct gdb_stop stands; /* ... by the next peer */
    struct gdb_point *points;
    size_t npoints;
    struct gdb_point *bound; /* watchpoints of such places have conditions that gdb does not send */
    size_t nbound;
    struct gdb_code back; /* told to the target */
    bool looked;          /* the peer's view is decided */
    i32 thread;           /* of a process, that registers are asked of; 0: any */
    unsigned view;        /* gdb_view() */
    struct gdb_file files[GDB_FILES];
    char *description; /* target.xml, made when first asked for */
    u8 bytes[GDB_PACKET_SIZE];
};

/* ---- server.c ---- */

/* An unconnected server without an endpoint. */
int server_create_bare(struct gdb_server **out, const struct gdb_target *target, struct err *err);
/* Makes the descriptors the peer; they are closed when it goes unless they are 0 and 1. */
void server_attach(struct gdb_server *s, int in, int out);
/* Sends text as 'O' packets; uses s->reply. */
void server_output(struct gdb_server *s, const char *text, size_t len);

/* ---- serve.c ---- */

/* Serves the packet in s->reader. True: the owner must act, *out says how. */
bool serve_packet(struct gdb_server *s, struct gdb_resume *out);
/* The part "OFFSET,LENGTH" of an object. */
void serve_transfer(struct gdb_server *s, const char *range, const void *object, size_t size);

/* ---- stops.c ---- */

/* Puts the stop reply into s->reply. */
void serve_stop_reply(struct gdb_server *s, const struct gdb_stop *stop);

/* "SIGNAL;...": gdb's numbers of those that the process gets without a stop. */
void stops_pass(struct gdb_server *s, const char *text);

/* ---- threads.c ---- */

/* Puts a thread's name into the reply. */
void threads_put(struct gdb_server *s, i32 process, i32 thread);
/* Reads one; *thread 0 and -1 mean any and all; *process 0: none is named. */
bool threads_parse(const char **text, i64 *thread, i32 *process);
/* Is there such a one? */
bool threads_known(struct gdb_server *s, i64 thread, i32 process);
/* The process of a thread in the list; of none that is there, its own number. */
i32 threads_process(const struct gdb_thread *list, size_t count, i32 thread);
/* Is the thread that was selected of the process that the shown one has made? It has no points: gdb
 * takes those of its maker out of the copy of that's memory. */
bool threads_of_other(struct gdb_server *s);
/* 'T', and with `select` "Hg": whose registers are asked from now on. */
void threads_select(struct gdb_server *s, const char *text, bool select);
void threads_extra(struct gdb_server *s, const char *text);
void threads_list(struct gdb_server *s, const char *text);
void threads_current(struct gdb_server *s);
void threads_first(struct gdb_server *s, const char *text);
void threads_more(struct gdb_server *s, const char *text);

/* ---- access.c: what is asked of the machine; `text` is the packet after its letter. ---- */

void access_read_registers(struct gdb_server *s);
void access_read_register(struct gdb_server *s, const char *text);
void access_write_registers(struct gdb_server *s, const char *text, size_t len);
void access_write_register(struct gdb_server *s, const char *text);
void access_read_memory(struct gdb_server *s, const char *text, bool binary);
void access_write_memory(struct gdb_server *s, const char *text, size_t len, bool binary);
/* Sets RIP for 'c ADDR'; false: refused, the reply says why. */
bool access_jump(struct gdb_server *s, u64 address);
/* Decides what the peer is shown of the CPU. */
void access_look(struct gdb_server *s);
/* What it would be now. */
unsigned access_view(struct gdb_server *s);
#define THREAD 1 /* of the first vCPU */
/* The threads that gdb is shown, of the process or, one, of the machine. *now: the one that a stop
 * is of; 0: there is none. */
const struct gdb_thread *access_threads(struct gdb_server *s, size_t *count, i32 *now);
/* The registers of such a thread, or of the machine's CPU; false: not known. */
bool access_thread(struct gdb_server *s, i32 id, struct vcpu *out, bool *fpu, u64 *call);

/* ---- files.c ---- */

/* "vFile:" and this. */
void files_packet(struct gdb_server *s, const char *text);
/* The peer has gone. */
void files_close(struct gdb_server *s);

/* ---- points.c ---- */

void points_change(struct gdb_server *s, const char *text, bool insert);
/* "KIND,ADDRESS,LENGTH;XLEN,BYTES..." with '/' between them: the conditions of watchpoints, as gdb
 * sends those of breakpoints. They are in force where such a point is inserted from now on. */
void points_bind(struct gdb_server *s, const char *text);
/* "ADDRESS;GROUP,LENGTHS;-,SIZE;.../GROUP,OFFSET;...": struct gdb_code: from ADDRESS on the length
 * of each instruction, a hexadecimal digit, and SIZE bytes that are none of the function's; then
 * entries, by their distance from ADDRESS. "": no more. */
void points_back(struct gdb_server *s, const char *text);
/* Removes all, whatever the target says. */
void points_clear(struct gdb_server *s);

#endif
