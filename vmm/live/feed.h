/*
 * A feed: something of the host, besides the terminal, that gives input while a machine is
 * recorded: a network, the other end of a console port, a file of events. The live source (live.h)
 * waits for its descriptors, lets it serve them, and takes from it what the machine has room for.
 *
 * A feed never touches the machine. What it cannot hand over yet waits in it, bounded.
 */
#ifndef REPRISE_LIVE_FEED_H
#define REPRISE_LIVE_FEED_H

#include <poll.h>

#include "machine/source.h"

struct feed;

struct feed_ops {
    /* Descriptors to wait for: fills fds[0..cap) and returns how many there are, which may be more
     * than cap (it is called again with room). *until (host_ns) is lowered to when it wants to be
     * served at the latest. */
    unsigned (*prepare)(struct feed *f, struct pollfd *fds, unsigned cap, u64 *until);
    /* Serves them; fds as prepare() filled them, with revents. n 0: none is ready. */
    void (*serve)(struct feed *f, const struct pollfd *fds, unsigned n);
    /* Fills *in with its next input, as much of it as the machine has room for now
     * (machine_room); false: none, or no room. It stays until taken. */
    bool (*peek)(struct feed *f, struct machine *m, struct input *in);
    /* What peek() gave was handed over; its bytes stay valid until the next call. */
    void (*taken)(struct feed *f, const struct input *in);
    /* Time is about to jump over what the guest waits for: takes what comes at once as an answer to
     * what the guest sent, and waits for no more than that. NULL: nothing does. */
    void (*settle)(struct feed *f);
    /* Virtual time before which peek() gives nothing, for inputs that have one; NEVER: there is
     * none to come. NULL: host time decides. */
    vns_t (*due)(const struct feed *f);
    /* Virtual time at which peek() is to be called exactly, to look at the machine, although it
     * will give nothing; NEVER, or NULL: no matter. Nobody waits for that: it does not keep a
     * machine from being idle. */
    vns_t (*looks)(const struct feed *f);
    /* May more come, at a time that the host decides? Then an idle machine is paced. */
    bool (*live)(const struct feed *f);
};

struct feed {
    const struct feed_ops *ops;
};

#endif
