/* See lives_watch.h. */
#include "inspect/lives_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cpu/vcpu.h"
#include "guest-agent/reprise-mark.h"
#include "machine/machine.h"

#define COMMAND_MAX   4096u /* bytes of arguments that are read */
#define FILE_NAME_MAX 256u  /* ... of a file's name */
#define COMM          sizeof(((struct life *)0)->comm)
#define HASH_BITS     12

static const struct {
    const char *name, *other;
    bool needed;
} functions[LIFE_POINTS] = {
#define LIFE_POINT(name, function, other, needed) [AT_##name] = {function, other, needed},
#include "inspect/life_events.def"
#undef LIFE_POINT
};

/* ---- those that live, by their tasks ---- */

static u32 *place(const struct lives_watch *w, u64 task)
{
    return &w->hash[(task * 0x9e3779b97f4a7c15ull) >> (64 - HASH_BITS)];
}

static int put(struct lives_watch *w, u32 who, struct err *err)
{
    if (who >= w->room) {
        u32 room = MAX(2 * who, 1024u);
        struct lives_watched *more = realloc(w->of, room * sizeof(*more));
        if (!more)
            return err_set(err, -ENOMEM, "no memory for the guest's processes");
        memset(more + w->room, 0, (room - w->room) * sizeof(*more));
        w->of = more;
        w->room = room;
    }
    u32 *first = place(w, w->lives->list[who].task);
    w->of[who] = (struct lives_watched){.next = *first};
    *first = who;
    return 0;
}

static u32 find(const struct lives_watch *w, u64 task)
{
    u32 i = task ? *place(w, task) : LIVES_NONE;
    while (i != LIVES_NONE && w->lives->list[i].task != task)
        i = w->of[i].next;
    return i;
}

static void take(struct lives_watch *w, u32 who)
{
    u32 *at = place(w, w->lives->list[who].task);
    while (*at != who)
        at = &w->of[*at].next;
    *at = w->of[who].next;
}

/* ---- what the kernel has of a task ---- */

static bool read_word(struct machine *m, u64 at, u64 *out)
{
    return at >= SYMBOLS_FLOOR && machine_peek(m, at, out, 8);
}

static bool read_number(struct machine *m, u64 at, i32 *out)
{
    return at >= SYMBOLS_FLOOR && machine_peek(m, at, out, 4);
}

/* Printable, and the same bytes for the same name. */
static void tidy(char comm[COMM])
{
    comm[COMM - 1] = 0;
    text_ascii(comm);
    memset(comm + strlen(comm), 0, COMM - strlen(comm));
}

static void read_comm(const struct lives_watch *w, struct machine *m, u64 task, char comm[COMM])
{
    memset(comm, 0, COMM);
    if (task < SYMBOLS_FLOOR || !machine_peek(m, task + w->comm_at, comm, COMM))
        memset(comm, 0, COMM);
    tidy(comm);
}

static i32 read_parent(const struct lives_watch *w, struct machine *m, u64 task)
{
    u64 parent;
    i32 number;
    return read_word(m, task + w->parent_at, &parent) &&
                   read_number(m, parent + w->tgid_at, &number)
               ? number
               : 0;
}

/* What it says of itself now. */
static void read_task(const struct lives_watch *w, struct machine *m, u64 task,
                      struct life_event *e)
{
    u64 mm;
    e->task = task;
    if (!read_number(m, task + w->pid_at, &e->pid) || !read_number(m, task + w->tgid_at, &e->tgid))
        e->pid = e->tgid = 0;
    read_comm(w, m, task, e->comm);
    e->parent = read_parent(w, m, task);
    e->kernel = read_word(m, task + w->mm_at, &mm) && !mm;
}

/* The arguments, which lie behind each other with a NUL each. */
static void read_command(struct lives_watch *w, struct machine *m, u64 mm, struct life_event *e)
{
    u64 start, end;
    char text[COMMAND_MAX + 1];
    if (!read_word(m, mm + w->start_at, &start) || !read_word(m, mm + w->end_at, &end) ||
        end <= start || start >= SYMBOLS_FLOOR)
        return;
    size_t size = (size_t)MIN(end - start, (u64)COMMAND_MAX), got = 0;
    while (got < size) {
        size_t n = MIN(size - got, PAGE_SIZE - (size_t)((start + got) & (PAGE_SIZE - 1)));
        if (!machine_peek(m, start + got, text + got, n))
            break;
        got += n;
    }
    while (got && !text[got - 1])
        got--;
    text[got] = 0;
    e->first = (u32)strlen(text);
    for (size_t i = 0; i < got; i++)
        if (!text[i])
            text[i] = ' ';
    text_ascii(text);
    e->command = lives_add_text(w->lives, text, got);
    if (!e->command)
        e->first = 0;
}

