/*
 * The VM generation ID, as Microsoft's "Virtual Machine Generation ID" has it: 16 bytes in memory that are
 * others once the machine goes on in another way than before, and an event that says so. Of machines
 * from revision 3 on. Compiled by iasl at build time (mk/board.mk).
 */
DefinitionBlock ("", "SSDT", 2, "REPRIS", "REPRISE ", 1)
{
    Scope (\_SB)
    {
        Device (VGEN)
        {
            Name (_HID, "REPR0001")
            Name (_CID, "VM_Gen_Counter")
            Name (_DDN, "VM_Gen_Counter")
            /* Low and high half: ACPI_GENERATION of vmm/board/acpi.h. */
            Name (ADDR, Package () { 0x000EF000, 0 })
        }
    }

    Scope (\_GPE)
    {
        /* ACPI_GENERATION_GPE. */
        Method (_E00)
        {
            Notify (\_SB.VGEN, 0x80)
        }
    }
}
