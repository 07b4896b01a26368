/*
 * The services that code of 16 bits finds (bios.h): what Linux' setup code and programs like it ask
 * for, in the last 4 KiB below 1 MiB. There is no disk, no keyboard and no screen to serve: those
 * fail as a PC without them has it, and text goes to the serial port. What is not here sets CF, with
 * AH = 86h where that is the custom, or does nothing.
 *
 * IBM PS/2 and PC BIOS Interface Technical Reference for interrupts and the data area at 400h; ACPI
 * 6.4, chapter 15, for INT 15h AX=E820h. Linked at F000h: offsets in segment F000h. Guests see all
 * of it: bytes that change are another machine (docs/determinism.md).
 */
        .code16
        .text
        .globl _start
_start:
/* struct bios_facts, which the loader fills in. */
setup_segment:  .word 0
stack_top:      .word 0
low_kb:         .word 0 /* of RAM from 0 on */
ebda_segment:   .word 0
extended_kb:    .word 0 /* from 1 MiB on: INT 15h AH=88h */
below_16m_kb:   .word 0 /* AX=E801h: from 1 MiB on, in KiB; from 16 MiB on, in 64 KiB */
above_16m:      .word 0
range_count:    .word 0
ranges:         .org 0x80 /* {base, size, type} of e820 */

/* ---- from power-on to the program ---- */
post:
        cli
        cld
        /* The local APIC lets the 8259s' interrupts through ("virtual wire"); it is beyond what real mode
         * reaches, but for a moment. */
        lgdtl   %cs:gdt_pointer
        mov     %cr0, %eax
        or      $1, %al
        mov     %eax, %cr0
        mov     $8, %bx
        mov     %bx, %ds
        mov     $0xfee00000, %ebx
        movl    $0x1ff, 0xf0(%ebx)      /* on; vector of spurious interrupts */
        movl    $0x700, 0x350(%ebx)     /* LINT0: ExtINT */
        movl    $0x400, 0x360(%ebx)     /* LINT1: NMI */
        mov     $16, %bx
        mov     %bx, %ds                /* a limit of 64 KiB again */
        and     $0xfe, %al
        mov     %eax, %cr0

        xor     %ax, %ax
        mov     %ax, %ds
        mov     %ax, %es
        mov     %ax, %ss
        mov     $0x7c00, %sp
        xor     %di, %di
        mov     $256, %cx
1:      mov     $nothing, %ax
        stosw
        mov     %cs, %ax
        stosw
        loop    1b
        mov     $vectors, %si
2:      lodsw   %cs:(%si), %ax
        mov     %ax, %di
        lodsw   %cs:(%si), %ax
        mov     %ax, (%di)
        cmp     $vectors_end, %si
        jb      2b

        mov     $0x400, %di
        mov     $128, %cx
        xor     %ax, %ax
        rep stosw
        movw    $0x3f8, 0x400           /* the serial port */
        mov     %cs:ebda_segment, %ax
        mov     %ax, 0x40e
        movw    $0x0202, 0x410          /* equipment: an FPU, one serial port */
        mov     %cs:low_kb, %ax
        mov     %ax, 0x413
        movw    $0x1e, 0x41a            /* keys typed: none */
        movw    $0x1e, 0x41c
        movw    $0x1e, 0x480
        movw    $0x3e, 0x482
        movb    $3, 0x449               /* text */
        movb    $80, 0x44a
        movb    $24, 0x484
        movb    $16, 0x485
        mov     %cs:ebda_segment, %es
        movb    $1, %es:0               /* its KiB */

        mov     $controllers, %si
        mov     $(controllers_end - controllers) / 2, %cx
        xor     %dx, %dx
