/* See program_file.h. Segments of a program: System V ABI, "Program Header"; where they are the
 * auxiliary vector says. */
#include "inspect/program_file.h"

#include <elf.h>
#include <string.h>

#include "inspect/btf.h"
#include "machine/machine.h"

#define STEPS_MAX     512u /* directories and mounts of a path */
#define HEADERS       64u
#define NOTES_ROOM    4096u
#define DYNAMIC_MAX   256u
#define LIBRARIES_MAX 4096u
#define MODE_NOT_OWN                                                                               \
    (1u << 29) /* FMODE_NOACCOUNT of Linux' fs.h: opened by the kernel for itself */

void program_file_learn(struct program_layout *l, const struct btf *b)
{
    const struct btf_place members[] = {{"mm_struct", "exe_file", &l->exe_file},
                                        {"file", "f_path.mnt", &l->file_mount},
                                        {"file", "f_path.dentry", &l->file_entry},
                                        {"task_struct", "fs", &l->fs},
                                        {"fs_struct", "root.mnt", &l->root_mount},
                                        {"fs_struct", "root.dentry", &l->root_entry},
                                        {"dentry", "d_parent", &l->entry_parent},
                                        {"dentry", "d_name.name", &l->entry_name},
                                        {"dentry", "d_name.len", &l->entry_len},
                                        {"vfsmount", "mnt_root", &l->mounted_root},
                                        {"mount", "mnt", &l->mount},
                                        {"mount", "mnt_parent", &l->mount_parent},
                                        {"mount", "mnt_mountpoint", &l->mount_point}};
    l->has_auxv = btf_member(b, "mm_struct", "saved_auxv", &l->auxv, NULL);
    l->has_directory = btf_member(b, "fs_struct", "pwd.mnt", &l->directory_mount, NULL) &&
                       btf_member(b, "fs_struct", "pwd.dentry", &l->directory_entry, NULL);
    const struct btf_place backing[] = {{"file", "f_mode", &l->file_mode},
                                        {"backing_file", "user_path.mnt", &l->backing_mount},
                                        {"backing_file", "user_path.dentry", &l->backing_entry}};
    l->has_file = btf_members(b, members, ARRAY_SIZE(members));
    l->has_backing = btf_members(b, backing, ARRAY_SIZE(backing));
}

/* ---- the auxiliary vector ---- */

static u64 word_of(const u8 *auxv, size_t at, size_t word)
{
    u64 v = 0;
    memcpy(&v, auxv + at, word);
    return v;
}

size_t program_auxv(const struct program *p, const struct program_layout *l, struct machine *m,
                    u8 out[PROGRAM_AUXV_MAX], bool *narrow)
{
    if (!l->has_auxv || !p->mm)
        return 0;
    for (size_t at = 0; at < PROGRAM_AUXV_MAX; at += 16) {
        if (!process_kernel_bytes(&l->current, m, p->mm + l->auxv + at, out + at, 16))
            return 0;
        /* Types are small: two words of 4 bytes look like a large one of 8. */
        if (!at)
            *narrow = word_of(out, 4, 4) != 0;
        size_t word = *narrow ? 4 : 8;
        for (size_t pair = at; pair < at + 16; pair += 2 * word)
            if (word_of(out, pair, word) == AT_NULL)
                return pair ? pair + 2 * word : 0;
    }
    return 0;
}

bool program_auxv_value(const u8 *auxv, size_t size, bool narrow, u64 type, u64 *value)
{
    size_t word = narrow ? 4 : 8;
    for (size_t at = 0; at + 2 * word <= size; at += 2 * word)
        if (word_of(auxv, at, word) == type) {
            *value = word_of(auxv, at + word, word);
            return true;
        }
    return false;
}

/* ---- the path ---- */

/* Puts "/NAME" in front of what is at *at. */
static bool put_name(const struct program_layout *l, struct machine *m, u64 entry, char *out,
                     size_t *at)
{
    u64 name;
    u32 len;
    if (!program_word(l, m, entry + l->entry_name, &name) ||
        !process_kernel_bytes(&l->current, m, entry + l->entry_len, &len, 4) || !len || len > 255 ||
        len + 1 > *at || !process_kernel_bytes(&l->current, m, name, out + *at - len, len) ||
        memchr(out + *at - len, 0, len) || memchr(out + *at - len, '/', len))
        return false;
    *at -= len + 1;
    out[*at] = '/';
    return true;
}

/* The root that the process sees: of any thread that has not given it back; the first one may have
 * ended long ago. */
