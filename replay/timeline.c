/* Moving along a recording. See timeline.h. */
#include "replay/timeline_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "board/ram.h"

/* A run is cut into pieces of so many positions, between which the host is looked at. */
#define PIECE (4u << 20)
/* With debug points, which may slow it down a hundred times. */
#define PIECE_ARMED (256u << 10)
/* CPU time of replay between two checkpoints. */
#define KEEP_NS 35000000u
/* A search backwards goes piece by piece: where it is slow, because points are hit all the time
 * that do not count, in pieces of about so much host time, lest an interruption loses much. */
#define WINDOW_FIRST (2u << 20)
#define NEAR_FIRST   (4u << 10) /* positions of the first piece where the hit may be near */
#define WINDOW_MIN   (64u << 10)
#define WINDOW_NS    250000000u
#define POLL_NS      3000000u
/* Checkpoints are also taken so many positions ahead of where a seek goes: what follows a seek is
 * often steps backwards. */
static const u64 ahead[] = {4u << 20, 128u << 10, 4u << 10, 64};

static u64 host_clock(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

/* What a replay costs, however busy the host is. */
static u64 cpu_clock(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

struct machine *timeline_machine(struct timeline *t)
{
    return t->m;
}

const struct opened *timeline_recording(const struct timeline *t)
{
    return &t->o;
}

struct kept *timeline_kept(struct timeline *t)
{
    return &t->kept;
}

struct disk *timeline_disk(struct timeline *t, unsigned n)
{
    return &t->o.disks[n];
}

const struct log_summary *timeline_summary(const struct timeline *t)
{
    return &t->summary;
}

struct instant timeline_now(const struct timeline *t)
{
    return (struct instant){machine_position(t->m), machine_now(t->m)};
}

struct instant timeline_end(const struct timeline *t)
{
    if (t->end_known)
        return t->end;
    return (struct instant){t->summary.last_position, t->summary.last_time};
}

bool timeline_at_end(const struct timeline *t, struct run_end *end)
{
    *end = t->how;
    return t->at_end;
}

const char *timeline_end_text(const struct timeline *t)
{
    return t->end_text;
}

enum player_result timeline_result(const struct timeline *t)
{
    return t->result;
}

const char *timeline_report(const struct timeline *t)
{
    return player_report(t->player);
}

const struct debug_hit *timeline_hit(const struct timeline *t)
{
    return &t->hit;
}

/* A quarter of what the host says is free. */
static u64 default_budget(void)
{
    u64 kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    if (f)
        fclose(f);
    u64 bytes = kib * 1024 / 4;
    return MAX(bytes, 256ull << 20);
}

int timeline_open(struct timeline **out, const char *dir, const struct timeline_config *config,
                  struct err *err)
{
    struct timeline *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(err, -ENOMEM, "out of memory");
    t->config = *config;
    t->notes.fd = -1;
    t->o.rec = (struct recording)RECORDING_CLOSED;
    t->budget = config->memory ? config->memory : default_budget();
    int code = find_recording(&t->o, dir, err);
    if (!code) {
        t->o.engine = config->engine;
        t->o.code_cache = config->code_cache;
        t->o.named = config->named;
        code = files_prepare(t, err);
    }
    if (!code) {
        code = build_machine(&t->o, &t->m, err);
    }
    if (!code)
        log_pass(t->o.log, &t->summary, kept_take, &t->kept);
    for (unsigned i = 0; !code && i < t->o.nseen; i++)
        if (t->o.seen[i].changed && config->warn)
            config->warn(config->opaque, t->o.seen[i].changed);
    if (!code) {
        struct player_config pc = {.log = t->o.log,
                                   .dir = t->o.quoted,
                                   .disks = t->o.seen,
                                   .ndisks = t->o.nseen,
                                   .contents = t->o.rec.contents};
        t->o.log = NULL;
        t->kept.contents = t->o.rec.contents;
        code = player_create(&t->player, &pc, t->m, err);
    }
    if (!code) {
        page_space_init(&t->space, t->m);
        machine_set_output(t->m, text_output, t);
        code = files_open(t, err);
    }
    if (!code)
        code = text_from_files(t, err);
    if (!code)
        code = keep_start(t, err);
    if (!code && t->store.bytes > t->budget)
        code = err_set(err, -ENOMEM,
                       "checkpoints need at least %" PRIu64 " MiB of memory for this guest; "
                       "--checkpoint-memory allows %" PRIu64 " MiB",
                       (t->store.bytes >> 20) + 1, t->budget >> 20);
    if (code) {
        timeline_close(t);
        return code;
    }
    *out = t;
    return 0;
}

void timeline_close(struct timeline *t)
{
    if (!t)
        return;
    keep_free(t);
    checkpoint_notes_close(&t->notes);
    player_destroy(t->player);
    kept_free(&t->kept);
    if (t->m)
        machine_destroy(t->m);
    for (int i = 0; i < OUT_COUNT; i++)
        free(t->text[i].data);
    free(t->points);
    free(t->skipped);
    free(t->open.list);
    close_recording(&t->o);
    free(t);
}

/* ---- a branch's inputs: none ---- */

static pos_t branch_next(struct input_source *src, struct machine *m)
{
    (void)src;
    (void)m;
    return NEVER;
}

static int branch_take(struct input_source *src, struct machine *m, struct input *in,
                       struct err *err)
{
    (void)src;
    (void)m;
    (void)in;
    (void)err;
    return 0;
}

static int branch_idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                       struct err *err)
{
    (void)src;
    (void)err;
    *until = deadline == NEVER ? machine_now(m) : deadline;
    return deadline == NEVER;
}

static const struct input_source_ops branch_ops = {branch_next, branch_take, branch_idle, NULL,
                                                   NULL};

/* ---- moving ---- */

/* The run ended for good: by the guest, by the log, or because something differed. */
static void note_end(struct timeline *t, const struct run_end *end, const struct err *run_err)
{
    struct err why = {0};
    t->at_end = true;
    t->how = *end;
    if (t->fork)
        return;
    enum player_result r = player_finish(t->player, t->m, end, run_err, &why);
    t->result = r;
    if (!t->end_known) {
        snprintf(t->end_text, sizeof(t->end_text), "%s", r == PLAYER_SAME ? "" : why.text);
        if (r == PLAYER_DIVERGED && t->config.warn)
            t->config.warn(t->config.opaque, why.text);
    }
    t->end = timeline_now(t);
    t->end_known = true;
}

/* What is loaded into the engine follows what was asked for. */
static int arm(struct timeline *t, bool on, struct err *err)
{
    if (on == t->armed)
        return 0;
    if (machine_debug_set(t->m, t->points, on ? t->npoints : 0))
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    t->armed = on;
    return 0;
}

/* One piece of the way to `to`. Checkpoints are taken between pieces. */
int move(struct timeline *t, struct instant to, enum move *what, struct err *err)
{
    struct instant now = timeline_now(t);
    struct run_limits limits = {.stop_at = to.position, .stop_time = to.time};
    struct run_end end;
    struct err run_err = {0};
    *what = MOVE_END;
    if (t->at_end)
        return 0;
    u32 piece = t->armed && t->npoints ? PIECE_ARMED : PIECE;
    limits.pause_at =
        now.position - now.position % piece + piece; /* however often there is a hit */
    for (size_t i = 0; i < ARRAY_SIZE(ahead) && to.position != NEVER && !t->direct; i++)
        if (to.position >= ahead[i] && to.position - ahead[i] > now.position)
            limits.pause_at = MIN(limits.pause_at, to.position - ahead[i]);
    u64 began = cpu_clock();
    struct input_source *src = t->fork ? &t->branch : player_source(t->player);
    machine_run(t->m, src, &limits, &end, &run_err);
    t->cost += cpu_clock() - began;
    now = timeline_now(t);
    if (end.reason == RUN_DEBUG) {
        t->hit = *machine_debug_hit(t->m);
        *what = MOVE_HIT;
        return 0;
    }
    if (end.reason == RUN_QUIT && run_err.code) { /* not the recording's end: this host's KVM */
        *err = run_err;
        return err->code;
    }
    if (end.reason != RUN_STOP) {
        note_end(t, &end, &run_err);
        return 0;
    }
    bool there = instant_reached(now, to);
    *what = there ? MOVE_REACHED : MOVE_PAUSE;
    if (t->fork || there || t->direct || t->config.once)
        return 0;
    bool keep = t->cost - t->last_kept >= KEEP_NS;
    for (size_t i = 0; i < ARRAY_SIZE(ahead) && to.position != NEVER; i++)
        keep = keep || now.position + ahead[i] == to.position;
    return keep ? keep_add(t, err) : 0;
}

bool move_interrupted(struct timeline *t)
{
    u64 now = host_clock();
    if (!t->config.poll || now - t->polled < POLL_NS)
        return false;
    t->polled = now;
    return t->config.poll(t->config.opaque, machine_position(t->m));
}

int run_to(struct timeline *t, struct instant to, enum timeline_stop *stop, struct err *err)
{
    int code = arm(t, false, err);
    while (!code) {
        struct instant now = timeline_now(t);
        enum move what;
        /* A recorder's checkpoint may be of just before an input at the same instant. */
        if (instant_reached(now, to) && (t->fork || !player_due(t->player, t->m))) {
            *stop = TIMELINE_REACHED;
            break;
        }
        code = move(t, to, &what, err);
        if (!code && what == MOVE_END) {
            *stop = TIMELINE_END;
            break;
        }
        if (!code && what == MOVE_PAUSE && move_interrupted(t)) {
            *stop = TIMELINE_INTERRUPTED;
            break;
        }
    }
    return code;
}

/* The nearest start: where the machine is, or a checkpoint. */
static int go(struct timeline *t, struct instant to, enum timeline_stop *stop, struct err *err)
{
    struct instant now = timeline_now(t);
    bool past = instant_reached(now, to);
    bool here = instant_equal(now, to);
    if (here && !t->fork) {
        *stop = TIMELINE_REACHED;
        return 0;
    }
    const struct checkpoint *c = keep_find(t, to, false, err);
    if (!c)
        return err->code;
    int code = 0;
    if (past || t->at_end || instant_before(now, c->at))
        code = keep_go_back(t, to, false, err);
    return code ? code : run_to(t, to, stop, err);
}

static int refuse_branch(struct timeline *t, struct err *err)
{
    return t->fork ? err_set(err, -EPERM, "this is a what-if branch; go back first") : 0;
}

int return_to(struct timeline *t, struct instant from, struct err *err)
{
    enum timeline_stop ignored;
    bool (*poll)(void *, pos_t) = t->config.poll;
    t->config.poll = NULL;
    int code = go(t, from, &ignored, err);
    t->config.poll = poll;
    return code;
}

int timeline_seek(struct timeline *t, struct instant to, enum timeline_stop *stop, struct err *err)
{
    struct instant from = timeline_now(t);
    if (refuse_branch(t, err))
        return err->code;
    int code = go(t, to, stop, err);
    return !code && *stop == TIMELINE_INTERRUPTED ? return_to(t, from, err) : code;
}

int timeline_set_points(struct timeline *t, const struct debug_point *points, unsigned n,
                        struct err *err)
{
    if (n == t->npoints && (!n || !memcmp(points, t->points, n * sizeof(*points))))
        return 0;
    struct debug_point *copy = calloc(n + 1, sizeof(*copy));
    struct timeline_skip *skipped = calloc(n + 1, sizeof(*skipped));
    if (!copy || !skipped) {
        free(copy);
        free(skipped);
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    }
    for (unsigned i = 0; i < n; i++)
        copy[i] = points[i];
    free(t->points);
    free(t->skipped);
    t->points = copy;
    t->skipped = skipped;
    t->npoints = n;
    t->armed = t->armed && !n; /* what is in the engine is out of date: set again, or nothing is */
    if (!n)
        return arm(t, false, err);
    if (machine_debug_set(t->m, copy, n))
        return err_set(err, -ENOMEM, "no memory for breakpoints");
    t->armed = true;
    return 0;
}

const struct debug_point *timeline_points(const struct timeline *t, unsigned *n)
{
    *n = t->npoints;
    return t->points;
}

static enum timeline_verdict verdict(struct timeline *t, enum timeline_side side)
{
    return t->config.holds ? t->config.holds(t->config.opaque, t->hit.point, side)
                           : TIMELINE_COUNTS;
}

int timeline_forward(struct timeline *t, struct instant to, bool pass, enum timeline_stop *stop,
                     struct err *err)
{
    int code = arm(t, true, err);
    skip_forget(t);
    if (pass)
        machine_debug_pass(t->m);
    while (!code) {
        enum move what;
        code = move(t, to, &what, err);
        if (code)
            break;
        if (what == MOVE_END || what == MOVE_REACHED) {
            *stop = what == MOVE_END ? TIMELINE_END : TIMELINE_REACHED;
            break;
        }
        if (what == MOVE_HIT) {
            enum timeline_verdict v = verdict(t, TIMELINE_FORWARDS);
            if (v == TIMELINE_COUNTS) {
                *stop = TIMELINE_HIT;
                break;
            }
            if (v == TIMELINE_SKIPPED)
                skip_note(t, &t->hit, timeline_now(t));
            machine_debug_pass(t->m);
        }
        if (move_interrupted(t)) {
            *stop = TIMELINE_INTERRUPTED;
            break;
        }
    }
    return code;
}

enum sweep { SWEEP_DONE, SWEEP_INTERRUPTED, SWEEP_SLOW };

/* From here to `end`: the last hit that lies before it. SLOW: given up, at `until` of host time. */
static int sweep(struct timeline *t, struct instant end, u64 until, struct debug_hit *last,
                 bool *found, enum sweep *how, struct err *err)
{
    int code = arm(t, true, err);
    *found = false;
    *how = SWEEP_DONE;
    t->open.n = 0;
    while (!code) {
        struct instant now = timeline_now(t);
        enum move what;
        if (instant_reached(now, end))
            break;
        code = move(t, end, &what, err);
        if (code || what == MOVE_END || what == MOVE_REACHED)
            break;
        if (what == MOVE_HIT) {
            enum timeline_verdict v =
                t->hit.position < end.position ? verdict(t, TIMELINE_AFTER) : TIMELINE_IGNORED;
            if (v == TIMELINE_COUNTS) {
                *last = t->hit;
                *found = true;
            } else if (v == TIMELINE_IN_FRONT) {
                code = skip_open(t, &t->hit, err);
            }
            machine_debug_pass(t->m);
        }
        if (move_interrupted(t))
            *how = SWEEP_INTERRUPTED;
        else if (what == MOVE_PAUSE && host_clock() > until)
            *how = SWEEP_SLOW;
        if (*how != SWEEP_DONE)
            break;
    }
    return code;
}

/* To where the piece of the search that ends there begins: the last checkpoint, or nearer. */
static int piece_start(struct timeline *t, struct instant end, enum sweep *how, struct err *err)
{
    enum timeline_stop stop = TIMELINE_REACHED;
    int code = keep_go_back(t, end, true, err);
    if (!t->search.window)
        t->search.window = WINDOW_FIRST;
    u64 window = MIN(t->search.window, t->search.near);
    if (t->search.near != NEVER)
        t->search.near = MIN(8 * t->search.near, (u64)1 << 40);
    if (!code && end.position - machine_position(t->m) > window)
        code = run_to(t, (struct instant){end.position - window, 0}, &stop, err);
    *how = stop == TIMELINE_INTERRUPTED ? SWEEP_INTERRUPTED : SWEEP_DONE;
    return code;
}

/* So many positions took so long. */
static void adapt_window(struct timeline *t, u64 positions, u64 ns)
{
    if (positions >= WINDOW_MIN / 2 || ns > WINDOW_NS)
        t->search.window = MAX(positions * (WINDOW_NS / 1000) / (ns / 1000 + 1), (u64)WINDOW_MIN);
}

static int backward(struct timeline *t, struct instant from, enum timeline_stop *stop,
                    struct err *err)
{
    struct instant end = from;
    for (;;) {
        struct debug_hit last;
        bool found = false;
        enum sweep how;
        t->search.start = t->search.end = end.position;
        int code = piece_start(t, end, &how, err);
        if (code)
            return code;
        struct instant start = timeline_now(t);
        u64 began = host_clock(), size = end.position - start.position;
        t->search.start = start.position;
        if (how == SWEEP_DONE) {
            u64 until = size > WINDOW_MIN ? began + 4ull * WINDOW_NS : NEVER;
            code = sweep(t, end, until, &last, &found, &how, err);
            pos_t swept = machine_position(t->m);
            bool cut = false;
            if (!code && how == SWEEP_DONE)
                code = skip_decide(t, start, &last, &found, &cut, err);
            if (cut)
                how = SWEEP_INTERRUPTED;
            adapt_window(t, swept - start.position, host_clock() - began);
        }
        if (code)
            return code;
        if (how == SWEEP_INTERRUPTED) { /* what lies after `end` has been searched */
            *stop = TIMELINE_INTERRUPTED;
            return return_to(t, end, err);
        }
        if (how == SWEEP_SLOW)
            continue;
        if (found) {
            code = return_to(t, (struct instant){last.position, 0}, err);
            t->hit = last;
            *stop = TIMELINE_HIT;
            return code;
        }
        if (start.position == 0) {
            *stop = TIMELINE_BEGIN;
            return keep_go_back(t, (struct instant){0, 0}, false, err);
        }
        end = start;
    }
}

static int backward_from(struct timeline *t, u64 near, enum timeline_stop *stop, struct err *err)
{
    struct instant from = timeline_now(t);
    if (refuse_branch(t, err))
        return err->code;
    if (from.position == 0) {
        *stop = TIMELINE_BEGIN;
        return 0;
    }
    if (!t->npoints) {
        *stop = TIMELINE_BEGIN;
        return keep_go_back(t, (struct instant){0, 0}, false, err);
    }
    skip_forget(t);
    t->search.from = t->search.start = t->search.end = from.position;
    t->search.near = near;
    t->search.on = true;
    int code = backward(t, from, stop, err);
    t->search.on = false;
    return code;
}

int timeline_backward(struct timeline *t, enum timeline_stop *stop, struct err *err)
{
    return backward_from(t, NEVER, stop, err);
}

int timeline_backward_near(struct timeline *t, enum timeline_stop *stop, struct err *err)
{
    return backward_from(t, NEAR_FIRST, stop, err);
}

bool timeline_searching(const struct timeline *t, pos_t *from, pos_t *searched)
{
    pos_t now = machine_position(t->m);
    *from = t->search.from;
    *searched = t->search.from - t->search.end;
    if (now > t->search.start)
        *searched += MIN(now, t->search.end) - t->search.start;
    return t->search.on;
}

int timeline_return(struct timeline *t, struct instant to, struct err *err)
{
    return refuse_branch(t, err) ? err->code : return_to(t, to, err);
}

int timeline_step_back(struct timeline *t, enum timeline_stop *stop, struct err *err)
{
    pos_t position = machine_position(t->m);
    if (refuse_branch(t, err))
        return err->code;
    if (position == 0) {
        *stop = TIMELINE_BEGIN;
        return 0;
    }
    struct instant to = {position - 1, 0};
    int code = go(t, to, stop, err);
    if (code || *stop != TIMELINE_INTERRUPTED)
        return code;
    *stop = TIMELINE_REACHED; /* no other place is as good, and what is missing is little */
    return return_to(t, to, err);
}

/* ---- branches ---- */

int timeline_branch(struct timeline *t, struct err *err)
{
    if (t->fork)
        return 0;
    if (t->at_end)
        return err_set(err, -EPERM, "the machine has ended here: nothing can go on from it");
    int code = keep_take(t, &t->fork, err);
    t->branch.ops = &branch_ops;
    return code;
}

bool timeline_branched(const struct timeline *t)
{
    return t->fork;
}

int timeline_back(struct timeline *t, struct err *err)
{
    if (!t->fork)
        return err_set(err, -EPERM, "this is no branch: nothing was changed");
    struct checkpoint *c = t->fork;
    t->fork = NULL;
    int code = keep_restore(t, c, err);
    checkpoint_destroy(c);
    return code;
}

/* ---- files ---- */

/* The pages in which a checkpoint differs from the one before it. */
struct file_pages {
    const struct page_space *space;
    const struct checkpoint *c;
    u32 *list;
    size_t n, room;
    u64 first; /* added to what is listed now */
    bool failed;
    u8 read[PAGE_SIZE]; /* a page of a disk that was in a file */
    int error;          /* of the first that could not be read */
};

static void list_page(void *opaque, u64 index)
{
    struct file_pages *f = opaque;
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 4096;
        u32 *bigger = realloc(f->list, room * sizeof(*bigger));
        if (!bigger) {
            f->failed = true;
            return;
        }
        f->list = bigger;
        f->room = room;
    }
    f->list[f->n++] = (u32)(f->first + index);
}

