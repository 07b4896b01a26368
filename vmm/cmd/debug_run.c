/* See debug_run.h. */
#include "cmd/debug_run.h"

#include <stdio.h>
#include <string.h>

#include "cmd/attach.h"
#include "cmd/debug_events.h"
#include "cmd/debug_progress.h"
#include "cpu/vcpu.h"

static void set_end(struct debug_session *s, struct gdb_stop *stop)
{
    struct run_end end;
    char how[256];
    stop->reason = GDB_STOP_HISTORY_END;
    timeline_at_end(s->tr->t, &end);
    run_end_sentence(&end, false, how, sizeof(how));
    snprintf(stop->text, sizeof(stop->text), "The %s here: %.200s",
             timeline_branched(s->tr->t) ? "branch ends" : "recording ends",
             *timeline_end_text(s->tr->t) ? timeline_end_text(s->tr->t) : how);
}

static void describe(struct debug_session *s, enum timeline_stop what, struct gdb_stop *stop)
{
    const struct debug_hit *hit = timeline_hit(s->tr->t);
    switch (what) {
    case TIMELINE_REACHED: stop->reason = GDB_STOP_TRAP; break;
    case TIMELINE_INTERRUPTED: stop->reason = GDB_STOP_INTERRUPT; break;
    case TIMELINE_BEGIN:
        stop->reason = GDB_STOP_HISTORY_BEGIN;
        scope_note(&s->scope, stop->text, sizeof(stop->text));
        break;
    case TIMELINE_END:
        if (*stop->text) { /* of a process */
            stop->reason = GDB_STOP_HISTORY_END;
            break;
        }
        set_end(s, stop);
        scope_note(&s->scope, stop->text, sizeof(stop->text));
        break;
    case TIMELINE_HIT:
        if (hit->point < s->npoints)
            gdb_stop_of(&s->points[hit->point], hit->address, stop);
        break;
    }
}

/* A step met a watchpoint whose condition is false. */
static bool steps_on(struct debug_session *s, enum timeline_stop what, struct err *err)
{
    const struct debug_hit *hit = timeline_hit(s->tr->t);
    return what == TIMELINE_HIT && hit->point < s->npoints &&
           watch_decides(&s->watch, s->points, s->npoints, hit->point) &&
           !gdb_condition_holds(s->points[hit->point].conditions, &s->target) &&
           !watch_miss(&s->watch, &s->points[hit->point], hit->address, err);
}

/* Steps while RIP is in the range; a call of a function leaves it. */
static int range_step(struct debug_session *s, const struct gdb_resume *r, enum timeline_stop *what,
                      struct gdb_stop *stop, struct err *err)
{
    u64 rip;
    do {
        watch_begin(&s->watch, false);
        int code = debug_step(s, what, stop, err);
        if (code)
            return code;
        watch_begin(&s->watch, true);
        if (steps_on(s, *what, err))
            *what = TIMELINE_REACHED;
        machine_look_at(timeline_machine(s->tr->t), s->step_cpu);
        rip = machine_vcpu(timeline_machine(s->tr->t))->rip;
        if (progress_poll(s))
            *what = TIMELINE_INTERRUPTED;
    } while (*what == TIMELINE_REACHED && rip >= r->start && rip < r->end);
    return 0;
}

/* gdb is to see a watchpoint before anything is run: *p and the byte. */
static bool shows_first(struct debug_session *s, struct gdb_stop *stop)
{
    u64 address;
    for (unsigned i = 0; i < s->npoints; i++)
        if (watch_decides(&s->watch, s->points, s->npoints, i) &&
            watch_take(&s->watch, &s->points[i], &address)) {
            gdb_stop_of(&s->points[i], address, stop);
            return true;
        }
    return false;
}

/* The run ended there. What conditions left out on the way: of the point that was hit gdb sees the
 * last one now, instead of the hit, which comes next. */
static int show_skipped(struct debug_session *s, enum timeline_stop what, struct gdb_stop *stop,
                        struct err *err)
{
    const struct debug_hit *hit = timeline_hit(s->tr->t);
    struct instant at;
    u64 address;
    int code = 0;
    for (unsigned i = 0; !code && i < s->npoints; i++)
        if ((what != TIMELINE_HIT || i != hit->point) &&
            timeline_skipped(s->tr->t, i, &at, &address))
            code = watch_miss(&s->watch, &s->points[i], address, err);
    if (code || what != TIMELINE_HIT || !timeline_skipped(s->tr->t, hit->point, &at, &address))
        return code;
    unsigned point = hit->point;
    if (timeline_branched(s->tr->t)) /* there is no way back */
        return 0;
    code = timeline_return(s->tr->t, at, err);
    gdb_stop_of(&s->points[point], address, stop);
    return code;
}

