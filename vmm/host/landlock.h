/*
 * Landlock: a process says what of the file system it and its children may still reach, and the
 * kernel (5.13 and later) holds it for good. Thin wrappers; who needs what is the caller's to say:
 * sandbox.c for ourselves, the starters of foreign programs (qemu-nbd, qemu-img, grub-fstest) for
 * those, between fork and exec.
 *
 * A descriptor that is open stays as good as it was. On a kernel without Landlock nothing is
 * confined, and landlock_enter says so; doctor tells the user.
 */
#ifndef REPRISE_HOST_LANDLOCK_H
#define REPRISE_HOST_LANDLOCK_H

#include "base/types.h"

/* What may be done with a path and all beneath it. */
enum landlock_may {
    LANDLOCK_READ = 1,    /* open files and directories for reading */
    LANDLOCK_EXECUTE = 2, /* ... and execute them */
    LANDLOCK_WRITE = 4,   /* open files that are there for writing, and cut them */
    LANDLOCK_CREATE = 8,  /* make, rename and remove files and directories */
    LANDLOCK_DEVICE = 16, /* ioctl of devices that are opened later */
    LANDLOCK_LIST = 32,   /* open directories, not files */
};

struct landlock_path {
    const char *path; /* NULL: fd */
    int fd;           /* of a file or a directory; any mode, O_PATH too */
    unsigned may;     /* enum landlock_may */
    bool optional;    /* one that is not there is nobody's loss */
};

/* The kernel's version of Landlock; 0: it has none, or it is switched off. Version 2 moves files
 * between directories, 4 knows TCP, 6 signals and abstract Unix sockets. */
int landlock_abi(void);

/*
 * From here on this thread, and what it starts, opens nothing but these, and (where the version
 * allows to say so) binds and connects no TCP port, and sends no signal and connects to no abstract
 * socket outside of what it started. Sets no_new_privs. Needs no memory and prints nothing: fit for
 * a child between fork and exec, where `paths` are opened by name as it sees them.
 * 0; -ENOSYS without Landlock (nothing is confined then); another -errno when a path cannot be
 * opened or the kernel refuses.
 */
int landlock_enter(const struct landlock_path *paths, size_t n);
/* The same, but TCP goes on. */
int landlock_enter_tcp(const struct landlock_path *paths, size_t n);

#endif
