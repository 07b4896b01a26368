/* See debug_process.h. */
#include "cmd/debug_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"

/* Its threads as gdb is told of them: without memory for all, as many as there is room for. */
static void list_threads(struct debug_session *s)
{
    const struct program *p = &s->shown.program;
    if (s->shown.room < p->count) {
        struct gdb_thread *bigger = realloc(s->shown.list, p->room * sizeof(*bigger));
        if (bigger) {
            s->shown.list = bigger;
            s->shown.room = p->room;
        }
    }
    s->shown.count = MIN(p->count, s->shown.room);
    for (u32 i = 0; i < s->shown.count; i++) {
        const struct program_thread *t = &p->threads[i];
        s->shown.list[i] = (struct gdb_thread){.id = t->tid,
                                               .where = t->user      ? "running"
                                                        : t->running ? "in the kernel, running"
                                                                     : "in the kernel"};
        memcpy(s->shown.list[i].name, t->comm, sizeof(t->comm));
    }
}

/* The process, looked at anew where the machine has moved. */
static const struct program *look(struct debug_session *s)
{
    struct instant now = timeline_now(s->tr->t);
    if (!s->shown.looked || !instant_equal(s->shown.at, now)) {
        program_look(&s->shown.program, &s->shown.layout, timeline_machine(s->tr->t));
        list_threads(s);
        s->shown.looked = true;
        s->shown.at = now;
    }
    return &s->shown.program;
}

static const struct program_thread *find(struct debug_session *s, i32 id)
{
    const struct program *p = look(s);
    for (u32 i = 0; i < p->count; i++)
        if (p->threads[i].tid == id)
            return &p->threads[i];
    return NULL;
}

static bool target_threads(void *opaque, const struct gdb_thread **list, size_t *count, i32 *now)
{
    struct debug_session *s = opaque;
    if (!debug_process_on(s))
        return false;
    const struct program *p = look(s);
    *count = s->shown.count;
    *list = s->shown.list;
    *now = find(s, s->shown.stopped) ? s->shown.stopped : p->count ? p->threads[0].tid : 0;
    return true;
}

static bool target_thread(void *opaque, i32 id, struct vcpu *out, bool *fpu)
{
    struct debug_session *s = opaque;
    const struct program_thread *t = find(s, id);
    return t && program_registers(&s->shown.layout, timeline_machine(s->tr->t), t, out, fpu);
}

static bool target_peek(void *opaque, u64 address, void *out, size_t len)
{
    struct debug_session *s = opaque;
    return program_peek(look(s), timeline_machine(s->tr->t), address, out, len);
}

/* NAME#K; the number 0: the only one. */
static bool parse(const char *spec, i32 *pid, char *name, size_t size, u32 *k)
{
    char *end;
    const char *hash = strrchr(spec, '#');
    unsigned long number = strtoul(spec, &end, 10);
    *pid = 0;
    *k = 0;
    if (*spec >= '0' && *spec <= '9' && !*end) {
        *pid = number > INT32_MAX ? 0 : (i32)number;
        return *pid > 0;
    }
    size_t len = hash ? (size_t)(hash - spec) : strlen(spec);
    if (!len || len >= size)
        return false;
    memcpy(name, spec, len);
    name[len] = 0;
    if (hash) {
        number = strtoul(hash + 1, &end, 10);
        *k = number > INT32_MAX ? 0 : (u32)number;
    }
    return !hash || (hash[1] >= '0' && hash[1] <= '9' && !*end && *k);
}

