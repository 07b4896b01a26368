/*
 * What the disks themselves say is to be booted: finds the file systems on disk images, the boot
 * menu on one of them, and reads kernel and initrd. No root, no mounts: grub-fstest (GRUB's own
 * drivers in a program) reads partition tables, LVM, RAID and file systems of plain files; it runs
 * as a child (child.h), and what it prints is hostile. An image in another format is copied, as far
 * as it is allocated, to a temporary file first. It and what copies open those images and no
 * others, and have no network (confine.h).
 */
#ifndef REPRISE_BOOT_BOOTDISK_H
#define REPRISE_BOOT_BOOTDISK_H

#include <stdio.h>

#include "base/err.h"
#include "boot/menu.h"
#include "host/disk.h"

struct bootdisk;

/*
 * Finds the menu on these disks, which are open. -ENOENT: no file system has one (the text names
 * those looked at), or a program is missing (the text names the package). Signals that end a
 * program wait until bootdisk_close().
 */
int bootdisk_open(struct bootdisk **out, struct disk *disks, unsigned count, struct err *err);
void bootdisk_close(struct bootdisk *b); /* NULL is safe */

/*
 * The entry `wanted` (boot_menu_find) or, if NULL, the default one. NULL: there is none, or it
 * starts no Linux; the text names those there are.
 */
const struct boot_entry *bootdisk_choose(struct bootdisk *b, const char *wanted, struct err *err);

/* A line for each entry that starts Linux: what --boot-entry takes, and the title. */
void bootdisk_list(struct bootdisk *b, FILE *to);

/* "'Debian GNU/Linux' from disk 0 partition 1: /boot/vmlinuz-6.1", with nothing that would control
 * a terminal; malloc'ed, NULL without memory. */
char *bootdisk_describe(struct bootdisk *b, const struct boot_entry *e);

/* malloc'ed, at most `max` bytes (-EFBIG). All initrds of the entry become one, as GRUB puts them
 * together; *size 0: none. */
int bootdisk_kernel(struct bootdisk *b, const struct boot_entry *e, u64 max, u8 **bytes,
                    size_t *size, struct err *err);
int bootdisk_initrd(struct bootdisk *b, const struct boot_entry *e, u64 max, u8 **bytes,
                    size_t *size, struct err *err);

#endif
