/* See protocol.h. */
#include "board/protocol.h"

#include "board/bios.h"
#include "base/bytes.h"

#include <errno.h>
#include <string.h>

/* Where what is written lies; below the stack of boot.h, and each part in a page of its own. */
#define INFO    BOOT_ZERO_PAGE
#define CMDLINE BOOT_CMDLINE
#define MAP     0x4000ull
#define MODULES 0x5000ull

#define PVH_MAGIC           0x336ec578u
#define PVH_NOTE            18u
#define MULTIBOOT_MAGIC     0x1badb002u
#define MULTIBOOT_LOADED    0x2badb002u
#define MULTIBOOT2_MAGIC    0xe85250d6u
#define MULTIBOOT2_LOADED   0x36d76289u
#define MULTIBOOT_SEARCH    8192u
#define MULTIBOOT2_SEARCH   32768u
#define MULTIBOOT_ADDRESSES 0x10000u /* ... are in the header */
#define MULTIBOOT_REQUIRED  0xfffcu  /* bits of what must be done; 0 and 1 are */

u64 protocol_pvh_entry(const u8 *notes, u64 size, unsigned align)
{
    u64 at = 0, mask = align - 1u;
    while (size - at >= 12) {
        u64 name = get32(notes + at), desc = get32(notes + at + 4);
        u32 type = get32(notes + at + 8);
        u64 desc_at = at + 12 + ((name + mask) & ~mask), end = desc_at + ((desc + mask) & ~mask);
        if (desc_at > size || desc > size - desc_at)
            return 0;
        if (type == PVH_NOTE && name == 4 && !memcmp(notes + at + 12, "Xen", 4) &&
            (desc == 4 || desc == 8))
            return desc == 8 ? get64(notes + desc_at) : get32(notes + desc_at);
        if (end > size)
            return 0;
        at = end;
    }
    return 0;
}

#define NOWHERE SIZE_MAX

static size_t find_multiboot(const u8 *file, size_t size)
{
    for (size_t at = 0; at + 12 <= MIN(size, (size_t)MULTIBOOT_SEARCH); at += 4)
        if (get32(file + at) == MULTIBOOT_MAGIC &&
            !(MULTIBOOT_MAGIC + get32(file + at + 4) + get32(file + at + 8)))
            return at;
    return NOWHERE;
}

static size_t find_multiboot2(const u8 *file, size_t size)
{
    for (size_t at = 0; at + 16 <= MIN(size, (size_t)MULTIBOOT2_SEARCH); at += 8)
        if (get32(file + at) == MULTIBOOT2_MAGIC && get32(file + at + 4) == 0 &&
            !(MULTIBOOT2_MAGIC + get32(file + at + 8) + get32(file + at + 12)))
            return at;
    return NOWHERE;
}

/* Its header has addresses. */
static bool has_addresses(const u8 *file, size_t size, size_t at)
{
    return (get32(file + at + 4) & MULTIBOOT_ADDRESSES) && size - at >= 32;
}

bool protocol_multiboot(const u8 *file, size_t size, u64 entry)
{
    size_t at = find_multiboot(file, size);
    if (at == NOWHERE || (get32(file + at + 4) & MULTIBOOT_REQUIRED))
        return false;
    return !(get32(file + at + 4) & MULTIBOOT_ADDRESSES) ||
           (has_addresses(file, size, at) && get32(file + at + 28) == entry);
}

bool protocol_multiboot2(const u8 *file, size_t size)
{
    return find_multiboot2(file, size) != NOWHERE;
}

/* What a header says: its own address, where loading begins and ends, where memory ends (0: both
 * with the file), and the entry. */
struct addresses {
    u32 header, load, load_end, bss_end, entry;
};

static struct addresses get_addresses(const u8 *p)
{
    return (struct addresses){get32(p), get32(p + 4), get32(p + 8), get32(p + 12), 0};
}