int debug_process_open(struct debug_session *s, const char *spec, struct err *err)
{
    struct machine *m = timeline_machine(s->tr->t);
    const struct symbols *symbols = travel_symbols(s->tr);
    char name[256];
    i32 pid;
    u32 k;
    if (!parse(spec, &pid, name, sizeof(name), &k))
        return err_set(err, -EINVAL,
                       "--process %s: neither the number of a process nor NAME or NAME#K", spec);
    if (!symbols)
        return err_set(err, -ENOENT,
                       "--process %s: no Linux kernel is to be seen in the guest's memory at this "
                       "position; --to says where to look",
                       spec);
    int code = program_learn(&s->shown.layout, m, symbols, err);
    if (!code)
        code = program_find(&s->shown.program, &s->shown.layout, m, pid, name, k, err);
    if (code) {
        program_free(&s->shown.program);
        return err_prefix(err, "--process");
    }
    if (!s->shown.program.root) {
        program_free(&s->shown.program);
        return err_set(err, -ENOENT,
                       "--process %s: that is a thread of the kernel, or a process that has ended: "
                       "it has no memory of its own here",
                       spec);
    }
    debug_process_stopped(s, 0);
    return 0;
}

void debug_process_serve(struct gdb_target *t)
{
    t->threads = target_threads;
    t->thread = target_thread;
    t->peek = target_peek;
}

bool debug_process_registers(struct debug_session *s, i32 id, struct vcpu *out)
{
    bool fpu;
    return target_thread(s, id, out, &fpu);
}

int debug_process_arm(struct debug_session *s, struct err *err)
{
    static const char *const names[STEP_POINTS] = {"do_exit", "finalize_exec"};
    const struct symbols *symbols = travel_symbols(s->tr);
    unsigned n = s->npoints;
    for (unsigned i = 0; i < STEP_POINTS; i++) {
        struct debug_point *d = &s->engine_points[n + i];
        memset(d, 0, sizeof(*d));
        d->kind = DEBUG_EXEC;
        d->length = 1;
        if (!symbols || !symbols_address(symbols, names[i], &d->address))
            return err_set(err, -ENOENT, "the guest's kernel has no function %s", names[i]);
    }
    int code = timeline_set_points(s->tr->t, s->engine_points, n + STEP_POINTS, err);
    s->step_armed = !code;
    s->step_by = STEP_PROCESS;
    s->shown.run = !code;
    return code;
}

bool debug_process_holds(struct debug_session *s, unsigned point)
{
    struct process now;
    if (!s->shown.run || point < s->npoints)
        return false;
    travel_process(s->tr, &now);
    return debug_process_is(s, &now) &&
           (point > s->npoints ||
            program_last(&s->shown.layout, timeline_machine(s->tr->t), now.task));
}

int debug_process_event(struct debug_session *s, bool back, enum timeline_stop *what,
                        struct gdb_stop *stop, struct err *err)
{
    bool ends = timeline_hit(s->tr->t)->point == s->npoints, own;
    travel_process(s->tr, &s->step_thread);
    if (ends) {
        process_end_sentence(&s->step_thread, timeline_machine(s->tr->t), stop->text,
                             sizeof(stop->text));
        *what = TIMELINE_END;
        return 0;
    }
    struct process was = s->step_thread;
    int code = debug_step_cross(s, false, what, &own, err);
    if (code || !own)
        return code;
    snprintf(stop->text, sizeof(stop->text),
             back ? "The program begins here: before, %s (pid %d) was another one."
                  : "%s (pid %d) begins to run this program here; its symbols: `file`.",
             was.comm, was.tgid);
    *what = back ? TIMELINE_BEGIN : TIMELINE_REACHED;
    return 0;
}

void debug_process_close(struct debug_session *s)
{
    program_free(&s->shown.program);
    free(s->shown.list);
    s->shown.list = NULL;
}

bool debug_process_is(const struct debug_session *s, const struct process *now)
{
    return now->task && now->tgid == s->shown.program.pid;
}

bool debug_process_thread(struct debug_session *s, i32 id, struct process *out)
{
    const struct program_thread *t = find(s, id);
    if (!t)
        return false;
    travel_process(s->tr, out);
    out->task = t->task;
    out->pid = t->tid;
    out->tgid = s->shown.program.pid;
    memcpy(out->comm, t->comm, sizeof(out->comm));
    return true;
}

void debug_process_stopped(struct debug_session *s, i32 id)
{
    struct process now;
    travel_process(s->tr, &now);
    if (!id && debug_process_is(s, &now))
        id = now.pid;
    if (id)
        s->shown.stopped = id;
}
