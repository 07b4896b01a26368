/*
 * Entry of the guest of 32 bits, by Multiboot (1 and 2) or PVH; the ways between the modes; handlers.
 * All is linked where it is loaded: linear addresses are physical ones, and code of 16 bits is copied
 * to LOW, where real-address mode reaches it.
 */
#define CODE32 0x08
#define DATA32 0x10
#define CODE16 0x18
#define DATA16 0x20
#define LOW    0x8000

/* DS, ES, FS and GS are what AX is. */
    .macro data_segments
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %fs
    mov %eax, %gs
    .endm

    .section .multiboot, "a", @progbits
    .align 8
    .long 0x1badb002, 0, -0x1badb002
    .align 8
multiboot2:
    .long 0xe85250d6, 0, multiboot2_end - multiboot2, -(0xe85250d6 + multiboot2_end - multiboot2)
    .short 0, 0
    .long 8
multiboot2_end:

    .section .note.pvh, "a", @note
    .align 4
    .long 4, 4, 18 /* XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .long start

    .text
    .globl start
start:
    cli
    cld
    mov $stack_top, %esp
    mov %eax, boot_magic
    mov %ebx, boot_info
    lgdt first_pointer
    ljmp $CODE32, $1f
1:  mov $DATA32, %eax
    data_segments
    mov %eax, %ss
    fninit
    call guest_main
    jmp .

/* Vectors 0 to 47: the frame gets an error code where the CPU has pushed none, and the vector. */
    .globl vectors
    .align 16
vectors:
    .set v, 0
    .rept 48
    .align 16
    .if v != 8 && (v < 10 || v > 14) && v != 17
    push $0
    .endif
    push $v
    jmp enter_handler
    .set v, v + 1
    .endr

/* struct frame: what is pushed here, and what the CPU pushed. */
enter_handler:
    push %gs
    push %fs
    push %es
    push %ds
    pusha
    cld
    mov $DATA32, %eax
    data_segments
    push %esp
    call handle
    add $4, %esp
    popa
    pop %ds
    pop %es
    pop %fs
    pop %gs
    add $8, %esp
    iret

/* bool attempt(void (*fn)(u32 a, u32 b), u32 a, u32 b): false if it ended by an exception, which
 * comes back here by way of give_up. */
    .globl attempt, give_up
attempt:
    push %ebp
    push %ebx
    push %esi
    push %edi
    mov %esp, saved_esp
    pushl 28(%esp)
    pushl 28(%esp)
    push $2 /* an exception pushes these flags, on any CPU */
    popf
    nop /* what a wrong far return takes for a selector: the lines that are kept show it */
    call *28(%esp)
    add $8, %esp
    mov $1, %eax
    jmp 1f
give_up:
    mov $DATA32, %eax
    mov %eax, %ss
    data_segments
    mov saved_esp, %esp
    xor %eax, %eax
1:  pop %edi
    pop %esi
    pop %ebx
    pop %ebp
    ret

/* void ring3(u32 eip, u32 esp, u32 eflags): returns by INT 0x2f, or by an exception. */
    .globl ring3, ring3_done, to_v86
ring3:
    push %ebp
    push %ebx
    push %esi
    push %edi
    mov %esp, ring3_esp
    mov 20(%esp), %eax
    mov 24(%esp), %edx
    mov 28(%esp), %ecx
    push $0x3b /* DATA32 of ring 3 */
    push %edx
    push %ecx
    push $0x33
    push %eax
    mov $0x3b, %eax
    data_segments
    iret
ring3_done:
    mov $DATA32, %eax
    mov %eax, %ss
    data_segments
    mov ring3_esp, %esp
    pop %edi
    pop %esi
    pop %ebx
    pop %ebp
    ret

/* void to_v86(u32 ip, u32 sp, u32 eflags): segments 0x800; DS 0x900, ES 0xa00, FS 0xb00, GS 0xc00 */
to_v86:
    push %ebp
    push %ebx
    push %esi
    push %edi
    mov %esp, ring3_esp
    mov 20(%esp), %eax
    mov 24(%esp), %edx
    mov 28(%esp), %ecx
    push $0xc00
    push $0xb00
    push $0x900
    push $0xa00
    push $0x800
    push %edx
    push %ecx
    push $0x800
    push %eax
    mov $0x12345678, %ebx
    mov $0x9abcdef0, %esi
    mov $0x1111, %edi
    mov $0x2222, %ebp
    iret

/* void to_real(u32 entry): calls code of LOW in real-address mode, which returns by lretw to
 * real_back; interrupts have the table at 0. */
    .globl to_real
