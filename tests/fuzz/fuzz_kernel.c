/* Fuzz target: kernel_extract and initrd_check on any bytes: the files a user names. */
#include <stdlib.h>

#include "board/initrd.h"
#include "board/kernel.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct kernel_image image;
    struct err err = {0};
    if (!kernel_extract(data, size, &image, &err)) {
        volatile u8 last = image.elf ? ((const u8 *)image.elf)[image.elf_size - 1]
                                     : ((const u8 *)image.header)[image.header_size - 1];
        (void)last;
        kernel_image_free(&image);
    } else if (!err.text[0]) {
        abort(); /* refused without a reason */
    }
    err.text[0] = 0;
    if (initrd_check(data, size, &err) && !err.text[0])
        abort();
    return 0;
}
