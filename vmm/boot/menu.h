/*
 * Boot entries as a distribution leaves them on its disk: GRUB's script (grub.cfg; the GRUB manual,
 * chapter "Writing your own configuration file") and the Boot Loader Specification's files
 * (loader/entries/NAME.conf). Text in, menu out: no file is opened here, and the text is hostile.
 *
 * The script is run, not searched: variables, if, for, while, functions, submenus and the contents
 * of grubenv count. Commands without influence on what is booted do nothing; other files are not
 * read in (source, configfile), and tests for files say no, but for grubenv.
 */
#ifndef REPRISE_BOOT_MENU_H
#define REPRISE_BOOT_MENU_H

#include "base/err.h"
#include "base/types.h"

#define BOOT_TEXT_MAX    (1u << 20) /* bytes of one file that are read */
#define BOOT_ENTRIES_MAX 512u       /* in a menu, submenus included */

/*
 * A file is "(DEVICE)/PATH". DEVICE: one of GRUB's, such as "hd0,gpt2"; `root` as it was given to
 * boot_menu_grub(); or where a `search` would look: "uuid:X", "label:X", "file:/PATH".
 */
struct boot_entry {
    char *title, *id; /* id: "" if it has none */
    char *kernel;     /* NULL: no Linux kernel is started (a submenu, another system) */
    char *options;    /* the kernel's command line */
    char **initrd;
    size_t ninitrd;
    bool submenu;
    int parent;                         /* the submenu this is in, an index; -1: none */
    unsigned number;                    /* within its menu, from 0 */
    char *sort_key, *machine, *version; /* of the Boot Loader Specification; may be NULL */
};

struct boot_variable {
    char *name, *value; /* value NULL: unset */
};

struct boot_menu {
    struct boot_entry *entry;
    size_t count;
    struct boot_variable *variable; /* the last of a name counts */
    size_t nvariables;
    bool blscfg; /* the script asks for the entries in loader/entries */
};

/*
 * Runs a grub.cfg. `root` is the device it is on, `prefix` its folder ("(DEVICE)/boot/grub"); `env`
 * the contents of grubenv, NULL if there is none. *m is zeroed first and is to be freed also after
 * an error. -EINVAL: not a script (the text says the line), or one that does not come to an end.
 */
int boot_menu_grub(struct boot_menu *m, const char *text, size_t size, const char *root,
                   const char *prefix, const char *env, size_t env_size, struct err *err);

/* Adds the entry of one file loader/entries/NAME on device `root`. One for another architecture or
 * without a kernel is left out, silently. */
int boot_menu_bls(struct boot_menu *m, const char *name, const char *text, size_t size,
                  const char *root, struct err *err);

/* Once all of them are there: puts entries of the Boot Loader Specification first, in its order. */
void boot_menu_sort(struct boot_menu *m);

/* What a loader.conf says is the default: malloc'ed, NULL if nothing. May have * and ?. */
char *boot_loader_default(const char *text, size_t size);

/* A variable's value, NULL if it has none. */
const char *boot_menu_variable(const struct boot_menu *m, const char *name);

/*
 * The entry that `wanted` names: a title, an id (with * and ?: the first that matches), or numbers
 * and titles of submenus and entry with '>' between, as GRUB's `default` has them. A submenu stands
 * for its first entry. -1: none.
 */
int boot_menu_find(const struct boot_menu *m, const char *wanted);

/* The entry that is booted when nobody chooses: `default` of script or loader.conf, or the first.
 */
int boot_menu_default(const struct boot_menu *m, const char *loader_default);

/* "1>0", to be passed to boot_menu_find(). */
void boot_menu_place(const struct boot_menu *m, int entry, char *out, size_t size);

void boot_menu_free(struct boot_menu *m); /* safe on zeros */

#endif
