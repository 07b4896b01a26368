/* See recorder.h. Host time enters here only to decide when the tail is written, which is no part
 * of the log. */
#include "replay/recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "replay/digests.h"
#include "version.h"

/* Virtual time in which the guest executes between two progress records. */
#define PROGRESS_NS 250000000u

/* How far the machine has come is kept after so many positions, or when it is to wait for the host
 * for so long, or has moved at all and this host time has passed. */
#define REACHED_POSITIONS 500000u
#define REACHED_SLEEP_NS  10000000u
#define REACHED_HOST_NS   50000000u

/* About what has passed on the host when the engine asks for a place. */
#define PLACE_NS 20000000u
/* ... while another vCPU waits for its turn. */
#define PLACE_TURN_NS 100000u

struct recorder {
    struct input_source src;
    struct recorder_config config;
    struct log_writer *log;
    u64 start_ns;         /* coarse host time */
    pos_t last_position;  /* of the last progress record */
    pos_t progress_every; /* positions */
    pos_t kept;           /* of the last record in the tail */
    u64 kept_ns;          /* and when that was on the host */
    pos_t checkpoint;     /* the last one's */
    u64 log_bytes;        /* once the log is closed */
    u64 inputs;           /* given so far */
    bool quit_given;
    bool full;         /* there is no room for contents */
    bool ending;       /* an INPUT_QUIT was recorded */
    bool lost;         /* the machine is, `failed` says why */
    struct err failed; /* the log's; code 0: none */
    struct digests now;
    struct engine_place place;
};

static struct recorder *self(struct input_source *src)
{
    return (struct recorder *)src;
}

/* What was seen of a machine whose KVM failed is wrong: it has no place in the log. */
static bool lost(struct recorder *r, struct machine *m)
{
    struct err why;
    if (r->lost || !machine_lost(m, &why))
        return r->lost;
    r->lost = true;
    if (!r->failed.code)
        r->failed = why;
    return true;
}

/* A record of the machine as it is. */
static int add(struct recorder *r, struct machine *m, const struct record *rec)
{
    lost(r, m);
    return r->failed.code ? r->failed.code : log_add(r->log, rec, &r->failed);
}

static int add_progress(struct recorder *r, struct machine *m)
{
    struct record rec = {.type = REC_PROGRESS};
    rec.position = machine_position(m);
    rec.time = machine_now(m);
    digests_take(m, false, &r->now);
    rec.progress.host_ns = host_ns_coarse() - r->start_ns;
    rec.progress.components = (struct log_digests){r->now.count, (const u8 *)r->now.components};
    rec.progress.console = r->now.console;
    rec.progress.console_bytes = r->now.console_bytes;
    rec.progress.debug = r->now.debug;
    rec.progress.debug_bytes = r->now.debug_bytes;
    r->last_position = rec.position;
    int code = add(r, m, &rec);
    return code ? code : log_flush(r->log, false, &r->failed); /* sealed up to here */
}

/* After this a kill loses nothing of what was recorded so far. */
static int keep_tail(struct recorder *r, struct machine *m, u64 now)
{
    struct record rec = {.type = REC_REACHED};
    rec.position = r->kept = machine_position(m);
    rec.time = machine_now(m);
    rec.reached.cpu = machine_cpu_digest(m, false);
    rec.reached.console = machine_output_digest(m, OUT_CONSOLE, &rec.reached.console_bytes);
    r->kept_ns = now;
    lost(r, m);
    return r->failed.code ? r->failed.code : log_keep(r->log, &rec, &r->failed);
}

/* Is what the log names on its way still? Then the tail need not wait for it, for a while. */
static bool lags(const struct recorder *r, u64 now)
{
    return r->config.contents && now - r->kept_ns < REACHED_HOST_NS &&
           contents_busy(r->config.contents);
}

static bool keep_due(struct recorder *r, struct machine *m, u64 now)
{
    pos_t moved = machine_position(m) - r->kept;
    bool due = log_pending(r->log) || moved >= REACHED_POSITIONS ||
               (moved && now - r->kept_ns >= REACHED_HOST_NS);
    return due && !lags(r, now);
}

