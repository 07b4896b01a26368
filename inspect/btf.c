/*
 * BTF and what is read with it (btf.h). A type is a header of three words (name, kind with a count,
 * size or type) and, by its kind, so many more bytes.
 */
#include "inspect/btf.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/kernel_code.h"
#include "inspect/orc.h"

#define BTF_MAGIC    0xeb9fu
#define BTF_MAX_SIZE (64u << 20)
#define NESTING      8u
#define MEMBERS_MAX  (8u << 20) /* that one search looks at: types may hold each other */
#define MODULES_MAX  1024u
/* Text, data, read-only data, read-only after initialisation, and the same but the last for what is
 * given back once the module has been initialised. */
#define MODULE_PARTS     7u
#define MODULE_INIT_TEXT 4u
#define TASKS_MAX        100000u

enum { KIND_ARRAY = 3, KIND_STRUCT = 4, KIND_UNION = 5, KIND_LAST = 19 };

struct btf_header {
    u16 magic;
    u8 version, flags;
    u32 size, types_at, types_size, strings_at, strings_size;
};

struct btf_type {
    u32 name, info, size; /* or type */
};

struct btf_field {
    u32 name, type, offset;
};

static int bad(struct err *err)
{
    return err_set(err, -EINVAL,
                   "the kernel's type information (BTF) in the guest's memory is damaged or of an "
                   "unknown form");
}

/* ---- reading ---- */

static struct btf_type type_at(const struct btf *b, u32 offset)
{
    struct btf_type t;
    memcpy(&t, b->data + offset, sizeof(t));
    return t;
}

static u32 kind_of(const struct btf_type *t)
{
    return t->info >> 24 & 31;
}

static u32 count_of(const struct btf_type *t)
{
    return t->info & 0xffff;
}

/* Bytes after the header of a type, by kind: fixed, and for each of its elements. */
static u32 tail_size(const struct btf_type *t)
{
    static const u8 fixed[KIND_LAST + 1] = {[1] = 4, [KIND_ARRAY] = 12, [14] = 4, [17] = 4};
    static const u8 each[KIND_LAST + 1] = {
        [KIND_STRUCT] = 12, [KIND_UNION] = 12, [6] = 8, [13] = 8, [15] = 12, [19] = 12};
    return fixed[kind_of(t)] + each[kind_of(t)] * count_of(t);
}

static int index_types(struct btf *b, struct err *err)
{
    u32 room = b->types_size / sizeof(struct btf_type) + 1;
    b->types = malloc(room * sizeof(*b->types));
    if (!b->types)
        return err_set(err, -ENOMEM, "no memory for the guest's type information");
    b->count = 1; /* void */
    b->types[0] = 0;
    for (u32 at = 0; b->types_size - at >= sizeof(struct btf_type);) {
        struct btf_type t = type_at(b, at);
        if (!kind_of(&t) || kind_of(&t) > KIND_LAST)
            return bad(err);
        u32 size = (u32)sizeof(t) + tail_size(&t);
        if (size > b->types_size - at)
            return bad(err);
        b->types[b->count++] = at;
        at += size;
    }
    return 0;
}

int btf_parse(struct btf *b, const void *data, size_t size, struct err *err)
{
    struct btf_header h;
    *b = (struct btf){0};
    if (size < sizeof(h) || size > BTF_MAX_SIZE)
        return bad(err);
    memcpy(&h, data, sizeof(h));
    if (h.magic != BTF_MAGIC || h.version != 1 || h.size < sizeof(h) || h.size > size)
        return bad(err);
    size_t left = size - h.size;
    if (h.types_at > left || h.types_size > left - h.types_at || h.strings_at > left ||
        h.strings_size > left - h.strings_at)
        return bad(err);
    b->data = malloc((size_t)h.types_size + h.strings_size + 1);
    if (!b->data)
        return err_set(err, -ENOMEM, "no memory for the guest's type information");
    b->types_size = h.types_size;
    b->strings_size = h.strings_size;
    const u8 *from = (const u8 *)data + h.size;
    memcpy(b->data, from + h.types_at, h.types_size);
    memcpy(b->data + h.types_size, from + h.strings_at, h.strings_size);
    b->data[b->types_size + b->strings_size] = 0;
    int code = index_types(b, err);
    if (code)
        btf_free(b);
    return code;
}

