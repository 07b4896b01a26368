/*
 * The second half of `reprise simplify`. A turn in a file has its place by what its vCPU has
 * counted; where turns before it are left out, the vCPU comes to the same instructions with another
 * count, so that a turn that matters cannot do without those that do not. Here a turn's place is
 * the instruction and the registers where it was taken away in the failing run. In a run without
 * chaos, or with the turns that were chosen before, such places are looked for anew
 * (switches.h). That is done for one turn, then for two, then for three (M. Musuvathi, S. Qadeer,
 * Iterative Context Bounding for Systematic Testing of Multithreaded Programs, 2007: most failures
 * need few), those that come last in the failing run first.
 */
#include "cmd/hunt/simplify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hunt/switches.h"
#include "live/turns.h"

#define TURNS_MOST 3u

struct search {
    struct simplify *s;
    struct hunt_switches places;
    struct machine_switch chosen[TURNS_MOST]; /* so far */
    unsigned n, depth;
    bool found;
};

static int write_chosen(const struct search *x, struct err *err)
{
    FILE *f = fopen(x->s->turns, "we");
    if (!f)
        return err_errno(err, "cannot make %s", x->s->turns);
    for (unsigned i = 0; i < x->n; i++)
        turns_write(f, &x->chosen[i]);
    bool bad = ferror(f);
    return fclose(f) || bad ? err_errno(err, "cannot write %s", x->s->turns) : 0;
}

/* With the turns that are chosen. s->rec is there. */
static int run(struct search *x, struct err *err)
{
    int code = write_chosen(x, err);
    if (!code)
        code = simplify_run(x->s, "--chaos=0", true, &x->found, err);
    simplify_progress(x->s, x->n);
    return code;
}

/* Where the run of s->rec comes to the places, after the position. */
static int look(const struct search *x, pos_t after, struct hunt_comes *comes, struct err *err)
{
    struct hunt_end end;
    int code = hunt_look_end(x->s->rec, &end, err);
    if (!code && !end.begun)
        code = err_set(err, -EINVAL, "%s begins in no other recording", x->s->rec);
    return code ? code : hunt_look_comes(x->s->rec, &end.begin, after, &x->places, comes, err);
}

static bool over(const struct search *x)
{
    return x->found || x->s->runs >= x->s->most;
}

/* Who gets it: the other one of the two. */
static u32 other(const struct hunt_switch *sw, u32 cpu)
{
    return cpu == sw->to ? sw->cpu : sw->to;
}

static int deeper(struct search *x, u32 first, pos_t after, struct err *err);

/* One more turn, and all that may follow it. */
static int choose(struct search *x, u32 place, const struct hunt_come *at, struct err *err)
{
    x->chosen[x->n++] = (struct machine_switch){
        .cpu = at->cpu, .to = other(&x->places.of[place], at->cpu), .count = at->count};
    int code = 0;
    if (x->n == x->depth) {
        code = run(x, err);
        if (!code && !x->found)
            code = simplify_drop(x->s, err);
    } else {
        code = deeper(x, place + 1, at->position, err);
    }
    x->n--;
    return code;
}

/* The run with the turns that are chosen, and each with one more at a place from `first` on. */
static int deeper(struct search *x, u32 first, pos_t after, struct err *err)
{
    struct hunt_comes *comes = calloc(1, sizeof(*comes));
    if (!comes)
        return err_set(err, -ENOMEM, "no memory");
    int code = run(x, err);
    if (!code && !x->found)
        code = look(x, after, comes, err);
    if (!code && !x->found)
        code = simplify_drop(x->s, err);
    for (u32 i = x->places.n; !code && i-- > first;)
        for (u32 k = 0; !code && !over(x) && k < HUNT_COMES; k++) {
            const struct hunt_come *c = &comes->of[i][k];
            if (c->found && (!k || c->position != comes->of[i][0].position))
                code = choose(x, i, c, err);
        }
    free(comes);
    return code;
}

/* The position of the last one of *l in `best`. */
static int last_turn(const struct turn_list *l, const char *best, struct instant *begin, pos_t *at,
                     struct err *err)
{
    struct hunt_end end;
    int code = hunt_look_end(best, &end, err);
    if (code)
        return code;
    if (!end.begun || !l->n || l->n != end.nturns)
        return err_set(err, -EINVAL, "%s has not the turns that it was made with", best);
    *begin = end.begin;
    *at = end.last_turn;
    return 0;
}

int simplify_search(struct simplify *s, const struct turn_list *l, const char *best, bool *found,
                    struct err *err)
{
    struct search *x = calloc(1, sizeof(*x));
    struct instant begin;
    pos_t last;
    *found = false;
    if (!x)
        return err_set(err, -ENOMEM, "no memory");
    x->s = s;
    int code = last_turn(l, best, &begin, &last, err);
    if (!code)
        code = hunt_look_switches(best, &begin, last + 1, &x->places, err);
    for (x->depth = 1; !code && !over(x) && x->depth <= TURNS_MOST && x->depth < l->n; x->depth++)
        code = deeper(x, 0, begin.position, err);
    *found = x->found;
    free(x);
    return code;
}
