/* What is given to the machine, by dev/inputs.def: whether there is room for it, and to whom it
 * goes. */
#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "board/acpi.h"
#include "dev/acpi_pm.h"
#include "machine/internal.h"

enum { UNIT_NONE, UNIT_EACH, UNIT_PART };
enum { DEV_MACHINE = DEV_KINDS };
static_assert(sizeof(struct engine_place) == INPUT_PLACE_SIZE, "as inputs.def has it");

static const struct row {
    u8 device, unit;
} rows[] = {
#define INPUT(NAME, device, unit, ...) [INPUT_##NAME] = {DEV_##device, UNIT_##unit},
#include "dev/inputs.def"
#undef INPUT
};

/* NULL: there is none, or it is the machine's own. */
static struct device *receiver(const struct machine *m, enum input_kind kind, u32 unit)
{
    const struct row *r = &rows[kind];
    if (r->device == DEV_MACHINE)
        return NULL;
    return device_find(m, r->device, r->unit == UNIT_EACH ? unit : 0);
}

static void apply_place(struct machine *m, const struct input *in)
{
    struct engine_place to;
    memcpy(&to, in->data, sizeof(to));
    if (machine_settle(m, &to, &m->failed))
        return;
    engine_count_event(m->turn->engine);
    if (m->ncpus > 1)
        schedule_end(m);
    clock_pass(m, in->arg);
    clock_move_tsc(m);
    devices_expire(m);
    /* Here and not only in the run loop: a log may have its next record at this very position. */
    clock_step_tsc(m);
}

/* The page is the guest's firmware's, which no CPU writes. */
static void apply_generation(struct machine *m, const struct input *in)
{
    bus_writing(m);
    memcpy(ram_ptr(&m->ram, ACPI_GENERATION, in->len), in->data, in->len);
    bus_written(m, ACPI_GENERATION, in->len);
    acpi_gpe(device_find(m, DEV_ACPI, 0), ACPI_GENERATION_GPE);
}

static void apply_own(struct machine *m, const struct input *in)
{
    switch (in->kind) {
    case INPUT_NMI: schedule_nmi(m, 0, true); break;
    case INPUT_PLACE: apply_place(m, in); break;
    case INPUT_GENERATION: apply_generation(m, in); break;
    case INPUT_CHAOS: chaos_begin(m, get64(in->data), (enum chaos_part)in->arg); break;
    case INPUT_TURN: schedule_give(m, in->unit); break;
    case INPUT_QUIT:
        if (!m->end_requested) {
            m->end_requested = true;
            m->end = (struct run_end){RUN_QUIT, in->arg};
        }
        break;
    default: break;
    }
}

void inputs_apply(struct machine *m, const struct input *in)
{
    clock_move_tsc(m);
    last_input(&m->last, machine_position(m), in);
    if (m->taken)
        m->taken(m->taken_opaque, in);
    struct device *d = receiver(m, in->kind, in->unit);
    if (d)
        d->ops->input(d, in);
    else
        apply_own(m, in);
}

u32 machine_room(const struct machine *m, enum input_kind kind, u32 unit)
{
    if (kind == INPUT_GENERATION)
        return m->generation ? INPUT_GENERATION_SIZE : 0;
    if (kind == INPUT_CHAOS)
        return m->ncpus > 1 ? INPUT_SEED_SIZE : 0;
    if (kind == INPUT_TURN)
        return m->ncpus > 1 && unit < m->ncpus && schedule_can_run(&m->cpu[unit]);
    if (rows[kind].device == DEV_MACHINE)
        return kind != INPUT_PLACE ? 1 : m->unit != UNIT_INSN ? INPUT_MAX : 0;
    const struct device *d = receiver(m, kind, unit);
    return !d ? 0 : d->ops->room ? d->ops->room(d, kind, unit) : 1;
}

void machine_place(struct machine *m, struct engine_place *out)
{
    engine_place(m->turn->engine, out);
}

bool machine_waited_for(const struct machine *m)
{
    return m->ncpus > 1 && !schedule_alone(m->turn);
}

int machine_settle(struct machine *m, const struct engine_place *to, struct err *err)
{
    if (m->ncpus > 1)
        schedule_turn(m); /* it is on the way of who has the turn from here on */
    return engine_reach(m->turn->engine, to, err);
}
