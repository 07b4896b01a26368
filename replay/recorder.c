/* See recorder.h. Host time enters here only to decide when a progress record is due. */
#include "replay/recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "replay/digests.h"
#include "version.h"

/* A kill may lose 250 ms: less the coarse clock's error and the length of a slice. */
#define PROGRESS_NS 220000000u

/* About what has passed on the host when the engine asks for a place. */
#define PLACE_NS 20000000u

struct recorder {
    struct input_source src;
    struct recorder_config config;
    struct log_writer *log;
    u64 start_ns, last_ns; /* coarse host time */
    pos_t last_position;   /* of the last progress record */
    u64 log_bytes;         /* once the log is closed */
    u64 inputs;            /* given so far */
    bool quit_given;
    struct err failed; /* the log's; code 0: none */
    struct digests now;
    struct engine_place place;
};

static struct recorder *self(struct input_source *src)
{
    return (struct recorder *)src;
}

static int add(struct recorder *r, const struct record *rec)
{
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
    int code = add(r, &rec);
    if (!code)
        code = log_flush(r->log, false, &r->failed);
    r->last_ns = host_ns_coarse();
    r->last_position = rec.position;
    return code;
}

/* Is there anything that a kill would lose? A guest that only sleeps leaves nothing. */
static bool unsaved(struct recorder *r, struct machine *m)
{
    return machine_position(m) != r->last_position || log_pending(r->log);
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct recorder *r = self(src);
    return r->config.live->ops->next_position(r->config.live, m);
}

/* The log is full: the machine stops here, at the user's "wish". Cannot be recorded, of course. */
static int give_up(struct recorder *r, struct input *in)
{
    if (r->quit_given)
        return 0;
    r->quit_given = true;
    *in = (struct input){.kind = INPUT_QUIT, .arg = QUIT_DISK};
    return 1;
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct recorder *r = self(src);
    if (r->failed.code)
        return give_up(r, in);
    int code = r->config.live->ops->take(r->config.live, m, in, err);
    if (code == 1 && in->kind == INPUT_PLACE) {
        /* From a log in the other unit. It is recorded where it is. */
        memcpy(&r->place, in->data, sizeof(r->place));
        int gone = machine_settle(m, &r->place, err);
        if (gone)
            return gone;
    }
    if (code == 1) {
        struct record rec = {.position = machine_position(m), .time = machine_now(m)};
        record_from_input(&rec, in, machine_component_digest(m, 0));
        r->inputs++;
        return add(r, &rec) ? give_up(r, in) : 1;
    }
    if (code)
        return code;
    u64 now = host_ns_coarse();
    bool keep = r->config.keep && r->config.keep_due(r->config.keeper, now) && unsaved(r, m);
    if ((keep || (now - r->last_ns >= PROGRESS_NS && unsaved(r, m))) && add_progress(r, m))
        return give_up(r, in);
    if (keep) {
        struct player_place place = {.inputs = r->inputs};
        log_writer_tell(r->log, &place.log);
        r->config.keep(r->config.keeper, m, &place, now);
    }
    return 0;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct recorder *r = self(src);
    if (r->config.set_alarm)
        r->config.set_alarm(r->config.opaque, unsaved(r, m) && !r->failed.code
                                                  ? r->last_ns + PROGRESS_NS + HOST_COARSE_NS
                                                  : NEVER);
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
                         .arg = PLACE_NS,
                         .len = sizeof(r->place),
                         .data = (const u8 *)&r->place};
    struct record rec = {.position = machine_position(m), .time = machine_now(m)};
    record_from_input(&rec, in, 0);
    r->inputs++;
    return !add(r, &rec);
}

static const struct input_source_ops ops = {next_position, take, idle, between};

static struct log_bytes text(const char *s)
{
    return (struct log_bytes){(u32)strlen(s), (const u8 *)s};
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
    r->start_ns = host_ns_coarse();
    struct record rec = {
        .type = REC_START, .position = machine_position(m), .time = machine_now(m)};
    rec.start.machine = config->machine;
    rec.start.components = text(names);
    rec.start.version = text(REPRISE_VERSION);
    int code = add(r, &rec);
    if (!code)
        code = add_progress(r, m);
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
    int code = add(r, &rec);
    if (code)
        *err = r->failed;
    return code;
}

int recorder_quit(struct recorder *r, struct machine *m, u32 why, struct err *err)
{
    const struct input in = {.kind = INPUT_QUIT, .arg = why};
    struct record rec = {.position = machine_position(m), .time = machine_now(m)};
    record_from_input(&rec, &in, machine_component_digest(m, 0));
    r->inputs++;
    int code = add(r, &rec);
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
        code = add(r, &rec);
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
    free(regions);
    if (!code)
        code = add(r, &rec);
    return code ? code : log_flush(r->log, true, &r->failed);
}

int recorder_finish(struct recorder *r, struct machine *m, const struct run_end *end,
                    struct err *err)
{
    int code = r->failed.code;
    if (!code && end->reason != RUN_LOST) /* there is nothing to compare with */
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
