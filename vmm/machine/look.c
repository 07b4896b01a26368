/* Looking at a machine from outside the run loop, and changing it as debuggers do. */
#include <string.h>

#include "dev/lapic.h"
#include "dev/virtio/blk.h"
#include "dev/virtio/fs.h"
#include "dev/virtio/gpu.h"
#include "dev/virtio/net.h"
#include "machine/internal.h"

/* Which vCPU is looked at. */
static struct machine_cpu *seen(const struct machine *m)
{
    return m->seen ? m->seen : m->turn;
}

unsigned machine_cpus(const struct machine *m)
{
    return m->ncpus;
}

unsigned machine_turn(const struct machine *m)
{
    return (unsigned)(m->turn - m->cpu);
}

u64 machine_turn_count(const struct machine *m)
{
    return engine_count(m->turn->engine);
}

unsigned machine_seen(const struct machine *m)
{
    return (unsigned)(seen(m) - m->cpu);
}

void machine_look_at(struct machine *m, unsigned cpu)
{
    m->seen = cpu < m->ncpus ? &m->cpu[cpu] : NULL;
}

const struct vcpu *machine_vcpu(struct machine *m)
{
    engine_sync(seen(m)->engine);
    return engine_vcpu(seen(m)->engine);
}

bool machine_lost(const struct machine *m, struct err *err)
{
    return engine_lost(m->turn->engine, err);
}

struct vcpu *machine_vcpu_edit(struct machine *m)
{
    engine_sync(seen(m)->engine);
    return engine_vcpu(seen(m)->engine);
}

void machine_vcpu_edited(struct machine *m)
{
    engine_changed(seen(m)->engine);
}

u64 machine_cr8(struct machine *m)
{
    return lapic_get_cr8(seen(m)->lapic);
}

enum cpu_model machine_cpu_model(const struct machine *m)
{
    return m->cpu_kind.model;
}

bool machine_cpu_has(const struct machine *m, enum cpu_feature f)
{
    return cpu_words_have(m->cpu_kind.words, f);
}

void machine_stats(const struct machine *m, struct machine_stats *out)
{
    engine_stats(m->cpu[0].engine, out);
    for (unsigned i = 1; i < m->ncpus; i++) {
        struct machine_stats more;
        engine_stats(m->cpu[i].engine, &more);
        machine_stats_add(out, &more);
    }
}

u32 machine_modes(const struct machine *m)
{
    u32 all = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        all |= engine_modes(m->cpu[i].engine);
    return all;
}

int machine_set_code_log(struct machine *m, const struct engine_code_log *log)
{
    return engine_set_code_log(m->cpu[0].engine, log);
}

bool machine_peek(struct machine *m, gva_t va, void *out, size_t len)
{
    return engine_peek(seen(m)->engine, va, out, len);
}

bool machine_linear_to_physical(struct machine *m, gva_t va, gpa_t *gpa)
{
    return engine_linear_to_physical(seen(m)->engine, va, gpa);
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
    bus_writing(m);
    memcpy(p, in, len);
    bus_written(m, gpa, len);
    engine_debug_hit(m->turn->engine, &m->debug_hit); /* the debugger's own write */
    return true;
}