/* The name of the file that it was read from. */
static void read_program(struct lives_watch *w, struct machine *m, u64 mm, struct life_event *e)
{
    u64 file, entry, name;
    char text[FILE_NAME_MAX];
    if (!w->has_program || !read_word(m, mm + w->program_at, &file) ||
        !read_word(m, file + w->path_at, &entry) || !read_word(m, entry + w->name_at, &name) ||
        name < SYMBOLS_FLOOR)
        return;
    size_t n = 0;
    while (n < sizeof(text) - 1 && machine_peek(m, name + n, text + n, 1) && text[n])
        n++;
    text[n] = 0;
    text_ascii(text);
    e->program = lives_add_text(w->lives, text, n);
}

/* ---- learning ---- */

static int learn_layout(struct lives_watch *w, const struct guest_linux *g, const struct symbols *s,
                        struct err *err)
{
    struct btf b;
    if (s->narrow)
        return err_set(err, -ENOENT, "the guest's kernel has 32 bits, and no type information");
    int code = btf_read(&b, g, s, err);
    if (code)
        return code;
    if (!btf_member(&b, "task_struct", "pid", &w->pid_at, NULL) ||
        !btf_member(&b, "task_struct", "tgid", &w->tgid_at, NULL) ||
        !btf_member(&b, "task_struct", "comm", &w->comm_at, NULL) ||
        !btf_member(&b, "task_struct", "real_parent", &w->parent_at, NULL) ||
        !btf_member(&b, "task_struct", "mm", &w->mm_at, NULL) ||
        !btf_member(&b, "mm_struct", "arg_start", &w->start_at, NULL) ||
        !btf_member(&b, "mm_struct", "arg_end", &w->end_at, NULL))
        code = err_set(err, -ENOENT, "the guest's kernel does not say what its tasks look like");
    w->has_program = btf_member(&b, "mm_struct", "exe_file", &w->program_at, NULL) &&
                     btf_member(&b, "file", "f_path.dentry", &w->path_at, NULL) &&
                     btf_member(&b, "dentry", "d_name.name", &w->name_at, NULL);
    if (!code)
        code = guest_current_of(&w->current.where, g, s, &b, err);
    w->current.known = !code;
    w->current.floor = s->floor;
    btf_free(&b);
    return code;
}

/* *lacks is true where a function is missing without which nothing is known of processes. */
static void learn_points(struct lives_watch *w, const struct symbols *s, struct err *why)
{
    for (unsigned i = 0; i < LIFE_POINTS; i++) {
        u64 *at = &w->address[i];
        if (!symbols_address(s, functions[i].name, at) &&
            !(functions[i].other && symbols_address(s, functions[i].other, at))) {
            *at = 0;
            if (functions[i].needed && !why->code)
                err_set(why, -ENOENT, "the guest's kernel has no function %s", functions[i].name);
        }
    }
}

/* The task that was there before all others: nothing makes it. */
static int add_first(struct lives_watch *w, const struct symbols *s, struct err *err)
{
    struct life_event e = {.kind = LIFE_BEGIN,
                           .who = LIVES_NONE,
                           .by = LIVES_NONE,
                           .at = {NEVER, 0},
                           .kernel = true,
                           .comm = "swapper/0"};
    if (!symbols_address(s, "init_task", &e.task))
        return 0;
    return lives_add(w->lives, &e, err);
}

static int learn_tasks(struct lives_watch *w, const struct symbols *s, struct err *err)
{
    struct lives *l = w->lives;
    w->hash = malloc(sizeof(*w->hash) << HASH_BITS);
    if (!w->hash)
        return err_set(err, -ENOMEM, "no memory for the guest's processes");
    for (u32 i = 0; i < 1u << HASH_BITS; i++)
        w->hash[i] = LIVES_NONE;
    int code = l->nevents ? 0 : add_first(w, s, err);
    for (u32 i = 0; !code && i < l->count; i++) {
        if (l->list[i].ended.position != NEVER || find(w, l->list[i].task) != LIVES_NONE)
            continue;
        code = put(w, i, err);
    }
    return code;
}