int btf_read(struct btf *b, const struct guest_linux *g, const struct symbols *s, struct err *err)
{
    u64 start, stop;
    *b = (struct btf){0};
    if (!symbols_address(s, "__start_BTF", &start) || !symbols_address(s, "__stop_BTF", &stop) ||
        stop <= start)
        return err_set(err, -ENOENT, "the guest's kernel has no type information (BTF)");
    if (stop - start > BTF_MAX_SIZE)
        return bad(err);
    u8 *data = malloc(stop - start);
    if (!data)
        return err_set(err, -ENOMEM, "no memory for the guest's type information");
    int code = guest_linux_read(g, start, data, stop - start)
                   ? btf_parse(b, data, stop - start, err)
                   : err_set(err, -ENOENT,
                             "the type information (BTF) of the guest's kernel is not in memory at "
                             "this position");
    free(data);
    return code;
}

void btf_free(struct btf *b)
{
    free(b->data);
    free(b->types);
    *b = (struct btf){0};
}

/* ---- members ---- */

static bool name_is(const struct btf *b, u32 name, const char *text, size_t len)
{
    const char *p = (const char *)b->data + b->types_size + name;
    return name < b->strings_size && !strncmp(p, text, len) && !p[len];
}

/* A struct or union after type `id`, through names and qualifiers and arrays; 0 if it is none. */
static u32 struct_of(const struct btf *b, u32 id)
{
    for (unsigned i = 0; i < 4 * NESTING && id && id < b->count; i++) {
        struct btf_type t = type_at(b, b->types[id]);
        switch (kind_of(&t)) {
        case KIND_STRUCT:
        case KIND_UNION: return id;
        case KIND_ARRAY: memcpy(&id, b->data + b->types[id] + sizeof(t), sizeof(id)); break;
        case 8:                      /* typedef */
        case 9:                      /* volatile */
        case 10:                     /* const */
        case 11:                     /* restrict */
        case 18: id = t.size; break; /* type tag */
        default: return 0;
        }
    }
    return 0;
}

static bool find_member(const struct btf *b, u32 id, const char *path, unsigned depth, u32 *budget,
                        u32 *offset, u32 *size)
{
    size_t len = strcspn(path, ".");
    struct btf_type t = type_at(b, b->types[id]);
    for (u32 i = 0; i < count_of(&t) && *budget; i++) {
        --*budget;
        struct btf_field f;
        u32 more = 0;
        memcpy(&f, b->data + b->types[id] + sizeof(t) + i * sizeof(f), sizeof(f));
        /* With bit fields the upper byte is their width. */
        u32 at = (t.info >> 31 ? f.offset & 0xffffff : f.offset) / 8;
        u32 inner = struct_of(b, f.type);
        if (!name_is(b, f.name, path, len)) {
            if (!name_is(b, f.name, "", 0) || !inner || depth == NESTING ||
                !find_member(b, inner, path, depth + 1, budget, &more, size))
                continue;
        } else if (path[len]) {
            if (!inner || depth == NESTING ||
                !find_member(b, inner, path + len + 1, depth + 1, budget, &more, size))
                return false;
        } else if (size) {
            *size = inner ? type_at(b, b->types[inner]).size : 0;
        }
        *offset = at + more;
        return true;
    }
    return false;
}

bool btf_member(const struct btf *b, const char *type, const char *member, u32 *offset, u32 *size)
{
    u32 budget = MEMBERS_MAX;
    for (u32 id = 1; id < b->count; id++) {
        struct btf_type t = type_at(b, b->types[id]);
        if ((kind_of(&t) == KIND_STRUCT || kind_of(&t) == KIND_UNION) &&
            name_is(b, t.name, type, strlen(type)) &&
            find_member(b, id, member, 0, &budget, offset, size))
            return true;
    }
    return false;
}

bool btf_members(const struct btf *b, const struct btf_place *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!btf_member(b, list[i].type, list[i].member, list[i].offset, NULL))
            return false;
    return true;
}

/* ---- modules ---- */

