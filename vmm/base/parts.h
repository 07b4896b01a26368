/*
 * Parts of an option's value, ",NAME=VALUE...": a row says of each all that there is to say.
 * Reading them, what is said of a wrong one, and the option's help walk the rows. Any text is safe.
 */
#ifndef REPRISE_PARTS_H
#define REPRISE_PARTS_H

#include <stddef.h>

#include "base/err.h"
#include "base/types.h"

struct part {
    const char *name;
    const char *arg;   /* what the value is, in the help; NULL: there is none */
    const char *takes; /* to who gives another value; NULL: as `arg` */
    const char *help;  /* what follows it in the help; NULL: nothing */
    unsigned of;       /* bits of the kinds that have it; 0: all of them */
    unsigned most;     /* how often it may be given; 0: once */
    /* Stores the value in *field, of `size` bytes; false: it takes another one. */
    bool (*read)(const struct part *p, void *field, const char *value, size_t n);
    size_t offset, size;     /* of the field */
    unsigned least, at_most; /* of part_number */
};

/* Columns of the field that a row is about. */
#define PART_FIELD(type, field) .offset = offsetof(type, field), .size = sizeof(((type *)0)->field)

struct parts {
    const struct part *row;
    unsigned n;               /* at most 32 */
    const char *const *kinds; /* what bit I of `of` is called; NULL: there are none */
    unsigned nkinds;
};

/* Reads `text`, "" or ",PART,PART...", into *to. `kind` is a bit; 0: what all kinds have. `others`
 * is what else is possible here, "a=N, b=N", for who gives no part. -EINVAL with a text. */
int parts_read(const struct parts *parts, unsigned kind, const char *text, const char *others,
               void *to, struct err *err);

/* `text` with those that the kind has in the place of its '%', "a=N (what it is for), b": the doc
 * of an option, for argp's help_filter. The caller frees it; NULL: no memory. */
char *parts_help(const struct parts *parts, unsigned kind, const char *text);

/* Readers. */
bool part_flag(const struct part *p, void *field, const char *value, size_t n);   /* bool */
bool part_on_off(const struct part *p, void *field, const char *value, size_t n); /* bool */
bool part_number(const struct part *p, void *field, const char *value, size_t n); /* u32 */
bool part_text(const struct part *p, void *field, const char *value, size_t n);   /* char[] */

#endif