3:      lodsw   %cs:(%si), %ax
        mov     %al, %dl
        mov     %ah, %al
        out     %al, %dx
        loop    3b

        /* The tick count since midnight: 1193182 / 65536 a second. */
        call    rtc_wait
        mov     $4, %al
        call    rtc_binary
        imul    $60, %eax, %ebx
        mov     $2, %al
        call    rtc_binary
        add     %eax, %ebx
        imul    $60, %ebx
        mov     $0, %al
        call    rtc_binary
        add     %ebx, %eax
        mov     $1193182, %edx
        mul     %edx
        shrd    $16, %edx, %eax
        mov     %eax, 0x46c

        mov     %cs:setup_segment, %ax
        mov     %ax, %ds
        mov     %ax, %es
        mov     %ax, %fs
        mov     %ax, %gs
        mov     %ax, %ss
        mov     %cs:stack_top, %sp
        add     $0x20, %ax
        push    %ax
        xor     %eax, %eax
        push    %ax
        xor     %ebx, %ebx
        xor     %ecx, %ecx
        xor     %edx, %edx
        xor     %esi, %esi
        xor     %edi, %edi
        xor     %ebp, %ebp
        lret

/* {port, value}: the 8259s at 08h and 70h, all masked but the timer and the second one; the 8254's
 * channel 0 at 18.2 Hz. */
controllers:
        .byte   0x20, 0x11, 0xa0, 0x11, 0x21, 0x08, 0xa1, 0x70, 0x21, 0x04, 0xa1, 0x02
        .byte   0x21, 0x01, 0xa1, 0x01, 0x21, 0xfa, 0xa1, 0xff
        .byte   0x43, 0x36, 0x40, 0x00, 0x40, 0x00
controllers_end:

        .macro  vector number, handler
        .word   4 * \number, \handler
        .endm
vectors:
        vector  0x00, exception
        vector  0x06, exception
        vector  0x08, tick
        .irp    n, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f
        vector  \n, irq
        .endr
        vector  0x10, video
        vector  0x11, equipment
        vector  0x12, memory_size
        vector  0x13, disk
        vector  0x14, no_serial
        vector  0x15, system
        vector  0x16, keyboard
        vector  0x17, no_printer
        vector  0x18, no_boot
        vector  0x19, no_boot
        vector  0x1a, time
        .irp    n, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
        vector  \n, irq_second
        .endr
vectors_end:

        /* What aligns the table is the machine's as all else is here, and no assembler's choice. */
        .byte   0x66, 0x90
        .balign 8
gdt:    .quad   0, 0x00cf93000000ffff, 0x000093000000ffff
gdt_pointer:
        .word   23
        .long   0xf0000 + gdt

/* ---- ends of services: CF is in the flags that IRET takes ---- */
not_supported:
        mov     $0x86, %ah
failed: push    %bp
        mov     %sp, %bp
        orb     $1, 6(%bp)
        pop     %bp
        iret
good:   push    %bp
        mov     %sp, %bp
        andb    $0xfe, 6(%bp)
        pop     %bp
        iret

/* ---- interrupts ---- */
tick:
        push    %ds
        push    %ax
        xor     %ax, %ax
        mov     %ax, %ds
        incl    0x46c
        cmpl    $0x1800b0, 0x46c        /* a day */
        jb      1f
        movl    $0, 0x46c
        incb    0x470
1:      int     $0x1c
        mov     $0x20, %al
        out     %al, $0x20
        pop     %ax
        pop     %ds
nothing:
        iret
irq_second:
        push    %ax
        mov     $0x20, %al
        out     %al, $0xa0
        jmp     1f
irq:    push    %ax
1:      mov     $0x20, %al
        out     %al, $0x20
        pop     %ax
        iret

/* ---- 10h: text is sent to the serial port ---- */
video:
        cmp     $0x0e, %ah
        je      teletype
        cmp     $0x13, %ah
        je      string
        cmp     $0x0f, %ah
        je      video_mode
        cmp     $0x03, %ah
        jne     nothing
        xor     %cx, %cx                /* the cursor */
        xor     %dx, %dx
        iret
teletype:
        call    put
        iret
video_mode:
        mov     $0x5003, %ax            /* 80 columns, mode 3 */
        xor     %bh, %bh
        iret
string: /* CX characters at ES:BP; AL bit 1: each with its attribute */
        push    %ax
        push    %cx
        push    %si
        mov     %bp, %si
        mov     %al, %ah
        cld
        jcxz    2f
