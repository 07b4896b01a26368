/*
 * The machine description: what a machine is, and everything besides the log that a replay starts
 * from. `record`, a replay and the machine share the struct; a recording keeps it as a flattened
 * device tree (machine.dtb, readable with `dtc -I dtb`). description.def says of each field all
 * that there is to say.
 */
#ifndef REPRISE_DESCRIPTION_H
#define REPRISE_DESCRIPTION_H

#include "base/err.h"
#include "base/types.h"
#include "board/boot.h"
#include "cpu/features.h"

#define DESCRIPTION_FORMAT 1 /* of the recording; see docs/format.md before changing it */
/* What a recorded machine is at power-on must not change: a difference has a number of its own.
 * 1: the PIT is ready, as firmware leaves it. 2: Multiboot kernels find a BIOS' data area;
 * and what cpu/engine.h says of vCPUs. */
#define DESCRIPTION_REVISION   9
#define DESCRIPTION_FLAGS_RULE 1 /* which flags a fault pushes as dead: docs/determinism.md */
#define DESCRIPTION_MAX_SIZE   (64u << 10)
#define DESCRIPTION_HASH_SIZE  16 /* XXH3-128, canonical (big-endian) */
#define DESCRIPTION_ID_SIZE    16

#define DESCRIPTION_CPUS_MAX 32u

#define DESCRIPTION_DISKS  4
#define DESCRIPTION_NETS   4
#define DESCRIPTION_PORTS  8 /* of the virtio console; 0 has no name */
#define DESCRIPTION_SHARES 4

#define DESCRIPTION_GPU_MIN    64u
#define DESCRIPTION_GPU_MAX    4096u
#define DESCRIPTION_HZ         60u
#define DESCRIPTION_HZ_MAX     240u
#define DESCRIPTION_CAPSET_MAX 512u

#define DESCRIPTION_BRANCH_NS_MAX 1000u
#define DESCRIPTION_EVENT_NS_MAX  1000000u

#define DESCRIPTION_MTU_MIN 576u
#define DESCRIPTION_MTU_MAX 32000u

struct description_disk {
    char path[1024]; /* of the base image, absolute; or the URI of an NBD export */
    char serial[21];
    char format[16]; /* host/disk_format.h, or "nbd" */
    u64 size;        /* bytes; 0: no such disk */
    u32 readonly;
};

struct description_net {
    u8 mac[6];
    u32 mtu;          /* 0: no such network */
    char backend[64]; /* what it was connected to, for people */
};

struct description_gpu {
    u32 width, height; /* of the display, pixels; 0: no GPU */
    u32 hz;            /* its refresh rate: a command that draws is done a period later */
    u32 capset_id, capset_version;
    u32 capset_size; /* 0: 2D only */
    u8 capset[DESCRIPTION_CAPSET_MAX];
};

struct description_port {
    char name[32];    /* "": no such port */
    char backend[64]; /* what it was connected to, for people */
};

struct description_share {
    char tag[37];    /* what the guest mounts; "": no such share */
    char path[1024]; /* which directory it was, for people */
};

struct machine_description {
    u32 format; /* DESCRIPTION_FORMAT */
    u32 flags_rule;
    char position_unit[16]; /* "insn" or "branch" */
    char creator[64];       /* version of the reprise that recorded */
    char host_cpu[16];      /* CPU maker of the recording host, as CPUID leaf 0 has it */

    u32 revision; /* of the machine; 0 in recordings of versions that had no number for it */

    u64 memory;
    char cpu_model[32];             /* cpu_model_name() */
    char cpu_features[CPU_CHANGES]; /* in what it differs from the model; cpu_changes_text() */
    u32 cpus;                       /* how many there are */
    u32 cores, threads; /* of a package, of a core; no cores: each CPU is one of one package */
    char pmu[8];        /* its performance counters: "on", "off"; "": the model has none */
    u64 seed;
    u64 wall_clock; /* Unix time at power-on, seconds */
    char append[PAGE_SIZE];

    char kernel_name[256]; /* as the user named it; for people only */
    u64 kernel_size;       /* of the file as the user gave it: bzImage or ELF */
    u8 kernel_hash[DESCRIPTION_HASH_SIZE];

    char protocol[16]; /* by which it is entered (boot.h); "": what fits it */

    u64 initrd_size; /* 0: none */
    u8 initrd_hash[DESCRIPTION_HASH_SIZE];

    struct description_disk disk[DESCRIPTION_DISKS]; /* the first ones are used */

    struct description_net net[DESCRIPTION_NETS]; /* the first ones are used */

    struct description_gpu gpu;

    u32 hvc0; /* the console is port 0 of a virtio console (1) or the serial port (0) */
    struct description_port port[DESCRIPTION_PORTS];

    struct description_share share[DESCRIPTION_SHARES]; /* the first ones are used */

    u32 input; /* there are a keyboard and a tablet (1) */

    /* What ran the machine, and how it counted positions: for people, any engine replays what
     * counts in the same unit. */
    char engine[16];  /* "dbt" or "kvm" */
    char counter[16]; /* "step" or "pmu", of "kvm" */

