/*
 * The packets (gdb manual, E.2 to E.6). A packet that is not known gets the empty reply, which
 * means just that. There is one thread a vCPU, of one process: vCPU n is thread n + 1. Where gdb is
 * shown a process of the guest the threads are that one's.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "replay/gdb/regs.h"
#include "replay/gdb/server.h"

#define SIGNAL_INT  2
#define SIGNAL_TRAP 5

static void ok(struct gdb_server *s)
{
    reply_text(&s->reply, "OK");
}

static void fail(struct gdb_server *s)
{
    reply_text(&s->reply, "E01");
}

static struct machine *machine(struct gdb_server *s)
{
    return s->target.machine(s->target.opaque);
}

/* ---- stop replies ---- */

static void put_reason(struct gdb_server *s, const struct gdb_stop *stop)
{
    static const char *const watch[] = {
        [GDB_WATCH_WRITE] = "watch", [GDB_WATCH_READ] = "rwatch", [GDB_WATCH_ACCESS] = "awatch"};
    struct reply *r = &s->reply;
    switch (stop->reason) {
    case GDB_STOP_BREAK_SOFT: reply_text(r, s->tells_break ? "swbreak:;" : ""); break;
    case GDB_STOP_BREAK_HARD: reply_text(r, s->tells_break ? "hwbreak:;" : ""); break;
    case GDB_STOP_WATCH:
        if (stop->watch >= GDB_WATCH_WRITE && stop->watch <= GDB_WATCH_ACCESS)
            reply_format(r, "%s:%llx;", watch[stop->watch], (unsigned long long)stop->address);
        break;
    case GDB_STOP_HISTORY_BEGIN: reply_text(r, "replaylog:begin;"); break;
    case GDB_STOP_HISTORY_END: reply_text(r, "replaylog:end;"); break;
    default: break;
    }
}

void serve_stop_reply(struct gdb_server *s, const struct gdb_stop *stop)
{
    static const u8 expedited[] = {GDB_RBP, GDB_RSP, GDB_RIP};
    const struct gdb_beside none = {0};
    struct vcpu c;
    size_t count;
    i32 now;
    bool fpu;
    s->thread = 0;
    reply_clear(&s->reply);
    if (stop->reason == GDB_STOP_EXITED) {
        if (stop->status < 0)
            reply_format(&s->reply, "X%02x", -stop->status & 0xff);
        else
            reply_format(&s->reply, "W%02x", stop->status & 0xff);
        return;
    }
    reply_format(&s->reply, "T%02x", stop->reason == GDB_STOP_INTERRUPT ? SIGNAL_INT : SIGNAL_TRAP);
    access_threads(s, &count, &now);
    bool known = access_thread(s, 0, &c, &fpu);
    for (unsigned i = 0; known && i < ARRAY_SIZE(expedited); i++) {
        u8 bytes[GDB_REG_SIZE];
        gdb_reg_read(&c, &none, expedited[i], bytes);
        reply_format(&s->reply, "%02x:", expedited[i]);
        reply_hex(&s->reply, bytes, gdb_reg_find(expedited[i], s->view)->bits / 8u);
        reply_text(&s->reply, ";");
    }
    if (now)
        reply_format(&s->reply, "thread:%x;", (unsigned)now);
    put_reason(s, stop);
}

/* ---- threads ---- */

/* 0 and -1 mean any and all. */
static bool parse_thread(const char **text, i64 *thread)
{
    bool negative = parse_char(text, '-');
    u64 v;
    if (!parse_hex(text, &v) || v > INT32_MAX)
        return false;
    *thread = negative ? -(i64)v : (i64)v;
    return true;
}

static bool is_ours(struct gdb_server *s, i64 thread)
{
    size_t count;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    bool found = thread == 0 || thread == -1;
    for (size_t i = 0; !found && i < count; i++)
        found = list[i].id == thread;
    return found;
}

/* 'T', and with `select` "Hg": whose registers are asked from now on. */
static void thread_packet(struct gdb_server *s, const char *text, bool select)
{
    i64 thread;
    if (!parse_thread(&text, &thread) || *text || !is_ours(s, thread)) {
        fail(s);
        return;
    }
    if (select)
        s->thread = thread > 0 ? (i32)thread : 0;
    ok(s);
}

