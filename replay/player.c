/* See player.h: feeding the machine from the log. */
#include "replay/player_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a CPU executes at most in the 20 ms after which a recorder interrupts a guest without
 * branches, several times over: REP strings move up to 200 GB/s, of which each byte counts; other
 * instructions are at most six a cycle. The engine stops at least every 4 Mi of them; while another
 * vCPU waits every 128 Ki, and the recorder after 2 ms.
 */
#define STILL_INSNS (1ull << 35)
#define STILL_STOPS (STILL_INSNS >> 22)
#define SAME_STOPS  (1u << 8) /* with the same registers, so in no REP string */

static struct player *self(struct input_source *src)
{
    return (struct player *)src;
}

/* Ends the run: nothing differed, but there is no more to replay. */
static int run_out(struct player *p, struct err *err)
{
    const struct chunk_damage *d = log_damage(p->log);
    static const char *const why[] = {
        [CHUNKS_COMPLETE] = "it ends without an end record",
        [CHUNKS_CUT] = "its recorder could not write any further",
        [CHUNKS_KILLED] = "its recorder was killed",
        [CHUNKS_TRUNCATED] = "it was cut short",
        [CHUNKS_DAMAGED] = "it is damaged",
    };
    p->result = PLAYER_DAMAGE;
    err_set(&p->failed, -ENODATA,
            "replayed up to the damage, position %" PRIu64 ": the log does not go on, %s%s%s%s",
            p->agreed, d->state < ARRAY_SIZE(why) && why[d->state] ? why[d->state] : "",
            d->text[0] ? " (" : "", d->text, d->text[0] ? ")" : "");
    *err = p->failed;
    return err->code;
}

/* Gathers a ram record. Untrusted: only what this machine has room for. */
static void gather_ram(struct player *p)
{
    u32 at = 0;
    u64 index = p->rec.ram.first, length, digest;
    while (runs_next(&p->rec.ram.regions, &at, &length, &digest))
        for (u64 i = 0; i < length && index < p->ram_count; i++)
            p->ram[index++] = digest;
}

/* The test-only switch: see player.h. */
static void perturb(struct player *p)
{
    struct record *rec = &p->rec;
    struct input in;
    if (record_input(rec, &in) && in.len)
        return; /* when handed out: the record's bytes belong to the log */
    rec->position++;
    rec->time++;
}

static void advance(struct player *p)
{
    log_tell(p->log, &p->place);
    do
        p->have = log_next(p->log, &p->rec);
    while (p->have && p->rec.type == REC_RAM && (gather_ram(p), true));
    if (p->have && record_input(&p->rec, NULL) && ++p->inputs == p->config.perturb)
        perturb(p);
}

static void consume(struct player *p)
{
    player_remember(p);
    advance(p);
}

static pos_t next_position(struct input_source *src, struct machine *m)
{
    struct player *p = self(src);
    pos_t now = player_position(p, m), ahead = machine_position(m) - now;
    if (!p->have)
        return machine_position(m) + 1; /* take() ends the run */
    /*
     * Something at this very position that is not due yet: it comes after idle time, or it is the
     * end. A machine that runs on instead is caught one position later.
     */
    return (p->rec.position > now ? p->rec.position : now + 1) + ahead;
}

/* What the record names is got from beside the log. */
static int get_contents(struct player *p, const struct hash128 *hash, u32 size, struct err *err)
{
    struct err why;
    if (!p->config.contents)
        err_set(&why, -ENODATA, "the recording has lost its file " CONTENTS_NAME);
    else if (!contents_get(p->config.contents, hash, size, p->data, &why))
        return 0;
    p->result = PLAYER_DAMAGE;
    err_set(&p->failed, why.code, "replayed up to the damage, position %" PRIu64 ": %.900s",
            p->rec.position, why.text);
    *err = p->failed;
    return err->code;
}

static int give_input(struct player *p, struct machine *m, struct input *in, struct err *err)
{
    record_input(&p->rec, in);
    /* The CPU of a place is where the place is. */
    int code = in->kind == INPUT_PLACE ? 0 : player_check_cpu(p, m, record_input_cpu(&p->rec), err);
    if (code)
        return code;
    u32 room = machine_room(m, in->kind, in->unit);
    const struct hash128 *hash = record_input_hash(&p->rec);
    u32 size = hash ? in->arg : in->len;
    if (MAX(size, 1u) > room) {
        char what[96];
        player_name_record(&p->rec, what);
        return player_diverge(p, m, err, "the machine has room for %u bytes of it, not %u, at %s",
                              room, size, what);
    }
    if (hash && (code = get_contents(p, hash, size, err)))
        return code;
    /* The record's bytes go with its chunk. */
    if (in->len)
        memcpy(p->data, in->data, in->len);
    in->data = p->data;
    p->quit_given = p->quit_given || in->kind == INPUT_QUIT;
    if (in->len && p->inputs == p->config.perturb)
        p->data[in->kind == INPUT_CONSOLE ? 0 : in->len - 1] ^= 1;
    consume(p);
    return 1;
}

