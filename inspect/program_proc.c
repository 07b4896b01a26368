/* See program_proc.h. */
#include "inspect/program_proc.h"

#include <elf.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/program_file.h"
#include "inspect/program_maps.h"
#include "machine/machine.h"

#define COMMAND_MAX (128u << 10)
#define TEXT_MAX    (16l << 20)
#define MINOR_BITS  20u
#define IDS         8u /* uid gid suid sgid euid egid fsuid fsgid, as struct cred has them */

void program_proc_learn(struct program_layout *l, const struct btf *b)
{
    const struct btf_place members[] = {
        {"mm_struct", "arg_start", &l->arguments},     {"mm_struct", "arg_end", &l->arguments_end},
        {"mm_struct", "start_brk", &l->heap},          {"mm_struct", "brk", &l->heap_end},
        {"mm_struct", "start_stack", &l->stack_start}, {"task_struct", "real_parent", &l->parent},
        {"task_struct", "real_cred", &l->cred},        {"cred", "uid", &l->ids}};
    l->has_proc = btf_members(b, members, ARRAY_SIZE(members));
}

/* ---- maps ---- */

static const char *name_of(const struct program *p, const struct program_layout *l,
                           struct machine *m, const struct program_map *map)
{
    u8 auxv[PROGRAM_AUXV_MAX];
    u64 heap = 0, heap_end = 0, stack = 0, page = 0;
    bool narrow = false;
    size_t size = program_auxv(p, l, m, auxv, &narrow);
    if (program_auxv_value(auxv, size, narrow, AT_SYSINFO_EHDR, &page) && page == map->start)
        return "[vdso]";
    if (!program_word(l, m, p->mm + l->heap, &heap) ||
        !program_word(l, m, p->mm + l->heap_end, &heap_end) ||
        !program_word(l, m, p->mm + l->stack_start, &stack))
        return "";
    if (map->start < heap_end && map->end > heap)
        return "[heap]";
    return stack >= map->start && stack < map->end ? "[stack]" : "";
}

static void put_maps(FILE *out, const struct program *p, const struct program_layout *l,
                     struct machine *m)
{
    struct program_map *list;
    u32 count = program_maps(p, l, m, &list);
    for (u32 i = 0; i < count && ftell(out) < TEXT_MAX; i++) {
        const struct program_map *map = &list[i];
        struct page_cache_file file = {0};
        char path[PROGRAM_PATH_MAX] = "";
        if (map->file) {
            page_cache_file(&l->cache, &l->current, m, map->file, &file);
            if (!program_path(p, l, m, map->file, path))
                *path = 0;
        }
        int width =
            fprintf(out, "%08" PRIx64 "-%08" PRIx64 " %c%c%c%c %08" PRIx64 " %02x:%02x %" PRIu64,
                    map->start, map->end, map->flags & PROGRAM_READ ? 'r' : '-',
                    map->flags & PROGRAM_WRITE ? 'w' : '-', map->flags & PROGRAM_EXEC ? 'x' : '-',
                    map->flags & PROGRAM_SHARE ? 's' : 'p', map->file ? map->offset : 0,
                    file.device >> MINOR_BITS, file.device & ((1u << MINOR_BITS) - 1), file.inode);
        const char *name = map->file ? path : name_of(p, l, m, map);
        if (*name) {
            fprintf(out, "%*s", MAX(73 - width, 1), "");
            for (; *name; name++)
                if (*name == '\n')
                    fputs("\\012", out);
                else
                    fputc(*name, out);
        }
        fputc('\n', out);
    }
    free(list);
}

/* ---- status, cmdline ---- */

static void put_status(FILE *out, const struct program *p, const struct program_layout *l,
                       struct machine *m)
{
    struct program_map *list;
    u64 parent, cred, size = 0;
    i32 number = 0;
    u32 ids[IDS] = {0}, count = program_maps(p, l, m, &list);
    for (u32 i = 0; i < count; i++)
        size += list[i].end - list[i].start;
    free(list);
    fprintf(out, "Name:\t%s\nTgid:\t%d\nPid:\t%d\n", p->count ? p->threads[0].comm : "", p->pid,
            p->pid);
    if (program_word(l, m, p->task + l->parent, &parent) &&
        process_kernel_bytes(&l->current, m, parent + l->current.where.tgid, &number, 4))
        fprintf(out, "PPid:\t%d\n", number);
    if (program_word(l, m, p->task + l->cred, &cred) &&
        process_kernel_bytes(&l->current, m, cred + l->ids, ids, sizeof(ids)))
        fprintf(out, "Uid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\n", ids[0], ids[4], ids[2], ids[6],
                ids[1], ids[5], ids[3], ids[7]);
    fprintf(out, "VmSize:\t%8" PRIu64 " kB\nThreads:\t%u\n", size / 1024, p->count);
}

static bool put_command(FILE *out, const struct program *p, const struct program_layout *l,
                        struct machine *m)
{
    u64 at, end;
    char bytes[256];
    if (!program_word(l, m, p->mm + l->arguments, &at) ||
        !program_word(l, m, p->mm + l->arguments_end, &end) || end < at)
        return false;
    end = MIN(end, at + COMMAND_MAX);
    while (at < end) {
        size_t part = MIN(MIN((size_t)(end - at), sizeof(bytes)),
                          (size_t)(PAGE_SIZE - (at & (PAGE_SIZE - 1))));
        if (!program_peek(p, l, m, at, bytes, part))
            return false;
        fwrite(bytes, 1, part, out);
        at += part;
    }
    return true;
}

bool program_proc(FILE *out, const struct program *p, const struct program_layout *l,
                  struct machine *m, const char *name)
{
    if (!p->mm || !l->has_maps)
        return false;
    if (!strcmp(name, "maps"))
        put_maps(out, p, l, m);
    else if (!strcmp(name, "status") && l->has_proc)
        put_status(out, p, l, m);
    else if (!strcmp(name, "comm") && p->count)
        fprintf(out, "%s\n", p->threads[0].comm);
    else if (!strcmp(name, "cmdline") && l->has_proc)
        return put_command(out, p, l, m);
    else
        return false;
    return true;
}
