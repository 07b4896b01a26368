/*
 * The local APIC of one CPU: registers through the xAPIC window and the x2APIC MSRs, IA32_APIC_BASE
 * and its modes. Intel SDM vol. 3, chapter 11 (11.4 xAPIC, 11.12 x2APIC). Delivery is in
 * lapic_irq.c, the timer in lapic_timer.c.
 *
 * Version 0x14, six LVT entries (no CMCI), EOI-broadcast suppression. An access to the window that
 * is not an aligned dword is undefined by the SDM; here reads give the bytes and writes are
 * dropped. Everything follows from the guest's actions and virtual time: no nondeterminism.
 */
#include "dev/lapic_internal.h"
#include "dev/making.h"
#include "cpu/model.h"

#include <stdio.h>
#include <string.h>

#define VERSION (1u << 24 | (LVT_COUNT - 1) << 16 | 0x14u)

STATE_DESC(lapic, "lapic", LAPIC_STATE);

/* Bits a guest can write; in x2APIC mode any other than the read-only ones is #GP. */
static const u32 lvt_writable[LVT_COUNT] = {
    [LVT_TIMER] = LVT_VECTOR | LVT_MASKED | LVT_MODE,
    [LVT_THERMAL] = LVT_VECTOR | LVT_DELIVERY | LVT_MASKED,
    [LVT_PERF] = LVT_VECTOR | LVT_DELIVERY | LVT_MASKED,
    [LVT_LINT0] = LVT_VECTOR | LVT_DELIVERY | LVT_POLARITY | LVT_LEVEL | LVT_MASKED,
    [LVT_LINT1] = LVT_VECTOR | LVT_DELIVERY | LVT_POLARITY | LVT_LEVEL | LVT_MASKED,
    [LVT_ERROR] = LVT_VECTOR | LVT_MASKED,
};
#define LVT_READ_ONLY (0x1000u | LVT_REMOTE_IRR)

#define ICR_WRITABLE 0xccfffu /* low half; bit 12, delivery status, is always idle */
#define ICR_STATUS   0x1000u

/* Registers as after power-up or INIT; the ID and IA32_APIC_BASE are not among them. */
static void reset_registers(struct lapic_state *s)
{
    s->icr = 0;
    s->tpr = s->ldr = s->esr = s->errors = 0;
    s->dfr = 0xffffffffu;
    s->svr = 0xff;
    memset(s->isr, 0, sizeof(s->isr));
    memset(s->tmr, 0, sizeof(s->tmr));
    memset(s->irr, 0, sizeof(s->irr));
    for (unsigned i = 0; i < LVT_COUNT; i++)
        s->lvt[i] = LVT_MASKED;
    lapic_timer_reset(s);
}

static void lapic_reset(struct device *dev)
{
    struct lapic_state *s = dev->state;
    memset(s, 0, sizeof(*s));
    s->base = LAPIC_BASE | BASE_ENABLE | BASE_BSP;
    reset_registers(s);
}

void lapic_init_reset(struct device *dev)
{
    reset_registers(dev->state);
    dev_changed(dev);
}

/* ---- registers, numbered alike in the window and as MSRs ---- */

static u32 read_register(struct device *dev, unsigned reg)
{
    struct lapic_state *s = dev->state;
    bool x2 = lapic_is_x2(s);
    switch (reg) {
    case APIC_ID: return x2 ? s->apic_id : s->apic_id << 24;
    case APIC_VERSION: return VERSION;
    case APIC_TPR: return s->tpr;
    case APIC_PPR: return lapic_ppr(s);
    case APIC_LDR: return x2 ? lapic_x2_ldr(s) : s->ldr;
    case APIC_DFR: return s->dfr;
    case APIC_SVR: return s->svr;
    case APIC_ESR: return s->esr;
    case APIC_ICR: return (u32)s->icr;
    case APIC_ICR_HIGH: return (u32)(s->icr >> 32);
    case APIC_TMICT: return s->tmict;
    case APIC_TMCCT: lapic_timer_sync(dev, dev_now(dev)); return lapic_timer_count(s, dev_now(dev));
    case APIC_TDCR: return s->tdcr;
    default: break;
    }
    if (reg >= APIC_ISR && reg < APIC_TMR)
        return s->isr[reg - APIC_ISR];
    if (reg >= APIC_TMR && reg < APIC_IRR)
        return s->tmr[reg - APIC_TMR];
    if (reg >= APIC_IRR && reg < APIC_ESR)
        return s->irr[reg - APIC_IRR];
    if (reg >= APIC_LVT && reg <= APIC_LVT_LAST)
        return s->lvt[reg - APIC_LVT];
    return 0;
}