static bool module_layout(const struct btf *b, struct module_layout *l)
{
    *l = (struct module_layout){.parts = OLD_PARTS};
    u32 at;
    l->has_orc = btf_member(b, "module", "arch.orc_unwind_ip", &l->orc_offsets, NULL) &&
                 btf_member(b, "module", "arch.orc_unwind", &l->orc_entries, NULL) &&
                 btf_member(b, "module", "arch.num_orcs", &l->orc_count, NULL);
    if (!btf_member(b, "module", "list", &l->list, NULL) ||
        !btf_member(b, "module", "name", &l->name, NULL) ||
        !btf_member(b, "module", "kallsyms", &l->kallsyms, NULL) ||
        !btf_member(b, "mod_kallsyms", "symtab", &l->symtab, NULL) ||
        !btf_member(b, "mod_kallsyms", "num_symtab", &l->num_symtab, NULL) ||
        !btf_member(b, "mod_kallsyms", "strtab", &l->strtab, NULL) ||
        !btf_member(b, "mod_kallsyms", "typetab", &l->typetab, NULL))
        return false;
    if (btf_member(b, "module", "core_layout.base", &l->base, NULL)) {
        if (btf_member(b, "module", "init_layout.base", &at, NULL) && at > l->base)
            l->stride = at - l->base;
        else
            l->parts = 1;
        return btf_member(b, "module", "core_layout.size", &l->size, NULL) &&
               btf_member(b, "module", "core_layout.text_size", &l->text, NULL);
    }
    l->parts = MODULE_PARTS;
    return btf_member(b, "module", "mem", &at, &l->stride) &&
           btf_member(b, "module", "mem.base", &l->base, NULL) &&
           btf_member(b, "module", "mem.size", &l->size, NULL);
}

static bool read_u32(const struct guest_linux *g, u64 at, u32 *out)
{
    return guest_linux_read(g, at, out, sizeof(*out));
}

/* A NUL-terminated text of at most size - 1 bytes, whose page may be the last one. */
static bool read_text(const struct guest_linux *g, u64 at, char *out, size_t size)
{
    for (size_t n = 0; n < size;) {
        size_t len = MIN(size - n, PAGE_SIZE - ((at + n) & (PAGE_SIZE - 1)));
        if (!guest_linux_read(g, at + n, out + n, len))
            return false;
        if (memchr(out + n, 0, len))
            return true;
        n += len;
    }
    return false;
}

static int add_ranges(const struct guest_linux *g, const struct module_layout *l, u64 module,
                      const char *name, struct symbols *s, struct err *err)
{
    int code = 0;
    for (unsigned i = 0; !code && i < l->parts; i++) {
        char range[64];
        u64 base, at = module + (u64)i * l->stride;
        u32 size, text;
        if (!guest_linux_word(g, at + l->base, &base) || !read_u32(g, at + l->size, &size))
            return 0;
        bool old = l->parts <= OLD_PARTS, init = old ? i : i >= MODULE_INIT_TEXT;
        bool code_only = !i || i == MODULE_INIT_TEXT;
        if (old && (!read_u32(g, at + l->text, &text) || text > size))
            return 0;
        u64 code_end = old ? base + text : code_only ? base + size : base;
        snprintf(range, sizeof(range), "%.40s%s.text", name, init ? ".init" : "");
        code = symbols_add_range(s, range, base, code_end, true, err);
        snprintf(range, sizeof(range), "%.40s.data%u", name, i);
        if (!code)
            code = symbols_add_range(s, range, code_end, base + size, false, err);
    }
    return code;
}

static bool read_symbol(const struct guest_linux *g, u64 table, u32 i, Elf64_Sym *out)
{
    Elf32_Sym narrow;
    if (!g->narrow)
        return guest_linux_read(g, table + (u64)i * sizeof(*out), out, sizeof(*out));
    if (!guest_linux_read(g, table + (u64)i * sizeof(narrow), &narrow, sizeof(narrow)))
        return false;
    *out = (Elf64_Sym){.st_name = narrow.st_name,
                       .st_shndx = narrow.st_shndx,
                       .st_value = narrow.st_value,
                       .st_size = narrow.st_size};
    return true;
}

static int add_symbols(const struct guest_linux *g, const struct module_layout *l, u64 module,
                       u32 *budget, struct symbols *s, struct err *err)
{
    u64 tables, symtab, strtab, typetab;
    u32 count;
    if (!guest_linux_word(g, module + l->kallsyms, &tables) ||
        !guest_linux_word(g, tables + l->symtab, &symtab) ||
        !guest_linux_word(g, tables + l->strtab, &strtab) ||
        !guest_linux_word(g, tables + l->typetab, &typetab) ||
        !read_u32(g, tables + l->num_symtab, &count) || count > *budget)
        return 0;
    *budget -= count;
    for (u32 i = 0; i < count; i++) {
        char name[SYMBOL_NAME_MAX], type;
        Elf64_Sym sym;
        if (!read_symbol(g, symtab, i, &sym) || !guest_linux_read(g, typetab + i, &type, 1) ||
            !read_text(g, strtab + sym.st_name, name, sizeof(name)))
            return 0;
        if (!name[0] || sym.st_shndx == SHN_UNDEF)
            continue;
        int code =
            symbols_add(s, sym.st_value, sym.st_size, type, sym.st_value < s->floor, name, err);
        if (code)
            return code;
    }
    return 0;
}

