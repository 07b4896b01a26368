/*
 * What libvirt says of a domain. Its library is loaded here, in a process of its own, and no other
 * one has it: it connects, starts programs (ssh) and has threads. What it says goes through a pipe.
 */
#ifndef REPRISE_LIBVIRT_FETCH_H
#define REPRISE_LIBVIRT_FETCH_H

#include <stdio.h>

#include "base/err.h"

#define FETCH_NAMES 1000u /* of other domains */

struct fetched {
    char *xml, *networks; /* of the domain; "<networks>...", or NULL */
    size_t size, networks_size;
    char *uri; /* as libvirt has it */
    bool running;
    char *refused;            /* why there is no XML: a sentence; NULL: there is */
    char *names[FETCH_NAMES]; /* of domains that there are, if the one is not */
    unsigned n;
};

/* `where`: "[URI/]DOMAIN". An error is one of this host; what libvirt said is in `refused`. */
int fetch_domain(struct fetched *f, const char *where, struct err *err);
void fetch_free(struct fetched *f); /* safe on zeros */

#endif
