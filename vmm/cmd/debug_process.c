/* See debug_process.h. */
#include "cmd/debug_process.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/debug_events.h"
#include "cmd/debug_files.h"
#include "cmd/history.h"
#include "cpu/vcpu.h"
#include "inspect/program_file.h"

static void add_threads(struct debug_session *s, const struct program *p)
{
    for (u32 i = 0; i < p->count && s->shown.count < s->shown.room; i++) {
        const struct program_thread *t = &p->threads[i];
        struct gdb_thread *to = &s->shown.list[s->shown.count++];
        *to = (struct gdb_thread){.id = t->tid,
                                  .process = p->pid,
                                  .where = t->user      ? "running"
                                           : t->running ? "in the kernel, running"
                                                        : "in the kernel"};
        memcpy(to->name, t->comm, sizeof(t->comm));
    }
}

/* Its threads as gdb is told of them: without memory for all, as many as there is room for. */
static void list_threads(struct debug_session *s)
{
    u32 count = s->shown.program.count + s->shown.other.count;
    if (s->shown.room < count) {
        u32 room = s->shown.program.room + s->shown.other.room;
        struct gdb_thread *bigger = realloc(s->shown.list, room * sizeof(*bigger));
        if (bigger) {
            s->shown.list = bigger;
            s->shown.room = room;
        }
    }
    s->shown.count = 0;
    add_threads(s, &s->shown.program);
    add_threads(s, &s->shown.other);
}

/* The process, and the other one, looked at anew where the machine has moved. */
static const struct program *look(struct debug_session *s)
{
    struct instant now = timeline_now(s->tr->t);
    if (!s->shown.looked || !instant_equal(s->shown.at, now)) {
        program_look(&s->shown.program, &s->shown.layout, timeline_machine(s->tr->t));
        if (s->shown.other.pid)
            program_look(&s->shown.other, &s->shown.layout, timeline_machine(s->tr->t));
        list_threads(s);
        s->shown.looked = true;
        s->shown.at = now;
    }
    return &s->shown.program;
}

static const struct program_thread *find_in(const struct program *p, i32 id)
{
    for (u32 i = 0; i < p->count; i++)
        if (p->threads[i].tid == id)
            return &p->threads[i];
    return NULL;
}

static const struct program_thread *find(struct debug_session *s, i32 id)
{
    const struct program_thread *t = find_in(look(s), id);
    return t ? t : find_in(&s->shown.other, id);
}

static bool target_threads(void *opaque, const struct gdb_thread **list, size_t *count, i32 *now)
{
    struct debug_session *s = opaque;
    if (!debug_process_on(s))
        return false;
    const struct program *p = look(s);
    *count = s->shown.count;
    *list = s->shown.list;
    *now = find_in(p, s->shown.stopped) ? s->shown.stopped : p->count ? p->threads[0].tid : 0;
    return true;
}

static bool target_thread(void *opaque, i32 id, struct vcpu *out, bool *fpu, u64 *call)
{
    struct debug_session *s = opaque;
    const struct program_thread *t = find(s, id);
    return t && program_registers(&s->shown.layout, timeline_machine(s->tr->t), t, out, fpu, call);
}

static bool target_peek(void *opaque, i32 thread, u64 address, void *out, size_t len)
{
    struct debug_session *s = opaque;
    const struct program *p = look(s);
    if (thread && find_in(&s->shown.other, thread))
        p = &s->shown.other;
    return program_peek(p, &s->shown.layout, timeline_machine(s->tr->t), address, out, len);
}

