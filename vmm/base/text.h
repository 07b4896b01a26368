/*
 * Texts that others wrote (guests, recordings, images), made fit for a terminal: a control
 * character in a name must not become a command to it. What a guest prints on its console is no
 * such text: it is handed on as it was, like any terminal's. And file names, fit for a shell.
 */
#ifndef REPRISE_TEXT_H
#define REPRISE_TEXT_H

#include <stdio.h>

#include "base/types.h"

/* Without what would control a terminal, as far as it fits; returns `out`. */
char *text_printable(const char *text, char *out, size_t size);
/* The same in place; newlines and tabs stay. */
void text_clean(char *text);

/* In place: what is not printable ASCII becomes "?", newlines and tabs too. */
void text_ascii(char *text);

/* What stands behind the last / of a path: all of it if there is none. */
const char *text_base_name(const char *path);

/* A file name as a shell takes it, for the commands that we suggest. */
void text_put_quoted(FILE *out, const char *name);
/* The same of any word of a command line, options too. */
void text_put_word(FILE *out, const char *word);

/* A stream that hands on to `to`, buffered, with control characters other than newline and tab as
 * "?". Closing it leaves `to` open. NULL: no memory. */
FILE *text_guard(FILE *to);

#endif
