/* Points in processes' lives: where they are, and what to say of those that are not (history.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "cmd/history.h"
#include "cpu/vcpu.h"

#define NEAR 5u /* names that are told of one that is not there */

/* ---- what is not there ---- */

struct names {
    const char *list[NEAR];
    char text[NEAR][256];
    unsigned n;
};

static void add_name(struct names *near, const char *name)
{
    for (unsigned i = 0; i < near->n; i++)
        if (!strcmp(near->list[i], name))
            return;
    if (near->n == NEAR || !*name)
        return;
    snprintf(near->text[near->n], sizeof(near->text[0]), "%s", name);
    near->list[near->n] = near->text[near->n];
    near->n++;
}

/* The names of what was executed that have it in them, or are in it; or are like it. */
static void find_near(struct names *near, const struct lives *l, const char *name, bool like)
{
    for (u32 i = 0; i < l->nevents && near->n < NEAR; i++) {
        const struct life_event *e = &l->events[i];
        char first[256];
        if (e->kind != LIFE_EXEC)
            continue;
        life_first_argument(l, e, first, sizeof(first));
        const char *const names[] = {first, e->comm, lives_text(l, e->program)};
        for (unsigned k = 0; k < ARRAY_SIZE(names); k++)
            if (like ? text_nearest(name, &names[k], 1, sizeof(names[0])) != NULL
                     : strstr(names[k], name) || strstr(name, names[k]))
                add_name(near, names[k]);
    }
}

static int no_program(const struct life_search *s, const struct lives *l, const char *dir,
                      struct err *err)
{
    struct names near = {.n = 0};
    char text[NEAR * 260] = "";
    if (s->seen)
        return err_set(err, -ESRCH,
                       "%s was executed %" PRIu64 " time%s only: exec:%s#%" PRIu64 " is the last",
                       s->name, s->seen, s->seen == 1 ? "" : "s", s->name, s->seen);
    find_near(&near, l, s->name, false);
    find_near(&near, l, s->name, true);
    for (unsigned i = 0; i < near.n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
                 i ? ", " : "; there was ", near.list[i]);
    return err_set(err, -ESRCH, "no program %.80s was executed%s (`reprise ps %s` lists all)",
                   s->name, text, dir);
}

static int no_process(const struct life_search *s, const struct lives *l, const char *dir,
                      struct err *err)
{
    i32 below = -1, above = -1;
    for (u32 i = 0; i < l->count; i++) {
        const struct life *one = &l->list[i];
        if (one->kernel || one->process != i) {
            if (one->pid == s->pid && one->process != i)
                return err_set(err, -ESRCH,
                               "%d is a thread of process %d: exit:%d is where that one ended",
                               s->pid, one->tgid, one->tgid);
            continue;
        }
        if (one->tgid == s->pid && s->seen + 1 == s->k && one->left.position == NEVER)
            return err_set(err, -ESRCH, "process %d (%s) lives to the recording's end", s->pid,
                           one->command ? lives_text(l, one->command) : one->comm);
        if (one->tgid < s->pid && one->tgid > below)
            below = one->tgid;
        if (one->tgid > s->pid && (above < 0 || one->tgid < above))
            above = one->tgid;
    }
    if (s->seen)
        return err_set(err, -ESRCH, "only %" PRIu64 " process%s had the number %d", s->seen,
                       s->seen == 1 ? "" : "es", s->pid);
    char near[64] = "";
    if (below >= 0 && above >= 0)
        snprintf(near, sizeof(near), "; the next ones are %d and %d", below, above);
    else if (below >= 0 || above >= 0)
        snprintf(near, sizeof(near), "; the next one is %d", MAX(below, above));
    return err_set(err, -ESRCH, "there was no process %d%s (`reprise ps %s` lists all)", s->pid,
                   near, dir);
}

