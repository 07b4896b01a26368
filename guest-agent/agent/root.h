/*
 * The program's root: the host's files, with what is written in a layer of memory over them.
 */
#ifndef REPRISE_AGENT_ROOT_H
#define REPRISE_AGENT_ROOT_H

#include <stdbool.h>
#include <stddef.h>

/* Makes it this process' root, with the kernel's file systems of boot(). False: `why` (`size`
 * bytes) says what could not be done. */
bool root_enter(char *why, size_t size);

/* The layer's own directory, opened: what is in it was changed, as overlayfs has it. -1 (errno). */
int root_layer(void);
/* An empty file for whoever may read it, beside that; -1 (errno). */
int root_file(void);

#endif
