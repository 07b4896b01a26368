/* See lives.h. What the kernel calls, with the first argument in RDI: wake_up_new_task(task) once
 * for each new task, before it runs; finalize_exec(bprm) by a task whose new program is in place;
 * do_exit(code) by each that ends. */
#include "inspect/lives.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cpu/vcpu.h"
#include "machine/machine.h"

#define LIVES_MAX   (1u << 20)
#define COMMAND_MAX 4096u       /* bytes of arguments that are read */
#define TEXT_MAX    (64u << 20) /* ... in all */
#define HASH_BITS   12

enum { AT_BEGIN, AT_EXEC, AT_END };
static const char *const functions[LIVES_POINTS] = {
    [AT_BEGIN] = "wake_up_new_task", [AT_EXEC] = "finalize_exec", [AT_END] = "do_exit"};

static struct life_time now_of(struct machine *m)
{
    return (struct life_time){machine_position(m), machine_now(m)};
}

static struct life *add(struct lives *l, struct err *err)
{
    if (l->count == LIVES_MAX) {
        l->cut = true;
        return NULL;
    }
    if (l->count == l->room) {
        u32 room = MAX(2 * l->room, 256u);
        struct life *list = realloc(l->list, room * sizeof(*list));
        if (!list) {
            err_set(err, -ENOMEM, "no memory for the guest's processes");
            return NULL;
        }
        l->list = list;
        l->room = room;
    }
    struct life *one = &l->list[l->count++];
    *one = (struct life){.began = {NEVER, 0}, .executed = {NEVER, 0}, .ended = {NEVER, 0}};
    return one;
}

static u32 *place(const struct lives *l, u64 task)
{
    return &l->hash[(task * 0x9e3779b97f4a7c15ull) >> (64 - HASH_BITS)];
}

/* It lives, under this address. */
static void put(struct lives *l, struct life *one, u64 task)
{
    u32 *first = place(l, task);
    one->task = task;
    one->next = *first;
    *first = (u32)(one - l->list);
}

static struct life *find(const struct lives *l, u64 task)
{
    for (u32 i = *place(l, task); i != LIVES_NONE; i = l->list[i].next)
        if (l->list[i].task == task)
            return &l->list[i];
    return NULL;
}

static void take(struct lives *l, struct life *one)
{
    u32 *at = place(l, one->task), i = (u32)(one - l->list);
    while (*at != i)
        at = &l->list[*at].next;
    *at = one->next;
}

static bool read_word(struct machine *m, u64 at, u64 *out)
{
    return at >= SYMBOLS_FLOOR && machine_peek(m, at, out, 8);
}

static bool read_number(struct machine *m, u64 at, i32 *out)
{
    return at >= SYMBOLS_FLOOR && machine_peek(m, at, out, 4);
}

/* What a task says of itself. */
static void read_task(const struct lives *l, struct machine *m, struct life *one)
{
    u64 parent = 0, mm = 0;
    if (!read_number(m, one->task + l->pid_at, &one->pid) ||
        !read_number(m, one->task + l->tgid_at, &one->tgid) ||
        !machine_peek(m, one->task + l->comm_at, one->comm, sizeof(one->comm)))
        one->pid = one->tgid = 0;
    one->comm[sizeof(one->comm) - 1] = 0;
    text_ascii(one->comm);
    if (!read_word(m, one->task + l->parent_at, &parent) ||
        !read_number(m, parent + l->tgid_at, &one->parent))
        one->parent = 0;
    one->kernel = read_word(m, one->task + l->mm_at, &mm) && !mm;
}

/* The arguments, as they lie behind each other with a NUL each. */
static char *read_command(struct lives *l, struct machine *m, u64 task)
{
    u64 mm, start, end;
    if (!read_word(m, task + l->mm_at, &mm) || !read_word(m, mm + l->start_at, &start) ||
        !read_word(m, mm + l->end_at, &end) || end <= start || start >= SYMBOLS_FLOOR ||
        l->text > TEXT_MAX)
        return NULL;
    size_t size = (size_t)MIN(end - start, (u64)COMMAND_MAX), got = 0;
    char *text = malloc(size + 1);
    while (text && got < size) {
        size_t n = MIN(size - got, PAGE_SIZE - (size_t)((start + got) & (PAGE_SIZE - 1)));
        if (!machine_peek(m, start + got, text + got, n))
            break;
        got += n;
    }
    if (!text || !got) {
        free(text);
        return NULL;
    }
    while (got && !text[got - 1])
        got--;
    for (size_t i = 0; i < got; i++)
        if (!text[i])
            text[i] = ' ';
    text[got] = 0;
    text_ascii(text);
    l->text += got;
    return text;
}