static int no_mark(const struct life_search *s, const struct lives *l, const char *dir,
                   struct err *err)
{
    struct names near = {.n = 0};
    char text[NEAR * 260] = "";
    if (s->seen)
        return err_set(err, -ESRCH,
                       "mark %s was made %" PRIu64 " time%s only: mark:%s#%" PRIu64 " is the last",
                       s->name, s->seen, s->seen == 1 ? "" : "s", s->name, s->seen);
    for (u32 i = 0; i < l->nevents; i++)
        if (l->events[i].kind == LIFE_MARK)
            add_name(&near, lives_text(l, l->events[i].command));
    for (unsigned i = 0; i < near.n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
                 i ? ", " : "; there are ", near.list[i]);
    return err_set(err, -ESRCH, "there is no mark '%.80s'%s (`reprise marks %s` lists all)",
                   s->name, text, dir);
}

static int not_there(const struct life_search *s, const struct lives *l, const char *dir,
                     struct err *err)
{
    if (l->cut)
        return err_set(err, -E2BIG,
                       "there were more than %u processes and threads: what happened after that is "
                       "not known",
                       l->count);
    switch (s->kind) {
    case SEARCH_EXEC: return no_program(s, l, dir, err);
    case SEARCH_EXIT: return no_process(s, l, dir, err);
    case SEARCH_MARK: return no_mark(s, l, dir, err);
    case SEARCH_PANIC: return err_set(err, -ESRCH, "the guest's kernel did not panic");
    case SEARCH_CRASH: break;
    }
    if (s->seen)
        return err_set(err, -ESRCH, "there %s only %" PRIu64 ": crash#%" PRIu64 " is the last",
                       s->seen == 1 ? "was" : "were", s->seen, s->seen);
    return err_set(err, -ESRCH,
                   "no process died of a signal, and the guest's kernel had no oops (`reprise ps "
                   "%s` says how each ended)",
                   dir);
}

/* ---- going there ---- */

/* The kernel has put a program in place. To its first instruction, unless it is killed before. */
static int to_program(struct travel *tr, enum timeline_stop *stop, struct err *err)
{
    struct process begins, now;
    bool there = false;
    struct instant from = timeline_now(tr->t);
    const struct symbols *symbols = travel_symbols(tr);
    struct debug_point points[] = {{.kind = DEBUG_TO_USER}, {.kind = DEBUG_EXEC, .length = 1}};
    if (!symbols || !symbols_address(symbols, "do_exit", &points[1].address))
        return err_set(err, -ENOENT, "the guest's kernel has no function do_exit");
    travel_process(tr, &begins);
    struct travel_aside aside;
    int code = travel_put_aside(tr, &aside, err);
    if (code)
        return code;
    code = timeline_set_points(tr->t, points, ARRAY_SIZE(points), err);
    for (bool pass = false; !code; pass = true) {
        code = timeline_forward(tr->t, (struct instant){NEVER, 0}, pass, stop, err);
        if (code || *stop != TIMELINE_HIT)
            break;
        travel_process(tr, &now);
        if (!process_same_thread(&now, &begins, false))
            continue;
        there = now.user;
        break;
    }
    if (!code && !there && *stop != TIMELINE_INTERRUPTED)
        code = timeline_return(tr->t, from, err);
    if (*stop != TIMELINE_INTERRUPTED)
        *stop = TIMELINE_REACHED;
    return travel_put_back(tr, &aside, code, err);
}

/* Where positions count branches, one of them is several instructions: to the kernel's function
 * that the point is at. */
