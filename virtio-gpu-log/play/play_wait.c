/* Replies of the renderer, in the order of the requests, and what is learnt from them. */
#include "virtio-gpu-log/play/play_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/play/grow.h"

void play_forget(struct gpu_player *p)
{
    struct renderer_reply *reply;
    for (u32 i = 0; i < p->answer_count; i++)
        free(p->answers[i].reply);
    p->answer_count = 0;
    p->owed_count = 0;
    p->requested_count = 0;
    play_forget_shots(p);
    /* Replies of the past come before those of the future: they are not asked for again. */
    while ((reply = renderer_next(gpu_drive_renderer(p->drive))))
        free(reply);
}

/* --- Death --- */

/* The renderer is dead: says at which command, which it finds out. */
static int play_died(struct gpu_player *p, struct err *err)
{
    char why[512];
    struct err again;
    u64 from = p->done, to = p->place.commands;
    snprintf(why, sizeof(why), "%s", renderer_death(gpu_drive_renderer(p->drive)));
    if (p->pinning)
        return err_set(err, -EPIPE, "%s", why);
    p->pinning = true;
    play_forget(p);
    bool dead = false;
    if (!play_restart(p, &again)) {
        /* Once more, from where it was surely alive with a fence after each command. */
        int code = 1;
        while (code == 1 && !dead && p->place.commands <= to) {
            bool slowly = p->place.commands >= from;
            code = gpu_player_step(p, &again);
            if (code == 1 && slowly && gpu_player_sync(p, &again))
                code = -EPIPE;
            dead = renderer_death(gpu_drive_renderer(p->drive));
        }
    }
    p->pinning = false;
    if (dead) {
        u64 at = p->place.commands ? p->place.commands - 1 : 0;
        return err_set(err, -EPIPE, "the renderer died at command %" PRIu64 ": %s", at, why);
    }
    return err_set(err, -EPIPE,
                   "the renderer died at one of the commands %" PRIu64 " to %" PRIu64
                   ", and not again: %s",
                   from, to, why);
}

/* --- Results --- */

/* What the renderer did not carry out, and the tracker thinks it did. */
static bool misleads(u32 type, u32 result)
{
    switch (type) {
    case VIRTIO_GPU_CMD_RESOURCE_CREATE_2D:
    case VIRTIO_GPU_CMD_RESOURCE_CREATE_3D:
    case VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING:
    case VIRTIO_GPU_CMD_CTX_CREATE: return true;
    case VIRTIO_GPU_CMD_SUBMIT_3D: return result == WIRE_R_REFUSED || result == WIRE_R_BUDGET;
    default: return false;
    }
}

static void refused(struct gpu_player *p, u64 seq, u64 count, u32 result)
{
    for (u32 i = 0; i < p->requested_count; i++) {
        const struct requested *r = &p->requested[i];
        if (r->last < seq || r->first >= seq + count)
            continue;
        if (misleads(r->type, result))
            p->track->obstacle = "the renderer refused a part of it";
        if (!p->tally.refused++) {
            p->tally.first_refused = r->number;
            snprintf(p->tally.refusal, sizeof(p->tally.refusal), "%s", wire_result_text(result));
        }
    }
}

static void results(struct gpu_player *p, const struct renderer_reply *f)
{
    for (u32 i = 0; i < f->run_count; i++)
        if (f->runs[i].result)
            refused(p, f->runs[i].seq, f->runs[i].count, f->runs[i].result);
    u32 keep = 0;
    for (u32 i = 0; i < p->requested_count; i++)
        if (p->requested[i].last > f->seq)
            p->requested[keep++] = p->requested[i];
    p->requested_count = keep;
    /* After the tracker the id may be another context's by now. */
    for (u32 i = 0; i < f->fault_count && p->records >= p->tracked; i++)
        gpu_track_fault(p->track, f->faults[i].context);
}

