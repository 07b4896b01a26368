/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The module's parts. Each has a begin, which undoes what it did when it fails and says why in the
 * kernel's log (it returns -errno), and an end. main.c calls them in order.
 */
#ifndef REPRISE_TSC_MODULE_H
#define REPRISE_TSC_MODULE_H

#include <linux/atomic.h>
#include <linux/mutex.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#define MSR_TSC       0x10
#define MSR_TSC_AUX   0xc0000103
#define MSR_GUEST_TSC 0x40000200 /* of our VMM */

/* Functions and places of the kernel that it does not export (names.c). */
struct names {
    int (*insn_fetch_from_user)(struct pt_regs *regs, unsigned char *buf);
    void (*send_sigtrap)(struct pt_regs *regs, int error_code, int si_code);
    int (*notify_die)(int val, const char *str, struct pt_regs *regs, long err, int trap, int sig);
    unsigned long stext, etext; /* the kernel's text */
    struct list_head *modules;  /* all of them, under module_mutex */
    struct mutex *module_mutex;
};
extern struct names names;
int names_find(void);

/* #GP of user programs (user.c). */
extern atomic64_t user_answers; /* RDTSC and RDTSCP answered so far */
int user_begin(void);
void user_end(void);

/* CR4.TSD on every CPU (cr4.c). */
int cr4_begin(void);
void cr4_end(void);

/* RDTSC and RDTSCP of the kernel (ring0.c). */
extern atomic64_t kernel_answers;
extern unsigned int kernel_places; /* instructions that are answered */
extern unsigned int kernel_left;   /* that the kernel does not let us answer */
int ring0_begin(void);
void ring0_end(void);

/* What RDTSC does, or with_aux RDTSCP, to all registers but RIP: with the virtual TSC, from the
 * VMM. */
void answer(struct pt_regs *regs, bool with_aux);

#endif
