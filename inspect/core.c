/*
 * Core dumps (core.h). The file: ELF header, program headers, notes, then all RAM in the order of
 * host memory (board/ram.h), page-aligned; every segment points into that. What the guest says
 * (VMCOREINFO, page_offset_base, page tables) decides only where segments claim to be.
 *
 * Of a kernel of 32 bits it is an i386's: of ELF's 32-bit class, or of its 64-bit class where there
 * is memory that 32 bits do not address, as kexec-tools write it. Segments are made as those of 64
 * bits.
 */
#include "base/file_io.h"
#include "inspect/core.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>
#include <unistd.h>

#include "board/ram.h"
#include "cpu/vcpu.h"
#include "machine/machine.h"
#include "inspect/btf.h"
#include "inspect/guest_linux.h"
#include "inspect/process.h"

#define UPPER_HALF   0xffff800000000000ull
#define DIRECT_MAP   0xffff888000000000ull /* page_offset_base of a kernel without one */
#define ESPFIX       0xffffff0000000000ull /* 65536 views of one page: not for a core */
#define ESPFIX_END   0xffffff8000000000ull
#define SEGMENTS_MAX 8192u      /* below PN_XNUM (65535) */
#define ENTRIES_MAX  (8u << 20) /* page-table entries that are looked at */
#define CHUNK        (1u << 20)

#define PTE_P    1ull
#define PTE_PS   0x80ull
#define PTE_ADDR 0x000ffffffffff000ull

/* How a kind of page tables is walked (SDM vol. 3, 4.3 to 4.5). */
struct paging {
    unsigned levels, bits; /* of an address, for each level */
    unsigned top;          /* entries of the first table */
    unsigned entry;        /* bytes */
    u64 root, sign;        /* of CR3; what addresses of the kernel have besides */
};
static const struct paging paging_4 = {4, 9, 512, 8, PTE_ADDR, UPPER_HALF};
static const struct paging paging_pae = {3, 9, 4, 8, 0xffffffe0, 0};
static const struct paging paging_32 = {2, 10, 1024, 4, 0xfffff000, 0};

struct core {
    const struct ram *ram;
    const struct vcpu *cpu;
    struct guest_linux kernel;
    Elf64_Phdr segments[SEGMENTS_MAX];
    unsigned nsegments;
    u64 budget; /* of page-table entries */
    bool cut;
    bool narrow; /* of 32 bits */
    const struct paging *paging;
    u64 floor;                                /* where the kernel's addresses begin */
    u64 image, image_end, direct, direct_end; /* linear addresses that have their segments */
    char *notes;
    size_t notes_size;
};

/* ---- segments; p_offset is relative to RAM's bytes until the header is written ---- */

static u64 host_offset(const struct core *c, gpa_t gpa)
{
    return ram_page_index(c->ram, gpa) * PAGE_SIZE + (gpa & (PAGE_SIZE - 1));
}

/* p_align stays 0, as kdump has it: crash 8.0 tells kdump from netdump by that. */
static void add_segment(struct core *c, gva_t va, gpa_t gpa, u64 size, u32 flags)
{
    if (!size || !ram_ptr(c->ram, gpa, size))
        return;
    if (c->nsegments == SEGMENTS_MAX) {
        c->cut = true;
        return;
    }
    c->segments[c->nsegments++] = (Elf64_Phdr){.p_type = PT_LOAD,
                                               .p_flags = flags,
                                               .p_offset = host_offset(c, gpa),
                                               .p_vaddr = va,
                                               .p_paddr = gpa,
                                               .p_filesz = size,
                                               .p_memsz = size};
}

/* The last segment grown by a neighbour, or a new one. */
static void add_mapping(struct core *c, unsigned first, gva_t va, gpa_t gpa, u64 size)
{
    Elf64_Phdr *last = c->nsegments > first ? &c->segments[c->nsegments - 1] : NULL;
    if (last && last->p_vaddr + last->p_filesz == va && last->p_paddr + last->p_filesz == gpa &&
        ram_ptr(c->ram, last->p_paddr, last->p_filesz + size))
        last->p_filesz = last->p_memsz += size;
    else
        add_segment(c, va, gpa, size, PF_R | PF_W | PF_X);
}

static bool has_segment(const struct core *c, gva_t va, u64 size)
{
    return (va >= c->image && va + (size - 1) < c->image_end) ||
           (va >= c->direct && va + (size - 1) < c->direct_end) ||
           (va >= ESPFIX && va < ESPFIX_END);
}

