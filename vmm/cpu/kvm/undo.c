/*
 * KVM fails in the middle of an instruction: it may have stored, and devices may have been asked,
 * although its registers can no longer be had. A recording must end between two instructions. So
 * memory is put back; and if devices were asked, exec() does the instruction once more, with the
 * answers that they gave, before the engine fails.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kvm/kvm.h"

#include "cpu/x86/memory.h"

#define NOTES 16u /* most that one instruction, or one iteration, makes */

enum note_kind { NOTE_PIO_READ = 1, NOTE_PIO_WRITE, NOTE_MMIO_READ, NOTE_MMIO_WRITE, NOTE_WRMSR };

struct note {
    enum note_kind kind;
    bool fine; /* WRMSR: not refused */
    u64 address, value;
};

struct kvm_undo {
    struct engine_env env;         /* what the core asks: the machine, and notes about it */
    const struct engine_env *real; /* the machine's own */
    struct note note[NOTES];
    unsigned notes, answered;
    bool again; /* the core makes the accesses of the notes once more */
    struct err why;
    struct {
        u8 *host[2];
        unsigned len[2];
        u8 was[64];
    } store[2];
    unsigned stores;
};

/* The note that answers this access; NULL: it is a new one. */
static const struct note *noted(struct kvm_undo *u, enum note_kind kind, u64 address)
{
    if (!u->again || u->answered == u->notes)
        return NULL;
    const struct note *n = &u->note[u->answered];
    if (n->kind != kind || n->address != address)
        return NULL;
    u->answered++;
    return n;
}

static void note(struct kvm_undo *u, enum note_kind kind, u64 address, u64 value, bool fine)
{
    if (!u->again && u->notes < NOTES)
        u->note[u->notes++] = (struct note){kind, fine, address, value};
}

static u32 pio_read(void *opaque, u16 port, unsigned size)
{
    struct kvm_undo *u = opaque;
    const struct note *n = noted(u, NOTE_PIO_READ, port);
    u32 v = n ? (u32)n->value : u->real->pio_read(u->real->cpu, port, size);
    note(u, NOTE_PIO_READ, port, v, true);
    return v;
}

static void pio_write(void *opaque, u16 port, unsigned size, u32 value)
{
    struct kvm_undo *u = opaque;
    if (noted(u, NOTE_PIO_WRITE, port))
        return;
    u->real->pio_write(u->real->cpu, port, size, value);
    note(u, NOTE_PIO_WRITE, port, value, true);
}

static u64 mmio_read(void *opaque, gpa_t gpa, unsigned size)
{
    struct kvm_undo *u = opaque;
    const struct note *n = noted(u, NOTE_MMIO_READ, gpa);
    u64 v = n ? n->value : u->real->mmio_read(u->real->cpu, gpa, size);
    note(u, NOTE_MMIO_READ, gpa, v, true);
    return v;
}

static void mmio_write(void *opaque, gpa_t gpa, unsigned size, u64 value)
{
    struct kvm_undo *u = opaque;
    if (noted(u, NOTE_MMIO_WRITE, gpa))
        return;
    u->real->mmio_write(u->real->cpu, gpa, size, value);
    note(u, NOTE_MMIO_WRITE, gpa, value, true);
}

static bool env_rdmsr(void *opaque, u32 msr, u64 *value)
{
    struct kvm_undo *u = opaque;
    return u->real->rdmsr(u->real->cpu, msr, value); /* reading changes nothing */
}

static bool env_wrmsr(void *opaque, u32 msr, u64 value)
{
    struct kvm_undo *u = opaque;
    const struct note *n = noted(u, NOTE_WRMSR, msr);
    if (n)
        return n->fine;
    bool fine = u->real->wrmsr(u->real->cpu, msr, value);
    note(u, NOTE_WRMSR, msr, value, fine);
    return fine;
}

static u64 get_cr8(void *opaque)
{
    struct kvm_undo *u = opaque;
    return u->real->get_cr8(u->real->cpu);
}

