/*
 * See program.h. A thread that is not in ring 3 has its registers there in struct pt_regs at the
 * upper end of its kernel stack (the same since there is x86-64);
 * with CONFIG_X86_FRED two words are above it.
 */
#include "inspect/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cpu/vcpu.h"
#include "inspect/program_file.h"
#include "inspect/program_maps.h"
#include "inspect/program_proc.h"
#include "machine/machine.h"

#define TASKS_MAX   100000u
#define THREADS_MAX 10000u
#define USER_END    0x0000800000000000ull

/* struct pt_regs in words; gpr of each of the first. */
enum { REGS_ORIG = 15, REGS_IP, REGS_CS, REGS_FLAGS, REGS_SP, REGS_SS, REGS_WORDS };
static const u8 saved[REGS_ORIG] = {R15, R14, R13, R12, RBP, RBX, R11, R10,
                                    R9,  R8,  RAX, RCX, RDX, RSI, RDI};
#define FRED_PADDING 16u

/* What user space has in CS and SS. */
#define USER32_CS 0x23u
#define USER_SS   0x2bu
#define USER_CS   0x33u
#define CODE_USER 0x00fbu /* present, ring 3, code, accessed */

#define ENDS 12u /* PF_EXITING, PF_POSTCOREDUMP */

#define GROUP_EXIT    4u         /* SIGNAL_GROUP_EXIT */
#define NEED_FPU_LOAD (1u << 14) /* TIF_NEED_FPU_LOAD: what the CPU has is not the thread's */
#define CPU_ENTRY     0xfffffe0000000000ull /* stacks of the kernel's entries; half a TiB */
#define CPU_ENTRY_END 0xfffffe8000000000ull

#define XSAVE_LEGACY 512u
#define XSAVE_MXCSR  24u
#define XSAVE_XMM    160u
#define XSAVE_YMM    576u

static bool number_at(const struct program_layout *l, struct machine *m, u64 at, void *out)
{
    return process_kernel_bytes(&l->current, m, at, out, 4);
}

/* ---- what the kernel says ---- */

static bool learn_tasks(struct program_layout *l, const struct btf *b)
{
    const struct btf_place members[] = {{"task_struct", "tasks", &l->tasks},
                                        {"task_struct", "mm", &l->mm},
                                        {"mm_struct", "pgd", &l->pgd},
                                        {"task_struct", "stack", &l->stack},
                                        {"task_struct", "signal", &l->signal},
                                        {"signal_struct", "live", &l->live},
                                        {"task_struct", "flags", &l->flags},
                                        {"signal_struct", "thread_head", &l->threads},
                                        {"task_struct", "thread_node", &l->node},
                                        {"task_struct", "start_time", &l->started},
                                        {"task_struct", "thread.fsbase", &l->fs_base},
                                        {"task_struct", "thread.gsbase", &l->gs_base},
                                        {"task_struct", "thread_info.flags", &l->thread_flags}};
    if (!btf_members(b, members, ARRAY_SIZE(members)))
        return false;
    program_file_learn(l, b);
    program_maps_learn(l, b);
    program_proc_learn(l, b);
    if (!btf_member(b, "task_struct", "vfork_done", &l->vfork_done, NULL))
        l->vfork_done = 0;
    l->has_signal = btf_member(b, "ksignal", "sig", &l->signal_number, NULL) &&
                    btf_member(b, "ksignal", "info", &l->signal_info, NULL) &&
                    btf_member(b, "signal_struct", "flags", &l->signal_flags, NULL);
    l->fpu_pointer = btf_member(b, "task_struct", "thread.fpu.fpstate", &l->fpu, NULL) &&
                     btf_member(b, "fpstate", "regs", &l->fpu_state, NULL);
    l->has_fpu = l->fpu_pointer || btf_member(b, "task_struct", "thread.fpu.state", &l->fpu, NULL);
    return true;
}

/* By what the linker script says of the first task's stack (INIT_TASK_DATA). */
static bool learn_stack(struct program_layout *l, const struct symbols *s)
{
    static const char *const names[][2] = {{"__start_init_stack", "__end_init_stack"},
                                           {"__start_init_task", "__end_init_task"}};
    u64 start, end;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (symbols_address(s, names[i][0], &start) && symbols_address(s, names[i][1], &end) &&
            end > start && end - start <= 1u << 20) {
            l->stack_size = (u32)(end - start);
            return true;
        }
    return false;
}

