/*
 * The cpio archive of `--add` (initrd.h). Format: cpio(5), "New ASCII Format": a header of 110
 * characters, the name with its NUL, the data; each padded to 4 bytes. Linux wants the first header
 * of a further archive at a multiple of 4, and skips zeros before it.
 */
#include "board/initrd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "board/kernel.h"

#define MAX_DEPTH 64

static int reserve(struct initrd_builder *b, size_t more, struct err *err)
{
    if (more > INITRD_MAX_SIZE || b->size + more > INITRD_MAX_SIZE)
        return err_set(err, -EFBIG, "the initrd with the added files is larger than %llu MiB",
                       INITRD_MAX_SIZE >> 20);
    if (b->size + more <= b->room)
        return 0;
    size_t room = MAX(b->size + more, b->room + b->room / 2);
    u8 *bytes = realloc(b->bytes, room);
    if (!bytes)
        return err_set(err, -ENOMEM, "no memory for an initrd of %zu MiB", room >> 20);
    b->bytes = bytes;
    b->room = room;
    return 0;
}

/* Room must have been reserved. */
static void append(struct initrd_builder *b, const void *bytes, size_t n)
{
    memcpy(b->bytes + b->size, bytes, n);
    b->size += n;
}

static void pad(struct initrd_builder *b)
{
    while (b->size % 4)
        b->bytes[b->size++] = 0;
}

/* Header and name; room for `data_size` bytes of data and their padding is reserved. */
static int put_header(struct initrd_builder *b, const char *name, mode_t mode, size_t data_size,
                      struct err *err)
{
    char header[111];
    size_t name_size = strlen(name) + 1;
    if (data_size > UINT32_MAX)
        return err_set(err, -EFBIG, "%s is too large for an initrd", name);
    int rc = reserve(b, sizeof(header) + name_size + data_size + 16, err);
    if (rc)
        return rc;
    pad(b); /* after an initrd of any length */
    b->inodes++;
    snprintf(header, sizeof(header), "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
             b->inodes, (unsigned)mode, 0, 0 /* uid, gid */, S_ISDIR(mode) ? 2 : 1, 0 /* mtime */,
             (unsigned)data_size, 0, 0, 0, 0, (unsigned)name_size, 0);
    append(b, header, 110);
    append(b, name, name_size);
    pad(b);
    return 0;
}

static int put_entry(struct initrd_builder *b, const char *name, mode_t mode, const void *data,
                     size_t size, struct err *err)
{
    int rc = put_header(b, name, mode, size, err);
    if (rc)
        return rc;
    if (size)
        append(b, data, size);
    pad(b);
    return 0;
}

/* A directory once; unpacking one that exists only sets its mode. */
static int put_dir(struct initrd_builder *b, const char *name, mode_t mode, struct err *err)
{
    for (size_t i = 0; i < b->ndirs; i++)
        if (!strcmp(b->dirs[i], name))
            return 0;
    char **dirs = realloc(b->dirs, (b->ndirs + 1) * sizeof(*dirs));
    if (!dirs)
        return err_set(err, -ENOMEM, "no memory for the added files");
    b->dirs = dirs;
    char *copy = strdup(name);
    if (!copy)
        return err_set(err, -ENOMEM, "no memory for the added files");
    dirs[b->ndirs++] = copy;
    return put_entry(b, name, S_IFDIR | (mode & 07777), NULL, 0, err);
}

/* "a/b/c": makes a and a/b. The initrd may have them already, and Linux would set their mode to
 * ours: so those that are not 0755 by convention keep what they are everywhere. */
