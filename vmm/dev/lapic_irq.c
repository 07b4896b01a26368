/*
 * How interrupts come into the local APIC and leave it: messages, IPIs, local sources, priorities,
 * EOI, errors. Intel SDM vol. 3, sections 11.5 to 11.8, 11.11 and 11.12.9 to 11.12.11.
 *
 * NMI, INIT and start-up IPIs leave through env->event, the end of a level-triggered interrupt
 * through env->eoi. SMI does not exist on this machine. An interrupt message of type ExtINT is
 * dropped: the 8259s are wired to LINT0.
 */
#include "dev/lapic_internal.h"

#define MSI_WINDOW    0xfee
#define MSI_LOGICAL   0x4u
#define TRIGGER_LEVEL 0x8000u
#define ASSERT        0x4000u

#define ICR_LOGICAL   0x0800u
#define ICR_SHORTHAND 0xc0000u
#define ICR_SELF      0x40000u
#define ICR_ALL       0x80000u
#define ICR_OTHERS    0xc0000u

static int highest(const u32 *set)
{
    for (int i = 7; i >= 0; i--)
        if (set[i])
            return i * 32 + 31 - __builtin_clz(set[i]);
    return -1;
}

static void set_bit(u32 *set, u8 v)
{
    set[v >> 5] |= 1u << (v & 31);
}

static void clear_bit(u32 *set, u8 v)
{
    set[v >> 5] &= ~(1u << (v & 31));
}

static bool test_bit(const u32 *set, u8 v)
{
    return set[v >> 5] >> (v & 31) & 1;
}

u32 lapic_ppr(const struct lapic_state *s)
{
    int in_service = highest(s->isr);
    u32 service_class = in_service < 0 ? 0 : (u32)in_service & 0xf0;
    return (s->tpr & 0xf0) >= service_class ? s->tpr : service_class;
}

int lapic_pending(const struct device *dev)
{
    const struct lapic_state *s = dev->state;
    int vector = highest(s->irr);
    if (vector < 0 || !(s->base & BASE_ENABLE))
        return -1;
    return ((u32)vector & 0xf0) > (lapic_ppr(s) & 0xf0) ? vector : -1;
}

void lapic_accept(struct device *dev, u8 vector)
{
    struct lapic_state *s = dev->state;
    clear_bit(s->irr, vector);
    set_bit(s->isr, vector);
    dev_changed(dev);
}

/* An error is reported once; writing ESR arms the report again. */
void lapic_error(struct device *dev, u32 bit)
{
    struct lapic_state *s = dev->state;
    bool first = !s->errors;
    s->errors |= bit;
    if (first)
        lapic_local(dev, LVT_ERROR);
}

static bool accept_fixed(struct device *dev, u8 vector, bool level)
{
    struct lapic_state *s = dev->state;
    if (!lapic_software_enabled(s))
        return false;
    if (vector < 16) {
        lapic_error(dev, ESR_RECV_ILLEGAL);
        return false;
    }
    set_bit(s->irr, vector);
    if (level)
        set_bit(s->tmr, vector);
    else
        clear_bit(s->tmr, vector);
    dev_changed(dev);
    return true;
}

/* A message or IPI that is meant for this APIC. */
static void accept(struct device *dev, u8 vector, u32 delivery, bool level)
{
    const struct lapic_state *s = dev->state;
    switch (delivery) {
    case DM_FIXED:
    case DM_LOWEST: accept_fixed(dev, vector, level); break;
    case DM_NMI: dev_event(dev, DEV_NMI, s->apic_id); break;
    case DM_INIT: dev_event(dev, DEV_INIT, s->apic_id); break;
    case DM_SIPI: dev_event(dev, DEV_SIPI, s->apic_id << 8 | vector); break;
    default: break;
    }
}

/* ---- destinations ---- */

