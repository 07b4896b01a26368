/*
 * The run loop. machine.h gives its order, which is part of what a recording means; nondeterminism
 * enters only through the input source's take(), idle() and between().
 */
#include "base/check.h"
#include "base/phase.h"
#include "machine/internal.h"

#include <stdio.h>

/* Some milliseconds: what is typed waits no longer. Each end of a slice costs 10 to 60 us. */
#define DEFAULT_SLICE 4000000u
#define CALM_MOST     64

static void print_context(void *opaque)
{
    const struct machine *m = opaque;
    fprintf(stderr, "reprise: at position %llu, virtual time %llu ns, RIP %llx\n",
            (unsigned long long)machine_position(m), (unsigned long long)machine_now(m),
            (unsigned long long)engine_vcpu(m->turn->engine)->rip);
    last_print(&m->last, m->recording, m->unit, machine_position(m), stderr);
}

/* Delivers what the CPU takes now. 0, or the engine's exit when it shuts down. `*has`: an
 * interrupt, taken or not. */
static int deliver(struct machine_cpu *c, bool *has)
{
    struct machine *m = c->m;
    *has = bus_interrupt(c) >= 0;
    if (schedule_nmi_pending(c) && engine_can_nmi(c->engine)) {
        schedule_nmi(m, (unsigned)(c - m->cpu), false);
        return engine_nmi(c->engine);
    }
    if (!*has || !engine_can_interrupt(c->engine))
        return 0;
    return engine_interrupt(c->engine, bus_acknowledge(c));
}

/* A debug point that was hit stops the run once everything due here has been taken. */
static void debug_look(struct machine_cpu *c)
{
    struct machine *m = c->m;
    if (!engine_debug_hit(c->engine, &m->debug_hit))
        return;
    m->debug_hit.position += machine_position(m) - engine_count(c->engine); /* the others' */
    m->debug_stopped = true;
}

/* The turn went to another vCPU. */
static void debug_turn(struct machine *m, const struct machine_cpu *from)
{
    u32 to_cpu = (u32)(m->turn - m->cpu), from_cpu = (u32)(from - m->cpu);
    u32 point = m->turn_to.cpu == to_cpu ? m->turn_to.point : 0;
    if (!point && m->turn_from.cpu == from_cpu)
        point = m->turn_from.point;
    if (!point || m->debug_stopped)
        return;
    m->debug_hit =
        (struct debug_hit){.point = point - 1, .position = machine_position(m), .cpu = to_cpu};
    m->debug_stopped = true;
}

static int ended(struct run_end *end, enum run_reason reason, u32 arg)
{
    *end = (struct run_end){reason, arg};
    return 0;
}

static int failed(struct run_end *end, enum run_reason reason, const struct err *err)
{
    *end = (struct run_end){reason, 0};
    return err->code ? err->code : -1;
}

static int engine_failed(struct run_end *end, const struct err *err)
{
    int code = failed(end, RUN_QUIT, err);
    end->arg = QUIT_ENGINE;
    return code;
}

/* 0: time has passed; 1: *end says how the run ends; <0: the source failed. */
static int idle(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err)
{
    vns_t deadline = devices_deadline(m), until = deadline;
    /* Halted with interrupts off is for ever, as far as the guest can say. */
    if (!schedule_wakes(m))
        return !ended(end, RUN_HALTED, 0);
    enum phase before = phase_enter(PHASE_LOG); /* the live input enters its own */
    int r = src->ops->idle(src, m, deadline, &until, err);
    phase_leave(before);
    if (r < 0)
        return failed(end, RUN_ERROR, err);
    if (r > 0 || until == NEVER)
        return !ended(end, RUN_HALTED, 0);
    vns_t now = machine_now(m);
    if (limits->stop_time > now && machine_position(m) >= limits->stop_at)
        until = MIN(until, limits->stop_time);
    CHECK(until >= now && until <= deadline, "idle until %llu, now %llu, deadline %llu",
          (unsigned long long)until, (unsigned long long)now, (unsigned long long)deadline);
    clock_pass(m, until - now);
    return 0;
}

/* PAUSE says nothing while no other vCPU can run. */
static void want_pause(struct machine_cpu *c, bool alone)
{
    if (c->m->ncpus > 1)
        engine_want_pause(c->engine, !alone);
}

/*
 * Where positions are branches a window opens between two of them, after STI, say: nobody looks at
 * the machine or gives it anything before the interrupt was delivered, which counts.
 */
