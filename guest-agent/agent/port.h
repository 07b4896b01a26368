/* The port of the virtio console that is named AGENT_PORT. */
#ifndef REPRISE_AGENT_PORT_H
#define REPRISE_AGENT_PORT_H

/* Opens it. -1: errno says why not; ENODEV: there is none (yet). */
int port_open(void);

#endif
