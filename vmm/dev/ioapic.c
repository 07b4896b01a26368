/*
 * I/O APIC with 24 redirection entries at 0xfec00000, version 0x20 (with the EOI register).
 * Specification: Intel 82093AA data sheet (290566), section 3; EOI register: Intel I/O Controller
 * Hub 9 data sheet, section 13.5. Interrupts leave as messages (SDM vol. 3, 11.11).
 *
 * As on the 82093AA, an edge on a masked pin is lost, and a level is looked at again when the mask
 * goes away. Pins carry "asserted": polarity is the wiring's business. ExtINT entries send nothing
 * useful here, since the 8259s are wired to LINT0. No nondeterminism enters here.
 */
#include "dev/ioapic.h"
#include "dev/making.h"
#include "dev/util.h"

#define OFF_SELECT 0x00
#define OFF_WINDOW 0x10
#define OFF_EOI    0x40

#define IDX_ID    0x00
#define IDX_VER   0x01
#define IDX_ARB   0x02
#define IDX_REDIR 0x10

#define VERSION 0x20

#define ID_MASK 0x0f000000u

#define RTE_VECTOR     0xffull
#define RTE_DELIVERY   0x700ull
#define RTE_LOGICAL    (1ull << 11)
#define RTE_REMOTE_IRR (1ull << 14)
#define RTE_LEVEL      (1ull << 15)
#define RTE_MASKED     (1ull << 16)
#define RTE_DEST_SHIFT 56
#define RTE_LOW_WRITE  0x1afffull /* all but delivery status and remote IRR */
#define RTE_HIGH_WRITE 0xff000000u

#define DELIVERY_LOWEST (1ull << 8)

#define MSI_ADDRESS  0xfee00000u
#define MSI_REDIRECT (1u << 3)
#define MSI_LOGICAL  (1u << 2)
#define MSI_ASSERT   (1u << 14)
#define MSI_LEVEL    (1u << 15)

#define IOAPIC_STATE(F, A)                                                                         \
    F(u32, id)                                                                                     \
    F(u32, lines)                                                                                  \
    F(u8, select)                                                                                  \
    A(u64, redir, IOAPIC_PINS)

STATE(ioapic, "ioapic", IOAPIC_STATE);

static void ioapic_reset(struct device *dev)
{
    struct ioapic_state *s = dev->state;
    *s = (struct ioapic_state){0};
    for (unsigned i = 0; i < IOAPIC_PINS; i++)
        s->redir[i] = RTE_MASKED;
}

static void send(struct device *dev, u64 rte)
{
    u32 address = MSI_ADDRESS | (u32)(rte >> RTE_DEST_SHIFT) << 12;
    if (rte & RTE_LOGICAL)
        address |= MSI_LOGICAL;
    if ((rte & RTE_DELIVERY) == DELIVERY_LOWEST)
        address |= MSI_REDIRECT;
    u32 data = (u32)(rte & (RTE_VECTOR | RTE_DELIVERY)) | MSI_ASSERT;
    if (rte & RTE_LEVEL)
        data |= MSI_LEVEL;
    dev->env->msi(dev->env->machine, address, data);
}

/* Only fixed and lowest-priority interrupts are ended by an EOI. */
static bool waits_for_eoi(u64 rte)
{
    return (rte & RTE_LEVEL) && (rte & RTE_DELIVERY) <= DELIVERY_LOWEST;
}

/* Sends a level-triggered pin that is asserted, unmasked and not already at the CPU. */
static void service_level(struct device *dev, unsigned pin)
{
    struct ioapic_state *s = dev->state;
    u64 rte = s->redir[pin];
    if (!(s->lines >> pin & 1) || !(rte & RTE_LEVEL) || (rte & (RTE_MASKED | RTE_REMOTE_IRR)))
        return;
    if (waits_for_eoi(rte))
        s->redir[pin] |= RTE_REMOTE_IRR;
    send(dev, rte);
}

/* Level of a pin (asserted or not; the polarity bit does not invert). */
static void ioapic_set_pin(struct device *dev, unsigned pin, bool level)
{
    struct ioapic_state *s = dev->state;
    if (pin >= IOAPIC_PINS)
        return;
    bool rising = level && !(s->lines >> pin & 1);
    s->lines = (s->lines & ~(1u << pin)) | (u32)level << pin;
    u64 rte = s->redir[pin];
    if (!rising || (rte & RTE_MASKED))
        return;
    if (rte & RTE_LEVEL)
        service_level(dev, pin);
    else
        send(dev, rte);
}