/* Of the tags of a Multiboot 2 header; false: not both are there. */
static bool find_tags(const u8 *file, size_t size, size_t at, struct addresses *out)
{
    enum { END = 0, ADDRESS = 2, ENTRY = 3 };
    size_t end = at + MIN((size_t)get32(file + at + 8), size - at);
    bool address = false, entry = false;
    for (size_t tag = at + 16, len; end - tag >= 8 && tag < end; tag += (len + 7) & ~(size_t)7) {
        u32 type = get32(file + tag) & 0xffff;
        len = get32(file + tag + 4);
        if (type == END || len < 8 || len > end - tag || ((len + 7) & ~(size_t)7) > end - tag)
            break;
        if (type == ADDRESS && len >= 24) {
            u32 has = out->entry;
            *out = get_addresses(file + tag + 8);
            out->entry = has;
            address = true;
        } else if (type == ENTRY && len >= 12) {
            out->entry = get32(file + tag + 8);
            entry = true;
        }
    }
    if (address && out->load == UINT32_MAX) /* the whole file */
        out->load = out->header - (u32)at;
    return address && entry;
}

int protocol_flat(const u8 *file, size_t size, struct protocol_flat *out, struct err *err)
{
    struct addresses a = {0};
    size_t at = find_multiboot(file, size);
    if (at != NOWHERE && has_addresses(file, size, at)) {
        a = get_addresses(file + at + 12);
        a.entry = get32(file + at + 28);
    } else {
        at = find_multiboot2(file, size);
        if (at == NOWHERE || !find_tags(file, size, at, &a))
            return 0;
    }
    u32 before = a.header - a.load; /* of the header, in what is loaded */
    bool good = a.header >= a.load && before <= at;
    u64 offset = good ? at - before : 0, rest = size - offset;
    u64 length = a.load_end ? (u64)a.load_end - a.load : rest;
    u64 room = a.bss_end ? (u64)a.bss_end - a.load : length;
    if (!good || (a.load_end && a.load_end <= a.load) || (a.bss_end && a.bss_end <= a.load) ||
        length > rest || room < length || room > UINT32_MAX - (u64)a.load)
        return err_set(err, -EINVAL,
                       "has a Multiboot header at byte %zu whose addresses make no sense (header "
                       "0x%x, loaded from 0x%x to 0x%x, memory to 0x%x; the file has %zu bytes)",
                       at, a.header, a.load, a.load_end, a.bss_end, size);
    *out = (struct protocol_flat){offset, length, a.load, (u32)room, a.entry};
    return 1;
}

/* What is written, in order. */
struct out {
    u8 *at;
};

static void append32(struct out *o, u64 v)
{
    u32 w = (u32)v;
    memcpy(o->at, &w, sizeof(w));
    o->at += sizeof(w);
}

static void append64(struct out *o, u64 v)
{
    memcpy(o->at, &v, sizeof(v));
    o->at += sizeof(v);
}

static struct out page(struct ram *ram, gpa_t gpa)
{
    u8 *p = ram_ptr(ram, gpa, PAGE_SIZE);
    memset(p, 0, PAGE_SIZE);
    return (struct out){p};
}

static void write_pvh(struct ram *ram, const struct protocol_info *info,
                      const struct boot_range *map, unsigned n)
{
    struct out o = page(ram, INFO), m = page(ram, MAP), k = page(ram, MODULES);
    append32(&o, PVH_MAGIC);
    append32(&o, 1); /* version: with a memory map */
    append32(&o, 0);
    append32(&o, info->initrd_size ? 1 : 0);
    append64(&o, MODULES);
    append64(&o, CMDLINE);
    append64(&o, info->acpi_rsdp);
    append64(&o, MAP);
    append32(&o, n);
    append32(&o, 0);
    for (unsigned i = 0; i < n; i++) {
        append64(&m, map[i].base);
        append64(&m, map[i].size);
        append32(&m, map[i].type);
        append32(&m, 0);
    }
    append64(&k, info->initrd);
    append64(&k, info->initrd_size);
    append64(&k, 0);
    append64(&k, 0);
}

/* KiB of RAM from 0 and from 1 MiB on. */
static u32 lower(void)
{
    return (u32)(BOOT_LOW_END >> 10);
}
static u32 upper(const struct ram *ram)
{
    return (u32)((ram->low_size - (1u << 20)) >> 10);
}

