/* See switches.h. */
#include "cmd/hunt/switches.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/apart.h"
#include "cmd/hunt/look.h"
#include "cmd/travel.h"
#include "cpu/engine.h"
#include "cpu/vcpu.h"
#include "host/sandbox.h"
#include "machine/machine.h"
#include "replay/timeline.h"

#define ALIKE 8u     /* of 16 registers, at least */
#define MOST  20000u /* times that a place is looked at; one that is come to so often is none */

struct question {
    const char *dir;
    const struct instant *begin;
    pos_t at;
    const struct hunt_switches *places;
};

/* What a child says. */
struct answer {
    struct apart_answer said;
    union {
        struct hunt_switches switches;
        struct hunt_comes comes;
    } is;
};

static int open_at(struct travel *tr, const struct question *q, struct err *err)
{
    const struct travel_with with = {.once = true};
    enum timeline_stop stop;
    sandbox_plan(SANDBOX_READ | SANDBOX_CODE);
    int code = travel_open(tr, q->dir, &with, err);
    return code ? code : timeline_seek(tr->t, *q->begin, &stop, err);
}

/* ---- switches ---- */

struct seen {
    struct machine *m;
    struct hunt_switches *out;
    u64 n; /* of all, the last of which are in `out`, as in a ring */
};

static void on_switched(void *opaque, const struct machine_switch *turn)
{
    struct seen *s = opaque;
    const struct vcpu *v = machine_vcpu(s->m);
    if (v->halted || turn->to == turn->cpu)
        return;
    struct hunt_switch *sw = &s->out->of[s->n++ % HUNT_SWITCHES];
    *sw = (struct hunt_switch){
        .cpu = turn->cpu, .to = turn->to, .position = machine_position(s->m), .rip = v->rip};
    memcpy(sw->gpr, v->gpr, sizeof(sw->gpr));
}

static int by_position(const void *a, const void *b)
{
    const struct hunt_switch *x = a, *y = b;
    return x->position < y->position ? -1 : x->position > y->position;
}

static void find_switches(const void *question, void *answer)
{
    const struct question *q = question;
    struct answer *a = answer;
    struct travel tr;
    enum timeline_stop stop;
    a->said.code = open_at(&tr, q, &a->said.err);
    struct seen s = {.out = &a->is.switches};
    if (!a->said.code) {
        s.m = timeline_machine(tr.t);
        machine_set_switched(s.m, on_switched, &s);
        a->said.code =
            timeline_forward(tr.t, (struct instant){q->at, 0}, false, &stop, &a->said.err);
        machine_set_switched(s.m, NULL, NULL);
    }
    s.out->n = (u32)MIN(s.n, HUNT_SWITCHES);
    qsort(s.out->of, s.out->n, sizeof(s.out->of[0]), by_position);
    travel_close(&tr);
}

int hunt_look_switches(const char *dir, const struct instant *begin, pos_t upto,
                       struct hunt_switches *out, struct err *err)
{
    const struct question q = {.dir = dir, .begin = begin, .at = upto};
    struct answer a;
    int code = hunt_ask(dir, find_switches, &q, &a, sizeof(a), err);
    *out = a.is.switches;
    out->n = MIN(out->n, HUNT_SWITCHES);
    return code;
}

/* ---- where they are in another recording ---- */

struct looked {
    struct debug_point points[HUNT_SWITCHES];
    u32 times[HUNT_SWITCHES]; /* of each point */
    unsigned n;
    unsigned alike[HUNT_SWITCHES]; /* of each switch, in the best that was found */
};

static void set_points(struct looked *l, const struct hunt_switches *places)
{
    for (u32 i = 0; i < places->n; i++) {
        unsigned k = 0;
        while (k < l->n && l->points[k].address != places->of[i].rip)
            k++;
        l->points[k] =
            (struct debug_point){.kind = DEBUG_EXEC, .address = places->of[i].rip, .length = 1};
        l->n = MAX(l->n, k + 1);
    }
}

static void compare(struct looked *l, const struct hunt_switches *places, struct machine *m,
                    const struct debug_hit *hit, struct hunt_comes *out)
{
    const struct vcpu *v = machine_vcpu(m);
    const struct hunt_come here = {
        .found = true, .cpu = hit->cpu, .count = v->position, .position = hit->position};
    for (u32 i = 0; i < places->n; i++) {
        unsigned alike = 0;
        if (places->of[i].rip != v->rip)
            continue;
        for (unsigned r = 0; r < 16; r++)
            alike += v->gpr[r] == places->of[i].gpr[r];
        if (alike < ALIKE || alike < l->alike[i])
            continue;
        if (alike > l->alike[i])
            out->of[i][0] = here;
        l->alike[i] = alike;
        out->of[i][1] = here;
    }
}

/* A place that is come to all the time is given up. */
static int count(struct travel *tr, struct looked *l, unsigned point, struct err *err)
{
    if (++l->times[point] < MOST)
        return 0;
    l->n--;
    l->points[point] = l->points[l->n];
    l->times[point] = l->times[l->n];
    return timeline_set_points(tr->t, l->points, l->n, err);
}

static void find_comes(const void *question, void *answer)
{
    const struct question *q = question;
    struct answer *a = answer;
    struct looked l = {.n = 0};
    struct travel tr;
    enum timeline_stop stop = TIMELINE_HIT;
    a->said.code = open_at(&tr, q, &a->said.err);
    if (!a->said.code && timeline_now(tr.t).position <= q->at)
        a->said.code = timeline_seek(tr.t, (struct instant){q->at + 1, 0}, &stop, &a->said.err);
    set_points(&l, q->places);
    if (!a->said.code)
        a->said.code = timeline_set_points(tr.t, l.points, l.n, &a->said.err);
    for (bool pass = false; !a->said.code && l.n; pass = true) {
        a->said.code =
            timeline_forward(tr.t, (struct instant){NEVER, 0}, pass, &stop, &a->said.err);
        if (a->said.code || stop != TIMELINE_HIT)
            break;
        struct machine *m = timeline_machine(tr.t);
        const struct debug_hit hit = *timeline_hit(tr.t);
        machine_look_at(m, hit.cpu);
        compare(&l, q->places, m, &hit, &a->is.comes);
        a->said.code = count(&tr, &l, hit.point, &a->said.err);
    }
    travel_close(&tr);
}

int hunt_look_comes(const char *dir, const struct instant *begin, pos_t after,
                    const struct hunt_switches *to, struct hunt_comes *out, struct err *err)
{
    const struct question q = {.dir = dir, .begin = begin, .at = after, .places = to};
    struct answer a;
    int code = hunt_ask(dir, find_comes, &q, &a, sizeof(a), err);
    *out = a.is.comes;
    return code;
}