static void write_lvt(struct device *dev, unsigned entry, u32 v)
{
    struct lapic_state *s = dev->state;
    v &= lvt_writable[entry];
    if (!lapic_software_enabled(s))
        v |= LVT_MASKED;
    if (entry == LVT_TIMER) {
        lapic_timer_set_lvt(dev, v);
        return;
    }
    /* Remote IRR belongs to a fixed level; nothing else would ever clear it. */
    if ((v & LVT_LEVEL) && (v & LVT_DELIVERY) == DM_FIXED)
        v |= s->lvt[entry] & LVT_REMOTE_IRR;
    s->lvt[entry] = v;
    if (entry == LVT_LINT0 || entry == LVT_LINT1)
        lapic_lint_sample(dev, entry - LVT_LINT0);
}

static void write_svr(struct device *dev, u32 v)
{
    struct lapic_state *s = dev->state;
    if (!(v & SVR_ENABLE)) {
        lapic_timer_sync(dev, dev_now(dev)); /* what is due was due before the mask */
        for (unsigned i = 0; i < LVT_COUNT; i++)
            s->lvt[i] |= LVT_MASKED;
    }
    s->svr = v & SVR_ALL;
}

/* False if there is no such register to write (an error in the window, #GP as an MSR). */
static bool write_register(struct device *dev, unsigned reg, u32 v)
{
    struct lapic_state *s = dev->state;
    switch (reg) {
    case APIC_TPR: s->tpr = v & 0xff; return true;
    case APIC_EOI: lapic_end_of_interrupt(dev); return true;
    case APIC_SVR: write_svr(dev, v); return true;
    case APIC_ESR:
        s->esr = s->errors;
        s->errors = 0;
        return true;
    case APIC_ICR:
        s->icr = (s->icr & ~0xffffffffull) | (v & ICR_WRITABLE);
        lapic_send_ipi(dev);
        return true;
    case APIC_TMICT: lapic_timer_set_count(dev, v); return true;
    case APIC_TDCR: lapic_timer_set_divider(dev, v); return true;
    default: break;
    }
    if (reg < APIC_LVT || reg > APIC_LVT_LAST)
        return false;
    write_lvt(dev, reg - APIC_LVT, v);
    return true;
}

/* ---- xAPIC window ---- */

static bool window_register(unsigned reg)
{
    return reg == APIC_ID || reg == APIC_VERSION || (reg >= APIC_TPR && reg <= APIC_ESR) ||
           (reg >= APIC_ICR && reg <= APIC_TMCCT) || reg == APIC_TDCR;
}

static u64 lapic_read(struct device *dev, gpa_t offset, unsigned size)
{
    const struct lapic_state *s = dev->state;
    unsigned reg = (unsigned)(offset & (LAPIC_SIZE - 1)) >> 4, byte = offset & 15;
    u64 v = 0;
    if (window_register(reg)) {
        if (byte < 4)
            v = (u64)read_register(dev, reg) >> (8 * byte);
    } else if (s->base & BASE_ENABLE) {
        lapic_error(dev, ESR_REGISTER);
    }
    dev_changed(dev); /* reading the count may have fired a masked timer; cheap */
    return size >= 8 ? v : v & ((1ull << (8 * size)) - 1);
}