/* Progress is recorded by work alone: the same run makes the same log on any host. */
static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct recorder *r = self(src);
    pos_t next = r->config.live->ops->next_position(r->config.live, m);
    return r->failed.code ? next : MIN(next, r->last_position + r->progress_every);
}

/* The log is full: the machine stops here, at the user's "wish". Cannot be recorded, of course. One
 * that is lost stops by itself. */
static int give_up(struct recorder *r, struct input *in)
{
    if (r->quit_given || r->lost)
        return 0;
    r->quit_given = true;
    *in = (struct input){.kind = INPUT_QUIT, .arg = QUIT_DISK};
    return 1;
}

/* Still time to end as a recording ends. */
static int end_in_time(struct recorder *r, struct machine *m, struct input *in)
{
    if (r->quit_given)
        return 0;
    r->quit_given = true;
    *in = (struct input){.kind = INPUT_QUIT, .arg = QUIT_DISK};
    return recorder_quit(r, m, QUIT_DISK, &r->failed) ? give_up(r, in) : 1;
}

/* Contents go beside the log, and before it. 0, or <0 and the recorder's failure. */
static int keep_contents(struct recorder *r, const struct input *in, struct record *rec)
{
    struct hash128 *hash = record_input_hash(rec);
    if (!hash)
        return 0;
    if (!r->config.contents)
        return err_set(&r->failed, -EINVAL, "there is no file for the contents of shares");
    return contents_put(r->config.contents, in->data, in->arg, hash, &r->failed);
}

static void keep(struct recorder *r, struct machine *m, u64 now)
{
    struct player_place place = {.inputs = r->inputs};
    r->checkpoint = machine_position(m);
    log_writer_tell(r->log, &place.log);
    struct sha256 before = log_writer_before(r->log);
    r->config.keep(r->config.keeper, m, &place, &before, now);
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct recorder *r = self(src);
    if (r->failed.code)
        return give_up(r, in);
    if (r->full || log_low(r->log))
        return end_in_time(r, m, in);
    int code = r->config.live->ops->take(r->config.live, m, in, err);
    if (code == 1 && in->kind == INPUT_PLACE) {
        /* From a log in the other unit. It is recorded where it is. */
        memcpy(&r->place, in->data, sizeof(r->place));
        int gone = machine_settle(m, &r->place, err);
        if (gone)
            return gone;
    }
    if (code == 1 && in->kind == INPUT_QUIT && r->config.keep && r->config.keep_last)
        keep(r, m, host_ns_coarse());
    if (code == 1) {
        struct record rec = {.position = machine_position(m), .time = machine_now(m)};
        record_from_input(&rec, in, machine_cpu_digest(m, false));
        if (keep_contents(r, in, &rec)) {
            if (r->failed.code != -ENOSPC)
                return give_up(r, in);
            r->failed.code = 0;
            r->full = true; /* the live source has given what cannot be taken */
            return end_in_time(r, m, in);
        }
        r->inputs++;
        r->ending = r->ending || in->kind == INPUT_QUIT;
        return add(r, m, &rec) ? give_up(r, in) : 1;
    }
    if (code)
        return code;
    u64 now = host_ns_coarse();
    bool progress = machine_position(m) - r->last_position >= r->progress_every;
    if (progress && add_progress(r, m))
        return give_up(r, in);
    /* A chunk that was written takes the tail's say with it. */
    if ((progress || keep_due(r, m, now)) && keep_tail(r, m, now))
        return give_up(r, in);
    /* That the run ends here is in no saved state. */
    if (r->config.keep && !r->ending && machine_position(m) != r->checkpoint &&
        r->config.keep_due(r->config.keeper, now))
        keep(r, m, now);
    return 0;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct recorder *r = self(src);
    bool sleeps = deadline - machine_now(m) >= REACHED_SLEEP_NS &&
                  input_source_waits(r->config.live, deadline);
    /* If the log fails here, take() ends the run. */
    if (sleeps && machine_position(m) != r->kept)
        keep_tail(r, m, host_ns_coarse());
    return r->config.live->ops->idle(r->config.live, m, deadline, until, err);
}