static int put_parents(struct initrd_builder *b, const char *name, struct err *err)
{
    char dir[PATH_MAX];
    for (const char *p = strchr(name, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(dir, sizeof(dir), "%.*s", (int)(p - name), name);
        bool sticky = !strcmp(dir, "tmp") || !strcmp(dir, "var/tmp") || !strcmp(dir, "dev/shm");
        int rc = put_dir(b, dir, sticky ? 01777 : !strcmp(dir, "root") ? 0700 : 0755, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int put_file(struct initrd_builder *b, const char *file, const char *name,
                    const struct stat *st, struct err *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_errno(err, "cannot open %s", file);
    int rc = put_header(b, name, S_IFREG | (st->st_mode & 07777), (size_t)st->st_size, err);
    if (!rc && !file_read_on(fd, b->bytes + b->size, (size_t)st->st_size))
        rc = errno ? err_errno(err, "cannot read %s", file)
                   : err_set(err, -EIO, "%s became shorter while it was read", file);
    if (!rc)
        b->size += (size_t)st->st_size;
    close(fd);
    if (!rc)
        pad(b);
    return rc;
}

static int put_link(struct initrd_builder *b, const char *file, const char *name, struct err *err)
{
    char target[PATH_MAX];
    ssize_t n = readlink(file, target, sizeof(target));
    if (n < 0)
        return err_errno(err, "cannot read the link %s", file);
    if ((size_t)n == sizeof(target))
        return err_set(err, -ENAMETOOLONG, "the target of the link %s is too long", file);
    return put_entry(b, name, S_IFLNK | 0777, target, (size_t)n, err);
}

static int put_tree(struct initrd_builder *b, const char *file, const char *name, unsigned depth,
                    struct err *err);

/* strcmp, not strcoll: the order must not depend on the user's locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int put_children(struct initrd_builder *b, const char *file, const char *name,
                        unsigned depth, struct err *err)
{
    struct dirent **list;
    int n = scandir(file, &list, NULL, by_name), rc = 0;
    if (n < 0)
        return err_errno(err, "cannot read the directory %s", file);
    for (int i = 0; i < n; i++) {
        char child[PATH_MAX], child_name[PATH_MAX];
        const char *d = list[i]->d_name;
        if (!rc && strcmp(d, ".") && strcmp(d, "..")) {
            if (snprintf(child, sizeof(child), "%s/%s", file, d) >= (int)sizeof(child) ||
                snprintf(child_name, sizeof(child_name), "%s%s%s", name, *name ? "/" : "", d) >=
                    (int)sizeof(child_name))
                rc = err_set(err, -ENAMETOOLONG, "the path of %s in %s is too long", d, file);
            else
                rc = put_tree(b, child, child_name, depth + 1, err);
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

static int put_tree(struct initrd_builder *b, const char *file, const char *name, unsigned depth,
                    struct err *err)
{
    struct stat st;
    /* What the user names is followed; links inside a directory stay links. */
    if (depth ? lstat(file, &st) : stat(file, &st))
        return err_errno(err, "cannot add %s", file);
    if (depth > MAX_DEPTH)
        return err_set(err, -ELOOP, "%s is more than %u directories deep", file, MAX_DEPTH);
    if (S_ISREG(st.st_mode))
        return put_file(b, file, name, &st, err);
    if (S_ISLNK(st.st_mode))
        return put_link(b, file, name, err);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, -EINVAL, "%s is neither a file nor a directory nor a link", file);
    int rc = *name ? put_dir(b, name, st.st_mode, err) : 0;
    return rc ? rc : put_children(b, file, name, depth, err);
}

/* Makes `path` relative to the root, without empty and "." components; refuses "..". */
static int clean_path(const char *path, char out[PATH_MAX], struct err *err)
{
    size_t n = 0;
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len == 2 && !memcmp(path, "..", 2))
            return err_set(err, -EINVAL, "a path in the guest cannot have \"..\" in it");
        if (len && !(len == 1 && *path == '.')) {
            if (n + len + 2 > PATH_MAX)
                return err_set(err, -ENAMETOOLONG, "the path in the guest is too long");
            if (n)
                out[n++] = '/';
            memcpy(out + n, path, len);
            n += len;
        }
        path += len + (path[len] == '/');
    }
    out[n] = 0;
    return 0;
}

/* The last component of `file`, without trailing slashes. */
static void base_name(const char *file, char out[NAME_MAX + 1])
{
    size_t end = strlen(file);
    while (end > 1 && file[end - 1] == '/')
        end--;
    size_t start = end;
    while (start && file[start - 1] != '/')
        start--;
    snprintf(out, NAME_MAX + 1, "%.*s", (int)(end - start), file + start);
}

int initrd_add(struct initrd_builder *b, const char *spec, struct err *err)
{
    char file[PATH_MAX], path[PATH_MAX], name[PATH_MAX], base[NAME_MAX + 1];
    struct stat st;
    const char *colon = lstat(spec, &st) ? strrchr(spec, ':') : NULL;
    size_t file_len = colon ? (size_t)(colon - spec) : strlen(spec);
    if (!file_len || file_len >= sizeof(file))
        return err_set(err, -EINVAL, "\"%s\" is not FILE or FILE:PATH", spec);
    snprintf(file, sizeof(file), "%.*s", (int)file_len, spec);
    const char *to = colon ? colon + 1 : "/";
    if (!*to)
        return err_set(err, -EINVAL, "\"%s\" has no PATH after the colon", spec);
    if (stat(file, &st))
        return err_errno(err, "cannot add %s", file);

    base_name(file, base);
    bool into = to[strlen(to) - 1] == '/';
    if (snprintf(path, sizeof(path), "%s%s", to, into ? base : "") >= (int)sizeof(path))
        return err_set(err, -ENAMETOOLONG, "the path in the guest is too long");
    int rc = clean_path(path, name, err);
    if (!rc && !*name && !S_ISDIR(st.st_mode))
        rc = err_set(err, -EINVAL, "\"%s\" names no file in the guest", spec);
    if (!rc)
        rc = put_parents(b, name, err);
    return rc ? rc : put_tree(b, file, name, 0, err);
}

