/*
 * Runs drawn code on several vCPUs and survives it (guest_cpus.c): the first one makes page tables of
 * its own, sends the others INIT and a start-up IPI, and all take pieces of the code region in turn.
 * Exceptions and NMIs come to `next`, which restores what it can and takes another piece; interrupts
 * return to where they were, or sometimes go to `next`. Linked at 1 MiB, flat binary. guest_cpus.h
 * has the layout.
 */
#include "guest_cpus.h"

#define AT(label) ((label) - stub_cpus_start + 0x100000)

#include "guest_stub.inc"

        .code64
        .globl stub_cpus_start, stub_cpus_end
        .section .rodata
stub_cpus_start:
        jmp first
        .balign 16
counter: .quad 0
idtr:   .word 4095
        .quad CPUS_IDT
gdtr:   .word gdt_end - gdt - 1
        .quad AT(gdt)
        .balign 16
/* Null, 64-bit code, data, 32-bit code, and a task's descriptor for each vCPU. */
gdt:    .quad 0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cf9b000000ffff, 0
tasks:  .fill CPUS_MAX * 2, 8, 0
gdt_end:

/* Where a start-up IPI begins: copied to CPUS_TRAMPOLINE. */
        .code16
trampoline:
        cli
        xor %ax, %ax
        mov %ax, %ds
        lgdtl CPUS_TRAMPOLINE + (small_gdtr - trampoline)
        mov %cr0, %eax
        or $1, %eax
        mov %eax, %cr0
        ljmpl $0x20, $AT(protected)
small_gdtr:
        .word gdt_end - gdt - 1
        .long AT(gdt)
trampoline_end:

        .code32
protected:
        mov $0x18, %eax
        mov %eax, %ds
        mov %eax, %es
        mov %eax, %ss
        mov $0x620, %eax
        mov %eax, %cr4
        mov $CPUS_PML4, %eax
        mov %eax, %cr3
        mov $0xc0000080, %ecx
        rdmsr
        or $0x901, %eax                 /* SCE, LME, NXE */
        wrmsr
        mov $0x80010033, %eax
        mov %eax, %cr0
        ljmp $0x10, $AT(next)

        .code64
first:
        /* Page tables: 1 GiB one to one, of which 2..4 MiB in small pages, and the APIC's page. */
        mov $CPUS_PML4, %edi
        xor %eax, %eax
        mov $5 * 512, %ecx
        rep stosq
        movq $CPUS_PDPT + 7, CPUS_PML4
        movq $CPUS_PD + 7, CPUS_PDPT
        movq $CPUS_PD_APIC + 7, CPUS_PDPT + 24
        movq $CPUS_PT + 7, CPUS_PD + 8
        mov $0xfee000f3, %eax           /* no caching, 2 MiB */
        mov %rax, CPUS_PD_APIC + 0x1f7 * 8
        movq $0xe3, CPUS_PD
        mov $0x4000e3, %eax
        mov $CPUS_PD + 16, %edi
        mov $6, %ecx
1:      mov %rax, (%rdi)
        add $0x200000, %rax
        add $8, %rdi
        dec %ecx
        jnz 1b
        mov $CPUS_PT, %edi
        mov $0x200007, %eax
        mov $512, %ecx
1:      mov %rax, (%rdi)
        add $0x1000, %rax
        add $8, %rdi
        dec %ecx
        jnz 1b
        mov $0xc0000080, %ecx
        rdmsr
        or $0x901, %eax
        wrmsr
        mov $CPUS_PML4, %eax
        mov %rax, %cr3
        /* Gates: all with the vCPU's own stack, IST 1. */
        mov $CPUS_IDT, %edi
        xor %ecx, %ecx
1:      lea next(%rip), %rax
        cmp $32, %ecx
        jb 2f
        lea interrupt(%rip), %rax
2:      mov %ax, (%rdi)
        movw $0x10, 2(%rdi)
        movw $0x8e01, 4(%rdi)
        shr $16, %rax
        mov %rax, 6(%rdi)
        movw $0, 14(%rdi)
        add $16, %rdi
        inc %ecx
        cmp $256, %ecx
        jb 1b
        /* Tasks. */
        lea tasks(%rip), %rdi
        mov $CPUS_TSS, %eax
        mov $CPUS_STACKS, %ebx
        mov $CPUS_MAX, %ecx
