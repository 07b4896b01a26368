/*
 * The processes of a window. The judge is a copy of the engine's process at the window's beginning;
 * it stays so, and has copies of itself follow the tape. They have no files but stderr, take no
 * signals but those of guest instructions, start no program and die with the one they come from.
 */
#define _GNU_SOURCE
#include "paranoid.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/x86/insn.h"
#include "cpu/x86/mode.h"

/* A child that does not come to the window's end in so many seconds has lost its way. */
#define TIME_LIMIT 900
/* Bytes of memory and fields of the vCPU that are shown. */
#define SHOWN 4

void futex_wake(u32 *at)
{
    syscall(SYS_futex, at, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void futex_wait(u32 *at, u32 value, u32 ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, at, FUTEX_WAIT, value, &t, NULL, 0);
}

/* Without the C library's fork(): it would wait for locks that other threads hold, and tell the
 * session's waiters of each child. */
int paranoid_split(struct paranoid *p)
{
    pid_t parent = getpid();
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigprocmask(SIG_SETMASK, &all, &before);
    ram_copied(p->d->c.ram, true);
    int pid = (int)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent)
            _exit(1);
        return 0;
    }
    int saved = errno;
    ram_copied(p->d->c.ram, false);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return pid;
}

static void close_files(void)
{
    close(0);
    close(1);
    if (syscall(SYS_close_range, 3u, ~0u, 0))
        for (int fd = 3; fd < 65536; fd++)
            close(fd);
}

/* ---- states ---- */

/* In a child: the state at a position. */
static void come_to(struct paranoid *p, struct window *w, pos_t upto, pos_t by_hand,
                    struct outcome *o)
{
    int status, pid;
    o->left = false;
    o->npages = 0;
    pid = paranoid_split(p);
    if (!pid) {
        follow(p, w, upto, by_hand, o);
        _exit(0);
    }
    time_t began = time(NULL);
    for (long ns = 20000; pid > 0 && waitpid(pid, &status, __WALL | WNOHANG) == 0;) {
        struct timespec t = {0, ns};
        nanosleep(&t, NULL);
        ns = MIN(ns * 5 / 4, 1000000);
        if (time(NULL) - began > TIME_LIMIT) {
            o->left = true;
            snprintf(o->text, sizeof(o->text), "does not end in %d seconds", TIME_LIMIT);
            return; /* it ends with us */
        }
    }
    if (pid < 0 || status) {
        o->left = true;
        snprintf(o->text, sizeof(o->text),
                 pid < 0 ? "cannot be run: no process" : "died of signal %d",
                 pid < 0 ? 0 : status & 127);
    }
}

struct differences {
    const char *names[SHOWN];
    u64 a[SHOWN], b[SHOWN];
    unsigned index[SHOWN], n;
};

static void note_field(void *opaque, const struct state_field *field, unsigned index, u64 a, u64 b)
{
    struct differences *d = opaque;
    if (d->n < SHOWN) {
        d->names[d->n] = field->name;
        d->index[d->n] = index;
        d->a[d->n] = a;
        d->b[d->n] = b;
    }
    d->n++;
}

/* Pages that differ, up to DUMPS in `list`; what one side did not write is as it is here. */
static u32 pages_differ(struct paranoid *p, const struct outcome *a, const struct outcome *b,
                        u32 *list)
{
    u32 n = 0;
    for (u32 i = 0; i < a->npages; i++)
        p->where[a->pages[i].index] = i + 1;
    for (u32 i = 0; i < b->npages; i++) {
        u32 index = b->pages[i].index, at = p->where[index];
        u64 other = at ? a->pages[at - 1].hash : paranoid_hash(p, index);
        p->where[index] = 0;
        if (b->pages[i].hash != other && n++ < DUMPS)
            list[n - 1] = index;
    }
    for (u32 i = 0; i < a->npages; i++) {
        u32 index = a->pages[i].index;
        if (p->where[index] && a->pages[i].hash != paranoid_hash(p, index) && n++ < DUMPS)
            list[n - 1] = index;
        p->where[index] = 0;
    }
    return n;
}