static const u8 *file_page(void *opaque, size_t i)
{
    struct file_pages *f = opaque;
    u64 index = f->list[i];
    int image = page_space_find(f->space, &index);
    const u8 *page;
    int code = page_image_read(image < 0 ? f->c->ram : f->c->image[image], index, f->read, &page);
    f->error = f->error ? f->error : code;
    return code ? NULL : page;
}

static int write_one(struct timeline *t, struct checkpoint_writer *w, struct log_reader *log,
                     const struct checkpoint *before, const struct checkpoint *c, struct err *err)
{
    struct sha256 records;
    if (!checkpoint_log_before(log, &c->place.log, &records))
        return err_set(err, -EIO, "the log has changed while it was replayed");
    struct file_pages f = {.space = &t->space, .c = c};
    page_image_diff(before->ram, c->ram, list_page, &f);
    f.first = t->space.ram;
    for (unsigned i = 0; i < t->space.nimages; i++) {
        page_image_diff(before->image[i], c->image[i], list_page, &f);
        f.first += t->space.image[i];
    }
    struct checkpoint_part part = {.at = c->at,
                                   .place = c->place,
                                   .log = records,
                                   .state = c->state,
                                   .state_size = machine_state_size(t->m),
                                   .pages = f.list,
                                   .npages = f.n,
                                   .page = file_page,
                                   .opaque = &f};
    for (int i = 0; i < OUT_COUNT; i++) {
        u64 was = w->sequence ? before->output_bytes[i] : 0;
        part.output[i].total = c->output_bytes[i];
        part.output[i].data = (const u8 *)(t->text[i].data ? t->text[i].data : "") + was;
        part.output[i].len = c->output_bytes[i] - was;
    }
    int code = f.failed ? err_set(err, -ENOMEM, "no memory to write a checkpoint")
                        : checkpoint_write(w, &part, err);
    if (!code && f.error) {
        errno = -f.error;
        code = err_errno(err, "cannot read back what was written to a disk");
    }
    free(f.list);
    return code;
}

