/*
 * See debug_events.h. A stop is in front of the kernel's function: registers of the thread are
 * those that it entered the kernel with, as a debugger sees them that uses ptrace. A signal's
 * handler is seen at its first instruction.
 */
#include "cmd/debug_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "inspect/program_file.h"

static const struct {
    const char *name, *other; /* as other kernels have it */
} functions[EVENTS] = {
    [EVENT_END] = {"do_exit", NULL},
    [EVENT_EXEC] = {"finalize_exec", NULL},
    [EVENT_BEGIN] = {"wake_up_new_task", NULL},
    [EVENT_CALL] = {"do_syscall_64", NULL},
    [EVENT_CALL_INT] = {"do_int80_syscall_32", "do_int80_emulation"},
    [EVENT_CALL_FAST] = {"do_fast_syscall_32", NULL},
    [EVENT_RETURN] = {"syscall_exit_to_user_mode", "syscall_return_slowpath"},
    [EVENT_CORE] = {"do_coredump", "vfs_coredump"},
    [EVENT_GROUP_EXIT] = {"do_group_exit", NULL},
    [EVENT_HANDLER] = {"signal_setup_done", NULL},
};

static bool address_of(struct debug_session *s, enum process_event e, u64 *address)
{
    const struct symbols *symbols = travel_symbols(s->tr);
    return symbols &&
           (symbols_address(symbols, functions[e].name, address) ||
            (functions[e].other && symbols_address(symbols, functions[e].other, address)));
}

static struct machine *machine(struct debug_session *s)
{
    return timeline_machine(s->tr->t);
}

static u64 argument(struct debug_session *s, unsigned reg)
{
    return machine_vcpu(machine(s))->gpr[reg];
}

/* ---- what gdb asks for ---- */

static int target_catch(void *opaque, bool on, const u32 *calls, size_t n, struct err *err)
{
    struct debug_session *s = opaque;
    u64 address;
    u32 *list = n ? malloc(n * sizeof(*list)) : NULL;
    if (n && !list)
        return err_set(err, -ENOMEM, "no memory for the system calls that are caught");
    if (on && !(address_of(s, EVENT_CALL, &address) && address_of(s, EVENT_RETURN, &address))) {
        free(list);
        return err_set(err, -ENOENT, "the guest's kernel has no function %s or no %s",
                       functions[EVENT_CALL].name, functions[EVENT_RETURN].name);
    }
    if (n)
        memcpy(list, calls, n * sizeof(*list));
    free(s->shown.calls);
    s->shown.calls = list;
    s->shown.ncalls = n;
    s->shown.catches = on;
    return 0;
}

static bool target_leave(void *opaque, i32 process)
{
    struct debug_session *s = opaque;
    if (!s->shown.other.pid)
        return false;
    if (process == s->shown.program.pid)
        debug_events_follow(s, s->shown.other.pid);
    else if (process != s->shown.other.pid)
        return false;
    program_free(&s->shown.other);
    s->shown.looked = false;
    return true;
}

static bool target_siginfo(void *opaque, u8 out[GDB_SIGINFO_SIZE])
{
    struct debug_session *s = opaque;
    struct machine *m = machine(s);
    const struct program_layout *l = &s->shown.layout;
    u64 at = 0;
    memset(out, 0, GDB_SIGINFO_SIZE);
    if (!debug_process_on(s))
        return false;
    if (debug_events_here(s) && s->shown.event == EVENT_CORE)
        at = argument(s, RDI);
    else if (debug_events_here(s) && s->shown.event == EVENT_HANDLER && l->has_signal)
        at = argument(s, RSI) + l->signal_info;
    return at && process_kernel_bytes(&l->current, m, at, out, SIGINFO_KERNEL);
}

static void target_forks(void *opaque, bool on)
{
    struct debug_session *s = opaque;
    s->shown.back_forks = on;
}

void debug_events_serve(struct gdb_target *t)
{
    t->catch_calls = target_catch;
    t->leave = target_leave;
    t->siginfo = target_siginfo;
    t->back_forks = target_forks;
}

void debug_events_reset(struct debug_session *s)
{
    free(s->shown.calls);
    s->shown.calls = NULL;
    s->shown.ncalls = 0;
    s->shown.catches = s->shown.back_forks = s->shown.vfork_waits = false;
    program_free(&s->shown.other);
    s->shown.looked = false;
}