/* p->rec is in the machine's past or due at another time: says which. */
static int missed(struct player *p, struct machine *m, struct err *err)
{
    char what[96];
    player_name_record(&p->rec, what);
    if (p->rec.position != player_position(p, m))
        return player_diverge(p, m, err,
                              "the machine went past position %" PRIu64 " and time %" PRIu64
                              " ns, where the recording has %s",
                              p->rec.position, p->rec.time, what);
    return player_diverge(p, m, err, "the recording has %s here at time %" PRIu64 " ns", what,
                          p->rec.time);
}

static int never_there(struct player *p, struct machine *m, struct err *err)
{
    char what[96];
    player_name_record(&p->rec, what);
    return player_diverge(p, m, err,
                          "the machine goes on and on without a branch; the recording has %s at "
                          "position %" PRIu64,
                          what, p->rec.position);
}

/*
 * A log in branches, a machine in instructions: has it executed more since the last branch than any
 * CPU can before its recorder interrupts it? Of stretches with REP strings, which hardware moves by
 * the cache line, that bound is longer than of others, but which one it is does not matter here.
 */
static int stuck(struct player *p, struct machine *m, struct err *err)
{
    if (!p->config.by_branch)
        return 0;
    pos_t branches = machine_branches(m), insns = machine_position(m);
    if (branches != p->still.branches || insns < p->still.insns) {
        p->still.branches = branches;
        p->still.insns = insns;
    }
    return insns - p->still.insns < STILL_INSNS ? 0 : never_there(p, m, err);
}

/*
 * The engine says that the guest goes on without anything that counts. A recording in which it was
 * interrupted there has a place, which was taken before. In one that has none the guest went on by
 * itself before 20 ms had passed on its CPU.
 */
static int between(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct player *p = self(src);
    struct engine_place here;
    (void)in;
    machine_place(m, &here);
    pos_t position = player_position(p, m);
    if (!p->still.stops || position != p->still.branches) {
        p->still.branches = position;
        p->still.stops = p->still.same = 0;
    }
    p->still.same = memcmp(&here, &p->still.place, sizeof(here)) ? 0 : p->still.same + 1;
    p->still.place = here;
    p->still.stops++;
    return p->still.stops < STILL_STOPS && p->still.same < SAME_STOPS ? 0 : never_there(p, m, err);
}

/* At a checkpoint that was taken between the wish to quit and the end, which is in no saved state:
 * the machine is told once more. */
static int quit_again(struct player *p, struct input *in)
{
    if (p->rec.end.reason != RUN_QUIT || p->quit_given)
        return 0;
    p->quit_given = true;
    *in = (struct input){.kind = INPUT_QUIT, .arg = (u32)p->rec.end.arg};
    return 1;
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    struct player *p = self(src);
    for (;;) {
        if (p->result != PLAYER_SAME) {
            *err = p->failed;
            return err->code;
        }
        if (!p->have)
            return run_out(p, err);
        pos_t position = player_position(p, m);
        vns_t now = machine_now(m);
        /* Time never goes back, so a record whose time has gone by is not reached any more. */
        if (p->rec.position < position || p->rec.time < now)
            return missed(p, m, err);
        if (p->rec.position > position)
            return stuck(p, m, err);
        if (p->rec.time > now)
            return 0;
        if (p->rec.type == REC_END)
            return quit_again(p, in);
        if (record_input(&p->rec, NULL))
            return give_input(p, m, in, err);
        int code = p->rec.type == REC_PROGRESS  ? player_check_progress(p, m, err)
                   : p->rec.type == REC_REACHED ? player_check_reached(p, m, err)
                                                : 0;
        if (code)
            return code;
        consume(p);
    }
}

bool player_due(struct player *p, struct machine *m)
{
    return p->result == PLAYER_SAME && p->have && record_input(&p->rec, NULL) &&
           p->rec.type != REC_PLACE && p->rec.position == player_position(p, m) &&
           p->rec.time == machine_now(m);
}

