// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Finds what the kernel does not export: a kprobe may be asked for by name, and then knows the
 * address. So the kernel's own table of names is found, and by it the rest.
 */
#include "module.h"

#include <linux/kernel.h>
#include <linux/kprobes.h>

struct names names;

static unsigned long look_up(const char *name)
{
    static unsigned long (*lookup)(const char *name);
    if (!lookup) {
        struct kprobe probe = {.symbol_name = "kallsyms_lookup_name"};
        if (register_kprobe(&probe))
            return 0;
        lookup = (void *)probe.addr;
        unregister_kprobe(&probe);
    }
    return lookup(name);
}

int names_find(void)
{
    const bool *kprobes_off;
    const struct {
        const char *name;
        unsigned long *where;
    } wanted[] = {
        {"insn_fetch_from_user", (unsigned long *)&names.insn_fetch_from_user},
        {"send_sigtrap", (unsigned long *)&names.send_sigtrap},
        {"notify_die", (unsigned long *)&names.notify_die},
        {"_stext", &names.stext},
        {"_etext", &names.etext},
        {"modules", (unsigned long *)&names.modules},
        {"module_mutex", (unsigned long *)&names.module_mutex},
        {"kprobes_all_disarmed", (unsigned long *)&kprobes_off},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        *wanted[i].where = look_up(wanted[i].name);
        if (!*wanted[i].where) {
            pr_err("not loaded: this kernel has no %s\n", wanted[i].name);
            return -ENOENT;
        }
    }
    if (*kprobes_off) {
        pr_err("not loaded: kprobes are switched off (/sys/kernel/debug/kprobes/enabled)\n");
        return -EBUSY;
    }
    return 0;
}
