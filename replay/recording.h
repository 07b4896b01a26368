/*
 * The recording's directory:
 *
 *     machine.dtb   the machine (board/description.h)
 *     log           the event log (log.h); locked while it is being recorded
 *     contents      what the guest read of files of the host (contents.h)
 *     gpu.log       the GPU's commands (virtio-gpu-log/log.h)
 *     files/HASH    kernel, initrd: whatever the machine was built from, named by XXH3-128 in hex
 *
 * Owns creating, replacing and opening it. What is in it is checked against its hashes on every
 * opening: a recording that was changed is refused, never replayed wrongly.
 */
#ifndef REPRISE_RECORDING_H
#define REPRISE_RECORDING_H

#include "replay/contents.h"
#include "replay/log.h"

#define CHECKPOINT_DIR  "checkpoints" /* of the recording; checkpoint.h */
#define RECORDING_DISKS "disks"       /* images of its disks; disk_sources.h */

struct pack;

struct recording {
    char *path;
    int dir;                   /* -1: closed, or a pack */
    struct pack *pack;         /* NULL: a directory */
    struct blob log, tail;     /* by recording_find_log(); closed: not found, or the reader's */
    struct blob kept;          /* ... the file `contents` */
    struct contents *contents; /* by recording_open_log(), or to be added to; NULL: none */
    void *machine;             /* machine.dtb */
    size_t machine_size;
    struct hash128 machine_hash;
};

/*
 * Creates the directory. One that exists is refused; with `force` it is emptied first, provided
 * that it holds a recording (or nothing), nothing else, and is not being recorded just now.
 */
int recording_create(struct recording *r, const char *path, bool force, struct err *err);
/* Keeps a file by its content. */
int recording_keep(struct recording *r, const void *data, size_t size, struct hash128 *hash,
                   struct err *err);
/* Another file of that name, in place of an older one; it must be one that recording_create knows.
 */
int recording_write_file(struct recording *r, const char *name, const void *data, size_t size,
                         struct err *err);
int recording_write_machine(struct recording *r, const void *dtb, size_t size, struct err *err);
/* An empty file for the GPU's commands. */
int recording_create_gpu_log(struct recording *r, int *fd, struct err *err);
/* The file that takes what the guest reads of shares. */
int recording_create_contents(struct recording *r, const struct room *room, struct err *err);
/* The same, of what `from` has: its copy. */
int recording_follow_contents(struct recording *r, const struct recording *from,
                              const struct room *room, struct err *err);
/* Last step: the log, locked until the writer is closed. */
int recording_create_log(struct recording *r, struct log_writer **out, struct err *err);
/* The same, where it goes on from another one's: as log_writer_follow(). */
int recording_follow_log(struct recording *r, struct log_writer **out, struct log_reader *from,
                         const struct log_place *place, pos_t position, vns_t time, u64 *host_ns,
                         struct err *err);
/* The kept file of that content, of `from`; by a link where the file system can. */
int recording_share(struct recording *r, const struct recording *from, const struct hash128 *hash,
                    struct err *err);
/* The same with all of its checkpoint files, whatever they are. */
int recording_share_checkpoints(struct recording *r, const struct recording *from, struct err *err);

/* The same with what it has of its disks' images (pack_disk.h). */
int recording_share_disks(struct recording *r, const struct recording *from, struct err *err);

/* Removes a recording, which must hold nothing else, and not be being recorded just now. */
int recording_remove(const char *path, struct err *err);

/* Removes what was created, when the machine could not be started after all; closes. */
void recording_discard(struct recording *r);

/* Opens it, a directory or a pack (pack.h), and loads machine.dtb (whose hash the log's start
 * record repeats). */
int recording_open(struct recording *r, const char *path, struct err *err);
/* Opens the files of its log and reads nothing of them; refuses one that is being recorded just
 * now.
 */
int recording_find_log(struct recording *r, struct err *err);
/* Opens its log, found before or not, and reads whether it is of this machine. */
int recording_open_log(struct recording *r, struct log_reader **out, struct err *err);
/* Loads a kept file of `size` bytes, as machine.dtb says, and verifies it; `what` names it in
 * errors. malloc'ed. */
int recording_load(const struct recording *r, const struct hash128 *hash, u64 size,
                   const char *what, void **data, struct err *err);

/*
 * A file of it, by its name in the directory ("log", "files/HASH", "checkpoints/000000"), of at
 * most `max` bytes: whoever reads a recording's files gets them here. -ENOENT: it has none of that
 * name. *out is closed on every error.
 */
int recording_file(const struct recording *r, const char *name, u64 max, struct blob *out,
                   struct err *err);
/* Is there one; how many bytes has it? */
bool recording_has(const struct recording *r, const char *name);
bool recording_size(const struct recording *r, const char *name, u64 *size);
/* Can files be added to it? -EROFS: it is a pack. */
int recording_writable(const struct recording *r, struct err *err);
/* Files that go into a pack, by their names. */
bool recording_name_packed(const char *name);

/* Safe on a zeroed struct whose dir is -1, and twice. */
void recording_close(struct recording *r);
#define RECORDING_CLOSED                                                                           \
    {                                                                                              \
        .dir = -1, .log = BLOB_CLOSED, .tail = BLOB_CLOSED, .kept = BLOB_CLOSED                    \
    }

#define HASH_TEXT 33
void hash_text(const struct hash128 *hash, char out[HASH_TEXT]);
struct hash128 hash_bytes(const void *data, size_t size);
static inline bool hash_equal(const struct hash128 *a, const struct hash128 *b)
{
    return a->hi == b->hi && a->lo == b->lo;
}

#endif
