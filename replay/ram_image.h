/* RAM of a machine as a page image (base/page_image.h), kept up by what was written since: for
 * whoever takes or compares checkpoints. */
#ifndef REPRISE_RAM_IMAGE_H
#define REPRISE_RAM_IMAGE_H

#include "base/page_image.h"
#include "machine/machine.h"

/* RAM as it is; from now on what is written is tracked. */
int ram_image_take(struct page_image **out, struct page_store *store, struct machine *m,
                   struct err *err);
/* *image becomes RAM as it is now; tracking starts anew. After an error it is as before. */
int ram_image_update(struct page_image **image, struct machine *m, struct err *err);

#endif
