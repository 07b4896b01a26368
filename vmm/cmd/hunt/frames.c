/* See frames.h. */
#include "cmd/hunt/frames.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "inspect/backtrace.h"
#include "inspect/program_maps.h"
#include "inspect/program_place.h"

#define CALLERS    2u   /* that are named besides the place itself */
#define THREADS    4u   /* whose places are named where a program stands still */
#define STACK_SCAN 512u /* words above the stack pointer */
#define CALL_BYTES 7u   /* longest call instruction that compilers write */
/* A fault so low is the offset in a structure at NULL, and the same in each run. */
#define LOW_ADDRESS 0x10000u
#define SI_CODE     8u /* offsets in the kernel's siginfo_t of x86-64 */
#define SI_ADDR     16u

/* A text that grows as far as there is room. */
struct words {
    char *text;
    size_t at, size;
};

static void PRINTF(2, 3) add(struct words *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(w->text + w->at, w->size - w->at, fmt, ap);
    va_end(ap);
    if (n > 0)
        w->at = MIN(w->at + (size_t)n, w->size - 1);
}

struct place {
    struct machine *m;
    const struct program_layout *layout;
    const struct program *program;
    struct guest_file_more more;
};

/* ---- programs ---- */

static bool in_file(const struct place *p, u64 address, u64 flags, char out[PROGRAM_PLACE_MAX])
{
    return program_place(p->program, p->layout, p->m, &p->more, address, flags, out);
}

/* Does a call instruction end in front of it? E8 rel32, or FF /2 in its forms of 2, 3, 6 and 7
 * bytes (Intel SDM 2, CALL). */
static bool follows_call(const struct place *p, u64 address)
{
    u8 code[CALL_BYTES];
    if (!program_peek(p->program, p->layout, p->m, address - CALL_BYTES, code, CALL_BYTES))
        return false;
    if (code[CALL_BYTES - 5] == 0xe8)
        return true;
    for (unsigned n = 2; n <= CALL_BYTES; n++)
        if (n != 4 && n != 5 && code[CALL_BYTES - n] == 0xff &&
            (code[CALL_BYTES - n + 1] >> 3 & 7) == 2)
            return true;
    return false;
}

/* The place of a thread and its callers. There are no unwind tables here: callers are words of its
 * stack behind which a call ends, so one that has returned may be among them, the same one each
 * time. */
static void add_frames(struct words *w, const struct place *p, const struct vcpu *c)
{
    char name[PROGRAM_PLACE_MAX];
    u64 word;
    add(w, "%s",
        in_file(p, c->rip, 0, name) ? name
        : c->rip < LOW_ADDRESS      ? "no code"
                                    : "code of no file");
    u64 at = c->gpr[RSP];
    for (unsigned i = 0, n = 0; i < STACK_SCAN && n < CALLERS; i++, at += 8) {
        if (at % 8 || !program_peek(p->program, p->layout, p->m, at, &word, 8))
            break;
        if (word < LOW_ADDRESS || !in_file(p, word, PROGRAM_EXEC, name) || !follows_call(p, word))
            continue;
        add(w, " < %s", name);
        n++;
    }
}

static void add_address(struct words *w, const struct place *p, u64 address)
{
    char name[PROGRAM_PLACE_MAX];
    struct program_map map;
    if (address < LOW_ADDRESS)
        add(w, " at %#" PRIx64, address);
    else if (in_file(p, address, 0, name))
        add(w, " at %s", name);
    else if (program_map_at(p->program, p->layout, p->m, address, &map))
        add(w, " at memory of its own");
    else
        add(w, " at memory that is not there");
}

static const struct program_thread *find_thread(const struct program *p, i32 tid)
{
    for (u32 i = 0; i < p->count; i++)
        if (p->threads[i].tid == tid)
            return &p->threads[i];
    return NULL;
}

