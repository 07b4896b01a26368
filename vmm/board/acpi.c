/*
 * Writes the firmware tables of the fixed machine into the ROM area (acpi.h). They are a function
 * of the CPUs, and of the generation ID, alone. Offsets are written as numbers beside the
 * field's name, as the specification's tables have them: ACPI 6.4, 5.2.5 (RSDP), 5.2.8
 * (XSDT), 5.2.9 (FADT), 5.2.10 (FACS), 5.2.12 (MADT).
 */
#include "board/acpi.h"

#include "base/check.h"
#include "dsdt.h"
#include "generation.h"

#include <string.h>
#include <xxhash.h>

#define SDT_HEADER    36
#define FADT_SIZE     276 /* revision 6 */
#define FADT_REVISION 6
#define FACS_SIZE     64
#define RSDP_SIZE     36

/* FADT flags (table 5-10). */
#define FADT_WBINVD        (1u << 0)
#define FADT_PROC_C1       (1u << 2)
#define FADT_SLP_BUTTON    (1u << 5) /* no fixed sleep button; a fixed power button: bit 4 clear */
#define FADT_FIX_RTC       (1u << 6) /* no RTC wake status in the fixed registers */
#define FADT_TMR_VAL_EXT   (1u << 8) /* the PM timer has 32 bits */
#define FADT_RESET_REG_SUP (1u << 10)
/* IA-PC boot flags (table 5-11): no VGA, no 8042 (clear), so Linux probes neither. */
#define BOOT_LEGACY_DEVICES (1u << 0)
#define BOOT_NO_VGA         (1u << 2)

#define IOAPIC_ADDRESS 0xfec00000u
#define LAPIC_ADDRESS  0xfee00000u
#define MADT_PCAT      1u      /* there are 8259s as well */
#define MPS_LEVEL_HIGH 0x000du /* level-triggered, active high: how our SCI line is wired */

struct table {
    u8 *bytes;
    gpa_t gpa;
    u32 size;
};

struct builder {
    struct ram *ram;
    gpa_t next;
};

static void put16(struct table *t, u32 offset, u16 v)
{
    memcpy(t->bytes + offset, &v, sizeof(v));
}

static void put32(struct table *t, u32 offset, u32 v)
{
    memcpy(t->bytes + offset, &v, sizeof(v));
}

static void put64(struct table *t, u32 offset, u64 v)
{
    memcpy(t->bytes + offset, &v, sizeof(v));
}

/* Each table starts on a 64-byte boundary: what the FACS needs is good for all. */
static struct table allot(struct builder *b, u32 size)
{
    struct table t = {.gpa = b->next, .size = size};
    CHECK(t.gpa + size <= ACPI_GENERATION, "ACPI tables of %u bytes more do not fit", size);
    t.bytes = ram_ptr(b->ram, t.gpa, size);
    CHECK(t.bytes, "no RAM at the ROM area");
    memset(t.bytes, 0, size);
    b->next = (t.gpa + size + 63) & ~63ull;
    return t;
}

static void checksum(u8 *bytes, u32 size, u32 offset)
{
    u8 sum = 0;
    bytes[offset] = 0;
    for (u32 i = 0; i < size; i++)
        sum = (u8)(sum + bytes[i]);
    bytes[offset] = (u8)-sum;
}

/* The header common to all system description tables (5.2.6). */
static void seal(struct table *t, const char *signature, u8 revision)
{
    memcpy(t->bytes, signature, 4);
    put32(t, 4, t->size);
    t->bytes[8] = revision;
    memcpy(t->bytes + 10, "REPRIS", 6);
    memcpy(t->bytes + 16, "REPRISE ", 8);
    put32(t, 24, 1);
    memcpy(t->bytes + 28, "RPRS", 4);
    put32(t, 32, 1);
    checksum(t->bytes, t->size, 9);
}

/* Generic address structure (5.2.3.2) of an I/O port register. */
static void put_gas(struct table *t, u32 offset, u64 port, u8 bytes)
{
    t->bytes[offset] = 1; /* system I/O */
    t->bytes[offset + 1] = (u8)(8 * bytes);
    t->bytes[offset + 3] = bytes == 4 ? 3 : bytes; /* access size: byte, word, dword */
    put64(t, offset + 4, port);
}

static gpa_t build_dsdt(struct builder *b)
{
    struct table t = allot(b, sizeof(dsdt_aml));
    memcpy(t.bytes, dsdt_aml, sizeof(dsdt_aml));
    seal(&t, "DSDT", 2);
    return t.gpa;
}

static gpa_t build_facs(struct builder *b)
{
    struct table t = allot(b, FACS_SIZE);
    memcpy(t.bytes, "FACS", 4);
    put32(&t, 4, FACS_SIZE);
    t.bytes[32] = 2; /* version */
    return t.gpa;
}

