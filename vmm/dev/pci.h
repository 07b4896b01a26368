/*
 * The PCI host bridge and bus 0 (PCI Local Bus 3.0; configuration mechanism #1): 16 slots with one
 * function each, each with at most one memory BAR. Interrupt pin A of slot n is GSI 16 + n % 8.
 *
 * A function is a device of its own behind the bus: it gives its configuration space and what is
 * behind its BAR; the bus owns the configuration bytes (they are saved with it), decodes addresses
 * and routes. Slot 0 is the bridge itself.
 */
#ifndef REPRISE_DEV_PCI_H
#define REPRISE_DEV_PCI_H

#include "dev/device.h"

#define PCI_SLOTS       16u
#define PCI_SLOT_FREE   255u /* in devices.def */
#define PCI_CONFIG_SIZE 256u
/* The bridge's window for memory BARs; board/dsdt.asl says it too. */
#define PCI_WINDOW      0xe0000000ull
#define PCI_WINDOW_SIZE 0x10000000ull
#define PCI_GSI_FIRST   16u

/* Offsets in configuration space (PCI 3.0, 6.1). */
#define PCI_COMMAND        0x04
#define PCI_COMMAND_MEMORY 0x0002u
#define PCI_COMMAND_MASTER 0x0004u
#define PCI_COMMAND_NOINTX 0x0400u
#define PCI_STATUS         0x06
#define PCI_BAR0           0x10

struct pci_function {
    struct device *dev; /* whose reads and writes these are */
    const u8 *config;   /* PCI_CONFIG_SIZE bytes at reset */
    const u8 *writable; /* which bits of them the guest may change; not BAR 0 */
    u32 bar_size;       /* of BAR 0: 32-bit memory, a power of two; 0: none */
    u64 (*read)(struct device *dev, u32 offset, unsigned size); /* in BAR 0 */
    void (*write)(struct device *dev, u32 offset, unsigned size, u64 value);
    /* Before the guest reads these bytes, after it wrote them; each may be NULL. */
    void (*config_reading)(struct device *dev, unsigned offset, unsigned size);
    void (*config_written)(struct device *dev, unsigned offset, unsigned size);
};

int pci_create(struct device *dev, const struct dev_env *env, struct err *err);
/* At creation, before the machine runs. `f` is copied; its slot's BAR gets an address. */
void pci_add(struct device *pci, unsigned slot, const struct pci_function *f);

/* The function's configuration bytes. */
const u8 *pci_config(const struct device *pci, unsigned slot);
/* The function changes bytes of its own that the guest may write. */
void pci_config_set(struct device *pci, unsigned slot, unsigned offset, const void *bytes,
                    unsigned n);
/* May the function write memory and send messages (bus master)? */
bool pci_may_write(const struct device *pci, unsigned slot);
/* Level of the function's interrupt pin. */
void pci_set_intx(struct device *pci, unsigned slot, bool level);

#endif