int lives_watch_learn(struct lives_watch *w, struct lives *l, struct machine *m, struct err *err)
{
    struct guest_memory memory;
    struct guest_linux g;
    struct symbols s;
    struct err why = {0};
    *w = (struct lives_watch){.lives = l};
    guest_memory_init(&memory, m);
    int code = guest_linux_open(&g, &memory, err);
    if (!code)
        code = guest_linux_kernel(&g, &s, err);
    if (code) {
        guest_linux_close(&g);
        return code;
    }
    learn_points(w, &s, &why);
    if (!why.code && learn_layout(w, &g, &s, &why) == -ENOMEM) {
        *err = why;
        code = err->code;
    }
    snprintf(l->lacks, sizeof(l->lacks), "%.*s", (int)sizeof(l->lacks) - 1,
             why.code ? why.text : "");
    if (!code && !why.code)
        code = learn_tasks(w, &s, err);
    if (why.code) {
        w->current.known = false;
        for (unsigned i = 0; i < LIFE_POINTS; i++)
            if (i != AT_OOPS && i != AT_PANIC)
                w->address[i] = 0;
    }
    symbols_free(&s);
    guest_linux_close(&g);
    if (code)
        lives_watch_free(w);
    return code;
}

void lives_watch_free(struct lives_watch *w)
{
    free(w->hash);
    free(w->of);
    *w = (struct lives_watch){0};
}

/* ---- what happens ---- */

static struct life_time now_of(struct machine *m)
{
    return (struct life_time){machine_position(m), machine_now(m)};
}

static struct life_event event_of(enum life_event_kind kind, u32 who, struct machine *m)
{
    return (struct life_event){.kind = kind, .who = who, .by = LIVES_NONE, .at = now_of(m)};
}

/* One whose address has another task already was never seen to end. */
static int began(struct lives_watch *w, struct machine *m, u32 by, struct err *err)
{
    u64 task = machine_vcpu(m)->gpr[RDI];
    u32 before = find(w, task);
    struct life_event e = event_of(LIFE_BEGIN, LIVES_NONE, m);
    e.by = by;
    read_task(w, m, task, &e);
    if (before != LIVES_NONE)
        take(w, before);
    u32 count = w->lives->count;
    int code = lives_add(w->lives, &e, err);
    return code || w->lives->count == count ? code : put(w, count, err);
}

/* A thread that executes a program becomes its process: it takes the number of that. */
static int executed(struct lives_watch *w, struct machine *m, u32 who, struct err *err)
{
    u64 mm;
    struct life_event e = event_of(LIFE_EXEC, who, m);
    read_task(w, m, w->lives->list[who].task, &e);
    w->of[w->lives->list[who].process].leaving = false;
    if (read_word(m, e.task + w->mm_at, &mm)) {
        read_command(w, m, mm, &e);
        read_program(w, m, mm, &e);
    }
    return lives_add(w->lives, &e, err);
}

static int named(struct lives_watch *w, u32 who, const char comm[COMM], struct life_time at,
                 struct err *err)
{
    struct life_event e = {.kind = LIFE_NAME, .who = who, .by = LIVES_NONE, .at = at};
    if (!memcmp(w->lives->list[who].comm, comm, COMM))
        return 0;
    memcpy(e.comm, comm, COMM);
    return lives_add(w->lives, &e, err);
}

static int has_parent(struct lives_watch *w, struct machine *m, u32 who, struct life_time at,
                      struct err *err)
{
    struct life_event e = {.kind = LIFE_PARENT, .who = who, .by = LIVES_NONE, .at = at};
    e.parent = read_parent(w, m, w->lives->list[who].task);
    return e.parent == w->lives->list[who].parent ? 0 : lives_add(w->lives, &e, err);
}

/* __set_task_comm(task, name, ...) */
static int will_be_named(struct lives_watch *w, struct machine *m, struct err *err)
{
    const struct vcpu *c = machine_vcpu(m);
    char comm[COMM] = "";
    u32 who = find(w, c->gpr[RDI]);
    if (who == LIVES_NONE)
        return 0;
    for (unsigned i = 0; i < COMM - 1; i++)
        if (!machine_peek(m, c->gpr[RSI] + i, &comm[i], 1) || !comm[i])
            break;
    tidy(comm);
    return named(w, who, comm, now_of(m), err);
}

