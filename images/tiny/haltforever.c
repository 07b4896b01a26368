/* CLI; HLT: nothing can wake it. */
#include "tiny.h"

void guest_main(void)
{
    print("ok halting for ever\n");
    for (;;)
        __asm__ volatile("cli; hlt");
}
