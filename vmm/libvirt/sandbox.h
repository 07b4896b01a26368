/* What reprise-libvirt may still do once it reads XML: compute, and print. */
#ifndef REPRISE_LIBVIRT_SANDBOX_H
#define REPRISE_LIBVIRT_SANDBOX_H

#include "base/err.h"

int sandbox_enter(struct err *err);
/* Tries what must be refused, in children; how much of it was not, told on stderr. */
unsigned sandbox_probe(void);

#endif