static void lapic_write(struct device *dev, gpa_t offset, unsigned size, u64 value)
{
    struct lapic_state *s = dev->state;
    unsigned reg = (unsigned)(offset & (LAPIC_SIZE - 1)) >> 4;
    u32 v = (u32)value;
    if (size < 4 || (offset & 15))
        return;
    switch (reg) {
    case APIC_LDR: s->ldr = v & 0xff000000u; break;
    case APIC_DFR: s->dfr = v | 0x0fffffffu; break;
    case APIC_ICR_HIGH: s->icr = (s->icr & 0xffffffffu) | (u64)(v & 0xff000000u) << 32; break;
    default:
        if (!write_register(dev, reg, v) && !window_register(reg))
            lapic_error(dev, ESR_REGISTER);
        break;
    }
    dev_changed(dev);
}

/* ---- MSRs ---- */

static bool write_base(struct device *dev, u64 v)
{
    struct lapic_state *s = dev->state;
    u64 page = ((1ull << CPU_PHYS_BITS) - 1) & ~(u64)(LAPIC_SIZE - 1);
    u64 mode = BASE_ENABLE | BASE_X2APIC;
    u64 from = s->base & mode, to = v & mode;
    if (v & ~(page | mode | BASE_BSP))
        return false;
    /* Table 11-5: x2APIC is entered from xAPIC only and left to "disabled" only. */
    if (to == BASE_X2APIC || (from == 0 && to == mode) || (from == mode && to == BASE_ENABLE))
        return false;
    s->base = v;
    if (!to && from)
        reset_registers(s);
    else if (to == mode && from != mode)
        s->icr &= 0xffffffffu; /* the destination's format changes */
    dev_changed(dev);
    return true;
}

static bool x2_readable(unsigned reg)
{
    return window_register(reg) && reg != APIC_APR && reg != APIC_EOI && reg != APIC_RRD &&
           reg != APIC_DFR && reg != APIC_ICR_HIGH;
}

/* Bits that may be set in a write of a register, 0 if all must be zero; -1 when not writable. */
static i64 x2_allowed(unsigned reg)
{
    switch (reg) {
    case APIC_TPR:
    case APIC_SELF_IPI: return 0xff;
    case APIC_EOI:
    case APIC_ESR: return 0;
    case APIC_SVR: return SVR_ALL;
    case APIC_TMICT: return 0xffffffff;
    case APIC_TDCR: return 0x0b;
    default: break;
    }
    if (reg < APIC_LVT || reg > APIC_LVT_LAST)
        return -1;
    u32 read_only = reg - APIC_LVT == LVT_LINT0 || reg - APIC_LVT == LVT_LINT1
                        ? LVT_READ_ONLY
                        : LVT_READ_ONLY & ~LVT_REMOTE_IRR;
    return lvt_writable[reg - APIC_LVT] | read_only;
}

static bool x2_write(struct device *dev, unsigned reg, u64 v)
{
    struct lapic_state *s = dev->state;
    if (reg == APIC_ICR) {
        if ((u32)v & ~(ICR_WRITABLE | ICR_STATUS))
            return false;
        s->icr = v & ~(u64)ICR_STATUS;
        lapic_send_ipi(dev);
        return true;
    }
    i64 allowed = x2_allowed(reg);
    if (allowed < 0 || v & ~(u64)allowed)
        return false;
    if (reg == APIC_SELF_IPI) {
        lapic_self_ipi(dev, (u8)v);
        return true;
    }
    return write_register(dev, reg, (u32)v);
}

bool lapic_rdmsr(struct device *dev, u32 msr, u64 *value)
{
    struct lapic_state *s = dev->state;
    if (msr == MSR_APIC_BASE) {
        *value = s->base;
        return true;
    }
    if (msr == MSR_TSC_DEADLINE) {
        *value = lapic_timer_get_deadline(dev);
        return true;
    }
    if (msr < MSR_X2APIC_FIRST || msr > MSR_X2APIC_LAST || !lapic_is_x2(s))
        return false;
    unsigned reg = msr - MSR_X2APIC_FIRST;
    if (!x2_readable(reg))
        return false;
    *value = reg == APIC_ICR ? s->icr : read_register(dev, reg);
    dev_changed(dev);
    return true;
}

