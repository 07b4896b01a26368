/*
 * Guest RAM and the physical memory map:
 *
 *   00000000-0009ffff  RAM (all of it usable: Linux wants memory below 640 KiB)
 *   000a0000-000fffff  not RAM (ROM area; ACPI tables at e0000 are read-only data we place there)
 *   00100000-bfffffff  RAM, up to 3 GiB
 *   fec00000           IO-APIC      fee00000  local APIC
 *   100000000-         the rest of RAM
 *
 * Host memory is one private mapping indexed by guest-physical address with the hole below 4 GiB
 * left out; pages not touched cost nothing. All of it is hashed at the end of a recording.
 */
#ifndef REPRISE_RAM_H
#define REPRISE_RAM_H

#include "base/err.h"
#include "base/types.h"

#define RAM_LOW_LIMIT 0xc0000000ull
#define ROM_BASE      0xa0000ull
#define ROM_END       0x100000ull

struct ram {
    u8 *host;     /* `size` bytes */
    u64 size;     /* bytes of RAM, the ROM area included */
    u64 low_size; /* part below RAM_LOW_LIMIT */
    int pagemap;  /* /proc/self/pagemap, or -1 */
};

int ram_create(struct ram *ram, u64 size, struct err *err);
void ram_destroy(struct ram *ram);
/* Do processes that are made of this one have the memory, as it is then? At first they do not. */
void ram_copied(const struct ram *ram, bool copied);

/* True if no page of host memory [offset, offset + len) was ever touched, so that it is zero and
 * need not be read. False when that cannot be told. */
bool ram_untouched(const struct ram *ram, u64 offset, u64 len);
/* Bytes of its pages that were touched; 0: that cannot be told. */
u64 ram_touched(const struct ram *ram);

/*
 * The one translator of guest-physical addresses: a host pointer, or NULL unless the whole range
 * [gpa, gpa + len) is RAM in one piece. The ROM area a0000-fffff is readable backing store here
 * (ACPI tables live in it) but the CPU cannot write it: see ram_is_rom.
 */
static inline void *ram_ptr(const struct ram *ram, gpa_t gpa, u64 len)
{
    if (gpa < ram->low_size)
        return len <= ram->low_size - gpa ? ram->host + gpa : NULL;
    if (gpa >= 0x100000000ull) {
        u64 off = gpa - 0x100000000ull;
        u64 high = ram->size - ram->low_size;
        return off < high && len <= high - off ? ram->host + ram->low_size + off : NULL;
    }
    return NULL;
}

static inline bool ram_is_rom(gpa_t gpa)
{
    return gpa >= ROM_BASE && gpa < ROM_END;
}

/* Index of a RAM page in [0, size / PAGE_SIZE); only for addresses for which ram_ptr is not NULL.
 */
static inline u64 ram_page_index(const struct ram *ram, gpa_t gpa)
{
    return (gpa < ram->low_size ? gpa : gpa - 0x100000000ull + ram->low_size) / PAGE_SIZE;
}

static inline gpa_t ram_page_gpa(const struct ram *ram, u64 index)
{
    u64 off = index * PAGE_SIZE;
    return off < ram->low_size ? off : off - ram->low_size + 0x100000000ull;
}

#endif
