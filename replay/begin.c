/* See begin.h. */
#include "replay/begin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"

#define PIECE (4u << 20) /* positions of a run between two looks at the host */

struct begin {
    struct input_source src;
    struct opened *from;
    struct player *player;
    struct machine *m;
    struct instant at;
    struct checkpoint_set files; /* up to the one that it began at */
    struct page_space space;
    struct page_image *image[MACHINE_IMAGES]; /* while a file is loaded */
};

static struct begin *self(struct input_source *src)
{
    return (struct begin *)src;
}

static struct instant now_of(const struct begin *b)
{
    return (struct instant){machine_position(b->m), machine_now(b->m)};
}

/* All that the log has at the instant itself comes first. That its recording was ended there is
 * none of the new one's business. */
static bool there(const struct begin *b)
{
    return instant_reached(now_of(b), b->at) &&
           (!player_due(b->player, b->m) || player_quits(b->player, b->m));
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct input_source *log = player_source(self(src)->player);
    return log->ops->next_position(log, m);
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct begin *b = self(src);
    struct input_source *log = player_source(b->player);
    return there(b) ? 0 : log->ops->take(log, m, in, err);
}

/* The last instant of a recording may lie in a wait that nothing in the log ends. */
static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct begin *b = self(src);
    struct input_source *log = player_source(b->player);
    struct instant now = now_of(b);
    int r = log->ops->idle(log, m, deadline, until, err);
    if (now.position < b->at.position || b->at.time <= now.time)
        return r;
    if (r || *until > b->at.time)
        *until = MIN(b->at.time, deadline);
    return 0;
}

static const struct input_source_ops ops = {next_position, take, idle, NULL, NULL};

int begin_create(struct begin **out, struct opened *from, struct instant at, struct machine *m,
                 struct err *err)
{
    struct begin *b = calloc(1, sizeof(*b));
    struct player_config config = {.log = from->log,
                                   .dir = from->quoted,
                                   .disks = from->seen,
                                   .ndisks = from->nseen,
                                   .contents = from->rec.contents,
                                   .verify = true};
    from->log = NULL;
    if (!b) {
        log_reader_destroy(config.log);
        return err_set(err, -ENOMEM, "no memory");
    }
    *b = (struct begin){.src = {.ops = &ops}, .from = from, .m = m, .at = at};
    int code = player_create(&b->player, &config, m, err);
    if (code) {
        begin_destroy(b);
        return code;
    }
    page_space_init(&b->space, m);
    *out = b;
    return 0;
}

/* ---- checkpoint files ---- */

/* Opens those that are believed and not after the instant. */
static int find_files(struct begin *b, const struct recording *to,
                      const struct checkpoint_notes *notes, struct err *said, struct err *err)
{
    struct opened other;
    struct sha256 root;
    bool beyond;
    struct checkpoint_set *s = &b->files;
    checkpoint_set_open(s, to, b->space.total, machine_state_size(b->m), said);
    if (!s->count)
        return 0;
    int code = checkpoint_root(to, &b->from->desc, &root, err);
    if (!code)
        code = open_recording(&other, b->from->rec.path, err);
    if (code)
        return code;
    checkpoint_set_cut(s, checkpoint_set_bind(s, other.log, &root, &beyond));
    close_recording(&other);
    u32 n = checkpoint_set_believed(s, notes);
    while (n && instant_reached(s->file[n - 1].at, b->at) &&
           !instant_equal(s->file[n - 1].at, b->at))
        n--;
    checkpoint_set_cut(s, n);
    return 0;
}

static int put_page(void *opaque, u64 index, const u8 *page)
{
    struct begin *b = opaque;
    int image = page_space_find(&b->space, &index);
    if (image >= 0)
        return page_image_put(b->image[image], index, page);
    memcpy(machine_ram(b->m)->host + index * PAGE_SIZE, page, PAGE_SIZE);
    machine_page_changed(b->m, index);
    return 0;
}

static int load_images(struct begin *b, struct err *err)
{
    u32 last = b->files.count - 1;
    for (unsigned i = 0; i < b->space.nimages; i++)
        if (!(b->image[i] = page_image_copy(machine_image(b->m, i, NULL))))
            return err_set(err, -ENOMEM, "no memory to load a checkpoint");
    return checkpoint_set_load(&b->files, 0, last, put_page, b, err);
}

