/*
 * The machine's state as recordings and checkpoints have it: components with digests, saved state,
 * running digests of output and RAM. Of a vCPU that is "cpu0"; docs/determinism.md says what
 * becomes of it with several.
 */
#include <errno.h>
#include <string.h>

#include "machine/internal.h"

typedef struct machine_state state_here;
#define ROWS(X)  X(STATE_FIELD, STATE_FIELD_ARRAY)
#define ONE      ROWS(MACHINE_STATE)
#define BRANCHES ROWS(MACHINE_BRANCH_STATE)
#define BOTH     ROWS(MACHINE_BOTH_STATE)
#define SMP      ROWS(MACHINE_SMP_STATE)
#define SPIN     ROWS(MACHINE_SPIN_STATE)
#define LONG     ROWS(MACHINE_LONG_STATE)
#define LOOK     ROWS(MACHINE_LOOK_STATE)
#define EACH     ROWS(MACHINE_EACH_STATE)
static const struct state_field machine_fields[] = {ONE}, branch_fields[] = {ONE BRANCHES},
                                both_fields[] = {ONE BRANCHES BOTH}, smp_fields[] = {ONE SMP},
                                spin_fields[] = {ONE SMP SPIN}, long_fields[] = {ONE SMP SPIN LONG},
                                branch_smp_fields[] = {ONE BRANCHES SMP SPIN LOOK},
                                both_smp_fields[] = {ONE BRANCHES SMP SPIN LOOK EACH};
#undef ROWS
#define DESC(NAME)                                                                                 \
    NAME##_desc = {"machine", NAME##_fields, ARRAY_SIZE(NAME##_fields),                            \
                   sizeof(struct machine_state)}
static const struct state_desc DESC(machine), DESC(branch), DESC(both), DESC(smp), DESC(spin),
    DESC(long), DESC(branch_smp), DESC(both_smp);
#undef DESC

static const struct state_desc *own_desc(const struct machine *m, enum position_unit unit)
{
    bool one = m->ncpus == 1;
    switch (unit) {
    case UNIT_BRANCH: return one ? &branch_desc : &branch_smp_desc;
    case UNIT_BOTH: return one ? &both_desc : &both_smp_desc;
    case UNIT_INSN: break;
    }
    if (one)
        return &machine_desc;
    if (schedule_grows(m))
        return &long_desc;
    return schedule_spins(m) ? &spin_desc : &smp_desc;
}

void state_init(struct machine *m)
{
    for (int i = 0; i < OUT_COUNT; i++)
        XXH3_64bits_reset(&m->out[i].hash);
}

static bool has_avx512(const struct machine *m)
{
    return cpu_words_have(m->cpu_kind.words, FEAT_AVX512F);
}

static const struct state_desc *cpu_desc(const struct machine *m)
{
    return vcpu_state_of(has_avx512(m), m->has_lbr);
}

unsigned machine_components(const struct machine *m)
{
    return m->ncpus + 1 + m->ndev;
}

void machine_component(struct machine *m, unsigned index, struct machine_component *c)
{
    if (index < m->ncpus) {
        const struct machine_cpu *cpu = &m->cpu[index];
        engine_sync(cpu->engine);
        *c = (struct machine_component){cpu->name, cpu_desc(m), engine_vcpu(cpu->engine)};
    } else if (index == m->ncpus) {
        m->st.branches = machine_branches(m);
        for (unsigned i = 0; m->unit == UNIT_BOTH && i < m->ncpus; i++)
            m->st.each[i] = engine_branches(m->cpu[i].engine);
        if (m->ncpus > 1)
            schedule_settle(m);
        *c = (struct machine_component){"machine", own_desc(m, m->unit), &m->st};
    } else {
        const struct device *d = &m->dev[index - m->ncpus - 1];
        *c = (struct machine_component){d->name[0] ? d->name : d->ops->name, d->ops->state,
                                        d->state};
    }
}

/* CPUs keep the x87 pointers in different ways. */
static u64 free_cpu_digest(const struct machine_component *c, pos_t position)
{
    struct vcpu copy = *(const struct vcpu *)c->state;
    copy.position = position;
    memset(copy.xsave + 6, 0, 18); /* FOP, FIP, FDP */
    return state_hash(c->desc, &copy);
}