to_real:
    push %ebp
    push %ebx
    push %esi
    push %edi
    mov 20(%esp), %eax
    mov %eax, LOW - 8
    mov %esp, saved_real
    lidt real_idt
    ljmp $CODE16, $(leave_protected - low_start + LOW)

    .globl back_in_32
back_in_32:
    mov $DATA32, %eax
    data_segments
    mov %eax, %ss
    mov saved_real, %esp
    lidt idt_pointer
    pop %edi
    pop %esi
    pop %ebx
    pop %ebp
    ret

/* Code of the second task: counts, and goes back as it was called. */
    .globl task_code, task_16, gate_code, gate_code_16, conforming_code
task_code:
1:  incl task_count
    mov %ebx, task_ebx
    pushf
    popl task_flags
    mov %cr0, %eax
    mov %eax, task_cr0
    str %eax
    mov %eax, task_tr
    add $7, %ebx
    iret
    jmp 1b

gate_code: /* by a call gate with two parameters */
    mov %esp, gate_esp
    mov %ss, %eax
    mov %eax, gate_ss
    mov %cs, %eax
    mov %eax, gate_cs
    lret $8
conforming_code:
    mov %cs, %eax
    mov %eax, gate_cs
    lret

    .globl long_and_back
/* bool long_and_back(u32 cr3): through compatibility mode into 64-bit mode and back. */
long_and_back:
    push %ebx
    mov %cr4, %eax
    or $0x20, %eax
    mov %eax, %cr4
    mov 8(%esp), %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    or $0x80000000, %eax
    mov %eax, %cr0
    rdmsr
    mov %eax, long_efer
    ljmp $0x40, $1f
    .code64
1:  mov $0x123456789abcdef0, %rbx
    movl $long_value, %eax
    mov %rbx, (%rax)
    movl $2f, %eax
    push $CODE32
    push %rax
    lretq
    .code32
2:  mov %cr0, %eax
    and $0x7fffffff, %eax
    mov %eax, %cr0
    rdmsr
    mov %eax, long_efer + 4
    and $~0x100, %eax
    wrmsr
    mov %cr4, %eax
    and $~0x20, %eax
    mov %eax, %cr4
    pop %ebx
    ret

/* ---- code of 16 bits, copied to LOW ---- */
    .globl low_start, low_end
    .code16
low_start:
    jmp . /* CS:0 */
leave_protected:
    mov $DATA16, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %fs
    mov %ax, %gs
    mov %ax, %ss
    mov %cr0, %eax
    and $0xfe, %al
    mov %eax, %cr0
    ljmp $0, $(1f - low_start + LOW)
1:  xor %ax, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %fs
    mov %ax, %gs
    mov %ax, %ss
    mov $0x7000, %sp
    push %cs
    push $(real_back - low_start + LOW)
    push $(LOW >> 4)
    mov (LOW - 8), %ax
    push %ax
    lret
real_back:
    xor %ax, %ax
    mov %ax, %ds
    mov %cr0, %eax
    or $1, %al
    mov %eax, %cr0
    ljmpl $CODE32, $back_in_32

#define RESULT(n) (LOW - 0x100 + 4 * (n))
    .macro entry name
    .globl \name
    .set \name, . - low_start
    .endm

    entry real_basic /* registers, stacks, strings, addresses of 16 and 32 bits */
    mov %cs, RESULT(0)
    push %bp
    mov %sp, %bp
    pushl $0x12345678
    mov %sp, RESULT(1)
    popl RESULT(2)
    pushf
    pop RESULT(3)
    mov $0x1234, %ax
    mov %ax, %es
    movw $0x5a5a, %es:(0x10)
    xor %ax, %ax
    mov %ax, %es
    mov $0x2350, %ebx
    mov $0x1000, %ax
    mov %ax, %gs
    mov %gs:(%ebx), %ax
    mov %ax, RESULT(4)
    mov $0xffff, %bx
    mov $0x11, %si
    lea (%bx,%si), %di
    mov %di, RESULT(5)
    mov $0x6000, %di
    mov $0xabcd, %ax
    mov $5, %cx
    rep stosw
    mov %di, RESULT(6)
    push %cs
    call 1f
    jmp 2f
1:  mov %sp, RESULT(7)
    lret
