/*
 * What came from outside in another recording, given to a machine that begins in it (`record --from
 * DIR --again`): each input at the virtual time at which it came there, or as soon as there is room
 * for it. A feed of the live source. Replies of a renderer and of file servers are not among them:
 * those answer what this machine asks. Nor is what decided the turns of its vCPUs.
 */
#ifndef REPRISE_CMD_AGAIN_H
#define REPRISE_CMD_AGAIN_H

#include "live/feed.h"
#include "replay/log.h"

struct again;

/* Without anything, until again_read(). NULL: no memory. */
struct again *again_create(void);
struct feed *again_feed(struct again *a);
/* All that the log has from here on, which is somebody's: what is damaged in it ends it. */
int again_read(struct again *a, struct log_reader *log, struct err *err);
void again_destroy(struct again *a); /* NULL is safe */

#endif