static u64 entry_at(const struct core *c, const u8 *table, unsigned i)
{
    u64 e = 0;
    memcpy(&e, table + (size_t)i * c->paging->entry, c->paging->entry);
    return e;
}

/* The page that an entry maps. */
static gpa_t page_of(const struct core *c, u64 e, u64 size)
{
    gpa_t page = e & PTE_ADDR & ~(size - 1);
    if (c->paging == &paging_32 && size > PAGE_SIZE) /* PSE-36 */
        page |= (e >> 13 & 0xff) << 32;
    return page;
}

/* One table of the tree; the last level is 1. */
static void walk(struct core *c, unsigned first, gpa_t table, unsigned level, gva_t base)
{
    const struct paging *p = c->paging;
    unsigned shift = 12 + p->bits * (level - 1),
             count = level == p->levels ? p->top : 1u << p->bits;
    const u8 *entries = ram_ptr(c->ram, table, (u64)count * p->entry);
    for (unsigned i = 0; entries && i < count; i++) {
        u64 e = entry_at(c, entries, i), size = 1ull << shift;
        gva_t va = base + ((u64)i << shift);
        if (level == p->levels && va & p->sign)
            va |= p->sign;
        if (!(e & PTE_P) || va + (size - 1) < c->floor || has_segment(c, va, size))
            continue;
        if (!c->budget || c->cut) {
            c->cut = true;
            return;
        }
        c->budget--;
        /* Large pages: at level 2, and of four levels also at 3. */
        if (level == 1 || (e & PTE_PS && (level == 2 || (level == 3 && p->levels == 4))))
            add_mapping(c, first, va, page_of(c, e, size), size);
        else
            walk(c, first, e & PTE_ADDR, level - 1, va);
    }
}

/* The page at a linear address of a kernel of 32 bits. */
static bool translate(const struct core *c, gva_t va, gpa_t *page, u64 *size)
{
    const struct paging *p = c->paging;
    gpa_t table = c->cpu->cr3 & p->root;
    for (unsigned level = p->levels; level; level--) {
        unsigned shift = 12 + p->bits * (level - 1);
        unsigned i = (unsigned)(va >> shift) & ((1u << p->bits) - 1);
        const u8 *entries = ram_ptr(c->ram, table + (u64)i * p->entry, p->entry);
        u64 e = entries ? entry_at(c, entries, 0) : 0;
        *size = 1ull << shift;
        if (!(e & PTE_P))
            return false;
        if (level == 1 || (level == 2 && e & PTE_PS)) {
            *page = page_of(c, e, *size);
            return true;
        }
        table = e & PTE_ADDR;
    }
    return false;
}

/* The direct map of a kernel of 32 bits: as far as the page tables have it. */
static void find_narrow_map(struct core *c)
{
    gpa_t page;
    u64 size;
    c->direct = c->direct_end = c->kernel.map;
    while (c->direct_end >> 32 == 0 && translate(c, c->direct_end, &page, &size) &&
           page == (c->direct_end - c->direct) && ram_ptr(c->ram, page, size))
        c->direct_end = (c->direct_end & ~(size - 1)) + size;
}

/* Where the kernel's direct map is; false if it does not say. */
static bool find_direct_map(struct core *c, const struct symbols *s)
{
    u64 at;
    c->direct = DIRECT_MAP;
    if (symbols_address(s, "page_offset_base", &at) &&
        !guest_linux_read(&c->kernel, at, &c->direct, sizeof(c->direct)))
        return false;
    u64 top = c->ram->size > c->ram->low_size ? 0x100000000ull + c->ram->size - c->ram->low_size
                                              : c->ram->low_size;
    c->direct_end = c->direct + top;
    return c->direct >= UPPER_HALF && !(c->direct & (PAGE_SIZE - 1)) && c->direct_end > c->direct;
}