bool lapic_wrmsr(struct device *dev, u32 msr, u64 value)
{
    const struct lapic_state *s = dev->state;
    if (msr == MSR_APIC_BASE)
        return write_base(dev, value);
    if (msr == MSR_TSC_DEADLINE) {
        lapic_timer_set_deadline(dev, value);
        return true;
    }
    if (msr < MSR_X2APIC_FIRST || msr > MSR_X2APIC_LAST || !lapic_is_x2(s))
        return false;
    bool ok = x2_write(dev, msr - MSR_X2APIC_FIRST, value);
    dev_changed(dev);
    return ok;
}

/* ---- the CPU's side ---- */

u64 lapic_get_cr8(const struct device *dev)
{
    const struct lapic_state *s = dev->state;
    return s->tpr >> 4;
}

void lapic_set_cr8(struct device *dev, u64 value)
{
    struct lapic_state *s = dev->state;
    s->tpr = (u32)(value & 15) << 4;
    dev_changed(dev);
}

u32 lapic_id(const struct device *dev)
{
    const struct lapic_state *s = dev->state;
    return s->apic_id;
}

bool lapic_enabled(const struct device *dev)
{
    const struct lapic_state *s = dev->state;
    return s->base & BASE_ENABLE;
}

bool lapic_mmio_active(const struct device *dev, gpa_t gpa)
{
    const struct lapic_state *s = dev->state;
    gpa_t page = s->base & ~(u64)(LAPIC_SIZE - 1);
    return lapic_enabled(dev) && !lapic_is_x2(s) && (gpa & ~(u64)(LAPIC_SIZE - 1)) == page;
}

static void lapic_expire(struct device *dev, vns_t now)
{
    lapic_timer_sync(dev, now);
    dev_changed(dev);
}

static int lapic_loaded(struct device *dev, struct err *err)
{
    const struct lapic_state *s = dev->state;
    u64 page = ((1ull << CPU_PHYS_BITS) - 1) & ~(u64)(LAPIC_SIZE - 1);
    if (s->base & ~(page | BASE_ENABLE | BASE_X2APIC | BASE_BSP) ||
        (s->base & (BASE_ENABLE | BASE_X2APIC)) == BASE_X2APIC)
        return dev_bad_state(dev, err, "base");
    if (s->tpr > 0xff || s->svr & ~SVR_ALL || s->tdcr & ~0x0bu || s->icr & 0xfff33000u)
        return dev_bad_state(dev, err, "register");
    for (unsigned i = 0; i < LVT_COUNT; i++)
        if (s->lvt[i] & ~(lvt_writable[i] | LVT_REMOTE_IRR))
            return dev_bad_state(dev, err, "lvt");
    if (s->irr[0] & 0xffff || s->lint[0] > 1 || s->lint[1] > 1)
        return dev_bad_state(dev, err, "irr or lint");
    if (s->due != NEVER && s->due < s->start)
        return dev_bad_state(dev, err, "due");
    return 0;
}

static const struct io_range lapic_ranges[] = {{LAPIC_BASE, LAPIC_SIZE, true}};

static const struct device_ops lapic_ops = {
    .name = "lapic",
    .state = &lapic_desc,
    .ranges = lapic_ranges,
    .nranges = ARRAY_SIZE(lapic_ranges),
    .reset = lapic_reset,
    .mmio_read = lapic_read,
    .mmio_write = lapic_write,
    .deadline = lapic_timer_deadline,
    .expire = lapic_expire,
    .loaded = lapic_loaded,
};

int lapic_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &lapic_ops, env, sizeof(struct lapic_state), err);
}

int make_lapic(struct device *dev, const struct making *w, struct err *err)
{
    int r = lapic_create(dev, w->env, err);
    if (!r && w->unit) {
        struct lapic_state *s = dev->state;
        const struct cpu_parts parts = description_cpu_parts(w->is);
        s->apic_id = cpu_apic_id(&parts, w->unit);
        s->base &= ~BASE_BSP;
        if (w->is->revision >= 5) /* before, all had the same name */
            snprintf(dev->name, sizeof(dev->name), "lapic%u", w->unit);
    }
    return r;
}
