/*
 * The local APIC's timer: one-shot, periodic and TSC-deadline. Intel SDM vol. 3, 11.5.4. Its clock
 * is the 25 MHz crystal of CPUID leaf 0x15, 40 ns of virtual time before the divider.
 *
 * The count is a function of time since `start`. A timer whose LVT entry is masked needs no
 * deadline: whoever looks brings it forward first (lapic_timer_sync), in one step however many
 * periods have passed.
 */
#include "dev/lapic_internal.h"
#include "cpu/model.h"

#define CRYSTAL_NS (NS_PER_S / (u32)APIC_HZ)

static u64 tick_ns(const struct lapic_state *s)
{
    unsigned code = (s->tdcr & 3) | (s->tdcr >> 1 & 4);
    return (u64)CRYSTAL_NS << (code == 7 ? 0 : code + 1);
}

static bool deadline_mode(const struct lapic_state *s)
{
    return (s->lvt[LVT_TIMER] & LVT_MODE) == LVT_DEADLINE;
}

static bool periodic(const struct lapic_state *s)
{
    return (s->lvt[LVT_TIMER] & LVT_MODE) == LVT_PERIODIC;
}

void lapic_timer_reset(struct lapic_state *s)
{
    s->tmict = s->tdcr = s->count = 0;
    s->start = 0;
    s->due = NEVER;
    s->tsc_deadline = 0;
}

/* Counts down from `count`, beginning now. */
static void start_count(struct lapic_state *s, u32 count, vns_t now)
{
    s->count = count;
    s->start = now;
    s->due = count ? add_sat(now, count * tick_ns(s)) : NEVER;
}

void lapic_timer_sync(struct device *dev, vns_t now)
{
    struct lapic_state *s = dev->state;
    if (s->due > now || s->due == NEVER)
        return;
    if (deadline_mode(s)) {
        s->tsc_deadline = 0;
        s->due = NEVER;
    } else if (periodic(s) && s->tmict) {
        u64 period = s->tmict * tick_ns(s);
        u64 last = now - (now - s->due) % period;
        start_count(s, s->tmict, last);
    } else {
        start_count(s, 0, now);
    }
    lapic_local(dev, LVT_TIMER);
}

vns_t lapic_timer_deadline(const struct device *dev)
{
    const struct lapic_state *s = dev->state;
    return s->lvt[LVT_TIMER] & LVT_MASKED ? NEVER : s->due;
}

u32 lapic_timer_count(const struct lapic_state *s, vns_t now)
{
    if (deadline_mode(s) || !s->count || now < s->start)
        return s->count;
    u64 gone = (now - s->start) / tick_ns(s);
    return gone >= s->count ? 0 : s->count - (u32)gone;
}

void lapic_timer_set_count(struct device *dev, u32 v)
{
    struct lapic_state *s = dev->state;
    if (deadline_mode(s))
        return; /* ignored in this mode */
    lapic_timer_sync(dev, dev_now(dev));
    s->tmict = v;
    start_count(s, v, dev_now(dev));
}

void lapic_timer_set_divider(struct device *dev, u32 v)
{
    struct lapic_state *s = dev->state;
    vns_t now = dev_now(dev);
    lapic_timer_sync(dev, now);
    u32 left = lapic_timer_count(s, now);
    s->tdcr = v & 0x0b;
    if (!deadline_mode(s) && left)
        start_count(s, left, now);
}

void lapic_timer_set_lvt(struct device *dev, u32 v)
{
    struct lapic_state *s = dev->state;
    lapic_timer_sync(dev, dev_now(dev));
    bool was_deadline = deadline_mode(s);
    s->lvt[LVT_TIMER] = v;
    /* Going to or from TSC-deadline mode disarms the timer. */
    if (deadline_mode(s) != was_deadline) {
        s->tmict = s->count = 0;
        s->due = NEVER;
        s->tsc_deadline = 0;
    }
}

/* Sets `due` from the deadline; one that has passed fires now. */
static void arm(struct device *dev)
{
    struct lapic_state *s = dev->state;
    vns_t now = dev_now(dev);
    u64 tsc = now + s->tsc_adjust;
    s->due = NEVER;
    if (!s->tsc_deadline)
        return;
    s->due = s->tsc_deadline <= tsc ? now : dev_late(dev, add_sat(now, s->tsc_deadline - tsc));
    lapic_timer_sync(dev, now);
}

u64 lapic_timer_get_deadline(struct device *dev)
{
    const struct lapic_state *s = dev->state;
    lapic_timer_sync(dev, dev_now(dev));
    return s->tsc_deadline;
}

void lapic_timer_set_deadline(struct device *dev, u64 tsc)
{
    struct lapic_state *s = dev->state;
    if (!deadline_mode(s))
        return; /* ignored in the other modes */
    lapic_timer_sync(dev, dev_now(dev));
    s->tsc_deadline = tsc;
    arm(dev);
    dev_changed(dev);
}

void lapic_set_tsc_adjust(struct device *dev, u64 adjust)
{
    struct lapic_state *s = dev->state;
    lapic_timer_sync(dev, dev_now(dev));
    s->tsc_adjust = adjust;
    if (deadline_mode(s)) {
        arm(dev);
        dev_changed(dev);
    }
}
