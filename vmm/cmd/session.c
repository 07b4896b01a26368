/* See session.h. */
#include "cmd/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "board/acpi.h"
#include "host/outside.h"
#include "replay/disk_sources.h"

/* Between progress records of an engine that executes some 30,000 instructions a second. */
#define STEP_PROGRESS_NS 10000u

#define DEFAULT_IDLE_LIMIT 3600

/* What the guest sends goes to the host at once; a feed that has an answer gives it at the next
 * stop. */
static void on_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct session *s = opaque;
    if (kind == EMIT_PACKET && unit < s->guest->nnets)
        net_send(s->guest->nets[unit], data, len);
    if (kind == EMIT_SHARE && unit < DESCRIPTION_SHARES && s->guest->shares[unit])
        share_host_emit(s->guest->shares[unit], data);
    if (kind == EMIT_PORT && unit < DESCRIPTION_PORTS && s->guest->ports[unit])
        port_send(s->guest->ports[unit], data, len);
    if (kind == EMIT_GPU && s->gpu_log) {
        gpu_recorder_emit(s->gpu_log, s->m, data);
        if (!s->gpu_log_told && gpu_recorder_failure(s->gpu_log))
            fprintf(stderr, "reprise: %s; the recording goes on\n",
                    gpu_recorder_failure(s->gpu_log));
        s->gpu_log_told = gpu_recorder_failure(s->gpu_log);
    }
    if (kind == EMIT_GPU && s->guest->gpu)
        gpu_host_emit(s->guest->gpu, data);
}

static void on_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    struct session *s = opaque;
    if (s->keeper)
        keeper_output(s->keeper, channel, data, len);
    if (channel != OUT_CONSOLE || s->begin)
        return;
    console_output(&s->console, data, len);
    live_output(s->live, s->m, data, len);
}

/* Without a note a replay opens no image by itself; that is no reason not to record. */
static void note_disks(struct session *s)
{
    struct err err;
    if (disk_sources_note(&s->rec, &s->guest->desc, s->guest->disks, &err))
        fprintf(stderr,
                "reprise: where the disks come from cannot be noted: %s; replays of this "
                "recording need --disk 0=FILE\n",
                err.text);
}

/* Before the lock. Without notes the checkpoints are somebody's, as far as a replay knows. */
static void note_checkpoints(const struct session *s, struct checkpoint_notes *notes)
{
    struct err err;
    if (checkpoint_notes_begin(notes, &s->rec, &err))
        fprintf(stderr,
                "reprise: the checkpoints cannot be noted as your own: %s; `reprise verify` checks "
                "them later\n",
                err.text);
}

static int start_gpu_log(struct session *s, const struct record_args *a,
                         const struct machine_description *d, struct err *err)
{
    const struct room room = {.keep = a->keep_free, .limit = a->gpu_log_limit};
    int fd, code = recording_create_gpu_log(&s->rec, &fd, err);
    if (!code)
        code = gpu_recorder_create(&s->gpu_log, fd, d, err);
    if (!code)
        gpu_recorder_room(s->gpu_log, &room);
    return code;
}

/* All that the user named is open: from here on only the recording's directory is, and the guest
 * can come. */
static int lock_in(const struct record_args *a, struct guest *g, struct err *err)
{
    for (unsigned i = 0; i < g->ndisks; i++)
        disk_overlay_ready(&g->disks[i]);
    if (g->engine == ENGINE_KVM)
        sandbox_plan_more(SANDBOX_KVM);
    if (a->guest.paranoid.on)
        sandbox_plan_more(SANDBOX_COPIES);
    sandbox_write(a->output);
    outside_remove(a->output); /* when nothing came of it */
    return sandbox_enter(err);
}

