/* See look.h. */
#define _GNU_SOURCE /* pipe2 */
#include "cmd/hunt/look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cmd/apart.h"
#include "cmd/hunt/frames.h"
#include "cmd/notes.h"
#include "host/sandbox.h"
#include "replay/opened.h"

struct question {
    const char *dir, *program;
    enum hunt_wanted wanted;
    const struct instant *begin;
};

/* What a child says. */
struct answer {
    struct apart_answer said;
    union {
        struct hunt_end end;
        struct hunt_where where;
    } is;
};

static void note_text(const struct record *rec, char out[HUNT_TEXT])
{
    snprintf(out, HUNT_TEXT, "%.*s", (int)MIN(rec->note.text.len, HUNT_TEXT - 1),
             (const char *)rec->note.text.data);
}

static bool is_note(const struct record *rec, const char *what)
{
    return rec->type == REC_NOTE && rec->note.what.len == strlen(what) &&
           !memcmp(rec->note.what.data, what, rec->note.what.len);
}

/* Of a chaos that turns have no part in there is nothing to know. */
static void note_turns(const struct record *rec, u64 event, struct hunt_end *end)
{
    struct input in;
    if (!record_input(rec, &in))
        return;
    if (in.kind == INPUT_TURN) {
        if (end->nturns < HUNT_TURNS)
            end->turn[end->nturns] = rec->position;
        end->nturns++;
        end->last_turn = rec->position;
    }
    if (in.kind != INPUT_CHAOS)
        return;
    end->chaos = in.arg != CHAOS_DELAYS ? get64(in.data) : 0;
    end->chaos_event = event;
}

struct end_of {
    struct hunt_end *end;
    u64 events;
};

static void note_record(void *opaque, const struct record *rec)
{
    struct end_of *of = opaque;
    note_turns(rec, of->events++, of->end);
    if (is_note(rec, NOTE_PANIC))
        note_text(rec, of->end->panic);
    if (is_note(rec, NOTE_FROM)) {
        of->end->begun = true;
        of->end->begin = (struct instant){rec->position, rec->time};
    }
}

static void find_end(const void *question, void *answer)
{
    const struct question *q = question;
    struct answer *a = answer;
    struct opened o;
    struct log_summary summary;
    struct end_of of = {&a->is.end, 0};
    sandbox_plan(SANDBOX_READ);
    sandbox_read(q->dir);
    a->said.code = sandbox_enter(&a->said.err);
    if (!a->said.code)
        a->said.code = open_recording(&o, q->dir, &a->said.err);
    if (a->said.code)
        return;
    log_pass(o.log, &summary, note_record, &of);
    of.end->known = summary.has_end;
    of.end->reason = (u32)summary.end_reason;
    of.end->arg = (u32)summary.end_arg;
    close_recording(&o);
}

static void find_where(const void *question, void *answer)
{
    const struct question *q = question;
    struct answer *a = answer;
    struct travel tr;
    const struct travel_with with = {.once = true, .history = !q->begin};
    sandbox_plan(SANDBOX_READ | SANDBOX_CODE);
    a->said.code = travel_open(&tr, q->dir, &with, &a->said.err);
    if (a->said.code)
        return;
    a->said.code = frames_find(&tr, q->wanted, q->begin, q->program, &a->is.where, &a->said.err);
    travel_close(&tr);
}

int hunt_ask(const char *dir, void (*find)(const void *, void *), const void *question,
             void *answer, size_t size, struct err *err)
{
    char what[512];
    snprintf(what, sizeof(what), "the look at %s", dir);
    return apart_ask(find, question, answer, size, what, err);
}

int hunt_look_end(const char *dir, struct hunt_end *out, struct err *err)
{
    const struct question q = {.dir = dir};
    struct answer a;
    int code = hunt_ask(dir, find_end, &q, &a, sizeof(a), err);
    *out = a.is.end;
    out->panic[sizeof(out->panic) - 1] = 0;
    return code;
}

int hunt_look_where(const char *dir, enum hunt_wanted wanted, const struct instant *begin,
                    const char *program, struct hunt_where *out, struct err *err)
{
    const struct question q = {dir, program, wanted, begin};
    struct answer a;
    int code = hunt_ask(dir, find_where, &q, &a, sizeof(a), err);
    *out = a.is.where;
    out->text[sizeof(out->text) - 1] = 0;
    return code;
}
