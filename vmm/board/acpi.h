/*
 * ACPI 6.x tables of the fixed machine: RSDP, XSDT, FADT (full ACPI, not hardware-reduced), FACS,
 * MADT, DSDT (vmm/board/dsdt.asl, compiled by iasl at build time). Written to the ROM area.
 */
#ifndef REPRISE_ACPI_H
#define REPRISE_ACPI_H

#include "board/ram.h"
#include "cpu/model.h"

/* Fixed hardware, shared with vmm/dev/acpi_pm.c and dsdt.asl. */
#define ACPI_PM1_EVT 0x600 /* PM1a_EVT_BLK, 4 bytes */
#define ACPI_PM1_CNT 0x604 /* PM1a_CNT_BLK, 2 bytes */
#define ACPI_PM_TMR  0x608 /* 4 bytes, 3.579545 MHz, 32 bits */
#define ACPI_GPE0    0x620 /* 4 bytes: status, enable */
#define ACPI_RESET   0xcf9
#define ACPI_SCI_GSI 9
#define ACPI_SMI_CMD 0xb2 /* ACPI enable/disable */
#define DEBUG_EXIT   0xf4

/* Values the tables tell the guest to write; vmm/dev/acpi_pm.c acts on them. */
#define ACPI_ENABLE_CMD  0xf1 /* to ACPI_SMI_CMD: SCI_EN becomes 1 */
#define ACPI_DISABLE_CMD 0xf0 /* to ACPI_SMI_CMD: SCI_EN becomes 0 */
#define ACPI_RESET_VALUE 0x06 /* to ACPI_RESET (bits 1 and 2: full reset) */
#define ACPI_SLP_TYP_S5  5    /* SLP_TYP of \_S5 in dsdt.asl: power off */

/* The VM generation ID, in a page of its own (generation.asl), and the event that says it changed.
 */
#define ACPI_GENERATION      0xef000ull
#define ACPI_GENERATION_SIZE 16u
#define ACPI_GENERATION_GPE  0u

/* Writes all tables at ACPI_BASE; returns the RSDP's address. There are 1 to ACPI_MAX_CPUS CPUs.
 * `generation`: the ID, ACPI_GENERATION_SIZE bytes; NULL: the machine has none. */
#define ACPI_BASE     0xe0000ull
#define ACPI_MAX_CPUS 64

gpa_t acpi_build(struct ram *ram, const struct cpu_parts *cpus, const u8 *generation);
/* The generation ID that follows from a seed. */
void acpi_generation(u64 seed, u8 out[ACPI_GENERATION_SIZE]);

#endif
