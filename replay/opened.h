/* A recording that is read: its parts together, and the machine that it is of. */
#ifndef REPRISE_OPENED_H
#define REPRISE_OPENED_H

#include "board/description.h"
#include "cpu/engine.h"
#include "host/disk.h"
#include "machine.h"
#include "replay/recording.h"

/* A recording, opened for reading. */
struct opened {
    struct recording rec;
    struct machine_description desc;
    struct log_reader *log;
    char *quoted; /* its name as a shell takes it */
    struct disk disks[DESCRIPTION_DISKS];
    enum engine_kind engine; /* for build_machine(), whatever it was recorded with */
};
int open_recording(struct opened *o, const char *path, struct err *err);
void close_recording(struct opened *o);

/* Builds the machine of an opened recording (for replay); refuses hosts that cannot run it. The
 * machine must be gone before the recording is closed. */
int build_machine(struct opened *o, struct machine **m, struct err *err);

/* The networks of a description; room for DESCRIPTION_NETS. Returns how many there are. */
unsigned machine_nets(const struct machine_description *d, struct machine_net *nets);

/* Consoles, ports and input devices; the names are the description's. */
void machine_peripherals(const struct machine_description *d, struct machine_config *config);

struct hash128 description_hash128(const u8 bytes[DESCRIPTION_HASH_SIZE]);

/* A file name as a shell takes it, for the commands that we suggest; malloc'ed. */
char *text_quoted(const char *name);

#endif