/* A guest that waits for an interrupt without a branch: time passes for it. */
static int between(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct recorder *r = self(src);
    if (r->failed.code)
        return 0;
    machine_place(m, &r->place);
    *in = (struct input){.kind = INPUT_PLACE,
                         .arg = machine_waited_for(m) ? PLACE_TURN_NS : PLACE_NS,
                         .len = sizeof(r->place),
                         .data = (const u8 *)&r->place};
    struct record rec = {.position = machine_position(m), .time = machine_now(m)};
    record_from_input(&rec, in, 0);
    r->inputs++;
    return !add(r, m, &rec);
}

static const struct input_source_ops ops = {next_position, take, idle, between, NULL};

static int contents_there(void *opaque, struct err *err)
{
    return contents_wait(opaque, err);
}

static struct log_bytes text(const char *s)
{
    return (struct log_bytes){(u32)strlen(s), (const u8 *)s};
}

static int add_start(struct recorder *r, struct machine *m, const char *names)
{
    struct record rec = {
        .type = REC_START, .position = machine_position(m), .time = machine_now(m)};
    rec.start.machine = r->config.machine;
    rec.start.components = text(names);
    rec.start.version = text(REPRISE_VERSION);
    return add(r, m, &rec);
}

int recorder_create(struct recorder **out, const struct recorder_config *config, struct machine *m,
                    struct err *err)
{
    struct recorder *r = calloc(1, sizeof(*r));
    char *names = component_names(m);
    if (!r || !names) {
        struct err ignored;
        log_writer_close(config->log, &ignored);
        free(r);
        free(names);
        return err_set(err, -ENOMEM, "no memory for the recorder");
    }
    r->src.ops = &ops;
    r->config = *config;
    r->log = config->log;
    if (config->contents)
        log_writer_after(r->log, contents_there, config->contents);
    r->start_ns = host_ns_coarse();
    r->progress_every =
        machine_positions(m, config->progress_ns ? config->progress_ns : PROGRESS_NS);
    r->start_ns -= config->host_ns;
    r->inputs = config->inputs;
    int code = config->follows ? 0 : add_start(r, m, names);
    if (!code && config->follows) /* once what is due here was taken */
        r->last_position = machine_position(m) - r->progress_every;
    else if (!code)
        code = add_progress(r, m);
    if (!code)
        code = keep_tail(r, m, host_ns_coarse());
    free(names);
    if (code) {
        *err = r->failed;
        recorder_destroy(r);
        return code;
    }
    *out = r;
    return 0;
}

struct input_source *recorder_source(struct recorder *r)
{
    return &r->src;
}

int recorder_mark(struct recorder *r, struct machine *m, const char *name, struct err *err)
{
    struct record rec = {.type = REC_MARK, .position = machine_position(m), .time = machine_now(m)};
    rec.mark.name = text(name);
    int code = add(r, m, &rec);
    if (code)
        *err = r->failed;
    return code;
}

int recorder_note(struct recorder *r, struct machine *m, const char *what, const char *note,
                  struct err *err)
{
    struct record rec = {.type = REC_NOTE, .position = machine_position(m), .time = machine_now(m)};
    rec.note.what = text(what);
    rec.note.text = text(note);
    rec.note.text.len = MIN(rec.note.text.len, RECORD_MAX / 2);
    int code = add(r, m, &rec);
    if (code)
        *err = r->failed;
    return code;
}

