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