static bool differ(struct paranoid *p, const struct outcome *a, const struct outcome *b)
{
    struct differences d = {.n = 0};
    u32 list[DUMPS];
    if (a->left || b->left)
        return a->left != b->left || a->position != b->position || strcmp(a->text, b->text) != 0;
    state_diff(&vcpu_full_state_desc, &a->cpu, &b->cpu, note_field, &d);
    return d.n || pages_differ(p, a, b, list);
}

/* ---- what is said of a difference ---- */

static void say(struct window *w, const char *fmt, ...) PRINTF(2, 3);
static void say(struct window *w, const char *fmt, ...)
{
    size_t used = strlen(w->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->text + used, sizeof(w->text) - used, fmt, args);
    va_end(args);
}

static void say_bytes(struct window *w, gpa_t at, const u8 *a, const u8 *b)
{
    unsigned first = 0, last = PAGE_SIZE - 1;
    while (first < last && a[first] == b[first])
        first++;
    while (last > first && a[last] == b[last])
        last--;
    unsigned n = MIN(last - first + 1, 8u);
    say(w, "; guest-physical %llx is", (unsigned long long)(at + first));
    for (unsigned i = 0; i < n; i++)
        say(w, " %02x", a[first + i]);
    say(w, ", by single instructions");
    for (unsigned i = 0; i < n; i++)
        say(w, " %02x", b[first + i]);
}

/* `a` ran translated code. */
static void say_differences(struct paranoid *p, struct window *w, const struct outcome *a,
                            const struct outcome *b)
{
    struct differences d = {.n = 0};
    if (a->left)
        say(w, "; translated code: position %llu, %s", (unsigned long long)a->position, a->text);
    if (b->left)
        say(w, "; single instructions: position %llu, %s", (unsigned long long)b->position,
            b->text);
    if (a->left || b->left)
        return;
    state_diff(&vcpu_full_state_desc, &a->cpu, &b->cpu, note_field, &d);
    for (unsigned i = 0; i < MIN(d.n, (unsigned)SHOWN); i++)
        say(w, "; %s[%u] is %llx, by single instructions %llx", d.names[i], d.index[i],
            (unsigned long long)d.a[i], (unsigned long long)d.b[i]);
    if (d.n > SHOWN)
        say(w, "; and %u fields more", d.n - SHOWN);
    for (u32 i = 0; i < MIN(b->ndumps, 2u); i++)
        say_bytes(w, ram_page_gpa(p->d->c.ram, b->dumped[i]), a->dump[i], b->dump[i]);
}

/* The instruction that single instructions find at a position. */
static void say_instruction(struct paranoid *p, struct window *w, pos_t at)
{
    struct outcome *o = &w->again;
    char text[96] = "";
    come_to(p, w, at, NEVER, o);
    if (o->left)
        return;
    if (o->ncode)
        insn_text(code_size(&p->d->c), o->code, o->ncode, o->cpu.rip, text, sizeof(text));
    say(w, ", RIP %llx%s%s", (unsigned long long)o->cpu.rip, *text ? ": " : "", text);
}

/* ---- which instruction it takes ---- */

/* Translated from `from` on, or all: is it another state at `upto`? */
static bool differs_from(struct paranoid *p, struct window *w, pos_t upto, pos_t from,
                         const struct outcome *than)
{
    come_to(p, w, upto, from, &w->again);
    return differ(p, &w->again, than);
}

static bool differs_at(struct paranoid *p, struct window *w, pos_t upto, pos_t from)
{
    come_to(p, w, upto, NEVER, &w->reference);
    return differs_from(p, w, upto, from, &w->reference);
}

/* The first position at which it shows; NEVER: at the window's end only, as the last instructions
 * in front of a position are not run translated. */