static int add_orc(const struct guest_linux *g, const struct module_layout *l, u64 module,
                   struct symbols *s, struct err *err)
{
    u64 offsets, entries;
    u32 count;
    if (!l->has_orc || !guest_linux_word(g, module + l->orc_offsets, &offsets) ||
        !guest_linux_word(g, module + l->orc_entries, &entries) ||
        !read_u32(g, module + l->orc_count, &count))
        return 0;
    return orc_add(s, g, offsets, entries, count, err);
}

int guest_modules_add(const struct guest_linux *g, struct symbols *s, struct err *err)
{
    struct btf b = {0};
    struct module_layout l;
    struct err none;
    u64 head, at;
    u32 budget = SYMBOLS_MAX;
    int code = s->narrow ? 0 : btf_read(&b, g, s, &none);
    if (code)
        return code == -ENOMEM ? err_set(err, code, "%s", none.text) : 0;
    if ((s->narrow ? module_code_find(&l, &head, g, s)
                   : module_layout(&b, &l) && symbols_address(s, "modules", &head)) &&
        guest_linux_word(g, head, &at)) {
        for (unsigned i = 0; !code && i < MODULES_MAX && at != head; i++) {
            u64 module = at - l.list;
            char name[64 + 1] = "";
            if (!guest_linux_read(g, module + l.name, name, sizeof(name) - 9))
                break;
            text_ascii(name);
            code = add_ranges(g, &l, module, name, s, err);
            if (!code)
                code = add_symbols(g, &l, module, &budget, s, err);
            if (!code)
                code = add_orc(g, &l, module, s, err);
            if (!guest_linux_word(g, at, &at))
                break;
        }
        /* Also after a failure: the table is the caller's to use as it is. */
        int finished = symbols_finish(s, &none);
        if (finished && !code)
            code = err_set(err, finished, "%s", none.text);
    }
    btf_free(&b);
    return code == -E2BIG ? 0 : code;
}

/* ---- tasks ---- */

struct task_layout {
    u32 tasks, pid, tgid, comm, state, signal, node, threads;
};

static bool task_layout(const struct btf *b, struct task_layout *l)
{
    return btf_member(b, "task_struct", "tasks", &l->tasks, NULL) &&
           btf_member(b, "task_struct", "pid", &l->pid, NULL) &&
           btf_member(b, "task_struct", "tgid", &l->tgid, NULL) &&
           btf_member(b, "task_struct", "comm", &l->comm, NULL) &&
           (btf_member(b, "task_struct", "__state", &l->state, NULL) ||
            btf_member(b, "task_struct", "state", &l->state, NULL)) &&
           btf_member(b, "task_struct", "signal", &l->signal, NULL) &&
           btf_member(b, "task_struct", "thread_node", &l->node, NULL) &&
           btf_member(b, "signal_struct", "thread_head", &l->threads, NULL);
}

/* Where CPU 0's pointer to the task that it runs is, from the start of its per-CPU variables: one
 * of its own, or in pcpu_hot (Linux 6.2 and later). */
static bool current_variable(const struct symbols *s, const struct btf *b, u64 *offsets,
                             u64 *variable)
{
    u32 member = 0;
    if (!symbols_address(s, "current_task", variable) &&
        !(symbols_address(s, "pcpu_hot", variable) &&
          btf_member(b, "pcpu_hot", "current_task", &member, NULL)))
        return false;
    *variable += member;
    return symbols_address(s, "__per_cpu_offset", offsets);
}

static u64 current_task(const struct guest_linux *g, const struct symbols *s, const struct btf *b)
{
    u64 variable, offsets, base, task;
    return current_variable(s, b, &offsets, &variable) && guest_linux_word(g, offsets, &base) &&
                   guest_linux_word(g, base + variable, &task)
               ? task
               : 0;
}

#define PTI_WORD 7 /* X86_FEATURE_PTI: 7 * 32 + 11, from Linux 4.15 on */
#define PTI_BIT  11

static bool has_isolation(const struct guest_linux *g, const struct symbols *s, const struct btf *b)
{
    u64 cpu;
    u32 words, word;
    return symbols_address(s, "boot_cpu_data", &cpu) &&
           btf_member(b, "cpuinfo_x86", "x86_capability", &words, NULL) &&
           read_u32(g, cpu + words + sizeof(word) * PTI_WORD, &word) && word >> PTI_BIT & 1;
}

