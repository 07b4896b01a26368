/* See pace.h. */
#include "live/pace.h"

/*
 * Host and virtual time may be this far apart before pacing forgets the difference. Less, and small
 * oversleeping adds up over a `sleep`; more, and a guest that was slow for a while would hurry
 * through its next sleeps to catch up.
 */
#define PACE_SLACK_NS 20000000

void pace_rebase(struct pace *p, u64 host, vns_t virtual)
{
    i64 lag = (i64)(host - p->host) - (i64)(virtual - p->virtual);
    if (lag > PACE_SLACK_NS || lag < -PACE_SLACK_NS)
        *p = (struct pace){host, virtual};
}

u64 pace_host_time(const struct pace *p, vns_t t)
{
    if (t == NEVER)
        return NEVER;
    /* t may lie before the base by up to the slack. */
    u64 host = p->host + (t - p->virtual);
    return t >= p->virtual && host < p->host ? NEVER : host;
}

vns_t pace_virtual_time(const struct pace *p, u64 host, vns_t lowest, vns_t highest)
{
    i64 t = (i64)(p->virtual + (host - p->host));
    return t < (i64)lowest ? lowest : (vns_t)t > highest ? highest : (vns_t)t;
}

void pace_stopped(struct pace *p, u64 ns)
{
    p->host += ns;
}
