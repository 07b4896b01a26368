/*
 * reprise-net, the companion that has libslirp and the sockets of a `--net user`, so that neither
 * is in the machine's process. What the guest sends is hostile, and so may the host's peers be; a
 * companion that was taken over can do what the guest's network may do, and nothing else
 * (sandbox.c).
 */
#ifndef REPRISE_NETD_H
#define REPRISE_NETD_H

#include <poll.h>

#include "host/net_protocol.h"

/* nat.c: libslirp, its timers and sockets. `out` gets each frame for the guest. */
struct nat;
typedef void nat_out(void *opaque, const void *frame, size_t len);
/* Opens what is to be listened at. NULL: hello->step, error and forward say why. Once a process. */
struct nat *nat_create(const struct netd_start *start, struct netd_hello *hello, nat_out *out,
                       void *opaque);
/* A frame from the guest; what is answered at once goes out before it returns. */
void nat_input(struct nat *n, const void *frame, size_t len);
/* What to wait for: fills (*fds)[first..), its own memory, and leaves those before to the caller;
 * returns the number of all. *until (host_ns) is lowered. */
unsigned nat_prepare(struct nat *n, struct pollfd **fds, unsigned first, u64 *until);
/* ... and what came of it, right after the wait. NULL: nothing is ready. */
void nat_serve(struct nat *n, const struct pollfd *fds, unsigned count);

/* The version of libslirp. */
const char *nat_version(void);

/* resolv.c: keeps /etc/resolv.conf open for libslirp. Before the sandbox. */
void resolv_open(void);

/* sandbox.c: from here on no file is opened, no program is started, no other process is touched;
 * of sockets there are what NAT needs, with `restricted` only those that there are already. False:
 * errno says why. There is no way back. */
bool sandbox_enter(bool restricted);
/* Tries what must not be possible, each in a child of its own that enters the sandbox first;
 * returns how much of it was, and says so on stderr. For --check. */
unsigned sandbox_probe(bool restricted);

#endif
