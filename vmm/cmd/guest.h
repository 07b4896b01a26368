/*
 * What the user's files become: kernel and initrd as the machine takes them, the command line, and
 * the machine's description. Used by `record` only; a replay builds from the recording.
 */
#ifndef REPRISE_CMD_GUEST_H
#define REPRISE_CMD_GUEST_H

#include "board/initrd.h"
#include "board/kernel.h"
#include "cmd/cmd.h"
#include "host/disk.h"
#include "live/gpu.h"
#include "live/input_file.h"
#include "host/net.h"
#include "live/port.h"
#include "live/share.h"
#include "replay/point.h"

/* Kernel, initrd and command line are those of the disks' own boot entry. */
#define GUEST_KERNEL_AUTO "auto"
/* A keyboard and a tablet that nobody touches. */
#define GUEST_INPUT_NONE "none"

struct guest_config {
    struct machine_description is; /* as far as options say it */
    const char *kernel, *initrd, *append;
    const char *boot_entry; /* with GUEST_KERNEL_AUTO as kernel; NULL: the default one */
    const char **add;
    size_t nadd;
    const char *disk[DESCRIPTION_DISKS]; /* FILE[,format=NAME][,readonly][,serial=TEXT] ... */
    unsigned ndisks;
    const char *net[DESCRIPTION_NETS]; /* as --net */
    unsigned nnets;
    const char *port[DESCRIPTION_PORTS];   /* as --port, from 1 on */
    unsigned nports;                       /* with port 0 */
    const char *share[DESCRIPTION_SHARES]; /* as --share */
    unsigned nshares;
    const char *input; /* file of events; NULL: none */
    bool again;        /* what came from outside in the recording that it begins in comes again */
    enum engine_kind engine;
    u64 code_cache; /* of the engine; 0: default */
    struct engine_paranoid paranoid;
    enum position_unit unit;
    bool virgl;           /* the GPU has 3D */
    char gpu_driver[256]; /* of the renderer; "": as usual */
    u32 gpu_timeout;      /* seconds without a sign of it, when it is waited for; 0: as usual */
};

struct guest {
    struct machine_description desc;
    enum engine_kind engine;
    u64 code_cache;
    struct engine_paranoid paranoid;
    struct kernel_image image;
    void *kernel_file;
    size_t kernel_size;
    struct initrd_builder builder;
    void *initrd_file; /* of the recording that it begins in */
    const u8 *initrd;
    size_t initrd_size;
    struct disk own[DESCRIPTION_DISKS];
    struct disk *disks; /* the machine's, of DESCRIPTION_DISKS; closed by guest_close_host */
    unsigned ndisks;
    struct opened *from;    /* the recording that it begins in; NULL: none. Has its disks */
    char *from_name;        /* its whole path; NULL: not known */
    struct instant from_at; /* where in it */
    struct net *nets[DESCRIPTION_NETS]; /* these too are closed by guest_close_host */
    unsigned nnets;
    struct port *ports[DESCRIPTION_PORTS];         /* NULL: none */
    struct share_host *shares[DESCRIPTION_SHARES]; /* NULL: none */
    struct input_file *input;
    struct gpu_host *gpu; /* NULL: none, or 2D only */
};

/* The machine of another recording, whose disks and log are opened. `config` says what runs it. */
int guest_load_from(struct guest *g, const struct guest_config *config, const char *dir,
                    const struct point *at, struct err *err);
/* Connects the port of that name, which has nobody, to a socket, which is its own from now on. */
int guest_connect(struct guest *g, const char *port, int socket, struct err *err);
/* Reads, extracts, adds, describes. */
int guest_load(struct guest *g, const struct guest_config *config, struct err *err);
/* Prints the boot entries of the disks. */
int guest_list_entries(const struct guest_config *config, struct err *err);
/* ... behind the door: opens its log, unpacks its kernel. */
int guest_open_from(struct guest *g, struct err *err);
int guest_create_machine(struct guest *g, struct machine **m, struct err *err);
/* Keeps kernel, initrd and description in the recording. */
int guest_keep(struct guest *g, struct recording *r, struct err *err);
void guest_fini(struct guest *g); /* safe on a zeroed struct */
/* What is connected to the machine, once it is gone. */
void guest_close_host(struct guest *g);

#endif
