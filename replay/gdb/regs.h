/*
 * Registers as gdb numbers them, and their description for gdb (target.xml). A register's number
 * is its place in one table (regs.c); README.md lists them. "Registers" are of struct vcpu, but for
 * CR8, which is the local APIC's, and those of the process, which the target knows.
 */
#ifndef REPRISE_GDB_REGS_H
#define REPRISE_GDB_REGS_H

#include "base/err.h"
#include "cpu/vcpu.h"
#include "replay/gdb/gdb.h"

enum {
    GDB_RBP = 6,
    GDB_RSP = 7,
    GDB_RIP = 16,
    GDB_EFLAGS = 17,
    GDB_CS = 18,
    GDB_ST0 = 24,
    GDB_FCTRL = 32,
    GDB_XMM0 = 40,
    GDB_MXCSR = 56,
    GDB_YMM0H = 57,
    GDB_FS_BASE = 73,
    GDB_K_GS_BASE = 75,
    GDB_CR0 = 76,
    GDB_CR2 = 77,
    GDB_CR8 = 80,
    GDB_PGD = 99,
    GDB_PID = 100,
    GDB_COMM = 101,
    GDB_IP = 102,
    GDB_NARROW_FS_BASE = 107, /* and GS: of an i386, which has no other */
    GDB_ORIG_RAX = 109,
    GDB_XMM16 = 110,
    GDB_YMM16H = 126,
    GDB_K0 = 142,
    GDB_ZMM0H = 150,
    GDB_REGISTERS = 182
};

enum reg_feature {
    FEATURE_CORE,
    FEATURE_SSE,
    FEATURE_AVX,
    FEATURE_AVX512,
    FEATURE_SEGMENTS,
    FEATURE_SYSTEM,
    FEATURE_PROCESS,
    FEATURE_BASES,
    FEATURE_LINUX
};

/* What a write must heed. REG_PROCESS: read-only too, a field of struct gdb_process. */
enum reg_access {
    REG_READ_ONLY,
    REG_ANY,
    REG_CANONICAL,
    REG_RIP,
    REG_EFLAGS,
    REG_MXCSR,
    REG_X87,
    REG_PROCESS
};

/* What is a register to gdb and not in struct vcpu. */
struct gdb_beside {
    u64 cr8;
    u64 call; /* orig_rax of a thread of a process */
    struct gdb_process process;
};

struct gdb_reg {
    const char *name;
    const char *type;  /* in target.xml */
    const char *group; /* NULL: gdb's choice */
    u16 bits;
    u16 size;   /* of the field */
    u16 offset; /* in struct vcpu or gdb_process; REG_X87: which one */
    u8 feature;
    u8 access;
};

/* The largest register, in bytes. */
#define GDB_REG_SIZE 32

/* NULL: gdb has no such register. */
const struct gdb_reg *gdb_reg_find(u64 number, unsigned view);

/* Is it of x87, SSE or AVX? */
bool gdb_reg_is_fpu(unsigned number);

/* What register `number` takes of it; GDB_REGISTERS: what all of them do. */
void gdb_beside_read(struct gdb_beside *out, const struct gdb_target *target, unsigned number);

/* Writes as many bytes as the register has with GDB_VIEW_AVX alone, little-endian. False: its value
 * is not known here, and reads as 0. */
bool gdb_reg_read(const struct vcpu *c, const struct gdb_beside *beside, unsigned number, u8 *out);

/* The same for what the view shows of a register: the rest of what changes becomes 0. */
int gdb_reg_write_view(struct vcpu *c, const struct gdb_beside *beside, unsigned number,
                       unsigned view, const u8 *in, struct err *err);

/* Changes `c` (a copy of a canonical one), which stays canonical. -EINVAL with a text when the
 * register cannot be written or cannot hold that value; the value it has is always fine. */
int gdb_reg_write(struct vcpu *c, const struct gdb_beside *beside, unsigned number, const u8 *in,
                  struct err *err);

/* target.xml, malloc'ed; NULL when out of memory. */
char *gdb_description(unsigned view);

/* The privilege level. */
unsigned gdb_cpl(const struct vcpu *c);

#endif