int recorder_keep(struct recorder *r, struct machine *m, const struct recorder_part *part,
                  struct err *err)
{
    struct record rec = {.type = REC_KEPT, .position = machine_position(m), .time = machine_now(m)};
    rec.kept = (struct rec_kept){.unit = part->unit,
                                 .inode = part->inode,
                                 .length = part->length,
                                 .offset = part->offset,
                                 .size = part->size};
    if (!r->config.contents)
        return err_set(err, -EINVAL, "there is no file for the contents of shares");
    int code = contents_put(r->config.contents, part->data, part->size, &rec.kept.hash, err);
    if (!code && (code = add(r, m, &rec)))
        *err = r->failed;
    return code;
}

int recorder_quit(struct recorder *r, struct machine *m, u32 why, struct err *err)
{
    const struct input in = {.kind = INPUT_QUIT, .arg = why};
    struct record rec = {.position = machine_position(m), .time = machine_now(m)};
    record_from_input(&rec, &in, machine_cpu_digest(m, false));
    r->inputs++;
    int code = add(r, m, &rec);
    if (code)
        *err = r->failed;
    return code;
}

/* One ram record with as many runs of equal neighbours as fit. */
static int add_ram(struct recorder *r, struct machine *m, const u64 *regions, unsigned count)
{
    static const unsigned slots = RAM_RECORD_SLOTS;
    u8 *buf = malloc(slots * 18u);
    if (!buf)
        return err_set(&r->failed, -ENOMEM, "no memory for the digests of RAM");
    int code = 0;
    for (unsigned i = 0; i < count && !code;) {
        struct record rec = {
            .type = REC_RAM, .position = machine_position(m), .time = machine_now(m)};
        rec.ram.first = i;
        rec.ram.regions.data = buf;
        while (i < count && rec.ram.regions.count < slots) {
            u64 run = 1;
            while (i + run < count && regions[i + run] == regions[i])
                run++;
            rec.ram.regions.size += runs_add(buf + rec.ram.regions.size, run, regions[i]);
            rec.ram.regions.count++;
            i += (unsigned)run;
        }
        code = add(r, m, &rec);
    }
    free(buf);
    return code;
}

static int add_end(struct recorder *r, struct machine *m, const struct run_end *end)
{
    unsigned count;
    u64 *regions = ram_regions(m, &count);
    if (!regions)
        return err_set(&r->failed, -ENOMEM, "no memory for the digests of RAM");
    int code = add_ram(r, m, regions, count);
    struct record rec = {.type = REC_END, .position = machine_position(m), .time = machine_now(m)};
    digests_take(m, false, &r->now);
    rec.end.reason = end->reason;
    rec.end.arg = end->arg;
    rec.end.host_ns = host_ns_coarse() - r->start_ns;
    rec.end.components = (struct log_digests){r->now.count, (const u8 *)r->now.components};
    rec.end.ram = ram_digest(regions, count);
    rec.end.regions = count;
    rec.end.console = r->now.console;
    rec.end.console_bytes = r->now.console_bytes;
    rec.end.debug = r->now.debug;
    rec.end.debug_bytes = r->now.debug_bytes;
    rec.end.modes = machine_modes(m);
    free(regions);
    if (!code)
        code = add(r, m, &rec);
    return code ? code : log_flush(r->log, true, &r->failed);
}

int recorder_finish(struct recorder *r, struct machine *m, const struct run_end *end,
                    struct err *err)
{
    bool compares = end->reason != RUN_LOST; /* else there is nothing to compare with */
    int code = r->lost && !compares ? 0 : r->failed.code;
    if (!code && compares)
        code = add_end(r, m, end);
    if (code)
        *err = r->failed;
    struct err closing = {0};
    r->log_bytes = log_bytes(r->log);
    int closed = log_writer_close(r->log, &closing);
    r->log = NULL;
    if (!code && closed) {
        *err = closing;
        code = closed;
    }
    return code;
}

u64 recorder_log_bytes(const struct recorder *r)
{
    return r->log ? log_bytes(r->log) : r->log_bytes;
}

void recorder_destroy(struct recorder *r)
{
    if (!r)
        return;
    struct err ignored;
    log_writer_close(r->log, &ignored);
    free(r);
}
