/* `reprise ps`: the processes that a guest had, from its kernel's beginning to a point. */
#define _GNU_SOURCE /* qsort_r */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cmd/history.h"
#include "cmd/interrupt.h"

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
    "time, how it ended, and its command line. What was found is kept in a place of yours, "
    "so that the next time takes no replay. " POINT_HELP EXIT_HELP;

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
    case ARGP_KEY_END: option_need_recording(state, &a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
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

static void print_life(const struct lives *l, const struct life *one, unsigned depth)
{
    const char *command = lives_text(l, one->command);
    char end[32];
    how(one, end, sizeof(end));
    printf("%7d %7d %7d", one->tgid, one->pid, one->parent);
    print_when(&one->began);
    print_when(&one->ended);
    printf("  %-16s %*s", end, (int)(2 * depth), "");
    if (*command)
        puts(command);
    else
        printf(one->kernel ? "[%s]\n" : "%s\n", one->comm);
}

static bool is_shown(const struct ps_args *a, const struct life *one)
{
    return a->threads || (one->pid == one->tgid && !one->kernel);
}

/* A tree of indices; -1: none. */
struct tree {
    struct node {
        int parent, first, last, next; /* children in the order in which they began */
    } * node;
    int first, last; /* of those without a parent in the list */
};

static void tree_add(struct tree *t, int i)
{
    int *first = t->node[i].parent < 0 ? &t->first : &t->node[t->node[i].parent].first;
    int *last = t->node[i].parent < 0 ? &t->last : &t->node[t->node[i].parent].last;
    *(*last < 0 ? first : &t->node[*last].next) = i;
    *last = i;
}

static int by_number(const void *a, const void *b, void *list)
{
    const struct life *all = list;
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    if (all[x].pid != all[y].pid)
        return all[x].pid < all[y].pid ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Whose child is `i`? Of several with that number, which the kernel gives anew, the last one that
 * had begun before. */
static int parent_of(const struct lives *l, const u32 *order, u32 i)
{
    const struct life *one = &l->list[i];
    i32 number = one->pid == one->tgid ? one->parent : one->tgid;
    u32 low = 0, high = l->count;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        const struct life *other = &l->list[order[middle]];
        if (other->pid < number || (other->pid == number && order[middle] < i))
            low = middle + 1;
        else
            high = middle;
    }
    return low && l->list[order[low - 1]].pid == number ? (int)order[low - 1] : -1;
}

/* Each parent stands before its child, so it has an end; without recursion, for a guest makes it as
 * deep as it likes. */
static int print_tree(const struct ps_args *a, const struct lives *l, struct err *err)
{
    struct tree t = {.first = -1, .last = -1};
    u32 *order = malloc(MAX(l->count, 1u) * sizeof(*order));
    t.node = malloc(MAX(l->count, 1u) * sizeof(*t.node));
    if (!order || !t.node) {
        free(order);
        free(t.node);
        return err_set(err, -ENOMEM, "no memory for the tree");
    }
    for (u32 i = 0; i < l->count; i++)
        order[i] = i;
    qsort_r(order, l->count, sizeof(*order), by_number, l->list);
    for (u32 i = 0; i < l->count; i++) {
        t.node[i] = (struct node){parent_of(l, order, i), -1, -1, -1};
        tree_add(&t, (int)i);
    }
    unsigned depth = 0;
    for (int i = t.first; i >= 0;) {
        bool shown = is_shown(a, &l->list[i]);
        if (shown)
            print_life(l, &l->list[i], MIN(depth, 40u));
        depth += shown;
        int next = t.node[i].first;
        while (next < 0 && i >= 0) { /* back to where it goes on */
            depth -= is_shown(a, &l->list[i]);
            next = t.node[i].next;
            i = t.node[i].parent;
        }
        i = next;
    }
    free(order);
    free(t.node);
    return 0;
}

static void json_when(const char *name, const struct life_time *when)
{
    if (when->position != NEVER)
        printf(",\"%s\":{\"position\":%" PRIu64 ",\"time\":%" PRIu64 "}", name, when->position,
               when->time);
}

static void print_json(const struct lives *l, const struct life *one)
{
    printf("{\"pid\":%d,\"tid\":%d,\"parent\":%d,\"kernel\":%s,\"comm\":", one->tgid, one->pid,
           one->parent, one->kernel ? "true" : "false");
    json_text(stdout, one->comm);
    if (one->command) {
        fputs(",\"command\":", stdout);
        json_text(stdout, lives_text(l, one->command));
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
        print_json(l, &l->list[i]);
    if (a->json)
        return 0;
    printf("%7s %7s %7s %13s %13s  %-16s %s\n", "PID", "TID", "PARENT", "BEGAN", "ENDED", "HOW",
           "COMMAND");
    for (u32 i = 0; !a->tree && i < l->count; i++)
        if (is_shown(a, &l->list[i]))
            print_life(l, &l->list[i], 0);
    return a->tree ? print_tree(a, l, err) : 0;
}

/* Exit code. */
static int show(const struct ps_args *a, const struct travel *tr, const struct lives *l,
                pos_t position)
{
    struct err err = {0};
    struct lives then;
    bool all = position == NEVER;
    int code = all ? 0 : lives_as_of(&then, l, position, &err);
    if (!code && !all && then.count <= 1) /* the kernel's first task, which nothing made */
        code = err_set(&err, -ENOENT,
                       "the guest's kernel had made no process yet at position %" PRIu64, position);
    if (!code)
        code = print(a, all ? l : &then, &err);
    if (!all)
        lives_free(&then);
    if (code)
        return cmd_fail(&err);
    if (l->cut)
        fprintf(stderr,
                "reprise: there were more than %u processes and threads: the others are left "
                "out\n",
                l->count);
    return all && history_end(tr) == LIVES_DAMAGED ? EX_DAMAGE : travel_end_code(tr);
}

int cmd_ps(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct ps_args a = {.at = {.kind = POINT_END}};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct travel tr;
    interrupt_catch();
    const struct travel_with with = {
        .named = &a.disks.where, .trust = a.disks.trust, .history = true, .once = true};
    pos_t position = NEVER;
    int code = 0;
    if (a.at.kind != POINT_END || a.at.n)
        code = point_position(a.dir, &with, &a.at, &position, &err);
    if (code || travel_open(&tr, a.dir, &with, &err))
        return cmd_fail(&err);
    code = history_reach(&tr, (struct instant){position, 0}, &err);
    travel_quiet(&tr);
    const struct lives *l = history_lives(&tr);
    if (!code && *l->lacks)
        code = err_set(&err, -ENOTSUP, "%s: its processes cannot be told", l->lacks);
    int result = code ? cmd_fail(&err) : show(&a, &tr, l, position);
    travel_close(&tr);
    return result;
}
