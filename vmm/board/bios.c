/*
 * Puts the firmware of bios_image.S into the ROM area, with the machine's facts in it. Its bytes
 * are part of what a recorded machine is: tests/unit/test_board_bios.c knows their digest.
 */
#include "board/bios.h"

#include "base/check.h"
#include "bios_image.h"

#include <string.h>

/* What bios_image.S begins with. */
struct bios_facts {
    u16 setup_segment, stack_top;
    u16 low_kb, ebda_segment, extended_kb, below_16m_kb, above_16m, range_count;
    struct {
        u64 base, size;
        u32 type;
    } __attribute__((packed)) range[BOOT_RANGES];
};

_Static_assert(sizeof(struct bios_facts) <= 0x80, "post begins there");
_Static_assert(sizeof(bios_image) == BIOS_SIZE, "it ends where 1 MiB does");

void bios_write(struct ram *ram, u16 segment, u16 stack)
{
    const u64 mib = 1u << 20;
    u64 extended = (ram->low_size - mib) >> 10;
    struct boot_range map[BOOT_RANGES];
    u8 *image = ram_ptr(ram, BIOS_BASE, BIOS_SIZE);
    CHECK(image, "no RAM at the ROM area");
    struct bios_facts facts = {
        .setup_segment = segment,
        .stack_top = stack,
        .low_kb = BOOT_LOW_END >> 10,
        .ebda_segment = BOOT_LOW_END >> 4,
        .extended_kb = (u16)MIN(extended, (u64)0xffff),
        .below_16m_kb = 15 << 10, /* a machine has no less (ram_create) */
        .above_16m = (u16)((ram->low_size - 16 * mib) >> 16),
        .range_count = (u16)boot_memory_map(ram, map),
    };
    for (unsigned i = 0; i < facts.range_count; i++) {
        facts.range[i].base = map[i].base;
        facts.range[i].size = map[i].size;
        facts.range[i].type = map[i].type;
    }
    memcpy(image, bios_image, sizeof(bios_image));
    memcpy(image, &facts, sizeof(facts));
}

void bios_write_data(struct ram *ram)
{
    const u16 ebda_segment = BOOT_LOW_END >> 4, low_kb = BOOT_LOW_END >> 10;
    memcpy(ram_ptr(ram, 0x40e, 2), &ebda_segment, 2);
    memcpy(ram_ptr(ram, 0x413, 2), &low_kb, 2);
}
