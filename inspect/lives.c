/* See lives.h. */
#include "inspect/lives.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

const u16 life_event_fields[LIFE_KINDS] = {
#define LIFE_EVENT(name, fields) [LIFE_##name] = fields,
#include "inspect/life_events.def"
#undef LIFE_EVENT
};

bool signal_dumps_core(int number)
{
    static const int those[] = {SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS};
    for (size_t i = 0; i < ARRAY_SIZE(those); i++)
        if (number == those[i])
            return true;
    return false;
}

void lives_init(struct lives *l)
{
    *l = (struct lives){.panic = LIVES_NONE};
}

void lives_free(struct lives *l)
{
    free(l->events);
    free(l->list);
    free(l->crashes);
    if (!l->borrowed)
        free(l->texts);
    lives_init(l);
}

/* Room for one more. */
static void *grow(void *list, u32 count, u32 *room, size_t size, struct err *err)
{
    if (count < *room)
        return list;
    u32 more = MAX(2 * *room, 256u);
    void *bigger = realloc(list, more * size);
    if (!bigger) {
        err_set(err, -ENOMEM, "no memory for the guest's processes");
        return NULL;
    }
    *room = more;
    return bigger;
}

/* ---- texts ---- */

const char *lives_text(const struct lives *l, u32 text)
{
    return text < l->texts_size ? l->texts + text : "";
}

u32 lives_add_text(struct lives *l, const char *text, size_t len)
{
    size_t need = l->texts_size + (l->texts_size ? 0 : 1) + len + 1;
    if (!len || l->borrowed || need > TEXTS_MAX)
        return 0;
    if (need > l->texts_room) {
        u32 room = MAX(2 * l->texts_room, (u32)need + 4096);
        char *bigger = realloc(l->texts, room);
        if (!bigger)
            return 0;
        l->texts = bigger;
        l->texts_room = room;
    }
    if (!l->texts_size)
        l->texts[l->texts_size++] = 0;
    u32 at = l->texts_size;
    memcpy(l->texts + at, text, len);
    l->texts[at + len] = 0;
    l->texts_size = (u32)need;
    return at;
}

/* ---- what events do ---- */

static int add_crash(struct lives *l, u32 event, int is, struct err *err)
{
    void *list = grow(l->crashes, l->ncrashes, &l->crashes_room, sizeof(*l->crashes), err);
    if (!list)
        return err->code;
    l->crashes = list;
    l->crashes[l->ncrashes].event = event;
    l->crashes[l->ncrashes++].is = is;
    return 0;
}

static int begin(struct lives *l, const struct life_event *e, struct err *err)
{
    void *list = grow(l->list, l->count, &l->room, sizeof(*l->list), err);
    if (!list)
        return err->code;
    l->list = list;
    const struct life *by = e->by < l->count ? &l->list[e->by] : NULL;
    struct life *one = &l->list[l->count];
    *one = (struct life){.task = e->task,
                         .pid = e->pid,
                         .tgid = e->tgid,
                         .parent = e->parent,
                         .kernel = e->kernel,
                         .command = by ? by->command : 0,
                         .began = e->at,
                         .executed = {NEVER, 0},
                         .ended = {NEVER, 0},
                         .process = l->count,
                         .crash = LIVES_NONE,
                         .leaves = {NEVER, 0},
                         .left = {NEVER, 0}};
    memcpy(one->comm, e->comm, sizeof(one->comm));
    if (by && e->pid != e->tgid && by->tgid == e->tgid)
        one->process = by->process;
    l->list[one->process].threads++;
    l->count++;
    return 0;
}

/* Of the thread that goes on as its process. */
static void execute(struct lives *l, struct life *one, const struct life_event *e)
{
    struct life *process = &l->list[one->process];
    one->pid = e->pid;
    one->tgid = e->tgid;
    one->kernel = false;
    one->command = e->command;
    one->execs++;
    one->executed = e->at;
    memcpy(one->comm, e->comm, sizeof(one->comm));
    process->leaves.position = NEVER;
    if (process->crash != LIVES_NONE) {
        l->crashes[process->crash].is = CRASH_NOT;
        process->crash = LIVES_NONE;
    }
}

static int fatal(struct lives *l, const struct life *one, u32 event, struct err *err)
{
    struct life *process = &l->list[one->process];
    if (process->crash != LIVES_NONE)
        return 0;
    process->crash = l->ncrashes;
    return add_crash(l, event, CRASH_OPEN, err);
}

static int end(struct lives *l, struct life *one, const struct life_event *e, u32 event,
               struct err *err)
{
    struct life *process = &l->list[one->process];
    bool signal = e->code & 0x7f;
    if (one->ended.position != NEVER)
        return 0;
    one->code = e->code;
    one->ended = e->at;
    if (process->threads && --process->threads)
        return 0;
    process->left = e->at;
    if (process->crash != LIVES_NONE)
        l->crashes[process->crash].is = signal ? CRASH_SURE : CRASH_NOT;
    else if (signal && !one->oopsed) /* the kernel ended it without more ado */
        return add_crash(l, event, CRASH_SURE, err);
    return 0;
}

static int apply(struct lives *l, const struct life_event *e, u32 event, struct err *err)
{
    struct life *one = e->who < l->count ? &l->list[e->who] : NULL;
    if (e->kind == LIFE_BEGIN)
        return begin(l, e, err);
    if (e->kind == LIFE_PANIC && l->panic == LIVES_NONE)
        l->panic = event;
    if (e->kind == LIFE_OOPS) {
        if (one)
            one->oopsed = true;
        return add_crash(l, event, CRASH_SURE, err);
    }
    if (!one)
        return 0;
    switch (e->kind) {
    case LIFE_EXEC: execute(l, one, e); break;
    case LIFE_NAME: memcpy(one->comm, e->comm, sizeof(one->comm)); break;
    case LIFE_PARENT: one->parent = e->parent; break;
    case LIFE_FATAL: return fatal(l, one, event, err);
    case LIFE_LEAVE: l->list[one->process].leaves = e->at; break;
    case LIFE_END: return end(l, one, e, event, err);
    default: break;
    }
    return 0;
}

int lives_add(struct lives *l, const struct life_event *e, struct err *err)
{
    if (l->nevents == EVENTS_MAX || (e->kind == LIFE_BEGIN && l->count == LIVES_MAX)) {
        l->cut = true;
        return 0;
    }
    void *list = grow(l->events, l->nevents, &l->events_room, sizeof(*l->events), err);
    if (!list)
        return err->code;
    l->events = list;
    int code = apply(l, e, l->nevents, err);
    if (!code)
        l->events[l->nevents++] = *e;
    return code;
}

int lives_as_of(struct lives *out, const struct lives *l, pos_t position, struct err *err)
{
    lives_init(out);
    out->texts = l->texts;
    out->texts_size = l->texts_size;
    out->borrowed = true;
    out->cut = l->cut;
    int code = 0;
    for (u32 i = 0; !code && i < l->nevents; i++) {
        const struct life_event *e = &l->events[i];
        if (e->at.position != NEVER && e->at.position > position)
            break;
        code = apply(out, e, i, err);
    }
    return code;
}
