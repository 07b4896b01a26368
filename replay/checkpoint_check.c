/* See checkpoint_check.h. */
#include "replay/checkpoint_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"
#include "replay/ram_image.h"

struct checkpoint_check {
    struct input_source src;
    struct input_source *of;
    struct player *player;
    const char *path; /* of the recording */
    struct machine *m;
    struct checkpoint_notes *notes;
    struct checkpoint_set set;
    u32 next; /* file */
    struct checkpoint_verdict verdict;
    struct err later; /* what is wrong with a file after those that are compared; code 0: nothing */
    u8 *state;
    struct {
        struct sha256_stream *sha; /* of what was printed since the file before */
        u64 total;
        u64 fresh; /* bytes of it */
    } output[OUT_COUNT];
    struct page_space space;
    struct page_store store;
    struct page_image *ram; /* at the file before, as are the others */
    struct page_image *image[MACHINE_IMAGES];
    u64 *seen; /* a bit for each page: the file has it */
    u32 *changed;
    size_t nchanged, room;
    bool no_memory;
    u8 buffer[2][PAGE_SIZE]; /* pages of disks that lie in a file */
};

static struct checkpoint_check *self(struct input_source *src)
{
    return (struct checkpoint_check *)src;
}

/* ---- one file ---- */

/* What is wrong with the next file; it and later ones are not compared. */
static void PRINTF(2, 3) differs(struct checkpoint_check *c, const char *fmt, ...)
{
    char why[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    err_set(&c->verdict.wrong, -EREMOTEIO,
            "the checkpoint %s/" CHECKPOINT_DIR "/%06u is not what a replay comes to there: %s",
            c->path, c->next, why);
    c->verdict.differs = true;
}

/* Names the component and field in which the states differ. */
static void state_differs(struct checkpoint_check *c, const u8 *claimed)
{
    size_t at = 0;
    for (unsigned i = 0; i < machine_components(c->m); i++) {
        struct machine_component k;
        machine_component(c->m, i, &k);
        for (size_t f = 0; f < k.desc->nfields; f++) {
            const struct state_field *field = &k.desc->fields[f];
            for (unsigned e = 0; e < field->count; e++, at += field->elem) {
                u64 a = 0, b = 0;
                if (!memcmp(claimed + at, c->state + at, field->elem))
                    continue;
                memcpy(&a, claimed + at, field->elem);
                memcpy(&b, c->state + at, field->elem);
                char which[16] = "";
                if (field->count > 1)
                    snprintf(which, sizeof(which), "[%u]", e);
                differs(c, "of the component %s, %s%s is %" PRIx64 ", not %" PRIx64, k.name,
                        field->name, which, a, b);
                return;
            }
        }
    }
}

static void page_differs(struct checkpoint_check *c, u64 index, const char *what)
{
    int image = page_space_find(&c->space, &index);
    if (image < 0)
        differs(c, "the page of memory at physical address %" PRIx64 " %s",
                ram_page_gpa(machine_ram(c->m), index), what);
    else
        differs(c, "page %" PRIu64 " of image %d (of a disk, or the GPU's) %s", index, image, what);
}

/* A page of an image, which may lie in a file and is read into c->buffer[k] then. NULL: it has
 * none, or the verdict says why it cannot be read. */
static const u8 *image_page(struct checkpoint_check *c, const struct page_image *image, u64 index,
                            unsigned k)
{
    const u8 *page = NULL;
    int code = page_image_read(image, index, c->buffer[k], &page);
    if (!code)
        return page;
    if (!c->verdict.wrong.code) {
        errno = -code;
        err_errno(&c->verdict.wrong, "cannot read back what was written to a disk");
    }
    return NULL;
}

static int look_at_page(void *opaque, u64 index, const u8 *page)
{
    struct checkpoint_check *c = opaque;
    u64 own = index;
    int image = page_space_find(&c->space, &own);
    const u8 *now = image < 0 ? machine_ram(c->m)->host + own * PAGE_SIZE
                              : image_page(c, machine_image(c->m, (unsigned)image, NULL), own, 0);
    c->seen[index / 64] |= 1ull << (index % 64);
    if (c->verdict.wrong.code)
        return 0;
    /* One that the GPU gave up reads as zeros. On a disk, one never written is none of zeros. */
    if (!now && image >= 0 && page_image_has(c->image[image], own))
        now = page_image_zeros();
    if (!now || memcmp(now, page, PAGE_SIZE))
        page_differs(c, index, now ? "has other contents" : "was never written");
    return 0;
}

struct listing {
    struct checkpoint_check *c;
    const struct page_image *before, *now;
    u64 first;
    bool ram; /* where no page is one of zeros */
};

/* The image has changed there, or may have. */
static void list_page(void *opaque, u64 index)
{
    struct listing *l = opaque;
    struct checkpoint_check *c = l->c;
    const u8 *a = image_page(c, l->before, index, 0), *b = image_page(c, l->now, index, 1);
    if (l->ram || (a && b)) {
        if (!memcmp(a ? a : page_image_zeros(), b ? b : page_image_zeros(), PAGE_SIZE))
            return;
    } else if (!a && !b) {
        return;
    }
    if (c->nchanged == c->room) {
        size_t room = c->room ? 2 * c->room : 4096;
        u32 *more = realloc(c->changed, room * sizeof(*more));
        if (!more) {
            c->no_memory = true;
            return;
        }
        c->changed = more;
        c->room = room;
    }
    c->changed[c->nchanged++] = (u32)(l->first + index);
}

/* What has changed since the file before; the images become those of now. */
static int list_changed(struct checkpoint_check *c, struct err *err)
{
    struct page_image *before = page_image_copy(c->ram);
    int code = before ? ram_image_update(&c->ram, c->m, err)
                      : err_set(err, -ENOMEM, "no memory to compare checkpoints");
    struct listing l = {.c = c, .before = before, .now = c->ram, .ram = true};
    c->nchanged = 0;
    if (!code)
        page_image_diff(before, c->ram, list_page, &l);
    page_image_destroy(before);
    l = (struct listing){.c = c, .first = c->space.ram};
    for (unsigned i = 0; !code && i < c->space.nimages; i++) {
        struct page_image *now = page_image_copy(machine_image(c->m, i, NULL));
        if (!now)
            return err_set(err, -ENOMEM, "no memory to compare checkpoints");
        l.before = c->image[i];
        l.now = now;
        page_image_diff(l.before, now, list_page, &l);
        l.first += c->space.image[i];
        page_image_destroy(c->image[i]);
        c->image[i] = now;
    }
    if (!code && c->no_memory)
        code = err_set(err, -ENOMEM, "no memory to compare checkpoints");
    return code;
}

static void compare_pages(struct checkpoint_check *c)
{
    struct err err;
    const struct checkpoint_file *f = &c->set.file[c->next];
    u32 n = c->next;
    /* Against the images of before: which pages a GPU gave up. */
    int code = checkpoint_set_load(&c->set, n, n, look_at_page, c, &err);
    if (!code)
        code = list_changed(c, &err);
    if (code) {
        c->verdict.wrong = err;
        return;
    }
    for (size_t i = 0; i < c->nchanged && !c->verdict.wrong.code; i++)
        if (!(c->seen[c->changed[i] / 64] >> (c->changed[i] % 64) & 1))
            page_differs(c, c->changed[i], "has changed since the one before, and is missing");
    for (u32 i = 0; i < f->npages; i++)
        c->seen[(f->pages[i] & ~CHECKPOINT_ZERO) / 64] = 0;
}

static void compare_output(struct checkpoint_check *c, const struct checkpoint_file *f)
{
    for (unsigned i = 0; i < OUT_COUNT && !c->verdict.wrong.code; i++) {
        struct sha256 is = sha256_end(c->output[i].sha);
        struct sha256 claimed = sha256_bytes(f->output[i], f->output_len[i]);
        if (f->output_bytes[i] != c->output[i].total || f->output_len[i] != c->output[i].fresh ||
            !sha256_equal(&is, &claimed))
            differs(c, "the %s shows something else", i == OUT_CONSOLE ? "console" : "debug port");
        sha256_begin(c->output[i].sha);
        c->output[i].fresh = 0;
    }
}

static void note(struct checkpoint_check *c)
{
    const struct sha256 *link = &c->set.file[c->next].link;
    struct checkpoint_verdict *v = &c->verdict;
    if (c->notes && !v->not_noted.code && !checkpoint_noted(c->notes, link))
        checkpoint_note(c->notes, link, &v->not_noted);
}

static void compare(struct checkpoint_check *c)
{
    const struct checkpoint_file *f = &c->set.file[c->next];
    machine_state_save(c->m, c->state);
    if (machine_lost(c->m, &c->verdict.wrong))
        return;
    if (memcmp(c->state, f->state, machine_state_size(c->m)))
        state_differs(c, f->state);
    if (!c->verdict.wrong.code)
        compare_output(c, f);
    if (!c->verdict.wrong.code)
        compare_pages(c);
    if (c->verdict.wrong.code)
        return;
    note(c);
    c->next++;
    c->verdict.same++;
}

/* ---- on the way ---- */

static const struct checkpoint_file *next_file(const struct checkpoint_check *c)
{
    return c->next < c->set.count && !c->verdict.wrong.code ? &c->set.file[c->next] : NULL;
}

/* A recorder's may be of between two inputs at the same instant. */
static void look(struct checkpoint_check *c, struct machine *m)
{
    const struct checkpoint_file *f;
    while ((f = next_file(c))) {
        struct instant now = {machine_position(m), machine_now(m)};
        struct player_place place;
        if (instant_before(now, f->at))
            return;
        player_tell(c->player, &place);
        if (instant_equal(now, f->at) && place.inputs < f->place.inputs)
            return;
        if (instant_equal(now, f->at) && place.inputs == f->place.inputs)
            compare(c);
        else
            differs(c, "no replay is ever at position %" PRIu64 " and %" PRIu64 " ns",
                    f->at.position, f->at.time);
    }
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct checkpoint_check *c = self(src);
    const struct checkpoint_file *f = next_file(c);
    pos_t next = c->of->ops->next_position(c->of, m);
    return f && f->at.position > machine_position(m) ? MIN(next, f->at.position) : next;
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct checkpoint_check *c = self(src);
    look(c, m);
    int r = c->of->ops->take(c->of, m, in, err);
    if (!r)
        look(c, m);
    return r;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct checkpoint_check *c = self(src);
    const struct checkpoint_file *f = next_file(c);
    int r = c->of->ops->idle(c->of, m, deadline, until, err);
    if (!r && f && f->at.position == machine_position(m) && f->at.time > machine_now(m))
        *until = MIN(*until, f->at.time);
    return r;
}

static int between(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct checkpoint_check *c = self(src);
    return c->of->ops->between ? c->of->ops->between(c->of, m, in, err) : 0;
}

static const struct input_source_ops ops = {next_position, take, idle, between, NULL};

/* ---- making and ending it ---- */

static int open_set(struct checkpoint_check *c, const struct opened *o, struct err *err)
{
    struct opened other;
    struct sha256 root;
    struct err problem;
    bool beyond;
    checkpoint_set_open(&c->set, &o->rec, c->space.total, machine_state_size(c->m), &problem);
    if (problem.text[0] && !c->set.old)
        c->later = problem;
    c->verdict.files = c->set.count;
    if (!c->set.count)
        return 0;
    int code = checkpoint_root(&o->rec, &o->desc, &root, err);
    if (!code)
        code = open_recording(&other, o->rec.path, err);
    if (code)
        return code;
    u32 n = checkpoint_set_bind(&c->set, other.log, &root, &beyond);
    close_recording(&other);
    if (n < c->set.count && beyond)
        c->verdict.files = n;
    else if (n < c->set.count)
        err_set(&c->later, -EINVAL,
                "the checkpoint %s/" CHECKPOINT_DIR "/%06u was made from another log", o->rec.path,
                n);
    checkpoint_set_cut(&c->set, n);
    return 0;
}

static int prepare(struct checkpoint_check *c, struct err *err)
{
    bool good = true;
    if (!c->set.count)
        return 0;
    c->state = malloc(machine_state_size(c->m));
    c->seen = calloc(c->space.total / 64 + 1, sizeof(*c->seen));
    for (unsigned i = 0; i < OUT_COUNT; i++) {
        c->output[i].sha = sha256_create();
        good = good && c->output[i].sha;
    }
    for (unsigned i = 0; i < c->space.nimages; i++) {
        c->image[i] = page_image_copy(machine_image(c->m, i, NULL));
        good = good && c->image[i];
    }
    if (!good || !c->state || !c->seen)
        return err_set(err, -ENOMEM, "no memory to compare checkpoints");
    for (unsigned i = 0; i < OUT_COUNT; i++)
        sha256_begin(c->output[i].sha);
    return ram_image_take(&c->ram, &c->store, c->m, err);
}

int checkpoint_check_create(struct checkpoint_check **out, const struct opened *o,
                            struct player *player, struct checkpoint_notes *notes,
                            struct machine *m, struct err *err)
{
    struct checkpoint_check *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, -ENOMEM, "no memory to compare checkpoints");
    c->src.ops = &ops;
    c->of = player_source(player);
    c->player = player;
    c->path = o->rec.path;
    c->m = m;
    c->notes = notes;
    page_space_init(&c->space, m);
    int code = open_set(c, o, err);
    if (!code)
        code = prepare(c, err);
    if (code) {
        checkpoint_check_destroy(c);
        return code;
    }
    *out = c;
    return 0;
}

