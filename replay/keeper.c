#include "replay/keeper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"
#include "host/clock.h"

struct pending {
    char *data;
    size_t len, room;
    u64 total;
};

/* What the thread writes; the machine's side fills it while no thread runs. */
struct job {
    struct checkpoint_part part;
    u8 *state;
    u32 *list;
    u8 *pages;
    size_t room; /* pages */
    struct pending output[OUT_COUNT];
};

struct keeper {
    struct checkpoint_writer writer;
    struct checkpoint_notes notes;
    u64 every_ns, last_ns;
    bool gap; /* something is missing: there are no more of them */
    struct pending output[OUT_COUNT];
    struct page_space space;
    struct page_image *image[MACHINE_IMAGES]; /* as they were at the last checkpoint */
    struct job job;
    pthread_t thread;
    bool started;
    atomic_bool busy;
    struct err failed; /* the thread's; read when not busy */
};

/* Its files are to follow those that are there. */
static void follow(struct keeper *k, const struct checkpoint_file *last)
{
    k->writer.parent = last->check;
    k->writer.link = last->link;
    for (int i = 0; i < OUT_COUNT; i++)
        k->output[i].total = last->output_bytes[i];
}

int keeper_create(struct keeper **out, const struct keeper_config *config, struct machine *m,
                  struct err *err)
{
    struct keeper *k = calloc(1, sizeof(*k));
    if (!k) {
        checkpoint_notes_close(config->notes);
        return err_set(err, -ENOMEM, "no memory for checkpoints");
    }
    k->notes = *config->notes;
    *config->notes = (struct checkpoint_notes)CHECKPOINT_NOTES_NONE;
    k->every_ns = config->every_ns;
    k->last_ns = host_ns_coarse();
    k->job.state = malloc(machine_state_size(m));
    page_space_init(&k->space, m);
    k->writer.dir = -1;
    int code = 0;
    bool good = k->job.state && !machine_written_reset(m);
    for (unsigned i = 0; i < k->space.nimages; i++)
        good = (k->image[i] = page_image_copy(machine_image(m, i, NULL))) && good;
    if (!good)
        code = err_set(err, -ENOMEM, "no memory for checkpoints");
    if (!code)
        code = checkpoint_writer_open(&k->writer, config->recording, CHECKPOINT_DIR, config->files,
                                      err);
    if (!code && config->last)
        follow(k, config->last);
    else if (!code)
        code = checkpoint_root(config->recording, config->is, &k->writer.link, err);
    if (k->notes.fd >= 0)
        k->writer.notes = &k->notes;
    k->writer.room = (struct room){.keep = config->keep_free};
    if (code) {
        keeper_destroy(k);
        return code;
    }
    *out = k;
    return 0;
}

void keeper_output(struct keeper *k, enum dev_output channel, const void *data, size_t len)
{
    struct pending *p = &k->output[channel];
    if (p->room - p->len < len) {
        size_t room = MAX(2 * p->room, p->len + len + 4096);
        char *bigger = realloc(p->data, room);
        if (!bigger) {
            k->gap = true; /* in the output, which would make later files useless */
            return;
        }
        p->data = bigger;
        p->room = room;
    }
    memcpy(p->data + p->len, data, len);
    p->len += len;
    p->total += len;
}

bool keeper_due(const void *keeper, u64 host_ns)
{
    const struct keeper *k = keeper;
    return k->every_ns && !k->gap && host_ns - k->last_ns >= k->every_ns && !k->busy;
}

static const u8 *job_page(void *opaque, size_t i)
{
    const struct job *j = opaque;
    return j->pages + i * PAGE_SIZE;
}

static void *write_job(void *opaque)
{
    struct keeper *k = opaque;
    struct err err;
    if (checkpoint_write(&k->writer, &k->job.part, &err))
        k->failed = err;
    k->busy = false;
    return NULL;
}

static void join(struct keeper *k)
{
    if (k->started)
        pthread_join(k->thread, NULL);
    k->started = false;
}

static int by_index(const void *a, const void *b)
{
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return x < y ? -1 : x > y;
}

static bool reserve(struct job *j, size_t pages)
{
    if (pages <= j->room)
        return true;
    size_t room = MAX(pages, 2 * j->room);
    u8 *bigger = realloc(j->pages, room * PAGE_SIZE);
    if (!bigger)
        return false;
    j->pages = bigger;
    u32 *list = realloc(j->list, room * sizeof(*list));
    if (!list)
        return false;
    j->list = list;
    j->room = room;
    return true;
}

