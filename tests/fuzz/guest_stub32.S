/*
 * As guest_stub.S, in the modes outside long mode: each piece of the random region runs in the next of
 * them. Linked at 1 MiB, flat binary, entered by PVH in protected mode.
 *
 *   0  flat 32-bit code of ring 0        3  real-address mode
 *   1  16-bit code of ring 0             4  flat 32-bit code of ring 3
 *   2  virtual-8086 mode                 5  as 0, with 32-bit paging; 6: with PAE
 *
 * Whatever raises an exception comes back to `next`; what cannot be delivered comes there as a task.
 */
        .globl stub32_start, stub32_end
        .section .rodata
#define AT(x)   ((x) - stub32_start + 0x100000)
#define GDT     0x104000
#define IDT     0x105000
#define TSS     0x106000
#define TSS_DF  0x106100
#define PD      0x107000
#define PAE     0x108000
#define LOW     0x7000
#define PIECE   0x10000 /* where real mode has its piece, and V86 */
        .code32
stub32_start:
        jmp start
        .balign 16
counter: .long 0
goodr:  .word 127
        .long AT(good)
        .balign 4
gdtr:   .word 127
        .long GDT
        .balign 4
idtr:   .word 2047
        .long IDT
        .balign 4
ivtr:   .word 1023
        .long 0
        .balign 16
good:   .quad 0, 0
        .quad 0x00cf9b000000ffff, 0x00cf93000000ffff    /* 10, 18: flat */
        .quad 0x0000890000000067 | TSS << 16            /* 20 */
        .quad 0x0000890000000067 | TSS_DF << 16         /* 28 */
        .quad 0x00cffb000000ffff, 0x00cff3000000ffff    /* 30, 38: of ring 3 */
        .quad 0x00009b000000ffff, 0x000093000000ffff    /* 40, 48: 16 bits, base PIECE and 0 */
        .quad 0x00009b000000ffff                        /* 50: 16 bits, base 0 */
        .quad 0x0000ec0000100000, 0x0000e50000280000    /* 58: a call gate, 60: a task gate */
        .quad 0x0000e20000000fff                        /* 68: LDT */
        .quad 0x0000f20000000fff, 0x00cf96000000ffff    /* 70, 78: small, expand-down */
good_end:
start:
        mov $0x90000, %esp
        /* Code that comes back from real mode, and the table that leads there. */
        lea AT(low), %esi
        mov $LOW, %edi
        mov $low_end - low, %ecx
        rep movsb
        xor %edi, %edi
        mov $LOW, %eax
        mov $256, %ecx
        rep stosl
        /* Page tables: identity, for all rings. */
        mov $PD, %edi
        mov $0x87, %eax
1:      mov %eax, (%edi)
        add $4, %edi
        add $0x400000, %eax
        jnc 1b
        mov $PAE + 32, %edi
        mov $0x87, %eax
        mov $PAE + 0x1000 + 1, %edx
2:      mov %edx, -32(%edi)
        add $8, %edi
        add $0x1000, %edx
        cmp $PAE + 64, %edi
        jb 2b
        mov $PAE + 0x1000, %edi
3:      mov %eax, (%edi)
        movl $0, 4(%edi)
        add $8, %edi
        add $0x200000, %eax
        jnc 3b
next:
        cli
        cld
        mov %cr0, %eax /* paging ends where linear addresses are physical */
        and $0x7ffffff3, %eax
        or $2, %eax
        mov %eax, %cr0
        mov $0x600, %eax
        mov %eax, %cr4
        lgdt %cs:AT(goodr)
        mov $0x18, %eax
        mov %eax, %ds
        mov %eax, %es
        lea AT(good), %esi
        mov $GDT, %edi
        mov $(good_end - good) / 4, %ecx
        rep movsl
        lgdt AT(gdtr)
        mov %eax, %ss
        mov %eax, %fs
        mov %eax, %gs
        mov $0x90000, %esp
        movb $PIECE >> 16, GDT + 0x40 + 4
        movw $AT(next) & 0xffff, GDT + 0x58
        movw $AT(next) >> 16, GDT + 0x58 + 6
        /* Interrupt gates of all rings; a double fault is a task. */
        mov $IDT, %edi
        mov $256, %ecx
        lea AT(next), %edx
        mov %edx, %eax
        and $0xffff, %eax
        or $0x100000, %eax
        and $0xffff0000, %edx
        or $0xee00, %edx