static void write_multiboot(struct ram *ram, const struct protocol_info *info,
                            const struct boot_range *map, unsigned n)
{
    struct out o = page(ram, INFO), m = page(ram, MAP), k = page(ram, MODULES);
    bool module = info->initrd_size;
    append32(&o, 1u | 4 | (module ? 8 : 0) | 64); /* memory, command line, modules, map */
    append32(&o, lower());
    append32(&o, upper(ram));
    append32(&o, 0); /* boot device */
    append32(&o, CMDLINE);
    append32(&o, module);
    append32(&o, MODULES);
    o.at += 16; /* symbols */
    append32(&o, 24 * n);
    append32(&o, MAP);
    for (unsigned i = 0; i < n; i++) {
        append32(&m, 20);
        append64(&m, map[i].base);
        append64(&m, map[i].size);
        append32(&m, map[i].type);
    }
    append32(&k, info->initrd);
    append32(&k, info->initrd + info->initrd_size);
    append32(&k, CMDLINE + strlen(info->append)); /* an empty string */
    append32(&k, 0);
}

static void pad8(struct out *o, const u8 *from)
{
    o->at += -(u64)(o->at - from) & 7;
}

static void write_multiboot2(struct ram *ram, const struct protocol_info *info,
                             const struct boot_range *map, unsigned n)
{
    enum { COMMAND_LINE = 1, MODULE = 3, MEMORY = 4, MEMORY_MAP = 6, ACPI = 15 };
    const size_t rsdp = 36; /* of ACPI 2.0 */
    size_t len = strlen(info->append) + 1;
    struct out o = page(ram, INFO), head = o;
    u8 *from = o.at; /* a command line has no more than a page; its tag and the rest go on */
    memset(ram_ptr(ram, INFO, 4 * PAGE_SIZE), 0, 4 * PAGE_SIZE);
    append64(&o, 0);
    append32(&o, MEMORY);
    append32(&o, 16);
    append32(&o, lower());
    append32(&o, upper(ram));
    append32(&o, MEMORY_MAP);
    append32(&o, 16 + 24 * n);
    append32(&o, 24);
    append32(&o, 0);
    for (unsigned i = 0; i < n; i++) {
        append64(&o, map[i].base);
        append64(&o, map[i].size);
        append32(&o, map[i].type);
        append32(&o, 0);
    }
    if (info->initrd_size) {
        append32(&o, MODULE);
        append32(&o, 17);
        append32(&o, info->initrd);
        append32(&o, info->initrd + info->initrd_size);
        o.at++;
        pad8(&o, from);
    }
    append32(&o, ACPI);
    append32(&o, 8 + rsdp);
    memcpy(o.at, ram_ptr(ram, info->acpi_rsdp, rsdp), rsdp);
    o.at += rsdp;
    pad8(&o, from);
    append32(&o, COMMAND_LINE);
    append32(&o, 8 + len);
    memcpy(o.at, info->append, len);
    o.at += len;
    pad8(&o, from);
    append32(&o, 0);
    append32(&o, 8);
    append32(&head, (u64)(o.at - from));
}

void protocol_write(struct ram *ram, enum boot_protocol protocol, const struct protocol_info *info,
                    struct boot_state *state)
{
    struct boot_range map[BOOT_RANGES];
    unsigned n = boot_memory_map(ram, map);
    struct out cmdline = page(ram, CMDLINE);
    memcpy(cmdline.at, info->append, strlen(info->append)); /* shorter than a page */
    state->rbx = INFO;
    if (info->bios_data && protocol != BOOT_PVH)
        bios_write_data(ram);
    switch (protocol) {
    case BOOT_PVH: write_pvh(ram, info, map, n); break;
    case BOOT_MULTIBOOT:
        state->rax = MULTIBOOT_LOADED;
        write_multiboot(ram, info, map, n);
        break;
    default:
        state->rax = MULTIBOOT2_LOADED;
        write_multiboot2(ram, info, map, n);
        break;
    }
}
