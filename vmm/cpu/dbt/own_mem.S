# What the Makefile's GPR_SRC calls for memcpy and memset where clang compiled it: libc's use vector
# registers, which hold the guest's there.
        .text
        .globl own_memcpy, own_memset
        .type own_memcpy, @function
        .type own_memset, @function

own_memcpy:
        mov %rdi, %rax
        mov %rdx, %rcx
        rep movsb
        ret
        .size own_memcpy, . - own_memcpy

own_memset:
        mov %rdi, %r8
        mov %esi, %eax
        mov %rdx, %rcx
        rep stosb
        mov %r8, %rax
        ret
        .size own_memset, . - own_memset
        .section .note.GNU-stack, "", @progbits
