/* What was meant: the word that a typo is close to. */
#ifndef REPRISE_NEAREST_H
#define REPRISE_NEAREST_H

#include "base/types.h"

/* The one of `names` (n of them, `stride` bytes apart) that a typo was meant to be; NULL: none. */
const char *text_nearest(const char *typo, const char *const *names, size_t n, size_t stride);

#endif
