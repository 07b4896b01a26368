/* The timeline's checkpoints: taking, restoring, finding, thinning out. See timeline.h. */
#include "replay/timeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"
#include "replay/ram_image.h"

#define CHECKPOINTS_MAX 4096u

static u8 *page_host(struct timeline *t, u64 index)
{
    return machine_ram(t->m)->host + index * PAGE_SIZE;
}

int keep_take(struct timeline *t, struct checkpoint **out, struct err *err)
{
    struct checkpoint *c = calloc(1, sizeof(*c));
    int code = c ? ram_image_update(&t->base, t->m, err)
                 : err_set(err, -ENOMEM, "no memory for a checkpoint");
    if (!code) {
        c->at = timeline_now(t);
        c->state = malloc(machine_state_size(t->m));
        c->outputs = malloc(machine_output_size());
        c->ram = page_image_copy(t->base);
        bool good = c->state && c->outputs && c->ram;
        for (unsigned i = 0; i < machine_images(t->m); i++) {
            c->image[i] = page_image_copy(machine_image(t->m, i, NULL));
            good = good && c->image[i];
        }
        if (!good)
            code = err_set(err, -ENOMEM, "no memory for a checkpoint");
    }
    if (code) {
        checkpoint_destroy(c);
        return code;
    }
    machine_state_save(t->m, c->state);
    if (machine_lost(t->m, err)) {
        checkpoint_destroy(c);
        return err->code;
    }
    machine_output_save(t->m, c->outputs);
    for (int i = 0; i < OUT_COUNT; i++)
        machine_output_digest(t->m, (enum dev_output)i, &c->output_bytes[i]);
    struct dev_screen screen = {0};
    machine_screen(t->m, &screen);
    c->frames = screen.frames;
    player_tell(t->player, &c->place);
    c->unsure = player_unsure(t->player);
    c->cost = t->cost;
    *out = c;
    return 0;
}

static void remove_at(struct timeline *t, unsigned i)
{
    for (u32 f = 0; f < t->files.count; f++)
        if (t->loaded[f] && instant_equal(t->files.file[f].at, t->list[i]->at))
            t->loaded[f] = 0;
    checkpoint_destroy(t->list[i]);
    t->count--;
    memmove(t->list + i, t->list + i + 1, (t->count - i) * sizeof(*t->list));
}

/* Over the budget, the checkpoint goes whose neighbours lie closest together. */
static void thin(struct timeline *t, const struct checkpoint *keep)
{
    while ((t->store.bytes > t->budget || t->count > CHECKPOINTS_MAX) && t->count > 2) {
        unsigned best = 0;
        u64 least = NEVER;
        for (unsigned i = 1; i < t->count; i++) {
            u64 next = i + 1 < t->count ? t->list[i + 1]->cost : t->list[i]->cost + 2000000000u;
            u64 gap = next - MIN(next, t->list[i - 1]->cost);
            if (t->list[i] != keep && gap < least) {
                least = gap;
                best = i;
            }
        }
        if (!best)
            return;
        remove_at(t, best);
    }
}

/* Puts it where it belongs; one of the same instant is replaced by it. */
static int insert(struct timeline *t, struct checkpoint *c, struct err *err)
{
    unsigned i = t->count;
    while (i && instant_before(c->at, t->list[i - 1]->at))
        i--;
    if (i && !instant_before(t->list[i - 1]->at, c->at)) {
        checkpoint_destroy(c); /* there already */
        return 0;
    }
    if (t->count == t->room) {
        unsigned room = t->room ? 2 * t->room : 64;
        struct checkpoint **bigger = realloc(t->list, room * sizeof(*bigger));
        if (!bigger) {
            checkpoint_destroy(c);
            return err_set(err, -ENOMEM, "no memory for a checkpoint");
        }
        t->list = bigger;
        t->room = room;
    }
    memmove(t->list + i + 1, t->list + i, (t->count - i) * sizeof(*t->list));
    t->list[i] = c;
    t->count++;
    thin(t, c);
    return 0;
}

int keep_add(struct timeline *t, struct err *err)
{
    struct checkpoint *c;
    int code = keep_take(t, &c, err);
    t->last_kept = t->cost;
    return code ? code : insert(t, c, err);
}

int keep_start(struct timeline *t, struct err *err)
{
    if (ram_image_take(&t->base, &t->store, t->m, err))
        return err->code;
    t->loaded = calloc(t->files.count + 1, sizeof(*t->loaded));
    if (!t->loaded)
        return err_set(err, -ENOMEM, "no memory for checkpoints");
    return keep_add(t, err);
}

struct restoring {
    struct timeline *t;
    const struct page_image *image;
};

