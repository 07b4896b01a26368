/*
 * Steps (debug_step.h). The engine stops where the CPU enters or leaves ring 3; which thread it is
 * then, the guest's kernel says (process.h). do_exit() is where Linux ends a thread: its memory and
 * its stack are still there.
 */
#include "cmd/debug_step.h"

#include "cmd/debug_process.h"

#include <stdio.h>
#include <string.h>

#include "cpu/engine.h"
#include "cpu/vcpu.h"

/* Of those that step, whosever turn it is now. */
static const struct vcpu *cpu(struct debug_session *s)
{
    struct machine *m = timeline_machine(s->tr->t);
    machine_look_at(m, s->step_cpu);
    return machine_vcpu(m);
}

static bool in_user(struct debug_session *s)
{
    return (cpu(s)->seg_sel[SEG_CS] & 3) == 3;
}

static int arm(struct debug_session *s, bool back, struct err *err)
{
    u64 end;
    unsigned n = s->npoints;
    const struct symbols *symbols = s->step_thread.task ? travel_symbols(s->tr) : NULL;
    if (s->step_armed && s->step_by == (back ? STEP_BACK : STEP_ON))
        return 0;
    memset(s->engine_points + n, 0, STEP_POINTS * sizeof(*s->engine_points));
    s->engine_points[n++].kind = back ? DEBUG_FROM_USER : DEBUG_TO_USER;
    if (!back && symbols && symbols_address(symbols, "do_exit", &end)) {
        s->engine_points[n].kind = DEBUG_EXEC;
        s->engine_points[n].length = 1;
        s->engine_points[n++].address = end;
    }
    int code = timeline_set_points(s->tr->t, s->engine_points, n, err);
    s->step_armed = !code;
    s->step_by = back ? STEP_BACK : STEP_ON;
    return code;
}

/* A point of the vCPUs' turns, besides gdb's. */
static int arm_turn(struct debug_session *s, enum debug_kind kind, struct err *err)
{
    struct debug_point *p = &s->engine_points[s->npoints];
    memset(p, 0, STEP_POINTS * sizeof(*p));
    p->kind = kind;
    p->address = s->step_cpu;
    s->step_armed = true;
    s->step_by = STEP_TURN;
    s->shown.run = false;
    return timeline_set_points(s->tr->t, s->engine_points, s->npoints + 1, err);
}

static bool has_turn(struct debug_session *s)
{
    return machine_turn(timeline_machine(s->tr->t)) == s->step_cpu;
}

/* Others run until it is step_cpu's turn. *own: it is; else what happened is for gdb. */
static int to_turn(struct debug_session *s, enum timeline_stop *what, bool *own, struct err *err)
{
    *own = has_turn(s);
    if (*own)
        return 0;
    int code = arm_turn(s, DEBUG_TURN_TO, err);
    if (code)
        return code;
    s->step_turn = true;
    code = timeline_forward(s->tr->t, (struct instant){NEVER, 0}, true, what, err);
    s->step_turn = false;
    *own = !code && *what == TIMELINE_HIT && timeline_hit(s->tr->t)->point >= s->npoints;
    return code ? code : debug_step_disarm(s, err);
}

/* Back to `at`, which is told as `told` unless the way there was interrupted. */
static int stay(struct debug_session *s, struct instant at, enum timeline_stop told,
                enum timeline_stop *what, struct err *err)
{
    int code = timeline_seek(s->tr->t, at, what, err);
    if (*what != TIMELINE_INTERRUPTED)
        *what = told;
    return code;
}

/* In front of what step_cpu did last. */
static int back_to_turn(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
                        struct err *err)
{
    struct instant now = timeline_now(s->tr->t);
    enum timeline_stop none;
    int code = timeline_step_back(s->tr->t, what, err);
    if (code || *what != TIMELINE_REACHED || has_turn(s))
        return code;
    code = timeline_seek(s->tr->t, now, &none, err);
    if (!code)
        code = arm_turn(s, DEBUG_TURN_FROM, err);
    if (code)
        return code;
    s->step_turn = true;
    code = timeline_backward(s->tr->t, what, err);
    s->step_turn = false;
    bool own = !code && *what == TIMELINE_HIT && timeline_hit(s->tr->t)->point >= s->npoints;
    if (!code)
        code = debug_step_disarm(s, err);
    if (!code && own)
        return timeline_step_back(s->tr->t, what, err);
    if (code || *what != TIMELINE_BEGIN)
        return code;
    snprintf(stop->text, sizeof(stop->text), "CPU %u has done nothing before.", s->step_cpu);
    return stay(s, now, TIMELINE_BEGIN, what, err);
}

int debug_step_disarm(struct debug_session *s, struct err *err)
{
    if (!s->step_armed)
        return 0;
    s->step_armed = s->shown.run = false;
    return timeline_set_points(s->tr->t, s->engine_points, s->npoints, err);
}

bool debug_step_holds(struct debug_session *s, unsigned point)
{
    struct process now;
    if (s->step_turn)
        return point >= s->npoints;
    if (!s->step_waits || point < s->npoints)
        return false;
    travel_process(s->tr, &now);
    return process_same_thread(&now, &s->step_thread, s->step_fs_base);
}

/* The thread is in the kernel: to where it is back in ring 3, or was last. *own: it is there, or
 * has ended; else what happened is for gdb. */
int debug_step_cross(struct debug_session *s, bool back, enum timeline_stop *what, bool *own,
                     struct err *err)
{
    s->shown.run = false;
    int code = arm(s, back, err);
    *own = false;
    if (code)
        return code;
    s->step_waits = true;
    code = back ? timeline_backward(s->tr->t, what, err)
                : timeline_forward(s->tr->t, (struct instant){NEVER, 0}, false, what, err);
    s->step_waits = false;
    *own = !code && *what == TIMELINE_HIT && timeline_hit(s->tr->t)->point >= s->npoints;
    if (*own)
        s->step_cpu = timeline_hit(s->tr->t)->cpu;
    return code;
}

