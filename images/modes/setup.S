/*
 * A program that is entered as Linux is by its code of 16 bits: it prints what it was given, and what
 * each service of the BIOS says (tests/suite/bios.py knows what is right). On the command line, "ud":
 * then an instruction that is none; "boot": INT 19h; else it jumps to where a reset begins.
 */
        .code16
        .text
        .globl _start
_start: .org 0x1f1
        .byte   7               /* sectors after this one */
        .word   0
        .long   1               /* of 16 bytes: what follows them */
        .word   0, 0xffff, 0, 0xaa55
        jmp     start
        .ascii  "HdrS"
        .word   0x209
        .org    0x210
        .byte   0, 1            /* loader; loaded at 1 MiB */
        .word   0
        .long   0x100000, 0, 0, 0
        .word   0, 0
        .long   0, 0x7fffffff   /* command line; the initrd's end */
        .long   0x1000
        .byte   0, 0
        .word   0
        .long   255
        .org    0x250
        .quad   0               /* setup data */
        .org    0x268

        .macro  say text
        call    text_follows
        .asciz  "\text"
        .endm
        .macro  number text, value
        say     "\text"
        pushl   %eax
        movl    \value, %eax
        call    hex
        popl    %eax
        .endm
        /* A service: AX, then what AX, BX, CX, DX and CF are. */
        .macro  service vector, ax
        say     "\nint \vector \ax"
        mov     $\ax, %ax
        xor     %bx, %bx
        xor     %cx, %cx
        mov     $0x80, %dx
        int     $\vector
        call    registers
        .endm

start:  cld
        pushf
        pop     %bp
        number  "cs ", %cs
        number  " ds ", %ds
        number  " es ", %es
        number  " ss ", %ss
        number  " sp ", %esp
        say     " flags "
        movzwl  %bp, %eax
        call    hex
        number  "\nloader ", 0x210
        number  " heap ", 0x224
        number  " line ", 0x228
        number  " initrd ", 0x21c
        number  " seed ", 0x250
        say     "\nappend "
        movl    0x228, %esi
        sub     $0x90000, %esi
1:      lodsb
        test    %al, %al
        jz      2f
        mov     $0x0e, %ah
        xor     %bx, %bx
        int     $0x10
        jmp     1b
2:      mov     $0xffff, %ax
        mov     %ax, %fs
        number  "\nkernel ", %fs:(0x10)
        xor     %ax, %ax
        mov     %ax, %fs
        number  "\ndata ", %fs:(0x400)
        number  " ", %fs:(0x40e)
        number  " ", %fs:(0x413)
        number  " ", %fs:(0x475)

        service 0x11, 0
        service 0x12, 0
        service 0x13, 0x0000
        service 0x13, 0x0800
        service 0x13, 0x4100
        service 0x15, 0x5300
        service 0x15, 0x8800
        service 0x15, 0x2401
        service 0x15, 0x2402
        service 0x15, 0x2403
        service 0x15, 0xe801
        service 0x15, 0xe980
        service 0x15, 0xec00
        service 0x10, 0x0f00
        service 0x10, 0x0300
        service 0x10, 0x1a00
        service 0x10, 0x4f00
        service 0x14, 0x0300
        service 0x17, 0x0200
        service 0x16, 0x0200
        service 0x16, 0x0100
        say     " zf "
        mov     $0x1100, %ax
        int     $0x16
        setz    %al
        movzbl  %al, %eax
        call    hex
        service 0x1a, 0x0200
        service 0x1a, 0x0400
        service 0x1a, 0xb101
        service 0x60, 0x1234

        say     "\nconfiguration "
        push    %es
        mov     $0xc000, %ax
        int     $0x15
        movl    %es:2(%bx), %eax
        pop     %es
        call    hex

        /* The memory map; and what is no question for it. */
        xor     %ebx, %ebx
3:      mov     $0xe820, %eax
        mov     $0x534d4150, %edx
        mov     $20, %ecx
        mov     $buffer, %di
        int     $0x15
        jc      4f
        number  "\ne820 ", buffer + 4
        number  ":", buffer
        number  " ", buffer + 12
        number  ":", buffer + 8
        number  " type ", buffer + 16
        number  " then ", %ebx
        say     " "
        cmp     $0x534d4150, %eax
        jne     4f
        cmp     $20, %ecx
        jne     4f
        test    %ebx, %ebx
        jnz     3b
