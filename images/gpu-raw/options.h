/* The words that gpu-raw and gpu-mesa's triangle know. */
#ifndef GPU_RAW_OPTIONS_H
#define GPU_RAW_OPTIONS_H

#include "base/types.h"

/* How the programs end. */
enum status { RIGHT, WRONG_PIXELS, BAD_WORD, NO_3D, REFUSED };

struct options {
    u32 frames; /* 0: without end */
    u32 every;  /* each so many frames are checked, the first, the last and the planted one too */
    u32 planted, width, height, random;
    u64 seed;
    bool wrong, flood;
};

/* The words into o, which has the defaults; wrong: those for wrong requests are known too. Says
 * which word is none, and returns BAD_WORD. */
enum status options_parse(struct options *o, const char *name, bool wrong, int count, char **words);

/* Whether frame n, from 1, is to be checked. */
bool options_check(const struct options *o, u32 n);

/* Seconds since an arbitrary moment: in a guest, since power-on. */
double options_now(void);

#endif