1:      mov %eax, %edx
        shl $16, %rdx
        or $104, %rdx
        bts $47, %rdx                   /* present */
        bts $43, %rdx                   /* an available 64-bit task, 9 */
        bts $40, %rdx
        mov %rdx, (%rdi)
        mov %rbx, 0x24(%rax)
        movw $104, 0x66(%rax)
        add $16, %rdi
        add $0x100, %eax
        add $0x1000, %ebx
        dec %ecx
        jnz 1b
        lea trampoline(%rip), %rsi
        mov $CPUS_TRAMPOLINE, %edi
        mov $trampoline_end - trampoline, %ecx
        rep movsb
        mov $0xfee00000, %r15d
        movl $0xc4500, 0x300(%r15)      /* INIT to all others, then where they begin */
        movl $0xc4600 | CPUS_TRAMPOLINE >> 12, 0x300(%r15)
next:
        cli
        cld
        mov $1, %eax
        cpuid
        shr $24, %ebx
        and $CPUS_MAX - 1, %ebx
        mov %ebx, %eax
        shl $12, %eax
        lea CPUS_STACKS - 0x800(%rax), %rsp
        lgdt gdtr(%rip)
        lidt idtr(%rip)
        lea tasks(%rip), %rdi
        mov %ebx, %eax
        shl $4, %eax
        movb $0x89, 5(%rdi, %rax)
        add $0x30, %eax
        ltr %ax
        usual_registers
        mov $CPUS_PML4, %eax
        mov %rax, %cr3
        /* What is in service ends, and the APIC is on. */
        mov $0xfee00000, %r15d
        mov $0x1b, %ecx
        rdmsr
        bt $10, %eax
        jc 2f
        mov $4, %ecx
1:      movl $0, 0xb0(%r15)
        dec %ecx
        jnz 1b
        movl $0x1ff, 0xf0(%r15)
        movl $0, 0x80(%r15)
        movl $0x01000000, 0xd0(%r15)
        jmp 3f
2:      mov $0x80b, %ecx
        xor %eax, %eax
        xor %edx, %edx
        wrmsr
        wrmsr
        wrmsr
        wrmsr
3:      mov $1, %eax
        lock xadd %rax, counter(%rip)
        and $CPUS_PIECES - 1, %eax
        /* The piece's page is mapped, and one of the data's. */
        mov $CPUS_PT, %r14d
        mov %eax, %ebp
        shl $CPUS_PIECE_SHIFT, %ebp
        add $CPUS_CODE, %ebp
        mov %ebp, %edx
        shr $12, %edx
        and $511, %edx
        mov %ebp, %ecx
        and $~4095, %ecx
        or $7, %ecx
        mov %rcx, (%r14, %rdx, 8)
        mov %eax, %edx
        and $15, %edx
        mov %edx, %ecx
        shl $12, %ecx
        add $CPUS_DATA + 7, %ecx
        mov %rcx, (CPUS_DATA - 0x200000) / 4096 * 8(%r14, %rdx, 8)
        /* Registers: pointers, small numbers, junk. */
        imul $0x1e3779b1, %rax, %rdx
        mov %rdx, %r10
        mov %edx, %r8d
        and $CPUS_PIECES - 1, %r8d
        shl $CPUS_PIECE_SHIFT, %r8d
        add $CPUS_CODE, %r8d            /* any other piece */
        mov %rbp, %rbx
        mov $CPUS_DATA, %esi
        mov $CPUS_DATA + 0x8ff8, %edi
        mov $CPUS_DATA + 0x2000, %r9d
        mov $5, %ecx
        mov $0x8000000000000000, %r11
        mov $CPUS_DATA + 0x3ffc, %r12d
        mov $0x40000000, %r13d
        jmp *%rbp

interrupt:
        push %rax
        push %rcx
        push %rdx
        mov $0x1b, %ecx
        rdmsr
        bt $10, %eax
        jc 1f
        mov $0xfee00000, %eax
        movl $0, 0xb0(%rax)
        jmp 2f
1:      mov $0x80b, %ecx
        xor %eax, %eax
        xor %edx, %edx
        wrmsr
2:      rdtsc
        test $7, %al
        jz next
        pop %rdx
        pop %rcx
        pop %rax
        iretq
stub_cpus_end:
        .section .note.GNU-stack,"",@progbits
