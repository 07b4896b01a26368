/*
 * reprise-fs, the file server of a share: answers the FUSE requests of a guest (protocol 7.31, as
 * Linux's <linux/fuse.h> declares it) about one directory and all beneath it. What the guest asks
 * is hostile; the host's files are only ever read, and of them only regular files and directories
 * are opened.
 */
#ifndef REPRISE_FSD_H
#define REPRISE_FSD_H

#include "fsd/nodes.h"
#include "host/share_protocol.h"

#define FSD_DIRECTORIES 512u       /* kept open at most, */
#define FSD_HANDLES_MAX (1u << 20) /* and handles that the guest may have, of which */
#define FSD_FILES_LEAST 16u        /* ... so many have a descriptor at least */
#define FSD_LISTING     (32u << 10)
#define FSD_MINOR       31u /* of FUSE; a guest of a later one does with less */

struct handle {
    u32 node;         /* NODE_NONE: it is free */
    int fd;           /* -1: to be opened again */
    u32 newer, older; /* of those with a descriptor; free ones: the next */
    bool directory;
};

struct fsd {
    int root; /* the share's directory */
    int proc; /* /proc/self/fd: a descriptor is opened for reading by it, and nothing else is */
    struct fsd_hidden hidden; /* its inode 0: none */
    struct nodes nodes;
    /* Directories that are open, for names in them (O_PATH). */
    struct {
        u32 node;
        int fd; /* -1: free */
        u64 used;
    } dir[FSD_DIRECTORIES];
    u32 dirs; /* how many there may be */
    u64 clock;
    struct handle *handle;
    u32 handles, handle_room, free_handle;
    u32 newest, oldest, open, open_max;
    u64 dev[64]; /* file systems seen, for inode numbers; the share's own is the first */
    u32 devs;
    /* What was read of a directory last, and not told yet. */
    struct {
        u32 handle; /* UINT32_MAX: nothing */
        u64 offset; /* of the entry at `at` */
        u32 at, end;
        u8 data[FSD_LISTING];
    } listing;
};

/* FSD_DIRECTORY, /proc. False: *step and errno say what is missing. */
bool fsd_open(struct fsd *f, int root, u32 epoch, enum fsd_step *step);
void fsd_close(struct fsd *f);
/* Forgets all that the guest has. */
void fsd_reset(struct fsd *f);

/* serve.c: a request of which `size` bytes are there (of `total`), its reply in `out`, which takes
 * `room`; the bytes of the reply, 0: none. */
u32 fsd_serve(struct fsd *f, const u8 *request, u32 size, u64 total, u8 *out, u32 room);

/* open.c: descriptors. All give -errno where they fail. */
/* Of a directory, to look for names in it; valid until the next call. */
int fsd_directory(struct fsd *f, u32 node);
/* lstat() of a node; -ESTALE: it is another file by now. */
int fsd_stat(struct fsd *f, u32 node, struct stat *st);
/* Of a name in a directory; and whether what is beneath it is not shown. */
int fsd_stat_name(struct fsd *f, u32 parent, const char *name, struct stat *st, bool *closed);
/* A handle of a regular file or a directory. */
int fsd_handle_open(struct fsd *f, u32 node, bool directory, struct stat *st, u32 *handle);
/* Its descriptor; valid until the next call. */
int fsd_handle_fd(struct fsd *f, u64 handle, bool directory);
void fsd_handle_close(struct fsd *f, u64 handle);
/* A node is gone, or is another file now. */
void fsd_node_gone(void *opaque, u32 node);

/* sandbox.c: from here on nothing is opened but for reading, where Landlock is there beneath the
 * share only; no program is started, no socket made, no process touched. False: errno says why. */
bool sandbox_enter(int share);
/* Tries what must not be possible; returns how much of it was, and says so on stderr. */
unsigned sandbox_probe(void);

#endif
