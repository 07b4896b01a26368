/* See fake_machine.h. machine_run follows the order of stops in machine.h. */
#include "fake_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SLICE 1000

struct machine {
    struct fake_config c;
    pos_t position;
    vns_t idle;
    u64 number;
    bool halted;
    vns_t wake; /* deadline while halted */
    u64 output, output_bytes;
    u64 betweens; /* calls of between() */
    u64 ram;      /* what distinguishes the first region */
    void (*out)(void *opaque, enum dev_output channel, const void *data, size_t len);
    void *opaque;
    char names[16][16];
};

struct machine *fake_create(const struct fake_config *config)
{
    struct machine *m = calloc(1, sizeof(*m));
    m->c = *config;
    m->number = config->salt + 1;
    return m;
}

void fake_destroy(struct machine *m)
{
    free(m);
}

u64 fake_betweens(const struct machine *m)
{
    return m->betweens;
}

u64 fake_number(const struct machine *m)
{
    return m->number;
}

static u64 mix(u64 a, u64 b)
{
    return XXH3_64bits_withSeed(&a, sizeof(a), b);
}

static void step(struct machine *m)
{
    m->position++;
    m->number = m->number * 6364136223846793005u + 1442695040888963407u;
    if (m->position == m->c.glitch_at)
        m->number ^= 1u << 20;
    if (m->position == m->c.ram_glitch_at)
        m->ram ^= 1;
    if (m->position % 500 == 0) {
        char byte = (char)('a' + (m->number >> 40) % 26);
        m->output = mix((u64)byte, m->output);
        m->output_bytes++;
        if (m->out)
            m->out(m->opaque, OUT_CONSOLE, &byte, 1);
    }
    if ((m->c.halt_every && m->position % m->c.halt_every == 0) ||
        (m->c.asleep_at && m->position == m->c.asleep_at)) {
        m->halted = true;
        m->wake = m->c.halt_for ? machine_now(m) + m->c.halt_for : NEVER;
    }
}

static bool apply(struct machine *m, const struct input *in, struct run_end *end)
{
    if (in->kind == INPUT_QUIT) {
        *end = (struct run_end){RUN_QUIT, in->arg};
        return true;
    }
    m->number = mix(m->number, in->kind + 256ull * in->unit + ((u64)in->arg << 32));
    for (unsigned i = 0; i < (in->kind == INPUT_CONTENT ? in->arg : in->len); i++)
        m->number = mix(m->number, in->data[i]);
    m->halted = false;
    return false;
}

int machine_run(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err)
{
    for (;;) {
        struct input in;
        int code;
        if (m->halted && machine_now(m) >= m->wake) {
            m->halted = m->c.asleep_at && m->position >= m->c.asleep_at;
            m->wake = machine_now(m) + m->c.halt_for;
        }
        while ((code = src->ops->take(src, m, &in, err)) == 1)
            if (apply(m, &in, end))
                return 0;
        if (code < 0)
            break;
        if (m->position >= limits->stop_at) {
            *end = (struct run_end){RUN_STOP, 0};
            return 0;
        }
        if (m->halted) {
            vns_t until, now = machine_now(m);
            code = src->ops->idle(src, m, m->wake, &until, err);
            if (code < 0)
                break;
            if (code == 1) {
                *end = (struct run_end){RUN_HALTED, 0};
                return 0;
            }
            m->idle += until - now;
            continue;
        }
        if (m->c.endless_at && m->position >= m->c.endless_at) {
            m->betweens++;
            if ((code = src->ops->between(src, m, &in, err)) < 0)
                break;
            continue;
        }
        pos_t stop = MIN(MIN(src->ops->next_position(src, m), limits->stop_at),
                         m->position + (limits->slice ? limits->slice : SLICE));
        while (m->position < stop && !m->halted &&
               (!m->c.endless_at || m->position < m->c.endless_at)) {
            if (m->position == m->c.end_at) {
                *end = (struct run_end){m->c.end, m->c.arg};
                return 0;
            }
            step(m);
        }
    }
    *end = (struct run_end){RUN_ERROR, 0};
    return err->code;
}

