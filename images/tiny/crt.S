/*
 * Entry of the tiny guests. start64 follows the 64-bit Linux boot protocol (long mode, identity
 * page tables, RSI = zero page); start32 is the PVH entry by which QEMU's -kernel comes here.
 * Both end with our own GDT, page tables, TSS and IDT, so that nothing depends on the loader.
 *
 * Page tables: 0..4 GiB identity, supervisor, 2M pages; the first GiB again at USER_ALIAS with
 * U = 1, where ring 3 code runs (the code is position independent).
 */
#include "layout.h"

    .section .note.pvh, "a", @note
    .align 4
    .long 4, 4, 18          /* XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .long start32

    .section .text.start, "ax", @progbits
    .globl start64
    .code64
start64:
    cli
    cld
    lea boot_stack_top(%rip), %rsp
    mov %rsi, zero_page(%rip)
    call build_page_tables
    lea pml4(%rip), %rax
    mov %rax, %cr3
common64:
    lea gdt_pointer(%rip), %rax
    lgdt (%rax)
    mov $SEL_KDATA, %eax
    mov %eax, %ss
    mov %eax, %ds
    mov %eax, %es
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    lea 1f(%rip), %rax
    pushq $SEL_KCODE
    push %rax
    lretq
1:  mov $0x80050033, %eax   /* PE MP ET NE WP AM PG */
    and $~(1 << 18), %eax   /* AM off: the guests that want it set it */
    mov %rax, %cr0
    mov %cr4, %rax
    or $0x6a8, %eax         /* DE PAE PGE OSFXSR OSXMMEXCPT */
    mov %rax, %cr4
    fninit
    call lib_init
    call guest_main
    xor %edi, %edi
    jmp exit_guest

build_page_tables:
    lea pml4(%rip), %rdi
    lea pdpt(%rip), %rax
    or $7, %rax
    mov %rax, (%rdi)
    lea pdpt(%rip), %rdi
    lea pd(%rip), %rax
    or $3, %rax
    mov $4, %ecx
1:  mov %rax, (%rdi)
    add $4096, %rax
    add $8, %rdi
    dec %ecx
    jnz 1b
    lea pdpt(%rip), %rdi
    lea pd_user(%rip), %rax
    or $7, %rax
    mov %rax, (USER_ALIAS >> 30) * 8(%rdi)
    lea pd(%rip), %rdi
    mov $0x83, %eax         /* P W PS */
    mov $2048, %ecx
1:  mov %rax, (%rdi)
    add $0x200000, %rax
    add $8, %rdi
    dec %ecx
    jnz 1b
    lea pd_user(%rip), %rdi
    mov $0x87, %eax         /* P W U PS */
    mov $512, %ecx
1:  mov %rax, (%rdi)
    add $0x200000, %rax
    add $8, %rdi
    dec %ecx
    jnz 1b
    ret

    .code32
start32:
    cli
    cld
    mov $boot_stack_top, %esp
    /* The same tables, by 32-bit hands. */
    movl $pdpt + 7, pml4
    mov $pd + 3, %eax
    mov $pdpt, %edi
    mov $4, %ecx
1:  mov %eax, (%edi)
    add $4096, %eax
    add $8, %edi
    dec %ecx
    jnz 1b
    movl $pd_user + 7, pdpt + (USER_ALIAS >> 30) * 8
    mov $0x83, %eax
    mov $pd, %edi
    mov $2048, %ecx
1:  mov %eax, (%edi)
    add $0x200000, %eax
    add $8, %edi
    dec %ecx
    jnz 1b
    mov $0x87, %eax
    mov $pd_user, %edi
    mov $512, %ecx
1:  mov %eax, (%edi)
    add $0x200000, %eax
    add $8, %edi
    dec %ecx
    jnz 1b
    mov $0x20, %eax
    mov %eax, %cr4
    mov $pml4, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    or $0x80000001, %eax
    mov %eax, %cr0
    lgdt gdt_pointer
    ljmp $SEL_KCODE, $common64

    .code64
    .text
/* Every vector's stub pushes (a zero error code and) its number; 16 bytes each. */
    .globl isr_stubs
    .align 16
isr_stubs:
    vector = 0
    .rept 256
    .align 16
    .if !((vector == 8) || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)
    pushq $0
    .endif
    pushq $vector
    jmp isr_common
    vector = vector + 1
    .endr

isr_common:
    push %rax
    push %rcx
    push %rdx
    push %rbx
    push %rbp
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    cld
    mov %rsp, %rdi
    mov %rsp, %rbx
    and $~15, %rsp
    call isr
    mov %rbx, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rbp
    pop %rbx
    pop %rdx
    pop %rcx
    pop %rax
    add $16, %rsp
    iretq

/* void user_enter(u64 rip, u64 rsp, u64 rflags): ring 3 until INT VEC_BACK. */
    .globl user_enter
user_enter:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, user_return_sp(%rip)
    mov %rsp, tss + 4(%rip)
    pushq $SEL_UDATA
    push %rsi
    push %rdx
    pushq $SEL_UCODE
    push %rdi
    xor %eax, %eax
    iretq

/* Jumped to by the handler of VEC_BACK, on any stack. */
    .globl user_back
user_back:
    mov user_return_sp(%rip), %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret

/* What a ring 3 function returns to. */
    .globl user_exit
user_exit:
    int $VEC_BACK
    ud2

    .data
    .align 16
    .globl gdt, gdt_pointer
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00af9b000000ffff /* 0x10 kernel code */
    .quad 0x00cf93000000ffff /* 0x18 kernel data */
    .quad 0x00cffb000000ffff /* 0x23 user 32-bit code: SYSRET's base */
    .quad 0x00cff3000000ffff /* 0x2b user data */
    .quad 0x00affb000000ffff /* 0x33 user code */
    .quad 0x00cf13000000ffff /* 0x38 data, not present */
    .quad 0, 0               /* 0x40 TSS, filled in by lib_init */
    .quad 0x0000000000000000 /* 0x50 free */
    .quad 0
gdt_end:
    .word 0, 0, 0
gdt_pointer:
    .word gdt_end - gdt - 1
    .quad gdt

    .bss
    .align 4096
    .globl pml4, pdpt, pd, pd_user, tss, user_return_sp, zero_page, ist_stacks, user_stack
pml4:    .skip 4096
pdpt:    .skip 4096
pd:      .skip 4 * 4096
pd_user: .skip 4096
tss:     .skip 4096 + 8192 + 1  /* with room for an I/O permission bitmap */
    .align 4096
boot_stack: .skip 16384
boot_stack_top:
ist_stacks: .skip 7 * 4096
user_stack: .skip 8192
user_return_sp: .skip 8
zero_page: .skip 8
