/* See scope.h. */
#include "cmd/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"

static bool is_of(const struct scope_owner *o, const struct gdb_point *p)
{
    return o->kind == p->kind && o->address == p->address && o->length == p->length &&
           o->physical == p->physical;
}

/* A kernel thread has no address space of its own, and what is not mapped is not this program's:
 * it may be of one that runs later. */
static bool belongs(const struct gdb_point *p, struct machine *m, const struct process *now)
{
    u8 byte;
    return (now->user || now->space) && !p->physical && p->address < now->kernel &&
           machine_peek(m, p->address, &byte, 1);
}

static struct scope_owner owner_of(const struct scope *s, const struct gdb_point *p,
                                   struct machine *m, const struct process *now)
{
    for (unsigned i = 0; i < s->n; i++)
        if (is_of(&s->list[i], p))
            return s->list[i];
    return (struct scope_owner){.kind = p->kind,
                                .physical = p->physical,
                                .address = p->address,
                                .length = p->length,
                                .owned = !s->machine && belongs(p, m, now),
                                .by = *now};
}

static bool is_among(const struct scope_owner *o, const struct gdb_point *points, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_of(o, &points[i]))
            return true;
    return false;
}

int scope_run(struct scope *s, const struct gdb_point *points, size_t n, struct machine *m,
              const struct process *now, bool step, struct err *err)
{
    if (!n && (!s->n || step))
        return 0;
    struct scope_owner *list = calloc(n + s->n + 1, sizeof(*list));
    unsigned count = (unsigned)n;
    if (!list)
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    for (size_t i = 0; i < n; i++)
        list[i] = owner_of(s, &points[i], m, now);
    for (unsigned i = 0; step && i < s->n; i++)
        if (!is_among(&s->list[i], points, n))
            list[count++] = s->list[i];
    free(s->list);
    s->list = list;
    s->n = count;
    return 0;
}

bool scope_owns(const struct scope *s, size_t i)
{
    return i < s->n && s->list[i].owned;
}

bool scope_holds(const struct scope *s, size_t i, const struct process *now)
{
    return !scope_owns(s, i) || process_same_space(&s->list[i].by, now);
}

static void name_owner(const struct scope_owner *o, char *text, size_t size)
{
    if (!o->owned)
        snprintf(text, size, "every process");
    else if (o->by.task)
        snprintf(text, size, "%s (pid %d), pgd %#" PRIx64, o->by.comm, o->by.tgid, o->by.root);
    else
        snprintf(text, size, "pgd %#" PRIx64, o->by.root);
}

bool scope_command(struct scope *s, const char *arg, FILE *out)
{
    static const char *const kinds[] = {[GDB_BREAK_SOFT] = "break",
                                        [GDB_BREAK_HARD] = "hbreak",
                                        [GDB_WATCH_WRITE] = "watch",
                                        [GDB_WATCH_READ] = "rwatch",
                                        [GDB_WATCH_ACCESS] = "awatch"};
    bool machine = !strcmp(arg, "machine");
    if (*arg && !machine && strcmp(arg, "process") != 0)
        return false;
    if (*arg) {
        s->machine = machine;
        scope_free(s);
    }
    fputs(s->machine ? "scope machine: a point stops in every process; a step is the processor's, "
                       "into the kernel too\n"
                     : "scope process: a point belongs to the process that is current when it is "
                       "set; a step stays in its program\n",
          out);
    for (unsigned i = 0; i < s->n; i++) {
        char owner[96];
        name_owner(&s->list[i], owner, sizeof(owner));
        if (s->list[i].address < s->list[i].by.kernel && !s->list[i].physical)
            fprintf(out, "%-6s 0x%-12" PRIx64 "  %s\n", kinds[s->list[i].kind], s->list[i].address,
                    owner);
    }
    return true;
}

void scope_note(const struct scope *s, char *text, size_t size)
{
    char owner[96];
    size_t len = strlen(text);
    for (unsigned i = 0; i < s->n; i++) {
        if (!s->list[i].owned)
            continue;
        name_owner(&s->list[i], owner, sizeof(owner));
        snprintf(text + len, size - len,
                 "%sA point at a user address stopped in %s only; `monitor scope machine`: in all.",
                 len ? "\n" : "", owner);
        return;
    }
}

void scope_free(struct scope *s)
{
    free(s->list);
    s->list = NULL;
    s->n = 0;
}