u32 lapic_x2_ldr(const struct lapic_state *s)
{
    return (s->apic_id >> 4 & 0xffff) << 16 | 1u << (s->apic_id & 15);
}

/* `dest` has 8 bits if it came in a message or an xAPIC's ICR, and 32 in an x2APIC's ICR. */
static bool is_destination(const struct lapic_state *s, u32 dest, bool logical, bool wide)
{
    if (dest == (wide ? 0xffffffffu : 0xffu))
        return true;
    if (!logical)
        return dest == (lapic_is_x2(s) ? s->apic_id : s->apic_id & 0xff);
    if (lapic_is_x2(s)) {
        u32 ldr = lapic_x2_ldr(s);
        return dest >> 16 == ldr >> 16 && (dest & ldr & 0xffff);
    }
    u32 id = s->ldr >> 24;
    if (s->dfr >> 28 == 0xf)
        return dest & id;
    return dest >> 4 == id >> 4 && (dest & id & 0xf);
}

static bool is_meant(const struct lapic_state *s, const struct lapic_message *msg)
{
    return (s->base & BASE_ENABLE) &&
           (msg->all || is_destination(s, msg->dest, msg->logical, msg->wide));
}

bool lapic_message(struct lapic_message *out, u64 addr, u32 data)
{
    bool level = data & TRIGGER_LEVEL;
    *out = (struct lapic_message){.dest = addr >> 12 & 0xff,
                                  .delivery = data & LVT_DELIVERY,
                                  .vector = (u8)data,
                                  .logical = addr & MSI_LOGICAL,
                                  .level = level};
    /* De-assertion of a level: nothing to deliver. */
    return addr >> 20 == MSI_WINDOW && (!level || (data & ASSERT));
}

void lapic_take(struct device *dev, const struct lapic_message *msg)
{
    if (is_meant(dev->state, msg))
        accept(dev, msg->vector, msg->delivery, msg->level);
}

bool lapic_may_take(const struct device *dev, const struct lapic_message *msg, u32 *priority)
{
    const struct lapic_state *s = dev->state;
    *priority = lapic_ppr(s);
    return msg->delivery == DM_LOWEST && lapic_software_enabled(s) && is_meant(s, msg);
}

/* Sends what ICR holds. Without others, what is not for this APIC is for nobody. */
void lapic_send_ipi(struct device *dev)
{
    const struct lapic_state *s = dev->state;
    u32 low = (u32)s->icr, shorthand = low & ICR_SHORTHAND;
    /* IPIs are edges whatever the trigger bit says. */
    const struct lapic_message msg = {.dest = (u32)(s->icr >> (lapic_is_x2(s) ? 32 : 56)),
                                      .delivery = low & LVT_DELIVERY,
                                      .vector = (u8)low,
                                      .logical = low & ICR_LOGICAL,
                                      .wide = lapic_is_x2(s),
                                      .all = low & ICR_ALL}; /* ... or all others */
    bool fixed = msg.delivery == DM_FIXED || msg.delivery == DM_LOWEST;

    if (fixed && msg.vector < 16) {
        lapic_error(dev, ESR_SEND_ILLEGAL);
        return;
    }
    /* INIT level de-assert only ever synchronised arbitration IDs. */
    if (msg.delivery == DM_INIT && (low & TRIGGER_LEVEL) && !(low & ASSERT))
        return;
    if (msg.delivery == DM_EXTINT)
        return; /* reserved in ICR */
    if ((shorthand == ICR_SELF || shorthand == ICR_ALL) && msg.delivery != DM_FIXED)
        return; /* table 11-3: other combinations are invalid */
    if (shorthand == ICR_SELF)
        accept(dev, msg.vector, msg.delivery, false);
    else if (dev->env->ipi)
        dev->env->ipi(dev->env->machine, &msg, shorthand == ICR_OTHERS ? s->apic_id : LAPIC_NOBODY);
    else if (shorthand != ICR_OTHERS)
        lapic_take(dev, &msg);
}

