/* Comparing a replay with its recording, and saying where they part. */
#include "replay/player_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_SPAN 1000 /* positions that a suggested trace covers at most */

void run_end_text(u64 reason, u64 arg, char out[64])
{
    if (reason == RUN_QUIT)
        snprintf(out, 64, "quit (%s)", quit_reason_name(arg));
    else if (reason == RUN_EXIT)
        snprintf(out, 64, "exit with %" PRIu64, arg);
    else
        snprintf(out, 64, "%s", run_reason_name(reason));
}

void player_name_record(const struct record *rec, char out[96])
{
    const struct record_desc *desc = record_desc(rec->type);
    char end[64];
    if (rec->type == REC_END) {
        run_end_text(rec->end.reason, rec->end.arg, end);
        snprintf(out, 96, "its end: %s", end);
    } else {
        snprintf(out, 96, "%s", desc ? desc->name : "a remark");
    }
}

/* Keeps the record that was just reached for reports. Long lists are cut to what fits. */
void player_remember(struct player *p)
{
    struct past_event *e = &p->events[p->nevents++ % EVENTS];
    e->rec = p->rec;
    if (record_input(&p->rec, NULL)) {
        struct log_bytes *b = record_input_bytes(&e->rec);
        if (b) {
            b->len = MIN(b->len, (u32)sizeof(e->data)); /* decoded: no input is longer */
            memcpy(e->data, b->data, b->len);
            b->data = e->data;
        }
    } else if (p->rec.type == REC_PROGRESS) {
        e->rec.progress.components.count = p->rec.progress.components.count ? 1 : 0;
        if (p->rec.progress.components.count)
            memcpy(e->data, p->rec.progress.components.data, 8);
        e->rec.progress.components.data = e->data;
    } else if (p->rec.type == REC_MARK) {
        e->rec.mark.name.len = MIN(p->rec.mark.name.len, (u32)sizeof(e->data));
        memcpy(e->data, p->rec.mark.name.data, e->rec.mark.name.len);
        e->rec.mark.name.data = e->data;
    } else {
        p->nevents--;
    }
}

static void make_report(struct player *p, struct machine *m)
{
    size_t size;
    FILE *out = open_memstream(&p->report, &size);
    if (!out)
        return;
    pos_t at = player_position(p, m);
    pos_t upto = MAX(at, p->have ? MIN(p->rec.position, at + TRACE_SPAN) : at);
    if (p->agreed_any)
        fprintf(out, "Recording and replay still agreed at position %" PRIu64 ".\n", p->agreed);
    u64 n = MIN(p->nevents, (u64)EVENTS);
    if (n)
        fprintf(out, "The last %" PRIu64 " events before it:\n", n);
    for (u64 i = p->nevents - n; i < p->nevents; i++) {
        fputs("  ", out);
        record_print(out, &p->events[i % EVENTS].rec, false);
        fputc('\n', out);
    }
    if (p->have) {
        fputs("The next event of the recording:\n  ", out);
        record_print(out, &p->rec, false);
        fputc('\n', out);
    }
    pos_t from = p->agreed_any ? p->agreed : 0;
    if (upto > from)
        fprintf(out, "They part between positions %" PRIu64 " and %" PRIu64 ".\n", from, upto);
    fprintf(out,
            "To see the instructions there: reprise trace %s --from %" PRIu64 " --to %" PRIu64 "\n",
            p->dir, from, MIN(upto, from + TRACE_SPAN));
    fclose(out);
}

/* A changed image is found by a digest at the next progress record; but a guest that read something
 * else may be elsewhere before that. */
static void blame_disks(const struct player *p, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (unsigned i = 0; i < p->config.ndisks && n < size; i++) {
        const struct player_disk *k = &p->config.disks[i];
        if (k->changed)
            n += (size_t)snprintf(out + n, size - n, " (%s)", k->changed);
        else if (!k->same && k->disk->base_reads != p->agreed_reads[i])
            n += (size_t)snprintf(out + n, size - n,
                                  " (disk %u, %s, was read since they last agreed: is it as it "
                                  "was when recorded?)",
                                  i, k->disk->path);
    }
}

