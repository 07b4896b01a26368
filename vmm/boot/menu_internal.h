/* How a menu is filled: for menu.c, bls.c and script*.c. The header for others is menu.h. */
#ifndef REPRISE_BOOT_MENU_INTERNAL_H
#define REPRISE_BOOT_MENU_INTERNAL_H

#include "boot/menu.h"

#define BOOT_WORD_MAX (64u << 10) /* of one word, and of what a variable holds */

/* Appends an entry to the menu `parent`; returns its index, or an error. */
int boot_menu_add(struct boot_menu *m, int parent, const char *title, const char *id,
                  struct err *err);
/* Takes `file`, which may be NULL for want of memory. */
int boot_entry_add_initrd(struct boot_entry *e, char *file, struct err *err);
void boot_entry_clear(struct boot_entry *e);

/* Variables from index `scope` on are of the innermost scope; forget() ends it. */
int boot_menu_set(struct boot_menu *m, size_t scope, const char *name, const char *value,
                  struct err *err);
void boot_menu_forget(struct boot_menu *m, size_t scope);

/* Returns the error that there is no memory. */
int boot_no_memory(struct err *err);

#endif