1:      lodsb   %es:(%si), %al
        call    put
        test    $2, %ah
        jz      3f
        inc     %si
3:      loop    1b
2:      pop     %si
        pop     %cx
        pop     %ax
        iret

/* AL is sent; a port that never becomes ready is given up. */
put:    push    %ax
        push    %cx
        push    %dx
        xor     %cx, %cx
        mov     $0x3fd, %dx
        mov     %al, %ah
1:      in      %dx, %al
        test    $0x20, %al
        loopz   1b
        mov     $0x3f8, %dx
        mov     %ah, %al
        out     %al, %dx
        pop     %dx
        pop     %cx
        pop     %ax
        ret

/* ---- 11h to 14h, 17h ---- */
equipment:
        push    %ds
        xor     %ax, %ax
        mov     %ax, %ds
        mov     0x410, %ax
        pop     %ds
        iret
memory_size:
        push    %ds
        xor     %ax, %ax
        mov     %ax, %ds
        mov     0x413, %ax
        pop     %ds
        iret
disk:
        mov     $1, %ah                 /* no such function, or drive */
        jmp     failed
no_serial:
        mov     $0x80, %ah              /* time-out */
        iret
no_printer:
        mov     $1, %ah
        iret

/* ---- 15h ---- */
system:
        cmp     $0xe820, %ax
        je      memory_map
        cmp     $0xe801, %ax
        je      memory_e801
        cmp     $0x2401, %ax            /* A20 is on */
        je      a20_on
        cmp     $0x2402, %ax
        je      a20_status
        cmp     $0x2403, %ax
        je      a20_ways
        cmp     $0x86, %ah
        je      wait
        cmp     $0x88, %ah
        je      memory_extended
        cmp     $0xc0, %ah
        jne     not_supported
        mov     %cs, %bx
        mov     %bx, %es
        mov     $configuration, %bx
a20_on: mov     $0, %ah
        jmp     good
a20_status:
        mov     $1, %ax
        jmp     good
a20_ways:
        xor     %bx, %bx                /* neither keyboard controller nor port 92h */
        jmp     a20_on
memory_extended:
        mov     %cs:extended_kb, %ax
        jmp     good
memory_e801:
        mov     %cs:below_16m_kb, %ax
        mov     %cs:above_16m, %bx
        mov     %ax, %cx
        mov     %bx, %dx
        jmp     good
memory_map:
        cmp     $0x534d4150, %edx       /* "SMAP" */
        jne     not_supported
        cmp     $20, %ecx
        jb      not_supported
        movzwl  %cs:range_count, %ecx
        cmp     %ecx, %ebx
        jae     not_supported
        push    %si
        push    %di
        imul    $20, %bx, %si
        add     $ranges, %si
        inc     %bx
        cmp     %cx, %bx
        jb      1f
        xor     %ebx, %ebx              /* that was the last one */
1:      mov     $10, %cx
        cld
        rep movsw %cs:(%si), %es:(%di)
        pop     %di
        pop     %si
        mov     $20, %ecx
        mov     %edx, %eax
        jmp     good

/* CX:DX us, by the TSC, which counts ns; what is longer than a tick sleeps if ticks come. */
wait:
        push    %eax
        push    %ebx
        push    %ecx
        push    %edx
        push    %esi
        push    %edi
        shl     $16, %ecx
        mov     %dx, %cx
        mov     $1000, %eax
        mul     %ecx
        mov     %eax, %esi
        mov     %edx, %edi
        rdtsc
        add     %eax, %esi
        adc     %edx, %edi
1:      rdtsc
        mov     %esi, %ebx
        mov     %edi, %ecx
        sub     %eax, %ebx
        sbb     %edx, %ecx
        jb      3f
        jnz     2f
        cmp     $60000000, %ebx
        jb      1b
2:      in      $0x21, %al
        test    $1, %al
        jnz     1b
        sti
        hlt
        cli
        jmp     1b
3:      pop     %edi
        pop     %esi
        pop     %edx
        pop     %ecx
        pop     %ebx
        pop     %eax
        jmp     a20_on