void lapic_self_ipi(struct device *dev, u8 vector)
{
    if (vector < 16)
        lapic_error(dev, ESR_SEND_ILLEGAL);
    else
        accept_fixed(dev, vector, false);
}

/* ---- local sources ---- */

void lapic_local(struct device *dev, unsigned entry)
{
    struct lapic_state *s = dev->state;
    u32 lvt = s->lvt[entry];
    if (lvt & LVT_MASKED)
        return;
    bool has_mode = entry != LVT_TIMER && entry != LVT_ERROR;
    u32 delivery = has_mode ? lvt & LVT_DELIVERY : DM_FIXED;
    /* Only LINT0 and LINT1 can be levels; LOWEST and SIPI are not delivery modes of an LVT. */
    bool level = (entry == LVT_LINT0 || entry == LVT_LINT1) && (lvt & LVT_LEVEL);
    if (delivery == DM_LOWEST || delivery == DM_SIPI)
        return;
    if (delivery != DM_FIXED) {
        accept(dev, 0, delivery, false);
        return;
    }
    if (level && (lvt & LVT_REMOTE_IRR))
        return;
    if (accept_fixed(dev, (u8)lvt, level) && level)
        s->lvt[entry] |= LVT_REMOTE_IRR;
}

/* A level-triggered pin that is asserted interrupts as soon as it is allowed to. */
void lapic_lint_sample(struct device *dev, unsigned pin)
{
    const struct lapic_state *s = dev->state;
    u32 lvt = s->lvt[LVT_LINT0 + pin];
    if (s->lint[pin] && (lvt & LVT_LEVEL) && (lvt & LVT_DELIVERY) == DM_FIXED)
        lapic_local(dev, LVT_LINT0 + pin);
}

void lapic_lint(struct device *dev, unsigned pin, bool level)
{
    struct lapic_state *s = dev->state;
    if (pin > 1)
        return;
    bool rising = level && !s->lint[pin];
    s->lint[pin] = level;
    if (rising && !(s->base & BASE_ENABLE)) {
        if (pin == 1)
            dev_event(dev, DEV_NMI, s->apic_id); /* without an APIC, LINT1 is the NMI pin */
    } else if (rising) {
        lapic_local(dev, LVT_LINT0 + pin);
    }
    dev_changed(dev);
}

void lapic_pmi(struct device *dev, bool mask)
{
    struct lapic_state *s = dev->state;
    if (!(s->base & BASE_ENABLE) || (s->lvt[LVT_PERF] & LVT_MASKED))
        return;
    lapic_local(dev, LVT_PERF);
    if (mask)
        s->lvt[LVT_PERF] |= LVT_MASKED;
    dev_changed(dev);
}

bool lapic_accepts_extint(const struct device *dev)
{
    const struct lapic_state *s = dev->state;
    if (!(s->base & BASE_ENABLE))
        return true;
    u32 lvt = s->lvt[LVT_LINT0];
    return lapic_software_enabled(s) && !(lvt & LVT_MASKED) && (lvt & LVT_DELIVERY) == DM_EXTINT;
}

void lapic_end_of_interrupt(struct device *dev)
{
    struct lapic_state *s = dev->state;
    int in_service = highest(s->isr);
    if (in_service < 0)
        return;
    u8 vector = (u8)in_service;
    clear_bit(s->isr, vector);
    dev_changed(dev);
    if (!test_bit(s->tmr, vector))
        return;
    for (unsigned pin = 0; pin < 2; pin++) {
        u32 *lvt = &s->lvt[LVT_LINT0 + pin];
        if ((*lvt & LVT_REMOTE_IRR) && (u8)*lvt == vector) {
            *lvt &= ~LVT_REMOTE_IRR;
            lapic_lint_sample(dev, pin);
        }
    }
    if (!(s->svr & SVR_NO_BCAST))
        dev->env->eoi(dev->env->machine, vector);
}