/* A kernel of 32 bits: its direct map, the memory beyond, what else it has mapped. */
static void make_narrow_segments(struct core *c, struct core_report *report)
{
    const struct ram *ram = c->ram;
    const u32 nowhere = UINT32_MAX; /* as kexec-tools have it */
    bool paged = c->cpu->cr0 & CR0_PG && !(c->cpu->efer & EFER_LMA);
    c->paging = c->cpu->cr4 & CR4_PAE ? &paging_pae : &paging_32;
    if (paged && c->kernel.has_phys_base)
        find_narrow_map(c);
    u64 low = MIN(c->direct_end - c->direct, ram->low_size);
    report->direct_map = low;
    if (!low)
        c->direct = c->direct_end = 0;
    add_segment(c, c->direct, 0, low ? low : ram->low_size, PF_R | PF_W | PF_X);
    if (low && low < ram->low_size)
        add_segment(c, nowhere, low, ram->low_size - low, PF_R | PF_W | PF_X);
    if (ram->size > ram->low_size)
        add_segment(c, nowhere, 0x100000000ull, ram->size - ram->low_size, PF_R | PF_W | PF_X);
    if (low)
        walk(c, c->nsegments, c->cpu->cr3 & c->paging->root, c->paging->levels, 0);
}

static void make_segments(struct core *c, const struct symbols *s, struct core_report *report)
{
    c->budget = ENTRIES_MAX;
    c->narrow = s->count && s->narrow;
    c->floor = s->floor;
    c->paging = &paging_4;
    if (c->narrow) {
        make_narrow_segments(c, report);
        return;
    }
    const struct ram *ram = c->ram;
    u64 text, end;
    report->direct_map = s->count && find_direct_map(c, s);
    if (!report->direct_map)
        c->direct = c->direct_end = 0;
    else if (c->kernel.has_phys_base && symbols_address(s, "_text", &text) &&
             symbols_address(s, "_end", &end) && text >= KERNEL_MAP && end > text) {
        text &= ~(u64)(PAGE_SIZE - 1);
        end = (end + PAGE_SIZE - 1) & ~(u64)(PAGE_SIZE - 1);
        add_segment(c, text, text - KERNEL_MAP + c->kernel.phys_base, end - text,
                    PF_R | PF_W | PF_X);
        if (c->nsegments) {
            c->image = text;
            c->image_end = end;
        }
    }
    add_segment(c, c->direct, 0, ram->low_size, PF_R | PF_W | PF_X);
    if (ram->size > ram->low_size)
        add_segment(c, c->direct + 0x100000000ull, 0x100000000ull, ram->size - ram->low_size,
                    PF_R | PF_W | PF_X);
    if (report->direct_map && c->cpu->cr0 & CR0_PG && c->cpu->efer & EFER_LMA)
        walk(c, c->nsegments, c->cpu->cr3 & PTE_ADDR, 4, 0);
}

/* Who runs: for the user only. */
static void find_current(const struct core *c, struct machine *m, const struct symbols *s,
                         struct core_report *report)
{
    struct guest_tasks tasks;
    struct process_layout layout = {0};
    struct process now;
    struct err none;
    if (!s->count)
        return;
    bool listed = !guest_tasks_read(&tasks, &c->kernel, s, &none);
    report->tasks = listed ? tasks.count : 0;
    if (!listed || report->cpus > 1) { /* of several vCPUs the one whose turn it is */
        process_learn(&layout, m, s);
        process_read(&layout, m, &now);
        report->pid = now.pid;
        memcpy(report->comm, now.comm, sizeof(report->comm));
        if (listed)
            guest_tasks_free(&tasks);
        return;
    }
    for (u32 i = 0; i < tasks.count; i++)
        if (tasks.list[i].current) {
            report->pid = tasks.list[i].pid;
            snprintf(report->comm, sizeof(report->comm), "%s", tasks.list[i].comm);
        }
    guest_tasks_free(&tasks);
}

/* ---- notes ---- */

static void add_note(FILE *f, const char *name, u32 type, const void *data, size_t size)
{
    static const char zeros[4];
    Elf64_Nhdr h = {.n_namesz = (u32)strlen(name) + 1, .n_descsz = (u32)size, .n_type = type};
    fwrite(&h, sizeof(h), 1, f);
    fwrite(name, h.n_namesz, 1, f);
    fwrite(zeros, -h.n_namesz & 3, 1, f);
    fwrite(data, size, 1, f);
    fwrite(zeros, -size & 3, 1, f);
}

