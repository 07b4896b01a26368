/* A directory that has links out of it, and what is outside, for those who make files of what a
 * hostile side sends. */
#ifndef REPRISE_FUZZ_HOSTILE_PLACE_H
#define REPRISE_FUZZ_HOSTILE_PLACE_H

extern char hostile_inside[64]; /* the directory, once it was filled */
#define HOSTILE_NAMES 16u
extern const char *const hostile_names[HOSTILE_NAMES]; /* of what is in it, and others */

/* Makes all of it anew. What is said on stderr is gone from then on. */
void hostile_place_fill(void);
/* Aborts if something outside was touched, a file has a set-user-ID bit, or one that is not whole
 * is left. */
void hostile_place_check(void);

#endif