void debug_events_follow(struct debug_session *s, i32 process)
{
    if (!process || process != s->shown.other.pid)
        return;
    struct program was = s->shown.program;
    s->shown.program = s->shown.other;
    s->shown.other = was;
    s->shown.looked = s->shown.vfork_waits = false;
    s->shown.stopped = process;
}

/* ---- a run ---- */

static bool is_wanted(const struct debug_session *s, enum process_event e, bool back)
{
    switch (e) {
    case EVENT_BEGIN:
        return s->shown.resume.tells & (GDB_TELLS_FORK | GDB_TELLS_VFORK) &&
               (!back || s->shown.back_forks);
    case EVENT_CALL:
    case EVENT_CALL_INT:
    case EVENT_CALL_FAST:
    case EVENT_RETURN: return s->shown.catches;
    default: return true;
    }
}

int debug_events_arm(struct debug_session *s, const struct gdb_resume *r, bool back,
                     struct err *err)
{
    unsigned n = s->npoints, armed = 0;
    s->shown.resume = *r;
    for (unsigned e = 0; e < EVENTS; e++) {
        struct debug_point *d = &s->engine_points[n + armed];
        memset(d, 0, sizeof(*d));
        d->kind = DEBUG_EXEC;
        d->length = 1;
        if (is_wanted(s, e, back) && address_of(s, e, &d->address))
            s->shown.events[armed++] = e;
        else if (e <= EVENT_EXEC)
            return err_set(err, -ENOENT, "the guest's kernel has no function %s",
                           functions[e].name);
    }
    int code = timeline_set_points(s->tr->t, s->engine_points, n + armed, err);
    s->step_armed = !code;
    s->step_by = STEP_PROCESS;
    s->shown.run = !code;
    return code;
}

/* The system call that the thread is in; false: none, or not one that is caught. */
static bool is_caught(struct debug_session *s, u64 task, u32 *number)
{
    u64 call = program_call(&s->shown.layout, machine(s), task);
    *number = (u32)call;
    if (call > INT32_MAX)
        return false;
    for (size_t i = 0; i < s->shown.ncalls; i++)
        if (s->shown.calls[i] == *number)
            return true;
    return !s->shown.ncalls;
}

/* A new task in RDI: another process? */
static bool is_fork(struct debug_session *s, const struct process *now, i32 *pid, bool *vfork)
{
    const struct program_layout *l = &s->shown.layout;
    struct machine *m = machine(s);
    u64 task = argument(s, RDI), done = 0;
    if (!process_kernel_bytes(&l->current, m, task + l->current.where.tgid, pid, 4) ||
        *pid == now->tgid || *pid <= 0)
        return false;
    *vfork = l->vfork_done &&
             process_kernel_bytes(&l->current, m, task + l->vfork_done, &done, 8) && done;
    return s->shown.resume.tells & (*vfork ? GDB_TELLS_VFORK : GDB_TELLS_FORK);
}

/* The signal of the event; 0: none. */
static int signal_of(struct debug_session *s, enum process_event e, const struct process *now)
{
    const struct program_layout *l = &s->shown.layout;
    i32 number = 0;
    u64 at = e == EVENT_CORE ? argument(s, RDI) : argument(s, RSI) + l->signal_number;
    switch (e) {
    case EVENT_GROUP_EXIT:
        number = argument(s, RDI) & 0x7f;
        return number && !program_is_ending(l, machine(s), now->task) ? number : 0;
    case EVENT_HANDLER:
        if (!l->has_signal || argument(s, RDI)) /* it failed */
            return 0;
        break;
    default: break;
    }
    bool read = process_kernel_bytes(&l->current, machine(s), at, &number, 4);
    return read && number > 0 && number <= 64 ? number : 0;
}

bool debug_events_hold(struct debug_session *s, unsigned point)
{
    struct process now;
    u32 number;
    i32 pid;
    bool vfork;
    if (!s->shown.run || point < s->npoints)
        return false;
    enum process_event e = s->shown.events[point - s->npoints];
    travel_process(s->tr, &now);
    if (!debug_process_is(s, &now))
        return false;
    switch (e) {
    case EVENT_END: return program_last(&s->shown.layout, machine(s), now.task);
    case EVENT_BEGIN: return is_fork(s, &now, &pid, &vfork);
    case EVENT_CALL:
    case EVENT_CALL_INT:
    case EVENT_CALL_FAST:
    case EVENT_RETURN: return is_caught(s, now.task, &number);
    case EVENT_CORE:
    case EVENT_GROUP_EXIT:
    case EVENT_HANDLER: {
        int signal = signal_of(s, e, &now);
        return signal && !gdb_signal_passes(&s->shown.resume, signal);
    }
    default: return true;
    }
}