static int to_function(struct travel *tr, enum point_kind kind, enum timeline_stop *stop,
                       struct err *err)
{
    static const struct {
        const char *name;
        bool exit, crash, panic; /* where such a point may be */
    } names[] = {{"do_exit", true, true, false},       {"do_coredump", false, true, false},
                 {"vfs_coredump", false, true, false}, {"do_group_exit", false, true, false},
                 {"oops_begin", false, true, false},   {"panic", false, false, true}};
    struct debug_point points[ARRAY_SIZE(names)];
    struct travel_aside aside;
    const struct symbols *symbols = travel_symbols(tr);
    unsigned n = 0;
    for (unsigned i = 0; symbols && i < ARRAY_SIZE(names); i++) {
        bool wanted = kind == POINT_EXIT    ? names[i].exit
                      : kind == POINT_PANIC ? names[i].panic
                                            : names[i].crash;
        points[n] = (struct debug_point){.kind = DEBUG_EXEC, .length = 1};
        n += wanted && symbols_address(symbols, names[i].name, &points[n].address);
    }
    int code = travel_put_aside(tr, &aside, err);
    if (code)
        return code;
    code = timeline_set_points(tr->t, points, n, err);
    struct instant next = {timeline_now(tr->t).position + 1, 0};
    if (!code)
        code = timeline_forward(tr->t, next, false, stop, err);
    if (*stop != TIMELINE_INTERRUPTED)
        *stop = TIMELINE_REACHED;
    return travel_put_back(tr, &aside, code, err);
}

/* The same, behind the instruction that makes a mark. */
static int to_mark(struct travel *tr, enum timeline_stop *stop, struct err *err)
{
    const struct debug_point point = {.kind = DEBUG_MARK};
    struct travel_aside aside;
    int code = travel_put_aside(tr, &aside, err);
    if (code)
        return code;
    code = timeline_set_points(tr->t, &point, 1, err);
    struct instant next = {timeline_now(tr->t).position + 1, 0};
    if (!code)
        code = timeline_forward(tr->t, next, false, stop, err);
    if (*stop != TIMELINE_INTERRUPTED)
        *stop = TIMELINE_REACHED;
    return travel_put_back(tr, &aside, code, err);
}

static struct life_search search_for(const struct point *p)
{
    struct life_search s = {.k = p->n, .name = p->text, .pid = p->pid, .who = LIVES_NONE};
    s.kind = p->kind == POINT_EXEC    ? SEARCH_EXEC
             : p->kind == POINT_EXIT  ? SEARCH_EXIT
             : p->kind == POINT_CRASH ? SEARCH_CRASH
             : p->kind == POINT_PANIC ? SEARCH_PANIC
                                      : SEARCH_MARK;
    return s;
}

/* NAME#K of a mark that no name is: a mark that somebody set may have a # in its name. */
static void split_count(struct point *p, u64 *k)
{
    char *hash = strrchr(p->text, '#'), *end;
    *k = 1;
    if (!hash || hash == p->text || hash[1] < '1' || hash[1] > '9')
        return;
    u64 n = strtoull(hash + 1, &end, 10);
    if (*end)
        return;
    *hash = 0;
    *k = n;
}

int history_seek(struct travel *tr, const struct point *p, enum timeline_stop *stop,
                 struct err *err)
{
    struct life_search s = search_for(p);
    struct point name = *p;
    if (p->kind == POINT_MARK) {
        split_count(&name, &s.k);
        s.name = name.text;
    }
    const char *dir = timeline_recording(tr->t)->quoted;
    int code = history_search(tr, &s, err);
    const struct lives *l = history_lives(tr);
    if (!code || code == -ESRCH) {
        if (*l->lacks && (p->kind == POINT_EXEC || p->kind == POINT_EXIT))
            return err_set(err, -ENOTSUP,
                           "%s: programs and processes cannot be found; `panic` can, and `crash` "
                           "finds oopses of the kernel",
                           l->lacks);
        if (*l->lacks && p->kind == POINT_CRASH)
            fprintf(stderr,
                    "reprise: %s: `crash` finds oopses of the kernel only, not signals that "
                    "processes died of\n",
                    l->lacks);
    }
    if (code)
        return code == -ESRCH ? not_there(&s, l, dir, err) : code;
    code = timeline_seek(tr->t, (struct instant){s.at.position, s.at.time}, stop, err);
    if (code || *stop != TIMELINE_REACHED)
        return code;
    if (p->kind == POINT_EXEC)
        return to_program(tr, stop, err);
    if (!machine_by_branch(timeline_machine(tr->t)))
        return 0;
    return p->kind == POINT_MARK ? to_mark(tr, stop, err) : to_function(tr, p->kind, stop, err);
}
