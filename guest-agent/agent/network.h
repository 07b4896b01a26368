/*
 * The program's network: the host says which addresses it has, so that no time goes by with asking.
 */
#ifndef REPRISE_AGENT_NETWORK_H
#define REPRISE_AGENT_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

#include "guest-agent/agent/protocol.h"

/* Addresses for the card, a way out, and a name server, in this process' root; `resolver` is an
 * empty file that becomes its /etc/resolv.conf. Comes back once the link is up. An address of 0:
 * there is none, and nothing is done. False: `why` (`size` bytes) says what could not be done. */
bool network_begin(const struct agent_network *n, int resolver, char *why, size_t size);

#endif
