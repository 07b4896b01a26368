/*
 * The machine description: everything besides the log that a replay starts from, as a flattened
 * device tree (machine.dtb in a recording; readable with `dtc -I dtb`). One table in description.c
 * says which property holds which field; writing, reading and checking walk it.
 */
#ifndef REPRISE_DESCRIPTION_H
#define REPRISE_DESCRIPTION_H

#include "base/err.h"
#include "base/types.h"
#include "board/boot.h"
#include "cpu/model.h"

#define DESCRIPTION_FORMAT     1 /* of the recording; see docs/format.md before changing it */
#define DESCRIPTION_REVISION   1 /* of the machine; MACHINE_REVISION */
#define DESCRIPTION_FLAGS_RULE 1 /* which flags a fault pushes as dead: DESIGN.md, "Exactness" */
#define DESCRIPTION_MAX_SIZE   (64u << 10)
#define DESCRIPTION_HASH_SIZE  16 /* XXH3-128, canonical (big-endian) */

#define DESCRIPTION_DISKS 4
#define DESCRIPTION_NETS  4
#define DESCRIPTION_PORTS 8 /* of the virtio console; 0 has no name */

#define DESCRIPTION_GPU_MIN    64u
#define DESCRIPTION_GPU_MAX    4096u
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

struct description_port {
    char name[32];    /* "": no such port */
    char backend[64]; /* what it was connected to, for people */
};

struct machine_description {
    u32 format; /* DESCRIPTION_FORMAT */
    u32 flags_rule;
    char position_unit[16]; /* "insn" or "branch" */
    char creator[64];       /* version of the reprise that recorded */
    char host_cpu[16];      /* CPU maker of the recording host, as CPUID leaf 0 has it */

    u32 revision; /* of the machine; 0 in recordings of versions that had no number for it */

    u64 memory;
    char cpu_model[32]; /* cpu_model_name() */
    u64 seed;
    u64 wall_clock; /* Unix time at power-on, seconds */
    char append[PAGE_SIZE];

    char kernel_name[256]; /* as the user named it; for people only */
    u64 kernel_size;       /* of the file as the user gave it: bzImage or ELF */
    u8 kernel_hash[DESCRIPTION_HASH_SIZE];

    u64 initrd_size; /* 0: none */
    u8 initrd_hash[DESCRIPTION_HASH_SIZE];

    struct description_disk disk[DESCRIPTION_DISKS]; /* the first ones are used */

    struct description_net net[DESCRIPTION_NETS]; /* the first ones are used */

    u32 gpu_width, gpu_height; /* of the display, pixels; 0: no GPU */
    u32 gpu_hz;                /* refresh rate; 0: 60 */
    u32 capset_id, capset_version;
    u32 capset_size; /* 0: 2D only */
    u8 capset[DESCRIPTION_CAPSET_MAX];

    u32 hvc0; /* the console is port 0 of a virtio console (1) or the serial port (0) */
    struct description_port port[DESCRIPTION_PORTS];

    u32 input; /* there are a keyboard and a tablet (1) */

    /* What ran the machine, and how it counted positions: for people, any engine replays what
     * counts in the same unit. */
    char engine[16];  /* "kvm"; "": dbt */
    char counter[16]; /* "step" or "pmu", of "kvm" */

    /* Of a guest that a CPU ran freely: 0 if time is instructions. */
    u32 branch_ns; /* virtual time of a branch or event */
    u32 event_ns;  /* and what an event takes besides */
    u32 guest_tsc; /* 1: the guest answers RDTSC by itself */
    u32 tsc_step;  /* so many of them, and the TSC moves by itself */

    u32 realtime; /* recorded with pacing (1) or without (0) */
};

/* Zeroes *d and fills in format, flags rule, position unit and the host's CPU maker. */
void description_init(struct machine_description *d);

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