int player_diverge(struct player *p, struct machine *m, struct err *err, const char *fmt, ...)
{
    char what[500], disks[430];
    va_list ap;
    if (machine_lost(m, &p->failed)) { /* what differs is not the guest */
        p->result = PLAYER_ERROR;
        *err = p->failed;
        return err->code;
    }
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    blame_disks(p, disks, sizeof(disks));
    err_set(&p->failed, -EREMOTEIO,
            "the replay diverged at position %" PRIu64 ", time %" PRIu64 " ns: %s%s%s",
            player_position(p, m), machine_now(m), what, disks,
            p->unsure ? " (it began at a checkpoint of the recording, which may be what is wrong: "
                        "try again without its directory \"checkpoints\")"
                      : "");
    p->result = PLAYER_DIVERGED;
    make_report(p, m);
    *err = p->failed;
    return err->code;
}

static void agree(struct player *p, struct machine *m)
{
    p->agreed = player_position(p, m);
    p->agreed_any = true;
    for (unsigned i = 0; i < p->config.ndisks; i++)
        p->agreed_reads[i] = p->config.disks[i].disk->base_reads;
}

static const char *component_name(struct machine *m, u32 index)
{
    struct machine_component c;
    machine_component(m, index, &c);
    return c.name;
}

/* Names every component that differs, the first one first. */
static int check_components(struct player *p, struct machine *m, const struct log_digests *list,
                            struct err *err)
{
    char names[300] = "";
    size_t n = 0;
    if (list->count != p->now.count)
        return player_diverge(p, m, err, "the recording has %u components, the machine %u",
                              list->count, p->now.count);
    for (u32 i = 0; i < list->count; i++)
        if (digest_at(list, i) != p->now.components[i] && n < sizeof(names))
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
                                  component_name(m, i));
    return n ? player_diverge(p, m, err, "the state of %s differs", names) : 0;
}

static bool is_disk(const char *name)
{
    return !strncmp(name, "disk", 4);
}

/*
 * A disk's state holds a digest of all that was read of its base image. Looked at always and before
 * the others: it is the one thing of a recording that others can change.
 */
static int check_disks(struct player *p, struct machine *m, const struct log_digests *list,
                       struct err *err)
{
    for (u32 i = 0; i < machine_components(m) && i < list->count; i++) {
        const char *name = component_name(m, i);
        if (is_disk(name) && digest_at(list, i) != machine_component_digest(m, i))
            return player_diverge(
                p, m, err,
                "the state of %s differs; has its base image changed since it was "
                "recorded?",
                name);
    }
    return 0;
}

static int check_output(struct player *p, struct machine *m, u64 console, u64 console_bytes,
                        u64 debug, u64 debug_bytes, struct err *err)
{
    const struct digests *d = &p->now;
    if (d->console_bytes != console_bytes)
        return player_diverge(p, m, err,
                              "%" PRIu64 " bytes of console output, %" PRIu64 " in the recording",
                              d->console_bytes, console_bytes);
    if (d->console != console)
        return player_diverge(p, m, err, "the console output differs in its text");
    if (d->debug_bytes != debug_bytes || d->debug != debug)
        return player_diverge(p, m, err, "the debug output differs");
    return 0;
}

int player_check_progress(struct player *p, struct machine *m, struct err *err)
{
    const struct rec_progress *r = &p->rec.progress;
    int code = 0;
    bool all = p->config.verify || p->unsure;
    if (all)
        digests_take(m, p->config.by_branch, &p->now);
    else
        digests_outputs(m, &p->now);
    code = check_disks(p, m, &r->components, err);
    /* Components first: a CPU that went another way says more than the text it printed then. */
    if (!code && all)
        code = check_components(p, m, &r->components, err);
    if (!code)
        code = check_output(p, m, r->console, r->console_bytes, r->debug, r->debug_bytes, err);
    if (!code) {
        agree(p, m);
        p->unsure = false;
    }
    return code;
}