bool machine_poke(struct machine *m, gva_t va, const void *in, size_t len)
{
    for (int write = 0; write < 2; write++)
        for (size_t done = 0; done < len;) {
            size_t n = MIN(len - done, PAGE_SIZE - ((va + done) & (PAGE_SIZE - 1)));
            gpa_t gpa;
            if (!engine_linear_to_physical(seen(m)->engine, va + done, &gpa) ||
                !ram_ptr(&m->ram, gpa, n))
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
    m->turn_to.point = m->turn_from.point = 0;
    for (unsigned i = 0; i < n; i++) {
        if (points[i].kind == DEBUG_TURN_TO) {
            m->turn_to.point = i + 1;
            m->turn_to.cpu = (u32)points[i].address;
        } else if (points[i].kind == DEBUG_TURN_FROM) {
            m->turn_from.point = i + 1;
            m->turn_from.cpu = (u32)points[i].address;
        }
    }
    int r = 0;
    for (unsigned i = 0; !r && i < m->ncpus; i++)
        r = engine_debug_set(m->cpu[i].engine, points, n);
    return r;
}

const struct debug_hit *machine_debug_hit(const struct machine *m)
{
    return &m->debug_hit;
}

void machine_debug_pass(struct machine *m)
{
    m->debug_pass = true;
}

const struct ram *machine_ram(const struct machine *m)
{
    return &m->ram;
}

void machine_page_changed(struct machine *m, u64 index)
{
    bus_written(m, ram_page_gpa(&m->ram, index), PAGE_SIZE);
}

const u32 *machine_written(const struct machine *m, size_t *n)
{
    return engine_written(m->cpu[0].engine, n);
}

int machine_written_reset(struct machine *m)
{
    return engine_written_reset(m->cpu[0].engine);
}

unsigned machine_disks(const struct machine *m)
{
    return m->kind[DEV_DISK].n;
}

struct disk *machine_disk(const struct machine *m, unsigned i)
{
    return ((struct virtio_blk *)device_find(m, DEV_DISK, i)->host)->disk;
}

bool machine_disk_failing(struct machine *m, struct input *in)
{
    for (unsigned i = 0; i < machine_disks(m); i++) {
        u32 request;
        if (virtio_blk_failing(device_find(m, DEV_DISK, i), &request)) {
            *in = (struct input){.kind = INPUT_DISK_ERROR, .unit = i, .arg = request};
            return true;
        }
    }
    return false;
}

bool machine_gpu_waiting(const struct machine *m, u64 *number)
{
    const struct device *gpu = device_find(m, DEV_GPU, 0);
    return gpu && virtio_gpu_waiting(gpu, number);
}

u64 machine_gpu_pieces(const struct machine *m)
{
    const struct device *gpu = device_find(m, DEV_GPU, 0);
    return gpu ? virtio_gpu_pieces(gpu) : 0;
}

bool machine_link_up(const struct machine *m, unsigned unit)
{
    return virtio_net_is_up(device_find(m, DEV_NET, unit));
}

bool machine_share_waiting(const struct machine *m, unsigned *unit, u64 *number)
{
    for (*unit = 0; *unit < m->kind[DEV_SHARE].n; ++*unit)
        if (virtio_fs_waiting(device_find(m, DEV_SHARE, *unit), number))
            return true;
    return false;
}

/* Disks come first, then the GPU. */
unsigned machine_images(const struct machine *m)
{
    return m->kind[DEV_DISK].n + m->kind[DEV_GPU].n;
}

static struct gpu_store *gpu_store(const struct machine *m)
{
    return &((struct virtio_gpu *)device_find(m, DEV_GPU, 0)->host)->store;
}

const struct page_image *machine_image(const struct machine *m, unsigned i, u64 *pages)
{
    u64 ignored;
    if (!pages)
        pages = &ignored;
    if (i < machine_disks(m))
        return virtio_blk_written(device_find(m, DEV_DISK, i), pages);
    *pages = GPU_STORE_PAGES;
    return gpu_store(m)->image;
}

int machine_image_restore(struct machine *m, unsigned i, const struct page_image *image,
                          struct err *err)
{
    return i < machine_disks(m) ? virtio_blk_restore(device_find(m, DEV_DISK, i), image, err)
                                : gpu_store_restore(gpu_store(m), image, err);
}

bool machine_screen(const struct machine *m, struct dev_screen *out)
{
    const struct device *gpu = device_find(m, DEV_GPU, 0);
    if (gpu)
        virtio_gpu_screen(gpu, out);
    return gpu;
}

void machine_screen_row(struct machine *m, u32 y, u8 *rgb)
{
    virtio_gpu_screen_row(device_find(m, DEV_GPU, 0), y, rgb);
}

void machine_screen_cursor(struct machine *m, u32 y, u8 *rgb)
{
    virtio_gpu_screen_cursor(device_find(m, DEV_GPU, 0), y, rgb);
}