/* At do_coredump(siginfo). */
static void say_signal(struct travel *tr, struct words *w)
{
    struct machine *m = timeline_machine(tr->t);
    struct program_layout layout;
    struct program program = {0};
    struct process now;
    struct vcpu c;
    struct err err;
    u8 info[SIGINFO_KERNEL];
    i32 number = 0, why = 0;
    u64 address = 0, call;
    bool fpu;
    travel_process(tr, &now);
    const struct symbols *symbols = travel_symbols(tr);
    if (!symbols || program_learn(&layout, m, symbols, &err)) {
        add(w, "a signal");
        return;
    }
    u64 at = machine_vcpu(m)->gpr[RDI];
    if (process_kernel_bytes(&layout.current, m, at, info, sizeof(info))) {
        memcpy(&number, info, 4);
        memcpy(&why, info + SI_CODE, 4);
        memcpy(&address, info + SI_ADDR, 8);
    }
    add(w, "signal %d", number);
    if (program_find(&program, &layout, m, now.tgid, NULL, 0, &err)) {
        program_free(&program);
        return;
    }
    const struct place p = {m, &layout, &program, travel_files(tr)};
    bool faulted = why > 0 && (number == 11 || number == 7); /* SIGSEGV, SIGBUS: of the kernel */
    if (faulted)
        add_address(w, &p, address);
    const struct program_thread *t = find_thread(&program, now.pid);
    if (t && program_registers(&layout, m, t, &c, &fpu, &call)) {
        add(w, " in ");
        add_frames(w, &p, &c);
    }
    program_free(&program);
}

/* Where its threads stand; those at one place are one. */
static bool say_threads(struct travel *tr, const char *name, struct words *w)
{
    struct machine *m = timeline_machine(tr->t);
    struct program_layout layout;
    struct program program = {0};
    struct err err;
    char said[THREADS][HUNT_TEXT], comm[16];
    unsigned n = 0;
    const struct symbols *symbols = travel_symbols(tr);
    snprintf(comm, sizeof(comm), "%s", name);
    if (!symbols || program_learn(&layout, m, symbols, &err) ||
        program_find(&program, &layout, m, 0, comm, 1, &err)) {
        program_free(&program);
        return false;
    }
    const struct place p = {m, &layout, &program, travel_files(tr)};
    for (u32 i = 0; i < program.count && n < THREADS; i++) {
        struct vcpu c;
        bool fpu, known = false;
        u64 call;
        struct words one = {said[n], 0, sizeof(said[n])};
        said[n][0] = 0;
        if (!program_registers(&layout, m, &program.threads[i], &c, &fpu, &call))
            continue;
        add_frames(&one, &p, &c);
        for (unsigned k = 0; k < n; k++)
            known = known || !strcmp(said[k], said[n]);
        n += !known;
    }
    qsort(said, n, sizeof(said[0]), (int (*)(const void *, const void *))strcmp);
    for (unsigned i = 0; i < n; i++)
        add(w, "%s%s", i ? "; " : "in ", said[i]);
    program_free(&program);
    return n;
}

/* ---- the kernel ---- */

