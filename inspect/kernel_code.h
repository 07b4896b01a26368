/*
 * Where a kernel of 32 bits keeps the task that runs and its modules, by the code of functions that
 * ask for them: Debian's have neither type information (BTF) nor the names of variables. Code is
 * the guest's to forge: it is only looked at, and what it says is used for reading.
 */
#ifndef REPRISE_KERNEL_CODE_H
#define REPRISE_KERNEL_CODE_H

#include "inspect/btf.h"

struct machine;

/* Fills variable, pid, tgid and comm, by the helpers of BPF. false: it has none, or of another
 * form. */
bool task_code_find(struct guest_current *out, const struct guest_linux *g,
                    const struct symbols *s);

/* Where the list of modules begins, and what one looks like, by the code of module_get_kallsym and
 * the first module itself. false: there is none, or it has another form. */
bool module_code_find(struct module_layout *out, u64 *head, const struct guest_linux *g,
                      const struct symbols *s);

/* The base of CPU 0's variables: that of the segment in FS while the kernel runs, by the descriptor
 * of eight bytes (SDM vol. 3, 3.4.5) at this offset of its GDT. */
#define KERNEL_CODE_PERCPU (27u * 8) /* GDT_ENTRY_PERCPU */
u64 kernel_code_base(const u8 descriptor[8]);

#endif
