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

static const struct vcpu *cpu(struct debug_session *s)
{
    return machine_vcpu(timeline_machine(s->tr->t));
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
        *there = in_user(s) && process_same_thread(&now, &s->step_thread, false);
        if (!*there && debug_process_registers(s, s->step_thread.pid, &c))
            *from = (struct place){c.rip, c.gpr[RSP]};
        return true;
    }
    if (!debug_steps_program(s))
        return false;
    travel_process(s->tr, &s->step_thread);
    return true;
}

/* The kernel was entered by an exception or interrupt, which changes nothing of the thread. */
static bool by_itself(struct debug_session *s)
{
    return cpu(s)->rip != cpu(s)->lstar;
}

int debug_step(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
               struct err *err)
{
    struct place from;
    bool there, user = begins(s, &from, &there), own = true;
    while (own) {
        int code = 0;
        struct instant to = {timeline_now(s->tr->t).position + 1, 0};
        if (there) {
            code = timeline_forward(s->tr->t, to, true, what, err);
            if (code || *what != TIMELINE_REACHED || !user || in_user(s))
                return code;
        }
        s->step_fs_base = there && by_itself(s);
        there = true;
        code = debug_step_cross(s, false, what, &own, err);
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

int debug_step_back(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
                    struct err *err)
{
    struct place from;
    bool there, user = begins(s, &from, &there), own = true;
    while (own) {
        struct instant now = timeline_now(s->tr->t);
        int code = 0;
        if (there) {
            code = timeline_step_back(s->tr->t, what, err);
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
            code = timeline_seek(s->tr->t, now, what, err);
            *what = *what == TIMELINE_INTERRUPTED ? *what : TIMELINE_BEGIN;
        }
        if (code || !own)
            return code;
        *what = TIMELINE_REACHED;
        own = is_here(s, from); /* the same instruction, before it was restarted */
    }
    return 0;
}