/* What had been printed, as all files say together. */
static int load_outputs(struct begin *b, struct err *err)
{
    for (int c = 0; c < OUT_COUNT; c++) {
        u64 all = b->files.file[b->files.count - 1].output_bytes[c];
        char *text = malloc(all ? all : 1), *at = text;
        if (!text)
            return err_set(err, -ENOMEM, "no memory for what the guest printed");
        for (u32 n = 0; n < b->files.count; n++)
            at = (char *)memcpy(at, b->files.file[n].output[c], b->files.file[n].output_len[c]) +
                 b->files.file[n].output_len[c];
        machine_output_compute(b->m, (enum dev_output)c, text, all);
        free(text);
    }
    return 0;
}

static int load(struct begin *b, struct err *err)
{
    const struct checkpoint_file *f = &b->files.file[b->files.count - 1];
    struct instant claimed;
    machine_state_when(b->m, f->state, &claimed.position, &claimed.time);
    int code = instant_equal(claimed, f->at)
                   ? load_images(b, err)
                   : err_set(err, -EINVAL, "a checkpoint's state is of another instant");
    if (!code)
        code = machine_state_load(b->m, f->state, machine_state_size(b->m), err);
    if (!code)
        code = load_outputs(b, err);
    for (unsigned i = 0; i < b->space.nimages; i++) {
        if (!code)
            code = machine_image_restore(b->m, i, b->image[i], err);
        page_image_destroy(b->image[i]);
        b->image[i] = NULL;
    }
    if (!code && machine_written_reset(b->m))
        code = err_set(err, -ENOMEM, "no memory to load a checkpoint");
    return code ? code : player_seek(b->player, &f->place, true, err);
}

int begin_jump(struct begin *b, const struct recording *to, const struct checkpoint_notes *notes,
               struct err *said, struct err *err)
{
    err_set(said, 0, "%s", "");
    int code = find_files(b, to, notes, said, err);
    return code || !b->files.count ? code : load(b, err);
}

const struct checkpoint_file *begin_file(const struct begin *b, u32 *files)
{
    *files = b->files.count;
    return *files ? &b->files.file[*files - 1] : NULL;
}

/* ---- the rest of the way ---- */

int begin_run(struct begin *b, bool (*poll)(void *opaque, pos_t position), void *opaque,
              struct err *err)
{
    while (!there(b)) {
        struct run_limits limits = {.stop_at = b->at.position, .stop_time = b->at.time};
        struct run_end end;
        struct err run_err = {0};
        pos_t now = machine_position(b->m);
        limits.pause_at = now - now % PIECE + PIECE;
        machine_run(b->m, &b->src, &limits, &end, &run_err);
        if (end.reason == RUN_STOP && poll(opaque, machine_position(b->m)))
            return err_set(err, -EINTR, "interrupted on the way to where it was to begin");
        if (end.reason == RUN_STOP)
            continue;
        char how[64];
        run_end_text(end.reason, end.arg, how);
        if (player_finish(b->player, b->m, &end, &run_err, err) == PLAYER_SAME)
            err_set(err, -EINVAL,
                    "the machine of %s ends at position %" PRIu64
                    " (%s), and nothing goes on from there; --at=end-1 is right before it",
                    b->from->rec.path, machine_position(b->m), how);
        return err->code;
    }
    return 0;
}

int begin_log(struct begin *b, struct recording *to, struct log_writer **out, u64 *inputs,
              u64 *host_ns, struct log_reader **rest, struct err *err)
{
    struct player_place place;
    struct instant now = now_of(b);
    player_tell(b->player, &place);
    struct log_reader *log = player_release(b->player);
    b->player = NULL;
    *inputs = place.inputs;
    int code = recording_follow_log(to, out, log, &place.log, now.position, now.time, host_ns, err);
    if (rest && !code)
        *rest = log;
    else
        log_reader_destroy(log);
    return code;
}

void begin_destroy(struct begin *b)
{
    if (!b)
        return;
    player_destroy(b->player);
    checkpoint_set_close(&b->files);
    for (unsigned i = 0; i < MACHINE_IMAGES; i++)
        page_image_destroy(b->image[i]);
    free(b);
}