/* Where a thread is in its program. */
struct place {
    u64 rip, rsp;
};

static struct place here(struct debug_session *s)
{
    return (struct place){cpu(s)->rip, cpu(s)->gpr[RSP]};
}

static bool is_here(struct debug_session *s, struct place p)
{
    return cpu(s)->rip == p.rip && cpu(s)->gpr[RSP] == p.rsp;
}

bool debug_steps_program(struct debug_session *s)
{
    return !s->scope.machine && in_user(s);
}

/* The vCPU on which s->step_thread is in ring 3 becomes the one that steps; false: there is none.
 */
static bool find_cpu(struct debug_session *s)
{
    struct machine *m = timeline_machine(s->tr->t);
    struct process now;
    const u32 first = machine_turn(m), n = machine_cpus(m);
    for (u32 i = 0; i < n; i++) {
        s->step_cpu = (first + i) % n;
        if (!in_user(s))
            continue;
        travel_process(s->tr, &now);
        if (process_same_thread(&now, &s->step_thread, false))
            return true;
    }
    s->step_cpu = first;
    return false;
}

/* Does the step have to do with threads at all? Then s->step_thread is the one, at *from. *there:
 * it is in ring 3. */
static bool begins(struct debug_session *s, struct place *from, bool *there)
{
    struct process now;
    struct vcpu c;
    *from = here(s);
    *there = true;
    if (debug_process_on(s)) {
        travel_process(s->tr, &now);
        if (!debug_process_thread(s, s->shown.stopped, &s->step_thread))
            s->step_thread = now;
        *there = find_cpu(s);
        *from = here(s);
        if (!*there && debug_process_registers(s, s->step_thread.pid, &c))
            *from = (struct place){c.rip, c.gpr[RSP]};
        return true;
    }
    if (!debug_steps_program(s))
        return false;
    (void)cpu(s);
    travel_process(s->tr, &s->step_thread);
    return true;
}

/* The kernel was entered by an exception or interrupt, which changes nothing of the thread. */
static bool by_itself(struct debug_session *s)
{
    return cpu(s)->rip != cpu(s)->lstar;
}

/* The recording ends. A thread of the process that ended on the way had ended to the program before
 * the step, as it has not met do_exit(): back to there, where gdb has something to show. */
static int comes_no_further(struct debug_session *s, struct instant began, enum timeline_stop *what,
                            struct gdb_stop *stop, struct err *err)
{
    struct process thread;
    if (!debug_process_on(s) || debug_process_thread(s, s->step_thread.pid, &thread))
        return 0;
    snprintf(stop->text, sizeof(stop->text), "%s (pid %d) is ending: it does nothing more.",
             s->step_thread.comm, s->step_thread.pid);
    return stay(s, began, TIMELINE_INTERRUPTED, what, err);
}

int debug_step(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
               struct err *err)
{
    const struct instant began = timeline_now(s->tr->t);
    struct place from;
    bool there, user = begins(s, &from, &there), own = true;
    while (own) {
        int code = there ? to_turn(s, what, &own, err) : 0;
        if (code || !own)
            return code;
        struct instant to = {timeline_now(s->tr->t).position + 1, 0};
        if (there) {
            code = timeline_forward(s->tr->t, to, true, what, err);
            if (code || *what != TIMELINE_REACHED || !user || in_user(s))
                return code;
        }
        s->step_fs_base = there && by_itself(s);
        there = true;
        code = debug_step_cross(s, false, what, &own, err);
        if (!code && *what == TIMELINE_END)
            return comes_no_further(s, began, what, stop, err);
        if (code || !own)
            return code;
        *what = TIMELINE_REACHED;
        if (!in_user(s)) {
            process_end_sentence(&s->step_thread, timeline_machine(s->tr->t), stop->text,
                                 sizeof(stop->text));
            *what = TIMELINE_INTERRUPTED;
            return 0;
        }
        own = is_here(s, from); /* to be executed yet */
    }
    return 0;
}

/* The step led out of the program, into the one that executed it: `gdb` shows one program's past.
 */
static int begins_here(struct debug_session *s, struct instant at, enum timeline_stop *what,
                       struct gdb_stop *stop, struct err *err)
{
    snprintf(stop->text, sizeof(stop->text),
             "The program begins here: before, %s (pid %d) was another one.", s->step_thread.comm,
             s->step_thread.tgid);
    return stay(s, at, TIMELINE_BEGIN, what, err);
}

int debug_step_back(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
                    struct err *err)
{
    const u64 space = debug_process_space(s);
    struct place from;
    bool there, user = begins(s, &from, &there), own = true;
    while (own) {
        struct instant now = timeline_now(s->tr->t);
        int code = 0;
        if (there) {
            code = back_to_turn(s, what, stop, err);
            if (code || *what != TIMELINE_REACHED || !user || in_user(s))
                return code;
        }
        there = true;
        s->step_fs_base = false; /* how the kernel was entered is not known */
        code = debug_step_cross(s, true, what, &own, err);
        if (code)
            return code;
        if (*what == TIMELINE_BEGIN) {
            snprintf(stop->text, sizeof(stop->text),
                     "The program begins here; `monitor scope machine`: to go on into the kernel.");
            code = stay(s, now, TIMELINE_BEGIN, what, err);
        }
        if (code || !own)
            return code;
        if (space && debug_process_space(s) != space)
            return begins_here(s, now, what, stop, err);
        *what = TIMELINE_REACHED;
        own = is_here(s, from); /* the same instruction, before it was restarted */
    }
    return 0;
}
