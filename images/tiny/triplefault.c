/* A fault with no usable IDT: the processor shuts down. */
#include "tiny.h"

void guest_main(void)
{
    struct {
        u16 limit;
        u64 base;
    } __attribute__((packed)) none = {0, 0};

    print("ok about to fault three times\n");
    __asm__ volatile("lidt %0; ud2" : : "m"(none));
}