/* `thread`: its number to gdb, where vCPU 0 is 1. */
static void add_prstatus(FILE *f, const struct vcpu *v, i32 thread)
{
    struct elf_prstatus status = {.pr_pid = thread};
    const u64 regs[] = {
        v->gpr[R15],
        v->gpr[R14],
        v->gpr[R13],
        v->gpr[R12],
        v->gpr[RBP],
        v->gpr[RBX],
        v->gpr[R11],
        v->gpr[R10],
        v->gpr[R9],
        v->gpr[R8],
        v->gpr[RAX],
        v->gpr[RCX],
        v->gpr[RDX],
        v->gpr[RSI],
        v->gpr[RDI],
        UINT64_MAX, /* orig_rax */
        v->rip,
        v->seg_sel[SEG_CS],
        v->rflags,
        v->gpr[RSP],
        v->seg_sel[SEG_SS],
        v->seg_base[SEG_FS],
        v->seg_base[SEG_GS],
        v->seg_sel[SEG_DS],
        v->seg_sel[SEG_ES],
        v->seg_sel[SEG_FS],
        v->seg_sel[SEG_GS],
    };
    _Static_assert(sizeof(regs) == sizeof(status.pr_reg), "a general register set");
    memcpy(&status.pr_reg, regs, sizeof(regs));
    status.pr_fpvalid = 1;
    add_note(f, "CORE", NT_PRSTATUS, &status, sizeof(status));
}

/* struct elf_prstatus of an i386. */
struct narrow_prstatus {
    u32 signal[3];
    u16 current, pad;
    u32 pending, held, pid[4], times[8];
    u32 reg[17];
    u32 fpvalid;
};
_Static_assert(sizeof(struct narrow_prstatus) == 144, "as an i386 has it");

static void add_narrow_prstatus(FILE *f, const struct vcpu *v, i32 thread)
{
    const struct narrow_prstatus status = {
        .pid = {(u32)thread},
        .reg = {(u32)v->gpr[RBX], (u32)v->gpr[RCX], (u32)v->gpr[RDX], (u32)v->gpr[RSI],
                (u32)v->gpr[RDI], (u32)v->gpr[RBP], (u32)v->gpr[RAX], v->seg_sel[SEG_DS],
                v->seg_sel[SEG_ES], v->seg_sel[SEG_FS], v->seg_sel[SEG_GS], UINT32_MAX, (u32)v->rip,
                v->seg_sel[SEG_CS], (u32)v->rflags, (u32)v->gpr[RSP], v->seg_sel[SEG_SS]},
        .fpvalid = 1};
    add_note(f, "CORE", NT_PRSTATUS, &status, sizeof(status));
}

static void add_floating_point(FILE *f, const struct vcpu *v, bool narrow)
{
    /* SDM vol. 1, 13.4: XSTATE_BV; components that are not in it are in their initial state. */
    enum { FXSAVE = 512, FCW = 0, MXCSR = 24, XCR0 = 464, XSTATE_BV = 512 };
    const u16 fcw = 0x37f;
    const u32 mxcsr = 0x1f80;
    u8 area[XSAVE_MOST] = {0};
    memcpy(area, v->xsave, XSAVE_SIZE);
    for (unsigned i = 5; i < 8; i++)
        memcpy(area + cpu_xsave_part(i).at, vcpu_avx512_part(v, i), cpu_xsave_part(i).size);
    if (!(area[XSTATE_BV] & 1))
        memcpy(area + FCW, &fcw, sizeof(fcw));
    if (!(area[XSTATE_BV] & 6) && !memcmp(area + MXCSR, (u8[4]){0}, 4))
        memcpy(area + MXCSR, &mxcsr, sizeof(mxcsr));
    if (narrow)
        add_note(f, "LINUX", NT_PRXFPREG, area, FXSAVE);
    else
        add_note(f, "CORE", NT_PRFPREG, area, FXSAVE);
    if (v->xcr0 & XCR0_AVX) {
        memcpy(area + XCR0, &v->xcr0, sizeof(v->xcr0)); /* where debuggers look for it */
        add_note(f, "LINUX", NT_X86_XSTATE, area, cpu_xsave_size(v->xcr0));
    }
}

/* What dump-guest-memory calls QEMUCPUState, version 1. */
struct qemu_segment {
    u32 selector, limit, flags, pad;
    u64 base;
};
struct qemu_cpu {
    u32 version, size;
    u64 rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r[8], rip, rflags;
    struct qemu_segment cs, ds, es, fs, gs, ss, ldt, tr, gdt, idt;
    u64 cr[5];
    u64 kernel_gs_base;
};

static struct qemu_segment qemu_segment(const struct vcpu *v, unsigned i)
{
    return (struct qemu_segment){.selector = v->seg_sel[i],
                                 .limit = v->seg_limit[i],
                                 .flags = (u32)v->seg_attr[i] << 8,
                                 .base = v->seg_base[i]};
}