static bool find_root(const struct program *p, const struct program_layout *l, struct machine *m,
                      u64 *mount, u64 *entry)
{
    u64 fs;
    for (u32 i = 0; i < p->count; i++)
        if (program_word(l, m, p->threads[i].task + l->fs, &fs) && fs)
            return program_word(l, m, fs + l->root_mount, mount) &&
                   program_word(l, m, fs + l->root_entry, entry);
    return false;
}

/* Of what is at `entry` of a mount. */
static bool path_of(const struct program *p, const struct program_layout *l, struct machine *m,
                    u64 mount, u64 entry, char out[PROGRAM_PATH_MAX])
{
    u64 top_mount, top, below, mounted;
    size_t at = PROGRAM_PATH_MAX - 1;
    out[at] = 0;
    if (!l->has_file || !find_root(p, l, m, &top_mount, &top))
        return false;
    for (unsigned i = 0; i < STEPS_MAX; i++) {
        if (mount == top_mount && entry == top) {
            if (!out[at])
                out[--at] = '/'; /* the root itself */
            memmove(out, out + at, PROGRAM_PATH_MAX - at);
            return *out == '/';
        }
        if (!program_word(l, m, mount + l->mounted_root, &mounted))
            return false;
        if (entry != mounted) {
            if (!put_name(l, m, entry, out, &at) ||
                !program_word(l, m, entry + l->entry_parent, &entry))
                return false;
            continue;
        }
        /* What it is mounted on. */
        u64 whole = mount - l->mount;
        if (!program_word(l, m, whole + l->mount_parent, &below) || below == whole ||
            !program_word(l, m, whole + l->mount_point, &entry))
            return false;
        mount = below + l->mount;
    }
    return false;
}

/* Of a `struct path`, whose members are there. */
static bool path_at(const struct program *p, const struct program_layout *l, struct machine *m,
                    u64 mount_at, u64 entry_at, char out[PROGRAM_PATH_MAX])
{
    u64 mount, entry;
    return program_word(l, m, mount_at, &mount) && program_word(l, m, entry_at, &entry) &&
           path_of(p, l, m, mount, entry, out);
}

/* Since 6.5 what is mapped of an overlay is a file below, which the process cannot reach by a path;
 * it knows by what path it was opened. (Which bit says so is not the same in all of them.) */
static bool opened_as(const struct program *p, const struct program_layout *l, struct machine *m,
                      u64 file, char out[PROGRAM_PATH_MAX])
{
    u32 mode;
    return l->has_backing &&
           process_kernel_bytes(&l->current, m, file + l->file_mode, &mode, sizeof(mode)) &&
           mode & MODE_NOT_OWN &&
           path_at(p, l, m, file + l->backing_mount, file + l->backing_entry, out);
}

bool program_path(const struct program *p, const struct program_layout *l, struct machine *m,
                  u64 file, char out[PROGRAM_PATH_MAX])
{
    return l->has_file && (path_at(p, l, m, file + l->file_mount, file + l->file_entry, out) ||
                           opened_as(p, l, m, file, out));
}

bool program_file_path(const struct program *p, const struct program_layout *l, struct machine *m,
                       char out[PROGRAM_PATH_MAX])
{
    u64 file;
    return l->has_file && p->mm && program_word(l, m, p->mm + l->exe_file, &file) &&
           program_path(p, l, m, file, out);
}

bool program_directory(const struct program *p, const struct program_layout *l, struct machine *m,
                       char out[PROGRAM_PATH_MAX])
{
    u64 fs;
    return l->has_directory && program_word(l, m, p->task + l->fs, &fs) &&
           path_at(p, l, m, fs + l->directory_mount, fs + l->directory_entry, out);
}

/* ---- the build ID ---- */

static bool peek(const struct program *p, const struct program_layout *l, struct machine *m, u64 va,
                 void *out, size_t len)
{
    for (size_t done = 0, part; done < len; done += part) {
        part = MIN(len - done, PAGE_SIZE - (size_t)((va + done) & (PAGE_SIZE - 1)));
        if (!program_peek(p, l, m, va + done, (u8 *)out + done, part))
            return false;
    }
    return true;
}

struct headers {
    Elf64_Phdr list[HEADERS];
    u64 count, bias;
    bool narrow;
};

static bool read_header(const struct program *p, const struct program_layout *l, struct machine *m,
                        bool narrow, u64 at, Elf64_Phdr *h)
{
    Elf32_Phdr n;
    if (!narrow)
        return peek(p, l, m, at, h, sizeof(*h));
    if (!peek(p, l, m, at, &n, sizeof(n)))
        return false;
    *h = (Elf64_Phdr){
        .p_type = n.p_type, .p_offset = n.p_offset, .p_vaddr = n.p_vaddr, .p_filesz = n.p_filesz};
    return true;
}

