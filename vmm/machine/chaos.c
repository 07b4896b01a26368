/*
 * Chaos: turns of vCPUs, timers and devices as they come on a real machine once in a long while.
 * What is done follows from one number, the position and the machine's state, so that a recording
 * has the number and no more; the rules are part of what it means (docs/chaos.md).
 *
 * Time is cut into eras, each of one kind. In an era of priorities the vCPU of the highest rank
 * that can run does, until it is lowered: at places drawn before, or at atomic operations and
 * system calls (Burckhardt and others, A Randomized Scheduler with Probabilistic Guarantees of
 * Finding Bugs, 2010).
 */
#include "machine/internal.h"

#define ERA         ((pos_t)1 << 21) /* positions */
#define RANK_LOWEST (1u << 16)       /* of those that were not lowered */
#define CHANGES     4u               /* of an era of priorities, at most */

enum kind {
    ERA_PLAIN,    /* as without chaos */
    ERA_RANDOM,   /* turns of any length, in any order */
    ERA_FINE,     /* short ones, down to an instruction */
    ERA_PLACES,   /* priorities, which change at places drawn before */
    ERA_SYNCHRONY /* ... or at some of the atomic operations and system calls */
};

/* What a number is drawn for. */
enum draw {
    OF_MIX,
    OF_KIND,
    OF_FINE,
    OF_LENGTH,
    OF_NEXT,
    OF_RANK,
    OF_CHANGE,
    OF_CHANGES,
    OF_SYNC,
    OF_DELAY
};

static u64 draw_by(u64 seed, enum draw of, u64 a, u64 b)
{
    const u64 key[3] = {of, a, b};
    return XXH3_64bits_withSeed(key, sizeof(key), seed);
}

static u64 draw(const struct machine *m, enum draw of, u64 a, u64 b)
{
    return draw_by(m->st.chaos, of, a, b);
}

static u64 era_of(pos_t position)
{
    return position / ERA;
}

static enum kind kind_of(const struct machine *m, pos_t position)
{
    static const u8 kinds[16] = {ERA_FINE,      ERA_FINE,      ERA_FINE,   ERA_FINE,
                                 ERA_RANDOM,    ERA_RANDOM,    ERA_RANDOM, ERA_PLACES,
                                 ERA_PLACES,    ERA_PLACES,    ERA_PLACES, ERA_SYNCHRONY,
                                 ERA_SYNCHRONY, ERA_SYNCHRONY, ERA_PLAIN,  ERA_PLAIN};
    /* Short turns take long: so many, of 16 eras, have them. */
    static const u8 fine[4] = {0, 1, 2, 4};
    enum kind kind = kinds[draw(m, OF_KIND, era_of(position), 0) % ARRAY_SIZE(kinds)];
    if (kind == ERA_FINE &&
        draw(m, OF_FINE, era_of(position), 0) % 4 >= fine[draw(m, OF_MIX, 0, 0) % 4])
        kind = ERA_PLAIN;
    return kind;
}

/* Where lengths between 1 << least and 1 << most are drawn from, each power of two as often. */
static pos_t length(u64 drawn, unsigned least, unsigned most)
{
    unsigned power = least + (unsigned)(drawn >> 48) % (most - least);
    return ((pos_t)1 << power) + (drawn & (((pos_t)1 << power) - 1));
}

/* The next place after `here` at which a rank changes; NEVER: none in this era. */
static pos_t next_change(const struct machine *m, pos_t here)
{
    u64 era = era_of(here);
    unsigned n = 1 + (unsigned)draw(m, OF_CHANGES, era, 0) % CHANGES;
    pos_t first = NEVER;
    for (unsigned i = 0; i < n; i++) {
        pos_t at = era * ERA + draw(m, OF_CHANGE, era, i) % ERA;
        if (at > here)
            first = MIN(first, at);
    }
    return first;
}

/* When a turn that begins here, in an era of that kind, ends by chaos, at the end of the era at
 * last. */
static pos_t end_of(const struct machine *m, enum kind kind, pos_t here)
{
    pos_t end = NEVER;
    u64 drawn = draw(m, OF_LENGTH, here, 0);
    switch (kind) {
    case ERA_RANDOM: end = here + length(drawn, 5, 17); break;
    case ERA_FINE: end = here + length(drawn, 0, 9); break;
    case ERA_PLACES: end = next_change(m, here); break;
    case ERA_PLAIN:
    case ERA_SYNCHRONY: break;
    }
    return MIN(end, (era_of(here) + 1) * ERA);
}