configuration:
        .word   8
        .byte   0xfc, 0x01, 0x00        /* an AT */
        .byte   0x60, 0, 0, 0, 0        /* a second 8259, an RTC */

/* ---- 16h: nobody types ---- */
keyboard:
        test    $0xef, %ah              /* 00h, 10h: waits for a key */
        jz      2f
        cmp     $0x05, %ah
        je      3f
        cmp     $0x01, %ah
        je      1f
        cmp     $0x11, %ah
        je      1f
        xor     %al, %al                /* shift keys */
        iret
1:      push    %bp
        mov     %sp, %bp
        orb     $0x40, 6(%bp)           /* ZF: none */
        pop     %bp
        iret
2:      sti
        hlt
        jmp     2b
3:      mov     $1, %al                 /* no room for a key */
        iret

/* ---- 18h, 19h, and faults ---- */
no_boot:
        mov     $no_boot_text, %si
        jmp     stop
exception:
        mov     $exception_text, %si
stop:   cld
1:      lodsb   %cs:(%si), %al
        test    %al, %al
        jz      2f
        call    put
        jmp     1b
2:      cli
        hlt
        jmp     2b
no_boot_text:
        .asciz  "\r\nBIOS: nothing to boot\r\n"
exception_text:
        .asciz  "\r\nBIOS: an exception without a handler\r\n"

/* ---- 1Ah ---- */
time:
        cmp     $0x00, %ah
        je      get_ticks
        cmp     $0x01, %ah
        je      set_ticks
        cmp     $0x02, %ah
        je      get_time
        cmp     $0x04, %ah
        je      get_date
        jmp     failed
get_ticks:
        push    %ds
        xor     %ax, %ax
        mov     %ax, %ds
        mov     0x46c, %dx
        mov     0x46e, %cx
        xchg    0x470, %al              /* a day has passed */
        pop     %ds
        jmp     good
set_ticks:
        push    %ds
        push    %ax
        xor     %ax, %ax
        mov     %ax, %ds
        mov     %dx, 0x46c
        mov     %cx, 0x46e
        movb    $0, 0x470
        pop     %ax
        pop     %ds
        jmp     good
get_time:
        push    %ax
        call    rtc_wait
        mov     $4, %al
        call    rtc_bcd
        mov     %al, %ch
        mov     $2, %al
        call    rtc_bcd
        mov     %al, %cl
        mov     $0, %al
        call    rtc_bcd
        mov     %al, %dh
        xor     %dl, %dl                /* no daylight saving */
        pop     %ax
        jmp     good
get_date:
        push    %ax
        call    rtc_wait
        mov     $0x32, %al
        call    rtc_bcd
        mov     %al, %ch
        mov     $9, %al
        call    rtc_bcd
        mov     %al, %cl
        mov     $8, %al
        call    rtc_bcd
        mov     %al, %dh
        mov     $7, %al
        call    rtc_bcd
        mov     %al, %dl
        pop     %ax
        jmp     good

/* The RTC's registers: AL is the index, then the value. */
rtc_read:
        out     %al, $0x70
        in      $0x71, %al
        ret
/* Until no update is near. */
rtc_wait:
        mov     $10, %al
        call    rtc_read
        test    $0x80, %al
        jnz     rtc_wait
        ret
/* In BCD, whichever way the RTC counts; AH is lost. */
rtc_bcd:
        call    rtc_read
        mov     %al, %ah
        mov     $11, %al
        call    rtc_read
        test    $4, %al
        mov     %ah, %al
        jz      1f
        aam
        shl     $4, %ah
        or      %ah, %al
1:      ret
/* In binary, in EAX. */
rtc_binary:
        call    rtc_bcd
        mov     %al, %ah
        shr     $4, %ah
        and     $0x0f, %al
        aad
        movzbl  %al, %eax
        ret

/* ---- where a CPU begins, and what programs jump to for a reset ---- */
        .org    0xff0
        mov     $0xfe, %al
        out     %al, $0x64
        hlt
        .org    0xffe
        .byte   0xfc, 0                 /* an AT */
        .section .note.GNU-stack, "", @progbits