/* By how much it lies elsewhere than it says: by the header of the headers; without one they are in
 * the first page of what is loaded from the file's beginning. */
static u64 bias_of(const Elf64_Phdr *list, u64 count, u64 headers)
{
    u64 bias = 0;
    for (u64 i = 0; i < count; i++) {
        if (list[i].p_type == PT_PHDR)
            return headers - list[i].p_vaddr;
        if (list[i].p_type == PT_LOAD && !list[i].p_offset)
            bias = (headers & ~(u64)(PAGE_SIZE - 1)) - list[i].p_vaddr;
    }
    return bias;
}

/* The program headers, as they are in its memory, and by how much it lies elsewhere. */
static bool read_headers(const struct program *p, const struct program_layout *l, struct machine *m,
                         struct headers *h)
{
    u8 auxv[PROGRAM_AUXV_MAX];
    u64 headers, count;
    *h = (struct headers){.narrow = false};
    size_t size = program_auxv(p, l, m, auxv, &h->narrow);
    if (!program_auxv_value(auxv, size, h->narrow, AT_PHDR, &headers) ||
        !program_auxv_value(auxv, size, h->narrow, AT_PHNUM, &count))
        return false;
    h->count = MIN(count, (u64)HEADERS);
    size_t each = h->narrow ? sizeof(Elf32_Phdr) : sizeof(Elf64_Phdr);
    for (u64 i = 0; i < h->count; i++)
        if (!read_header(p, l, m, h->narrow, headers + i * each, &h->list[i]))
            return false;
    h->bias = bias_of(h->list, h->count, headers);
    return true;
}

bool program_file_id(const struct program *p, const struct program_layout *l, struct machine *m,
                     struct elf_id *id)
{
    u8 notes[NOTES_ROOM];
    struct headers h;
    *id = (struct elf_id){0};
    if (!read_headers(p, l, m, &h))
        return false;
    for (u64 i = 0; i < h.count && !id->size; i++) {
        if (h.list[i].p_type != PT_NOTE)
            continue;
        size_t size = MIN(h.list[i].p_filesz, sizeof(notes));
        if (!peek(p, l, m, h.bias + h.list[i].p_vaddr, notes, size))
            return false;
        elf_id_notes(id, notes, size);
    }
    return true;
}

/* ---- libraries ---- */

/* Words of the loader's tables (glibc's and musl's <link.h>): struct r_debug, struct link_map. */
enum { DEBUG_MAP = 1 };
enum { MAP_NAME = 1, MAP_DYNAMIC, MAP_NEXT };

static bool read_word(const struct program *p, const struct program_layout *l, struct machine *m,
                      bool narrow, u64 at, unsigned index, u64 *out)
{
    *out = 0;
    return peek(p, l, m, at + index * (narrow ? 4u : 8u), out, narrow ? 4 : 8);
}

/* Is the text there `name`? */
static bool is_text(const struct program *p, const struct program_layout *l, struct machine *m,
                    u64 at, const char *name)
{
    for (size_t i = 0;; i++) {
        char c;
        if (!peek(p, l, m, at + i, &c, 1) || c != name[i])
            return false;
        if (!c)
            return true;
    }
}

bool program_library(const struct program *p, const struct program_layout *l, struct machine *m,
                     const char *name, u64 *address)
{
    struct headers h;
    u64 at = 0, tag, value, text;
    if (!read_headers(p, l, m, &h))
        return false;
    for (u64 i = 0; i < h.count; i++)
        if (h.list[i].p_type == PT_DYNAMIC)
            at = h.bias + h.list[i].p_vaddr;
    for (unsigned i = 0; at; i++) {
        if (i == DYNAMIC_MAX || !read_word(p, l, m, h.narrow, at, 2 * i, &tag) || tag == DT_NULL ||
            !read_word(p, l, m, h.narrow, at, 2 * i + 1, &value))
            return false;
        if (tag == DT_DEBUG)
            break;
    }
    if (!at || !value || !read_word(p, l, m, h.narrow, value, DEBUG_MAP, &at))
        return false;
    for (unsigned i = 0; at && i < LIBRARIES_MAX; i++) {
        if (!read_word(p, l, m, h.narrow, at, MAP_NAME, &text) ||
            !read_word(p, l, m, h.narrow, at, MAP_DYNAMIC, address))
            return false;
        if (is_text(p, l, m, text, name))
            return true;
        if (!read_word(p, l, m, h.narrow, at, MAP_NEXT, &at))
            return false;
    }
    return false;
}
