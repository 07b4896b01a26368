/*
 * The machine's DSDT (ACPI 6.4, 5.2.11.1): what cannot be probed. Compiled by iasl at build time
 * (mk/board.mk). Fixed hardware (PM1, PM timer, reset register) is in the FADT: vmm/board/acpi.c.
 */
DefinitionBlock ("", "DSDT", 2, "REPRIS", "REPRISE ", 1)
{
    /* SLP_TYP of power-off: ACPI_SLP_TYP_S5 of vmm/board/acpi.h. */
    Name (\_S5, Package () { 5, 5, 0, 0 })

    Scope (\_SB)
    {
        Device (COM1)
        {
            Name (_HID, EisaId ("PNP0501"))
            Name (_UID, 1)
            Name (_STA, 0x0F)
            Name (_CRS, ResourceTemplate ()
            {
                IO (Decode16, 0x03F8, 0x03F8, 1, 8)
                IRQNoFlags () { 4 }
            })
        }

        /* vmm/dev/pci.h: one bus, a window for memory BARs, INTA# of slot n on GSI 16 + n % 8. */
        Device (PCI0)
        {
            Name (_HID, EisaId ("PNP0A03"))
            Name (_UID, 0)
            Name (_BBN, 0)
            Name (_CRS, ResourceTemplate ()
            {
                WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode,
                    0, 0, 0, 0, 1)
                IO (Decode16, 0x0CF8, 0x0CF8, 1, 8)
                DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable,
                    ReadWrite, 0, 0xE0000000, 0xEFFFFFFF, 0, 0x10000000)
            })
            Name (_PRT, Package ()
            {
                Package () { 0x0001FFFF, 0, 0, 17 },
                Package () { 0x0002FFFF, 0, 0, 18 },
                Package () { 0x0003FFFF, 0, 0, 19 },
                Package () { 0x0004FFFF, 0, 0, 20 },
                Package () { 0x0005FFFF, 0, 0, 21 },
                Package () { 0x0006FFFF, 0, 0, 22 },
                Package () { 0x0007FFFF, 0, 0, 23 },
                Package () { 0x0008FFFF, 0, 0, 16 },
                Package () { 0x0009FFFF, 0, 0, 17 },
                Package () { 0x000AFFFF, 0, 0, 18 },
                Package () { 0x000BFFFF, 0, 0, 19 },
                Package () { 0x000CFFFF, 0, 0, 20 },
                Package () { 0x000DFFFF, 0, 0, 21 },
                Package () { 0x000EFFFF, 0, 0, 22 },
                Package () { 0x000FFFFF, 0, 0, 23 }
            })
        }

        Device (RTC)
        {
            Name (_HID, EisaId ("PNP0B00"))
            Name (_CRS, ResourceTemplate ()
            {
                IO (Decode16, 0x0070, 0x0070, 1, 2)
                IRQNoFlags () { 8 }
            })
        }
    }
}
