/* The renderer's side of the protocol: takes requests off the socket until the client is gone. */
#ifndef REPRISE_GPU_SERVE_H
#define REPRISE_GPU_SERVE_H

#include "virtio-gpu-log/renderer/host.h"

/* `wrong`: what kept the host from being created; told to the client in place of a greeting.
 * Returns the exit status. */
int serve(int fd, struct host *h, const char *wrong);

#endif
