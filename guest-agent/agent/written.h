/*
 * What was changed beneath directories of the host's, sent to it: the layer of memory has that and
 * nothing else, as overlayfs notes it (Documentation/filesystems/overlayfs.rst, "whiteouts and
 * opaque directories").
 */
#ifndef REPRISE_AGENT_WRITTEN_H
#define REPRISE_AGENT_WRITTEN_H

struct talk;

/* Ends all processes but this one, so that nothing changes any more, and sends what `directories`
 * (NULL at the end; none: nothing is done) have in `layer`, a descriptor of root_layer(). */
void written_send(struct talk *t, int layer, char *const *directories);

#endif