static void add_qemu(FILE *f, const struct vcpu *v)
{
    struct qemu_cpu q = {
        .version = 1,
        .size = sizeof(q),
        .rax = v->gpr[RAX],
        .rbx = v->gpr[RBX],
        .rcx = v->gpr[RCX],
        .rdx = v->gpr[RDX],
        .rsi = v->gpr[RSI],
        .rdi = v->gpr[RDI],
        .rsp = v->gpr[RSP],
        .rbp = v->gpr[RBP],
        .rip = v->rip,
        .rflags = v->rflags,
        .cs = qemu_segment(v, SEG_CS),
        .ds = qemu_segment(v, SEG_DS),
        .es = qemu_segment(v, SEG_ES),
        .fs = qemu_segment(v, SEG_FS),
        .gs = qemu_segment(v, SEG_GS),
        .ss = qemu_segment(v, SEG_SS),
        .ldt = qemu_segment(v, SEG_LDTR),
        .tr = qemu_segment(v, SEG_TR),
        .gdt = {.limit = v->gdt_limit, .base = v->gdt_base},
        .idt = {.limit = v->idt_limit, .base = v->idt_base},
        .cr = {v->cr0, 0, v->cr2, v->cr3, v->cr4},
        .kernel_gs_base = v->kernel_gs_base,
    };
    memcpy(q.r, &v->gpr[R8], sizeof(q.r));
    add_note(f, "QEMU", 0, &q, sizeof(q));
}

/* All vCPUs, in order: a reader counts the notes to know whose they are. */
static int make_notes(struct core *c, struct machine *m, const struct core_note *more,
                      struct err *err)
{
    FILE *f = open_memstream(&c->notes, &c->notes_size);
    if (f) {
        for (unsigned i = 0; i < machine_cpus(m); i++) {
            machine_look_at(m, i);
            const struct vcpu *v = machine_vcpu(m);
            (c->narrow ? add_narrow_prstatus : add_prstatus)(f, v, (i32)i + 1);
            add_floating_point(f, v, c->narrow);
        }
        if (c->kernel.vmcoreinfo_size)
            add_note(f, "VMCOREINFO", 0, c->kernel.vmcoreinfo, c->kernel.vmcoreinfo_size);
        for (unsigned i = 0; i < machine_cpus(m); i++) {
            machine_look_at(m, i);
            add_qemu(f, machine_vcpu(m));
        }
        machine_look_at(m, machine_turn(m));
        if (more)
            add_note(f, "REPRISE", more->type, more->data, more->size);
        if (!fclose(f))
            return 0;
    }
    return err_set(err, -ENOMEM, "no memory for the core's notes");
}

/* ---- the file ---- */

static int write_at(int fd, const void *data, size_t len, u64 offset, struct err *err)
{
    return file_write_at(fd, data, len, offset) ? 0 : err_errno(err, "cannot write the core");
}

static bool is_zero(const u8 *page)
{
    return !page[0] && !memcmp(page, page + 1, PAGE_SIZE - 1);
}

/* RAM [at, at + len) in runs of pages that are not zero. */
static int write_pages(const struct ram *ram, int fd, u64 file, u64 at, u64 len, u64 *written,
                       struct err *err)
{
    int code = 0;
    for (u64 i = 0, run; !code && i < len; i += run ? run : PAGE_SIZE) {
        for (run = 0; i + run < len && !is_zero(ram->host + at + i + run); run += PAGE_SIZE)
            ;
        if (run)
            code = write_at(fd, ram->host + at + i, run, file + at + i, err);
        *written += run;
    }
    return code;
}

/* Does an ELF file of 32 bits have room for all addresses and offsets? */
static bool fits_narrow(const struct core *c, u64 bytes)
{
    return c->narrow && c->ram->size == c->ram->low_size && bytes <= UINT32_MAX;
}