2:  mov %cs:low_start - low_start, %eax
    mov %eax, RESULT(8)
    mov $0x77, %al
    movb %al, %cs:(low_end - low_start) /* CS may be written in real mode */
    mov %cs:(low_end - low_start), %al
    mov %ax, RESULT(10)
    smsw %ax
    and $1, %ax
    mov %ax, RESULT(9)
    pop %bp
    lret

    entry real_int /* through the table at 0, and what comes back */
    sti
    pushf
    pop RESULT(0)
    mov $0x40, %ax
    int $0x40
    mov %ax, RESULT(1)
    pushf
    pop RESULT(2)
    mov %sp, RESULT(3)
    xor %dx, %dx
    div %dl /* #DE: its handler moves IP on */
    mov %dx, RESULT(4)
    mov $1, %al
    mov $0x7fff, %bx
    add %bx, %bx
    into
    mov %dx, RESULT(5)
    ud2
    mov %dx, RESULT(6)
    arpl %ax, %ax /* there is none */
    mov %dx, RESULT(7)
    cli
    lret

    entry ivt_int40
    add $2, %ax
    push %bp
    mov %sp, %bp
    orw $1, 6(%bp) /* CF */
    pop %bp
    iret
    entry ivt_skip2 /* faults of instructions of two bytes */
    inc %dx
    push %bp
    mov %sp, %bp
    addw $2, 2(%bp)
    pop %bp
    iret
    entry ivt_count
    add $16, %dx
    iret

    entry real_limits /* a word over the end of 64 KiB */
    mov $0xffff, %bx
    xor %dx, %dx
    mov (%bx), %ax
    mov %dx, RESULT(0)
    xor %eax, %eax
    mov $0x10000, %ebx
    mov %dx, RESULT(1)
    lret

    entry real_unreal /* limits of 4 GiB that a visit of protected mode left */
    mov %cr0, %eax
    or $1, %al
    mov %eax, %cr0
    mov $DATA32, %bx
    mov %bx, %es
    and $0xfe, %al
    mov %eax, %cr0
    xor %bx, %bx
    mov %bx, %es
    mov $0x200000, %ebx
    mov %es:(%ebx), %eax
    mov %eax, RESULT(0)
    mov $0xffff, %bx
    mov %bx, %es
    mov %es:(0x10), %eax /* A20 is on: 0x100000 */
    mov %eax, RESULT(1)
    mov $DATA16, %bx
    mov %cr0, %eax
    or $1, %al
    mov %eax, %cr0
    mov %bx, %es
    and $0xfe, %al
    mov %eax, %cr0
    lret

    entry v86_ints /* what the monitor sees */
    int $0x21
    pushf
    pop %ax
    cli
    sti
    mov $0x5555, %dx
    in %dx, %al
    mov $0x80, %dx
    out %al, %dx
    hlt
    iret
    entry v86_free /* without the monitor, if IOPL is 3 */
    mov $0x1234, %ax
    push %ax
    pop %cx
    mov %cs, %dx
    mov %ds, %si
    mov %es, %di
    cli
    pushf
    pop %bx
    sti
    pushfl
    pop %ebp
    ljmp $0x810, $(1f - low_start - 0x100)
1:  call 2f
    mov $0xffff, %bx
    mov (%bx), %ax /* over the end */
2:  push %cs
    push $(3f - low_start - 0x100)
    lret
3:  ret
    entry v86_bad
    lgdt (0)
    mov %cr0, %eax
    hlt

    entry prot16 /* code of 16 bits in protected mode */
    mov $0x11223344, %eax
    push %ax
    pushl %eax
    mov %sp, %bx
    popl %ecx
    pop %dx
    call 1f
    mov $0xfffe, %ax
    add $4, %ax
    pushf
    pop %si
    lretl
1:  ret
low_end:
    .code32

    .data
    .globl boot_magic, boot_info, task_count, task_ebx, task_flags, task_cr0, task_tr, gate_esp
    .globl gate_ss, gate_cs, long_efer, long_value, idt_pointer
boot_magic: .long 0
boot_info:  .long 0
saved_esp:  .long 0
ring3_esp:  .long 0
saved_real: .long 0
task_count: .long 0
task_ebx:   .long 0
task_flags: .long 0
task_cr0:   .long 0
task_tr:    .long 0
gate_esp:   .long 0
gate_ss:    .long 0
gate_cs:    .long 0
long_efer:  .long 0, 0
    .align 8
first_gdt:  .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
long_value: .quad 0
    .short 0
    .globl gdt_pointer
gdt_pointer:
    .short 8191
    .long gdt
    .short 0
first_pointer:
    .short 23
    .long first_gdt
    .short 0
idt_pointer:
    .short 48 * 8 - 1
    .long idt
    .short 0
real_idt:
    .short 0x3ff
    .long 0
    .bss
    .align 16
    .skip 16384
    .globl stack_top
stack_top:
