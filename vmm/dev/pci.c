/* The PCI host bridge (pci.h). No nondeterminism enters here. */
#include "dev/pci.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "dev/making.h"
#include "dev/util.h"

#define CONFIG_ADDRESS 0xcf8u
#define CONFIG_DATA    0xcfcu
#define ADDRESS_ENABLE 0x80000000u

#define PCI_STATE(F, A)                                                                            \
    F(u32, address)                                                                                \
    F(u16, intx) /* slots whose interrupt pin is asserted */                                       \
    A(u8, config, PCI_SLOTS *PCI_CONFIG_SIZE)

STATE(pci, "pci", PCI_STATE);

/* The state comes first, so that a device's state is also this. */
struct pci {
    struct pci_state st;
    struct pci_function function[PCI_SLOTS]; /* dev NULL: empty slot */
};

static struct pci *self(const struct device *dev)
{
    return dev->state;
}

static u8 *config_of(const struct device *dev, unsigned slot)
{
    return self(dev)->st.config + slot * PCI_CONFIG_SIZE;
}

const u8 *pci_config(const struct device *pci, unsigned slot)
{
    return config_of(pci, slot);
}

void pci_config_set(struct device *pci, unsigned slot, unsigned offset, const void *bytes,
                    unsigned n)
{
    CHECK(slot && offset + n <= PCI_CONFIG_SIZE, "slot %u offset %u", slot, offset);
    memcpy(config_of(pci, slot) + offset, bytes, n);
}

/* 8086:1237, "440FX host bridge": what drivers for host bridges know and leave alone. */
static const u8 bridge_config[PCI_CONFIG_SIZE] = {0x86, 0x80, 0x37, 0x12, 0x07, 0x00,
                                                  0x80, 0x02, 0x02, 0x00, 0x00, 0x06};
static const u8 bridge_writable[PCI_CONFIG_SIZE];

static bool present(const struct pci *p, unsigned slot)
{
    return slot == 0 || p->function[slot].dev;
}

static u32 default_bar(unsigned slot)
{
    return (u32)PCI_WINDOW + slot * 0x100000u;
}

static void pci_reset(struct device *dev)
{
    struct pci *p = self(dev);
    p->st.address = 0;
    p->st.intx = 0;
    for (unsigned s = 0; s < PCI_SLOTS; s++) {
        u8 *c = config_of(dev, s);
        memset(c, 0xff, PCI_CONFIG_SIZE);
        if (!present(p, s))
            continue;
        memcpy(c, s ? p->function[s].config : bridge_config, PCI_CONFIG_SIZE);
        if (p->function[s].bar_size)
            put32(c + PCI_BAR0, default_bar(s));
    }
}

void pci_add(struct device *pci, unsigned slot, const struct pci_function *f)
{
    struct pci *p = self(pci);
    CHECK(slot > 0 && slot < PCI_SLOTS && !p->function[slot].dev, "PCI slot %u", slot);
    p->function[slot] = *f;
    pci_reset(pci);
}

bool pci_may_write(const struct device *pci, unsigned slot)
{
    return get16(config_of(pci, slot) + PCI_COMMAND) & PCI_COMMAND_MASTER;
}

/* ---- interrupt pins ---- */

static void drive(struct device *dev, unsigned line)
{
    struct pci *p = self(dev);
    bool level = false;
    for (unsigned s = line; s < PCI_SLOTS; s += 8)
        level |=
            (p->st.intx >> s & 1) && !(get16(config_of(dev, s) + PCI_COMMAND) & PCI_COMMAND_NOINTX);
    dev_irq(dev, PCI_GSI_FIRST + line, level);
}

void pci_set_intx(struct device *pci, unsigned slot, bool level)
{
    struct pci *p = self(pci);
    u8 *status = config_of(pci, slot) + PCI_STATUS;
    p->st.intx = (u16)((p->st.intx & ~(1u << slot)) | (unsigned)level << slot);
    *status = (u8)((*status & ~8) | (level ? 8 : 0));
    drive(pci, slot % 8);
}

/* ---- configuration space ---- */

static void config_write(struct device *dev, unsigned slot, unsigned offset, unsigned size,
                         u32 value)
{
    struct pci *p = self(dev);
    const struct pci_function *f = &p->function[slot];
    const u8 *mask = slot ? f->writable : bridge_writable;
    u8 *c = config_of(dev, slot);
    for (unsigned i = 0; i < size; i++) {
        unsigned at = offset + i;
        u8 m = mask[at];
        if (f->bar_size && at >= PCI_BAR0 && at < PCI_BAR0 + 4)
            m = (u8)(~(f->bar_size - 1) >> (8 * (at - PCI_BAR0)));
        c[at] = (u8)((c[at] & ~m) | ((value >> (8 * i)) & m));
    }
    drive(dev, slot % 8);
    if (f->config_written)
        f->config_written(f->dev, offset, size);
}

