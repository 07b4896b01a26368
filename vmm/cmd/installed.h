/*
 * What belongs to reprise beside its programs: scripts, recipes and guest images. In a source tree
 * they are where they stand there, installed below PREFIX/share/reprise, with images in the user's
 * cache:
 *
 *     build/reprise       images/, build/images/
 *     PREFIX/bin/reprise  PREFIX/share/reprise/images/, $XDG_CACHE_HOME/reprise/images/
 */
#ifndef REPRISE_CMD_INSTALLED_H
#define REPRISE_CMD_INSTALLED_H

#include "base/err.h"

/* Where images are made, malloc'ed: $REPRISE_IMAGES, or as above; NULL with *err. It need not
 * exist. */
char *installed_images(struct err *err);
/* Where the image NAME is: there, or, of programs that lie deeper in build, above. malloc'ed; NULL
 * with a text that says how it is made. */
char *installed_image(const char *name, struct err *err);

/* Becomes the script NAME of ours with these arguments after it (NULL at the end). Returns only
 * with an error, which says where it was looked for. */
int installed_become(const char *name, const char *const *args, struct err *err);

#endif