    /* Where positions are branches and events; 0 if they are instructions. */
    u32 branch_ns; /* virtual time of a branch or event */
    u32 event_ns;  /* and what an event takes besides */
    u32 guest_tsc; /* 1: the guest answers RDTSC by itself */
    u32 tsc_step;  /* so many of them, and the TSC moves by itself */

    u32 realtime; /* recorded with pacing (1) or without (0) */

    /* The recording that this one begins in, up to where; "": none. For people. */
    char from[1024];
    pos_t from_position;
    vns_t from_time;

    /* Random, of a recording with disks: with it nobody can make another one whose machine.dtb has
     * the same hash (replay/disk_notes.h). Zeros: none. */
    u8 recording_id[DESCRIPTION_ID_SIZE];
};

enum description_kind {
    DESCRIPTION_NUMBER, /* u32 or u64 */
    DESCRIPTION_FLAG,   /* u32, 0 or 1 */
    DESCRIPTION_TEXT,   /* NUL-terminated, shorter than `size` */
    DESCRIPTION_HASH,   /* DESCRIPTION_HASH_SIZE bytes */
    DESCRIPTION_BYTES,  /* exactly `size` */
};

/* Lines of `info`; LINE_NONE: the row is on none. */
enum description_line {
    LINE_NONE,
#define LINE(ID, label) LINE_##ID,
#include "board/description.def"
    LINE_COUNT,
};
extern const char *const description_line_label[LINE_COUNT];

/* What there is to say of a property; texts are NULL where there is nothing. */
struct description_row {
    unsigned node; /* description_node() */
    const char *property;
    enum description_kind kind;
    u32 offset, size;      /* of the field in machine_description */
    u64 std;               /* a number's or flag's value in a machine that says nothing else */
    const char *text;      /* ... and a text's */
    u64 least, most, step; /* of a number: its range, and what divides it; most 0: no limit */
    const char *values;    /* a text is one of "a|b"; an option's words for a flag's 0 and 1 */
    const char *says;      /* to who gives another value; % is "LEAST to MOST" */
    const char *json;      /* its key in `info --json` */
    enum description_line line;
    bool if_there;    /* ... only if its node is there: what holds without it goes without saying */
    const char *show; /* on that line; % is the value, "a|b": a if the value is 0, else b */
    bool first;       /* before the rows of that line that stand above */
    const char *option; /* of `record`; "gpu.hz": hz=N of --gpu; "no-realtime": sets 0 */
    int key;            /* its letter; 0: none */
    const char *arg;    /* what the value is, for people; SIZE and TIME have forms of their own */
    const char *help;   /* of the option */
    const char *doc;    /* in docs/format.md */
    const char *words;  /* to who compares two machines: what differs, with its values */
    const char *shows;  /* the component whose state differs with it from the beginning */
};
extern const struct description_row description_rows[];
extern const size_t description_row_count;

/* The name of the row's node; "" is the root. */
const char *description_node(const struct description_row *r);
/* Is the row's node in the description's file? */
bool description_there(const struct machine_description *d, const struct description_row *r);
/* A number's or flag's value. */
u64 description_number(const struct machine_description *d, const struct description_row *r);
/* Sets a number or flag. false: it is out of range, and *d as before. */
bool description_set(struct machine_description *d, const struct description_row *r, u64 value);
/* Is `text` one of a row's values, "a|b"? */
bool description_one_of(const char *text, const char *values);
/* What is said of a number out of range, with an argument's text or the value in front of it. */
void description_refusal(const struct description_row *r, char *out, size_t size);

/* What a machine is of which nothing is said, on this host. */
void description_init(struct machine_description *d);

/* Disks, networks, shares: the first ones are there. */
unsigned description_disks(const struct machine_description *d);
unsigned description_nets(const struct machine_description *d);
unsigned description_shares(const struct machine_description *d);
/* How many shares the bus has slots for, beside the other devices. */
unsigned description_share_room(const struct machine_description *d);
/* Positions are instructions, of a machine that runs by branches: for debuggers. */
bool description_by_insn(const struct machine_description *d);
/* What its CPUs are parts of. */
struct cpu_parts description_cpu_parts(const struct machine_description *d);
/* What instructions leave undefined is the same on every host (cpu/x86/canon.h): it replays on CPUs
 * of any maker. */
bool description_canonical(const struct machine_description *d);

/* What its CPUs are. -EINVAL with a text. */
int description_cpu(const struct machine_description *d, struct cpu_choice *out, struct err *err);

bool description_has_id(const struct machine_description *d);

/* XXH3-128 of the bytes, and its 32 hexadecimal digits. */
void description_hash(const void *bytes, size_t size, u8 out[DESCRIPTION_HASH_SIZE]);
void description_hash_text(const u8 hash[DESCRIPTION_HASH_SIZE],
                           char out[2 * DESCRIPTION_HASH_SIZE + 1]);

/* `out` has room for DESCRIPTION_MAX_SIZE bytes. Fails when `d` is not what description_read takes.
 */
int description_write(const struct machine_description *d, void *out, size_t *size,
                      struct err *err);

/*
 * Reads and checks. Refused with a text: what is no device tree, another format version
 * (-EPROTONOSUPPORT), unknown, missing or ill-sized properties, values out of range, and any change
 * since it was written (it holds a checksum of all its bytes): -EINVAL.
 */
int description_read(const void *dtb, size_t size, struct machine_description *d, struct err *err);

#endif
