/*
 * Runs random code and survives it: every exception and interrupt comes to `next`, which restores
 * stack, tables and segments as far as they can be and jumps to the next 64-byte piece of the
 * random region at 2 MiB. Linked at 1 MiB, flat binary.
 */
#include "guest_stub.inc"

        .code64
        .globl stub_start, stub_end
        .section .rodata
stub_start:
        jmp start
        .balign 16
counter: .quad 0
idtr:   .word 4095
        .quad 0x101000
gdtr:   .word 55
        .quad gdt - stub_start + 0x100000
        .balign 16
gdt:    .quad 0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff
        .quad 0x00008900b0000067 | 0x1020 << 16, 0, 0
start:
        lea next(%rip), %rax
        mov $0x101000, %edi
        mov $256, %ecx
1:      mov %rax, %rdx
        mov %dx, (%rdi)
        movw $0x10, 2(%rdi)
        movw $0x8e01, 4(%rdi)           /* interrupt gate, IST 1 */
        shr $16, %rdx
        mov %dx, 6(%rdi)
        movl $0, 8(%rdi)
        movl $0, 12(%rdi)
        add $16, %rdi
        dec %ecx
        jnz 1b
        movq $0x80000, 0x102024 + 0     /* IST1 of the TSS at 0x102000 */
        movw $104, 0x102066
        /* TSS descriptor base 0x102000 */
        lea gdt(%rip), %rdi
        movl $0x20000067, 32(%rdi)
        movl $0x00008910, 36(%rdi)      /* base 0x102000 */
next:
        cli
        cld
        mov $0x90000, %rsp
        lgdt gdtr(%rip)
        lidt idtr(%rip)
        lea gdt(%rip), %rdi
        movb $0x89, 37(%rdi)
        mov $32, %ax
        ltr %ax
        usual_registers
        mov counter(%rip), %rax
        incq counter(%rip)
        cmp $16384, %rax
        jae done
        shl $6, %rax
        add $0x200000, %rax
        mov %rax, %rbp
        /* registers: pointers into RAM, small numbers, junk */
        mov %rax, %rbx
        mov $0x300000, %esi
        mov $0x310ff8, %edi
        mov $5, %ecx
        imul $0x1e3779b1, %rax, %rdx
        mov %rdx, %r8
        mov $0x320000, %r9d
        mov $-1, %r10
        mov $0x8000000000000000, %r11
        mov $0x3ffffc, %r12d
        mov $0x100000000, %r13
        xor %r14d, %r14d
        mov $0xfee00000, %r15d
        jmp *%rax
done:
        mov $0xf4, %edx
        mov $7, %eax
        out %al, %dx
        hlt
stub_end:
        .section .note.GNU-stack,"",@progbits