static size_t target_auxv(void *opaque, void *out, size_t size)
{
    struct debug_session *s = opaque;
    u8 vector[PROGRAM_AUXV_MAX];
    bool narrow;
    size_t len =
        program_auxv(look(s), &s->shown.layout, timeline_machine(s->tr->t), vector, &narrow);
    if (len > size)
        return 0;
    memcpy(out, vector, len);
    return len;
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

static int bad_spec(const char *spec, struct err *err)
{
    return err_set(err, -EINVAL, "--process %s: neither the number of a process nor NAME or NAME#K",
                   spec);
}

/* Is it there, or are there several? */
static bool lives(struct travel *tr, i32 pid, const char *name, u32 k)
{
    struct program_layout layout;
    struct program program = {0};
    struct machine *m = timeline_machine(tr->t);
    const struct symbols *symbols = travel_symbols(tr);
    struct err err = {0};
    if (!symbols || program_learn(&layout, m, symbols, &err))
        return true; /* who opens it says why not */
    int code = program_find(&program, &layout, m, pid, pid ? NULL : name, k, &err);
    bool there = code ? code != -ENOENT : program.root;
    program_free(&program);
    return there;
}

/* The last program that the last process of that number executed, as a search for it. */
static int last_program(struct travel *tr, i32 pid, struct point *p, struct err *err)
{
    const char *dir = timeline_recording(tr->t)->quoted;
    int code = history_reach(tr, (struct instant){NEVER, 0}, err);
    const struct lives *l = history_lives(tr);
    const struct life_event *last = NULL;
    bool any = false;
    for (u32 i = 0; !code && i < l->nevents; i++) {
        const struct life_event *e = &l->events[i];
        any = any || (e->kind == LIFE_BEGIN && e->pid == pid);
        if (e->kind == LIFE_EXEC && e->pid == pid)
            last = e;
    }
    if (code)
        return code;
    if (!last && any)
        return err_set(err, -ESRCH,
                       "process %d executed no program; --to exit:%d shows it where it ends", pid,
                       pid);
    if (!last)
        return err_set(err, -ESRCH, "there was no process %d; `reprise ps %s` lists all", pid, dir);
    /* By a name that it has, and which one of that name it is. */
    *p = (struct point){.kind = POINT_EXEC};
    p->len = strlen(last->comm);
    memcpy(p->text, last->comm, sizeof(last->comm));
    for (const struct life_event *e = l->events; e <= last; e++)
        p->n += life_is_program(l, e, p->text);
    return 0;
}

int debug_process_seek(struct travel *tr, const char *spec, char now[16], struct err *err)
{
    struct point p = {.kind = POINT_EXEC};
    struct process there;
    enum timeline_stop stop;
    i32 pid;
    u32 k;
    *now = 0;
    if (!parse(spec, &pid, p.text, sizeof(p.text), &k))
        return bad_spec(spec, err);
    if (lives(tr, pid, p.text, k))
        return 0;
    p.n = MAX(k, 1u);
    int code = pid ? last_program(tr, pid, &p, err) : 0;
    if (!code)
        code = travel_to(tr, &p, &stop, err);
    if (code)
        return err_prefix(err, "--process %s: it is not there at the recording's end", spec);
    travel_process(tr, &there);
    snprintf(now, 16, "%d", there.tgid);
    fprintf(
        stderr,
        "reprise: --process %s: it is not there at the recording's end, so gdb starts where its "
        "program begins: exec:%s#%" PRIu64 ", %s (pid %d)\n",
        spec, p.text, p.n, there.comm, there.tgid);
    return 0;
}

void debug_process_begun(struct travel *tr, const struct point *to, const char *spec, char now[16])
{
    struct process there;
    char name[sizeof(to->text)];
    i32 pid;
    u32 k;
    if (to->kind != POINT_EXEC || !parse(spec, &pid, name, sizeof(name), &k) || pid ||
        strcmp(name, to->text) != 0 || (k && k != to->n))
        return;
    travel_process(tr, &there);
    snprintf(now, 16, "%d", there.tgid);
}

/* Learns the kernel and finds the process. <0 with a text: *out is empty. */
static int find_process(struct debug_session *s, const char *spec, struct program_layout *layout,
                        struct program *out, struct err *err)
{
    struct machine *m = timeline_machine(s->tr->t);
    const struct symbols *symbols = travel_symbols(s->tr);
    char name[256];
    i32 pid;
    u32 k;
    if (!parse(spec, &pid, name, sizeof(name), &k))
        return bad_spec(spec, err);
    if (!symbols)
        return err_set(err, -ENOENT,
                       "--process %s: no Linux kernel is to be seen in the guest's memory at this "
                       "position; --to says where to look",
                       spec);
    int code = program_learn(layout, m, symbols, err);
    if (!code)
        code = program_find(out, layout, m, pid, pid ? NULL : name, k, err);
    if (code) {
        program_free(out);
        return err_prefix(err, "--process");
    }
    if (out->root)
        return 0;
    program_free(out);
    return err_set(err, -ENOENT,
                   "--process %s: that is a thread of the kernel, or a process that has ended: "
                   "it has no memory of its own here",
                   spec);
}

int debug_process_open(struct debug_session *s, const char *spec, struct err *err)
{
    int code = find_process(s, spec, &s->shown.layout, &s->shown.program, err);
    if (code)
        return code;
    s->shown.stopped = 0;
    debug_process_stopped(s, 0);
    return 0;
}

int debug_process_next(struct debug_session *s, const char *spec, struct err *err)
{
    struct program program = {0};
    struct program_layout layout;
    int code = *spec ? find_process(s, spec, &layout, &program, err) : 0;
    *s->shown.next = 0;
    if (*spec && !code)
        snprintf(s->shown.next, sizeof(s->shown.next), "%d", program.pid);
    s->shown.next_there = !code;
    program_free(&program);
    return code;
}

void debug_process_switch(struct debug_session *s)
{
    struct err err;
    struct gdb_stop stop = {.reason = GDB_STOP_TRAP};
    if (!s->shown.next_there)
        return;
    s->shown.next_there = false;
    debug_process_close(s);
    s->shown.program = (struct program){0};
    s->shown.looked = s->shown.happened = s->shown.run = false;
    if (*s->shown.next && !debug_process_open(s, s->shown.next, &err))
        debug_events_signal(s, &stop);
    gdb_server_stands(s->server, &stop);
}

static enum gdb_shows target_shows(void *opaque)
{
    const struct debug_session *s = opaque;
    return !s->shown.next_there ? GDB_SHOWS_SAME
           : *s->shown.next     ? GDB_SHOWS_PROCESS
                                : GDB_SHOWS_MACHINE;
}

void debug_process_serve(struct gdb_target *t)
{
    t->threads = target_threads;
    t->thread = target_thread;
    t->peek = target_peek;
    t->auxv = target_auxv;
    t->shows = target_shows;
    debug_events_serve(t);
    debug_files_serve(t);
}

const struct program *debug_process_look(struct debug_session *s)
{
    return look(s);
}

bool debug_process_registers(struct debug_session *s, i32 id, struct vcpu *out)
{
    bool fpu;
    u64 call;
    return target_thread(s, id, out, &fpu, &call);
}

void debug_process_close(struct debug_session *s)
{
    program_free(&s->shown.program);
    program_free(&s->shown.other);
    free(s->shown.list);
    free(s->shown.calls);
    s->shown.list = NULL;
    s->shown.count = s->shown.room = 0;
    s->shown.calls = NULL;
}

/* Where its own code begins. While its kernel still sets it up that is not known: the place where
 * it has done so. False: not known. */
static bool begins_at(struct debug_session *s, const struct symbols *symbols, u64 *address)
{
    u8 auxv[PROGRAM_AUXV_MAX];
    bool narrow = false;
    size_t size =
        program_auxv(look(s), &s->shown.layout, timeline_machine(s->tr->t), auxv, &narrow);
    return program_auxv_value(auxv, size, narrow, AT_ENTRY, address) ||
           symbols_address(symbols, "finalize_exec", address);
}

/* To where the program's first page is in its memory: where its own code begins, and after that
 * where it ends. */
static int find_id(struct debug_session *s, struct elf_id *id, bool *found, struct err *err)
{
    struct travel_aside aside;
    struct process now;
    enum timeline_stop stop;
    struct instant from = timeline_now(s->tr->t);
    const struct symbols *symbols = travel_symbols(s->tr);
    struct debug_point points[2];
    memset(points, 0, sizeof(points));
    points[0].kind = points[1].kind = DEBUG_EXEC;
    points[0].length = points[1].length = 1;
    if (!symbols || !symbols_address(symbols, "do_exit", &points[1].address))
        return 0;
    int code = travel_put_aside(s->tr, &aside, err);
    if (code)
        return code;
    for (bool pass = false; !code && !*found; pass = true) {
        if (!begins_at(s, symbols, &points[0].address))
            break;
        code = timeline_set_points(s->tr->t, points, 2, err);
        if (!code)
            code = timeline_forward(s->tr->t, (struct instant){NEVER, 0}, pass, &stop, err);
        if (code || stop != TIMELINE_HIT)
            break;
        travel_process(s->tr, &now);
        if (!debug_process_is(s, &now))
            continue;
        *found = program_file_id(look(s), &s->shown.layout, timeline_machine(s->tr->t), id);
        if (timeline_hit(s->tr->t)->point == 1)
            break;
    }
    if (!code)
        code = timeline_return(s->tr->t, from, err);
    return travel_put_back(s->tr, &aside, code, err);
}

int debug_process_file(struct debug_session *s, char path[PROGRAM_PATH_MAX], struct elf_id *id,
                       struct err *err)
{
    *id = (struct elf_id){0};
    if (!program_file_path(look(s), &s->shown.layout, timeline_machine(s->tr->t), path)) {
        *path = 0;
        return 0;
    }
    bool found = program_file_id(look(s), &s->shown.layout, timeline_machine(s->tr->t), id);
    return found ? 0 : find_id(s, id, &found, err);
}

u64 debug_process_space(struct debug_session *s)
{
    return debug_process_on(s) ? look(s)->mm : 0;
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