static enum engine_exit run_engine(struct machine_cpu *c, bool has, pos_t budget, struct err *err)
{
    pos_t before = engine_count(c->engine), stop = before + budget;
    for (;;) {
        engine_want_window(c->engine, has, schedule_nmi_pending(c));
        enum engine_exit x = engine_run(c->engine, MAX(stop, before), err);
        last_exit(&c->m->last, machine_position(c->m), x);
        if (x != ENGINE_WINDOW || c->m->unit == UNIT_INSN)
            return x;
        before = engine_count(c->engine);
        if (deliver(c, &has) == ENGINE_SHUTDOWN)
            return ENGINE_SHUTDOWN;
        if (engine_count(c->engine) != before)
            return x;
        want_pause(c, schedule_alone(c));
    }
}

/* Up to which position nobody has anything to do but the schedule and whoever gives input. */
static pos_t horizon(struct machine *m, const struct run_limits *limits)
{
    pos_t pos = machine_position(m), stop = limits->stop_at;
    vns_t now = machine_now(m), deadline = devices_deadline(m);
    if (limits->stop_time > now)
        stop = MAX(stop, pos + machine_positions(m, limits->stop_time - now));
    stop = MIN(stop, pos + (limits->slice ? limits->slice : DEFAULT_SLICE));
    /* Of instructions there are as many at least as of branches; of turns as well. */
    if (m->unit != UNIT_INSN)
        stop = MIN(stop, pos + clock_tsc_distance(m));
    if (limits->pause_at)
        stop = MIN(stop, limits->pause_at);
    if (deadline != NEVER)
        stop = MIN(stop, pos + machine_positions(m, deadline - now));
    return stop;
}

/* How far the engine may go before anybody has to look again. */
static pos_t budget(struct machine *m, pos_t pos, bool alone)
{
    pos_t left = m->horizon - pos;
    CHECK(m->horizon > pos, "stop %llu at position %llu", (unsigned long long)m->horizon,
          (unsigned long long)pos);
    return m->ncpus > 1 && !alone ? MIN(left, schedule_left(m)) : left;
}

static bool reached(const struct machine *m, pos_t pos, const struct run_limits *limits)
{
    return (pos >= limits->stop_at && machine_now(m) >= limits->stop_time) || m->stop_requested ||
           (limits->pause_at && pos >= limits->pause_at);
}

/* The host failed a device: the run ends, before anybody is told what it did after that. */
static int host_failed(struct machine *m, struct run_end *end, struct err *err)
{
    *err = m->failed;
    m->failed.code = 0;
    return failed(end, RUN_ERROR, err);
}

/* Everything that is due here: deadlines, then inputs. <0 with *end. */
static int take_due(struct machine *m, struct input_source *src, struct run_end *end,
                    struct err *err)
{
    struct input in;
    int r = 0;
    enum phase before = phase_enter(PHASE_DEVICE);
    clock_step_tsc(m);
    devices_expire(m);
    phase_leave(before);
    if (m->failed.code)
        return host_failed(m, end, err);
    before = phase_enter(PHASE_LOG);
    while (!m->failed.code && (r = src->ops->take(src, m, &in, err)) > 0)
        inputs_apply(m, &in);
    phase_leave(before);
    if (m->failed.code)
        return 0;
    return r < 0 ? failed(end, RUN_ERROR, err) : 0;
}

/* The guest goes on and on between two positions: the source says what happens there. */
static int between(struct machine *m, struct input_source *src, struct run_end *end,
                   struct err *err)
{
    struct input in;
    int r = src->ops->between ? src->ops->between(src, m, &in, err) : 0;
    if (r > 0)
        inputs_apply(m, &in);
    return r < 0 ? failed(end, RUN_ERROR, err) : 0;
}

