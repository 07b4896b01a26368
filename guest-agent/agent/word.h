/* Files of sysfs, of one word. */
#ifndef REPRISE_AGENT_WORD_H
#define REPRISE_AGENT_WORD_H

#include <stddef.h>

/* The file's bytes without their line's end; "": it is not there. */
void read_word(const char *path, char *out, size_t size);

#endif