static int learn_layout(struct lives *l, const struct guest_linux *g, const struct symbols *s,
                        struct err *err)
{
    struct btf b;
    if (s->narrow)
        return err_set(err, -ENOENT, "the guest's kernel has 32 bits, and no type information");
    int code = btf_read(&b, g, s, err);
    if (code)
        return code;
    if (!btf_member(&b, "task_struct", "pid", &l->pid_at, NULL) ||
        !btf_member(&b, "task_struct", "tgid", &l->tgid_at, NULL) ||
        !btf_member(&b, "task_struct", "comm", &l->comm_at, NULL) ||
        !btf_member(&b, "task_struct", "real_parent", &l->parent_at, NULL) ||
        !btf_member(&b, "task_struct", "mm", &l->mm_at, NULL) ||
        !btf_member(&b, "mm_struct", "arg_start", &l->start_at, NULL) ||
        !btf_member(&b, "mm_struct", "arg_end", &l->end_at, NULL))
        code = err_set(err, -ENOENT, "the guest's kernel does not say what its tasks look like");
    btf_free(&b);
    return code;
}

int lives_learn(struct lives *l, struct machine *m, const struct symbols *s, struct err *err)
{
    struct guest_memory memory;
    struct guest_linux g;
    struct guest_tasks tasks = {0};
    *l = (struct lives){0};
    for (unsigned i = 0; i < LIVES_POINTS; i++)
        if (!symbols_address(s, functions[i], &l->points[i]))
            return err_set(err, -ENOENT, "the guest's kernel has no function %s", functions[i]);
    l->hash = malloc(sizeof(*l->hash) << HASH_BITS);
    if (!l->hash)
        return err_set(err, -ENOMEM, "no memory for the guest's processes");
    for (u32 i = 0; i < 1u << HASH_BITS; i++)
        l->hash[i] = LIVES_NONE;
    guest_memory_init(&memory, m);
    int code = guest_linux_open(&g, &memory, err);
    if (!code)
        code = learn_layout(l, &g, s, err);
    if (!code)
        code = guest_tasks_read(&tasks, &g, s, err);
    guest_linux_close(&g);
    if (!code && !process_learn(&l->current, m, s))
        code = err_set(err, -ENOENT, "the guest's kernel does not say which task runs");
    for (u32 i = 0; !code && i < tasks.count; i++) {
        struct life *one = add(l, err);
        if (!one)
            break;
        put(l, one, tasks.list[i].address);
        read_task(l, m, one);
    }
    guest_tasks_free(&tasks);
    return code;
}

/* One whose address has another task already was never seen to end. */
static int began(struct lives *l, struct machine *m, const struct process *by, struct err *err)
{
    u64 task = machine_vcpu(m)->gpr[RDI];
    struct life *before = find(l, task);
    if (before)
        take(l, before);
    struct life *one = add(l, err);
    if (!one)
        return l->cut ? 0 : err->code;
    put(l, one, task);
    one->began = now_of(m);
    read_task(l, m, one);
    const struct life *parent = find(l, by->task);
    if (parent && parent->command && l->text <= TEXT_MAX) {
        one->command = strdup(parent->command);
        l->text += strlen(parent->command);
    }
    return 0;
}

/* A thread that executes a program becomes its process: it takes the number of that. */
static void executed(struct lives *l, struct machine *m, struct life *one)
{
    read_task(l, m, one);
    one->execs++;
    one->executed = now_of(m);
    free(one->command);
    one->command = read_command(l, m, one->task);
}

int lives_hit(struct lives *l, struct machine *m, unsigned point, struct err *err)
{
    struct process now;
    process_read(&l->current, m, &now);
    if (point == AT_BEGIN)
        return began(l, m, &now, err);
    struct life *one = now.task ? find(l, now.task) : NULL;
    if (!one)
        return 0;
    if (point == AT_EXEC) {
        executed(l, m, one);
    } else {
        memcpy(one->comm, now.comm, sizeof(one->comm));
        one->code = (u32)machine_vcpu(m)->gpr[RDI];
        one->ended = now_of(m);
        take(l, one);
    }
    return 0;
}

void lives_now(struct lives *l, struct machine *m)
{
    for (u32 i = 0; i < l->count; i++)
        if (l->list[i].ended.position == NEVER)
            read_task(l, m, &l->list[i]);
}

void lives_free(struct lives *l)
{
    for (u32 i = 0; i < l->count; i++)
        free(l->list[i].command);
    free(l->list);
    free(l->hash);
    *l = (struct lives){0};
}
