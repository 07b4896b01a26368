/* See turns.h. */
#define _GNU_SOURCE /* getline */
#include "live/turns.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct turn {
    u64 count;
    u32 to;
};

struct turns {
    struct {
        struct turn *turn;
        size_t n, room, next;
    } of[MACHINE_CPUS_MAX];
    size_t n;
};

static bool number(char **at, u64 most, u64 *out)
{
    char *end;
    *at += strspn(*at, " \t");
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return !errno && *out <= most;
}

static int add(struct turns *t, u64 cpu, u64 count, u64 to)
{
    size_t n = t->of[cpu].n;
    if (n == t->of[cpu].room) {
        size_t room = n ? 2 * n : 64;
        struct turn *more = reallocarray(t->of[cpu].turn, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        t->of[cpu].turn = more;
        t->of[cpu].room = room;
    }
    t->of[cpu].turn[n] = (struct turn){.count = count, .to = (u32)to};
    t->of[cpu].n++;
    t->n++;
    return 0;
}

static const char *parse(struct turns *t, char *line)
{
    u64 cpu, count, to;
    char *at = line + strspn(line, " \t");
    if (!*at || *at == '\n' || *at == '#')
        return NULL;
    if (!number(&at, MACHINE_CPUS_MAX - 1, &cpu) || !number(&at, NEVER - 1, &count) ||
        !number(&at, MACHINE_CPUS_MAX - 1, &to))
        return "no line CPU COUNT TO of numbers, CPUs from 0 to 31";
    at += strspn(at, " \t");
    if (*at && *at != '\n' && *at != '#')
        return "something stands after CPU COUNT TO";
    size_t n = t->of[cpu].n;
    if (n && t->of[cpu].turn[n - 1].count >= count)
        return "the count is not above that of this CPU's line before";
    if (t->n == TURNS_MAX)
        return "there are too many lines";
    return add(t, cpu, count, to) ? "out of memory" : NULL;
}

static int read_turns(struct turns **out, const char *name, FILE *f, struct err *err)
{
    struct turns *t = calloc(1, sizeof(*t));
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t len;
    int code = t ? 0 : err_set(err, -ENOMEM, "out of memory");
    while (!code && (len = getline(&line, &room, f)) > 0) {
        const char *why;
        number++;
        why = memchr(line, 0, (size_t)len) ? "there is a byte 0" : parse(t, line);
        if (why)
            code = err_set(err, -EINVAL, "%s:%zu: %s", name, number, why);
    }
    if (!code && ferror(f))
        code = err_set(err, -EIO, "%s: cannot be read: %s", name, strerror(errno));
    free(line);
    if (code)
        turns_destroy(t);
    else
        *out = t;
    return code;
}

int turns_load(struct turns **out, const char *path, struct err *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    int code = read_turns(out, path, f, err);
    fclose(f);
    return code;
}

void turns_destroy(struct turns *t)
{
    for (unsigned i = 0; t && i < MACHINE_CPUS_MAX; i++)
        free(t->of[i].turn);
    free(t);
}

/* Of whose turn it is; NULL: it has no more. */
static const struct turn *next(const struct turns *t, struct machine *m, u64 *count)
{
    unsigned cpu = machine_turn(m);
    *count = machine_turn_count(m);
    const struct turn *list = t->of[cpu].turn;
    size_t i = t->of[cpu].next, n = t->of[cpu].n;
    while (i < n && list[i].count < *count)
        i++;
    return i < n ? &list[i] : NULL;
}

bool turns_take(struct turns *t, struct machine *m, struct input *in)
{
    u64 count;
    unsigned cpu = machine_turn(m);
    const struct turn *turn = next(t, m, &count);
    t->of[cpu].next = turn ? (size_t)(turn - t->of[cpu].turn) : t->of[cpu].n;
    if (!turn || turn->count != count || !machine_room(m, INPUT_TURN, turn->to))
        return false;
    t->of[cpu].next++;
    *in = (struct input){.kind = INPUT_TURN, .unit = turn->to};
    return true;
}

pos_t turns_next(const struct turns *t, struct machine *m)
{
    u64 count;
    const struct turn *turn = next(t, m, &count);
    return turn && turn->count > count ? machine_position(m) + (turn->count - count) : NEVER;
}

void turns_write(FILE *f, const struct machine_switch *s)
{
    fprintf(f, "%u %" PRIu64 " %u\n", s->cpu, s->count, s->to);
}
