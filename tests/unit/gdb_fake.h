/*
 * The part of machine.h that the gdb stub uses, on a toy: a vCPU, four pages of RAM at physical 0,
 * which are at linear 0x1000. Included once in a program, so that machine.o is not pulled in.
 */
#ifndef REPRISE_TEST_GDB_FAKE_H
#define REPRISE_TEST_GDB_FAKE_H

#include <errno.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "machine/machine.h"
#include "replay/gdb/gdb.h"

#define FAKE_RAM    0x4000u
#define FAKE_LINEAR 0x1000u

struct machine {
    struct vcpu cpu;
    u8 ram[FAKE_RAM];
    enum cpu_model model;
    unsigned edits;
};

static inline struct machine *fake_machine(enum cpu_model model)
{
    static struct machine m;
    memset(&m, 0, sizeof(m));
    vcpu_reset(&m.cpu);
    m.model = model;
    for (unsigned i = 0; i < FAKE_RAM; i++)
        m.ram[i] = (u8)(i * 7 + (i >> 8));
    m.cpu.cr0 |= CR0_PE;
    m.cpu.efer = EFER_LME | EFER_LMA;
    m.cpu.seg_attr[SEG_CS] = ATTR_P | ATTR_S | ATTR_L | 0xb;
    return &m;
}

unsigned machine_cpus(const struct machine *m)
{
    return 1;
}

unsigned machine_turn(const struct machine *m)
{
    return 0;
}

void machine_look_at(struct machine *m, unsigned cpu)
{
}

const struct vcpu *machine_vcpu(struct machine *m)
{
    return &m->cpu;
}

struct vcpu *machine_vcpu_edit(struct machine *m)
{
    return &m->cpu;
}

void machine_vcpu_edited(struct machine *m)
{
    m->edits++;
}

u64 machine_cr8(struct machine *m)
{
    return 7;
}

bool machine_cpu_has(const struct machine *m, enum cpu_feature f)
{
    return cpu_model_has(m->model, f);
}

bool machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len)
{
    if (gpa > FAKE_RAM || len > FAKE_RAM - gpa)
        return false;
    memcpy(out, m->ram + gpa, len);
    return true;
}

bool machine_poke_physical(struct machine *m, gpa_t gpa, const void *in, size_t len)
{
    if (gpa > FAKE_RAM || len > FAKE_RAM - gpa)
        return false;
    memcpy(m->ram + gpa, in, len);
    return true;
}

bool machine_peek(struct machine *m, gva_t va, void *out, size_t len)
{
    return machine_peek_physical(m, va - FAKE_LINEAR, out, len);
}

bool machine_poke(struct machine *m, gva_t va, const void *in, size_t len)
{
    return machine_poke_physical(m, va - FAKE_LINEAR, in, len);
}

/* ---- a process, and one that it made ---- */

static const struct gdb_thread fake_threads_list[] = {
    {.id = 5, .process = 5, .name = "a<b", .where = "running"},
    {.id = 6, .process = 5, .name = "b", .where = "in"},
    {.id = 7, .process = 7, .name = "c", .where = "in"}};

static inline bool fake_threads(void *opaque, const struct gdb_thread **list, size_t *count,
                                i32 *now)
{
    *list = fake_threads_list;
    *count = ARRAY_SIZE(fake_threads_list);
    *now = 6;
    return true;
}

static inline bool fake_thread(void *opaque, i32 id, struct vcpu *out, bool *fpu, u64 *call)
{
    struct machine *m = opaque;
    memcpy(out, machine_vcpu(m), sizeof(*out));
    *fpu = id != 7;
    *call = 1;
    return id != 6;
}

static inline bool fake_peek(void *opaque, i32 id, u64 address, void *out, size_t len)
{
    return machine_peek(opaque, address, out, len);
}

static inline int fake_catch_calls(void *opaque, bool on, const u32 *calls, size_t n,
                                   struct err *err)
{
    return on && n && calls[n - 1] == 99 ? err_set(err, -1, "no") : 0;
}

static inline bool fake_leave(void *opaque, i32 id)
{
    return id == 7;
}

static inline bool fake_siginfo(void *opaque, u8 out[GDB_SIGINFO_SIZE])
{
    memset(out, 11, GDB_SIGINFO_SIZE);
    return true;
}

static inline int fake_file_open(void *opaque, const char *path, u64 *size)
{
    *size = strlen(path);
    return *path == '/' ? path[1] : -ENOENT;
}

static inline i64 fake_file_read(void *opaque, int handle, u64 offset, void *out, size_t len)
{
    if (offset > 100)
        return offset > 200 ? -EIO : 0;
    memset(out, handle, len);
    return (i64)len;
}

static inline void fake_file_close(void *opaque, int handle)
{
}

static inline bool fake_file_link(void *opaque, const char *path, char out[GDB_PATH_MAX])
{
    strcpy(out, path);
    return *path == '/';
}

static inline size_t fake_auxv(void *opaque, void *out, size_t size)
{
    memset(out, 1, 32);
    return 32;
}

static inline void fake_process(struct gdb_target *t)
{
    t->threads = fake_threads;
    t->thread = fake_thread;
    t->peek = fake_peek;
    t->auxv = fake_auxv;
    t->catch_calls = fake_catch_calls;
    t->leave = fake_leave;
    t->siginfo = fake_siginfo;
    t->file_open = fake_file_open;
    t->file_read = fake_file_read;
    t->file_close = fake_file_close;
    t->file_link = fake_file_link;
}

#endif
