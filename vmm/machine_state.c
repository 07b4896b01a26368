/* Looking at a machine from outside the run loop: digests, saved state, memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/uart16550.h"
#include "machine_internal.h"

#define F(t, n)    STATE_FIELD(machine_state, t, n)
#define A(t, n, c) STATE_FIELD_ARRAY(machine_state, t, n, c)
static const struct state_field machine_fields[] = {MACHINE_STATE(F, A)},
                                branch_fields[] = {MACHINE_STATE(F, A) MACHINE_BRANCH_STATE(F, A)},
                                both_fields[] = {MACHINE_STATE(F, A) MACHINE_BRANCH_STATE(F, A)
                                                     MACHINE_BOTH_STATE(F, A)};
#undef F
#undef A
static const struct state_desc machine_desc = {"machine", machine_fields,
                                               ARRAY_SIZE(machine_fields),
                                               sizeof(struct machine_state)},
                               branch_desc = {"machine", branch_fields, ARRAY_SIZE(branch_fields),
                                              sizeof(struct machine_state)},
                               both_desc = {"machine", both_fields, ARRAY_SIZE(both_fields),
                                            sizeof(struct machine_state)};

static const struct state_desc *own_desc(const struct machine *m)
{
    return !m->branch_ns ? &machine_desc : m->by_insn ? &both_desc : &branch_desc;
}

unsigned machine_components(const struct machine *m)
{
    return 2 + m->ndev;
}

void machine_component(struct machine *m, unsigned index, struct machine_component *c)
{
    if (index == 0) {
        engine_sync(m->engine);
        *c = (struct machine_component){"cpu0", &vcpu_state_desc, engine_vcpu(m->engine)};
    } else if (index == 1) {
        m->st.branches = engine_branches(m->engine);
        *c = (struct machine_component){"machine", own_desc(m), &m->st};
    } else {
        const struct device *d = &m->dev[index - 2];
        *c = (struct machine_component){d->name[0] ? d->name : d->ops->name, d->ops->state,
                                        d->state};
    }
}

/* CPUs keep the x87 pointers in different ways. */
static u64 free_cpu_digest(const struct vcpu *cpu, pos_t position)
{
    struct vcpu copy = *cpu;
    copy.position = position;
    memset(copy.xsave + 6, 0, 18); /* FOP, FIP, FDP */
    return state_hash(&vcpu_state_desc, &copy);
}

u64 machine_component_digest(struct machine *m, unsigned index)
{
    struct machine_component c;
    machine_component(m, index, &c);
    if (index == 0 && m->branch_ns)
        return free_cpu_digest(c.state, engine_position(m->engine));
    return state_hash(c.desc, c.state);
}

u64 machine_branch_digest(struct machine *m, unsigned index)
{
    struct machine_component c;
    machine_component(m, index, &c);
    if (index == 0)
        return free_cpu_digest(c.state, engine_branches(m->engine));
    return state_hash(index == 1 ? &branch_desc : c.desc, c.state);
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

u64 machine_ram_page_digest(const struct machine *m, gpa_t page)
{
    const void *p = ram_ptr(&m->ram, page, PAGE_SIZE);
    return p ? XXH3_64bits(p, PAGE_SIZE) : 0;
}

const struct vcpu *machine_vcpu(struct machine *m)
{
    engine_sync(m->engine);
    return engine_vcpu(m->engine);
}

bool machine_peek(struct machine *m, gva_t va, void *out, size_t len)
{
    return engine_peek(m->engine, va, out, len);
}

void machine_stats(const struct machine *m, struct machine_stats *out)
{
    engine_stats(m->engine, out);
}

/* ---- a debugger's view ---- */

struct vcpu *machine_vcpu_edit(struct machine *m)
{
    engine_sync(m->engine);
    return engine_vcpu(m->engine);
}

void machine_vcpu_edited(struct machine *m)
{
    engine_changed(m->engine);
}

u64 machine_cr8(struct machine *m)
{
    return m->engine_env.get_cr8(m);
}

enum cpu_model machine_cpu_model(const struct machine *m)
{
    return m->model;
}

bool machine_linear_to_physical(struct machine *m, gva_t va, gpa_t *gpa)
{
    return engine_linear_to_physical(m->engine, va, gpa);
}

bool machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len)
{
    const void *p = ram_ptr(&m->ram, gpa, len);
    if (p)
        memcpy(out, p, len);
    return p;
}

