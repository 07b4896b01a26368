/* A CPU's local APIC: xAPIC window, x2APIC registers, timer. */
#ifndef REPRISE_DEV_LAPIC_H
#define REPRISE_DEV_LAPIC_H

#include "dev/device.h"

#define LAPIC_BASE 0xfee00000u
#define LAPIC_SIZE 0x1000u

#define MSR_APIC_BASE    0x1bu
#define MSR_TSC_DEADLINE 0x6e0u
#define MSR_X2APIC_FIRST 0x800u
#define MSR_X2APIC_LAST  0x8ffu

int lapic_create(struct device *dev, const struct dev_env *env, struct err *err);

/* MSRs 0x1b, 0x6e0 and 0x800 to 0x8ff; false: #GP, nothing changed (also for any other MSR). */
bool lapic_rdmsr(struct device *dev, u32 msr, u64 *value);
bool lapic_wrmsr(struct device *dev, u32 msr, u64 value);

/* An interrupt on its way to the APICs: a message of the I/O APIC or a PCI device, or what an
 * APIC's ICR held. */
struct lapic_message {
    u32 dest;     /* 8 bits, or 32 of an x2APIC's ICR */
    u32 delivery; /* its mode, where an LVT entry has it */
    u8 vector;
    bool logical, wide, level;
    bool all; /* whatever dest says */
};
#define LAPIC_NOBODY 0xffffffffu /* no APIC's ID: that of all */

/* What a write of `data` to `addr` sends; false: nothing. */
bool lapic_message(struct lapic_message *out, u64 addr, u32 data);
/* Taken if this APIC is a destination. */
void lapic_take(struct device *dev, const struct lapic_message *msg);
/* Is it one, of a message for which one of several is chosen (SDM vol. 3, 11.6.2.4)? Then its
 * priority goes to *priority. */
bool lapic_may_take(const struct device *dev, const struct lapic_message *msg, u32 *priority);

/* The vector that would interrupt the CPU now, or -1. */
int lapic_pending(const struct device *dev);
/* The CPU takes `vector`: IRR to ISR. */
void lapic_accept(struct device *dev, u8 vector);
/* The 8259s' INTR reaches the CPU: LINT0 is an unmasked ExtINT, or there is no APIC in the way. */
bool lapic_accepts_extint(const struct device *dev);

u64 lapic_get_cr8(const struct device *dev);
void lapic_set_cr8(struct device *dev, u64 value);

/* Level of LINT0 or LINT1. */
void lapic_lint(struct device *dev, unsigned pin, bool level);

/* A performance counter overflowed: what its LVT entry says; then it is masked, if `mask`
 * (SDM vol. 3, 11.5.1). */
void lapic_pmi(struct device *dev, bool mask);

/* IA32_APIC_BASE's enable bit: CPUID.1:EDX.APIC follows it. */
bool lapic_enabled(const struct device *dev);
/* Its APIC id, as an x2APIC's 32 bits. */
u32 lapic_id(const struct device *dev);
/* The xAPIC window answers at `gpa`. */
bool lapic_mmio_active(const struct device *dev, gpa_t gpa);

/* TSC = now + adjust, for the timer's TSC-deadline mode. */
void lapic_set_tsc_adjust(struct device *dev, u64 adjust);

/* The CPU received INIT: registers as after reset, IA32_APIC_BASE kept (SDM vol. 3, 11.4.7.3). */
void lapic_init_reset(struct device *dev);

#endif