static void restore_page(void *opaque, u64 index)
{
    struct restoring *r = opaque;
    const u8 *page = page_image_page(r->image, index);
    u8 *host = page_host(r->t, index);
    if (page)
        memcpy(host, page, PAGE_SIZE);
    else
        memset(host, 0, PAGE_SIZE);
    machine_page_changed(r->t->m, index);
}

int keep_restore(struct timeline *t, const struct checkpoint *c, struct err *err)
{
    struct restoring r = {t, c->ram};
    size_t n;
    const u32 *written = machine_written(t->m, &n);
    /* Pages of the list grow it no further: they are not clean. */
    for (size_t i = 0; i < n; i++)
        restore_page(&r, written[i]);
    page_image_diff(t->base, c->ram, restore_page, &r);
    struct page_image *base = page_image_copy(c->ram);
    if (!base)
        return err_set(err, -ENOMEM, "no memory to restore a checkpoint");
    page_image_destroy(t->base);
    t->base = base;
    machine_written_reset(t->m);
    int code = machine_state_load(t->m, c->state, machine_state_size(t->m), err);
    machine_output_load(t->m, c->outputs);
    for (unsigned i = 0; !code && i < machine_images(t->m); i++)
        code = machine_image_restore(t->m, i, c->image[i], err);
    if (!code)
        code = player_seek(t->player, &c->place, c->unsure, err);
    t->at_end = false;
    t->cost = t->last_kept = c->cost;
    return code;
}

/* The checkpoint in memory that file n was loaded as; NULL: it is not. */
static const struct checkpoint *loaded_as(const struct timeline *t, u32 n)
{
    for (unsigned i = 0; t->loaded[n] && i < t->count; i++)
        if (instant_equal(t->list[i]->at, t->files.file[n].at))
            return t->list[i];
    return NULL;
}

/* From where file n is loaded with the fewest pages: a loaded one before it or after it. */
struct base {
    const struct checkpoint *c;
    u32 file; /* its number; count of files: c is power-on */
};

static struct base find_base(const struct timeline *t, u32 n)
{
    struct base base = {t->list[0], t->files.count};
    u64 before = 0, after = 0;
    for (u32 k = n + 1; k-- > 0;) {
        const struct checkpoint *c = loaded_as(t, k);
        if (c) {
            base = (struct base){c, k};
            break;
        }
        before += t->files.file[k].npages;
    }
    for (u32 k = n + 1; k < t->files.count; k++) {
        const struct checkpoint *c = loaded_as(t, k);
        after += t->files.file[k].npages;
        if (after >= before)
            break;
        if (c)
            return (struct base){c, k};
    }
    return base;
}

struct loading {
    struct checkpoint *c;
    const struct checkpoint *start; /* power-on */
    const struct page_space *space;
};

static int load_page(void *opaque, u64 index, const u8 *page)
{
    static const u8 zeros[PAGE_SIZE];
    struct loading *l = opaque;
    int image = page_space_find(l->space, &index);
    if (image >= 0 && !page)
        return page_image_drop(l->c->image[image], index); /* nothing is written at power-on */
    if (image >= 0)
        return page_image_put(l->c->image[image], index, page);
    if (!page)
        page = page_image_page(l->start->ram, index);
    return page_image_set(l->c->ram, index, page ? page : zeros);
}

static int of_no_use(struct timeline *t, u32 n, const char *why, struct err *err)
{
    err_set(err, -EINVAL, "the checkpoint %s/%06u is of no use (%s); it and later ones are ignored",
            CHECKPOINT_DIR, n, why);
    checkpoint_set_cut(&t->files, n);
    return err->code;
}

/* Checkpoint file n as one in memory. */
static int load_file(struct timeline *t, u32 n, struct err *err)
{
    bool whole = true;
    const struct checkpoint_file *f = &t->files.file[n];
    struct base base = find_base(t, n);
    u32 first = base.file < n ? base.file + 1 : 0;
    struct checkpoint *c = calloc(1, sizeof(*c));
    if (c) {
        c->state = malloc(machine_state_size(t->m));
        c->outputs = malloc(machine_output_size());
        c->ram = page_image_copy(base.c->ram);
        for (unsigned i = 0; i < machine_images(t->m); i++)
            if (!(c->image[i] = page_image_copy(base.c->image[i])))
                whole = false;
    }
    void *now = malloc(machine_output_size());
    if (!c || !c->state || !c->outputs || !c->ram || !whole || !now) {
        free(now);
        checkpoint_destroy(c);
        return err_set(err, -ENOMEM, "no memory to load a checkpoint");
    }
    struct loading loading = {c, t->list[0], &t->space};
    struct instant claimed;
    machine_state_when(t->m, f->state, &claimed.position, &claimed.time);
    if (!instant_equal(claimed, f->at)) {
        free(now);
        checkpoint_destroy(c);
        return of_no_use(t, n, "its state is of another instant", err);
    }
    int code = base.file > n && base.file < t->files.count
                   ? checkpoint_set_load_back(&t->files, base.file, n, load_page, &loading, err)
                   : checkpoint_set_load(&t->files, first, n, load_page, &loading, err);
    if (code) {
        free(now);
        checkpoint_destroy(c);
        return code;
    }
    c->at = f->at;
    c->from_file = c->unsure = true;
    c->frames = UINT64_MAX; /* the file does not say: frames are looked for among the files */
    c->place = f->place;
    memcpy(c->state, f->state, machine_state_size(t->m));
    /* Roughly: a position takes a nanosecond. */
    c->cost = f->at.position;
    machine_output_save(t->m, now);
    for (int i = 0; i < OUT_COUNT; i++) {
        c->output_bytes[i] = f->output_bytes[i];
        machine_output_compute(t->m, (enum dev_output)i, t->text[i].data, f->output_bytes[i]);
    }
    machine_output_save(t->m, c->outputs);
    machine_output_load(t->m, now);
    free(now);
    t->loaded[n] = 1;
    return insert(t, c, err);
}

