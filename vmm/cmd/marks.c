/* `reprise marks`: the instants of a recording that have names: marks that programs in the guest
 * made, marks that were set from outside, crashes, and the kernel's panic. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cmd/history.h"
#include "cmd/interrupt.h"

enum { O_JSON = 256 };

static const struct argp_option options[] = {
    {"json", O_JSON, NULL, 0, "As JSON, one a line", 0},
    {0},
};

static const char doc[] =
    "Replays a recording and lists every instant that has a name, with position, virtual time, and "
    "the "
    "process and program that was at work: marks that programs in the guest made (reprise-mark.h, "
    "`reprise-agent mark NAME`), marks that were set (`monitor mark`), programs that died of a "
    "fault (a signal that dumps core), oopses, and the panic of the guest's kernel. Programs that "
    "a "
    "sent signal ended have a crash#K, too, that is not listed. The first column is a POINT. What "
    "was found is kept in a place of yours, so "
    "that "
    "the next time takes no replay." EXIT_HELP;

struct marks_args {
    const char *dir;
    bool json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct marks_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END: option_need_recording(state, &a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* One line of the list. */
struct named {
    struct life_time at;
    char point[300];
    const char *kind;
    i32 pid; /* 0: nobody that is known */
    const char *program;
    u32 order; /* of those at one position */
    bool sent; /* its end was sent by somebody: it has its number, and is not shown */
};

struct list {
    struct named *all;
    u32 n, room;
    bool full; /* no memory */
};

static struct named *add(struct list *l, struct life_time at, const char *kind)
{
    if (l->n == l->room) {
        u32 room = MAX(2 * l->room, 64u);
        struct named *more = realloc(l->all, room * sizeof(*more));
        if (!more) {
            l->full = true;
            return NULL;
        }
        l->all = more;
        l->room = room;
    }
    l->all[l->n] = (struct named){.at = at, .kind = kind, .program = "", .order = l->n};
    return &l->all[l->n++];
}

static void add_set(void *opaque, struct instant at, const char *name, size_t len)
{
    struct named *one = add(opaque, (struct life_time){at.position, at.time}, "set");
    if (one)
        snprintf(one->point, sizeof(one->point), "mark:%.*s", (int)MIN(len, (size_t)255), name);
}

/* Who was at work: its command, or its thread's name. `executed`: the last one of each life. */
static void name_process(struct named *one, const struct lives *l, const u32 *executed, u32 who)
{
    if (who >= l->count)
        return;
    one->pid = l->list[who].tgid;
    one->program =
        executed[who] ? lives_text(l, l->events[executed[who] - 1].command) : l->list[who].comm;
}

static void add_event(struct list *out, const struct lives *l, const u32 *executed, u32 i,
                      const char *kind)
{
    const struct life_event *e = &l->events[i];
    struct named *one = add(out, e->at, kind);
    if (!one)
        return;
    one->sent = e->kind == LIFE_FATAL && !signal_dumps_core((int)(e->code & 0x7f));
    if (e->kind == LIFE_MARK)
        snprintf(one->point, sizeof(one->point), "mark:%s", lives_text(l, e->command));
    else
        snprintf(one->point, sizeof(one->point), "%s", kind);
    name_process(one, l, executed, e->who);
}

/* In the order in which they happened. */
static void add_made(struct list *out, const struct lives *l)
{
    u32 *executed = calloc(MAX(l->count, 1u), sizeof(*executed)), crash = 0;
    out->full = out->full || !executed;
    for (u32 i = 0; executed && i < l->nevents; i++) {
        const struct life_event *e = &l->events[i];
        if (e->kind == LIFE_EXEC && e->command && e->who < l->count)
            executed[e->who] = i + 1;
        if (e->kind == LIFE_MARK)
            add_event(out, l, executed, i, "mark");
        while (crash < l->ncrashes && l->crashes[crash].event < i)
            crash++;
        if (crash < l->ncrashes && l->crashes[crash].event == i &&
            l->crashes[crash].is != CRASH_NOT)
            add_event(out, l, executed, i, "crash");
        if (l->panic == i)
            add_event(out, l, executed, i, "panic");
    }
    free(executed);
}

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->point, y->point);
    return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