/* What is looked at and asked while the machine stands. */
static int make_feeds(struct session *s, const struct record_args *a, struct err *err)
{
    struct guest *g = s->guest;
    int code = 0;
    for (unsigned i = 0; i < g->nnets; i++) {
        net_feed_init(&s->net_feeds[i], g->nets[i], i, g->from);
        s->feeds[s->nfeeds++] = &s->net_feeds[i].feed;
    }
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
        if (g->ports[i])
            s->feeds[s->nfeeds++] = port_feed(g->ports[i]);
    if (g->input)
        s->feeds[s->nfeeds++] = input_file_feed(g->input);
    if (a->guest.again) {
        s->again = again_create();
        if (!s->again)
            return err_set(err, -ENOMEM, "no memory");
        s->feeds[s->nfeeds++] = again_feed(s->again);
    }
    if (g->gpu && (code = screen_gpu_create(&s->screen, s->m, g->gpu, err)))
        return code;
    struct display_config display = {.source = g->gpu ? s->screen : screen_of_machine(s->m),
                                     .recording = a->output,
                                     .width = g->desc.gpu.width,
                                     .height = g->desc.gpu.height,
                                     .input = true,
                                     .later = true,
                                     .keep_free = a->keep_free};
    code = displays_open(&s->displays, &a->display, &display, err);
    if (code)
        return code;
    static_assert(DESCRIPTION_NETS + DESCRIPTION_PORTS + DISPLAYS <= LIVE_FEEDS,
                  "as many as there may be, and the file of events instead of port 0");
    for (unsigned i = 0; i < s->displays.n; i++)
        s->feeds[s->nfeeds++] = s->displays.feed[i];
    return 0;
}

static struct live_config live_config_of(struct session *s, const struct record_args *a)
{
    /* A server waits for as long as it takes. */
    bool waits = false;
    for (unsigned i = 0; i < s->nfeeds; i++)
        waits = waits || s->feeds[i]->ops->live(s->feeds[i]);
    double idle_limit = a->idle_limit >= 0 ? a->idle_limit : waits ? 0 : DEFAULT_IDLE_LIMIT;
    struct live_config live = {
        .fd = a->guest.again ? -1 : STDIN_FILENO,
        .hvc0 = s->guest->desc.hvc0,
        .realtime = s->guest->desc.realtime && !a->unpaced,
        .timeout = a->timeout,
        .max_position = a->max_position,
        .max_time = (vns_t)(a->max_time * 1e9),
        .idle_limit = (vns_t)(idle_limit * 1e9),
        .stop_at = a->stop_at,
        .signals = true,
        .feeds = s->feeds,
        .nfeeds = s->nfeeds,
        .gpu = s->guest->gpu,
        .shares = s->guest->shares,
        .help = stderr,
        .reseed = s->guest->from && a->seeded,
        .seed = a->guest.is.seed,
        .unruly = a->unruly,
        .chaos = a->chaos.seed,
        .part = a->chaos.part,
        .turns = s->turns,
    };
    acpi_generation(live.seed, live.generation);
    if (s->attach) {
        live.wants = attach_wants;
        live.fds = attach_fds;
        live.debugger = s->attach;
    }
    return live;
}

/* What the recording has before its log begins, and the log. */
static int make_files(struct session *s, const struct record_args *a, struct err *err)
{
    struct guest *g = s->guest;
    int code = guest_keep(g, &s->rec, err);
    if (!code)
        note_disks(s);
    for (unsigned i = 0; i < g->ndisks; i++) {
        disk_overlay_in(&g->disks[i], s->rec.path);
        disk_overlay_room(&g->disks[i], a->keep_free, a->overlay_limit);
    }
    for (unsigned i = 0; i < DESCRIPTION_SHARES; i++)
        if (g->shares[i])
            share_host_hide(g->shares[i], s->rec.dir);
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
        if (g->ports[i])
            port_keep_free(g->ports[i], a->keep_free);
    if (!code && a->gpu_log && g->desc.gpu.width)
        code = start_gpu_log(s, a, &g->desc, err);
    const struct room room = {.keep = a->keep_free};
    if (!code && description_shares(&g->desc))
        code = g->from ? recording_follow_contents(&s->rec, &g->from->rec, &room, err)
                       : recording_create_contents(&s->rec, &room, err);
    if (code || g->from)
        return code;
    return recording_create_log(&s->rec, &s->log, err);
}

static int start_recorder(struct session *s, struct err *err)
{
    struct recorder_config config = {.log = s->log,
                                     .contents = s->rec.contents,
                                     .keep_due = keeper_due,
                                     .keep = s->keeper ? keeper_take : NULL,
                                     .keeper = s->keeper,
                                     .keep_last = s->checkpoint_end,
                                     .live = live_source(s->live),
                                     .follows = s->guest->from != NULL,
                                     .inputs = s->inputs,
                                     .host_ns = s->host_ns,
                                     .machine = s->rec.machine_hash};
    if (!strcmp(s->guest->desc.counter, "step")) /* a quarter of a second of it takes hours */
        config.progress_ns = STEP_PROGRESS_NS;
    s->log = NULL;
    return recorder_create(&s->recorder, &config, s->m, err);
}