int initrd_init(struct initrd_builder *b, const void *initrd, size_t size, struct err *err)
{
    *b = (struct initrd_builder){0};
    int rc = reserve(b, size + 4, err);
    if (!rc && size)
        append(b, initrd, size);
    return rc;
}

int initrd_finish(struct initrd_builder *b, const u8 **bytes, size_t *size, struct err *err)
{
    int rc = b->inodes ? put_entry(b, "TRAILER!!!", 0, NULL, 0, err) : 0;
    *bytes = b->bytes;
    *size = b->size;
    return rc;
}

void initrd_fini(struct initrd_builder *b)
{
    for (size_t i = 0; i < b->ndirs; i++)
        free(b->dirs[i]);
    free(b->dirs);
    free(b->bytes);
    *b = (struct initrd_builder){0};
}

static bool is_packed(const u8 *p, size_t left)
{
    static const struct {
        u8 bytes[6];
        u8 length;
    } magics[] = {
        {{0x1f, 0x8b}, 2},                  /* gzip */
        {{'B', 'Z', 'h'}, 3},               /* bzip2 */
        {{0x5d, 0, 0}, 3},                  /* lzma */
        {{0xfd, '7', 'z', 'X', 'Z', 0}, 6}, /* xz */
        {{0x89, 'L', 'Z', 'O'}, 4},         /* lzo */
        {{0x02, 0x21, 0x4c, 0x18}, 4},      /* lz4 */
        {{0x28, 0xb5, 0x2f, 0xfd}, 4},      /* zstd */
    };
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
        if (left >= magics[i].length && !memcmp(p, magics[i].bytes, magics[i].length))
            return true;
    return false;
}

/* A field of a newc header: eight hexadecimal digits. */
static bool newc_field(const u8 *header, unsigned field, u32 *out)
{
    const u8 *p = header + 6 + 8 * field;
    *out = 0;
    for (unsigned i = 0; i < 8; i++) {
        u8 lower = p[i] | 0x20;
        u8 digit = p[i] >= '0' && p[i] <= '9'     ? p[i] - '0'
                   : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10
                                                  : 16;
        if (digit > 15)
            return false;
        *out = *out << 4 | digit;
    }
    return true;
}

int initrd_check(const void *bytes, size_t size, struct err *err)
{
    enum { NEWC = 110, FILE_SIZE = 6, NAME_SIZE = 11 };
    const u8 *p = bytes;
    size_t at = 0;
    bool open = false; /* an archive has begun, and not ended */
    while (at < size) {
        size_t left = size - at;
        u32 file_size, name_size;
        if (!p[at] && !open) {
            at++;
            continue;
        }
        if (at % 4 == 0 && left >= 6 &&
            (!memcmp(p + at, "070701", 6) || !memcmp(p + at, "070702", 6))) {
            if (left < NEWC)
                break;
            if (!newc_field(p + at, FILE_SIZE, &file_size) ||
                !newc_field(p + at, NAME_SIZE, &name_size) || !name_size || name_size > PATH_MAX)
                return err_set(err, -EINVAL, "is a damaged cpio archive: the entry at byte %zu",
                               at);
            u64 data = (NEWC + (u64)name_size + 3) & ~3ull;
            u64 all = (data + file_size + 3) & ~3ull;
            if (data + file_size > left)
                break;
            open = name_size != 11 || memcmp(p + at + NEWC, "TRAILER!!!", 11);
            at += MIN(all, left);
            continue;
        }
        if (open)
            return err_set(err, -EINVAL, "is a damaged cpio archive: no entry at byte %zu", at);
        if (is_packed(p + at, left))
            return 0;
        if (at)
            return err_set(err, -EINVAL, "has something after its archive, at byte %zu", at);
        const char *looks = kernel_file_looks_like(bytes, size);
        if (left >= 4 && !memcmp(p, "\177ELF", 4))
            looks = "is an ELF file";
        else if (strstr(looks, "neither"))
            looks = "is something else";
        return err_set(err, -EINVAL, "%s; an initrd is a cpio archive (newc), packed or not",
                       looks);
    }
    if (!size)
        return err_set(err, -EINVAL, "is empty");
    if (at < size || open)
        return err_set(err, -EINVAL, "is truncated: its cpio archive goes on after byte %zu", size);
    return 0;
}