static pos_t find_end(struct paranoid *p, struct window *w)
{
    pos_t same = w->first, other = w->last;
    if (!differs_at(p, w, other, 0))
        return NEVER;
    while (other - same > 1) {
        pos_t mid = same + (other - same) / 2;
        if (differs_at(p, w, mid, 0))
            other = mid;
        else
            same = mid;
    }
    return other;
}

/* From `from` on translated: does it come to the state that it should not come to? */
static bool shows(struct paranoid *p, struct window *w, pos_t end, pos_t from)
{
    return !differs_from(p, w, end, from, &w->engine);
}

/*
 * The last position from which on translated code has to run, so that it comes at `end` to where it
 * comes if all is translated, and not just to something else: what goes wrong may do so again. 0:
 * it does not differ there. Whether it shows also depends on where blocks happen to begin, so
 * bisection is not the end of it.
 */
static pos_t find_begin(struct paranoid *p, struct window *w, pos_t end)
{
    pos_t other = w->first, same = MIN(end, w->last);
    if (end != NEVER) {
        come_to(p, w, end, NEVER, &w->reference);
        come_to(p, w, end, 0, &w->engine);
        if (!differ(p, &w->engine, &w->reference))
            return 0;
    }
    while (same - other > 1) {
        pos_t mid = other + (same - other) / 2;
        if (shows(p, w, end, mid))
            other = mid;
        else
            same = mid;
    }
    for (pos_t at = MIN(MIN(end, w->last), other + 2 * BLOCK_MAX); at > other; at--)
        if (shows(p, w, end, at))
            return at;
    return other;
}

static void find(struct paranoid *p, struct window *w)
{
    if (!differs_at(p, w, NEVER, 0)) {
        say_differences(p, w, &w->engine, &w->reference);
        say(w, "; from the same state it does not happen again: it takes what was there before");
        return;
    }
    pos_t end = find_end(p, w), begin = find_begin(p, w, end);
    /* Blocks that are too long to run translated before `end` do so before this. */
    pos_t later = end == NEVER ? NEVER : end + 2 * BLOCK_MAX;
    if (later < w->last)
        begin = MAX(begin, find_begin(p, w, later));
    say(w, ": it takes the instruction at position %llu", (unsigned long long)begin);
    say_instruction(p, w, begin);
    if (end == NEVER)
        say(w, ", translated; at the window's end");
    else
        say(w, ", translated; at position %llu", (unsigned long long)end);
    struct outcome *o[] = {&w->again, &w->reference};
    u32 list[DUMPS], n = 0;
    differs_at(p, w, end, begin);
    if (!w->again.left && !w->reference.left)
        n = MIN(pages_differ(p, &w->again, &w->reference, list), DUMPS);
    for (unsigned k = 0; k < ARRAY_SIZE(o); k++) {
        o[k]->ndumps = n;
        memcpy(o[k]->dumped, list, n * sizeof(list[0]));
    }
    differs_at(p, w, end, begin); /* once more, to see those pages */
    say_differences(p, w, &w->again, &w->reference);
}

void judge(struct paranoid *p, struct window *w)
{
    close_files();
    while (!__atomic_load_n(&w->go, __ATOMIC_ACQUIRE))
        futex_wait(&w->go, 0, 1000);
    u32 verdict = VERDICT_SAME;
    if (w->go == 1) {
        come_to(p, w, NEVER, NEVER, &w->reference);
        if (differ(p, &w->engine, &w->reference)) {
            verdict = VERDICT_DIFFERS;
            w->text[0] = 0;
            say(w,
                "paranoid: translated code and single instructions differ in window %llu, "
                "positions %llu to %llu",
                (unsigned long long)w->number, (unsigned long long)w->first,
                (unsigned long long)w->last);
            find(p, w);
        }
    }
    __atomic_store_n(&w->verdict, verdict, __ATOMIC_RELEASE);
    futex_wake(&w->verdict);
    _exit(0);
}