int timeline_write_checkpoints(struct timeline *t, u64 every_ns, u32 *files, u64 *bytes,
                               struct err *not_noted, struct err *err)
{
    static const char temporary[] = CHECKPOINT_DIR ".new";
    struct checkpoint_writer w;
    struct checkpoint *before = NULL, *c = NULL;
    struct opened other;
    int code = open_recording(&other, t->o.rec.path, err);
    if (code)
        return code;
    code = checkpoint_writer_open(&w, &t->o.rec, temporary, 0, err);
    w.notes = t->not_noted.code ? NULL : &t->notes;
    w.not_noted = t->not_noted;
    if (!code)
        code = checkpoint_root(&t->o.rec, &t->o.desc, &w.link, err);
    if (code) {
        checkpoint_writer_close(&w);
        close_recording(&other);
        return code;
    }
    code = keep_go_back(t, (struct instant){0, 0}, false, err);
    if (!code)
        code = arm(t, false, err);
    if (!code)
        code = keep_take(t, &before, err);
    u64 last = t->cost;
    while (!code) {
        enum move what;
        code = move(t, (struct instant){NEVER, 0}, &what, err);
        if (code || what == MOVE_END)
            break;
        if (move_interrupted(t)) {
            code = err_set(err, -EINTR, "interrupted; the checkpoints are as before");
            break;
        }
        if (t->cost - last < every_ns)
            continue;
        code = keep_take(t, &c, err);
        if (!code)
            code = write_one(t, &w, other.log, before, c, err);
        if (code)
            break;
        checkpoint_destroy(before);
        before = c;
        c = NULL;
        last = t->cost;
    }
    checkpoint_destroy(c);
    checkpoint_destroy(before);
    *files = w.sequence;
    *bytes = w.bytes;
    *not_noted = w.not_noted;
    checkpoint_writer_close(&w);
    close_recording(&other);
    if (!code)
        code = checkpoint_replace(&t->o.rec, temporary, err);
    if (code)
        checkpoint_remove(&t->o.rec, temporary);
    return code;
}