static void describe_cpu(struct gdb_server *s, char *out, size_t size)
{
    const struct vcpu *c = machine_vcpu(machine(s));
    snprintf(out, size, "CPU %d (%s), CPL %u", THREAD - 1, c->halted ? "halted" : "running",
             gdb_cpl(c));
}

static void thread_extra(struct gdb_server *s, const char *text)
{
    char info[64] = "";
    size_t count;
    i32 now;
    i64 thread;
    if (!parse_thread(&text, &thread) || *text || !is_ours(s, thread)) {
        fail(s);
        return;
    }
    const struct gdb_thread *list = access_threads(s, &count, &now);
    for (size_t i = 0; i < count; i++)
        if (!list[i].where)
            describe_cpu(s, info, sizeof(info));
        else if (list[i].id == thread)
            snprintf(info, sizeof(info), "%s, %s", list[i].name, list[i].where);
    reply_hex(&s->reply, info, strlen(info));
}

/* ---- queries ---- */

static void supported(struct gdb_server *s, const char *features)
{
    s->tells_break = strstr(features, "swbreak+") != NULL;
    reply_format(&s->reply,
                 "PacketSize=%x;QStartNoAckMode+;qXfer:features:read+;qXfer:threads:read+;"
                 "swbreak+;hwbreak+;vContSupported+;ConditionalBreakpoints+;binary-upload+;"
                 "error-message+%s",
                 GDB_PACKET_SIZE, s->target.can_reverse ? ";ReverseStep+;ReverseContinue+" : "");
}

/* The part "OFFSET,LENGTH" of an object. */
static void transfer(struct gdb_server *s, const char *range, const char *object)
{
    u64 offset, len;
    size_t size = strlen(object);
    if (!parse_hex(&range, &offset) || !parse_char(&range, ',') || !parse_hex(&range, &len) ||
        *range || offset > size) {
        fail(s);
        return;
    }
    size_t part = MIN(len, size - offset);
    reply_text(&s->reply, "m");
    if (reply_binary(&s->reply, object + offset, part) == size - offset)
        s->reply.data[0] = 'l';
}

/* Read from its beginning it is the CPU as it is now: gdb may ask again (`unset tdesc filename`).
 */
static void transfer_features(struct gdb_server *s, const char *text)
{
    if (!strncmp(text, "0,", 2)) {
        access_look(s);
        free(s->description);
        s->description = NULL;
    }
    if (!s->description)
        s->description = gdb_description(s->view);
    if (!s->description) {
        fail(s);
        return;
    }
    transfer(s, text, s->description);
}

/* A name of the guest's, in XML. */
static void put_attribute(FILE *f, const char *text)
{
    for (; *text; text++)
        if (strchr("<>&\"'", *text))
            fprintf(f, "&#%d;", *text);
        else
            fputc(*text, f);
}

static void transfer_threads(struct gdb_server *s, const char *text)
{
    char info[64], *object = NULL;
    size_t count, size;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    FILE *f = open_memstream(&object, &size);
    if (!f) {
        fail(s);
        return;
    }
    fputs("<?xml version=\"1.0\"?><threads>", f);
    for (size_t i = 0; i < count; i++) {
        if (!list[i].where) {
            describe_cpu(s, info, sizeof(info));
            fprintf(f, "<thread id=\"%x\" core=\"%d\">%s</thread>", THREAD, THREAD - 1, info);
            continue;
        }
        fprintf(f, "<thread id=\"%x\" name=\"", (unsigned)list[i].id);
        put_attribute(f, list[i].name);
        fprintf(f, "\">%s</thread>", list[i].where);
    }
    fputs("</threads>", f);
    if (fclose(f))
        fail(s);
    else
        transfer(s, text, object);
    free(object);
}

static void attached(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, "1");
}

static void current_thread(struct gdb_server *s, const char *text)
{
    size_t count;
    i32 now;
    access_threads(s, &count, &now);
    reply_format(&s->reply, "QC%x", (unsigned)now);
}

static void first_threads(struct gdb_server *s, const char *text)
{
    size_t count;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    for (size_t i = 0; i < count && s->reply.len < GDB_PACKET_SIZE - 16; i++)
        reply_format(&s->reply, "%c%x", i ? ',' : 'm', (unsigned)list[i].id);
    if (!count)
        reply_text(&s->reply, "l");
}

