/* See life_search.h. */
#include "inspect/life_search.h"

#include <string.h>

void life_first_argument(const struct lives *l, const struct life_event *e, char *out, size_t size)
{
    const char *text = lives_text(l, e->command), *end = text + MIN(e->first, strlen(text));
    const char *from = end;
    while (from > text && from[-1] != '/')
        from--;
    size_t n = MIN((size_t)(end - from), size - 1);
    memcpy(out, from, n);
    out[n] = 0;
}

bool life_is_program(const struct lives *l, const struct life_event *e, const char *name)
{
    char first[256];
    if (e->kind != LIFE_EXEC)
        return false;
    life_first_argument(l, e, first, sizeof(first));
    return !strcmp(e->comm, name) || !strcmp(first, name) ||
           !strcmp(lives_text(l, e->program), name);
}

static bool found(struct life_search *s, u32 who, struct life_time at)
{
    s->who = who;
    s->at = at;
    return true;
}

static bool exec_on(struct life_search *s, const struct lives *l)
{
    for (; s->next < l->nevents; s->next++) {
        const struct life_event *e = &l->events[s->next];
        if (life_is_program(l, e, s->name) && ++s->seen == s->k)
            return found(s, e->who, e->at);
    }
    return false;
}

/* That process may live yet: it is not passed. */
static bool exit_on(struct life_search *s, const struct lives *l)
{
    for (; s->next < l->count; s->next++) {
        const struct life *one = &l->list[s->next];
        if (one->process != s->next || one->tgid != s->pid)
            continue;
        if (s->seen + 1 == s->k)
            return one->left.position != NEVER && found(s, s->next, one->left);
        s->seen++;
    }
    return false;
}

/* One that is not sure yet is not passed either, unless it stays so. */
static bool crash_on(struct life_search *s, const struct lives *l, bool all)
{
    for (; s->next < l->ncrashes; s->next++) {
        const struct life_crash *c = &l->crashes[s->next];
        const struct life_event *e = &l->events[c->event];
        if (c->is == CRASH_OPEN && !all)
            return false;
        if (c->is != CRASH_NOT && ++s->seen == s->k)
            return found(s, e->who, e->at);
    }
    return false;
}

static bool mark_on(struct life_search *s, const struct lives *l)
{
    for (; s->next < l->nevents; s->next++) {
        const struct life_event *e = &l->events[s->next];
        if (e->kind == LIFE_MARK && !strcmp(lives_text(l, e->command), s->name) &&
            ++s->seen == s->k)
            return found(s, e->who, e->at);
    }
    return false;
}

bool life_search_on(struct life_search *s, const struct lives *l, bool all)
{
    switch (s->kind) {
    case SEARCH_EXEC: return exec_on(s, l);
    case SEARCH_EXIT: return exit_on(s, l);
    case SEARCH_CRASH: return crash_on(s, l, all);
    case SEARCH_MARK: return mark_on(s, l);
    case SEARCH_PANIC:
        return l->panic != LIVES_NONE && found(s, l->events[l->panic].who, l->events[l->panic].at);
    }
    return false;
}