/* The #K of those of one name; what was set has none. */
static void number(struct list *l)
{
    u64 k = 0;
    char last[sizeof(l->all->point)] = "";
    qsort(l->all, l->n, sizeof(*l->all), by_name);
    for (u32 i = 0; i < l->n; i++) {
        struct named *one = &l->all[i];
        if (!strcmp(one->kind, "set"))
            continue;
        k = strcmp(one->point, last) ? 1 : k + 1;
        strcpy(last, one->point);
        size_t n = strlen(one->point);
        if (k > 1)
            snprintf(one->point + n, sizeof(one->point) - n, "#%" PRIu64, k);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    if (x->at.position != y->at.position)
        return x->at.position < y->at.position ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void print_one(const struct named *one, bool json)
{
    char shown[600];
    if (!json) {
        printf("%-28s %16" PRIu64 " %6" PRIu64 ".%06" PRIu64 " ",
               text_printable(one->point, shown, sizeof(shown)), one->at.position,
               one->at.time / 1000000000u, one->at.time / 1000u % 1000000u);
        if (one->pid)
            printf("%7d  %s\n", one->pid, one->program);
        else
            printf("%7s  %s\n", "-", "-");
        return;
    }
    fputs("{\"point\":", stdout);
    json_text(stdout, one->point);
    printf(",\"kind\":\"%s\",\"position\":%" PRIu64 ",\"time\":%" PRIu64, one->kind,
           one->at.position, one->at.time);
    if (one->pid) {
        printf(",\"pid\":%d,\"program\":", one->pid);
        json_text(stdout, one->program);
    }
    puts("}");
}

static int print(const struct marks_args *a, const struct travel *tr, struct err *err)
{
    struct list all = {0};
    const struct lives *l = history_lives(tr);
    int code = marks_each(timeline_recording(tr->t)->rec.path, add_set, &all, err);
    if (!code)
        add_made(&all, l);
    if (!code && all.full)
        code = err_set(err, -ENOMEM, "no memory for the list");
    u32 shown = 0;
    for (u32 i = 0; i < all.n; i++)
        shown += !all.all[i].sent;
    if (!code && all.n) {
        number(&all);
        qsort(all.all, all.n, sizeof(*all.all), by_time);
        if (!a->json && shown)
            printf("%-28s %16s %13s %7s  %s\n", "POINT", "POSITION", "TIME", "PID", "PROGRAM");
        for (u32 i = 0; i < all.n; i++)
            if (!all.all[i].sent)
                print_one(&all.all[i], a->json);
    }
    if (!code && !shown && !a->json)
        puts("there are no marks, and nothing crashed");
    free(all.all);
    return code;
}

int cmd_marks(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct marks_args a = {0};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct travel tr;
    interrupt_catch();
    const struct travel_with with = {
        .named = &a.disks.where, .trust = a.disks.trust, .history = true, .once = true};
    if (travel_open(&tr, a.dir, &with, &err))
        return cmd_fail(&err);
    int code = history_reach_marks(&tr, (struct instant){NEVER, 0}, &err);
    travel_quiet(&tr);
    const struct lives *l = history_lives(&tr);
    if (!code && *l->lacks)
        fprintf(stderr, "reprise: %s: who made a mark, and crashes of programs, are not known\n",
                l->lacks);
    if (!code)
        code = print(&a, &tr, &err);
    int result = code                                ? cmd_fail(&err)
                 : history_end(&tr) == LIVES_DAMAGED ? EX_DAMAGE
                                                     : travel_end_code(&tr);
    if (!code && l->cut)
        fprintf(stderr, "reprise: there was more than is listed: it is left out\n");
    travel_close(&tr);
    return result;
}