static void keep_answer(struct gpu_player *p, u64 number, struct renderer_reply *reply)
{
    if (p->answer_count == ANSWERS_MAX) {
        free(p->answers[0].reply);
        memmove(p->answers, p->answers + 1, --p->answer_count * sizeof(p->answers[0]));
    }
    p->answers[p->answer_count++] = (struct answer){number, reply};
}

int play_settle(struct gpu_player *p, u32 left, struct err *err)
{
    struct renderer *r = gpu_drive_renderer(p->drive);
    while (p->owed_count > left) {
        struct owed_reply o = p->owed[0];
        memmove(p->owed, p->owed + 1, --p->owed_count * sizeof(p->owed[0]));
        struct renderer_reply *reply = renderer_wait(r, o.seq, 0);
        if (!reply || reply->result == WIRE_R_LOST) {
            free(reply);
            return play_died(p, err);
        }
        if (o.kind == OWED_FENCE) {
            results(p, reply);
            p->done = MAX(p->done, o.number);
        }
        if (o.kind == OWED_SHOT)
            play_shot_reply(p, &o, reply);
        else if (o.compare)
            keep_answer(p, o.number, reply);
        else
            free(reply);
    }
    return 0;
}

int play_owe(struct gpu_player *p, const struct owed_reply *o, struct err *err)
{
    int code = p->owed_count == OWED_MAX ? play_settle(p, OWED_MAX / 2, err) : 0;
    if (!code)
        p->owed[p->owed_count++] = *o;
    return code;
}

int play_fence(struct gpu_player *p, u64 number, bool compare, struct err *err)
{
    struct owed_reply o = {.kind = OWED_FENCE,
                           .seq = renderer_fence(gpu_drive_renderer(p->drive)),
                           .number = number,
                           .compare = compare};
    return play_owe(p, &o, err);
}

/* May it write guest memory? */
static bool writes_memory(const struct gpu_command *c)
{
    struct virgl_walk w;
    struct virgl_command v;
    struct gpu_transfer t;
    if (c->type != VIRTIO_GPU_CMD_SUBMIT_3D)
        return false;
    virgl_walk_start(&w, c->payload, c->payload_size);
    while (virgl_next(&w, &v))
        if (v.id == VIRGL_CCMD_GET_QUERY_RESULT || (virgl_transfer(&v, &t) && !t.to_host))
            return true;
    return false;
}

int play_requested(struct gpu_player *p, u64 number, const struct gpu_driven *driven,
                   struct err *err)
{
    int code = 0;
    if (!driven->first)
        return 0;
    struct requested *more =
        list_grow(p->requested, p->requested_count, &p->requested_room, sizeof(*more));
    if (!more)
        return play_no_memory(err);
    p->requested = more;
    p->requested[p->requested_count++] =
        (struct requested){driven->first, driven->last, number, p->command.type};
    bool compare = p->config.compare && !p->pinning;
    if (driven->reply) {
        struct owed_reply o = {
            .kind = OWED_DOWN, .seq = driven->main, .number = number, .compare = compare};
        code = play_owe(p, &o, err);
    }
    if (!code && compare && driven->main && writes_memory(&p->command))
        code = play_fence(p, number, true, err);
    /* Results of too many requests are not kept. */
    if (!code && p->requested_count > 8192)
        code = play_fence(p, number, false, err);
    return code;
}

int gpu_player_sync(struct gpu_player *p, struct err *err)
{
    int code = play_fence(p, p->place.commands, false, err);
    return code ? code : play_settle(p, 0, err);
}

/* --- Comparing with the log --- */

/* Bytes of guest memory, one after the other. */
struct memory {
    struct span {
        u32 resource;
        u64 offset, size, at; /* at: in data */
    } * spans;
    u32 count;
    size_t room;
    u8 *data;
    u64 size;
};