int program_learn(struct program_layout *l, struct machine *m, const struct symbols *s,
                  struct err *err)
{
    struct guest_memory memory;
    struct guest_linux g;
    struct btf b = {0};
    *l = (struct program_layout){0};
    if (s->narrow)
        return err_set(err, -ENOENT,
                       "the guest's kernel has 32 bits: processes can be told apart (monitor "
                       "scope), but not be shown by themselves");
    guest_memory_init(&memory, m);
    int code = guest_linux_open(&g, &memory, err);
    if (!code)
        code = btf_read(&b, &g, s, err);
    if (code == -ENOENT) {
        struct err why = *err;
        code = err_set(err, code,
                       "%s: where it keeps its processes, their threads and memory cannot be known",
                       why.text);
    }
    if (!code && !(symbols_address(s, "init_task", &l->first_task) && learn_tasks(l, &b) &&
                   learn_stack(l, s) && process_learn(&l->current, m, s)))
        code = err_set(err, -ENOENT, "the guest's kernel does not say what its tasks look like");
    if (!code)
        page_cache_learn(&l->cache, &b, m, &l->current, s);
    btf_free(&b);
    guest_linux_close(&g);
    if (!symbols_address(s, "__entry_text_start", &l->entry_start) ||
        !symbols_address(s, "__entry_text_end", &l->entry_end))
        l->entry_start = l->entry_end = 0;
    return code;
}

/* ---- finding it ---- */

/* What each vCPU runs. */
static void read_current(const struct program_layout *l, struct machine *m,
                         struct process now[MACHINE_CPUS_MAX])
{
    for (unsigned i = 0; i < machine_cpus(m); i++) {
        machine_look_at(m, i);
        process_read(&l->current, m, &now[i]);
    }
    machine_look_at(m, machine_turn(m));
}

static int add_thread(struct program *p, const struct program_layout *l, struct machine *m,
                      u64 task, const struct process now[MACHINE_CPUS_MAX], struct err *err)
{
    struct program_thread t = {.task = task};
    if (!number_at(l, m, task + l->current.where.pid, &t.tid) ||
        !process_kernel_bytes(&l->current, m, task + l->current.where.comm, t.comm, sizeof(t.comm)))
        return 0;
    for (unsigned i = 0; i < machine_cpus(m) && !t.running; i++)
        if (now[i].task == task) {
            t.running = true;
            t.user = now[i].user;
            t.cpu = i;
        }
    t.comm[sizeof(t.comm) - 1] = 0;
    text_ascii(t.comm);
    if (p->count == p->room) {
        u32 room = MAX(2 * p->room, 8u);
        struct program_thread *list = realloc(p->threads, room * sizeof(*list));
        if (!list)
            return err_set(err, -ENOMEM, "no memory for the threads of a process");
        p->threads = list;
        p->room = room;
    }
    p->threads[p->count++] = t;
    return 0;
}

/* Where its page tables are: of any thread that has not given them back. `kernel`: the root of
 * tables that have the kernel. */
static void find_tables(struct program *p, const struct program_layout *l, struct machine *m,
                        u64 kernel)
{
    u64 mm, pgd;
    gpa_t page;
    p->root = p->mm = 0;
    for (u32 i = 0; !p->root && i < p->count; i++)
        if (program_word(l, m, p->threads[i].task + l->mm, &mm) && mm &&
            program_word(l, m, mm + l->pgd, &pgd) && process_page(m, kernel, pgd, &page)) {
            p->root = page;
            p->mm = mm;
        }
}

/* The threads of the process whose first one is p->task. */
static int look(struct program *p, const struct program_layout *l, struct machine *m,
                struct err *err)
{
    u64 signal, at;
    struct process now[MACHINE_CPUS_MAX];
    read_current(l, m, now);
    p->count = 0;
    int code = add_thread(p, l, m, p->task, now, err);
    if (code)
        return code;
    if (!program_word(l, m, p->task + l->signal, &signal))
        signal = 0; /* ends the list at once */
    u64 head = signal + l->threads;
    at = head;
    for (u32 i = 0; !code && i < THREADS_MAX && program_word(l, m, at, &at) && at != head; i++)
        if (at - l->node != p->task)
            code = add_thread(p, l, m, at - l->node, now, err);
    find_tables(p, l, m, now[machine_turn(m)].root);
    return code;
}

int program_find(struct program *out, const struct program_layout *l, struct machine *m, i32 pid,
                 const char *name, u32 k, struct err *err)
{
    u64 task = l->first_task, mm;
    u32 found = 0;
    for (u32 i = 0; i < TASKS_MAX; i++) {
        i32 number = 0;
        char comm[17] = "";
        if (!program_word(l, m, task + l->tasks, &task))
            break;
        task -= l->tasks;
        if (task == l->first_task || !number_at(l, m, task + l->current.where.pid, &number) ||
            !process_kernel_bytes(&l->current, m, task + l->current.where.comm, comm, 16) ||
            !program_word(l, m, task + l->mm, &mm))
            break;
        if (name ? strncmp(comm, name, 15) != 0 || !mm : number != pid)
            continue;
        u64 started;
        if (!program_word(l, m, task + l->started, &started) || (++found != k && k))
            continue;
        out->started = started;
        out->task = task;
        out->pid = number;
    }
    if (!found && !name)
        return err_set(err, -ENOENT, "there is no process %d here", pid);
    if (!found || found < k)
        return err_set(err, -ENOENT, "%u processes of the name %s run here", found, name);
    if (name && !k && found > 1)
        return err_set(err, -EINVAL, "%u processes of the name %s run here: which? %s#1 to %s#%u",
                       found, name, name, name, found);
    return look(out, l, m, err);
}

