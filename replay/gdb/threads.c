/*
 * Threads: what gdb asks of them, and their names in packets: "TID", or "pPID.TID" where gdb speaks
 * of processes (multiprocess). The machine's CPUs are threads 1, 2 ... of process 1.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "replay/gdb/regs.h"
#include "replay/gdb/server.h"

static void ok(struct gdb_server *s)
{
    reply_text(&s->reply, "OK");
}

static void fail(struct gdb_server *s)
{
    reply_text(&s->reply, "E01");
}

void threads_put(struct gdb_server *s, i32 process, i32 thread)
{
    if (s->multi)
        reply_format(&s->reply, "p%x.%x", (unsigned)process, (unsigned)thread);
    else
        reply_format(&s->reply, "%x", (unsigned)thread);
}

i32 threads_process(const struct gdb_thread *list, size_t count, i32 thread)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].id == thread)
            return list[i].process;
    return thread;
}

/* 0 and -1 mean any and all. */
static bool parse_number(const char **text, i64 *number)
{
    bool negative = parse_char(text, '-');
    u64 v;
    if (!parse_hex(text, &v) || v > INT32_MAX)
        return false;
    *number = negative ? -(i64)v : (i64)v;
    return true;
}

bool threads_parse(const char **text, i64 *thread, i32 *process)
{
    i64 number = 0;
    *process = 0;
    if (!parse_char(text, 'p'))
        return parse_number(text, thread);
    *thread = -1;
    if (!parse_number(text, &number) || (parse_char(text, '.') && !parse_number(text, thread)))
        return false;
    *process = number > 0 ? (i32)number : 0;
    return true;
}

/* 0: there is none. */
static i32 find(struct gdb_server *s, i64 thread, i32 process)
{
    size_t count;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    for (size_t i = 0; i < count; i++)
        if ((thread <= 0 || list[i].id == thread) && (!process || list[i].process == process))
            return list[i].id;
    return 0;
}

bool threads_known(struct gdb_server *s, i64 thread, i32 process)
{
    return (thread <= 0 && !process) || find(s, thread, process);
}

bool threads_of_other(struct gdb_server *s)
{
    size_t count;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    return s->thread && now &&
           threads_process(list, count, s->thread) != threads_process(list, count, now);
}

void threads_select(struct gdb_server *s, const char *text, bool select)
{
    i64 thread;
    i32 process;
    if (!threads_parse(&text, &thread, &process) || *text || !threads_known(s, thread, process)) {
        fail(s);
        return;
    }
    if (select)
        s->thread = thread > 0 || process ? find(s, thread, process) : 0;
    ok(s);
}

static void describe_cpu(struct gdb_server *s, i32 thread, char *out, size_t size)
{
    struct machine *m = s->target.machine(s->target.opaque);
    unsigned cpu = (unsigned)(thread - THREAD);
    machine_look_at(m, cpu);
    const struct vcpu *c = machine_vcpu(m);
    snprintf(out, size, "CPU %u (%s), CPL %u", cpu,
             c->halted == VCPU_WAITS_FOR_SIPI ? "not started"
             : c->halted                      ? "halted"
             : cpu == machine_turn(m)         ? "running"
                                              : "its turn comes",
             gdb_cpl(c));
}

void threads_extra(struct gdb_server *s, const char *text)
{
    char info[64] = "";
    size_t count;
    i32 now;
    i64 thread;
    i32 process;
    if (!threads_parse(&text, &thread, &process) || *text || !threads_known(s, thread, process)) {
        fail(s);
        return;
    }
    const struct gdb_thread *list = access_threads(s, &count, &now);
    for (size_t i = 0; i < count; i++)
        if (!list[i].where && list[i].id == thread)
            describe_cpu(s, list[i].id, info, sizeof(info));
        else if (list[i].id == thread)
            snprintf(info, sizeof(info), "%s, %s", list[i].name, list[i].where);
    reply_hex(&s->reply, info, strlen(info));
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

void threads_list(struct gdb_server *s, const char *text)
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
            describe_cpu(s, list[i].id, info, sizeof(info));
            fprintf(f, "<thread id=\"%s%x\" core=\"%d\">%s</thread>", s->multi ? "p1." : "",
                    (unsigned)list[i].id, list[i].id - THREAD, info);
            continue;
        }
        fputs("<thread id=\"", f);
        if (s->multi)
            fprintf(f, "p%x.", (unsigned)list[i].process);
        fprintf(f, "%x\" name=\"", (unsigned)list[i].id);
        put_attribute(f, list[i].name);
        fprintf(f, "\">%s</thread>", list[i].where);
    }
    fputs("</threads>", f);
    if (fclose(f))
        fail(s);
    else
        serve_transfer(s, text, object, size);
    free(object);
}

void threads_current(struct gdb_server *s)
{
    size_t count;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    reply_text(&s->reply, "QC");
    threads_put(s, threads_process(list, count, now), now);
}

void threads_first(struct gdb_server *s, const char *text)
{
    size_t count;
    i32 now;
    const struct gdb_thread *list = access_threads(s, &count, &now);
    for (size_t i = 0; i < count && s->reply.len < GDB_PACKET_SIZE - 32; i++) {
        reply_text(&s->reply, i ? "," : "m");
        threads_put(s, list[i].process, list[i].id);
    }
    if (!count)
        reply_text(&s->reply, "l");
}

void threads_more(struct gdb_server *s, const char *text)
{
    reply_text(&s->reply, "l");
}
