/* A recording that is read: its parts together, and the machine that it is of. */
#ifndef REPRISE_OPENED_H
#define REPRISE_OPENED_H

#include "board/description.h"
#include "cpu/engine.h"
#include "host/disk.h"
#include "host/disk_spec.h"
#include "machine/machine.h"
#include "replay/player.h"
#include "replay/recording.h"

/* Where the user says that the images of its disks are. */
#define DISK_PATHS 16u
struct disk_named {
    struct disk_spec spec[DESCRIPTION_DISKS]; /* file NULL: not named. Theirs until the end */
    const char *path[DISK_PATHS];             /* directories to look in */
    unsigned npaths;
};

/* Files that a disk's image could be (disk_search.h). */
#define DISK_CANDIDATES 64u
struct disk_candidates {
    unsigned n, asked; /* the first `asked` lie where the user says */
    int fd[DISK_CANDIDATES];
    char *path[DISK_CANDIDATES];
};

/* A recording, opened for reading. */
struct opened {
    struct recording rec;
    struct machine_description desc;
    struct log_reader *log;
    char *quoted; /* its name as a shell takes it */
    struct disk disks[DESCRIPTION_DISKS];
    struct player_disk seen[DESCRIPTION_DISKS]; /* by build_machine(): for the player */
    unsigned nseen;
    enum engine_kind engine; /* for build_machine(), whatever it was recorded with */
    u64 code_cache;          /* for build_machine(): of the engine; 0: default */
    struct engine_paranoid paranoid;
    /* By build_machine(): features of the CPU that this host lacks, "AES, SHA". Its run ends in
     * front of the first use. "": none */
    char lacks[256];
    /* For build_machine(): what the user says of the images. NULL: nothing */
    const struct disk_named *named;
    struct disk_candidates candidates[DESCRIPTION_DISKS];
};
/* What has to be before sandbox_enter(): reads machine.dtb, which says what else is to be opened,
 * and opens the log. build_machine() reads of it, behind the door; `log` is NULL until then. */
int find_recording(struct opened *o, const char *path, struct err *err);
/* All of it: for who is behind the door, or has none. */
int open_recording(struct opened *o, const char *path, struct err *err);
void close_recording(struct opened *o);

/* Builds the machine of an opened recording (for replay); refuses hosts that cannot run it. Which
 * disk images it opens says disk_sources.h. Enters the sandbox. The machine must be gone before the
 * recording is closed. */
int build_machine(struct opened *o, struct machine **m, struct err *err);

/* Whether this host can run all of it exactly: -ENOTSUP with what it lacks. */
int opened_check_host(const struct opened *o, struct err *err);

struct hash128 description_hash128(const u8 bytes[DESCRIPTION_HASH_SIZE]);

/* text_put_quoted(); malloc'ed. NULL: no memory. */
char *text_quoted(const char *name);

#endif
