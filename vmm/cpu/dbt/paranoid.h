/*
 * `--engine dbt,paranoid`: each stretch of what the engine runs, a *window*, is run a second time,
 * one instruction at a time, and all state is compared at its end (README.md).
 *
 * A window begins with a copy of this process that holds the state as it is (the *judge*). What the
 * engine hears of the outside in it (devices, interrupts, DMA) goes on a tape. At its end the judge
 * has the registers and a hash of each page that was written; a child of the judge, the
 * *reference*, follows the tape by single instructions, and the judge compares. It stays as it was,
 * so of a difference it finds by bisection, with further children, which instruction it takes.
 *
 * paranoid.c: windows, the engine's calls. paranoid_pages.c: memory. paranoid_tape.c: what the
 * engine asks of the machine. paranoid_follow.c: along a tape. paranoid_judge.c: the other
 * processes.
 */
#ifndef REPRISE_PARANOID_H
#define REPRISE_PARANOID_H

#include "dbt.h"

enum tape_kind {
    TAPE_RUN = 1, /* engine_run(): size: its exit; a: where it ended; b: as far as it could go */
    TAPE_END,     /* of it */
    TAPE_PIO_READ,
    TAPE_PIO_WRITE,
    TAPE_MMIO_READ,
    TAPE_MMIO_WRITE,
    TAPE_RDMSR,
    TAPE_WRMSR,
    TAPE_GET_CR8,
    TAPE_SET_CR8,
    TAPE_PMI, /* a: the entry is masked */
    TAPE_NOW,
    TAPE_RANDOM,
    TAPE_ATTENTION,
    TAPE_RAM,  /* a: where; `len` bytes follow */
    TAPE_WANT, /* a: interrupt, b: NMI */
    TAPE_INTERRUPT,
    TAPE_NMI,
};

struct tape_entry {
    u8 kind, size;
    bool ok;
    u32 len; /* of bytes that follow, a multiple of 8 */
    pos_t at;
    u64 a, b;   /* of a call: its argument, and what was written or read */
    vns_t time; /* of a run: virtual time at position 0, if it never stood */
};

#define TAPE_SIZE  (8u << 20)
#define TAPE_LARGE (TAPE_SIZE / 2) /* the window ends */

struct page_hash {
    u32 index;
    u64 hash;
};

#define DUMPS 4u /* pages that a difference is shown of */

/* A state that somebody came to. */
struct outcome {
    bool left; /* no state: did other things than the tape says, or died */
    char text[200];
    pos_t position;
    struct vcpu cpu;
    u8 code[15], ncode; /* bytes at RIP */
    u32 npages;         /* written since the window began */
    struct page_hash *pages;
    u32 ndumps, dumped[DUMPS]; /* set before: pages to copy to `dump` */
    u8 dump[DUMPS][PAGE_SIZE];
};

enum verdict { VERDICT_NONE, VERDICT_SAME, VERDICT_DIFFERS };

/* Shared by the processes of a window, at one address. */
struct window {
    u32 go;      /* futex: 1: it is complete; 2: it does not count */
    u32 verdict; /* futex */
    u64 number;
    pos_t first, last;
    bool strict; /* the reference walks the page tables anew for each instruction */
    u64 used;    /* of the tape */
    char text[900];
    struct outcome engine, reference, again; /* again: translated, by a child of the judge */
    struct tape_entry tape[TAPE_SIZE / sizeof(struct tape_entry)];
};

struct slot {
    struct window *w;
    int pid; /* 0: free */
};

#define SLOTS_MAX 17u

struct paranoid {
    struct dbt *d;
    struct engine_ops ops;
    struct engine_env env;
    const struct engine_env *real;
    u64 seed, number, dropped, compared;
    struct slot slot[SLOTS_MAX];
    unsigned nslots;
    struct slot *open;   /* the window being run; NULL: none */
    struct window *tape; /* which is written, or followed; NULL: neither */
    pos_t end;           /* of the open window */
    bool running, overflow;
    bool want_int, want_nmi;
    struct err failed;
    u64 failed_in; /* the number of that window */

    /* Pages written: in this window, and since the user of the engine last asked. */
    u32 *in_window, *for_user;
    u64 nin_window, nfor_user;
    bool user_tracks;
    u8 *seen;        /* by page: bit 0 in in_window, bit 1 in for_user */
    pos_t looked_at; /* at all of memory */
    u64 *known;      /* hash of each page as it was last looked at */

    /* In a process that follows. */
    bool following;
    u64 cursor;
    vns_t time;
    struct outcome *out;
    u32 *where; /* of the judge: by page, 1 + its place in a list */
};

static inline struct paranoid *paranoid_of(struct engine *e)
{
    return dbt_of(core_of(e))->paranoid;
}

/* Makes the engine check itself. */
int paranoid_create(struct dbt *d, const struct engine_paranoid *config, struct err *err);

/* Is this the first window that fails, so that it is said? They are judged side by side: what a
 * later one says may be an earlier one's doing. */
static inline bool paranoid_failed_first(struct paranoid *p, u64 window)
{
    if (p->failed.code && p->failed_in <= window)
        return false;
    p->failed_in = window;
    return true;
}

/* paranoid_pages.c */
u64 paranoid_hash(const struct paranoid *p, u64 index);
/* Hashes of the pages written since the last call, in `to` if there is one. */
void pages_look(struct paranoid *p, struct outcome *to);
/* All of memory: `first`, to know it; else whether a page changed that nobody noted. */
void pages_look_at_all(struct paranoid *p, bool first);
/* For the engine's user. */
const u32 *pages_written(const struct engine *e, size_t *n);
int pages_written_reset(struct engine *e);

/* paranoid_tape.c: touches no vector register, as it is called while they are the guest's. */
extern const struct engine_env paranoid_env;
/* Room for an entry with `len` bytes. NULL: no tape, or it is full, and the window does not count.
 */
struct tape_entry *tape_add(struct paranoid *p, enum tape_kind kind, u32 len);
struct tape_entry *tape_next(struct paranoid *p); /* NULL: the tape's end */
void tape_skip(struct paranoid *p, const struct tape_entry *e);
/* Memory that a device wrote, as the tape has it. */
void tape_to_ram(struct paranoid *p, const struct tape_entry *e);

/* paranoid_follow.c */
/*
 * Goes along the window's tape up to a position (NEVER: to its end), by single instructions up to
 * `by_hand`, and stores the state there. In a process of its own: ends it where the tape is left.
 */
void follow(struct paranoid *p, struct window *w, pos_t upto, pos_t by_hand, struct outcome *out);
/* Notes why the tape was left, and ends the process. */
_Noreturn void follow_left(struct paranoid *p, const char *fmt, ...) PRINTF(2, 3);
/* The vCPU as everybody sees it. */
void outcome_take(struct paranoid *p, struct outcome *o);

/* paranoid_judge.c */
/* A copy of this process; 0 in the copy, which dies with us and has no file. -1: errno. */
int paranoid_split(struct paranoid *p);
/* What a judge does. */
_Noreturn void judge(struct paranoid *p, struct window *w);
void futex_wake(u32 *at);
void futex_wait(u32 *at, u32 value, u32 ms);

#endif