bool program_look(struct program *p, const struct program_layout *l, struct machine *m)
{
    struct err ignored;
    struct program now = *p;
    bool there = !program_find(&now, l, m, p->pid, NULL, 0, &ignored) && now.started == p->started;
    if (!there) {
        now.started = p->started;
        now.count = 0;
        now.root = now.mm = 0;
    }
    *p = now;
    return there;
}

void program_free(struct program *p)
{
    free(p->threads);
    *p = (struct program){0};
}

/* ---- registers ---- */

/* What XSTATE_BV lacks is as the CPU begins, whatever is in memory (SDM vol. 1, 13.6). */
static bool read_fpu(const struct program_layout *l, struct machine *m, u64 task, struct vcpu *out)
{
    u64 at = task + l->fpu, have = 3;
    u8 *x = out->xsave;
    if (!l->has_fpu || (l->fpu_pointer && !program_word(l, m, at, &at)))
        return false;
    at += l->fpu_state;
    memset(x, 0, XSAVE_SIZE);
    if (!process_kernel_bytes(&l->current, m, at, x, XSAVE_LEGACY) ||
        ((out->cr4 & CR4_OSXSAVE) && !program_word(l, m, at + XSAVE_LEGACY, &have)))
        return false;
    if ((have & 4) && !process_kernel_bytes(&l->current, m, at + XSAVE_YMM, x + XSAVE_YMM, 256))
        return false;
    for (unsigned i = 5; i < 8; i++) {
        u8 *part = (u8 *)vcpu_avx512_part(out, i);
        memset(part, 0, cpu_xsave_part(i).size);
        if ((have >> i & 1) && !process_kernel_bytes(&l->current, m, at + cpu_xsave_part(i).at,
                                                     part, cpu_xsave_part(i).size))
            return false;
    }
    if (!(have & 1)) {
        memset(x, 0, XSAVE_MXCSR);
        memset(x + 32, 0, XSAVE_XMM - 32);
        x[0] = 0x7f;
        x[1] = 0x03;
    }
    if (!(have & 2))
        memset(x + XSAVE_XMM, 0, 256);
    if (!(have & 6))
        memcpy(x + XSAVE_MXCSR, "\x80\x1f\0\0", 4);
    memset(x + 416, 0, XSAVE_LEGACY - 416);
    have &= 7 | XSAVE_AVX512;
    memcpy(x + XSAVE_LEGACY, &have, 8);
    return true;
}

static bool read_saved(const struct program_layout *l, struct machine *m, u64 task, u64 *regs)
{
    u64 stack;
    if (!program_word(l, m, task + l->stack, &stack))
        return false;
    u64 at = stack + l->stack_size - 8ull * REGS_WORDS;
    for (unsigned padding = 0; padding <= FRED_PADDING; padding += FRED_PADDING)
        if (process_kernel_bytes(&l->current, m, at - padding, regs, 8 * REGS_WORDS) &&
            ((regs[REGS_CS] & 0xffff) == USER_CS || (regs[REGS_CS] & 0xffff) == USER32_CS) &&
            (regs[REGS_SS] & 0xffff) == USER_SS)
            return true;
    return false;
}

/* The kernel is being entered: the thread's registers are in part the CPU's, in part saved. */
static bool is_entering(const struct program_layout *l, const struct vcpu *c)
{
    return (c->rip >= l->entry_start && c->rip < l->entry_end) ||
           (c->gpr[RSP] >= CPU_ENTRY && c->gpr[RSP] < CPU_ENTRY_END) || c->gpr[RSP] < USER_END;
}

