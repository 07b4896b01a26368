/* See trace_only.h. */
#include "cmd/trace_only.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "A..B": hexadecimal with or without 0x, as addresses are printed; B included. */
static bool parse_range(const char *word, struct engine_range *out)
{
    char *end;
    const char *dots = strstr(word, "..");
    if (!dots || !isxdigit((unsigned char)word[0]) || !isxdigit((unsigned char)dots[2]))
        return false;
    errno = 0;
    out->first = strtoull(word, &end, 16);
    if (errno || end != dots)
        return false;
    out->last = strtoull(dots + 2, &end, 16);
    return !errno && !*end;
}

/* A word that says of which kind it is. */
static const char *after(const char *word, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(word, prefix, n) ? NULL : word + n;
}

static bool parse_pid(const char *word, i32 *pid)
{
    char *end;
    errno = 0;
    long v = isdigit((unsigned char)*word) ? strtol(word, &end, 10) : -1;
    if (v < 0 || errno || *end || v > INT32_MAX)
        return false;
    *pid = (i32)v;
    return true;
}

int only_check(const char *word, struct err *err)
{
    struct engine_range range;
    i32 pid;
    const char *p = after(word, "pid:");
    if (p)
        return parse_pid(p, &pid) ? 0 : err_set(err, -EINVAL, "'%s' is no process number", p);
    if (!*word)
        return err_set(err, -EINVAL, "a range of addresses, a function or a process is missing");
    if (!strstr(word, "..") || after(word, "comm:"))
        return 0;
    if (!parse_range(word, &range))
        return err_set(err, -EINVAL,
                       "'%s' is no range: ADDRESS..ADDRESS, in hexadecimal, both included", word);
    return range.last < range.first
               ? err_set(err, -EINVAL, "the range '%s' ends before it begins", word)
               : 0;
}

static int full(struct err *err)
{
    return err_set(err, -E2BIG, "at most %d ranges, functions and processes each", ONLY_MAX);
}

static int add_place(struct only *o, u64 first, u64 last, struct err *err)
{
    if (o->nplaces == ONLY_MAX)
        return full(err);
    o->place[o->nplaces++] = (struct engine_range){first, last};
    return 0;
}

static int add_process(struct only *o, i32 pid, const char *comm, struct err *err)
{
    if (o->nprocesses == ONLY_MAX)
        return full(err);
    struct only_process *p = &o->process[o->nprocesses++];
    p->pid = pid;
    snprintf(p->comm, sizeof(p->comm), "%s", comm); /* the kernel cuts names as well */
    o->by_name = o->by_name || pid < 0;
    return 0;
}

/* NAME, and what compilers split from it: NAME.cold, NAME.part.0, NAME.isra.0. */
static int add_function(struct only *o, const char *name, const struct symbols *s, struct err *err)
{
    size_t n = strlen(name);
    bool found = false;
    int code = 0;
    for (u32 i = 0; !code && s && i < s->count; i++) {
        const struct symbol *one = &s->list[i];
        const char *is = s->names + one->name;
        if (!strchr("tTwW", one->type) || one->absolute || strncmp(is, name, n) ||
            (is[n] && is[n] != '.') || !one->size)
            continue;
        found = true;
        code = add_place(o, one->address, one->address + one->size - 1, err);
    }
    return code ? code : found ? 0 : -ENOENT;
}

int only_add(struct only *o, const char *word, const struct symbols *s, struct err *err)
{
    struct engine_range range;
    i32 pid;
    const char *p;
    if ((p = after(word, "pid:")) && parse_pid(p, &pid))
        return add_process(o, pid, "", err);
    if ((p = after(word, "comm:")))
        return add_process(o, -1, p, err);
    if (parse_range(word, &range))
        return add_place(o, range.first, range.last, err);
    if (parse_pid(word, &pid))
        return add_process(o, pid, "", err);
    p = after(word, "function:");
    int code = add_function(o, p ? p : word, s, err);
    if (code != -ENOENT)
        return code;
    if (!p)
        return add_process(o, -1, word, err);
    return err_set(err, -ENOENT,
                   s ? "the guest's kernel has no function '%s'"
                     : "'%s': the guest's kernel has no symbols here",
                   p);
}

static int by_address(const void *a, const void *b)
{
    const struct engine_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

void only_finish(struct only *o)
{
    unsigned n = 0;
    qsort(o->place, o->nplaces, sizeof(o->place[0]), by_address);
    for (unsigned i = 0; i < o->nplaces; i++)
        if (n && o->place[i].first <= o->place[n - 1].last)
            o->place[n - 1].last = MAX(o->place[n - 1].last, o->place[i].last);
        else
            o->place[n++] = o->place[i];
    o->nplaces = n;
}

bool only_wants(const struct only *o, const struct running_task *task)
{
    if (!o->nprocesses)
        return true;
    for (unsigned i = 0; task && i < o->nprocesses; i++) {
        const struct only_process *p = &o->process[i];
        if (p->pid < 0 ? !strncmp(p->comm, task->comm, sizeof(p->comm) - 1)
                       : p->pid == task->tgid || p->pid == task->pid)
            return true;
    }
    return false;
}