static void more_threads(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, "l");
}

static void get_memory_mode(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, s->physical ? "1" : "0");
}

static void set_memory_mode(struct gdb_server *s, const char *text)
{
    if ((*text != '0' && *text != '1') || text[1]) {
        fail(s);
        return;
    }
    s->physical = *text == '1';
    ok(s);
}

static void no_ack_mode(struct gdb_server *s, const char *text)
{
    s->no_ack = true;
    ok(s);
}

/* ---- monitor ---- */

static ssize_t monitor_write(void *cookie, const char *text, size_t len)
{
    server_output(cookie, text, len);
    return (ssize_t)len;
}

static void monitor(struct gdb_server *s, const char *digits)
{
    char command[1024];
    size_t len = strlen(digits) / 2;
    enum gdb_monitor result = GDB_MONITOR_UNKNOWN;
    if (len >= sizeof(command) || strlen(digits) % 2 || !parse_bytes(digits, (u8 *)command, len)) {
        fail(s);
        return;
    }
    command[len] = 0;
    FILE *out = fopencookie(s, "w", (cookie_io_functions_t){.write = monitor_write});
    if (!out) {
        fail(s);
        return;
    }
    if (s->target.monitor)
        result = s->target.monitor(s->target.opaque, command, out);
    if (result == GDB_MONITOR_UNKNOWN)
        fprintf(out, "There is no command of this name; `monitor help` lists them.\n");
    if (result == GDB_MONITOR_MOVED || result == GDB_MONITOR_MOVED_HOOK) {
        s->last = (struct gdb_stop){.reason = GDB_STOP_TRAP};
        s->moved = true;
        if (!s->told_moved && result == GDB_MONITOR_MOVED)
            fprintf(out, "gdb does not know: `maintenance flush dcache` and `maintenance flush "
                         "register-cache` make it look again.\n");
        s->told_moved = true;
    }
    fclose(out);
    reply_clear(&s->reply);
    ok(s);
}

/* For the hook behind gdb's `monitor`: what gdb knows of the machine is then thrown away, and with
 * it the frame that is selected; so only when it has to be. */
static void has_moved(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, s->moved ? "1" : "0");
    s->moved = false;
}

/* Is the CPU another one than gdb was shown? */
static void has_changed(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, access_view(s) != s->view ? "1" : "0");
}

static void seen(struct gdb_server *s, const char *text)
{
    if (s->target.seen)
        s->target.seen(s->target.opaque);
    ok(s);
}

/* By their beginning; longer ones first where one begins with another. */
static const struct query {
    const char *name;
    void (*serve)(struct gdb_server *s, const char *rest);
} queries[] = {
    {"qSupported", supported},
    {"qXfer:features:read:target.xml:", transfer_features},
    {"qXfer:threads:read::", transfer_threads},
    {"qThreadExtraInfo,", thread_extra},
    {"qfThreadInfo", first_threads},
    {"qsThreadInfo", more_threads},
    {"qAttached", attached},
    {"qRcmd,", monitor},
    {"qreprise.Moved", has_moved},
    {"qreprise.Changed", has_changed},
    {"Qreprise.Conditions:", points_bind},
    {"Qreprise.Back:", points_back},
    {"Qreprise.Seen", seen},
    {"qqemu.PhyMemMode", get_memory_mode},
    {"Qqemu.PhyMemMode:", set_memory_mode},
    {"QStartNoAckMode", no_ack_mode},
};

static void query(struct gdb_server *s, const char *text)
{
    if (!strcmp(text, "qC")) {
        current_thread(s, text);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        size_t len = strlen(queries[i].name);
        if (!strncmp(text, queries[i].name, len)) {
            queries[i].serve(s, text + len);
            return;
        }
    }
    if (!strncmp(text, "qXfer:features:read:", 20)) /* another annex */
        reply_text(&s->reply, "E00");
}

/* ---- running ---- */

static bool resume(struct gdb_resume *out, enum gdb_action action)
{
    *out = (struct gdb_resume){.action = action};
    return true;
}

/* 'c' and 's', perhaps with an address, 'C' and 'S' with a signal and perhaps ";ADDRESS". The
 * guest takes no signals. */