struct input_source *checkpoint_check_source(struct checkpoint_check *c)
{
    return &c->src;
}

void checkpoint_check_output(struct checkpoint_check *c, enum dev_output channel, const void *data,
                             size_t len)
{
    if (!c->output[channel].sha)
        return;
    sha256_add(c->output[channel].sha, data, len);
    c->output[channel].total += len;
    c->output[channel].fresh += len;
}

void checkpoint_check_finish(struct checkpoint_check *c, bool whole, struct checkpoint_verdict *out)
{
    const struct checkpoint_file *f = next_file(c);
    if (f && whole)
        differs(c, "the recording ends before position %" PRIu64 " and %" PRIu64 " ns",
                f->at.position, f->at.time);
    if (!c->verdict.wrong.code)
        c->verdict.wrong = c->later;
    *out = c->verdict;
}

void checkpoint_check_destroy(struct checkpoint_check *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < OUT_COUNT; i++)
        sha256_destroy(c->output[i].sha);
    for (unsigned i = 0; i < MACHINE_IMAGES; i++)
        page_image_destroy(c->image[i]);
    page_image_destroy(c->ram);
    page_store_close(&c->store);
    checkpoint_set_close(&c->set);
    free(c->state);
    free(c->seen);
    free(c->changed);
    free(c);
}