bool player_quits(struct player *p, struct machine *m)
{
    struct input in;
    return player_due(p, m) && record_input(&p->rec, &in) && in.kind == INPUT_QUIT;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    struct player *p = self(src);
    if (p->result != PLAYER_SAME) {
        *err = p->failed;
        return err->code;
    }
    vns_t now = machine_now(m);
    *until = deadline;
    bool here = p->have && p->rec.position == player_position(p, m);
    if (here && p->rec.time < deadline && (p->rec.type != REC_END || p->rec.time > now)) {
        *until = MAX(p->rec.time, now);
        return 0;
    }
    if (deadline != NEVER)
        return 0;
    *until = now;
    if (here && p->rec.type == REC_END)
        return 1;
    if (!p->have)
        return run_out(p, err);
    char what[96];
    player_name_record(&p->rec, what);
    return player_diverge(p, m, err,
                          "the machine is halted and nothing wakes it; the recording goes on to "
                          "position %" PRIu64 " (%s)",
                          p->rec.position, what);
}

static const struct input_source_ops ops = {next_position, take, idle, between, NULL};

static int check_start(struct player *p, struct machine *m, struct err *err)
{
    if (!log_next(p->log, &p->rec) || p->rec.type != REC_START)
        return err_set(err, -EINVAL, "the log holds no whole chunk: %s", log_damage(p->log)->text);
    const struct log_bytes *names = &p->rec.start.components;
    if (strlen(p->names) != names->len || memcmp(p->names, names->data, names->len))
        return err_set(err, -EINVAL, "recorded with the components %.*s; this program has %s",
                       (int)MIN(names->len, 300u), (const char *)names->data, p->names);
    return 0;
}

int player_create(struct player **out, const struct player_config *config, struct machine *m,
                  struct err *err)
{
    struct player *p = calloc(1, sizeof(*p));
    if (!p) {
        log_reader_destroy(config->log);
        return err_set(err, -ENOMEM, "no memory for the player");
    }
    p->src.ops = &ops;
    p->config = *config;
    p->log = config->log;
    p->dir = strdup(config->dir ? config->dir : "DIR");
    p->names = component_names(m);
    p->ram_count = machine_ram_regions(m);
    p->ram = calloc(p->ram_count ? p->ram_count : 1, sizeof(*p->ram));
    int code = 0;
    if (!p->dir || !p->names || !p->ram)
        code = err_set(err, -ENOMEM, "no memory for the player");
    if (!code)
        code = check_start(p, m, err);
    if (code) {
        player_destroy(p);
        return code;
    }
    advance(p);
    *out = p;
    return 0;
}

void player_tell(const struct player *p, struct player_place *out)
{
    *out = (struct player_place){p->place, p->inputs - (p->have && record_input(&p->rec, NULL))};
}

bool player_unsure(const struct player *p)
{
    return p->unsure;
}

int player_seek(struct player *p, const struct player_place *place, bool unsure, struct err *err)
{
    struct player_place whole = {.inputs = 0};
    int code = log_seek(p->log, &place->log, err);
    if (code) { /* from the start, so that the player is of use with the machine at power-on */
        struct record start;
        log_next(p->log, &start);
        place = &whole;
    }
    p->inputs = place->inputs;
    p->unsure = unsure && !code;
    p->result = PLAYER_SAME;
    p->nevents = 0;
    p->quit_given = p->agreed_any = false;
    memset(&p->still, 0, sizeof(p->still));
    free(p->report);
    p->report = NULL;
    advance(p);
    return code;
}

struct input_source *player_source(struct player *p)
{
    return &p->src;
}

enum player_result player_finish(struct player *p, struct machine *m, const struct run_end *end,
                                 const struct err *run_err, struct err *err)
{
    if (p->result == PLAYER_SAME) {
        while (p->have && p->rec.type >= RECORD_REMARKS)
            consume(p);
        char what[96], how[64];
        run_end_text(end->reason, end->arg, how);
        bool host = end->reason == RUN_QUIT && run_err && run_err->code; /* the engine's KVM */
        if (end->reason == RUN_ERROR || end->reason == RUN_LOST || host) {
            p->result = PLAYER_ERROR;
            p->failed = *run_err;
        } else if (!p->have) {
            run_out(p, err);
        } else if (p->rec.type != REC_END) {
            player_name_record(&p->rec, what);
            player_diverge(p, m, err,
                           "the machine ended here (%s); the recording goes on with %s at position "
                           "%" PRIu64,
                           how, what, p->rec.position);
        } else {
            int code = player_check_end(p, m, end, err);
            if (code && p->result == PLAYER_SAME) {
                p->result = PLAYER_ERROR;
                p->failed = *err;
            }
        }
    }
    if (p->result != PLAYER_SAME)
        *err = p->failed;
    return p->result;
}

const char *player_report(const struct player *p)
{
    return p->report ? p->report : "";
}

struct log_reader *player_release(struct player *p)
{
    struct log_reader *log = p->log;
    p->log = NULL;
    player_destroy(p);
    return log;
}

void player_destroy(struct player *p)
{
    if (!p)
        return;
    log_reader_destroy(p->log);
    free(p->dir);
    free(p->names);
    free(p->ram);
    free(p->report);
    free(p);
}