static int write_narrow_headers(const struct core *c, int fd, const Elf64_Ehdr *h,
                                const Elf64_Phdr *note, struct err *err)
{
    Elf32_Ehdr e = {.e_type = h->e_type,
                    .e_machine = h->e_machine,
                    .e_version = h->e_version,
                    .e_phoff = sizeof(e),
                    .e_ehsize = sizeof(e),
                    .e_phentsize = sizeof(Elf32_Phdr),
                    .e_phnum = h->e_phnum};
    memcpy(e.e_ident, h->e_ident, sizeof(e.e_ident));
    e.e_ident[EI_CLASS] = ELFCLASS32;
    int code = write_at(fd, &e, sizeof(e), 0, err);
    for (unsigned i = 0; !code && i < h->e_phnum; i++) {
        const Elf64_Phdr *p = i ? &c->segments[i - 1] : note;
        const Elf32_Phdr n = {.p_type = p->p_type,
                              .p_flags = p->p_flags,
                              .p_offset = (u32)p->p_offset,
                              .p_vaddr = (u32)p->p_vaddr,
                              .p_paddr = (u32)p->p_paddr,
                              .p_filesz = (u32)p->p_filesz,
                              .p_memsz = (u32)p->p_memsz,
                              .p_align = (u32)p->p_align};
        code = write_at(fd, &n, sizeof(n), sizeof(e) + (u64)i * sizeof(n), err);
    }
    return code;
}

static int write_headers(const struct core *c, int fd, const Elf64_Ehdr *h, const Elf64_Phdr *note,
                         struct err *err)
{
    int code = write_at(fd, h, sizeof(*h), 0, err);
    if (!code)
        code = write_at(fd, note, sizeof(*note), sizeof(*h), err);
    if (!code)
        code = write_at(fd, c->segments, c->nsegments * sizeof(Elf64_Phdr),
                        sizeof(*h) + sizeof(*note), err);
    return code;
}

static int write_file(struct core *c, int fd, struct core_report *report, struct err *err)
{
    unsigned n = c->nsegments + 1;
    u64 notes = sizeof(Elf64_Ehdr) + n * sizeof(Elf64_Phdr); /* room for either class */
    u64 data = (notes + c->notes_size + PAGE_SIZE - 1) & ~(u64)(PAGE_SIZE - 1);
    Elf64_Ehdr h = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_CORE,
        .e_machine = c->narrow ? EM_386 : EM_X86_64,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof(h),
        .e_ehsize = sizeof(h),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = (u16)n};
    Elf64_Phdr note = {.p_type = PT_NOTE,
                       .p_offset = notes,
                       .p_filesz = c->notes_size,
                       .p_memsz = c->notes_size,
                       .p_align = 4};
    for (unsigned i = 0; i < c->nsegments; i++)
        c->segments[i].p_offset += data;
    report->bytes = data + c->ram->size;
    report->segments = c->nsegments;
    if (ftruncate(fd, (off_t)report->bytes))
        return err_errno(err, "cannot make a core of %llu bytes",
                         (unsigned long long)report->bytes);
    int code = fits_narrow(c, report->bytes) ? write_narrow_headers(c, fd, &h, &note, err)
                                             : write_headers(c, fd, &h, &note, err);
    if (!code)
        code = write_at(fd, c->notes, c->notes_size, notes, err);
    for (u64 at = 0; !code && at < c->ram->size; at += CHUNK) {
        u64 len = MIN((u64)CHUNK, c->ram->size - at);
        if (!ram_untouched(c->ram, at, len))
            code = write_pages(c->ram, fd, data, at, len, &report->data, err);
    }
    return code;
}

int core_write(struct machine *m, int fd, const struct core_note *note, struct core_report *report,
               struct err *err)
{
    struct guest_memory mem;
    struct symbols symbols;
    struct err no_linux = {0};
    struct core *c = calloc(1, sizeof(*c));
    *report = (struct core_report){.cpus = machine_cpus(m), .turn = machine_turn(m)};
    if (!c)
        return err_set(err, -ENOMEM, "no memory for the core");
    guest_memory_init(&mem, m);
    c->ram = mem.ram;
    c->cpu = machine_vcpu(m);
    int code = guest_linux_open(&c->kernel, &mem, err);
    if (!code) {
        /* Without Linux, or with tables that cannot be read, the core is one of physical memory. */
        guest_linux_symbols(&c->kernel, &symbols, &no_linux);
        make_segments(c, &symbols, report);
        report->vmcoreinfo = c->kernel.vmcoreinfo_size;
        report->cut = c->cut;
        snprintf(report->release, sizeof(report->release), "%s", symbols.release);
        find_current(c, m, &symbols, report);
        symbols_free(&symbols);
        code = make_notes(c, m, note, err);
    }
    if (!code)
        code = write_file(c, fd, report, err);
    free(c->notes);
    guest_linux_close(&c->kernel);
    free(c);
    return code;
}
