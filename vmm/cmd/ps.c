/* `reprise ps`: the processes that a guest had, from its kernel's beginning to a point. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cmd/interrupt.h"
#include "cmd/travel.h"
#include "inspect/lives.h"

enum { O_AT = 256, O_TREE, O_THREADS, O_JSON };

static const struct argp_option options[] = {
    {"at", O_AT, "POINT", 0, "As of there (default: the recording's end)", 0},
    {"tree", O_TREE, NULL, 0, "Children under their parents", 0},
    {"threads", O_THREADS, NULL, 0, "Threads of processes, and the kernel's, too", 0},
    {"json", O_JSON, NULL, 0, "All of them, threads too, as JSON, one a line", 0},
    {0},
};

static const char doc[] =
    "Replays a recording up to a point and lists every process that its guest, a Linux with type "
    "information (BTF), ever had: number, parent, when it began and ended, in seconds of virtual "
    "time, how it ended, and its command line. " POINT_HELP EXIT_HELP;

struct ps_args {
    const char *dir;
    struct point at;
    bool tree, threads, json;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ps_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_AT: option_point(state, arg, "--at", &a->at); break;
    case O_TREE: a->tree = true; break;
    case O_THREADS: a->threads = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END: option_need_recording(state, a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- finding them ---- */

/* The kernel says what it is made of once it is unpacked: early, but when is its own affair. */
#define FIRST_LOOK 20000000u

static int interrupted_there(struct err *err)
{
    return err_set(err, -EINTR, "interrupted");
}

/* Goes to where the kernel can be asked, at most to `end`. */
static int learn(struct lives *l, struct travel *tr, struct symbols *s, struct instant end,
                 struct err *err)
{
    enum timeline_stop stop;
    struct machine *m = timeline_machine(tr->t);
    int code = -ENOENT;
    for (pos_t at = FIRST_LOOK; code == -ENOENT; at += at / 2) {
        bool last = at >= end.position;
        struct instant to = last ? end : (struct instant){at, 0};
        if (timeline_seek(tr->t, to, &stop, err))
            return err->code;
        if (stop == TIMELINE_INTERRUPTED)
            return interrupted_there(err);
        code = guest_symbols_read(s, m, err);
        if (!code) {
            code = lives_learn(l, m, s, err);
            if (code) {
                symbols_free(s);
                lives_free(l);
            }
        }
        if (last)
            break;
    }
    return code;
}

static int follow(struct lives *l, struct travel *tr, struct instant end, struct err *err)
{
    struct debug_point points[LIVES_POINTS];
    enum timeline_stop stop;
    bool pass = false;
    for (unsigned i = 0; i < LIVES_POINTS; i++)
        points[i] = (struct debug_point){.kind = DEBUG_EXEC, .address = l->points[i], .length = 1};
    int code = timeline_set_points(tr->t, points, LIVES_POINTS, err);
    while (!code && !l->cut) {
        code = timeline_forward(tr->t, end, pass, &stop, err);
        if (code || stop == TIMELINE_INTERRUPTED)
            return code ? code : interrupted_there(err);
        if (stop != TIMELINE_HIT)
            break;
        code = lives_hit(l, timeline_machine(tr->t), timeline_hit(tr->t)->point, err);
        pass = true;
    }
    return code;
}

/* ---- showing them ---- */

static void how(const struct life *one, char *out, size_t size)
{
    unsigned signal = one->code & 0x7f;
    if (one->ended.position == NEVER)
        snprintf(out, size, "lives");
    else if (signal)
        snprintf(out, size, "signal %u%s", signal, one->code & 0x80 ? ", core" : "");
    else
        snprintf(out, size, "status %u", one->code >> 8 & 0xff);
}

static void print_when(const struct life_time *when)
{
    char text[32] = "-";
    if (when->position != NEVER)
        snprintf(text, sizeof(text), "%" PRIu64 ".%06" PRIu64, when->time / 1000000000u,
                 when->time / 1000u % 1000000u);
    printf(" %13s", text);
}

static void print_life(const struct life *one, unsigned depth)
{
    char end[32];
    how(one, end, sizeof(end));
    printf("%7d %7d %7d", one->tgid, one->pid, one->parent);
    print_when(&one->began);
    print_when(&one->ended);
    printf("  %-16s %*s", end, (int)(2 * depth), "");
    if (one->command && one->command[0])
        puts(one->command);
    else
        printf(one->kernel ? "[%s]\n" : "%s\n", one->comm);
}

static bool is_shown(const struct ps_args *a, const struct life *one)
{
    return a->threads || (one->pid == one->tgid && !one->kernel);
}