/* What stands between a fault and the report of it: who was there is further out. */
static bool is_reporter(const char *name)
{
    static const char *const names[] = {"oops_begin",
                                        "die",
                                        "__die",
                                        "panic",
                                        "page_fault_oops",
                                        "kernelmode_fixup_or_oops",
                                        "__bad_area",
                                        "bad_area",
                                        "do_user_addr_fault",
                                        "do_kern_addr_fault",
                                        "exc_",
                                        "asm_",
                                        "handle_bug",
                                        "do_trap",
                                        "do_error_trap",
                                        "fixup_",
                                        "no_context",
                                        "oops_end",
                                        "make_task_dead"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (!strncmp(name, names[i], strlen(names[i])))
            return true;
    return false;
}

static void say_kernel(struct travel *tr, const char *what, struct words *w)
{
    struct machine *m = timeline_machine(tr->t);
    struct backtrace_frame frame[BACKTRACE_MAX];
    unsigned n = travel_backtrace(tr, frame), said = 0;
    const struct symbols *s = travel_symbols(tr);
    bool faulted = false;
    add(w, "%s", what);
    for (unsigned i = 0; s && i < n && said <= CALLERS && !frame[i].user; i++) {
        char name[128];
        symbols_format(s, frame[i].address, name, sizeof(name));
        faulted = faulted || strstr(name, "page_fault");
        if (!said && is_reporter(name))
            continue;
        if (!said && faulted && machine_vcpu(m)->cr2 < LOW_ADDRESS)
            add(w, " at %#" PRIx64, machine_vcpu(m)->cr2);
        add(w, "%s%s", said++ ? " < " : " in ", name);
    }
}

/* ---- going there ---- */

static const struct {
    const char *name, *other; /* as other kernels have it */
    bool process, panic;
} functions[] = {{"do_coredump", "vfs_coredump", true, false},
                 {"oops_begin", NULL, true, true},
                 {"panic", NULL, false, true}};

static bool address_of(const struct symbols *s, size_t i, u64 *out)
{
    return symbols_address(s, functions[i].name, out) ||
           (functions[i].other && symbols_address(s, functions[i].other, out));
}

/* Says what it is, if the machine stands at one of the functions. */
static bool say_function(struct travel *tr, struct words *w)
{
    const struct symbols *s = travel_symbols(tr);
    u64 address, rip = machine_vcpu(timeline_machine(tr->t))->rip;
    for (size_t i = 0; s && i < ARRAY_SIZE(functions); i++) {
        if (!address_of(s, i, &address) || address != rip)
            continue;
        if (!i)
            say_signal(tr, w);
        else
            say_kernel(tr, i == 1 ? "oops" : "panic", w);
        return true;
    }
    return false;
}

/* From where the run began, at which its kernel has long been there. */
static int run_on(struct travel *tr, enum hunt_wanted wanted, const struct instant *begin,
                  enum timeline_stop *stop, struct err *err)
{
    struct debug_point points[ARRAY_SIZE(functions)];
    unsigned n = 0;
    int code = timeline_seek(tr->t, *begin, stop, err);
    const struct symbols *s = code ? NULL : travel_symbols(tr);
    for (size_t i = 0; s && i < ARRAY_SIZE(functions); i++) {
        memset(&points[n], 0, sizeof(points[n]));
        points[n].kind = DEBUG_EXEC;
        points[n].length = 1;
        n += (wanted == HUNT_PROCESS ? functions[i].process : functions[i].panic) &&
             address_of(s, i, &points[n].address);
    }
    if (!code && !n)
        code = err_set(err, -ENOENT, "the guest's kernel has no symbols here");
    if (!code)
        code = timeline_set_points(tr->t, points, n, err);
    return code ? code : timeline_forward(tr->t, (struct instant){NEVER, 0}, false, stop, err);
}

int frames_find(struct travel *tr, enum hunt_wanted wanted, const struct instant *begin,
                const char *program, struct hunt_where *out, struct err *err)
{
    struct words w = {out->text, 0, sizeof(out->text)};
    enum timeline_stop stop = TIMELINE_END;
    int code;
    if (wanted == HUNT_STANDS) {
        code = timeline_seek(tr->t, (struct instant){NEVER, 0}, &stop, err);
        out->found = !code && say_threads(tr, program, &w);
        return code;
    }
    if (begin) {
        code = run_on(tr, wanted, begin, &stop, err);
    } else {
        const struct point p = {.kind = wanted == HUNT_PROCESS ? POINT_CRASH : POINT_PANIC, .n = 1};
        code = travel_to(tr, &p, &stop, err);
        if (code == -ESRCH) { /* it is not there */
            *err = (struct err){0};
            return 0;
        }
        stop = code ? stop : TIMELINE_HIT;
    }
    out->found = !code && stop == TIMELINE_HIT && say_function(tr, &w);
    return code;
}
