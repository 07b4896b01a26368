/*
 * Position and time, the only place that knows how one follows from the other
 * (docs/determinism.md): the position is what the vCPUs have counted; virtual time is that, at a ns
 * or at branch_ns each, and the time in which none executed. The TSC shows virtual time; where
 * positions are branches it stands still but for the positions at which something happens, and
 * every tsc_step positions.
 */
#include "machine/internal.h"

void clock_create(struct machine *m, const struct machine_description *is)
{
    m->unit = !is->branch_ns ? UNIT_INSN : description_by_insn(is) ? UNIT_BOTH : UNIT_BRANCH;
    m->branch_ns = is->branch_ns;
    m->event_ns = is->event_ns;
    m->tsc_step = is->tsc_step;
    m->st.tsc_at = m->tsc_step;
}

void clock_begin(struct machine *m)
{
    m->others = machine_position(m) - engine_count(m->turn->engine);
    m->running = true;
}

void clock_end(struct machine *m)
{
    m->running = false;
}

void clock_turn(struct machine *m, const struct machine_cpu *to)
{
    m->others += engine_count(m->turn->engine) - engine_count(to->engine);
}

static NOINLINE pos_t sum_of_counts(const struct machine *m)
{
    pos_t sum = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        sum += engine_count(m->cpu[i].engine);
    return sum;
}

pos_t machine_position(const struct machine *m)
{
    return m->running ? m->others + engine_count(m->turn->engine) : sum_of_counts(m);
}

pos_t clock_turns(const struct machine *m)
{
    return m->unit == UNIT_BOTH ? machine_branches(m) : machine_position(m);
}

pos_t machine_branches(const struct machine *m)
{
    pos_t sum = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        sum += engine_branches(m->cpu[i].engine);
    return sum;
}

vns_t machine_now(const struct machine *m)
{
    if (m->unit != UNIT_INSN)
        return machine_branches(m) * m->branch_ns + m->st.idle_ns;
    return machine_position(m) + m->st.idle_ns;
}

vns_t clock_time(const struct machine *m, const struct machine_state *st, pos_t position)
{
    switch (m->unit) {
    case UNIT_BRANCH: return position * m->branch_ns + st->idle_ns;
    case UNIT_BOTH: return st->branches * m->branch_ns + st->idle_ns;
    case UNIT_INSN: break;
    }
    return position + st->idle_ns;
}

vns_t clock_tsc(const struct machine *m)
{
    return m->unit != UNIT_INSN ? m->st.tsc : machine_now(m);
}

void clock_move_tsc(struct machine *m)
{
    m->st.tsc = machine_now(m);
}

/* A guest that only looks at its TSC sees it move, at every multiple of tsc_step. */
void clock_step_tsc(struct machine *m)
{
    if (m->unit == UNIT_INSN)
        return;
    pos_t pos = machine_branches(m);
    if (pos < m->st.tsc_at)
        return;
    m->st.tsc_at = pos - pos % m->tsc_step + m->tsc_step;
    clock_move_tsc(m);
}

pos_t clock_tsc_distance(const struct machine *m)
{
    return m->unit == UNIT_INSN ? NEVER : m->st.tsc_at - machine_branches(m);
}

void clock_pass(struct machine *m, vns_t ns)
{
    m->st.idle_ns += ns;
}

bool machine_by_branch(const struct machine *m)
{
    return m->unit == UNIT_BRANCH;
}

const char *machine_positions_name(const struct machine *m)
{
    return machine_by_branch(m) ? "branches and events" : "instructions";
}

u64 machine_positions(const struct machine *m, vns_t ns)
{
    return m->unit != UNIT_INSN ? ns / m->branch_ns + (ns % m->branch_ns != 0) : ns;
}
