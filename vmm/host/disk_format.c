/* See disk_format.h. */
#include "host/disk_format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct format {
    const char *name, *driver;
    const char *ends; /* of file names, each with a dot in front, one after the other */
    u16 at;           /* where its mark is in a file */
    u8 size;          /* of the mark; 0: none that tells it from others */
    const char *mark;
};

static const struct format formats[] = {
    {"raw", "", ".raw.img.iso", 0, 0, ""},
    {"qcow2", "qcow2", ".qcow2", 0, 7, "QFI\xfb\0\0\0"},
    {"vmdk", "vmdk", ".vmdk", 0, 4, "KDMV"},
    {"vmdk", "vmdk", ".vmdk", 0, 4, "COWD"},
    {"vmdk", "vmdk", ".vmdk", 0, 20, "# Disk DescriptorFil"},
    {"vdi", "vdi", ".vdi", 64, 4, "\x7f\x10\xda\xbe"},
    {"vhdx", "vhdx", ".vhdx", 0, 8, "vhdxfile"},
    {"vpc", "vpc", ".vhd.vpc", 0, 8, "conectix"},
    {"vhd", "vpc", "", 0, 0, ""},
    {"qed", "qed", ".qed", 0, 4, "QED\0"},
    {"parallels", "parallels", ".hdd.hds", 0, 16, "WithoutFreeSpace"},
    {"parallels", "parallels", ".hdd.hds", 0, 16, "WithouFreSpacExt"},
    {"dmg", "dmg", ".dmg", 0, 0, ""},
};

const char *disk_format_driver(const char *name)
{
    for (unsigned i = 0; i < ARRAY_SIZE(formats); i++)
        if (!strcmp(formats[i].name, name))
            return formats[i].driver;
    return NULL;
}

void disk_format_names(char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(formats) && n < size; i++)
        if (!i || strcmp(formats[i].name, formats[i - 1].name))
            n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", formats[i].name);
}

static bool ends_so(const char *path, const char *ends)
{
    const char *dot = strrchr(path, '.');
    size_t len = dot ? strlen(dot) : 0;
    if (!dot || strchr(dot, '/'))
        return false;
    for (const char *p = ends; *p; p++)
        if (*p == '.' && !strncasecmp(p, dot, len) && (!p[len] || p[len] == '.'))
            return true;
    return false;
}

/* The first bytes of an image; false: an error (errno). */
static bool first_bytes(int fd, u8 bytes[128])
{
    ssize_t n;
    memset(bytes, 0, 128);
    while ((n = pread(fd, bytes, 128, 0)) < 0 && errno == EINTR)
        continue;
    return n >= 0;
}

static const struct format *inside_of(const u8 bytes[128])
{
    for (unsigned i = 0; i < ARRAY_SIZE(formats); i++)
        if (formats[i].size && !memcmp(bytes + formats[i].at, formats[i].mark, formats[i].size))
            return &formats[i];
    return NULL;
}

const char *disk_format_inside(int fd)
{
    u8 bytes[128];
    const struct format *f = first_bytes(fd, bytes) ? inside_of(bytes) : NULL;
    return f ? f->driver : formats[0].name;
}

int disk_format_guess(int fd, const char *path, const char **name, struct err *err)
{
    u8 bytes[128];
    if (!first_bytes(fd, bytes))
        return err_errno(err, "cannot read the disk image %s", path);
    const struct format *inside = inside_of(bytes), *outside = NULL;
    for (unsigned i = 0; i < ARRAY_SIZE(formats) && !outside; i++)
        if (ends_so(path, formats[i].ends))
            outside = &formats[i];
    if (inside && (!outside || strcmp(inside->name, outside->name)))
        return err_set(err, -EINVAL,
                       "the disk image %s begins like one of format %s, which its name does not "
                       "say; add ,format=%s if it is one that you trust, or ,format=raw if its "
                       "bytes are the disk's",
                       path, inside->name, inside->name);
    if (!inside && outside && outside->size)
        return err_set(err, -EINVAL,
                       "the disk image %s does not begin like one of format %s, which its name "
                       "says; add ,format=raw if its bytes are the disk's",
                       path, outside->name);
    *name = inside ? inside->name : outside ? outside->name : formats[0].name;
    return 0;
}