u64 machine_component_digest(struct machine *m, unsigned index)
{
    struct machine_component c;
    machine_component(m, index, &c);
    if (index < m->ncpus && m->unit != UNIT_INSN)
        return free_cpu_digest(&c, engine_count(m->cpu[index].engine));
    return state_hash(c.desc, c.state);
}

u64 machine_cpu_digest(struct machine *m, bool by_branch)
{
    u64 digests[DESCRIPTION_CPUS_MAX];
    for (unsigned i = 0; i < m->ncpus; i++)
        digests[i] = by_branch ? machine_branch_digest(m, i) : machine_component_digest(m, i);
    return m->ncpus > 1 ? XXH3_64bits(digests, m->ncpus * sizeof(digests[0])) : digests[0];
}

u64 machine_branch_digest(struct machine *m, unsigned index)
{
    struct machine_component c;
    machine_component(m, index, &c);
    if (index < m->ncpus)
        return free_cpu_digest(&c, engine_branches(m->cpu[index].engine));
    return state_hash(index == m->ncpus ? own_desc(m, UNIT_BRANCH) : c.desc, c.state);
}

u64 machine_output_digest(const struct machine *m, enum dev_output channel, u64 *bytes)
{
    *bytes = m->out[channel].bytes;
    return XXH3_64bits_digest(&m->out[channel].hash);
}

unsigned machine_ram_regions(const struct machine *m)
{
    return (unsigned)((m->ram.size + RAM_REGION - 1) / RAM_REGION);
}

u64 machine_ram_region_digest(struct machine *m, unsigned region, gpa_t *gpa)
{
    u64 off = (u64)region * RAM_REGION;
    *gpa = ram_page_gpa(&m->ram, off / PAGE_SIZE);
    u64 len = MIN((u64)RAM_REGION, m->ram.size - off);
    if (len == RAM_REGION && ram_untouched(&m->ram, off, len)) {
        if (!m->zero_known) {
            /* The digest of zeros, without making the region resident. */
            static const u8 zero[PAGE_SIZE];
            XXH3_state_t h;
            XXH3_64bits_reset(&h);
            for (u64 i = 0; i < RAM_REGION; i += PAGE_SIZE)
                XXH3_64bits_update(&h, zero, PAGE_SIZE);
            m->zero_digest = XXH3_64bits_digest(&h);
            m->zero_known = true;
        }
        return m->zero_digest;
    }
    return XXH3_64bits(m->ram.host + off, len);
}

/* ---- saved state ---- */

size_t machine_state_size(const struct machine *m)
{
    size_t n = m->ncpus * state_size(cpu_desc(m)) + state_size(own_desc(m, m->unit));
    for (unsigned i = 0; i < m->ndev; i++)
        n += state_size(m->dev[i].ops->state);
    return n;
}

void machine_state_save(struct machine *m, u8 *out)
{
    for (unsigned i = 0; i < machine_components(m); i++) {
        struct machine_component c;
        machine_component(m, i, &c);
        state_save(c.desc, c.state, out);
        out += state_size(c.desc);
    }
}

/* What `in` has; of several vCPUs `branches` is what all of them have. */
static void own_load(const struct machine *m, struct machine_state *st, const u8 *in)
{
    struct err ignored;
    const struct state_desc *desc = own_desc(m, m->unit);
    state_load(desc, st, in, state_size(desc), &ignored);
    if (desc != &both_smp_desc)
        return;
    st->branches = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        st->branches += st->each[i];
}

void machine_state_when(const struct machine *m, const u8 *in, pos_t *position, vns_t *time)
{
    struct vcpu cpu;
    struct machine_state st = m->st;
    struct err ignored;
    *position = 0;
    for (unsigned i = 0; i < m->ncpus; i++) {
        state_load(cpu_desc(m), &cpu, in, state_size(cpu_desc(m)), &ignored);
        in += state_size(cpu_desc(m));
        *position += cpu.position;
    }
    own_load(m, &st, in);
    *time = clock_time(m, &st, *position);
}

