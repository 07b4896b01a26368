// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * RDTSC and RDTSCP of the kernel itself, which CR4.TSD does not stop. Debian's kernels execute it
 * whatever the command line says: for the random numbers at each interrupt, and in the allocator of
 * memory. So each one in the kernel's text, and in that of modules, gets a kprobe that answers it.
 */
#include "module.h"

#include "insn.h"

#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/version.h>

atomic64_t kernel_answers;
unsigned int kernel_places, kernel_left;

struct place {
    struct list_head list;
    struct kprobe probe;
    struct module *owner; /* NULL: the kernel */
    enum tsc_insn what;
    int length;
};

static LIST_HEAD(places);
static DEFINE_MUTEX(lock);

static int instead(struct kprobe *probe, struct pt_regs *regs)
{
    struct place *p = container_of(probe, struct place, probe);
    answer(regs, p->what == TSC_RDTSCP);
    regs->ip = (unsigned long)probe->addr + p->length;
    atomic64_inc(&kernel_answers);
    return 1; /* the instruction is done */
}
NOKPROBE_SYMBOL(instead);

/* Never called, since instead() does it all; that there is one keeps the kernel from turning the
 * breakpoint into a jump, in which an interrupt, with a probe of its own, could come between. */
static void after_probe(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(after_probe);

/* -EILSEQ: these bytes are not where an instruction begins. */
static int probe_place(u8 *code, enum tsc_insn what, int length, struct module *owner)
{
    struct place *p = kzalloc(sizeof(*p), GFP_KERNEL);
    int error;
    if (!p)
        return -ENOMEM;
    p->probe.addr = (kprobe_opcode_t *)code;
    p->probe.pre_handler = instead;
    p->probe.post_handler = after_probe;
    p->owner = owner;
    p->what = what;
    p->length = length;
    error = register_kprobe(&p->probe);
    if (error) {
        kfree(p);
        return error;
    }
    list_add(&p->list, &places);
    kernel_places++;
    return 0;
}

static int probe_text(u8 *text, u8 *end, struct module *owner)
{
    int length, error;
    for (u8 *code = text; (code = memchr(code, 0x0f, end - code)); code++) {
        enum tsc_insn what = tsc_decode(code, min_t(long, end - code, 3), 64, &length);
        if (what == TSC_OTHER)
            continue;
        error = probe_place(code, what, length, owner);
        if (error == -ENOMEM)
            return error;
        if (error && error != -EILSEQ) {
            kernel_left++;
            pr_info("RDTSC at %pS stays (error %d)\n", code, error);
        }
    }
    return 0;
}

/* Many at a time: each time the kernel waits until all CPUs have left their handlers. */
static void forget(struct module *owner, bool all)
{
    struct kprobe *probes[32];
    struct place *p, *next;
    int n;
    do {
        n = 0;
        list_for_each_entry_safe(p, next, &places, list)
        {
            if (n == ARRAY_SIZE(probes) || (!all && p->owner != owner))
                continue;
            list_del(&p->list);
            probes[n++] = &p->probe;
        }
        unregister_kprobes(probes, n);
        kernel_places -= n;
        for (int i = 0; i < n; i++)
            kfree(container_of(probes[i], struct place, probe));
    } while (n == ARRAY_SIZE(probes));
}

/* The text of a module. */
static int probe_module(struct module *m)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
    u8 *text = m->mem[MOD_TEXT].base;
    return probe_text(text, text + m->mem[MOD_TEXT].size, m);
#else
    u8 *text = m->core_layout.base;
    return probe_text(text, text + m->core_layout.text_size, m);
#endif
}

/* Modules that come later. */
static int on_module(struct notifier_block *block, unsigned long event, void *data)
{
    struct module *m = data;
    mutex_lock(&lock);
    if (event == MODULE_STATE_COMING && m != THIS_MODULE)
        probe_module(m);
    if (event == MODULE_STATE_GOING)
        forget(m, false);
    mutex_unlock(&lock);
    return NOTIFY_DONE;
}

static struct notifier_block notifier = {.notifier_call = on_module};

/* Modules that are there already. */
static int probe_modules(void)
{
    struct module *m;
    int error = 0;
    mutex_lock(names.module_mutex);
    list_for_each_entry(m, names.modules, list) if (!error && m->state == MODULE_STATE_LIVE) error =
        probe_module(m);
    mutex_unlock(names.module_mutex);
    return error;
}

int ring0_begin(void)
{
    int error;
    mutex_lock(&lock);
    error = probe_text((u8 *)names.stext, (u8 *)names.etext, NULL);
    if (!error)
        error = probe_modules();
    mutex_unlock(&lock);
    if (!error)
        error = register_module_notifier(&notifier);
    if (error) {
        forget(NULL, true);
        pr_err("not loaded: no memory for kprobes (error %d)\n", error);
    }
    return error;
}

void ring0_end(void)
{
    unregister_module_notifier(&notifier);
    mutex_lock(&lock);
    forget(NULL, true);
    mutex_unlock(&lock);
}
