/*
 * Rules of system call filters (libseccomp) that hold for more than one sandbox: calls that are
 * harmless with some arguments and a way out with others. For host/sandbox.c, host/confine.c,
 * reprise-net and reprise-gpu.
 *
 * Each adds rules to a filter; 0 or -errno. calls_allow_*() are for filters that list what there
 * is, calls_forbid_*() for those that list what there is not (EACCES then).
 */
#ifndef REPRISE_BASE_CALLS_H
#define REPRISE_BASE_CALLS_H

#include <seccomp.h>

/* Commands of fcntl() on one's own descriptors: none that has signals sent. */
int calls_allow_fcntl(scmp_filter_ctx f);
/* Besides: signals from a descriptor, to this process only. The filter is for the process that
 * calls this. A terminal's signals go to its foreground processes, whoever asks for them. */
int calls_allow_own_signals(scmp_filter_ctx f);
/* sendto() and sendmsg() to the peer that there is. Holds with no socket for datagrams open, as
 * sendmsg() has its address in memory, which a filter does not see. */
int calls_allow_send(scmp_filter_ctx f);
/* socketpair() of kinds whose peer cannot be another than the pair's. */
int calls_allow_pairs(scmp_filter_ctx f);

/* sendto() with an address, connections by sending, pairs of sockets. */
int calls_forbid_addresses(scmp_filter_ctx f);
/* Signals from descriptors, to whomever: fcntl() and ioctl(); and typing into a terminal. */
int calls_forbid_signals(scmp_filter_ctx f);

#endif