/* 1: *end says how the run ends, also if <0. `has`: an interrupt waits. */
static int execute(struct machine_cpu *c, bool has, pos_t pos, struct input_source *src,
                   const struct run_limits *limits, struct run_end *end, struct err *err)
{
    struct machine *m = c->m;
    bool alone = m->ncpus == 1 || schedule_alone(c);
    if (!m->calm)
        m->horizon = horizon(m, limits);
    /* An input may be due where that vCPU has counted so much (live/turns.h), or at once. */
    m->horizon = MIN(m->horizon, src->ops->next_position(src, m));
    if (m->calm && m->horizon <= pos) {
        m->calm = 0;
        return 0;
    }
    m->paused = false;
    want_pause(c, alone);
    enum engine_exit x = run_engine(c, has, budget(m, pos, alone), err);
    m->calm = x == ENGINE_ATTENTION && m->paused ? m->calm + 1 : 0;
    switch (x) {
    case ENGINE_SHUTDOWN: return !ended(end, RUN_TRIPLE_FAULT, 0);
    case ENGINE_FAILED: return engine_failed(end, err);
    case ENGINE_UNSUPPORTED:
        err_prefix(err, "at position %llu", (unsigned long long)machine_position(m));
        return failed(end, RUN_UNSUPPORTED, err);
    case ENGINE_LOST: return failed(end, RUN_LOST, err);
    case ENGINE_BETWEEN: return between(m, src, end, err);
    default: debug_look(c); return 0;
    }
}

/* Nothing was asked since everybody looked but for the turn to go on, and nothing is due before
 * the horizon. Now and then all look, as the host's world goes on. */
static bool is_calm(const struct machine *m)
{
    return m->calm && m->calm < CALM_MOST && machine_position(m) < m->horizon &&
           !(m->end_requested || m->stop_requested || m->debug_stopped || m->failed.code);
}

/* Everything before it is said whose turn it is. As turn(); `*again`: all of it once more. */
static int look(struct machine *m, struct input_source *src, bool *again, struct run_end *end,
                struct err *err)
{
    m->calm = 0;
    m->able_known = false;
    if (m->ncpus > 1)
        schedule_starts(m);
    if (m->end_requested) {
        m->end_requested = false;
        return !ended(end, m->end.reason, m->end.arg);
    }
    int r = take_due(m, src, end, err);
    if (r < 0)
        return r;
    if (engine_lost(m->turn->engine, err))
        return failed(end, RUN_LOST, err);
    if (m->failed.code)
        return host_failed(m, end, err);
    *again = m->end_requested;
    schedule_know(m);
    return 0;
}

/* One turn of the loop. 0: go on; 1: *end says how the run ends, also if <0. */
static int turn(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err)
{
    bool again = false;
    int r = is_calm(m) ? 0 : look(m, src, &again, end, err);
    if (r || again)
        return r;
    /* Whoever stops here sees whose turn it is now; at a debug point, whose it was. */
    struct machine_cpu *was = m->turn;
    if (m->ncpus > 1)
        schedule_turn(m);
    if (m->turn != was)
        debug_turn(m, was);
    if (m->debug_stopped) {
        m->debug_stopped = false;
        m->seen = &m->cpu[m->debug_hit.cpu];
        return !ended(end, RUN_DEBUG, 0);
    }
    struct machine_cpu *c = m->turn;
    pos_t pos = machine_position(m);
    if (reached(m, pos, limits)) {
        m->stop_requested = false;
        return !ended(end, RUN_STOP, 0);
    }
    bool has;
    int x = deliver(c, &has);
    bool delivered = machine_position(m) != pos, halted = engine_vcpu(c->engine)->halted;
    if (delivered)
        debug_look(c);
    if (x == ENGINE_SHUTDOWN)
        return !ended(end, RUN_TRIPLE_FAULT, 0);
    if (delivered || halted)
        m->calm = 0;
    if (delivered)
        return 0;
    if (halted)
        return idle(m, src, limits, end, err);
    return execute(c, has, pos, src, limits, end, err);
}

int machine_run(struct machine *m, struct input_source *src, const struct run_limits *limits,
                struct run_end *end, struct err *err)
{
    int r;
    err->code = 0;
    m->seen = NULL;
    check_set_context(print_context, m);
    for (unsigned i = 0; i < m->ncpus; i++)
        engine_debug_pass(m->cpu[i].engine, m->debug_pass && m->turn == &m->cpu[i]);
    m->debug_pass = false;
    m->calm = 0;
    clock_begin(m);
    while (!(r = turn(m, src, limits, end, err)))
        ;
    clock_end(m);
    m->able_known = false;
    for (unsigned i = 0; i < m->ncpus && r >= 0; i++)
        if (engine_verify(m->cpu[i].engine, err))
            r = engine_failed(end, err);
    return MIN(r, 0);
}

void machine_stop(struct machine *m)
{
    m->stop_requested = true;
    bus_attention(m);
}

void machine_kick(struct machine *m)
{
    for (unsigned i = 0; i < m->ncpus; i++)
        engine_kick(m->cpu[i].engine);
}
