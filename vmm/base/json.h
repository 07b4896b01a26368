/* Strings of JSON. */
#ifndef REPRISE_JSON_H
#define REPRISE_JSON_H

#include <stdio.h>

#include "base/types.h"

/* Bytes: each as the code point of its number. */
void json_string(FILE *out, const void *data, size_t len);
/* Text of the host: UTF-8, or else bytes. */
void json_text(FILE *out, const char *text);

#endif
