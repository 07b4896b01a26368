/*
 * The recorder: an input source that hands on what a live one gives, and writes it into the log
 * with the position and time at which it applied. Each time the guest has executed for a quarter of
 * a second of virtual time it adds a progress record. What a killed recorder would lose is kept in
 * the log's tail: every input before the machine goes on from it, and how far it has come at least
 * every million positions. The machine does not know that it is there.
 */
#ifndef REPRISE_RECORDER_H
#define REPRISE_RECORDER_H

#include "machine/source.h"
#include "replay/player.h"

struct recorder;

struct recorder_config {
    struct log_writer *log;    /* owned by the recorder from recorder_create on, also on error */
    struct input_source *live; /* outlives the recorder */
    struct hash128 machine;    /* of machine.dtb */
    vns_t progress_ns;         /* between progress records, without idle time; 0: the usual */
    /* Checkpoints (keeper.h): is one due, and take it; NULL: none. */
    bool (*keep_due)(const void *keeper, u64 host_ns);
    void (*keep)(void *keeper, struct machine *m, const struct player_place *place,
                 const struct sha256 *log, u64 host_ns);
    void *keeper;
};

/* Call with the machine at power-on: writes the start record and a first progress record. */
int recorder_create(struct recorder **out, const struct recorder_config *config, struct machine *m,
                    struct err *err);
struct input_source *recorder_source(struct recorder *r);

/* The input QUIT, which no source gave: the machine cannot go on from here, and a replay ends here
 * as well. */
int recorder_quit(struct recorder *r, struct machine *m, u32 why, struct err *err);

/* A remark in the log. */
int recorder_mark(struct recorder *r, struct machine *m, const char *name, struct err *err);

/* Something for people, under a name; of the text as much as a record takes. */
int recorder_note(struct recorder *r, struct machine *m, const char *what, const char *note,
                  struct err *err);

/*
 * When the host's disk fills up, whoever fills it, the run ends with a recorded QUIT_DISK,
 * complete, as long as there is room for that.
 *
 * After machine_run: writes digests of RAM and the end record, closes the log. When the log could
 * not be written (now or before: the run then ended with QUIT_DISK), returns that error.
 */
int recorder_finish(struct recorder *r, struct machine *m, const struct run_end *end,
                    struct err *err);

u64 recorder_log_bytes(const struct recorder *r);
/* Frees; closes the log without an end record unless recorder_finish was called. NULL is safe. */
void recorder_destroy(struct recorder *r);

#endif
