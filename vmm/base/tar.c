/* See tar.h. */
#include "base/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* POSIX.1-1988, 10.1.1. Numbers are octal digits; a first byte of 0x80 (GNU's, for what has more
 * than 11 digits): the rest is big-endian. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], check[8];
    char type, link[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8];
    char prefix[155], rest[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a block");

static const struct {
    char type;
    const char *what;
} others[] = {{'1', "a hard link"},        {'2', "a symbolic link"},    {'3', "a device"},
              {'4', "a device"},           {'5', "a directory"},        {'6', "a FIFO"},
              {'x', "an extended header"}, {'g', "an extended header"}, {'L', "a long name"},
              {'K', "a long link"},        {'S', "a sparse file"}};

static bool number(const char *field, size_t n, u64 *out)
{
    const u8 *p = (const u8 *)field;
    u64 v = 0;
    size_t i = 0;
    if (*p == 0x80) {
        for (i = 1; i < n; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | p[i];
        }
        *out = v;
        return true;
    }
    while (i < n && field[i] == ' ')
        i++;
    size_t first = i;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        v = v << 3 | (u64)(field[i] - '0');
    *out = v;
    return i > first && (i == n || !field[i] || field[i] == ' ');
}

/* The sum of all bytes, those of `check` as spaces. */
static u64 sum(const u8 block[TAR_BLOCK])
{
    u64 s = 8 * ' ';
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (i < offsetof(struct header, check) || i >= offsetof(struct header, type))
            s += block[i];
    return s;
}

int tar_header_read(const u8 block[TAR_BLOCK], struct tar_member *m, struct err *err)
{
    static const u8 zeros[TAR_BLOCK];
    struct header h;
    char shown[2 * TAR_NAME];
    u64 check;
    if (!memcmp(block, zeros, TAR_BLOCK))
        return 1;
    memcpy(&h, block, sizeof(h));
    if (memcmp(h.magic, "ustar", 5) || !number(h.check, sizeof(h.check), &check) ||
        check != sum(block))
        return err_set(err, -EINVAL, "there is no header of a tar archive, or it is damaged");
    memcpy(m->name, h.name, sizeof(h.name));
    m->name[sizeof(h.name)] = 0;
    text_printable(m->name, shown, sizeof(shown));
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (h.type == others[i].type)
            return err_set(err, -EINVAL, "'%s' in it is %s, which no pack has", shown,
                           others[i].what);
    if ((h.type != '0' && h.type) || h.prefix[0])
        return err_set(err, -EINVAL, "'%s' in it is of a kind that no pack has", shown);
    if (!number(h.size, sizeof(h.size), &m->size) || m->size > INT64_MAX / 2)
        return err_set(err, -EINVAL, "the size of '%s' in it makes no sense", shown);
    return 0;
}

void tar_header_write(u8 block[TAR_BLOCK], const char *name, u64 size)
{
    struct header h;
    memset(&h, 0, sizeof(h));
    memcpy(h.name, name, strnlen(name, sizeof(h.name)));
    memcpy(h.mode, "0000600", 8);
    memcpy(h.uid, "0000000", 8);
    memcpy(h.gid, "0000000", 8);
    memcpy(h.mtime, "00000000000", 12);
    if (size >> 33) {
        h.size[0] = (char)0x80;
        for (size_t i = 0; i < 8; i++)
            h.size[11 - i] = (char)(size >> 8 * i);
    } else {
        for (size_t i = 0; i < 11; i++)
            h.size[10 - i] = (char)('0' + (size >> 3 * i & 7));
    }
    h.type = '0';
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    memcpy(block, &h, sizeof(h));
    u64 s = sum(block);
    for (size_t i = 0; i < 6; i++)
        h.check[5 - i] = (char)('0' + (s >> 3 * i & 7));
    h.check[7] = ' ';
    memcpy(block, &h, sizeof(h));
}
