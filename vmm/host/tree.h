/*
 * A directory of the host's that a guest's files are written to, because the user named it. Who
 * says what is written is hostile: names are of one component each and looked for in their
 * directory's descriptor, links are never followed and mount points never crossed, so nothing that
 * is not beneath the directory is made, changed or removed. Files get no set-user-ID bits, and are
 * this user's, or whose the file was that they replace.
 *
 * A file comes under its name when it is whole. What somebody else changed since tree_open() stays
 * as it is; that, and what else could not be done, is said in words, one sentence an entry.
 */
#ifndef REPRISE_HOST_TREE_H
#define REPRISE_HOST_TREE_H

#include <sys/types.h>
#include <time.h>

#include "base/err.h"

#define TREE_NAME_MAX 255u

struct tree;

struct tree_meta {
    mode_t mode; /* of it the permissions are taken */
    struct timespec mtime;
};

struct tree_config {
    const char *path; /* stays */
    unsigned depth;   /* levels, itself the first */
    /* What is said, without a control character. */
    void (*say)(void *opaque, const char *text);
    void *opaque;
};

/* Opens it, and tries whether it can be written to. What changes from now on was changed by others.
 */
int tree_open(struct tree **out, const struct tree_config *c, struct err *err);
/* Removes what of a file is not whole. NULL is safe. */
void tree_close(struct tree *t);

/* Could `bytes` more be written? If not, that is said, and all that follows is left undone. */
void tree_ask(struct tree *t, u64 bytes);
/* A component of a path: not empty, no slash, no NUL, neither "." nor "..". */
bool tree_name(const char *name, size_t len);

/* Removes all that is in the directory where it stands. */
void tree_empty(struct tree *t);
/* Into a directory, made if it is not there. Each has its tree_leave(), also one that could not be
 * entered, whose entries are left undone. */
void tree_enter(struct tree *t, const char *name);
/* Out of it, which is so; NULL: as it was. Of the tree's own directory it goes nowhere. */
void tree_leave(struct tree *t, const struct tree_meta *is);
/* A file, all holes; tree_file_end() gives it its name, or tree_close() removes it. */
void tree_file(struct tree *t, const char *name, const struct tree_meta *is, u64 size);
void tree_file_data(struct tree *t, const void *data, size_t len, u64 offset);
void tree_file_end(struct tree *t);
void tree_link(struct tree *t, const char *name, const struct tree_meta *is, const char *to);
void tree_remove(struct tree *t, const char *name);
/* What the caller did not do, said like the rest: "PATH/NAME: WHY"; tree_note() does not count. */
void tree_left(struct tree *t, const char *name, const char *why);
void tree_note(struct tree *t, const char *name, const char *why);

/* Entries that were written or removed, and those that could not be. */
struct tree_counts {
    u64 done, left;
};
struct tree_counts tree_counts(const struct tree *t);

#endif