static gpa_t build_fadt(struct builder *b, gpa_t dsdt, gpa_t facs)
{
    struct table t = allot(b, FADT_SIZE);
    put32(&t, 36, (u32)facs); /* FIRMWARE_CTRL; X_FIRMWARE_CTRL stays 0, as 5.2.9 wants it */
    put32(&t, 40, (u32)dsdt);
    put16(&t, 46, ACPI_SCI_GSI);
    put32(&t, 48, ACPI_SMI_CMD);
    t.bytes[52] = ACPI_ENABLE_CMD;
    t.bytes[53] = ACPI_DISABLE_CMD;
    put32(&t, 56, ACPI_PM1_EVT);
    put32(&t, 64, ACPI_PM1_CNT);
    put32(&t, 76, ACPI_PM_TMR);
    put32(&t, 80, ACPI_GPE0);
    t.bytes[88] = 4;       /* PM1_EVT_LEN */
    t.bytes[89] = 2;       /* PM1_CNT_LEN */
    t.bytes[91] = 4;       /* PM_TMR_LEN */
    t.bytes[92] = 4;       /* GPE0_BLK_LEN */
    put16(&t, 96, 0xffff); /* P_LVL2_LAT: no C2 */
    put16(&t, 98, 0xffff); /* P_LVL3_LAT: no C3 */
    t.bytes[108] = 0x32;   /* CENTURY in CMOS */
    put16(&t, 109, BOOT_LEGACY_DEVICES | BOOT_NO_VGA);
    put32(&t, 112,
          FADT_WBINVD | FADT_PROC_C1 | FADT_SLP_BUTTON | FADT_FIX_RTC | FADT_TMR_VAL_EXT |
              FADT_RESET_REG_SUP);
    put_gas(&t, 116, ACPI_RESET, 1);
    t.bytes[128] = ACPI_RESET_VALUE;
    t.bytes[131] = 4; /* FADT minor version */
    put64(&t, 140, dsdt);
    put_gas(&t, 148, ACPI_PM1_EVT, 4);
    put_gas(&t, 172, ACPI_PM1_CNT, 2);
    put_gas(&t, 208, ACPI_PM_TMR, 4);
    put_gas(&t, 220, ACPI_GPE0, 4);
    t.bytes[223] = 1; /* the GPE block is two byte registers: status and enable */
    seal(&t, "FACP", FADT_REVISION);
    return t.gpa;
}

static gpa_t build_madt(struct builder *b, const struct cpu_parts *p)
{
    const unsigned cpus = p->cpus;
    struct table t = allot(b, SDT_HEADER + 8 + cpus * 8 + 12 + 2 * 10 + 6);
    put32(&t, 36, LAPIC_ADDRESS);
    put32(&t, 40, MADT_PCAT);
    u32 at = 44;
    for (unsigned i = 0; i < cpus; i++, at += 8) { /* local APIC */
        t.bytes[at] = 0;
        t.bytes[at + 1] = 8;
        t.bytes[at + 2] = (u8)i; /* processor UID */
        t.bytes[at + 3] = (u8)cpu_apic_id(p, i);
        put32(&t, at + 4, 1); /* enabled */
    }
    t.bytes[at] = 1; /* I/O APIC: id 0, GSI base 0 */
    t.bytes[at + 1] = 12;
    put32(&t, at + 4, IOAPIC_ADDRESS);
    at += 12;
    static const struct {
        u8 irq, gsi;
        u16 flags;
    } overrides[] = {
        {0, 2, 0}, /* the PIT, as on every PC; flags 0: as ISA does, edge and active high */
        {ACPI_SCI_GSI, ACPI_SCI_GSI, MPS_LEVEL_HIGH},
    };
    for (size_t i = 0; i < ARRAY_SIZE(overrides); i++, at += 10) {
        t.bytes[at] = 2;
        t.bytes[at + 1] = 10;
        t.bytes[at + 3] = overrides[i].irq;
        put32(&t, at + 4, overrides[i].gsi);
        put16(&t, at + 8, overrides[i].flags);
    }
    t.bytes[at] = 4; /* local APIC NMI: LINT1 of all processors */
    t.bytes[at + 1] = 6;
    t.bytes[at + 2] = 0xff;
    t.bytes[at + 5] = 1;
    CHECK(at + 6 == t.size, "MADT is %u bytes, not %u", at + 6, t.size);
    seal(&t, "APIC", 5);
    return t.gpa;
}

static gpa_t build_generation(struct builder *b, const u8 *id)
{
    struct table t = allot(b, sizeof(generation_aml));
    memcpy(t.bytes, generation_aml, sizeof(generation_aml));
    seal(&t, "SSDT", 2);
    memcpy(ram_ptr(b->ram, ACPI_GENERATION, ACPI_GENERATION_SIZE), id, ACPI_GENERATION_SIZE);
    return t.gpa;
}

void acpi_generation(u64 seed, u8 out[ACPI_GENERATION_SIZE])
{
    static const char what[] = "VM generation ID";
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_withSeed(what, sizeof(what), seed));
    memcpy(out, c.digest, ACPI_GENERATION_SIZE);
}

gpa_t acpi_build(struct ram *ram, const struct cpu_parts *cpus, const u8 *generation)
{
    CHECK(cpus->cpus >= 1 && cpus->cpus <= ACPI_MAX_CPUS, "%u CPUs", cpus->cpus);
    struct builder b = {.ram = ram, .next = ACPI_BASE};
    struct table rsdp = allot(&b, RSDP_SIZE); /* first: where a legacy scan looks */
    gpa_t dsdt = build_dsdt(&b);
    gpa_t facs = build_facs(&b);
    gpa_t fadt = build_fadt(&b, dsdt, facs);
    gpa_t madt = build_madt(&b, cpus);

    gpa_t ssdt = generation ? build_generation(&b, generation) : 0;

    struct table xsdt = allot(&b, SDT_HEADER + (generation ? 3 : 2) * 8);
    put64(&xsdt, 36, fadt);
    put64(&xsdt, 44, madt);
    if (generation)
        put64(&xsdt, 52, ssdt);
    seal(&xsdt, "XSDT", 1);

    memcpy(rsdp.bytes, "RSD PTR ", 8);
    memcpy(rsdp.bytes + 9, "REPRIS", 6);
    rsdp.bytes[15] = 2; /* revision; no RSDT */
    put32(&rsdp, 20, RSDP_SIZE);
    put64(&rsdp, 24, xsdt.gpa);
    checksum(rsdp.bytes, 20, 8);
    checksum(rsdp.bytes, RSDP_SIZE, 32);
    return rsdp.gpa;
}
