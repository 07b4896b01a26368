/*
 * The recorder: an input source that hands on what a live one gives, and writes it into the log
 * with the position and time at which it applied. Each time the guest has executed for a quarter of
 * a second of virtual time it adds a progress record. What a killed recorder would lose is kept in
 * the log's tail: every input before the machine goes on from it, and how far it has come at least
 * every million positions; while contents of shares are on their way to their file, every 50 ms.
 * The machine does not know that it is there.
 */
#ifndef REPRISE_RECORDER_H
#define REPRISE_RECORDER_H

#include "machine/source.h"
#include "replay/contents.h"
#include "replay/player.h"

struct recorder;

struct recorder_config {
    struct log_writer *log;    /* owned by the recorder from recorder_create on, also on error */
    struct input_source *live; /* outlives the recorder */
    struct hash128 machine;    /* of machine.dtb */
    struct contents *contents; /* of shares; outlive the recorder; NULL: none */
    vns_t progress_ns;         /* between progress records, without idle time; 0: the usual */
    /* The log has what came before already (log_writer_follow), with so many inputs, in which so
     * much host time passed. */
    bool follows;
    u64 inputs, host_ns;
    /* Checkpoints (keeper.h): is one due, and take it; NULL: none. */
    bool (*keep_due)(const void *keeper, u64 host_ns);
    void (*keep)(void *keeper, struct machine *m, const struct player_place *place,
                 const struct sha256 *log, u64 host_ns);
    void *keeper;
    bool keep_last; /* one where it is ended from outside: there another recording can begin at once
                     */
};

/* Call with the machine at power-on: writes the start record and a first progress record. With
 * `follows` the machine is where the log is, and a progress record comes first of all. */
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

/* A part of a file of a share that is kept for who looks at the recording: 1 to INPUT_CONTENT_MAX
 * bytes. <0: there is no room for it, and the recording is as good without. */
struct recorder_part {
    u32 unit; /* the share */
    u64 inode, length, offset;
    const u8 *data;
    u32 size;
};
int recorder_keep(struct recorder *r, struct machine *m, const struct recorder_part *part,
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