/* The slot and offset that the address register names; false: nothing answers. */
static bool decode(struct device *dev, u16 port, unsigned *slot, unsigned *offset)
{
    struct pci *p = self(dev);
    u32 a = p->st.address;
    *slot = a >> 11 & 31;
    *offset = (a & 0xfc) + (port - CONFIG_DATA);
    return (a & ADDRESS_ENABLE) && !(a & 0x00ff0700u) && *slot < PCI_SLOTS && present(p, *slot);
}

static u32 pci_pio_read(struct device *dev, u16 port, unsigned size)
{
    struct pci *p = self(dev);
    unsigned slot, offset;
    u32 v = 0;
    if (port == CONFIG_ADDRESS && size == 4)
        return p->st.address;
    if (port < CONFIG_DATA || port + size > CONFIG_DATA + 4 || !decode(dev, port, &slot, &offset))
        return ~0u;
    if (slot && p->function[slot].config_reading)
        p->function[slot].config_reading(p->function[slot].dev, offset, size);
    for (unsigned i = 0; i < size; i++)
        v |= (u32)config_of(dev, slot)[offset + i] << (8 * i);
    return v;
}

static void pci_pio_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    struct pci *p = self(dev);
    unsigned slot, offset;
    if (port == CONFIG_ADDRESS && size == 4)
        p->st.address = value & 0x80fffffcu;
    else if (port >= CONFIG_DATA && port + size <= CONFIG_DATA + 4 &&
             decode(dev, port, &slot, &offset))
        config_write(dev, slot, offset, size, value);
}

/* ---- memory ---- */

/* The function whose BAR holds all of the access. */
static const struct pci_function *find(struct device *dev, gpa_t gpa, unsigned size, u32 *offset)
{
    struct pci *p = self(dev);
    for (unsigned s = 1; s < PCI_SLOTS; s++) {
        const struct pci_function *f = &p->function[s];
        const u8 *c = config_of(dev, s);
        u64 bar = get32(c + PCI_BAR0) & ~0xfu;
        if (f->dev && f->bar_size && (get16(c + PCI_COMMAND) & PCI_COMMAND_MEMORY) &&
            gpa - bar < f->bar_size && gpa - bar + size <= f->bar_size) {
            *offset = (u32)(gpa - bar);
            return f;
        }
    }
    return NULL;
}

static u64 pci_mmio_read(struct device *dev, gpa_t offset, unsigned size)
{
    u32 at;
    const struct pci_function *f = find(dev, PCI_WINDOW + offset, size, &at);
    return f ? f->read(f->dev, at, size) : ~0ull;
}

static void pci_mmio_write(struct device *dev, gpa_t offset, unsigned size, u64 value)
{
    u32 at;
    const struct pci_function *f = find(dev, PCI_WINDOW + offset, size, &at);
    if (f)
        f->write(f->dev, at, size, value);
}

static int pci_loaded(struct device *dev, struct err *err)
{
    struct pci *p = self(dev);
    for (unsigned s = 1; s < PCI_SLOTS; s++) {
        const struct pci_function *f = &p->function[s];
        const u8 *c = config_of(dev, s);
        for (unsigned i = 0; f->dev && i < PCI_CONFIG_SIZE; i++) {
            bool bar = f->bar_size && i >= PCI_BAR0 && i < PCI_BAR0 + 4;
            bool status = i == PCI_STATUS;
            if (!bar && !status && (c[i] ^ f->config[i]) & (u8)~f->writable[i])
                return dev_bad_state(dev, err, "configuration space");
        }
    }
    return p->st.address & ~0x80fffffcu ? dev_bad_state(dev, err, "address") : 0;
}

/* The address register answers to its own port only: 0xcf9 is the reset register (acpi_pm.c). */
static const struct io_range pci_ranges[] = {
    {PCI_WINDOW, PCI_WINDOW_SIZE, true}, {CONFIG_ADDRESS, 1, false}, {CONFIG_DATA, 4, false}};

static const struct device_ops pci_ops = {
    .name = "pci",
    .state = &pci_desc,
    .ranges = pci_ranges,
    .nranges = ARRAY_SIZE(pci_ranges),
    .reset = pci_reset,
    .pio_read = pci_pio_read,
    .pio_write = pci_pio_write,
    .mmio_read = pci_mmio_read,
    .mmio_write = pci_mmio_write,
    .loaded = pci_loaded,
};

int pci_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &pci_ops, env, sizeof(struct pci), err);
}

MAKER(pci, pci_create)