bool debug_events_here(const struct debug_session *s)
{
    return s->shown.happened && instant_equal(s->shown.when, timeline_now(s->tr->t));
}

/* Another program is in place: to its first instruction. */
static int executes(struct debug_session *s, bool back, enum timeline_stop *what,
                    struct gdb_stop *stop, bool *told, struct err *err)
{
    bool own;
    travel_process(s->tr, &s->step_thread);
    struct process was = s->step_thread;
    int code = debug_step_cross(s, false, what, &own, err);
    if (code || !own)
        return code;
    *what = back ? TIMELINE_BEGIN : TIMELINE_REACHED;
    *told = !back && s->shown.resume.tells & GDB_TELLS_EXEC &&
            program_file_path(debug_process_look(s), &s->shown.layout, machine(s), stop->path);
    if (*told)
        stop->reason = GDB_STOP_EXEC;
    else
        snprintf(stop->text, sizeof(stop->text),
                 back ? "The program begins here: before, %s (pid %d) was another one."
                      : "%s (pid %d) begins to run this program here; its symbols: `file`.",
                 was.comm, was.tgid);
    return 0;
}

static int makes(struct debug_session *s, const struct process *now, struct gdb_stop *stop,
                 struct err *err)
{
    i32 pid = 0;
    bool vfork = false;
    if (!is_fork(s, now, &pid, &vfork))
        return 0;
    int code = program_find(&s->shown.other, &s->shown.layout, machine(s), pid, NULL, 0, err);
    if (code == -ENOENT) /* a guest that forges its lists */
        return 0;
    s->shown.looked = false;
    s->shown.vfork_waits = vfork;
    stop->reason = vfork ? GDB_STOP_VFORK : GDB_STOP_FORK;
    stop->status = pid;
    return code;
}

int debug_events_met(struct debug_session *s, bool back, enum timeline_stop *what,
                     struct gdb_stop *stop, bool *told, struct err *err)
{
    enum process_event e = s->shown.events[timeline_hit(s->tr->t)->point - s->npoints];
    struct process now;
    u32 number = 0;
    travel_process(s->tr, &now);
    s->shown.happened = true;
    s->shown.event = e;
    s->shown.when = timeline_now(s->tr->t);
    *told = true;
    switch (e) {
    case EVENT_END:
        process_end_sentence(&now, machine(s), stop->text, sizeof(stop->text));
        *what = TIMELINE_END;
        *told = false;
        return 0;
    case EVENT_EXEC: *told = false; return executes(s, back, what, stop, told, err);
    case EVENT_BEGIN: return makes(s, &now, stop, err);
    case EVENT_CALL:
    case EVENT_CALL_INT:
    case EVENT_CALL_FAST:
    case EVENT_RETURN:
        is_caught(s, now.task, &number);
        stop->reason = e == EVENT_RETURN ? GDB_STOP_RETURN : GDB_STOP_CALL;
        stop->status = (int)number;
        return 0;
    default:
        stop->reason = GDB_STOP_SIGNAL;
        stop->status = signal_of(s, e, &now);
        return 0;
    }
}

bool debug_events_signal(struct debug_session *s, struct gdb_stop *stop)
{
    static const enum process_event ends[] = {EVENT_CORE, EVENT_GROUP_EXIT};
    struct process now;
    u64 address;
    travel_process(s->tr, &now);
    memset(stop, 0, sizeof(*stop));
    for (size_t i = 0; debug_process_is(s, &now) && i < ARRAY_SIZE(ends); i++) {
        if (!address_of(s, ends[i], &address) || machine_vcpu(machine(s))->rip != address)
            continue;
        stop->status = signal_of(s, ends[i], &now);
        stop->reason = GDB_STOP_SIGNAL;
        s->shown.happened = true;
        s->shown.event = ends[i];
        s->shown.when = timeline_now(s->tr->t);
        if (stop->status)
            return true;
        memset(stop, 0, sizeof(*stop));
    }
    return false;
}