/* Whose child is it? Of several with that number the last one that had begun before. -1: nobody's.
 */
static int parent_of(const struct lives *l, u32 i)
{
    const struct life *one = &l->list[i];
    i32 number = one->pid == one->tgid ? one->parent : one->tgid;
    for (u32 k = i; k--;)
        if (l->list[k].pid == number)
            return (int)k;
    return -1;
}

/* Children of `of`, in the order in which they began, with what is theirs. Deep trees end: each
 * parent stands before its child. */
static void print_tree(const struct ps_args *a, const struct lives *l, const int *parents, int of,
                       unsigned depth)
{
    for (u32 i = of < 0 ? 0 : (u32)of + 1; i < l->count; i++) {
        if (parents[i] != of)
            continue;
        bool shown = is_shown(a, &l->list[i]);
        if (shown)
            print_life(&l->list[i], MIN(depth, 40u));
        print_tree(a, l, parents, (int)i, depth + shown);
    }
}

static void json_when(const char *name, const struct life_time *when)
{
    if (when->position != NEVER)
        printf(",\"%s\":{\"position\":%" PRIu64 ",\"time\":%" PRIu64 "}", name, when->position,
               when->time);
}

static void print_json(const struct life *one)
{
    printf("{\"pid\":%d,\"tid\":%d,\"parent\":%d,\"kernel\":%s,\"comm\":", one->tgid, one->pid,
           one->parent, one->kernel ? "true" : "false");
    json_text(stdout, one->comm);
    if (one->command) {
        fputs(",\"command\":", stdout);
        json_text(stdout, one->command);
    }
    printf(",\"executions\":%u", one->execs);
    json_when("began", &one->began);
    json_when("executed", &one->executed);
    json_when("ended", &one->ended);
    if (one->ended.position != NEVER) {
        if (one->code & 0x7f)
            printf(",\"signal\":%u,\"core\":%s", one->code & 0x7f,
                   one->code & 0x80 ? "true" : "false");
        else
            printf(",\"status\":%u", one->code >> 8 & 0xff);
    }
    puts("}");
}

static int print(const struct ps_args *a, const struct lives *l, struct err *err)
{
    for (u32 i = 0; a->json && i < l->count; i++)
        print_json(&l->list[i]);
    if (a->json)
        return 0;
    printf("%7s %7s %7s %13s %13s  %-16s %s\n", "PID", "TID", "PARENT", "BEGAN", "ENDED", "HOW",
           "COMMAND");
    for (u32 i = 0; !a->tree && i < l->count; i++)
        if (is_shown(a, &l->list[i]))
            print_life(&l->list[i], 0);
    if (!a->tree)
        return 0;
    int *parents = malloc(MAX(l->count, 1u) * sizeof(*parents));
    if (!parents)
        return err_set(err, -ENOMEM, "no memory for the tree");
    for (u32 i = 0; i < l->count; i++)
        parents[i] = parent_of(l, i);
    print_tree(a, l, parents, -1, 0);
    free(parents);
    return 0;
}

int cmd_ps(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "DIR",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct ps_args a = {.at = {.kind = POINT_END}};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct travel tr;
    struct lives lives = {0};
    struct symbols symbols;
    symbols_init(&symbols);
    interrupt_catch();
    const struct travel_with with = {.named = a.disks.spec, .trust = a.disks.trust};
    /* Everything from the kernel's beginning on has to be seen: no checkpoint helps. */
    struct instant end = {NEVER, 0};
    pos_t position;
    int code = 0;
    if (a.at.kind != POINT_END || a.at.n) {
        code = point_position(a.dir, &with, &a.at, &position, &err);
        end.position = position;
    }
    if (code)
        return cmd_fail(&err);
    code = travel_open(&tr, a.dir, &with, &err);
    if (!code && end.position == NEVER)
        end = timeline_end(tr.t);
    if (!code)
        code = learn(&lives, &tr, &symbols, end, &err);
    if (!code)
        code = follow(&lives, &tr, end, &err);
    travel_quiet(&tr);
    if (!code)
        lives_now(&lives, timeline_machine(tr.t));
    if (!code)
        code = print(&a, &lives, &err);
    if (!code && lives.cut)
        fprintf(stderr,
                "reprise: there were more than %u processes and threads: the others are left "
                "out\n",
                lives.count);
    int result = code ? cmd_fail(&err) : travel_end_code(&tr);
    lives_free(&lives);
    symbols_free(&symbols);
    travel_close(&tr);
    return result;
}
