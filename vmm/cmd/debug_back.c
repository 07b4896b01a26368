/*
 * Many steps back at once. gdb's protocol has no range for them: out of a long loop gdb would ask
 * for millions of single ones. `reprise gdb` says before which instructions of the function belong
 * together, so that gdb would stop at none (gdb_session.py); here the last position before is
 * searched at which the thread came from another instruction of the function. gdb decides there as
 * it would have if it had come step by step.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/debug_process.h"
#include "cmd/debug_step.h"
#include "cpu/vcpu.h"

/* A step takes a fifth of a millisecond, a search a few ten: so many steps before one, and so far
 * a search has to come for another one to follow at once. */
#define SINGLE_STEPS 48u
#define WORTH_IT     4000u
/* Iterations of a REP that are looked at. */
#define REPEATS (1u << 20)

static u64 here(struct debug_session *s)
{
    return machine_vcpu(timeline_machine(s->tr->t))->rip;
}

/* NULL: not in the function, but perhaps in one that it calls. */
static const struct gdb_insn *insn_here(struct debug_session *s)
{
    u64 rip = here(s);
    size_t low = 0, high = s->back.code.ninsns;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->back.code.insns[mid].address < rip)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->back.code.ninsns && s->back.code.insns[low].address == rip
               ? &s->back.code.insns[low]
               : NULL;
}

bool debug_back_holds(struct debug_session *s)
{
    struct process now;
    travel_process(s->tr, &now);
    return process_same_thread(&now, &s->back.thread, false);
}

/* gdb's points, and the instructions from which the group may have been entered. */
static int set_points(struct debug_session *s, u32 group, struct err *err)
{
    unsigned n = s->npoints;
    struct debug_point *d = calloc(n + s->back.code.nentries + 1, sizeof(*d));
    if (!d)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    memcpy(d, s->engine_points, n * sizeof(*d));
    for (size_t i = 0; i < s->back.code.nentries; i++)
        if (!s->back.code.entries[i].group || s->back.code.entries[i].group == group) {
            d[n].kind = DEBUG_EXEC;
            d[n].length = 1;
            d[n++].address = s->back.code.entries[i].address;
        }
    int code = timeline_set_points(s->tr->t, d, n, err);
    free(d);
    return code;
}

/* A breakpoint is met before the first iteration of a REP, a step back before the last. */
static int to_last_iteration(struct debug_session *s, struct err *err)
{
    enum timeline_stop stop = TIMELINE_REACHED;
    u64 rip = here(s);
    u8 prefix;
    if (!machine_peek(timeline_machine(s->tr->t), rip, &prefix, 1) ||
        (prefix != 0xf2 && prefix != 0xf3))
        return 0;
    struct instant at = timeline_now(s->tr->t);
    for (unsigned i = 0; i < REPEATS; i++, at.position++) {
        int code = timeline_return(s->tr->t, (struct instant){at.position + 1, 0}, err);
        if (code || here(s) != rip)
            return code ? code
                        : timeline_seek(s->tr->t, (struct instant){at.position, 0}, &stop, err);
    }
    return 0;
}

static int search(struct debug_session *s, u32 group, enum timeline_stop *what,
                  struct gdb_stop *stop, struct err *err)
{
    struct instant from = timeline_now(s->tr->t);
    travel_process(s->tr, &s->back.thread);
    int code = set_points(s, group, err);
    if (!code) {
        s->back.waits = true;
        code = timeline_backward_near(s->tr->t, what, err);
        s->back.waits = false;
    }
    bool own = !code && *what == TIMELINE_HIT && timeline_hit(s->tr->t)->point >= s->npoints;
    s->step_armed = true;
    if (!code)
        code = debug_step_disarm(s, err);
    if (!code && own) {
        *what = TIMELINE_REACHED;
        code = to_last_iteration(s, err);
    }
    pos_t came = from.position - timeline_now(s->tr->t).position;
    if (came < WORTH_IT)
        s->back.steps = 0;
    if (!code && *what == TIMELINE_INTERRUPTED)
        snprintf(stop->text, sizeof(stop->text),
                 "Interrupted %" PRIu64 " positions back, in the middle of the step.", came);
    return code;
}

int debug_back(struct debug_session *s, enum timeline_stop *what, struct gdb_stop *stop,
               bool *skipped, struct err *err)
{
    const struct gdb_insn *insn = debug_steps_program(s) ? insn_here(s) : NULL;
    struct process now;
    if (insn && debug_process_on(s)) { /* another process may be there */
        travel_process(s->tr, &now);
        if (now.pid != s->shown.stopped)
            insn = NULL;
    }
    u32 group = insn ? insn->group : 0;
    if (insn && group != s->back.group) {
        s->back.group = group;
        s->back.steps = 0;
    }
    s->back.steps++;
    *skipped = group && s->back.steps >= SINGLE_STEPS;
    return *skipped ? search(s, group, what, stop, err) : debug_step_back(s, what, stop, err);
}
