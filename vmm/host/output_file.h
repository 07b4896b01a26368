/*
 * A file that a command writes: private (0600), under a name of its own beside `path` until it is
 * complete, so that it is whole or not there. Core dumps, screenshots, captures, images and all
 * else that a user names with -o.
 */
#ifndef REPRISE_HOST_OUTPUT_FILE_H
#define REPRISE_HOST_OUTPUT_FILE_H

#include <stdio.h>

#include "base/err.h"

struct output_file {
    FILE *file; /* NULL when not open */
    char *path;
    char *name, *temporary; /* in `dir` */
    int dir;
    bool replace;
    int outside; /* its number with the process that gives it its name (outside.h); -1: none */
};
#define OUTPUT_CLOSED ((struct output_file){.dir = -1, .outside = -1})

/* -EEXIST with a text if there is a file and not `replace`, or something that is no file. */
int output_open(struct output_file *o, const char *path, bool replace, struct err *err);
/* Flushes and gives the file its name; on an error nothing is left. Closes in every case. */
int output_commit(struct output_file *o, struct err *err);
/* Removes what was written; safe on OUTPUT_CLOSED, on zeros and after output_commit. */
void output_discard(struct output_file *o);

/* The same in this very process, for outside.c. output_name_here: 0 or -errno. */
int output_open_here(struct output_file *o, const char *path, bool replace, struct err *err);
int output_name_here(struct output_file *o);
void output_discard_here(struct output_file *o);

#endif