static void set_cr8(void *opaque, u64 value)
{
    struct kvm_undo *u = opaque;
    u->real->set_cr8(u->real->cpu, value);
}

/* Comes when its instruction is done. */
static void pmi(void *opaque, bool mask)
{
    struct kvm_undo *u = opaque;
    u->real->pmi(u->real->cpu, mask);
}

static vns_t now(void *opaque)
{
    struct kvm_undo *u = opaque;
    return u->real->now(u->real->cpu);
}

static u64 draw(void *opaque, bool seed)
{
    struct kvm_undo *u = opaque;
    return u->real->random(u->real->cpu, seed);
}

static void wait_for_others(void *opaque)
{
    struct kvm_undo *u = opaque;
    u->real->pause(u->real->cpu);
}

static void about_to_sync(void *opaque)
{
    struct kvm_undo *u = opaque;
    u->real->sync(u->real->cpu);
}

static void lacking(void *opaque, const char *text, const char *has)
{
    struct kvm_undo *u = opaque;
    if (u->real->lacking)
        u->real->lacking(u->real->cpu, text, has);
}

static void counted(void *opaque)
{
    struct kvm_undo *u = opaque;
    u->real->counted(u->real->cpu);
}

int kvm_undo_create(struct kvm *k, struct err *err)
{
    struct kvm_undo *u = calloc(1, sizeof(*u));
    if (!u)
        return err_set(err, -ENOMEM, "out of memory");
    u->real = k->core->env;
    u->env = (struct engine_env){.cpu = u,
                                 .pio_read = pio_read,
                                 .pio_write = pio_write,
                                 .mmio_read = mmio_read,
                                 .mmio_write = mmio_write,
                                 .rdmsr = env_rdmsr,
                                 .wrmsr = env_wrmsr,
                                 .get_cr8 = get_cr8,
                                 .set_cr8 = set_cr8,
                                 .pmi = pmi,
                                 .now = now,
                                 .random = draw,
                                 .pause = u->real->pause ? wait_for_others : NULL,
                                 .counted = counted,
                                 .lacking = lacking};
    k->core->env = &u->env;
    k->undo = u;
    kvm_undo_listen(k);
    return 0;
}

void kvm_undo_listen(struct kvm *k)
{
    struct kvm_undo *u = k->undo;
    u->env.sync = u->real->sync ? about_to_sync : NULL;
}

void kvm_undo_begin(struct kvm *k, const struct operand *op, unsigned n)
{
    struct kvm_undo *u = k->undo;
    struct core *d = k->core;
    u->notes = u->stores = 0;
    for (unsigned i = 0; i < n; i++) {
        if (op[i].acc != ACC_W || op[i].len > sizeof(u->store[0].was))
            continue;
        for (unsigned part = 0, at = 0; part < 2; part++) {
            unsigned len = part ? op[i].len - op[i].part : op[i].part;
            u8 *host = len ? ram_ptr(d->ram, op[i].gpa[part], len) : NULL;
            u->store[u->stores].host[part] = host;
            u->store[u->stores].len[part] = len;
            if (host)
                memcpy(u->store[u->stores].was + at, host, len);
            at += len;
        }
        u->stores++;
    }
}

bool kvm_undo(struct kvm *k)
{
    struct kvm_undo *u = k->undo;
    for (unsigned i = u->stores; i-- > 0;)
        for (unsigned part = 0, at = 0; part < 2; at += u->store[i].len[part++])
            if (u->store[i].host[part])
                memcpy(u->store[i].host[part], u->store[i].was + at, u->store[i].len[part]);
    if (!u->notes)
        return true;
    u->again = true;
    u->answered = 0;
    u->why = k->core->err;
    return false;
}

bool kvm_undo_failed(struct kvm *k)
{
    struct kvm_undo *u = k->undo;
    if (!u->again)
        return false;
    k->core->err = u->why;
    return true;
}
