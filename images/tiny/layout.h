/* Numbers shared by C and assembly. */
#ifndef TINY_LAYOUT_H
#define TINY_LAYOUT_H

#define SEL_KCODE  0x10
#define SEL_KDATA  0x18
#define SEL_UDATA  0x2b
#define SEL_UCODE  0x33
#define SEL_ABSENT 0x38
#define SEL_TSS    0x40
#define SEL_FREE   0x50
#define VEC_BACK   0x81
#define USER_ALIAS 0x4000000000

#endif
