/* See hostile_place.h. */
#define _GNU_SOURCE
#include "hostile_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT "what is outside\n"

static char place[] = "/tmp/reprise-fuzz-place-XXXXXX", outside[64], victim[80];
char hostile_inside[64];

const char *const hostile_names[HOSTILE_NAMES] = {
    "file", "directory", "out",         "victim", "new",  "more",      "..",   ".",
    "",     "a/b",       "/etc/passwd", "linked", "both", "read-only", "fifo", "x"};

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
    snprintf(hostile_inside, sizeof(hostile_inside), "%s/in", place);
    snprintf(outside, sizeof(outside), "%s/out", place);
    snprintf(victim, sizeof(victim), "%s/victim", outside);
    if (mkdir(hostile_inside, 0700) || mkdir(outside, 0700))
        abort();
    atexit(clean_up);
    put(AT_FDCWD, victim, TEXT, 0600);
    /* What is said of a hostile guest is not of interest. */
    stderr = fopen("/dev/null", "w");
}

void hostile_place_fill(void)
{
    if (!*hostile_inside)
        make_place();
    nftw(hostile_inside, drop, 20, FTW_DEPTH | FTW_PHYS);
    int dir = open(hostile_inside, O_RDONLY | O_DIRECTORY);
    put(dir, "file", "a file", 0600);
    if (linkat(dir, "file", dir, "linked", 0) || mkdirat(dir, "directory", 0700) ||
        mkdirat(dir, "directory/more", 0700) || symlinkat("../out", dir, "out") ||
        symlinkat("../../out", dir, "directory/out") || mkfifoat(dir, "fifo", 0600) ||
        symlinkat("../out/victim", dir, "victim") || mkdirat(dir, "read-only", 0500))
        abort();
    put(dir, "directory/both", "more", 0600);
    close(dir);
}

void hostile_place_check(void)
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
    nftw(hostile_inside, look, 20, FTW_PHYS);
    d = opendir(place);
    for (n = 0; readdir(d); n++)
        ;
    closedir(d);
    if (n != 4)
        abort();
}