static bool resume_packet(struct gdb_server *s, const char *text, struct gdb_resume *out)
{
    bool step = *text == 's' || *text == 'S', signal = *text == 'C' || *text == 'S';
    u64 address, number;
    text++;
    if (signal && (!parse_hex(&text, &number) || (*text && !parse_char(&text, ';')))) {
        fail(s);
        return false;
    }
    if (*text) {
        if (!parse_hex(&text, &address) || *text) {
            fail(s);
            return false;
        }
        if (!access_jump(s, address))
            return false;
    }
    return resume(out, step ? GDB_STEP : GDB_CONTINUE);
}

/* One of "c", "Cxx", "s", "Sxx", "rSTART,END", and to which thread it applies. */
static bool parse_action(const char **text, struct gdb_resume *out, i64 *thread)
{
    u64 number;
    char letter = **text;
    *out = (struct gdb_resume){0};
    *thread = -1;
    if (letter)
        (*text)++;
    switch (letter) {
    case 'C':
    case 'S':
        if (!parse_hex(text, &number))
            return false;
        break;
    case 'c':
    case 's': break;
    case 'r':
        if (!parse_hex(text, &out->start) || !parse_char(text, ',') || !parse_hex(text, &out->end))
            return false;
        break;
    default: return false;
    }
    out->action = letter == 'r'                    ? GDB_RANGE_STEP
                  : letter == 's' || letter == 'S' ? GDB_STEP
                                                   : GDB_CONTINUE;
    return !parse_char(text, ':') || parse_thread(text, thread);
}

/* "vCont;ACTION[:THREAD]...": the first that applies counts. */
static bool resume_threads(struct gdb_server *s, const char *text, struct gdb_resume *out)
{
    bool found = false;
    while (parse_char(&text, ';')) {
        struct gdb_resume one;
        i64 thread;
        if (!parse_action(&text, &one, &thread)) {
            fail(s);
            return false;
        }
        if (!found && is_ours(s, thread)) {
            *out = one;
            out->thread = thread > 0 ? (i32)thread : 0;
            found = true;
        }
    }
    if (!found || *text) {
        fail(s);
        return false;
    }
    return true;
}

static bool v_packet(struct gdb_server *s, const char *text, struct gdb_resume *out)
{
    if (!strcmp(text, "vCont?"))
        reply_text(&s->reply, "vCont;c;C;s;S;r");
    else if (!strncmp(text, "vCont;", 6))
        return resume_threads(s, text + 5, out);
    else if (!strncmp(text, "vKill;", 6)) {
        ok(s);
        return resume(out, GDB_KILL);
    }
    return false;
}

/* 'bc' and 'bs'. */
static bool reverse(struct gdb_server *s, const char *text, struct gdb_resume *out)
{
    if (!s->target.can_reverse || (strcmp(text, "bc") && strcmp(text, "bs")))
        return false;
    return resume(out, text[1] == 'c' ? GDB_REVERSE_CONTINUE : GDB_REVERSE_STEP);
}

bool serve_packet(struct gdb_server *s, struct gdb_resume *out)
{
    const char *text = s->reader.data;
    size_t len = s->reader.len;
    reply_clear(&s->reply);
    if (!s->looked)
        access_look(s);
    s->looked = true;
    switch (*text) {
    case '?': serve_stop_reply(s, &s->last); break;
    case 'b': return reverse(s, text, out);
    case 'c':
    case 'C':
    case 's':
    case 'S': return resume_packet(s, text, out);
    case 'D': ok(s); return resume(out, GDB_DETACH);
    case 'g': access_read_registers(s); break;
    case 'G': access_write_registers(s, text + 1, len - 1); break;
    case 'H':
        if (text[1])
            thread_packet(s, text + 2, text[1] == 'g');
        else
            fail(s);
        break;
    case 'k': return resume(out, GDB_KILL);
    case 'm':
    case 'x': access_read_memory(s, text + 1, *text == 'x'); break;
    case 'M':
    case 'X': access_write_memory(s, text + 1, len - 1, *text == 'X'); break;
    case 'p': access_read_register(s, text + 1); break;
    case 'P': access_write_register(s, text + 1); break;
    case 'q':
    case 'Q': query(s, text); break;
    case 'T': thread_packet(s, text + 1, false); break;
    case 'v': return v_packet(s, text, out);
    case 'z':
    case 'Z': points_change(s, text + 1, *text == 'Z'); break;
    default: break;
    }
    return false;
}
