/*
 * Marks: a program in a guest of reprise names the instant that it is at, for
 *
 *     reprise marks DIR                   lists them
 *     reprise replay DIR --to mark:NAME   goes there, as every POINT does
 *
 * It is one instruction, CPUID with a leaf that means nothing to any processor, so it takes no
 * privilege, no agent and no device, and no memory is read. Nothing is answered; elsewhere than in
 * a machine of reprise it does nothing (in other virtual machines it takes a microsecond or two). A
 * program that has made CPUID fault for itself (ARCH_CPUID) must not make marks.
 *
 *     EAX REPRISE_MARK_LEAF, ECX REPRISE_MARK_WORD
 *     RSI, RDI, R8, R9, R10, R11   the name, up to REPRISE_MARK_MAX bytes, then NULs
 *
 * This is the declaration for both sides: the machine (vmm/cpu) and programs. Copy it as you like.
 */
#ifndef REPRISE_MARK_H
#define REPRISE_MARK_H

#define REPRISE_MARK_LEAF 0x400000e7u
#define REPRISE_MARK_WORD 0x6b72616du /* "mark" */
#define REPRISE_MARK_MAX  48u         /* bytes of a name; more are cut off */

#if defined(__x86_64__)
/* The name is read up to its NUL. */
static inline void reprise_mark(const char *name)
{
    union {
        char text[REPRISE_MARK_MAX];
        unsigned long long word[REPRISE_MARK_MAX / 8];
    } n = {{0}};
    unsigned eax = REPRISE_MARK_LEAF, ecx = REPRISE_MARK_WORD;
    for (unsigned i = 0; i < REPRISE_MARK_MAX && name[i]; i++)
        n.text[i] = name[i];
    __asm__ volatile("movq 16(%[words]), %%r8\n\t"
                     "movq 24(%[words]), %%r9\n\t"
                     "movq 32(%[words]), %%r10\n\t"
                     "movq 40(%[words]), %%r11\n\t"
                     "cpuid"
                     : "+a"(eax), "+c"(ecx)
                     : "S"(n.word[0]), "D"(n.word[1]), [words] "r"(n.word)
                     : "rbx", "rdx", "r8", "r9", "r10", "r11", "memory");
}
#endif

#endif