void machine_kick(struct machine *m)
{
}

pos_t machine_position(const struct machine *m)
{
    return m->position;
}

vns_t machine_now(const struct machine *m)
{
    return m->position + m->idle;
}

bool machine_share_waiting(const struct machine *m, unsigned *unit, u64 *number)
{
    (void)m;
    (void)unit;
    (void)number;
    return false;
}

bool machine_gpu_waiting(const struct machine *m, u64 *number)
{
    return false;
}

bool machine_disk_failing(struct machine *m, struct input *in)
{
    return false;
}

/* Its positions are instructions: nothing comes between them, and each takes a nanosecond. */
bool machine_waited_for(const struct machine *m)
{
    return false;
}

void machine_place(struct machine *m, struct engine_place *out)
{
    /* With `arg` its registers change, else it looks the same each time. */
    *out = (struct engine_place){.rcx = m->c.arg ? m->betweens : 0};
}

int machine_settle(struct machine *m, const struct engine_place *to, struct err *err)
{
    return 0;
}

pos_t machine_branches(const struct machine *m)
{
    return m->position;
}

u32 machine_modes(const struct machine *m)
{
    return 0;
}

void machine_set_recording(struct machine *m, const char *dir)
{
}

bool machine_lost(const struct machine *m, struct err *err)
{
    return false;
}

u64 machine_branch_digest(struct machine *m, unsigned index)
{
    return machine_component_digest(m, index);
}

u64 machine_positions(const struct machine *m, vns_t ns)
{
    return ns;
}

u32 machine_room(const struct machine *m, enum input_kind kind, u32 unit)
{
    (void)unit;
    switch (kind) {
    case INPUT_CONSOLE: return m->c.room;
    case INPUT_PACKET:
    case INPUT_EVENTS:
    case INPUT_PORT:
    case INPUT_GPU:
    case INPUT_GENERATION:
    case INPUT_RESEED:
    case INPUT_CHAOS:
    case INPUT_SHARE:
    case INPUT_PLACE: return INPUT_MAX;
    case INPUT_CONTENT: return INPUT_CONTENT_MAX;
    default: return 1;
    }
}

unsigned machine_components(const struct machine *m)
{
    return 1 + m->c.devices;
}

void machine_component(struct machine *m, unsigned index, struct machine_component *c)
{
    snprintf(m->names[index], sizeof(m->names[index]), index ? "dev%u" : "cpu%u",
             index ? index - 1 : 0);
    *c = (struct machine_component){.name = m->names[index]};
}

u64 machine_component_digest(struct machine *m, unsigned index)
{
    return mix(m->number, index + (index ? 0 : m->position));
}

unsigned machine_cpus(const struct machine *m)
{
    (void)m;
    return 1;
}

u64 machine_turn_count(const struct machine *m)
{
    return m->position;
}

unsigned machine_turn(const struct machine *m)
{
    (void)m;
    return 0;
}

void machine_look_at(struct machine *m, unsigned cpu)
{
    (void)m;
    (void)cpu;
}

u64 machine_cpu_digest(struct machine *m, bool by_branch)
{
    return machine_component_digest(m, 0);
}

u64 machine_output_digest(const struct machine *m, enum dev_output channel, u64 *bytes)
{
    *bytes = channel == OUT_CONSOLE ? m->output_bytes : 0;
    return channel == OUT_CONSOLE ? m->output : 0;
}

unsigned machine_ram_regions(const struct machine *m)
{
    return m->c.regions;
}

u64 machine_ram_region_digest(struct machine *m, unsigned region, gpa_t *gpa)
{
    *gpa = (gpa_t)region * RAM_REGION;
    return region < 2 ? mix(m->ram + region, 7) : region == 5 ? m->number : 0x1234;
}

void machine_set_output(struct machine *m,
                        void (*fn)(void *opaque, enum dev_output channel, const void *data,
                                   size_t len),
                        void *opaque)
{
    m->out = fn;
    m->opaque = opaque;
}

void machine_stop(struct machine *m)
{
    (void)m;
}
