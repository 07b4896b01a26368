/*
 * Fuzz target: a copy that the other side of an agent's port sends (guest-agent/agent/copy.h),
 * which is the host to a guest, and a guest to `reprise cp`, into a directory that has links out of
 * it. Nothing outside is touched, no file gets a set-user-ID bit, no descriptor and no file that is
 * not whole is left.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest-agent/agent/copy.h"
#include "mutate.h"
#include "program.h"

#define TEXT "what is outside\n"

static char place[] = "/tmp/reprise-fuzz-copy-XXXXXX", inside[64], outside[64], victim[80];

static const char *const names[] = {"file", "directory", "out",  "victim", "new",         "more",
                                    "..",   ".",         "",     "a/b",    "/etc/passwd", "linked",
                                    "both", "read-only", "fifo", "x"};

static int drop(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    (void)st;
    (void)flag;
    if (where->level && remove(path))
        abort();
    return 0;
}

static int look(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    if (flag != FTW_SL && S_ISREG(st->st_mode) && st->st_mode & (S_ISUID | S_ISGID))
        abort();
    if (!strncmp(path + where->base, ".reprise-", 9))
        abort();
    return 0;
}

static void clean_up(void)
{
    nftw(place, drop, 20, FTW_DEPTH | FTW_PHYS);
    rmdir(place);
}

static void put(int dir, const char *name, const char *text, mode_t mode)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
    close(fd);
}

static void make_place(void)
{
    if (!mkdtemp(place))
        abort();
    snprintf(inside, sizeof(inside), "%s/in", place);
    snprintf(outside, sizeof(outside), "%s/out", place);
    snprintf(victim, sizeof(victim), "%s/victim", outside);
    if (mkdir(inside, 0700) || mkdir(outside, 0700))
        abort();
    atexit(clean_up);
    put(AT_FDCWD, victim, TEXT, 0600);
    /* What is said of a hostile guest is not of interest. */
    stderr = fopen("/dev/null", "w");
}

static void fill(void)
{
    nftw(inside, drop, 20, FTW_DEPTH | FTW_PHYS);
    int dir = open(inside, O_RDONLY | O_DIRECTORY);
    put(dir, "file", "a file", 0600);
    if (linkat(dir, "file", dir, "linked", 0) || mkdirat(dir, "directory", 0700) ||
        mkdirat(dir, "directory/more", 0700) || symlinkat("../out", dir, "out") ||
        symlinkat("../../out", dir, "directory/out") || mkfifoat(dir, "fifo", 0600) ||
        symlinkat("../out/victim", dir, "victim") || mkdirat(dir, "read-only", 0500))
        abort();
    put(dir, "directory/both", "more", 0600);
    close(dir);
}

static void check(void)
{
    char text[64];
    struct stat st;
    int fd = open(victim, O_RDONLY), n = 0;
    if (fd < 0 || read(fd, text, sizeof(text)) != sizeof(TEXT) - 1 ||
        memcmp(text, TEXT, sizeof(TEXT) - 1) || fstat(fd, &st) || (st.st_mode & 07777) != 0600 ||
        st.st_nlink != 1)
        abort();
    close(fd);
    DIR *d = opendir(outside);
    while (readdir(d))
        n++;
    closedir(d);
    if (n != 3)
        abort();
    nftw(inside, look, 20, FTW_PHYS);
    d = opendir(place);
    for (n = 0; readdir(d); n++)
        ;
    closedir(d);
    if (n != 4)
        abort();
}

static size_t put_entry(struct program *s, u32 type, u8 *out)
{
    u32 odd = (u32)take(s, 1);
    const char *name = names[take(s, 1) % ARRAY_SIZE(names)];
    struct agent_entry e = {.nanoseconds = odd == 250 ? UINT32_MAX : 7,
                            .name_len = odd == 251 ? 200 : (u32)strlen(name)};
    e.mode = (u32)take(s, 2);
    e.seconds = (i64)take(s, 4);
    e.size = odd == 249 ? take(s, 8) : take(s, 2);
    memcpy(out, &e, sizeof(e));
    memcpy(out + sizeof(e), name, strlen(name));
    size_t len = sizeof(e) + strlen(name);
    if (type == AGENT_LINK) {
        const char *to = names[take(s, 1) % ARRAY_SIZE(names)];
        out[len++] = 0;
        memcpy(out + len, to, strlen(to));
        len += strlen(to);
    }
    return len;
}

static bool one(struct copy_sink *c, struct program *s)
{
    static const u8 often[] = {AGENT_DIRECTORY, AGENT_LEAVE, AGENT_FILE,  AGENT_CONTENT,
                               AGENT_LINK,      AGENT_FILE,  AGENT_OTHER, AGENT_COPIED};
    u8 out[1024];
    size_t len = 0;
    u32 what = (u32)take(s, 1);
    u32 type = what < 250 ? often[what % 8] : what;
    if (type == AGENT_CONTENT) {
        u64 offset = take(s, 2);
        memcpy(out, &offset, sizeof(offset));
        len = sizeof(offset) + take(s, 1);
        memset(out + sizeof(offset), 'x', 256);
    } else if (type != AGENT_LEAVE) {
        len = put_entry(s, type, out);
    }
    if (take(s, 1) == 255)
        len = take(s, 1) % (len + 1);
    u8 *exact = malloc(len + !len); /* so that what is beyond it is seen */
    memcpy(exact, out, len);
    bool good = copy_take(c, type, exact, len);
    free(exact);
    return good && !c->over;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static struct copy_sink sink;
    static const char *const targets[] = {"",        "/new",   "/directory", "/file",
                                          "/victim", "/out/x", "/fifo"};
    struct program s = {data, size};
    char target[96];
    if (!*inside)
        make_place();
    fill();
    /* The user's own target leads where it leads; what is sent may not. */
    u32 where = (u32)take(&s, 1) % ARRAY_SIZE(targets);
    snprintf(target, sizeof(target), "%s%s", inside, targets[where == 5 ? 0 : where]);
    bool good = copy_open(&sink, target, names[take(&s, 1) % ARRAY_SIZE(names)]);
    if (!good && !*sink.why)
        abort();
    while (good && s.left)
        good = one(&sink, &s);
    copy_close(&sink);
    check();
    program_check_descriptors();
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const u8 sample[] = {
        1, 0,                                         /* in/new */
        0, 0,  4, 0xed, 1,   9, 9, 9, 9, 0,  0, 0,    /* DIRECTORY */
        2, 0,  5, 0xff, 0xf, 9, 9, 9, 9, 50, 0, 0,    /* FILE, set-user-ID */
        3, 0,  0, 20,   0,                            /* CONTENT */
        3, 30, 0, 20,   0,                            /* CONTENT */
        4, 0,  2, 0xff, 1,   9, 9, 9, 9, 0,  0, 3, 0, /* LINK */
        0, 0,  2, 0xed, 1,   9, 9, 9, 9, 0,  0, 0,    /* DIRECTORY where the link is */
    };
    return program_copy(sample, sizeof(sample), size);
}
