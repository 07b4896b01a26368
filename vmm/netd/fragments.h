/*
 * Puts IPv4 fragments (RFC 791, 3.2) together before libslirp sees them: its own reassembly, as
 * Debian 12 builds it (4.7.0), loses a store to the compiler and writes through what a guest sent
 * when the last fragment of a datagram comes first. So it is given none.
 *
 * Any frames are safe. Fragments that overlap are dropped (as RFC 5722 asks for IPv6).
 */
#ifndef REPRISE_NETD_FRAGMENTS_H
#define REPRISE_NETD_FRAGMENTS_H

#include <stddef.h>

#include "base/types.h"

#define FRAGMENTS_DATAGRAMS 8u             /* that are put together at a time */
#define FRAGMENTS_NS        15000000000ull /* what is not whole by then never will be */
#define FRAGMENTS_FRAME_MAX (14u + 65535u) /* of a frame that comes out */

struct fragments; /* large; zeros are an empty one */
size_t fragments_size(void);

/*
 * One Ethernet frame in; returns the length of the frame that is whole now, with *out pointing to
 * it (to `frame`, or into f until the next call), or 0: none. Never an IPv4 fragment. `now` is any
 * clock in ns.
 */
size_t fragments_take(struct fragments *f, const u8 *frame, size_t len, u64 now, const u8 **out);

#endif