static int span(struct memory *m, u32 resource, u64 offset, u64 size, struct err *err)
{
    struct span *more = list_grow(m->spans, m->count, &m->room, sizeof(*more));
    if (!more)
        return play_no_memory(err);
    m->spans = more;
    m->spans[m->count++] = (struct span){resource, offset, size, m->size};
    m->size += size;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->resource != y->resource)
        return x->resource < y->resource ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static bool same_memory(struct memory *a, struct memory *b)
{
    u64 i = 0, k = 0, in_i = 0, in_k = 0;
    if (a->size != b->size)
        return false;
    if (a->count)
        qsort(a->spans, a->count, sizeof(*a->spans), by_place);
    if (b->count)
        qsort(b->spans, b->count, sizeof(*b->spans), by_place);
    while (i < a->count && k < b->count) {
        const struct span *x = &a->spans[i], *y = &b->spans[k];
        u64 n = MIN(x->size - in_i, y->size - in_k);
        if (x->resource != y->resource || x->offset + in_i != y->offset + in_k ||
            memcmp(a->data + x->at + in_i, b->data + y->at + in_k, n))
            return false;
        in_i += n;
        in_k += n;
        i += in_i == x->size;
        in_i = in_i == x->size ? 0 : in_i;
        k += in_k == y->size;
        in_k = in_k == y->size ? 0 : in_k;
    }
    return i == a->count && k == b->count;
}

/* What the log has is more than any device gives. */
#define READBACK_MAX (256u << 20)

static int logged(struct gpu_player *p, const struct gpu_record *reply, struct memory *m,
                  struct err *err)
{
    struct gpu_range range;
    for (u32 at = 0; gpu_ranges_next(&reply->reply.readback, &at, &range);) {
        if (range.bytes.size > READBACK_MAX - m->size)
            return err_set(err, -EINVAL,
                           "the answer to command %" PRIu64 " has more than any GPU gives",
                           reply->number);
        if (range.bytes.size && span(m, range.resource, range.offset, range.bytes.size, err))
            return err->code;
    }
    m->data = malloc(m->size + 1);
    if (!m->data)
        return play_no_memory(err);
    u64 to = 0;
    for (u32 at = 0; gpu_ranges_next(&reply->reply.readback, &at, &range);) {
        int code = gpu_log_read(p->log, &range.bytes, 0, m->data + to, range.bytes.size, err);
        if (code)
            return code;
        to += range.bytes.size;
    }
    return 0;
}

static int answer(struct memory *m, const struct renderer_reply *r, struct err *err)
{
    m->data = malloc(r->data_size + 1);
    if (!m->data)
        return play_no_memory(err);
    memcpy(m->data, r->data, r->data_size);
    int code = 0;
    for (u32 i = 0; !code && i < r->range_count; i++)
        if (r->ranges[i].size)
            code = span(m, r->ranges[i].resource, r->ranges[i].offset, r->ranges[i].size, err);
    return code;
}

static bool answered(struct gpu_player *p, u64 number)
{
    for (u32 i = 0; i < p->answer_count; i++)
        if (p->answers[i].number == number)
            return true;
    return false;
}

int play_compare(struct gpu_player *p, const struct gpu_record *reply, struct err *err)
{
    struct memory theirs = {0}, ours = {0};
    bool awaited = answered(p, reply->number);
    for (u32 i = 0; i < p->owed_count; i++)
        awaited = awaited || (p->owed[i].compare && p->owed[i].number == reply->number);
    if (!awaited && !reply->reply.readback.count)
        return 0;
    int code = logged(p, reply, &theirs, err);
    while (!code && awaited && p->owed_count && !answered(p, reply->number))
        code = play_settle(p, p->owed_count - 1, err);
    for (u32 i = 0; !code && i < p->answer_count; i++) {
        if (p->answers[i].number != reply->number)
            continue;
        code = answer(&ours, p->answers[i].reply, err);
        free(p->answers[i].reply);
        p->answer_count--;
        memmove(p->answers + i, p->answers + i + 1, (p->answer_count - i) * sizeof(p->answers[0]));
        break;
    }
    if (!code) {
        p->tally.compared++;
        if (!same_memory(&theirs, &ours) && !p->tally.different++)
            p->tally.first_different = reply->number;
    }
    free(theirs.spans);
    free(theirs.data);
    free(ours.spans);
    free(ours.data);
    return code;
}
