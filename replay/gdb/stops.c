/*
 * Stop replies (gdb manual, E.3), with what a process does that gdb is told: system calls, other
 * processes that it makes, programs, signals.
 */
#include <string.h>

#include "cpu/vcpu.h"
#include "replay/gdb/regs.h"
#include "replay/gdb/server.h"

#define SIGNAL_INT  2
#define SIGNAL_TRAP 5

/* gdb's own numbers of signals by Linux's (the list of its source, in order); those not here are
 * the same, or 143 (GDB_SIGNAL_UNKNOWN). */
static unsigned gdb_signal(int number)
{
    static const u8 other[] = {[7] = 10,  [10] = 30, [12] = 31, [16] = 143, [17] = 20, [18] = 19,
                               [19] = 17, [20] = 18, [23] = 16, [29] = 23,  [30] = 32, [31] = 12};
    if (number >= 34 && number <= 64) /* 33 to 63 are 45 to 75; 64 came later */
        return number == 64 ? 78 : (unsigned)number + 12;
    if (number <= 0 || number > 31)
        return number == 32 ? 77 : number == 33 ? 45 : 143;
    return (size_t)number < sizeof(other) && other[number] ? other[number] : (unsigned)number;
}

bool gdb_signal_passes(const struct gdb_resume *r, int number)
{
    unsigned n = gdb_signal(number);
    return n < 64 * GDB_SIGNAL_WORDS && r->passes[n / 64] >> n % 64 & 1;
}

void stops_pass(struct gdb_server *s, const char *text)
{
    u64 passes[GDB_SIGNAL_WORDS] = {0}, number;
    while (*text) {
        if (!parse_hex(&text, &number) || number >= 64 * GDB_SIGNAL_WORDS ||
            (*text && !parse_char(&text, ';'))) {
            reply_text(&s->reply, "E01");
            return;
        }
        passes[number / 64] |= 1ull << number % 64;
    }
    memcpy(s->passes, passes, sizeof(passes));
    reply_text(&s->reply, "OK");
}

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
    case GDB_STOP_CALL: reply_format(r, "syscall_entry:%x;", (unsigned)stop->status); break;
    case GDB_STOP_RETURN: reply_format(r, "syscall_return:%x;", (unsigned)stop->status); break;
    case GDB_STOP_FORK:
    case GDB_STOP_VFORK:
        reply_text(r, stop->reason == GDB_STOP_FORK ? "fork:" : "vfork:");
        threads_put(s, stop->status, stop->status);
        reply_text(r, ";");
        break;
    case GDB_STOP_VFORK_DONE: reply_text(r, "vforkdone:;"); break;
    case GDB_STOP_EXEC:
        reply_text(r, "exec:");
        reply_hex(r, stop->path, strlen(stop->path));
        reply_text(r, ";");
        break;
    default: break;
    }
}

static unsigned signal_of(const struct gdb_stop *stop)
{
    switch (stop->reason) {
    case GDB_STOP_INTERRUPT: return SIGNAL_INT;
    case GDB_STOP_SIGNAL: return gdb_signal(stop->status);
    default: return SIGNAL_TRAP;
    }
}

void serve_stop_reply(struct gdb_server *s, const struct gdb_stop *stop)
{
    static const u8 expedited[] = {GDB_RBP, GDB_RSP, GDB_RIP};
    const struct gdb_beside none = {0};
    struct vcpu c;
    size_t count;
    i32 now;
    u64 call;
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
    reply_format(&s->reply, "T%02x", signal_of(stop));
    const struct gdb_thread *list = access_threads(s, &count, &now);
    if (list == s->cpus && stop->thread > 0 && (size_t)stop->thread <= count)
        s->thread = now = stop->thread;
    bool known = access_thread(s, s->thread, &c, &fpu, &call);
    for (unsigned i = 0; known && i < ARRAY_SIZE(expedited); i++) {
        u8 bytes[GDB_REG_SIZE];
        gdb_reg_read(&c, &none, expedited[i], bytes);
        reply_format(&s->reply, "%02x:", expedited[i]);
        reply_hex(&s->reply, bytes, gdb_reg_find(expedited[i], s->view)->bits / 8u);
        reply_text(&s->reply, ";");
    }
    if (now) {
        reply_text(&s->reply, "thread:");
        threads_put(s, threads_process(list, count, now), now);
        reply_text(&s->reply, ";");
    }
    put_reason(s, stop);
}
