/* See root.h. */
#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "boot.h"

#define READ_AHEAD_KB "1024"

static bool failed(char *why, size_t size, const char *what)
{
    snprintf(why, size, "%s: %s", what, strerror(errno));
    return false;
}

/* Files are read ahead as far as the device allows at once. A request costs as much as copying some
 * tens of KiB, and what is read once too much is kept compressed. */
static void read_far_ahead(dev_t share)
{
    char path[64];
    snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(share), minor(share));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* slower, that is all */
    (void)!write(fd, READ_AHEAD_KB, strlen(READ_AHEAD_KB));
    close(fd);
}

bool root_enter(char *why, size_t size)
{
    static const char *const moved[] = {"/dev", "/proc", "/sys"};
    /* Nothing of a file that was copied up is looked for below, and inode numbers need not tell
     * layers apart: the upper one begins empty and goes with the machine. All that is written is in
     * it, whole and under its name (written.c). */
    static const char layers[] =
        "lowerdir=" BOOT_HOST ",upperdir=" BOOT_UPPER "/data,workdir=" BOOT_UPPER
        "/work,index=off,xino=off,metacopy=off,redirect_dir=off";
    struct stat st;
    if (mount("root", BOOT_HOST, "virtiofs", MS_RDONLY, NULL))
        return failed(why, size, "cannot mount the host's files (the share with the tag root)");
    /* The root directory is the upper layer's own. */
    if (stat(BOOT_HOST, &st) || chown(BOOT_UPPER "/data", st.st_uid, st.st_gid) ||
        chmod(BOOT_UPPER "/data", st.st_mode & 07777))
        return failed(why, size, "cannot look at the host's root directory");
    read_far_ahead(st.st_dev);
    if (mount("overlay", BOOT_ROOT, "overlay", 0, layers))
        return failed(why, size, "cannot lay a layer of memory over the host's files");
    for (size_t i = 0; i < sizeof(moved) / sizeof(*moved); i++) {
        char to[32];
        snprintf(to, sizeof(to), BOOT_ROOT "%s", moved[i]);
        mkdir(to, 0755); /* a host may lack it */
        if (mount(moved[i], to, NULL, MS_MOVE, NULL))
            return failed(why, size, moved[i]);
    }
    if (chdir(BOOT_ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
        return failed(why, size, "cannot enter the root");
    return true;
}

int root_layer(void)
{
    return open(BOOT_UPPER "/data", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int root_file(void)
{
    return open(BOOT_UPPER "/file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}
