/*
 * Fuzz target: what is on a disk as boot menu. An input is a grub.cfg, a grubenv and any number of
 * files of loader/entries, with NUL between them.
 */
#include <stdlib.h>
#include <string.h>

#include "boot/menu.h"
#include "mutate.h"

/* Everything about the menu can be asked, and says nothing impossible. */
static void use(const struct boot_menu *m)
{
    char place[64];
    int chosen = boot_menu_default(m, NULL);
    if (chosen >= 0 && ((size_t)chosen >= m->count || m->entry[chosen].submenu))
        abort();
    for (size_t i = 0; i < m->count; i++) {
        const struct boot_entry *e = &m->entry[i];
        if (!e->title || !e->id || e->parent >= (int)m->count ||
            (e->parent >= 0 && !m->entry[e->parent].submenu))
            abort();
        if (e->kernel && (*e->kernel != '(' || !e->options))
            abort();
        for (size_t k = 0; k < e->ninitrd; k++)
            if (!e->initrd[k])
                abort();
        boot_menu_place(m, (int)i, place, sizeof(place));
        int at = boot_menu_find(m, place);
        if (!e->submenu && at < 0)
            abort(); /* not to be found where it says it is */
        boot_menu_find(m, e->title);
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    const char *part[16] = {NULL};
    size_t len[16] = {0}, n = 0;
    struct boot_menu m;
    struct err err = {0};
    for (const char *p = (const char *)data, *end = p + size; n < 16; p += len[n++] + 1) {
        const char *stop = memchr(p, 0, (size_t)(end - p));
        part[n] = p;
        len[n] = (size_t)((stop ? stop : end) - p);
        if (!stop) {
            n++;
            break;
        }
    }
    int code =
        boot_menu_grub(&m, part[0], len[0], "disk", "(disk)/boot/grub", part[1], len[1], &err);
    if (code && !err.text[0])
        abort();
    for (size_t i = 2; i < n && !code; i++) {
        char name[] = "entry-0.conf";
        name[6] = (char)('a' + i);
        code = boot_menu_bls(&m, name, part[i], len[i], "disk", &err);
        if (code && !err.text[0])
            abort();
    }
    if (!code) {
        boot_menu_sort(&m);
        use(&m);
    }
    boot_menu_free(&m);
    free(boot_loader_default((const char *)data, size));
    return 0;
}
