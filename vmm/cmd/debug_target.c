/* See debug_target.h. */
#include "cmd/debug_target.h"

#include <errno.h>
#include <inttypes.h>

#include "cmd/history.h"

static void say(const struct lives *l, const struct life *one, const char *how)
{
    fprintf(stderr, "reprise: %s (pid %d) %s\n",
            one->command ? lives_text(l, one->command) : one->comm, one->tgid, how);
}

/* The first crash of a process, not of the kernel. */
static const struct life *find_crash(const struct lives *l, struct point *to)
{
    u64 k = 0;
    for (u32 i = 0; i < l->ncrashes; i++) {
        const struct life_event *e = &l->events[l->crashes[i].event];
        if (l->crashes[i].is == CRASH_NOT)
            continue;
        k++;
        if (e->who >= l->count)
            continue;
        const struct life *process = &l->list[l->list[e->who].process];
        if (process->kernel || l->list[e->who].oopsed)
            continue;
        *to = (struct point){.kind = POINT_CRASH, .n = k};
        return process;
    }
    return NULL;
}

/* The only process whose parent is process 1. */
static const struct life *find_program(const struct lives *l, struct point *to)
{
    const struct life *found = NULL;
    for (u32 i = 0; i < l->count; i++) {
        const struct life *one = &l->list[i];
        if (one->process != i || one->kernel || one->parent != 1 || !one->execs)
            continue;
        if (found)
            return NULL;
        found = one;
    }
    if (!found)
        return NULL;
    *to = (struct point){.kind = POINT_END};
    if (found->left.position == NEVER)
        return found;
    /* Its last thread ends much later than the one that said so, and may be any. */
    if (found->leaves.position != NEVER) {
        *to = (struct point){.kind = POINT_INSN, .n = found->leaves.position};
        return found;
    }
    *to = (struct point){.kind = POINT_EXIT, .pid = found->tgid};
    for (const struct life *one = l->list; one <= found; one++)
        to->n += one->process == (u32)(one - l->list) && one->tgid == found->tgid;
    return found;
}

int debug_target_find(struct travel *tr, struct point *to, i32 *pid, struct err *err)
{
    int code = history_reach(tr, (struct instant){NEVER, 0}, err);
    if (code)
        return code;
    const struct lives *l = history_lives(tr);
    if (*l->lacks)
        return err_set(err, -ENOTSUP,
                       "%s: processes cannot be found; `reprise gdb` shows the machine", l->lacks);
    const struct life *one = find_crash(l, to);
    if (one) {
        say(l, one, "crashes here");
    } else {
        one = find_program(l, to);
        if (!one)
            return err_set(err, -ESRCH,
                           "no process crashed, and which one is meant cannot be known: `reprise "
                           "gdb --process PID|NAME` shows one, `reprise ps` lists all");
        say(l, one, to->kind == POINT_END ? "at the recording's end" : "ends here");
    }
    *pid = one->tgid;
    return 0;
}
