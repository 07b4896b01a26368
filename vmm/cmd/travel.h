/*
 * What the commands that go to a point in a recording share: opening its timeline with the user
 * in sight (progress, warnings, an end by Ctrl-C: interrupt.h), going there, and saying where that
 * is.
 */
#ifndef REPRISE_CMD_TRAVEL_H
#define REPRISE_CMD_TRAVEL_H

#include <stdio.h>

#include "cmd/cmd.h"
#include "cmd/disk_option.h"
#include "cmd/way.h"
#include "host/output_file.h"
#include "replay/point.h"
#include "inspect/backtrace.h"
#include "inspect/guest_file.h"
#include "inspect/process.h"
#include "inspect/symbols.h"

struct travel {
    struct timeline *t;
    struct way way;
    bool (*also)(void *opaque); /* looked at with it; NULL: nothing */
    void *opaque;
    enum timeline_verdict (*holds)(void *opaque, unsigned point, enum timeline_side side);
    struct symbols symbols;
    bool have_symbols;
    struct instant symbols_at;    /* where they were read */
    struct process_layout layout; /* travel_process's */
    struct replay_screen *screen; /* NULL: never looked at */
    struct history *history;      /* NULL: points in processes' lives are refused */
};

/* All zero is the default. */
struct travel_with {
    const struct disk_named *named; /* images that the user named (disk_option.h) */
    enum engine_kind engine;
    u64 memory;      /* bytes for checkpoints in memory; 0: default */
    u64 code_cache;  /* 0: default */
    bool trust;      /* as timeline_config's */
    bool told;       /* the same */
    bool from_start; /* checkpoint files are not looked at: it is replayed from power-on */
    bool make_files; /* as timeline_config's */
    bool once;       /* the same */
    bool history;    /* points in processes' lives may be asked for (history.h) */
};
/* tr is zeroed first. */
int travel_open(struct travel *tr, const char *dir, const struct travel_with *with,
                struct err *err);
/* Both in one, for commands that then do one thing; the error is printed. EX_DAMAGE: at the end of
 * a damaged recording, and said so. Close it in any case. */
int travel_open_at(struct travel *tr, const char *dir, const struct travel_with *with,
                   const struct point *p);
/* EX_FINE, or at the end of a recording that is damaged or diverges what that means. */
int travel_end_code(const struct travel *tr);
void travel_close(struct travel *tr); /* safe on zeros */

/* Goes to the point. A recording that ends before it is an error. */
int travel_to(struct travel *tr, const struct point *p, enum timeline_stop *stop, struct err *err);

/* gdb's points and what is asked of them, while the machine is run for something else. put_back:
 * `code`, or an error of its own. */
struct travel_aside {
    struct debug_point *points;
    unsigned n;
    enum timeline_verdict (*holds)(void *opaque, unsigned point, enum timeline_side side);
};
int travel_put_aside(struct travel *tr, struct travel_aside *a, struct err *err);
int travel_put_back(struct travel *tr, struct travel_aside *a, int code, struct err *err);

/* Removes the progress line before something else is printed. */
void travel_quiet(struct travel *tr);

/* The guest's kernel symbols, read once; NULL if there are none (yet). */
const struct symbols *travel_symbols(struct travel *tr);
/* The same with the modules that are loaded here: read anew, but once at an instant. Names that
 * were found before are no longer valid. */
const struct symbols *travel_symbols_here(struct travel *tr);
/* ... read anew if `address` is of the kernel's and may be a module's. */
const struct symbols *travel_symbols_at(struct travel *tr, u64 address);
/* backtrace_read() of here, through modules. */
unsigned travel_backtrace(struct travel *tr, struct backtrace_frame frame[BACKTRACE_MAX]);

/* Which process runs here, as far as can be known. */
void travel_process(struct travel *tr, struct process *out);

/* What the recording has of the guest's files besides; valid as long as `tr` is open. */
struct guest_file_more travel_files(struct travel *tr);

/* A few lines: position, time, RIP, CPL, what the console showed last. `lines` of console. */
void print_place(FILE *out, struct travel *tr, unsigned lines);
/* The kernel's frames, if there are callers. */
void print_backtrace(FILE *out, struct travel *tr);
void print_registers(FILE *out, struct machine *m);
/* What was printed on the console up to here: its last `lines`, 0: everything. */
void print_console(FILE *out, const struct timeline *t, unsigned lines);
/* ADDR[,LEN] with ADDR a number, a register, a kernel symbol or MODULE:SYMBOL, all but the first
 * with +N or -N, each perhaps after "phys:". check_memory: can it be one, wherever the machine
 * stands? check_memory_name: are its names in what is known of this guest? A module's may come
 * later. */
int check_memory(const char *spec, struct err *err);
int check_memory_name(const char *spec, struct machine *m, const struct symbols *s,
                      struct err *err);
int print_memory(FILE *out, struct travel *tr, const char *spec, struct err *err);
/* What the screen shows, as a PNG file; replay_screen_note(tr->screen) may have something to say.
 */
int write_screenshot(struct travel *tr, const char *path, bool force, struct err *err);
/* The same as one JSON object. */
void print_place_json(FILE *out, struct travel *tr, bool registers, bool console,
                      const char *const *memory, size_t nmemory);

/* Can only a replay say where it is? */
bool point_is_found(const struct point *p);
/* A point's instant, and its position; for one that is found the recording is replayed up to there.
 * By a process of its own, which is locked in; this one need not be yet. */
int point_instant(const char *dir, const struct travel_with *with, const struct point *p,
                  struct instant *out, struct err *err);
int point_position(const char *dir, const struct travel_with *with, const struct point *p,
                   pos_t *out, struct err *err);

/* argp options with a point or a size. */
void option_point(struct argp_state *state, const char *arg, const char *what, struct point *out);

#endif