4:      mov     $0xe820, %eax
        mov     $77, %ebx
        int     $0x15
        call    refused
        mov     $0xe820, %eax
        xor     %ebx, %ebx
        mov     $19, %ecx
        mov     $0x534d4150, %edx
        int     $0x15
        call    refused
        mov     $0xe820, %eax
        xor     %ebx, %ebx
        mov     $20, %ecx
        xor     %edx, %edx
        int     $0x15
        call    refused

        /* Time: ticks since midnight, three of them, a wait of 116 ms by them, and one of 2 ms
         * without any. */
        sti
        mov     $0, %ah
        int     $0x1a
        number  "\nticks ", %ecx
        number  " ", %edx
        mov     %fs:(0x46c), %ebx
5:      hlt
        mov     %fs:(0x46c), %eax
        sub     %ebx, %eax
        cmp     $3, %al
        jb      5b
        number  " slept ", %eax
        call    wait
        say     " waited "
        call    hex
        cli
        rdtsc
        mov     %eax, %ebx
        mov     $0x8600, %ax
        xor     %cx, %cx
        mov     $2000, %dx
        int     $0x15
        rdtsc
        sub     %ebx, %eax
        sub     $2000000, %eax
        cmp     $100000, %eax
        setb    %al
        movzbl  %al, %eax
        say     " 2 ms "
        call    hex

        say     "\nstring "
        mov     $0x1301, %ax
        mov     $3, %cx
        mov     $abc, %bp
        int     $0x10
        mov     $0x1303, %ax
        mov     $2, %cx
        mov     $attributes, %bp
        int     $0x10
        say     "\nend\n"
        movl    0x228, %esi
        sub     $0x90000, %esi
        cmpb    $'u', (%si)
        jne     6f
        ud2
6:      cmpb    $'b', (%si)
        jne     7f
        int     $0x19
7:      ljmp    $0xf000, $0xfff0

wait:   mov     %fs:(0x46c), %ebx       /* EAX: ticks of 116 ms */
        mov     $0x8600, %ax
        mov     $1, %cx
        mov     $(116000 - 0x10000), %dx
        int     $0x15
        mov     %fs:(0x46c), %eax
        sub     %ebx, %eax
        ret

refused:
        setc    %bl
        movzbl  %ah, %eax
        say     "\nrefused "
        call    hex
        movzbl  %bl, %eax
        say     " "
        call    hex
        ret

registers:
        pushf
        pushl   %eax
        say     ": "
        popl    %eax
        pushl   %eax
        movzwl  %ax, %eax
        call    hex
        say     " "
        movzwl  %bx, %eax
        call    hex
        say     " "
        movzwl  %cx, %eax
        call    hex
        say     " "
        movzwl  %dx, %eax
        call    hex
        popl    %eax
        popf
        jnc     1f
        say     " c"
1:      ret

hex:    pushal
        mov     %eax, %edx
        mov     $8, %cx
1:      cmp     $1, %cx
        je      2f
        test    $0xf0000000, %edx
        jnz     2f
        shl     $4, %edx
        loop    1b
2:      rol     $4, %edx
        mov     %dl, %al
        and     $15, %al
        cmp     $10, %al
        jb      3f
        add     $'a' - '0' - 10, %al
3:      add     $'0', %al
        mov     $0x0e, %ah
        xor     %bx, %bx
        int     $0x10
        loop    2b
        popal
        ret

text_follows:
        pushf
        push    %bp
        mov     %sp, %bp
        xchg    %si, 4(%bp)
        push    %ax
        push    %bx
1:      lodsb   %cs:(%si), %al
        test    %al, %al
        jz      2f
        mov     $0x0e, %ah
        xor     %bx, %bx
        int     $0x10
        jmp     1b
2:      pop     %bx
        pop     %ax
        xchg    %si, 4(%bp)
        pop     %bp
        popf
        ret

abc:    .ascii  "abc"
attributes:
        .byte   'd', 7, 'e', 7
buffer: .skip   20
        .org    0x1000
        .long   0x600dc0de      /* at 1 MiB */
        .org    0x1010
        .section .note.GNU-stack, "", @progbits