/* A branch has no history. */
static int run_backwards(struct debug_session *s, enum gdb_action action, enum timeline_stop *what,
                         struct gdb_stop *stop, bool *searched, struct err *err)
{
    if (timeline_branched(s->tr->t)) {
        snprintf(stop->text, sizeof(stop->text),
                 "A what-if branch goes forwards only; `monitor back` returns to the recording.");
        *what = TIMELINE_BEGIN;
        return 0;
    }
    *searched = action == GDB_REVERSE_CONTINUE;
    if (action == GDB_REVERSE_STEP)
        return debug_back(s, what, stop, searched, err);
    struct instant began = timeline_now(s->tr->t);
    pos_t from = began.position;
    int code = timeline_backward(s->tr->t, what, err);
    if (!code && *what == TIMELINE_BEGIN && debug_process_on(s)) {
        snprintf(stop->text, sizeof(stop->text),
                 "Nothing was hit from here back to where the process was made.");
        return timeline_return(s->tr->t, began, err);
    }
    pos_t now = timeline_now(s->tr->t).position;
    if (!code && *what == TIMELINE_INTERRUPTED && now < from)
        snprintf(stop->text, sizeof(stop->text),
                 "Interrupted: nothing was hit from there back to here, %.0f%% of the way to the "
                 "beginning; reverse-continue searches on.",
                 100.0 * (double)(from - now) / (double)from);
    return code;
}

/* gdb's thread of the vCPU that the stop is of. */
static i32 whose_stop(struct debug_session *s, enum timeline_stop what, bool steps)
{
    u32 cpu = machine_turn(timeline_machine(s->tr->t));
    if (what == TIMELINE_HIT)
        cpu = timeline_hit(s->tr->t)->cpu;
    else if (steps)
        cpu = s->step_cpu;
    return (i32)cpu + 1;
}

int debug_run(struct debug_session *s, const struct gdb_resume *r, struct gdb_stop *stop,
              struct err *err)
{
    enum timeline_stop what = TIMELINE_REACHED;
    bool steps =
        r->action == GDB_STEP || r->action == GDB_RANGE_STEP || r->action == GDB_REVERSE_STEP;
    struct process now;
    memset(stop, 0, sizeof(*stop));
    bool process = debug_process_on(s), told = false;
    s->step_cpu =
        process || !r->thread ? machine_turn(timeline_machine(s->tr->t)) : (u32)r->thread - 1;
    if (process)
        debug_events_follow(s, r->process);
    if (process && s->shown.vfork_waits) { /* its points are not in the memory that they share */
        s->shown.vfork_waits = false;
        stop->reason = GDB_STOP_VFORK_DONE;
        return 0;
    }
    /* Where it ends it stays. */
    bool passes = process && debug_events_here(s) && s->shown.event != EVENT_END;
    s->shown.happened = false;
    if (process && r->thread)
        debug_process_stopped(s, r->thread);
    travel_process(s->tr, &now);
    int code = process ? 0
                       : scope_run(&s->scope, s->points, s->npoints, timeline_machine(s->tr->t),
                                   &now, steps, err);
    if (!code && !steps)
        code = process ? debug_events_arm(s, r, r->action == GDB_REVERSE_CONTINUE, err)
                       : debug_step_disarm(s, err);
    if (code)
        return code;
    bool searched = r->action == GDB_CONTINUE;
    watch_begin(&s->watch, r->action != GDB_STEP);
    if (r->action != GDB_REVERSE_STEP && shows_first(s, stop))
        return 0;
    progress_begin(s, NULL);
    switch (r->action) {
    case GDB_STEP: code = debug_step(s, &what, stop, err); break;
    case GDB_RANGE_STEP: code = range_step(s, r, &what, stop, err); break;
    case GDB_REVERSE_STEP:
    case GDB_REVERSE_CONTINUE:
        code = run_backwards(s, r->action, &what, stop, &searched, err);
        break;
    default:
        code = timeline_forward(s->tr->t, (struct instant){NEVER, 0}, passes, &what, err);
        break;
    }
    bool met =
        process && !steps && what == TIMELINE_HIT && timeline_hit(s->tr->t)->point >= s->npoints;
    if (!code && met)
        code = debug_events_met(s, r->action == GDB_REVERSE_CONTINUE, &what, stop, &told, err);
    travel_quiet(s->tr);
    progress_end(s);
    if (!code && process)
        debug_process_stopped(s, steps && what == TIMELINE_REACHED ? s->shown.stopped : 0);
    if (!code && !told)
        describe(s, what, stop);
    stop->thread = whose_stop(s, what, steps);
    if (!code && searched && !met)
        code = show_skipped(s, what, stop, err);
    return code;
}