/* Of branches no vCPU has more than of instructions. */
static bool each_loaded(const struct machine *m)
{
    for (unsigned i = 0; m->unit == UNIT_BOTH && m->ncpus > 1 && i < m->ncpus; i++)
        if (m->st.each[i] > engine_vcpu(m->cpu[i].engine)->position)
            return false;
    return true;
}

/* Of what the machine keeps itself. Sums of these must not overflow. */
static int own_loaded(const struct machine *m, pos_t position, struct err *err)
{
    const struct machine_state *st = &m->st;
    const char *what = NULL;
    if (position > TIME_END || st->idle_ns > TIME_END ||
        (m->unit != UNIT_INSN && st->tsc > clock_time(m, st, position)) ||
        (m->unit == UNIT_BOTH && st->branches > position) || !each_loaded(m))
        what = "its times make no sense";
    else if (m->ncpus > 1 && (st->turn >= m->ncpus || st->turn_end > TIME_END || (st->nmi & 1) ||
                              (u64)(st->nmi | st->waits) >> m->ncpus))
        what = "nobody can have that turn";
    else if (st->nmi_pending > 1 || st->grown >= SCHEDULE_LENGTHS)
        what = "an internal flag is not possible";
    return what ? err_set(err, -EINVAL, "no state of a machine: %s", what) : 0;
}

int machine_state_load(struct machine *m, const u8 *in, size_t len, struct err *err)
{
    if (len != machine_state_size(m))
        return err_set(err, -EINVAL, "saved state of %zu bytes where %zu are expected", len,
                       machine_state_size(m));
    const u8 *cpus = in;
    struct err ignored;
    in += m->ncpus * state_size(cpu_desc(m));
    own_load(m, &m->st, in);
    in += state_size(own_desc(m, m->unit));
    int r = 0;
    for (unsigned i = 0; i < m->ndev; i++) {
        const struct device *d = &m->dev[i];
        size_t n = state_size(d->ops->state);
        state_load(d->ops->state, d->state, in, n, &ignored);
        in += n;
        if (!r && d->ops->loaded)
            r = d->ops->loaded(&m->dev[i], err);
    }
    pos_t position = 0;
    for (unsigned i = 0; i < m->ncpus; i++) {
        struct vcpu *cpu = engine_vcpu(m->cpu[i].engine);
        state_load(cpu_desc(m), cpu, cpus + i * state_size(cpu_desc(m)), state_size(cpu_desc(m)),
                   &ignored);
        if (!r)
            r = vcpu_loaded(cpu, has_avx512(m), err);
        if (!r && !i && cpu->halted > 1)
            r = err_set(err, -EINVAL, "no state of a machine: the first CPU was never started");
        position = MIN(position + MIN(cpu->position, TIME_END + 1), TIME_END + 1);
    }
    if (!r)
        r = own_loaded(m, position, err);
    for (unsigned i = 0; i < m->ncpus; i++) {
        if (r)
            vcpu_reset(engine_vcpu(m->cpu[i].engine));
        engine_changed(m->cpu[i].engine);
        m->cpu[i].init = m->cpu[i].start = false;
    }
    if (r)
        m->st = (struct machine_state){0};
    schedule_loaded(m);
    for (unsigned i = 0; m->unit == UNIT_BOTH && i < m->ncpus; i++)
        engine_set_branches(m->cpu[i].engine, m->ncpus > 1 ? m->st.each[i] : m->st.branches);
    engine_debug_hit(m->cpu[0].engine, &m->debug_hit);
    m->debug_stopped = m->debug_pass = m->stop_requested = m->end_requested = false;
    return r;
}

size_t machine_output_size(void)
{
    return sizeof(((struct machine *)0)->out);
}

void machine_output_save(const struct machine *m, void *out)
{
    memcpy(out, m->out, sizeof(m->out));
}

void machine_output_load(struct machine *m, const void *in)
{
    memcpy(m->out, in, sizeof(m->out));
}

void machine_output_compute(struct machine *m, enum dev_output channel, const void *data,
                            size_t len)
{
    XXH3_64bits_reset(&m->out[channel].hash);
    XXH3_64bits_update(&m->out[channel].hash, data, len);
    m->out[channel].bytes = len;
}