bool machine_poke_physical(struct machine *m, gpa_t gpa, const void *in, size_t len)
{
    void *p = ram_ptr(&m->ram, gpa, len);
    if (!p)
        return false;
    memcpy(p, in, len);
    engine_ram_written(m->engine, gpa, len);
    engine_debug_hit(m->engine, &m->debug_hit); /* the debugger's own write */
    return true;
}

bool machine_poke(struct machine *m, gva_t va, const void *in, size_t len)
{
    for (int write = 0; write < 2; write++)
        for (size_t done = 0; done < len;) {
            size_t n = MIN(len - done, PAGE_SIZE - ((va + done) & (PAGE_SIZE - 1)));
            gpa_t gpa;
            if (!engine_linear_to_physical(m->engine, va + done, &gpa) || !ram_ptr(&m->ram, gpa, n))
                return false;
            if (write)
                machine_poke_physical(m, gpa, (const u8 *)in + done, n);
            done += n;
        }
    return true;
}

int machine_debug_set(struct machine *m, const struct debug_point *points, unsigned n)
{
    m->debug_stopped = false;
    return engine_debug_set(m->engine, points, n);
}

const struct debug_hit *machine_debug_hit(const struct machine *m)
{
    return &m->debug_hit;
}

void machine_debug_pass(struct machine *m)
{
    m->debug_pass = true;
}

/* ---- saved state ---- */

size_t machine_state_size(const struct machine *m)
{
    size_t n = state_size(&vcpu_state_desc) + state_size(own_desc(m));
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

int machine_state_load(struct machine *m, const u8 *in, size_t len, struct err *err)
{
    if (len != machine_state_size(m))
        return err_set(err, -EINVAL, "saved state of %zu bytes where %zu are expected", len,
                       machine_state_size(m));
    const u8 *cpu = in;
    struct err ignored;
    in += state_size(&vcpu_state_desc);
    state_load(own_desc(m), &m->st, in, state_size(own_desc(m)), &ignored);
    in += state_size(own_desc(m));
    int r = 0;
    for (unsigned i = 0; i < m->ndev; i++) {
        const struct device *d = &m->dev[i];
        size_t n = state_size(d->ops->state);
        state_load(d->ops->state, d->state, in, n, &ignored);
        in += n;
        if (!r && d->ops->loaded)
            r = d->ops->loaded(&m->dev[i], err);
    }
    state_load(&vcpu_state_desc, engine_vcpu(m->engine), cpu, state_size(&vcpu_state_desc),
               &ignored);
    if (!r)
        r = vcpu_loaded(engine_vcpu(m->engine), err);
    if (r)
        vcpu_reset(engine_vcpu(m->engine));
    engine_changed(m->engine);
    if (m->by_insn)
        engine_set_branches(m->engine, m->st.branches);
    engine_debug_hit(m->engine, &m->debug_hit);
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

unsigned machine_disks(const struct machine *m)
{
    return m->ndisks;
}

struct disk *machine_disk(const struct machine *m, unsigned i)
{
    return m->blk[i].disk;
}

unsigned machine_images(const struct machine *m)
{
    return m->ndisks + m->has_gpu;
}

const struct page_image *machine_image(const struct machine *m, unsigned i, u64 *pages)
{
    u64 ignored;
    if (!pages)
        pages = &ignored;
    if (i < m->ndisks)
        return virtio_blk_written(m->blk[i].v.dev, pages);
    *pages = GPU_STORE_PAGES;
    return m->gpu.store.image;
}

int machine_image_restore(struct machine *m, unsigned i, const struct page_image *image,
                          struct err *err)
{
    return i < m->ndisks ? virtio_blk_restore(m->blk[i].v.dev, image, err)
                         : gpu_store_restore(&m->gpu.store, image, err);
}

bool machine_screen(const struct machine *m, struct dev_screen *out)
{
    if (m->has_gpu)
        virtio_gpu_screen(m->gpu.v.dev, out);
    return m->has_gpu;
}

void machine_screen_row(struct machine *m, u32 y, u8 *rgb)
{
    virtio_gpu_screen_row(m->gpu.v.dev, y, rgb);
}

void machine_screen_cursor(struct machine *m, u32 y, u8 *rgb)
{
    virtio_gpu_screen_cursor(m->gpu.v.dev, y, rgb);
}

const struct ram *machine_ram(const struct machine *m)
{
    return &m->ram;
}

void machine_page_changed(struct machine *m, u64 index)
{
    engine_ram_written(m->engine, ram_page_gpa(&m->ram, index), PAGE_SIZE);
}

const u32 *machine_written(const struct machine *m, size_t *n)
{
    return engine_written(m->engine, n);
}

int machine_written_reset(struct machine *m)
{
    return engine_written_reset(m->engine);
}