int guest_current_of(struct guest_current *out, const struct guest_linux *g,
                     const struct symbols *s, const struct btf *b, struct err *err)
{
    struct task_layout l;
    *out = (struct guest_current){.narrow = false};
    if (!task_layout(b, &l) || !current_variable(s, b, &out->offsets, &out->variable) ||
        !btf_member(b, "task_struct", "mm", &out->mm, NULL))
        return err_set(err, -ENOENT, "the guest's kernel does not say what its tasks look like");
    out->has_space = btf_member(b, "mm_struct", "context.ctx_id", &out->space, NULL);
    out->isolated = has_isolation(g, s, b);
    out->pid = l.pid;
    out->tgid = l.tgid;
    out->comm = l.comm;
    return 0;
}

int guest_current_find(struct guest_current *out, const struct guest_linux *g,
                       const struct symbols *s, struct err *err)
{
    struct btf b;
    *out = (struct guest_current){.narrow = s->narrow};
    if (s->narrow)
        return task_code_find(out, g, s)
                   ? 0
                   : err_set(err, -ENOENT,
                             "the guest's kernel does not say what its tasks look like");
    int code = btf_read(&b, g, s, err);
    if (code)
        return code;
    code = guest_current_of(out, g, s, &b, err);
    btf_free(&b);
    return code;
}

static int add_task(struct guest_tasks *out, const struct guest_linux *g,
                    const struct task_layout *l, u64 task, u64 current, struct err *err)
{
    struct guest_task t = {.address = task, .current = task == current};
    if (!read_u32(g, task + l->pid, (u32 *)&t.pid) ||
        !read_u32(g, task + l->tgid, (u32 *)&t.tgid) || !read_u32(g, task + l->state, &t.state) ||
        !guest_linux_read(g, task + l->comm, t.comm, sizeof(t.comm)))
        return -ENOENT;
    t.comm[sizeof(t.comm) - 1] = 0;
    text_ascii(t.comm);
    if (!(out->count & (out->count - 1))) { /* doubled at each power of two */
        struct guest_task *list = realloc(out->list, MAX(2 * out->count, 1u) * sizeof(*list));
        if (!list)
            return err_set(err, -ENOMEM, "no memory for the guest's tasks");
        out->list = list;
    }
    out->list[out->count++] = t;
    return 0;
}

/* A process: itself, then its other threads. What cannot be read ends the list. */
static int add_process(struct guest_tasks *out, const struct guest_linux *g,
                       const struct task_layout *l, u64 leader, u64 current, struct err *err)
{
    u64 signal, head, at;
    int code = add_task(out, g, l, leader, current, err);
    if (code || !guest_linux_word(g, leader + l->signal, &signal))
        return code;
    head = signal + l->threads;
    at = head;
    for (u32 i = 0; !code && i < TASKS_MAX && out->count < TASKS_MAX; i++) {
        if (!guest_linux_word(g, at, &at) || at == head)
            break;
        if (at - l->node != leader)
            code = add_task(out, g, l, at - l->node, current, err);
    }
    return code == -ENOENT ? 0 : code;
}

int guest_tasks_read(struct guest_tasks *out, const struct guest_linux *g, const struct symbols *s,
                     struct err *err)
{
    struct btf b;
    struct task_layout l;
    u64 first, task;
    *out = (struct guest_tasks){0};
    int code = btf_read(&b, g, s, err);
    if (code)
        return code;
    if (!symbols_address(s, "init_task", &first) || !task_layout(&b, &l)) {
        code = err_set(err, -ENOENT, "the guest's kernel does not say what its tasks look like");
    } else {
        u64 current = current_task(g, s, &b);
        task = first;
        do {
            code = add_process(out, g, &l, task, current, err);
            if (code || !guest_linux_word(g, task + l.tasks, &task))
                break;
            task -= l.tasks;
        } while (task != first && out->count < TASKS_MAX);
        if (code == -ENOENT)
            code = out->count
                       ? 0
                       : err_set(err, -ENOENT, "the guest's kernel has no tasks at this position");
    }
    btf_free(&b);
    if (code)
        guest_tasks_free(out);
    return code;
}

void guest_tasks_free(struct guest_tasks *t)
{
    free(t->list);
    *t = (struct guest_tasks){0};
}
