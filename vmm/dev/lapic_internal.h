/* State and registers of the local APIC, shared by lapic*.c and nobody else. */
#ifndef REPRISE_DEV_LAPIC_INTERNAL_H
#define REPRISE_DEV_LAPIC_INTERNAL_H

#include "dev/lapic.h"
#include "dev/util.h"

/* Register numbers: offset in the xAPIC window / 16, or MSR - 0x800. */
enum {
    APIC_ID = 0x02,
    APIC_VERSION = 0x03,
    APIC_TPR = 0x08,
    APIC_APR = 0x09,
    APIC_PPR = 0x0a,
    APIC_EOI = 0x0b,
    APIC_RRD = 0x0c,
    APIC_LDR = 0x0d,
    APIC_DFR = 0x0e,
    APIC_SVR = 0x0f,
    APIC_ISR = 0x10,
    APIC_TMR = 0x18,
    APIC_IRR = 0x20,
    APIC_ESR = 0x28,
    APIC_ICR = 0x30,
    APIC_ICR_HIGH = 0x31,
    APIC_LVT = 0x32,
    APIC_LVT_LAST = 0x37,
    APIC_TMICT = 0x38,
    APIC_TMCCT = 0x39,
    APIC_TDCR = 0x3e,
    APIC_SELF_IPI = 0x3f,
};

/* The local vector table in register order. */
enum { LVT_TIMER, LVT_THERMAL, LVT_PERF, LVT_LINT0, LVT_LINT1, LVT_ERROR, LVT_COUNT };

#define LVT_VECTOR     0x000000ffu
#define LVT_DELIVERY   0x00000700u
#define LVT_POLARITY   0x00002000u
#define LVT_REMOTE_IRR 0x00004000u
#define LVT_LEVEL      0x00008000u
#define LVT_MASKED     0x00010000u
#define LVT_MODE       0x00060000u
#define LVT_PERIODIC   0x00020000u
#define LVT_DEADLINE   0x00040000u

/* Delivery modes, where messages, ICR and LVT have them (bits 8 to 10). */
#define DM_FIXED  0x000u
#define DM_LOWEST 0x100u
#define DM_NMI    0x400u
#define DM_INIT   0x500u
#define DM_SIPI   0x600u
#define DM_EXTINT 0x700u

#define SVR_ENABLE   0x0100u
#define SVR_NO_BCAST 0x1000u
#define SVR_ALL      0x11ffu

#define ESR_SEND_ILLEGAL 0x20u
#define ESR_RECV_ILLEGAL 0x40u
#define ESR_REGISTER     0x80u

#define BASE_BSP    (1ull << 8)
#define BASE_X2APIC (1ull << 10)
#define BASE_ENABLE (1ull << 11)

#define LAPIC_STATE(F, A)                                                                          \
    F(u64, base) /* IA32_APIC_BASE */                                                              \
    F(u64, icr)                                                                                    \
    F(u32, apic_id)                                                                                \
    F(u32, tpr)                                                                                    \
    F(u32, ldr) /* xAPIC; x2APIC derives it from the ID */                                         \
    F(u32, dfr)                                                                                    \
    F(u32, svr)                                                                                    \
    F(u32, esr)    /* as read */                                                                   \
    F(u32, errors) /* since the last write of ESR */                                               \
    A(u32, isr, 8)                                                                                 \
    A(u32, tmr, 8)                                                                                 \
    A(u32, irr, 8)                                                                                 \
    A(u32, lvt, LVT_COUNT)                                                                         \
    A(u8, lint, 2) /* pin levels */                                                                \
    F(u32, tmict)                                                                                  \
    F(u32, tdcr)                                                                                   \
    F(u32, count) /* timer count at `start` */                                                     \
    F(u64, start)                                                                                  \
    F(u64, due)          /* when the timer fires next */                                           \
    F(u64, tsc_deadline) /* IA32_TSC_DEADLINE; 0: not armed */                                     \
    F(u64, tsc_adjust)

STATE_STRUCT(lapic, LAPIC_STATE);

static inline bool lapic_is_x2(const struct lapic_state *s)
{
    return s->base & BASE_X2APIC;
}

static inline bool lapic_software_enabled(const struct lapic_state *s)
{
    return s->svr & SVR_ENABLE;
}

/* lapic_irq.c: delivery */
u32 lapic_ppr(const struct lapic_state *s);
u32 lapic_x2_ldr(const struct lapic_state *s);
void lapic_error(struct device *dev, u32 bit);
void lapic_local(struct device *dev, unsigned entry); /* an LVT source fires */
void lapic_lint_sample(struct device *dev, unsigned pin);
void lapic_end_of_interrupt(struct device *dev);
void lapic_send_ipi(struct device *dev);
void lapic_self_ipi(struct device *dev, u8 vector);

/* lapic_timer.c */
void lapic_timer_reset(struct lapic_state *s);
void lapic_timer_sync(struct device *dev, vns_t now);
vns_t lapic_timer_deadline(const struct device *dev);
u32 lapic_timer_count(const struct lapic_state *s, vns_t now);
void lapic_timer_set_count(struct device *dev, u32 v);
void lapic_timer_set_divider(struct device *dev, u32 v);
void lapic_timer_set_lvt(struct device *dev, u32 v); /* `v` is already masked */
u64 lapic_timer_get_deadline(struct device *dev);
void lapic_timer_set_deadline(struct device *dev, u64 tsc);

#endif
