/*
 * Fuzz target: the file server of a share. An input is a list of FUSE requests of a hostile guest,
 * whose ids and handles are those that it was given, near them, or none, on a directory with what
 * directories have. A reply has its length, fits its room, and says nothing of what is outside.
 */
#define _GNU_SOURCE /* renameat2 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsd/fsd.h"
#include "mutate.h"
#include "program.h"

#define KNOWN 16u

static char place[] = "/tmp/reprise-fuzz-share-XXXXXX";
static struct fsd server;
static int root = -1;
static u64 node[KNOWN], handle[KNOWN];
static unsigned nodes, handles;
static bool exchanged;

static const char *const names[] = {
    "file",           "empty", "directory", "link", "out",         "fifo", "hole",
    "directory/more", "..",    ".",         "",     "/etc/passwd", "none"};

static void clean_up(void)
{
    char command[sizeof(place) + 32];
    snprintf(command, sizeof(command), "rm -rf '%s'", place);
    if (system(command))
        fprintf(stderr, "cannot remove %s\n", place);
}

static void put(const char *name, const char *text)
{
    int fd = openat(root, name, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
    close(fd);
}

static void make_place(void)
{
    if (!mkdtemp(place) || (root = open(place, O_RDONLY | O_DIRECTORY)) < 0)
        abort();
    atexit(clean_up);
    put("file", "what is in a file of the share");
    put("empty", "");
    if (mkdirat(root, "directory", 0700) || symlinkat("file", root, "link") ||
        symlinkat("../../../etc/passwd", root, "out") || mkfifoat(root, "fifo", 0600))
        abort();
    put("directory/more", "more");
    if (mkdirat(root, "second", 0700))
        abort();
    put("second/more", "more of another");
    put("hole", "h");
    int fd = openat(root, "hole", O_WRONLY);
    if (ftruncate(fd, 1 << 20))
        abort();
    close(fd);
    for (unsigned i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof(name), "directory/%03u-a-name-that-is-rather-long", i);
        put(name, "");
    }
}

static u64 some(struct program *s, const u64 *known, unsigned n)
{
    u64 what = take(s, 1);
    return what < 240 && n ? known[what % n] : what == 255 ? take(s, 8) : what - 240;
}

static void remember(u64 *known, unsigned *n, u64 value)
{
    known[(*n < KNOWN ? (*n)++ : value % KNOWN)] = value;
}

/* The body of a request, its size. */
static u32 make_body(struct program *s, u32 opcode, u8 *body)
{
    u32 size = 0;
    if (opcode == FUSE_LOOKUP) {
        const char *name = names[take(s, 1) % ARRAY_SIZE(names)];
        size = (u32)strlen(name) + 1;
        memcpy(body, name, size);
    } else if (opcode == FUSE_READ || opcode == FUSE_READDIR || opcode == FUSE_READDIRPLUS) {
        struct fuse_read_in in = {.fh = some(s, handle, handles)};
        in.size = 1u << (take(s, 1) % 32);
        u64 offset = take(s, 1);
        in.offset = offset == 255 ? take(s, 8) : offset * 16;
        memcpy(body, &in, size = sizeof(in));
    } else if (opcode == FUSE_RELEASE || opcode == FUSE_RELEASEDIR) {
        struct fuse_release_in in = {.fh = some(s, handle, handles)};
        memcpy(body, &in, size = sizeof(in));
    } else if (opcode == FUSE_FORGET) {
        struct fuse_forget_in in = {.nlookup = take(s, 1) * take(s, 1)};
        memcpy(body, &in, size = sizeof(in));
    } else if (opcode == FUSE_BATCH_FORGET) {
        struct fuse_batch_forget_in in = {.count = (u32)take(s, 2)};
        memcpy(body, &in, size = sizeof(in));
        for (unsigned i = 0; i < 3; i++) {
            struct fuse_forget_one one = {some(s, node, nodes), take(s, 1)};
            memcpy(body + size, &one, sizeof(one));
            size += (u32)sizeof(one);
        }
    } else if (opcode == FUSE_LSEEK || opcode == FUSE_GETATTR) {
        struct fuse_lseek_in in = {some(s, handle, handles), take(s, 3), (u32)take(s, 1) % 6, 0};
        struct fuse_getattr_in get = {.getattr_flags = in.whence, .fh = in.fh};
        if (opcode == FUSE_LSEEK)
            memcpy(body, &in, size = sizeof(in));
        else
            memcpy(body, &get, size = sizeof(get));
    } else if (opcode == FUSE_OPEN || opcode == FUSE_OPENDIR) {
        struct fuse_open_in in = {.flags = take(s, 1) ? 0 : (u32)take(s, 4)};
        memcpy(body, &in, size = sizeof(in));
    } else {
        size = (u32)take(s, 1) % 64;
        for (u32 i = 0; i < size; i++)
            body[i] = (u8)take(s, 1);
    }
    return size;
}

