/*
 * Offsets in Linux' zero page; from 1f1 to 268 they are those of the setup header in a bzImage,
 * too. Linux Documentation/arch/x86/boot.rst, "The real-mode kernel header"; zero-page.rst.
 */
#ifndef REPRISE_ZERO_PAGE_H
#define REPRISE_ZERO_PAGE_H

#define ZP_ACPI_RSDP     0x070
#define ZP_EXT_RAMDISK   0x0c0
#define ZP_EXT_RAMDISK_N 0x0c4
#define ZP_EXT_CMDLINE   0x0c8
#define ZP_E820_ENTRIES  0x1e8
#define ZP_HEADER        0x1f1
#define ZP_SETUP_SECTS   0x1f1
#define ZP_BOOT_FLAG     0x1fe
#define ZP_HEADER_LENGTH 0x201
#define ZP_MAGIC         0x202
#define ZP_VERSION       0x206
#define ZP_LOADER        0x210
#define ZP_LOADFLAGS     0x211
#define ZP_RAMDISK       0x218
#define ZP_RAMDISK_N     0x21c
#define ZP_HEAP_END      0x224
#define ZP_CMDLINE       0x228
#define ZP_RAMDISK_MAX   0x22c /* from version 2.03 on */
#define ZP_ALIGNMENT     0x230
#define ZP_XLOADFLAGS    0x236
#define ZP_CMDLINE_SIZE  0x238 /* 2.06 */
#define ZP_SETUP_DATA    0x250 /* 2.09 */
#define ZP_PREF_ADDRESS  0x258 /* 2.10 */
#define ZP_INIT_SIZE     0x260 /* 2.10 */
#define ZP_E820          0x2d0

#define LOADFLAGS_LOADED_HIGH 0x01
#define LOADFLAGS_KASLR       0x02
#define LOADFLAGS_HEAP        0x80
#define XLOADFLAGS_KERNEL_64  0x01

#define LOADER_UNKNOWN 0xff /* no number assigned */

#endif