void ioapic_set_irq(struct device *dev, unsigned line, bool level)
{
    ioapic_set_pin(dev, line == 0 ? 2 : line, level);
}

void ioapic_eoi(struct device *dev, u8 vector)
{
    struct ioapic_state *s = dev->state;
    for (unsigned i = 0; i < IOAPIC_PINS; i++) {
        u64 rte = s->redir[i];
        if (!(rte & RTE_LEVEL) || !(rte & RTE_REMOTE_IRR) || (rte & RTE_VECTOR) != vector)
            continue;
        s->redir[i] &= ~RTE_REMOTE_IRR;
        service_level(dev, i);
    }
}

static u32 read_register(const struct ioapic_state *s)
{
    unsigned entry = (s->select - IDX_REDIR) / 2u;
    switch (s->select) {
    case IDX_ID: return s->id;
    case IDX_VER: return (IOAPIC_PINS - 1) << 16 | VERSION;
    case IDX_ARB: return s->id; /* no arbitration bus: loaded with the ID and never rotates */
    default: break;
    }
    if (s->select < IDX_REDIR || entry >= IOAPIC_PINS)
        return 0;
    return (u32)(s->redir[entry] >> (s->select & 1 ? 32 : 0));
}

static void write_register(struct device *dev, u32 v)
{
    struct ioapic_state *s = dev->state;
    unsigned entry = (s->select - IDX_REDIR) / 2u;
    if (s->select == IDX_ID)
        s->id = v & ID_MASK;
    if (s->select < IDX_REDIR || entry >= IOAPIC_PINS)
        return;
    u64 *rte = &s->redir[entry];
    if (s->select & 1) {
        *rte = (*rte & 0xffffffffu) | (u64)(v & RTE_HIGH_WRITE) << 32;
        return;
    }
    *rte = (*rte & ~RTE_LOW_WRITE) | (v & RTE_LOW_WRITE);
    /* An edge-triggered entry has no remote IRR: the way to clear it without an EOI. */
    if (!(*rte & RTE_LEVEL))
        *rte &= ~RTE_REMOTE_IRR;
    service_level(dev, entry);
}

static u64 ioapic_read(struct device *dev, gpa_t offset, unsigned size)
{
    const struct ioapic_state *s = dev->state;
    u32 v;
    switch (offset) {
    case OFF_SELECT: v = s->select; break;
    case OFF_WINDOW: v = read_register(s); break;
    case OFF_EOI: return 0; /* write-only */
    default: return size >= 8 ? NEVER : (1ull << (8 * size)) - 1;
    }
    return size >= 4 ? v : v & ((1u << (8 * size)) - 1);
}

static void ioapic_write(struct device *dev, gpa_t offset, unsigned size, u64 value)
{
    struct ioapic_state *s = dev->state;
    if (offset == OFF_SELECT)
        s->select = (u8)value;
    else if (offset == OFF_WINDOW && size >= 4)
        write_register(dev, (u32)value);
    else if (offset == OFF_EOI)
        ioapic_eoi(dev, (u8)value);
}

static int ioapic_loaded(struct device *dev, struct err *err)
{
    const struct ioapic_state *s = dev->state;
    if (s->id & ~ID_MASK || s->lines >> IOAPIC_PINS)
        return dev_bad_state(dev, err, "id or lines");
    for (unsigned i = 0; i < IOAPIC_PINS; i++) {
        u64 ok = RTE_LOW_WRITE | RTE_REMOTE_IRR | (u64)RTE_HIGH_WRITE << 32;
        u64 rte = s->redir[i];
        if (rte & ~ok || ((rte & RTE_REMOTE_IRR) && !(rte & RTE_LEVEL)))
            return dev_bad_state(dev, err, "redir");
    }
    return 0;
}

static const struct io_range ioapic_ranges[] = {{IOAPIC_BASE, IOAPIC_SIZE, true}};

static const struct device_ops ioapic_ops = {
    .name = "ioapic",
    .state = &ioapic_desc,
    .ranges = ioapic_ranges,
    .nranges = ARRAY_SIZE(ioapic_ranges),
    .reset = ioapic_reset,
    .mmio_read = ioapic_read,
    .mmio_write = ioapic_write,
    .loaded = ioapic_loaded,
};

int ioapic_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &ioapic_ops, env, sizeof(struct ioapic_state), err);
}

MAKER(ioapic, ioapic_create)
