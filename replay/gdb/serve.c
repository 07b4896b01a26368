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

#define AUXV_MAX  1024u
#define CALLS_MAX 1024u /* system calls that gdb names */

static void ok(struct gdb_server *s)
{
    reply_text(&s->reply, "OK");
}

static void fail(struct gdb_server *s)
{
    reply_text(&s->reply, "E01");
}

/* ---- queries ---- */

/* Does a peer's list have it, whole? */
static bool has_feature(const char *features, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = features; (at = strstr(at, name)); at += len)
        if ((at == features || strchr(":;", at[-1])) && (!at[len] || at[len] == ';'))
            return true;
    return false;
}

static void supported(struct gdb_server *s, const char *features)
{
    bool process = access_view(s) & GDB_VIEW_PROCESS;
    s->tells_break = has_feature(features, "swbreak+");
    s->multi = process && has_feature(features, "multiprocess+");
    s->tells_fork = s->multi && has_feature(features, "fork-events+");
    s->tells_vfork = s->multi && has_feature(features, "vfork-events+");
    s->tells_exec = s->multi && has_feature(features, "exec-events+");
    reply_format(&s->reply,
                 "PacketSize=%x;QStartNoAckMode+;qXfer:features:read+;qXfer:threads:read+;"
                 "swbreak+;hwbreak+;vContSupported+;ConditionalBreakpoints+;binary-upload+;"
                 "error-message+%s%s",
                 GDB_PACKET_SIZE, s->target.can_reverse ? ";ReverseStep+;ReverseContinue+" : "",
                 s->target.auxv && process ? ";qXfer:auxv:read+" : "");
    if (s->multi)
        reply_text(&s->reply, ";multiprocess+;fork-events+;vfork-events+;exec-events+");
    if (process && s->target.catch_calls)
        reply_text(&s->reply, ";QCatchSyscalls+;QPassSignals+");
    if (process && s->target.siginfo)
        reply_text(&s->reply, ";qXfer:siginfo:read+");
}

void serve_transfer(struct gdb_server *s, const char *range, const void *object, size_t size)
{
    u64 offset, len;
    if (!parse_hex(&range, &offset) || !parse_char(&range, ',') || !parse_hex(&range, &len) ||
        *range || offset > size) {
        fail(s);
        return;
    }
    size_t part = MIN(len, size - offset);
    reply_text(&s->reply, "m");
    if (reply_binary(&s->reply, (const u8 *)object + offset, part) == size - offset)
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
    serve_transfer(s, text, s->description, strlen(s->description));
}

static void transfer_auxv(struct gdb_server *s, const char *text)
{
    u8 vector[AUXV_MAX];
    size_t size = s->target.auxv ? s->target.auxv(s->target.opaque, vector, sizeof(vector)) : 0;
    if (size)
        serve_transfer(s, text, vector, size);
    else
        fail(s);
}

static void transfer_siginfo(struct gdb_server *s, const char *text)
{
    u8 info[GDB_SIGINFO_SIZE];
    if (s->target.siginfo && s->target.siginfo(s->target.opaque, info))
        serve_transfer(s, text, info, sizeof(info));
    else
        fail(s);
}

static void attached(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, "1");
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
        s->last = s->stands = (struct gdb_stop){.reason = GDB_STOP_TRAP};
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

static void back_forks(struct gdb_server *s, const char *text)
{
    if ((*text != '0' && *text != '1') || text[1] || !s->target.back_forks) {
        fail(s);
        return;
    }
    s->target.back_forks(s->target.opaque, *text == '1');
    ok(s);
}