/* GPU commands before the instant are not in a checkpoint, and gpu.log has all of them; a renderer
 * is given them, too. */
static bool jumps(const struct session *s)
{
    return s->guest->from && !s->gpu_log && !s->guest->gpu;
}

/* Before the door. Without them it takes longer. */
static void share_checkpoints(struct session *s)
{
    struct err err;
    u64 bytes;
    if (!jumps(s))
        return;
    if (!recording_share_checkpoints(&s->rec, &s->guest->from->rec, &err)) {
        s->shared = checkpoint_count(&s->rec, &bytes);
        return;
    }
    fprintf(stderr, "reprise: %s: it is replayed from power-on\n", err.text);
    checkpoint_remove(&s->rec, CHECKPOINT_DIR);
}

static int make_begin(struct session *s, struct err *err)
{
    struct guest *g = s->guest;
    int code = g->from->log ? 0 : recording_open_log(&g->from->rec, &g->from->log, err);
    if (!code)
        code = guest_create_machine(g, &s->m, err);
    return code ? code : begin_create(&s->begin, g->from, g->from_at, s->m, err);
}

/* A machine that begins in a recording is made behind the door: that is somebody's. */
static int jump(struct session *s, const struct checkpoint_notes *notes, struct err *err)
{
    struct err said = {0}, why;
    int code = guest_open_from(s->guest, err);
    if (!code)
        code = make_begin(s, err);
    if (code || !jumps(s) || !begin_jump(s->begin, &s->rec, notes, &said, &why)) {
        if (said.text[0])
            fprintf(stderr, "reprise: %s\n", said.text);
        return code;
    }
    fprintf(stderr, "reprise: %s: it is replayed from power-on\n", why.text);
    begin_destroy(s->begin);
    machine_destroy(s->m);
    s->begin = NULL;
    s->m = NULL;
    return make_begin(s, err);
}

static bool quits(void *opaque, pos_t position)
{
    struct session *s = opaque;
    struct input in;
    way_look(&s->way, s->m, position, s->guest->from_at.position);
    return live_quits(s->live, s->m, &in);
}

/* Checkpoint files that are not of this recording's past, or not believed, are none of it. */
static int start_keeper(struct session *s, const struct record_args *a,
                        struct checkpoint_notes *notes, struct err *err)
{
    struct keeper_config config = {.recording = &s->rec,
                                   .is = &s->guest->desc,
                                   .every_ns = (u64)(a->checkpoint_every * 1e9),
                                   .keep_free = a->keep_free,
                                   .notes = notes};
    struct checkpoint_writer w;
    if (s->begin)
        config.last = begin_file(s->begin, &config.files);
    s->checkpoint_end = a->checkpoint_end;
    if (a->checkpoint_every > 0 || a->checkpoint_end)
        return keeper_create(&s->keeper, &config, s->m, err);
    if (!config.files) {
        checkpoint_remove(&s->rec, CHECKPOINT_DIR);
        return 0;
    }
    int code = checkpoint_writer_open(&w, &s->rec, CHECKPOINT_DIR, config.files, err);
    checkpoint_writer_close(&w);
    return code;
}

static void say_way(const struct session *s)
{
    u32 n, all = s->shared;
    const struct checkpoint_file *f = begin_file(s->begin, &n);
    if (f)
        fprintf(stderr,
                "reprise: from checkpoint %u of %u, at position %" PRIu64 ", to %" PRIu64 "\n", n,
                all, f->at.position, s->guest->from_at.position);
    else
        fprintf(stderr, "reprise: from power-on to position %" PRIu64 "\n",
                s->guest->from_at.position);
}

/* To where it begins in the other one; from there on it is live. */
static int arrive(struct session *s, bool seeded, struct err *err)
{
    machine_set_output(s->m, on_output, s);
    machine_set_emit(s->m, on_emit, s);
    way_begin(&s->way);
    if (s->guest->gpu)
        gpu_host_follow(s->guest->gpu);
    struct log_reader *rest = NULL;
    int code = begin_run(s->begin, quits, s, err);
    way_quiet(&s->way);
    if (!code)
        code = begin_log(s->begin, &s->rec, &s->log, &s->inputs, &s->host_ns,
                         s->again ? &rest : NULL, err);
    if (!code && s->again)
        code = again_read(s->again, rest, err);
    log_reader_destroy(rest);
    begin_destroy(s->begin);
    s->begin = NULL;
    if (s->guest->gpu)
        gpu_host_live(s->guest->gpu, machine_gpu_pieces(s->m));
    live_begin(s->live, s->m);
    if (seeded && !machine_room(s->m, INPUT_GENERATION, 0))
        fprintf(stderr, "reprise: --seed: this machine, of an older version, has no generation ID: "
                        "only its entropy "
                        "device has another seed, and its kernel is not told\n");
    return code;
}