static u64 cpu_digest(const struct player *p, struct machine *m)
{
    return machine_cpu_digest(m, p->config.by_branch);
}

/* The vCPU, or all of them, whose digest is one: then whose turn it is. */
static const char *cpus_name(struct machine *m, char out[48])
{
    if (machine_cpus(m) == 1)
        return component_name(m, 0);
    snprintf(out, 48, "cpu0 to cpu%u (it is cpu%u's turn)", machine_cpus(m) - 1, machine_turn(m));
    return out;
}

int player_check_cpu(struct player *p, struct machine *m, u64 recorded, struct err *err)
{
    char name[48];
    if (cpu_digest(p, m) != recorded)
        return player_diverge(p, m, err, "the state of %s differs before input %" PRIu64,
                              cpus_name(m, name), p->inputs);
    agree(p, m);
    return 0;
}

int player_check_reached(struct player *p, struct machine *m, struct err *err)
{
    const struct rec_reached *r = &p->rec.reached;
    char name[48];
    digests_outputs(m, &p->now);
    if (cpu_digest(p, m) != r->cpu)
        return player_diverge(p, m, err, "the state of %s differs where the recorder was killed",
                              cpus_name(m, name));
    int code =
        check_output(p, m, r->console, r->console_bytes, p->now.debug, p->now.debug_bytes, err);
    if (!code)
        agree(p, m);
    return code;
}

static int check_ram(struct player *p, struct machine *m, struct err *err)
{
    unsigned count, differ = 0;
    u64 *regions = ram_regions(m, &count);
    if (!regions)
        return err_set(err, -ENOMEM, "no memory for the digests of RAM");
    char where[200] = "";
    size_t n = 0;
    for (unsigned i = 0; i < count; i++) {
        gpa_t gpa;
        if (i < p->ram_count && regions[i] == p->ram[i])
            continue;
        machine_ram_region_digest(m, i, &gpa);
        if (differ++ < 4)
            n += (size_t)snprintf(where + n, sizeof(where) - n, "%s%#" PRIx64 "-%#" PRIx64,
                                  n ? ", " : "", gpa, gpa + RAM_REGION - 1);
    }
    bool whole = count == p->rec.end.regions && ram_digest(regions, count) == p->rec.end.ram;
    free(regions);
    if (differ)
        return player_diverge(p, m, err, "%u regions of RAM differ at the end: %s%s", differ, where,
                              differ > 4 ? ", ..." : "");
    return whole ? 0 : player_diverge(p, m, err, "RAM differs at the end");
}

int player_check_end(struct player *p, struct machine *m, const struct run_end *end,
                     struct err *err)
{
    const struct rec_end *r = &p->rec.end;
    pos_t position = player_position(p, m);
    char now[64], then[64];
    run_end_text(end->reason, end->arg, now);
    run_end_text(r->reason, r->arg, then);
    if (end->reason != r->reason || end->arg != r->arg || position != p->rec.position)
        return player_diverge(p, m, err,
                              "the machine ended here (%s); in the recording it ended at position "
                              "%" PRIu64 " (%s)",
                              now, p->rec.position, then);
    if (machine_now(m) != p->rec.time)
        return player_diverge(p, m, err, "the recording ended at time %" PRIu64 " ns", p->rec.time);
    digests_take(m, p->config.by_branch, &p->now);
    int code = check_disks(p, m, &r->components, err);
    if (!code)
        code = check_components(p, m, &r->components, err);
    if (!code)
        code = check_output(p, m, r->console, r->console_bytes, r->debug, r->debug_bytes, err);
    return code ? code : check_ram(p, m, err);
}
