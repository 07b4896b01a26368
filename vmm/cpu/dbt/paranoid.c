/*
 * The engine that checks itself: windows, and the calls of the engine's user on the way. See
 * paranoid.h. Nothing here changes what the guest does: where runs end in between is invisible, and
 * so is that pages are tracked from their first write on.
 */
#define _GNU_SOURCE
#include "paranoid.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "cpu/x86/run.h"

/* Lengths of windows: up to 2 to the power of one of these. Copies of a process that has a Linux
 * guest take 20 ms, as long as a reference takes for some 400,000 instructions. */
static const u8 lengths[] = {12, 16, 18, 19, 20, 21, 21, 22};
/* One window in so many walks the page tables for each instruction, and is short. */
#define STRICT_EVERY   4
#define STRICT_LENGTH  131072
#define SHORT_AT_FIRST 8
/* One in so many ends with a look at all of memory: did something change that was not noted? */
#define LOOK_EVERY 64

/* A function of seed and number: windows are the same in each run. (splitmix64) */
static u64 draw(const struct paranoid *p, u64 salt)
{
    u64 z = p->seed + (p->number * 2 + salt + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* ---- windows ---- */

/* Has the judge ended? */
static void reap(struct paranoid *p, struct slot *s)
{
    const struct window *w = s->w;
    int status;
    bool ends = __atomic_load_n(&w->verdict, __ATOMIC_ACQUIRE) != VERDICT_NONE;
    pid_t pid = waitpid(s->pid, &status, __WALL | (ends ? 0 : WNOHANG));
    if (!pid || (pid < 0 && errno == EINTR))
        return;
    s->pid = 0;
    if (w->go == 2)
        return;
    if (w->verdict == VERDICT_SAME)
        p->compared += w->last - w->first;
    else if (w->verdict == VERDICT_DIFFERS && paranoid_failed_first(p, w->number))
        err_set(&p->failed, -EIO, "%s", w->text);
    else if (w->verdict == VERDICT_NONE && paranoid_failed_first(p, w->number))
        err_set(&p->failed, -EIO,
                "paranoid: the process that compares window %llu ended without a result (status "
                "%x): is there memory for it?",
                (unsigned long long)w->number, status);
}

/* Reaps; waits until a slot is free, or all are. */
static struct slot *wait_slots(struct paranoid *p, bool all)
{
    for (;;) {
        struct slot *empty = NULL, *busy = NULL;
        for (unsigned i = 0; i < p->nslots; i++) {
            struct slot *s = &p->slot[i];
            if (s->pid && s != p->open)
                reap(p, s);
            if (!s->pid)
                empty = s;
            else if (s != p->open && (!busy || s->w->number < busy->w->number))
                busy = s;
        }
        if (!busy || (empty && !all))
            return empty;
        futex_wait(&busy->w->verdict, VERDICT_NONE, 20);
    }
}

static int open_window(struct paranoid *p, struct err *err)
{
    struct core *c = &p->d->c;
    struct slot *s = wait_slots(p, false);
    if (p->failed.code)
        return 0;
    if (!p->number)
        pages_look_at_all(p, true);
    pages_look(p, NULL); /* by devices, between windows */
    if (core_ops.written_reset(&c->base))
        return err_set(err, -ENOMEM, "no memory to note which pages were written");
    struct window *w = s->w;
    w->go = 0;
    w->verdict = VERDICT_NONE;
    w->used = 0;
    w->number = p->number;
    w->first = position(c);
    w->strict = draw(p, 0) % STRICT_EVERY == 0;
    struct outcome *o[] = {&w->engine, &w->reference, &w->again};
    for (unsigned i = 0; i < ARRAY_SIZE(o); i++) {
        o[i]->left = false;
        o[i]->npages = 0;
        o[i]->ndumps = 0;
    }
    u64 r = draw(p, 1), limit = 1ull << lengths[r % ARRAY_SIZE(lengths)];
    if (w->strict)
        limit = MIN(limit, STRICT_LENGTH);
    if (p->number < SHORT_AT_FIRST) /* small guests have several windows, too */
        limit = MIN(limit, 4096ull << p->number);
    p->end = w->first + 1 + (r >> 8) % limit;
    p->overflow = false;
    s->pid = paranoid_split(p);
    if (s->pid < 0) {
        s->pid = 0;
        return err_errno(err, "cannot make a process to compare with");
    }
    if (!s->pid)
        judge(p, w);
    p->number++;
    p->open = s;
    p->tape = w;
    return 0;
}

/* The window ends here: it counts if there was nothing that the tape cannot hold. */
static void close_window(struct paranoid *p, bool counts)
{
    struct slot *s = p->open;
    if (!s)
        return;
    struct window *w = s->w;
    p->open = NULL;
    p->tape = NULL;
    counts = counts && !p->overflow;
    if (counts) {
        w->last = position(&p->d->c);
        outcome_take(p, &w->engine);
        pages_look(p, &w->engine);
        if (p->number % LOOK_EVERY == 0)
            pages_look_at_all(p, false);
    } else {
        p->dropped++;
    }
    __atomic_store_n(&w->go, counts ? 1 : 2, __ATOMIC_RELEASE);
    futex_wake(&w->go);
}

/* Somebody changes the vCPU, or how it runs, in a way that no tape has. */
static struct paranoid *drop(struct engine *e)
{
    struct paranoid *p = paranoid_of(e);
    close_window(p, false);
    return p;
}

/* ---- the engine's calls ---- */

static enum engine_exit run(struct engine *e, pos_t stop_at, struct err *err)
{
    struct paranoid *p = paranoid_of(e);
    struct core *c = &p->d->c;
    if (!p->open && !p->failed.code && open_window(p, err))
        return ENGINE_FAILED;
    if (p->failed.code) {
        close_window(p, true);
        wait_slots(p, true);
        *err = p->failed;
        return ENGINE_FAILED;
    }
    pos_t here = unit_position(c);
    pos_t stop = MIN(stop_at, here + (p->end - position(c)));
    struct tape_entry *t = tape_add(p, TAPE_RUN, 0);
    if (t) {
        t->b = position(c) + (stop - here);
        t->time = p->real->now(p->real->cpu) - position(c);
    }
    p->running = true;
    enum engine_exit x = core_run(e, stop, err);
    p->running = false;
    if (t) {
        t->size = (u8)x;
        t->a = position(c);
        t->b = MAX(t->b, t->a + 1);
    }
    tape_add(p, TAPE_END, 0);
    if (position(c) >= p->end || p->tape->used >= TAPE_LARGE || p->overflow)
        close_window(p, true);
    return x;
}

static void attention(struct engine *e)
{
    struct paranoid *p = paranoid_of(e);
    if (p->running)
        tape_add(p, TAPE_ATTENTION, 0);
    core_ops.attention(e);
}

static void want_window(struct engine *e, bool interrupt, bool nmi)
{
    struct paranoid *p = paranoid_of(e);
    if (interrupt != p->want_int || nmi != p->want_nmi) {
        struct tape_entry *t = tape_add(p, TAPE_WANT, 0);
        if (t) {
            t->a = interrupt;
            t->b = nmi;
        }
    }
    p->want_int = interrupt;
    p->want_nmi = nmi;
    core_ops.want_window(e, interrupt, nmi);
}

static int interrupt(struct engine *e, u8 vector)
{
    struct tape_entry *t = tape_add(paranoid_of(e), TAPE_INTERRUPT, 0);
    if (t)
        t->a = vector;
    return core_ops.interrupt(e, vector);
}

static int nmi(struct engine *e)
{
    tape_add(paranoid_of(e), TAPE_NMI, 0);
    return core_ops.nmi(e);
}

static void ram_written(struct engine *e, gpa_t gpa, u64 len)
{
    struct paranoid *p = paranoid_of(e);
    const struct ram *ram = p->d->c.ram;
    for (u64 done = 0, n; p->tape && done < len; done += n) {
        u64 at = gpa + done;
        n = MIN(len - done, PAGE_SIZE - (at & (PAGE_SIZE - 1)));
        const void *from = ram_ptr(ram, at, n);
        struct tape_entry *t = from ? tape_add(p, TAPE_RAM, (u32)n) : NULL;
        if (!t)
            continue;
        t->a = at;
        t->b = n;
        memcpy(t + 1, from, n);
    }
    core_ops.ram_written(e, gpa, len);
}

static void changed(struct engine *e)
{
    drop(e);
    core_ops.changed(e);
}

static void set_branches(struct engine *e, pos_t branches)
{
    drop(e);
    core_ops.set_branches(e, branches);
}

static int reach(struct engine *e, const struct engine_place *to, struct err *err)
{
    drop(e);
    return core_ops.reach(e, to, err);
}

static void count_event(struct engine *e)
{
    drop(e);
    core_ops.count_event(e);
}

static int set_trace(struct engine *e, const struct engine_trace *trace)
{
    drop(e);
    return core_ops.set_trace(e, trace);
}

static int debug_set(struct engine *e, const struct debug_point *points, unsigned n)
{
    drop(e);
    return core_ops.debug_set(e, points, n);
}

static int verify(struct engine *e, struct err *err)
{
    struct paranoid *p = paranoid_of(e);
    close_window(p, true);
    wait_slots(p, true);
    if (!p->failed.code && p->number) {
        pages_look(p, NULL);
        pages_look_at_all(p, false);
    }
    if (p->failed.code)
        *err = p->failed;
    return p->failed.code;
}

static void stats(const struct engine *e, struct machine_stats *out)
{
    const struct paranoid *p = paranoid_of((struct engine *)(uintptr_t)e);
    core_ops.stats(e, out);
    out->windows = p->number - p->dropped;
    out->windows_dropped = p->dropped;
    out->windows_compared = p->compared;
}

static void unmap(void *at, u64 size)
{
    if (at)
        munmap(at, size);
}

static u64 window_size(const struct paranoid *p)
{
    return sizeof(struct window) + 3 * p->d->c.shared->npages * sizeof(struct page_hash);
}

static void destroy(struct engine *e)
{
    struct paranoid *p = paranoid_of(e);
    u64 n = p->d->c.shared->npages;
    close_window(p, false);
    wait_slots(p, true);
    for (unsigned i = 0; i < p->nslots; i++)
        unmap(p->slot[i].w, window_size(p));
    unmap(p->in_window, n * sizeof(u32));
    unmap(p->for_user, n * sizeof(u32));
    unmap(p->where, n * sizeof(u32));
    unmap(p->known, n * sizeof(u64));
    unmap(p->seen, n);
    munmap(p, sizeof(*p));
    core_destroy(e);
}

static void *map(u64 size, int flags)
{
    void *p =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* A judge for each CPU, and one that waits for the window being run. */
static int create_slots(struct paranoid *p)
{
    cpu_set_t cpus;
    int n = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : CPU_COUNT(&cpus);
    for (p->nslots = 0; p->nslots < MIN((unsigned)n + 1, SLOTS_MAX); p->nslots++) {
        struct window *w = map(window_size(p), MAP_SHARED);
        if (!w)
            return -ENOMEM;
        struct page_hash *lists = (struct page_hash *)(w + 1);
        w->engine.pages = lists;
        w->reference.pages = lists + p->d->c.shared->npages;
        w->again.pages = lists + 2 * p->d->c.shared->npages;
        p->slot[p->nslots].w = w;
    }
    return 0;
}

int paranoid_create(struct dbt *d, const struct engine_paranoid *config, struct err *err)
{
    u64 n = d->c.shared->npages;
    struct paranoid *p = map(sizeof(*p), MAP_PRIVATE);
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    d->paranoid = p;
    p->d = d;
    p->seed = config->seed;
    p->ops = core_ops;
    p->ops.destroy = destroy;
    p->ops.run = run;
    p->ops.attention = attention;
    p->ops.want_window = want_window;
    p->ops.interrupt = interrupt;
    p->ops.nmi = nmi;
    p->ops.ram_written = ram_written;
    p->ops.changed = changed;
    p->ops.set_branches = set_branches;
    p->ops.reach = reach;
    p->ops.count_event = count_event;
    p->ops.set_trace = set_trace;
    p->ops.debug_set = debug_set;
    p->ops.written = pages_written;
    p->ops.written_reset = pages_written_reset;
    p->ops.verify = verify;
    p->ops.stats = stats;
    d->c.base.ops = &p->ops;
    p->real = d->c.env;
    p->env = paranoid_env;
    p->env.cpu = p;
    d->c.env = &p->env;
    p->in_window = map(n * sizeof(u32), MAP_PRIVATE);
    p->for_user = map(n * sizeof(u32), MAP_PRIVATE);
    p->where = map(n * sizeof(u32), MAP_PRIVATE);
    p->known = map(n * sizeof(u64), MAP_PRIVATE);
    p->seen = map(n, MAP_PRIVATE);
    if (!p->in_window || !p->for_user || !p->where || !p->known || !p->seen || create_slots(p))
        return err_set(err, -ENOMEM, "out of memory for windows");
    return 0;
}
