/* See debug_files.h. */
#include "cmd/debug_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/program_maps.h"
#include "inspect/program_proc.h"

static struct machine *machine(struct debug_session *s)
{
    return timeline_machine(s->tr->t);
}

/* The process of "/proc/PID/NAME", also of "/proc/PID/task/TID/NAME", and NAME; NULL: it is none
 * that gdb knows. */
static const struct program *process_of(struct debug_session *s, const char *path,
                                        const char **name)
{
    int pid = 0, end = 0, more = 0;
    const struct program *p = debug_process_look(s);
    if (sscanf(path, "/proc/%d/%n", &pid, &end) != 1 || !end || pid <= 0)
        return NULL;
    path += end;
    if (sscanf(path, "task/%*d/%n", &more) == 0 && more)
        path += more;
    *name = path;
    return pid == p->pid ? p : pid == s->shown.other.pid && pid ? &s->shown.other : NULL;
}

static int open_text(struct debug_session *s, struct debug_file *f, const char *path)
{
    const char *name;
    const struct program *p = process_of(s, path, &name);
    FILE *out = p ? open_memstream(&f->text, &f->size) : NULL;
    if (!out)
        return p ? -ENOMEM : -ENOENT;
    bool there = program_proc(out, p, &s->shown.layout, machine(s), name);
    if (fclose(out) || !there) {
        free(f->text);
        f->text = NULL;
        return there ? -ENOMEM : -ENOENT;
    }
    return 0;
}

/* The file that is mapped by that name; 0: none. Libraries are loaded by names with links in them:
 * those the loader tells; before it can, one file of the same last name. */
static u64 find_mapped(struct debug_session *s, const char *path)
{
    const struct program *p = debug_process_look(s);
    const struct program_layout *l = &s->shown.layout;
    struct program_map *list, one;
    u32 count = program_maps(p, l, machine(s), &list);
    char name[PROGRAM_PATH_MAX];
    u64 last = 0, like = 0, found = 0, address;
    for (u32 i = 0; !found && i < count; i++) {
        if (!list[i].file || list[i].file == last)
            continue;
        last = list[i].file;
        if (!program_path(p, l, machine(s), last, name))
            continue;
        if (!strcmp(name, path))
            found = last;
        else if (!like && !strcmp(text_base_name(name), text_base_name(path)))
            like = last;
    }
    free(list);
    if (!found && program_library(p, l, machine(s), path, &address) &&
        program_map_at(p, l, machine(s), address, &one))
        found = one.file;
    return found ? found : like;
}

static int open_mapped(struct debug_session *s, struct debug_file *f, const char *path)
{
    u64 file = find_mapped(s, path);
    s->shown.more = travel_files(s->tr);
    return file ? guest_file_open(&f->file, &s->shown.more, &s->shown.layout, machine(s), file)
                : -ENOENT;
}

static int target_open(void *opaque, const char *path, u64 *size)
{
    struct debug_session *s = opaque;
    struct debug_file *f = NULL;
    int handle = -1;
    if (!debug_process_on(s))
        return -ENOENT;
    while (!f && ++handle < (int)ARRAY_SIZE(s->shown.files))
        f = s->shown.files[handle].open ? NULL : &s->shown.files[handle];
    if (!f)
        return -EMFILE;
    *f = (struct debug_file){0};
    int code = strncmp(path, "/proc/", 6) ? open_mapped(s, f, path) : open_text(s, f, path);
    if (code)
        return code;
    f->open = true;
    *size = f->text ? f->size : f->file.size;
    return handle;
}

static struct debug_file *file_of(struct debug_session *s, int handle)
{
    return handle >= 0 && handle < (int)ARRAY_SIZE(s->shown.files) && s->shown.files[handle].open
               ? &s->shown.files[handle]
               : NULL;
}

static i64 target_read(void *opaque, int handle, u64 offset, void *out, size_t len)
{
    struct debug_session *s = opaque;
    const struct debug_file *f = file_of(s, handle);
    if (!f)
        return -EBADF;
    if (!f->text)
        return guest_file_read(&f->file, &s->shown.layout, machine(s), offset, out, len);
    if (offset >= f->size)
        return 0;
    len = MIN(len, f->size - (size_t)offset);
    memcpy(out, f->text + offset, len);
    return (i64)len;
}

static void target_close(void *opaque, int handle)
{
    struct debug_session *s = opaque;
    struct debug_file *f = file_of(s, handle);
    if (!f)
        return;
    free(f->text);
    guest_file_close(&f->file);
    *f = (struct debug_file){0};
}

static bool target_link(void *opaque, const char *path, char out[GDB_PATH_MAX])
{
    struct debug_session *s = opaque;
    const char *name;
    const struct program *p = debug_process_on(s) ? process_of(s, path, &name) : NULL;
    if (!p)
        return false;
    if (!strcmp(name, "exe"))
        return program_file_path(p, &s->shown.layout, machine(s), out);
    return !strcmp(name, "cwd") && program_directory(p, &s->shown.layout, machine(s), out);
}

void debug_files_serve(struct gdb_target *t)
{
    t->file_open = target_open;
    t->file_read = target_read;
    t->file_close = target_close;
    t->file_link = target_link;
}
