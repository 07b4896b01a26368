/*
 * What reprise-libvirt prints of a domain: the options of `record` that it becomes, and what of it
 * does not become one (domain_table.def). Printed there, read and checked here: it has read
 * somebody's XML, and is believed in nothing but that.
 */
#ifndef REPRISE_HOST_DOMAIN_TABLE_H
#define REPRISE_HOST_DOMAIN_TABLE_H

#include <stdio.h>

#include "base/err.h"

#define DOMAIN_TABLE_VERSION "1"
#define DOMAIN_TABLE_MAX     (1u << 20) /* bytes */
#define DOMAIN_TABLE_ROWS    1024u
#define DOMAIN_TABLE_FIELDS  3u

enum domain_row_kind {
#define DOMAIN_ROW(ID, word, fields, most, doc) DOMAIN_##ID,
#include "host/domain_table.def"
    DOMAIN_ROW_KINDS
};

struct domain_row {
    enum domain_row_kind kind;
    const char *field[DOMAIN_TABLE_FIELDS];
};

struct domain_table {
    char *text; /* the fields are in it */
    struct domain_row *row;
    size_t n;
};

/* Prints a row; NULL fields are "". Control characters become "?", bytes that are no UTF-8 stay. */
void domain_row_print(FILE *out, enum domain_row_kind kind, const char *a, const char *b,
                      const char *c);

/*
 * Takes a table apart. Refused with -EPROTO and a text: no table from its first row to its last,
 * rows and options that there are none of, or too many of, control characters in fields.
 */
int domain_table_read(struct domain_table *t, const char *text, size_t size, struct err *err);
void domain_table_free(struct domain_table *t); /* safe on zeros */

/* The field of the first row of that kind; NULL: none. */
const char *domain_table_one(const struct domain_table *t, enum domain_row_kind kind);

#endif