/* Nobody else can run: ends that nobody sees stand in a grid, whenever somebody looks. Each grid
 * has the ends of eras, so that they are one. */
pos_t chaos_settled(const struct machine *m, pos_t here)
{
    pos_t grid = ERA;
    switch (kind_of(m, here)) {
    case ERA_RANDOM: grid = 1 << 12; break;
    case ERA_FINE: grid = 1 << 6; break;
    case ERA_PLAIN:
    case ERA_PLACES:
    case ERA_SYNCHRONY: break;
    }
    return (here + grid - 1) / grid * grid;
}

static void lower(struct machine *m, const struct machine_cpu *c)
{
    if (m->st.lowered < RANK_LOWEST)
        m->st.rank[c - m->cpu] = RANK_LOWEST - ++m->st.lowered;
}

/* Ranks are drawn when an era begins that has them. */
static bool has_ranks(struct machine *m, enum kind kind, pos_t here)
{
    if (kind != ERA_PLACES && kind != ERA_SYNCHRONY)
        return false;
    if (m->st.era == era_of(here))
        return true;
    m->st.era = era_of(here);
    m->st.lowered = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        m->st.rank[i] = RANK_LOWEST + (u32)(draw(m, OF_RANK, m->st.era, i) >> 40);
    return true;
}

static struct machine_cpu *highest(struct machine *m)
{
    struct machine_cpu *best = NULL;
    for (unsigned i = 0; i < m->ncpus; i++)
        if (schedule_can_run(&m->cpu[i]) && (!best || m->st.rank[i] > m->st.rank[best - m->cpu]))
            best = &m->cpu[i];
    return best;
}

/* Any other one that can run; there is one. */
static struct machine_cpu *any_other(struct machine *m, pos_t here)
{
    struct machine_cpu *can[DESCRIPTION_CPUS_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < m->ncpus; i++)
        if (&m->cpu[i] != m->turn && schedule_can_run(&m->cpu[i]))
            can[n++] = &m->cpu[i];
    return can[draw(m, OF_NEXT, here, 0) % n];
}

struct machine_cpu *chaos_choose(struct machine *m, struct machine_cpu *plain, bool over)
{
    pos_t here = clock_turns(m);
    enum kind kind = kind_of(m, here);
    bool early = here >= m->st.chaos_end;
    struct machine_cpu *to = over ? plain : m->turn;
    if (has_ranks(m, kind, here)) {
        if (early && here % ERA)
            lower(m, m->turn);
        to = highest(m);
    } else if (kind != ERA_PLAIN) {
        to = any_other(m, here);
    }
    m->st.chaos_end = end_of(m, kind, here);
    return to;
}

void chaos_begin(struct machine *m, u64 seed, enum chaos_part part)
{
    m->st.chaos = part != CHAOS_DELAYS ? seed : 0;
    m->st.delays = part != CHAOS_TURNS ? seed : 0;
    bus_sync(m, m->st.chaos);
    m->st.era = NEVER;
    pos_t here = clock_turns(m);
    m->st.chaos_end = m->st.chaos ? end_of(m, kind_of(m, here), here) : 0;
}

/* Who waits for others in a loop would do so for ever. */
void chaos_pause(struct machine_cpu *c)
{
    pos_t here = clock_turns(c->m);
    if (has_ranks(c->m, kind_of(c->m, here), here))
        lower(c->m, c);
}

/* What is decided follows from the position, as an instruction may be begun more than once. */
bool chaos_sync(struct machine_cpu *c)
{
    struct machine *m = c->m;
    pos_t here = clock_turns(m);
    u64 drawn = draw(m, OF_SYNC, here, 0);
    unsigned of;
    switch (kind_of(m, here)) {
    case ERA_RANDOM: of = 8; break;
    case ERA_FINE: of = 2; break;
    case ERA_SYNCHRONY: of = 4u << draw(m, OF_CHANGES, era_of(here), 0) % 8; break;
    default: return false;
    }
    if (drawn % of)
        return false;
    pos_t end = here + 1 + (drawn >> 60) % 4;
    if (end >= m->st.chaos_end)
        return false;
    m->st.chaos_end = end;
    return true;
}

/* One in four, by 1 us to a millisecond. */
vns_t chaos_delay(const struct machine *m, vns_t due)
{
    u64 drawn = draw_by(m->st.delays, OF_DELAY, clock_turns(m), due);
    return drawn % 4 ? due : due + length(drawn, 10, 20);
}