static int file_of(const struct timeline *t, const struct checkpoint *c)
{
    for (u32 n = 0; n < t->files.count; n++)
        if (t->loaded[n] && instant_equal(t->files.file[n].at, c->at))
            return (int)n;
    return -1;
}

/* Can a replay that starts at `a` arrive at `to`? Of instants at which `to` counts as reached only
 * the first is `to`, and which that is shows only when both are equal. */
static bool not_after(struct instant a, struct instant to, bool strict)
{
    if (strict)
        return instant_before(a, to);
    return !instant_reached(a, to) || instant_equal(a, to);
}

const struct checkpoint *keep_find(struct timeline *t, struct instant to, bool strict,
                                   struct err *err)
{
    for (;;) {
        unsigned i = t->count;
        while (i > 1 && !not_after(t->list[i - 1]->at, to, strict))
            i--;
        const struct checkpoint *c = t->list[i - 1];
        u32 f = t->files.count;
        while (f && !not_after(t->files.file[f - 1].at, to, strict))
            f--;
        if (!f || t->loaded[f - 1] || !instant_before(c->at, t->files.file[f - 1].at))
            return c;
        int code = load_file(t, f - 1, err);
        if (code == -ENOMEM)
            return NULL;
        if (code && t->config.warn)
            t->config.warn(t->config.opaque, err->text);
    }
}

/* Checkpoints in memory that came from file n and later ones. */
static void forget_files(struct timeline *t, u32 n)
{
    while (t->files.count > n) {
        u32 last = t->files.count - 1;
        for (unsigned i = 1; t->loaded[last] && i < t->count; i++)
            if (t->list[i]->from_file && instant_equal(t->list[i]->at, t->files.file[last].at))
                remove_at(t, i);
        checkpoint_set_cut(&t->files, last);
    }
}

int keep_go_back(struct timeline *t, struct instant to, bool strict, struct err *err)
{
    for (;;) {
        const struct checkpoint *c = keep_find(t, to, strict, err);
        if (!c)
            return err->code;
        struct err why;
        int code = keep_restore(t, c, &why), n = c->from_file ? file_of(t, c) : -1;
        if (!code)
            return 0;
        if (code == -ENOMEM || n < 0) {
            *err = why;
            return code;
        }
        struct err said;
        forget_files(t, (u32)n + 1);
        char text[sizeof(why.text)];
        memcpy(text, why.text, sizeof(text));
        for (unsigned i = 1; i < t->count; i++)
            if (t->list[i] == c) {
                remove_at(t, i);
                break;
            }
        of_no_use(t, (u32)n, text, &said);
        if (t->config.warn)
            t->config.warn(t->config.opaque, said.text);
    }
}

void keep_free(struct timeline *t)
{
    for (unsigned i = 0; i < t->count; i++)
        checkpoint_destroy(t->list[i]);
    checkpoint_destroy(t->fork);
    free(t->list);
    free(t->loaded);
    page_image_destroy(t->base);
    checkpoint_set_close(&t->files);
}

int timeline_checkpoint(struct timeline *t, struct err *err)
{
    if (t->fork)
        return err_set(err, -EPERM, "no checkpoint is taken in a what-if branch");
    if (t->at_end)
        return err_set(err, -EPERM, "the machine has ended here: nothing could go on from it");
    return keep_add(t, err);
}

void timeline_stats(const struct timeline *t, struct timeline_stats *out)
{
    *out = (struct timeline_stats){t->count, t->files.count, t->store.bytes, t->budget,
                                   t->files.bytes};
}

const struct checkpoint *timeline_checkpoint_at(const struct timeline *t, unsigned i)
{
    return i < t->count ? t->list[i] : NULL;
}