static void look_at(u32 opcode, const struct fuse_out_header *h, const u8 *body)
{
    if (opcode == FUSE_LOOKUP && !h->error) {
        struct fuse_entry_out e;
        if (h->len != sizeof(*h) + sizeof(e))
            abort();
        memcpy(&e, body, sizeof(e));
        if (e.nodeid)
            remember(node, &nodes, e.nodeid);
    }
    if ((opcode == FUSE_OPEN || opcode == FUSE_OPENDIR) && !h->error) {
        struct fuse_open_out o;
        if (h->len != sizeof(*h) + sizeof(o))
            abort();
        memcpy(&o, body, sizeof(o));
        remember(handle, &handles, o.fh);
    }
    if (h->len > sizeof(*h) + 5 && memmem(body, h->len - sizeof(*h), "root:", 5))
        abort(); /* of /etc/passwd */
}

/* Other files under names that the guest may know. */
static void exchange(void)
{
    if (renameat2(root, "file", root, "empty", RENAME_EXCHANGE) ||
        renameat2(root, "directory", root, "second", RENAME_EXCHANGE))
        abort();
    exchanged = !exchanged;
}

static void one(struct program *s)
{
    static const u32 often[] = {FUSE_LOOKUP,      FUSE_OPEN,   FUSE_READ,    FUSE_OPENDIR,
                                FUSE_READDIRPLUS, FUSE_FORGET, FUSE_READDIR, FUSE_GETATTR};
    u8 bytes[sizeof(struct fuse_in_header) + 512];
    u32 what = (u32)take(s, 1), opcode = what < 160 ? often[what % ARRAY_SIZE(often)] : what - 160;
    if (what == 255) {
        exchange();
        return;
    }
    struct fuse_in_header h = {.opcode = opcode, .unique = take(s, 1)};
    h.nodeid = some(s, node, nodes);
    u32 size = (u32)sizeof(h) + make_body(s, opcode, bytes + sizeof(h)), cut = (u32)take(s, 1);
    h.len = cut == 1 ? (u32)take(s, 4) : size;
    memcpy(bytes, &h, sizeof(h));
    u64 total = size;
    u32 less = cut == 2 ? (u32)take(s, 1) : 0;
    size -= MIN(size, less);
    if (cut == 3)
        total += take(s, 4);
    u32 room = cut == 4 ? (u32)take(s, 1) : 16u << (take(s, 1) % 14);
    /* Of exactly these sizes, so that what is beyond them is seen. */
    u8 *request = malloc(size ? size : 1), *reply = malloc(room ? room : 1);
    memcpy(request, bytes, size);
    u32 n = fsd_serve(&server, request, size, total, reply, room);
    struct fuse_out_header out;
    if (n > room || (n && n < sizeof(out)))
        abort();
    if (n) {
        memcpy(&out, reply, sizeof(out));
        if (out.len != n || out.unique != h.unique || out.error > 0 || out.error < -600 ||
            (out.error && n != sizeof(out)))
            abort();
        look_at(opcode, &out, reply + sizeof(out));
    }
    free(request);
    free(reply);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct program s = {data, size};
    enum fsd_step step;
    if (root < 0)
        make_place();
    if (!fsd_open(&server, root, 0, &step))
        abort();
    /* Few, so that they have to be opened again. */
    server.dirs = 2;
    server.open_max = 3;
    nodes = handles = 0;
    remember(node, &nodes, 1);
    while (s.left)
        one(&s);
    if (exchanged)
        exchange();
    if (server.open > server.open_max)
        abort();
    fsd_close(&server);
    program_check_descriptors();
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const u8 sample[] = {
        0,   1, 0, 2, 0,  9,        /* LOOKUP directory */
        3,   2, 1, 1, 0,  9,        /* OPENDIR */
        4,   3, 1, 0, 16, 0, 0, 13, /* READDIRPLUS */
        0,   4, 0, 0, 0,  9,        /* LOOKUP file */
        1,   5, 2, 1, 0,  9,        /* OPEN */
        2,   6, 2, 1, 10, 0, 0, 9,  /* READ */
        255,                        /* other files */
        0,   4, 0, 0, 0,  9,        /* LOOKUP file: it is open */
        5,   7, 2, 1, 1,  0, 9,     /* FORGET */
    };
    return program_copy(sample, sizeof(sample), size);
}
