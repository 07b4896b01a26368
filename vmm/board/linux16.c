/*
 * See linux16.h. Linux Documentation/arch/x86/boot.rst: "Memory Layout", "The Real-Mode Kernel
 * Header", "Sample Boot Configuration", "Running the Kernel".
 */
#include "board/linux16.h"

#include "board/bios.h"
#include "board/zero_page.h"
#include "base/bytes.h"

#include <errno.h>
#include <string.h>

#define SECTOR     512u
#define SETUP_AT   0x90000u
#define SETUP_MAX  0x8000u /* above it are heap and stack */
#define STACK_TOP  0xe000u /* from there on is the command line */
#define HEAP_ROOM  0x200u  /* what the heap leaves the stack */
#define KERNEL_AT  0x100000u
#define CMDLINE_AT (SETUP_AT + STACK_TOP)

#define VERSION_MIN      0x202 /* the command line anywhere */
#define RAMDISK_MAX_2_02 0x37ffffffu
#define CMDLINE_MAX_2_02 255u

_Static_assert(CMDLINE_AT + PAGE_SIZE <= BOOT_LOW_END, "it is in RAM");

/* Bytes of boot sector and setup code: what is loaded low. */
static u32 setup_size(const u8 *file)
{
    u32 sectors = file[ZP_SETUP_SECTS];
    return ((sectors ? sectors : 4) + 1) * SECTOR;
}

int linux16_check(const void *file, size_t size, struct err *err)
{
    const u8 *f = file;
    if (size < ZP_INIT_SIZE + 4 || memcmp(f + ZP_MAGIC, "HdrS", 4) ||
        get16(f + ZP_BOOT_FLAG) != 0xaa55)
        return err_set(err, -EINVAL, "is no bzImage: it has no setup header");
    if (get16(f + ZP_VERSION) < VERSION_MIN)
        return err_set(err, -EINVAL,
                       "is a kernel of boot protocol %u.%02u; 2.02 (Linux 2.4) or later is needed, "
                       "and 2.10 to be entered otherwise than by its code of 16 bits",
                       get16(f + ZP_VERSION) >> 8, get16(f + ZP_VERSION) & 0xff);
    if (!(f[ZP_LOADFLAGS] & LOADFLAGS_LOADED_HIGH))
        return err_set(err, -EINVAL, "is a kernel to be loaded below 1 MiB (a zImage)");
    if (setup_size(f) > SETUP_MAX)
        return err_set(err, -EINVAL, "has %u KiB of setup code; %u are the most",
                       setup_size(f) >> 10, SETUP_MAX >> 10);
    if (size <= setup_size(f))
        return err_set(err, -EINVAL, "is truncated: %zu bytes are not more than its setup code",
                       size);
    return 0;
}

/* Where the kernel is or unpacks itself: what is used up to, at least. */
static int plan_kernel(const u8 *f, size_t size, const struct ram *ram, u64 *end, struct err *err)
{
    u64 length = size - setup_size(f);
    *end = KERNEL_AT + length;
    if (!ram_ptr(ram, KERNEL_AT, length))
        return err_set(err, -ENOMEM, "the kernel (%llu KiB from 1 MiB on) does not fit into memory",
                       (unsigned long long)length >> 10);
    if (get16(f + ZP_VERSION) < 0x20a)
        return 0;
    u64 from = get64(f + ZP_PREF_ADDRESS), room = get32(f + ZP_INIT_SIZE);
    if (!ram_ptr(ram, from, room))
        return err_set(err, -ENOMEM,
                       "the kernel needs %llu KiB from 0x%llx on to start, and the machine has "
                       "%llu MiB of memory",
                       (unsigned long long)room >> 10, (unsigned long long)from,
                       (unsigned long long)ram->size >> 20);
    if (from < ram->low_size)
        *end = MAX(*end, from + room);
    return 0;
}

/* As high as the kernel takes it. */
static int plan_initrd(const struct boot_config *c, const struct ram *ram, u64 end, u64 *at,
                       struct err *err)
{
    const u8 *f = c->header;
    u64 most = get16(f + ZP_VERSION) < 0x203 ? RAMDISK_MAX_2_02 : get32(f + ZP_RAMDISK_MAX);
    u64 top = MIN(most + 1, ram->low_size);
    *at = 0;
    if (!c->initrd_size)
        return 0;
    if (c->initrd_size > top || ((top - c->initrd_size) & ~(u64)(PAGE_SIZE - 1)) < end)
        return err_set(err, -ENOMEM,
                       "the initrd of %llu KiB does not fit between the kernel, which ends at "
                       "0x%llx, and 0x%llx",
                       (unsigned long long)c->initrd_size >> 10, (unsigned long long)end,
                       (unsigned long long)top);
    *at = (top - c->initrd_size) & ~(u64)(PAGE_SIZE - 1);
    return 0;
}

/* The header's fields that are the loader's. */
static void fill_header(u8 *setup, const struct boot_config *c, u64 initrd)
{
    setup[ZP_LOADER] = LOADER_UNKNOWN;
    setup[ZP_LOADFLAGS] |= LOADFLAGS_HEAP;
    put16(setup + ZP_HEAP_END, STACK_TOP - HEAP_ROOM);
    put32(setup + ZP_CMDLINE, CMDLINE_AT);
    put32(setup + ZP_RAMDISK, (u32)initrd);
    put32(setup + ZP_RAMDISK_N, (u32)c->initrd_size);
    if (get16(setup + ZP_VERSION) >= 0x209)
        put64(setup + ZP_SETUP_DATA, BOOT_SETUP_DATA);
}

int linux16_load(struct ram *ram, const struct boot_config *config, struct boot_state *out,
                 struct err *err)
{
    const u8 *file = config->header;
    const char *append = config->append ? config->append : "";
    u64 end, initrd;
    int rc = linux16_check(file, config->header_size, err);
    if (rc)
        return err_prefix(err, "the kernel");
    size_t most =
        get16(file + ZP_VERSION) < 0x206 ? CMDLINE_MAX_2_02 : get32(file + ZP_CMDLINE_SIZE);
    rc = boot_check_cmdline(append, most, err);
    if (!rc)
        rc = plan_kernel(file, config->header_size, ram, &end, err);
    if (!rc)
        rc = plan_initrd(config, ram, end, &initrd, err);
    if (rc)
        return rc;
    u32 setup = setup_size(file);
    u8 *low = ram_ptr(ram, SETUP_AT, SETUP_MAX);
    memcpy(low, file, setup);
    memcpy(ram_ptr(ram, KERNEL_AT, config->header_size - setup), file + setup,
           config->header_size - setup);
    if (config->initrd_size)
        memcpy(ram_ptr(ram, initrd, config->initrd_size), config->initrd, config->initrd_size);
    memcpy(ram_ptr(ram, CMDLINE_AT, PAGE_SIZE), append, strlen(append) + 1);
    fill_header(low, config, initrd);
    boot_write_seed(ram, config->seed);
    bios_write(ram, SETUP_AT >> 4, STACK_TOP);
    *out = (struct boot_state){.real = true, .cs = BIOS_SEGMENT, .rip = BIOS_ENTRY};
    return 0;
}
