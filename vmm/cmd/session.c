/* See session.h. */
#include "cmd/session.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    if (channel != OUT_CONSOLE || (s->prefix && !prefix_begun(s->prefix)))
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
    if (!strcmp(g->desc.engine, "kvm"))
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
        net_feed_init(&s->net_feeds[i], g->nets[i], i);
        s->feeds[s->nfeeds++] = &s->net_feeds[i].feed;
    }
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
        if (g->ports[i])
            s->feeds[s->nfeeds++] = port_feed(g->ports[i]);
    if (g->input)
        s->feeds[s->nfeeds++] = input_file_feed(g->input);
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
        .fd = STDIN_FILENO,
        .hvc0 = s->guest->desc.hvc0,
        .realtime = s->guest->desc.realtime,
        .timeout = a->timeout,
        .max_position = a->max_position,
        .idle_limit = (vns_t)(idle_limit * 1e9),
        .stop_at = a->stop_at,
        .signals = true,
        .feeds = s->feeds,
        .nfeeds = s->nfeeds,
        .gpu = s->guest->gpu,
        .help = stderr,
    };
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
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
        if (g->ports[i])
            port_keep_free(g->ports[i], a->keep_free);
    if (!code && a->gpu_log && g->desc.gpu.width)
        code = start_gpu_log(s, a, &g->desc, err);
    return code ? code : recording_create_log(&s->rec, &s->log, err);
}

static int quits(void *opaque, struct machine *m, struct input *in)
{
    struct session *s = opaque;
    return live_quits(s->live, m, in);
}

static void begins(void *opaque, struct machine *m)
{
    struct session *s = opaque;
    live_begin(s->live, m);
}

/* The other recording's log is what comes first. */
static int start_prefix(struct session *s, struct err *err)
{
    struct opened *o = s->guest->from;
    struct player_config player = {
        .log = o->log, .dir = o->rec.path, .disks = o->seen, .ndisks = o->nseen, .verify = true};
    struct prefix_config config = {.live = live_source(s->live),
                                   .at = {s->guest->desc.from_position, s->guest->desc.from_time},
                                   .quits = quits,
                                   .begins = begins,
                                   .opaque = s};
    o->log = NULL;
    int code = player_create(&config.player, &player, s->m, err);
    return code ? code : prefix_create(&s->prefix, &config, err);
}

static int start_recorder(struct session *s, struct err *err)
{
    struct recorder_config config = {.log = s->log,
                                     .keep_due = keeper_due,
                                     .keep = s->keeper ? keeper_take : NULL,
                                     .keeper = s->keeper,
                                     .live = s->prefix ? prefix_source(s->prefix)
                                                       : live_source(s->live),
                                     .machine = s->rec.machine_hash};
    if (!strcmp(s->guest->desc.counter, "step")) /* a quarter of a second of it takes hours */
        config.progress_ns = STEP_PROGRESS_NS;
    s->log = NULL;
    return recorder_create(&s->recorder, &config, s->m, err);
}

/* A machine that begins in a recording is made behind the door: that is somebody's. */
static int make_machine(struct session *s, const struct record_args *a, struct err *err)
{
    int code = s->guest->from ? guest_open_from(s->guest, err) : 0;
    if (!code)
        code = guest_create_machine(s->guest, &s->m, err);
    return code ? code : make_feeds(s, a, err);
}

int session_start(struct session *s, const struct record_args *a, struct guest *g, struct err *err)
{
    s->guest = g;
    int code = g->from ? 0 : make_machine(s, a, err);
    if (!code && a->gdb)
        code = attach_create(&s->attach, a->endpoint, err);
    if (!code)
        code = recording_create(&s->rec, a->output, a->force, err);
    if (code)
        return code;
    struct checkpoint_notes notes = CHECKPOINT_NOTES_NONE;
    code = make_files(s, a, err);
    if (!code && a->checkpoint_every > 0)
        note_checkpoints(s, &notes);
    if (!code)
        code = lock_in(a, g, err);
    if (!code && g->from)
        code = make_machine(s, a, err);
    if (!code) {
        machine_set_recording(s->m, s->rec.path);
        sandbox_settle();
    }
    struct live_config live = live_config_of(s, a);
    /* The terminal changes last, when nothing is left that fails for the user's reasons. */
    if (!code)
        code = live_create(&s->live, &live, err);
    if (!code && a->checkpoint_every > 0)
        code = keeper_create(&s->keeper, &s->rec, &g->desc, (u64)(a->checkpoint_every * 1e9),
                             a->keep_free, &notes, s->m, err);
    if (!code && g->from)
        code = start_prefix(s, err);
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
}

void session_close(struct session *s)
{
    struct err ignored;
    recorder_destroy(s->recorder);
    gpu_recorder_finish(s->gpu_log, NULL, NULL, &ignored);
    keeper_destroy(s->keeper);
    attach_destroy(s->attach);
    prefix_destroy(s->prefix);
    live_destroy(s->live);
    displays_close(&s->displays);
    screen_gpu_destroy(&s->screen);
    if (s->m)
        machine_destroy(s->m);
    if (s->guest)
        guest_close_host(s->guest);
    recording_close(&s->rec);
    *s = SESSION_CLOSED;
}