/* "0", "1" or "1;NUMBER;...". */
static void catch_calls(struct gdb_server *s, const char *text)
{
    u32 calls[CALLS_MAX];
    size_t n = 0;
    u64 number;
    struct err err;
    bool on = *text == '1';
    if ((*text != '0' && !on) || !s->target.catch_calls) {
        fail(s);
        return;
    }
    for (text++; *text; n++) {
        if (!on || n == CALLS_MAX || !parse_char(&text, ';') || !parse_hex(&text, &number) ||
            number > UINT32_MAX) {
            fail(s);
            return;
        }
        calls[n] = (u32)number;
    }
    if (s->target.catch_calls(s->target.opaque, on, calls, n, &err))
        reply_error(&s->reply, err.text);
    else
        ok(s);
}

/* For the hook, too: it has gdb attach again. */
static void shows(struct gdb_server *s, const char *text)
{
    reply_format(&s->reply, "%d",
                 s->target.shows ? s->target.shows(s->target.opaque) : GDB_SHOWS_SAME);
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
    {"qXfer:threads:read::", threads_list},
    {"qXfer:auxv:read::", transfer_auxv},
    {"qThreadExtraInfo,", threads_extra},
    {"qfThreadInfo", threads_first},
    {"qsThreadInfo", threads_more},
    {"qAttached", attached},
    {"qRcmd,", monitor},
    {"qreprise.Moved", has_moved},
    {"qreprise.Changed", has_changed},
    {"qreprise.Shows", shows},
    {"Qreprise.Conditions:", points_bind},
    {"Qreprise.Back:", points_back},
    {"Qreprise.Seen", seen},
    {"Qreprise.Forks:", back_forks},
    {"QCatchSyscalls:", catch_calls},
    {"QPassSignals:", stops_pass},
    {"qXfer:siginfo:read::", transfer_siginfo},
    {"qqemu.PhyMemMode", get_memory_mode},
    {"Qqemu.PhyMemMode:", set_memory_mode},
    {"QStartNoAckMode", no_ack_mode},
};

static void query(struct gdb_server *s, const char *text)
{
    if (!strcmp(text, "qC")) {
        threads_current(s);
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
static bool parse_action(const char **text, struct gdb_resume *out, i64 *thread, i32 *process)
{
    u64 number;
    char letter = **text;
    *out = (struct gdb_resume){0};
    *thread = -1;
    *process = 0;
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
    return !parse_char(text, ':') || threads_parse(text, thread, process);
}

/* "vCont;ACTION[:THREAD]...": the first that applies counts. */
static bool resume_threads(struct gdb_server *s, const char *text, struct gdb_resume *out)
{
    bool found = false;
    while (parse_char(&text, ';')) {
        struct gdb_resume one;
        i64 thread;
        i32 process;
        if (!parse_action(&text, &one, &thread, &process)) {
            fail(s);
            return false;
        }
        if (!found && threads_known(s, thread, process)) {
            *out = one;
            out->thread = thread > 0 ? (i32)thread : 0;
            out->process = process;
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
    else if (!strncmp(text, "vFile:", 6))
        files_packet(s, text + 6);
    else if (!strncmp(text, "vKill;", 6)) {
        ok(s);
        return resume(out, GDB_KILL);
    }
    return false;
}

/* "D", or of one process "D;PID". */
static bool detach(struct gdb_server *s, const char *text, struct gdb_resume *out)
{
    u64 process;
    bool one = parse_char(&text, ';');
    if (*text && (!one || !parse_hex(&text, &process) || *text || process > INT32_MAX)) {
        fail(s);
        return false;
    }
    ok(s);
    if (one && s->target.leave && s->target.leave(s->target.opaque, (i32)process)) {
        s->thread = 0;
        return false;
    }
    return resume(out, GDB_DETACH);
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
    case 'D': return detach(s, text + 1, out);
    case 'g': access_read_registers(s); break;
    case 'G': access_write_registers(s, text + 1, len - 1); break;
    case 'H':
        if (text[1])
            threads_select(s, text + 2, text[1] == 'g');
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
    case 'T': threads_select(s, text + 1, false); break;
    case 'v': return v_packet(s, text, out);
    case 'z':
    case 'Z': points_change(s, text + 1, *text == 'Z'); break;
    default: break;
    }
    return false;
}
