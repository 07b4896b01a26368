/*
 * Files of the guest, for reading: packets vFile (gdb manual, E.7 "Host I/O Packets"; numbers and
 * struct stat: E.14 "File-I/O"). Whatever would write is not known here.
 */
#include <errno.h>
#include <string.h>

#include "replay/gdb/server.h"

#define FILEIO_ENOENT  2u
#define FILEIO_EBADF   9u
#define FILEIO_EINVAL  22u
#define FILEIO_EMFILE  24u
#define FILEIO_EROFS   30u
#define FILEIO_UNKNOWN 9999u
#define OPEN_CHANGES   0xe0bu /* O_WRONLY, O_RDWR, O_APPEND, O_CREAT, O_TRUNC, O_EXCL there */
#define MODE           0100444u
#define READ_MAX       4096u

static void refuse(struct gdb_server *s, unsigned code)
{
    reply_format(&s->reply, "F-1,%x", code);
}

/* A path in hexadecimal digits up to `end`. */
static bool parse_path(const char **text, char end, char path[GDB_PATH_MAX])
{
    const char *stop = strchr(*text, end);
    size_t len = (size_t)((stop ? stop : *text + strlen(*text)) - *text);
    if ((end && !stop) || len % 2 || len / 2 >= GDB_PATH_MAX ||
        !parse_bytes(*text, (u8 *)path, len / 2))
        return false;
    path[len / 2] = 0;
    *text += len;
    return strlen(path) == len / 2;
}

static void open_file(struct gdb_server *s, const char *text)
{
    char path[GDB_PATH_MAX];
    u64 flags, mode, size = 0;
    struct gdb_file *file = NULL;
    for (size_t i = 0; !file && i < ARRAY_SIZE(s->files); i++)
        file = s->files[i].handle < 0 ? &s->files[i] : NULL;
    if (!parse_path(&text, ',', path) || !parse_char(&text, ',') || !parse_hex(&text, &flags) ||
        !parse_char(&text, ',') || !parse_hex(&text, &mode) || *text)
        return refuse(s, FILEIO_EINVAL);
    if (flags & OPEN_CHANGES)
        return refuse(s, FILEIO_EROFS);
    int handle = file ? s->target.file_open(s->target.opaque, path, &size) : -EMFILE;
    if (handle < 0)
        return refuse(s, handle == -ENOENT   ? FILEIO_ENOENT
                         : handle == -EMFILE ? FILEIO_EMFILE
                                             : FILEIO_UNKNOWN);
    file->handle = handle;
    file->size = size;
    reply_format(&s->reply, "F%x", (unsigned)(file - s->files));
}

static struct gdb_file *parse_file(struct gdb_server *s, const char **text)
{
    u64 number;
    if (!parse_hex(text, &number) || number >= ARRAY_SIZE(s->files) || s->files[number].handle < 0)
        return NULL;
    return &s->files[number];
}

static void close_file(struct gdb_server *s, const char *text)
{
    struct gdb_file *file = parse_file(s, &text);
    if (!file || *text)
        return refuse(s, FILEIO_EBADF);
    s->target.file_close(s->target.opaque, file->handle);
    file->handle = -1;
    reply_text(&s->reply, "F0");
}

/* "F" with the bytes in hexadecimal, ";" and these. */
static void put_bytes(struct gdb_server *s, const void *bytes, size_t len)
{
    reply_format(&s->reply, "F%x;", (unsigned)len);
    reply_binary(&s->reply, bytes, len);
}

static void read_file(struct gdb_server *s, const char *text)
{
    u8 bytes[READ_MAX];
    u64 count, offset;
    struct gdb_file *file = parse_file(s, &text);
    if (!file)
        return refuse(s, FILEIO_EBADF);
    if (!parse_char(&text, ',') || !parse_hex(&text, &count) || !parse_char(&text, ',') ||
        !parse_hex(&text, &offset) || *text)
        return refuse(s, FILEIO_EINVAL);
    i64 got = s->target.file_read(s->target.opaque, file->handle, offset, bytes,
                                  MIN(count, (u64)sizeof(bytes)));
    if (got < 0)
        return refuse(s, FILEIO_UNKNOWN);
    put_bytes(s, bytes, (size_t)got);
}

static void put_big(u8 *to, u64 value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (u8)(value >> 8 * (bytes - 1 - i));
}

static void stat_file(struct gdb_server *s, const char *text)
{
    u8 stat[64] = {0};
    struct gdb_file *file = parse_file(s, &text);
    if (!file || *text)
        return refuse(s, FILEIO_EBADF);
    put_big(stat + 4, (u64)(file - s->files) + 1, 4); /* st_ino: files differ in something */
    put_big(stat + 8, MODE, 4);
    put_big(stat + 12, 1, 4);          /* st_nlink */
    put_big(stat + 28, file->size, 8); /* st_size */
    put_big(stat + 36, READ_MAX, 8);
    put_big(stat + 44, (file->size + 511) / 512, 8);
    put_bytes(s, stat, sizeof(stat));
}

static void read_link(struct gdb_server *s, const char *text)
{
    char path[GDB_PATH_MAX], to[GDB_PATH_MAX];
    if (!parse_path(&text, 0, path))
        return refuse(s, FILEIO_EINVAL);
    if (!s->target.file_link(s->target.opaque, path, to))
        return refuse(s, FILEIO_ENOENT);
    put_bytes(s, to, strlen(to));
}

void files_packet(struct gdb_server *s, const char *text)
{
    static const struct {
        const char *name;
        void (*serve)(struct gdb_server *s, const char *text);
    } kinds[] = {{"open:", open_file},
                 {"close:", close_file},
                 {"pread:", read_file},
                 {"fstat:", stat_file},
                 {"readlink:", read_link}};
    if (!s->target.file_open)
        return;
    if (!strncmp(text, "setfs:", 6)) { /* there is one tree */
        reply_text(&s->reply, "F0");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (!strncmp(text, kinds[i].name, strlen(kinds[i].name)))
            kinds[i].serve(s, text + strlen(kinds[i].name));
}

void files_close(struct gdb_server *s)
{
    for (size_t i = 0; i < ARRAY_SIZE(s->files); i++) {
        if (s->files[i].handle >= 0 && s->target.file_close)
            s->target.file_close(s->target.opaque, s->files[i].handle);
        s->files[i].handle = -1;
    }
}