/* Of a process the first one is what ends it: others of its threads are only told to. */
static int leaves(struct lives_watch *w, struct machine *m, u32 who, u32 code, struct err *err)
{
    u32 process = w->lives->list[who].process;
    if (w->of[process].leaving)
        return 0;
    w->of[process].leaving = true;
    struct life_event e = event_of(code & 0x7f ? LIFE_FATAL : LIFE_LEAVE, who, m);
    e.code = code & 0x7f;
    return lives_add(w->lives, &e, err);
}

static int dumps_core(struct lives_watch *w, struct machine *m, u32 who, struct err *err)
{
    i32 signal; /* si_signo, the first in siginfo */
    if (!read_number(m, machine_vcpu(m)->gpr[RDI], &signal) || signal <= 0)
        return 0;
    return leaves(w, m, who, (u32)signal, err);
}

static int ends(struct lives_watch *w, struct machine *m, u32 who, struct err *err)
{
    struct life_event e = event_of(LIFE_END, who, m);
    char comm[COMM];
    e.code = (u32)machine_vcpu(m)->gpr[RDI] & 0xffff;
    read_comm(w, m, w->lives->list[who].task, comm);
    int code = named(w, who, comm, e.at, err);
    return code ? code : lives_add(w->lives, &e, err);
}

/* Its children have other parents now. */
static int is_dead(struct lives_watch *w, struct machine *m, u32 who, struct err *err)
{
    i32 number = w->lives->list[who].tgid;
    int code = 0;
    take(w, who);
    for (u32 i = 0; i < 1u << HASH_BITS; i++)
        for (u32 k = w->hash[i]; !code && k != LIVES_NONE; k = w->of[k].next)
            if (w->lives->list[k].parent == number)
                code = has_parent(w, m, k, now_of(m), err);
    return code;
}

int lives_watch_hit(struct lives_watch *w, struct machine *m, enum life_point point,
                    struct err *err)
{
    struct process now = {0};
    if (w->current.known)
        process_read(&w->current, m, &now);
    u32 who = w->current.known ? find(w, now.task) : LIVES_NONE;
    struct life_event e = event_of(point == AT_OOPS ? LIFE_OOPS : LIFE_PANIC, who, m);
    switch (point) {
    case AT_BEGIN: return began(w, m, who, err);
    case AT_NAME: return will_be_named(w, m, err);
    case AT_OOPS:
    case AT_PANIC: return lives_add(w->lives, &e, err);
    default: break;
    }
    if (who == LIVES_NONE)
        return 0;
    switch (point) {
    case AT_EXEC: return executed(w, m, who, err);
    case AT_CORE: return dumps_core(w, m, who, err);
    case AT_GROUP_EXIT: return leaves(w, m, who, (u32)machine_vcpu(m)->gpr[RDI], err);
    case AT_END: return ends(w, m, who, err);
    case AT_DEAD: return is_dead(w, m, who, err);
    default: return 0;
    }
}

int lives_watch_mark(struct lives_watch *w, struct machine *m, struct err *err)
{
    static const unsigned words[] = {RSI, RDI, R8, R9, R10, R11};
    char name[REPRISE_MARK_MAX + 1] = "";
    struct process now = {0};
    const struct vcpu *v = machine_vcpu(m);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        memcpy(name + 8 * i, &v->gpr[words[i]], 8);
    if (!*name)
        return 0;
    text_ascii(name);
    if (w->current.known)
        process_read(&w->current, m, &now);
    struct life_event e = event_of(LIFE_MARK, w->current.known ? find(w, now.task) : LIVES_NONE, m);
    e.command = lives_add_text(w->lives, name, strlen(name));
    e.first = e.command ? (u32)strlen(name) : 0;
    return lives_add(w->lives, &e, err);
}

int lives_watch_look(struct lives_watch *w, struct machine *m, struct life_time at, struct err *err)
{
    int code = 0;
    for (u32 i = 0; w->hash && i < 1u << HASH_BITS; i++)
        for (u32 k = w->hash[i]; !code && k != LIVES_NONE; k = w->of[k].next) {
            char comm[COMM];
            if (w->lives->list[k].ended.position != NEVER)
                continue;
            read_comm(w, m, w->lives->list[k].task, comm);
            code = *comm ? named(w, k, comm, at, err) : 0;
            if (!code)
                code = has_parent(w, m, k, at, err);
        }
    return code;
}