struct copying {
    struct job *j;
    const struct page_image *from;
    u64 first;
    bool failed;
};

static void copy_image_page(void *opaque, u64 index)
{
    struct copying *c = opaque;
    struct job *j = c->j;
    if (c->failed || !reserve(j, j->part.npages + 1)) {
        c->failed = true;
        return;
    }
    /* One that the image had the last time and has no more (the GPU gave a resource up) reads as
     * zeros. */
    const u8 *page;
    u8 room[PAGE_SIZE];
    if (page_image_read(c->from, index, room, &page)) {
        c->failed = true;
        return;
    }
    memcpy(j->pages + j->part.npages * PAGE_SIZE, page ? page : page_image_zeros(), PAGE_SIZE);
    j->list[j->part.npages++] = (u32)(c->first + index);
}

/* Copies the pages written since the last time. false: no memory. */
static bool copy_pages(struct keeper *k, struct machine *m)
{
    struct job *j = &k->job;
    size_t n;
    const u32 *written = machine_written(m, &n);
    if (!reserve(j, n))
        return false;
    if (n) {
        memcpy(j->list, written, n * sizeof(*j->list));
        qsort(j->list, n, sizeof(*j->list), by_index);
    }
    for (size_t i = 0; i < n; i++)
        memcpy(j->pages + i * PAGE_SIZE, machine_ram(m)->host + (u64)j->list[i] * PAGE_SIZE,
               PAGE_SIZE);
    j->part.npages = n;
    struct copying c = {.j = j, .first = k->space.ram};
    for (unsigned i = 0; i < k->space.nimages; i++) {
        struct page_image *now = page_image_copy(machine_image(m, i, NULL));
        if (!now)
            return false;
        c.from = now;
        page_image_diff(k->image[i], now, copy_image_page, &c);
        page_image_destroy(k->image[i]);
        k->image[i] = now;
        c.first += k->space.image[i];
    }
    return !c.failed;
}

void keeper_take(void *keeper, struct machine *m, const struct player_place *place,
                 const struct sha256 *log, u64 host_ns)
{
    struct keeper *k = keeper;
    struct job *j = &k->job;
    sigset_t all, before;
    join(k);
    k->last_ns = host_ns;
    if (k->failed.code || k->gap || !copy_pages(k, m)) {
        k->gap = true;
        return;
    }
    machine_written_reset(m);
    machine_state_save(m, j->state);
    struct err lost;
    if (machine_lost(m, &lost)) {
        k->gap = true;
        return;
    }
    j->part.at = (struct instant){machine_position(m), machine_now(m)};
    j->part.place = *place;
    j->part.log = *log;
    j->part.state = j->state;
    j->part.state_size = machine_state_size(m);
    j->part.pages = j->list;
    j->part.page = job_page;
    j->part.opaque = j;
    for (int c = 0; c < OUT_COUNT; c++) {
        struct pending mine = j->output[c];
        j->output[c] = k->output[c];
        mine.len = 0;
        mine.total = j->output[c].total;
        k->output[c] = mine;
        j->part.output[c].total = j->output[c].total;
        j->part.output[c].data = (const u8 *)j->output[c].data;
        j->part.output[c].len = j->output[c].len;
    }
    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    k->busy = true;
    k->started = pthread_create(&k->thread, NULL, write_job, k) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!k->started)
        write_job(k);
}

int keeper_finish(struct keeper *k, u32 *files, u64 *bytes, struct err *not_noted, struct err *err)
{
    join(k);
    *not_noted = k->writer.not_noted;
    *files = k->writer.sequence;
    *bytes = k->writer.bytes;
    if (k->failed.code)
        *err = k->failed;
    return k->failed.code;
}

void keeper_destroy(struct keeper *k)
{
    if (!k)
        return;
    join(k);
    checkpoint_writer_close(&k->writer);
    checkpoint_notes_close(&k->notes);
    for (int c = 0; c < OUT_COUNT; c++) {
        free(k->output[c].data);
        free(k->job.output[c].data);
    }
    free(k->job.state);
    free(k->job.list);
    free(k->job.pages);
    for (unsigned i = 0; i < MACHINE_IMAGES; i++)
        page_image_destroy(k->image[i]);
    free(k);
}