4:      mov %eax, (%edi)
        mov %edx, 4(%edi)
        add $8, %edi
        loop 4b
        movl $0x280000, IDT + 8 * 8
        movl $0xe500, IDT + 8 * 8 + 4
        mov $TSS, %edi
        xor %eax, %eax
        mov $128, %ecx
        rep stosl
        movl $0x80000, TSS + 4
        movl $0x18, TSS + 8
        movl $104 << 16, TSS + 100
        movl $AT(next), TSS_DF + 0x20
        movl $2, TSS_DF + 0x24
        movl $0x88000, TSS_DF + 0x38
        movl $0x18, TSS_DF + 0x48
        movl $0x10, TSS_DF + 0x4c
        movl $0x18, TSS_DF + 0x50
        movl $0x18, TSS_DF + 0x54
        movl $PD, TSS_DF + 0x1c
        mov $0x20, %eax
        ltr %ax
        xor %eax, %eax
        lldt %ax
        mov %eax, %dr7
        push $2
        popf
        lidt AT(idtr)
        fninit
        mov AT(counter), %eax
        incl AT(counter)
        cmp $16384, %eax
        jae done
        xor %edx, %edx
        mov $7, %ecx
        div %ecx
        mov AT(counter), %eax
        dec %eax
        shl $6, %eax
        add $0x200000, %eax
        push %eax
        mov %eax, %esi
        mov $PIECE, %edi
        mov $32, %ecx
        rep movsl
        pop %ebp
        mov %edx, %ecx
        mov $0x300000, %esi
        mov $0x310ff8, %edi
        mov %ebp, %ebx
        imul $0x1e3779b1, %ebp, %edx
        mov $0xfee00000, %eax
        cmp $1, %ecx
        je code16
        cmp $2, %ecx
        je v86
        cmp $3, %ecx
        je real
        cmp $4, %ecx
        je ring3
        cmp $5, %ecx
        je paged
        cmp $6, %ecx
        je pae
flat:   jmp *%ebp
done:   mov $0xf4, %edx
        mov $7, %eax
        out %al, %dx
        hlt
code16: mov $0x48, %cx
        mov %cx, %ds
        mov %cx, %ss
        mov $0x6000, %esp
        mov $5, %ecx
        ljmp $0x40, $0
ring3:  push $0x3b
        push $0x8c000
        push $0x3202
        push $0x33
        push %ebp
        mov $0x3b, %ecx
        mov %ecx, %ds
        mov %ecx, %es
        iret
v86:    mov %edx, %ecx
        and $0x3000, %ecx
        or $0x20002, %ecx
        push $0x1000
        push $0x3000
        push $0x2000
        push $0x1000
        push $0x800
        push $0x6000
        push %ecx
        push $PIECE >> 4
        push $0
        iret
paged:  mov $PD, %ecx
        mov %ecx, %cr3
        orl $0x10, %ss:AT(zero)
        mov %cr4, %ecx
        or $0x10, %ecx
        jmp 5f
pae:    mov $PAE, %ecx
        mov %ecx, %cr3
        mov %cr4, %ecx
        or $0x20, %ecx
5:      mov %ecx, %cr4
        mov %cr0, %ecx
        or $0x80010000, %ecx
        mov %ecx, %cr0
        jmp *%ebp
real:   lidt AT(ivtr)
        ljmp $0x50, $(enter_real - low + LOW)
zero:   .long 0
        .code16
low:    cli
        lgdtl %cs:(6f - low + LOW)
        mov %cr0, %eax
        or $1, %al
        mov %eax, %cr0
        ljmpl $0x10, $AT(next)
6:      .word 127
        .long GDT
enter_real:
        mov $0x48, %cx
        mov %cx, %ds
        mov %cx, %es
        mov %cx, %ss
        mov %cr0, %ecx
        and $0xfe, %cl
        mov %ecx, %cr0
        ljmp $0, $(7f - low + LOW)
7:      mov $0x2000, %cx
        mov %cx, %ds
        mov $0x3000, %cx
        mov %cx, %es
        mov $0x800, %cx
        mov %cx, %ss
        mov $0x6000, %sp
        ljmp $(PIECE >> 4), $0
low_end:
        .code32
stub32_end:
        .section .note.GNU-stack,"",@progbits
