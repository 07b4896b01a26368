/* See start.h. */
#include "guest-agent/agent/start.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    char *at;
    size_t left;
    char *why; /* START_WHY */
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reader *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(r->why, START_WHY, format, list);
    va_end(list);
    return false;
}

static bool take(struct reader *r, void *to, size_t len, const char *what)
{
    if (len > r->left)
        return wrong(r, "START ends in %s", what);
    if (len)
        memcpy(to, r->at, len);
    r->at += len;
    r->left -= len;
    return true;
}

/* The next text; NULL: it has no end. */
static char *text(struct reader *r)
{
    char *found = r->left ? memchr(r->at, 0, r->left) : NULL, *begin = r->at;
    if (!found)
        return NULL;
    r->left -= (size_t)(found + 1 - r->at);
    r->at = found + 1;
    return begin;
}

static bool texts(struct reader *r, uint32_t count, char ***list, const char *what)
{
    /* Each has its NUL, so that no more is allocated than was sent. */
    if (count > r->left)
        return wrong(r, "START says %u %s, and has %zu bytes for them", count, what, r->left);
    *list = calloc((size_t)count + 1, sizeof(**list));
    if (!*list)
        return wrong(r, "no memory for %u %s", count, what);
    for (uint32_t i = 0; i < count; i++)
        if (!((*list)[i] = text(r)))
            return wrong(r, "START ends in its %s, of %u the %uth", what, count, i + 1);
    return true;
}

static bool groups(struct start *s, struct reader *r, uint32_t count)
{
    if (count > START_GROUPS_MAX)
        return wrong(r, "START says %u groups, and %u is the most", count, START_GROUPS_MAX);
    if (count > r->left / sizeof(gid_t))
        return wrong(r, "START ends in its %u groups", count);
    s->groups = count;
    s->group = calloc((size_t)count + 1, sizeof(gid_t));
    if (!s->group)
        return wrong(r, "no memory for %u groups", count);
    if (!take(r, s->group, count * sizeof(gid_t), "its groups"))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (s->group[i] == (gid_t)-1)
            return wrong(r, "group %u is none", s->group[i]);
    return true;
}

static bool names(struct start *s, struct reader *r)
{
    if (!(s->host = text(r)) || !(s->directory = text(r)) || !(s->file = text(r)))
        return wrong(r, "START ends before its program's name does");
    if (strlen(s->host) > AGENT_NAME_MAX)
        return wrong(r, "the host's name has more than %u bytes", AGENT_NAME_MAX);
    if (s->directory[0] != '/')
        return wrong(r, "the working directory does not begin with /");
    if (!s->file[0])
        return wrong(r, "the program has no name");
    return true;
}

static bool is_path(const char *text)
{
    if (*text != '/')
        return false;
    for (const char *at = text; *at; at += strcspn(at, "/")) {
        at += strspn(at, "/");
        size_t n = strcspn(at, "/");
        if ((n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
    }
    return true;
}

static bool read_all(struct start *s, struct reader *r)
{
    struct agent_start head;
    if (!take(r, &head, sizeof(head), "its head"))
        return false;
    if (head.version != AGENT_VERSION)
        return wrong(r, "START is of version %u, the agent of %u", head.version, AGENT_VERSION);
    if (head.uid == UINT32_MAX || head.gid == UINT32_MAX)
        return wrong(r, "user %u and group %u: one is none", head.uid, head.gid);
    if (head.umask > 0777)
        return wrong(r, "umask 0%o is none", head.umask);
    if (head.terminals > 7)
        return wrong(r, "terminals 0x%x: there are three descriptors", head.terminals);
    if (head.writes > AGENT_WRITES)
        return wrong(r, "START says %u directories to be written, and %u is the most", head.writes,
                     AGENT_WRITES);
    if (!head.arguments)
        return wrong(r, "START has no argument; the first is the program's name");
    s->uid = head.uid;
    s->gid = head.gid;
    s->umask = head.umask;
    s->terminals = head.terminals;
    s->size = head.size;
    s->network = head.network;
    s->window = head.window;
    s->clock = (struct timespec){(time_t)(head.seconds & INT64_MAX), head.nanoseconds};
    if (head.nanoseconds > 999999999 || head.seconds > INT32_MAX * 4ull)
        return wrong(r, "the host's clock shows no time");
    if (!groups(s, r, head.groups) || !names(s, r) ||
        !texts(r, head.arguments, &s->arguments, "arguments") ||
        !texts(r, head.variables, &s->variables, "variables") ||
        !texts(r, head.writes, &s->writes, "directories to be written"))
        return false;
    for (char **v = s->variables; *v; v++)
        if (**v == '=' || !strchr(*v, '='))
            return wrong(r, "variable %zd is not NAME=VALUE", v - s->variables + 1);
    for (char **w = s->writes; *w; w++)
        if (!is_path(*w))
            return wrong(r, "directory %zd to be written is no path from / on", w - s->writes + 1);
    if (r->left)
        return wrong(r, "START has %zu bytes too many", r->left);
    return true;
}

bool start_read(struct start *s, char *bytes, size_t len, char why[START_WHY])
{
    struct reader r = {bytes, len, why};
    memset(s, 0, sizeof(*s));
    if (read_all(s, &r))
        return true;
    start_free(s);
    return false;
}

void start_free(struct start *s)
{
    free(s->group);
    free(s->arguments);
    free(s->variables);
    free(s->writes);
    memset(s, 0, sizeof(*s));
}