/* What is asked of the schedule. */
static int load_turns(struct session *s, const struct record_args *a, struct err *err)
{
    if ((a->unruly || a->turns || a->turns_out) && s->guest->desc.cpus < 2)
        return err_set(err, -EINVAL, "--%s is about turns of several CPUs, and %s: --cpus N",
                       a->unruly ? "chaos" : "turns",
                       a->from ? "that machine has one" : "there is one");
    int code = a->turns ? turns_load(&s->turns, a->turns, err) : 0;
    if (code || !a->turns_out)
        return code;
    int fd = open(a->turns_out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_PRIVATE);
    s->turns_out = fd < 0 ? NULL : fdopen(fd, "w");
    return s->turns_out ? 0 : err_errno(err, "cannot make %s", a->turns_out);
}

static void on_switched(void *opaque, const struct machine_switch *turn)
{
    if (!turn->plain)
        turns_write(((struct session *)opaque)->turns_out, turn);
}

int session_start(struct session *s, const struct record_args *a, struct guest *g, struct err *err)
{
    s->guest = g;
    int code = load_turns(s, a, err);
    if (!code && !g->from)
        code = guest_create_machine(g, &s->m, err);
    if (!code && !g->from)
        code = make_feeds(s, a, err);
    if (!code && a->gdb)
        code = attach_create(&s->attach, a->endpoint, err);
    if (!code)
        code = recording_create(&s->rec, a->output, a->force, err);
    if (code)
        return code;
    struct checkpoint_notes notes = CHECKPOINT_NOTES_NONE;
    code = make_files(s, a, err);
    if (!code)
        share_checkpoints(s);
    if (!code && (a->checkpoint_every > 0 || a->checkpoint_end || g->from))
        note_checkpoints(s, &notes);
    if (!code)
        code = lock_in(a, g, err);
    if (!code && g->from)
        code = jump(s, &notes, err);
    if (!code && g->from)
        code = make_feeds(s, a, err);
    if (!code) {
        machine_set_recording(s->m, s->rec.path);
        sandbox_settle();
    }
    struct live_config live = live_config_of(s, a);
    /* The terminal changes last, when nothing is left that fails for the user's reasons. */
    if (!code)
        code = live_create(&s->live, &live, err);
    if (!code)
        code = start_keeper(s, a, &notes, err);
    if (!code && g->from && a->verbose)
        say_way(s);
    if (!code && g->from)
        code = arrive(s, a->seeded, err);
    if (!code)
        code = start_recorder(s, err);
    struct err ignored;
    log_writer_close(s->log, &ignored);
    s->log = NULL;
    checkpoint_notes_close(&notes);
    if (code)
        recording_discard(&s->rec);
    return code;
}

void session_connect(struct session *s)
{
    machine_set_output(s->m, on_output, s);
    machine_set_emit(s->m, on_emit, s);
    lacking_watch(&s->lacking, s->m);
    if (s->turns_out)
        machine_set_switched(s->m, on_switched, s);
}

void session_close(struct session *s)
{
    struct err ignored;
    recorder_destroy(s->recorder);
    gpu_recorder_finish(s->gpu_log, NULL, NULL, &ignored);
    keeper_destroy(s->keeper);
    attach_destroy(s->attach);
    agent_minder_end(&s->minder);
    begin_destroy(s->begin);
    live_destroy(s->live);
    turns_destroy(s->turns);
    if (s->turns_out && (fflush(s->turns_out) || ferror(s->turns_out)))
        fprintf(stderr, "reprise: --turns-out: not all could be written: %s\n", strerror(errno));
    if (s->turns_out)
        fclose(s->turns_out);
    again_destroy(s->again);
    displays_close(&s->displays);
    screen_gpu_destroy(&s->screen);
    if (s->m)
        machine_destroy(s->m);
    if (s->guest)
        guest_close_host(s->guest);
    recording_close(&s->rec);
    *s = SESSION_CLOSED;
}