bool program_registers(const struct program_layout *l, struct machine *m,
                       const struct program_thread *t, struct vcpu *out, bool *fpu, u64 *call)
{
    u64 regs[REGS_WORDS];
    u32 flags = 0;
    machine_look_at(m, t->running ? t->cpu : machine_turn(m));
    memcpy(out, machine_vcpu(m), sizeof(*out));
    machine_look_at(m, machine_turn(m));
    *fpu = true;
    *call = ~0ull;
    if (t->user)
        return true;
    if ((t->running && is_entering(l, out)) || !read_saved(l, m, t->task, regs))
        return false;
    for (unsigned i = 0; i < ARRAY_SIZE(saved); i++)
        out->gpr[saved[i]] = regs[i];
    bool narrow = (regs[REGS_CS] & 0xffff) == USER32_CS;
    *call = regs[REGS_ORIG];
    out->gpr[RSP] = regs[REGS_SP];
    out->rip = regs[REGS_IP];
    out->rflags = regs[REGS_FLAGS];
    out->seg_sel[SEG_CS] = (u16)regs[REGS_CS];
    out->seg_sel[SEG_SS] = (u16)regs[REGS_SS];
    out->seg_attr[SEG_CS] = (u16)(CODE_USER | (narrow ? ATTR_DB : ATTR_L));
    out->seg_base[SEG_CS] = out->seg_base[SEG_SS] = 0;
    out->halted = out->shadow = out->rep_resume = 0;
    if (t->running) { /* the kernel leaves FS alone, and has exchanged GS */
        out->seg_base[SEG_GS] = out->kernel_gs_base;
        *fpu = number_at(l, m, t->task + l->thread_flags, &flags) &&
               (!(flags & NEED_FPU_LOAD) || read_fpu(l, m, t->task, out));
        return true;
    }
    *fpu = read_fpu(l, m, t->task, out);
    return program_word(l, m, t->task + l->fs_base, &out->seg_base[SEG_FS]) &&
           program_word(l, m, t->task + l->gs_base, &out->seg_base[SEG_GS]);
}

u64 program_call(const struct program_layout *l, struct machine *m, u64 task)
{
    u64 regs[REGS_WORDS];
    return read_saved(l, m, task, regs) ? regs[REGS_ORIG] : ~0ull;
}

bool program_is_ending(const struct program_layout *l, struct machine *m, u64 task)
{
    u64 signal;
    u32 flags;
    return l->has_signal && program_word(l, m, task + l->signal, &signal) &&
           number_at(l, m, signal + l->signal_flags, &flags) && flags & GROUP_EXIT;
}

bool program_last(const struct program_layout *l, struct machine *m, u64 task)
{
    u64 signal, at;
    i32 live;
    if (!program_word(l, m, task + l->signal, &signal) || !number_at(l, m, signal + l->live, &live))
        return false;
    if (live <= 1)
        return true;
    /* While one dumps core the others wait in do_exit(), and count as alive. */
    u64 head = signal + l->threads;
    at = head;
    for (u32 i = 0; i < THREADS_MAX && program_word(l, m, at, &at) && at != head; i++) {
        u32 flags;
        if (at - l->node != task &&
            (!number_at(l, m, at - l->node + l->flags, &flags) || !(flags & ENDS)))
            return false;
    }
    return at == head;
}

/* The kernel's own library: a copy in the kernel is what is mapped. */
static bool peek_vdso(const struct program *p, const struct program_layout *l, struct machine *m,
                      u64 offset, u64 start, void *out, size_t len)
{
    u64 at, image, data, size;
    return l->has_vdso && program_word(l, m, p->mm + l->vdso, &at) && at == start &&
           program_word(l, m, p->mm + l->vdso_image, &image) &&
           program_word(l, m, image + l->vdso_data, &data) &&
           program_word(l, m, image + l->vdso_size, &size) && offset + len <= size &&
           process_kernel_bytes(&l->current, m, data + offset, out, len);
}

/* Of a page that its page tables have nothing of. */
static bool peek_untouched(const struct program *p, const struct program_layout *l,
                           struct machine *m, u64 va, void *out, size_t len)
{
    struct program_map map;
    struct page_cache_file file;
    gpa_t page;
    if (!program_map_at(p, l, m, va, &map) || !(map.flags & (PROGRAM_READ | PROGRAM_EXEC)))
        return false;
    if (!map.file && !map.ops) {
        memset(out, 0, len);
        return true;
    }
    if (!map.file)
        return peek_vdso(p, l, m, va - map.start, map.start, out, len);
    u64 at = map.offset + (va - map.start);
    return page_cache_file(&l->cache, &l->current, m, map.file, &file) && at < file.size &&
           page_cache_page(&l->cache, &l->current, m, file.mapping, at / PAGE_SIZE, &page) &&
           machine_peek_physical(m, page | (va & (PAGE_SIZE - 1)), out, len);
}

bool program_peek(const struct program *p, const struct program_layout *l, struct machine *m,
                  u64 va, void *out, size_t len)
{
    gpa_t page;
    if (!p->root || va >= USER_END)
        return false;
    switch (process_page_state(m, p->root, va, &page)) {
    case PAGE_THERE: return machine_peek_physical(m, page | (va & (PAGE_SIZE - 1)), out, len);
    case PAGE_UNTOUCHED: return peek_untouched(p, l, m, va, out, len);
    case PAGE_AWAY: break;
    }
    return false;
}
