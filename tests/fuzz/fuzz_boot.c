/*
 * Fuzz target: boot_load on any ELF, or bzImage by its setup code. The input's first four bytes
 * choose memory, initrd sizes and the boot protocol; the rest is the kernel. Whatever it says,
 * nothing outside guest RAM is written.
 */
#include <stdlib.h>
#include <string.h>

#include "board/boot.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static const u8 initrd[70000] = {1};
    struct ram ram;
    struct boot_state state;
    struct err err = {0};
    if (size < 4)
        return 0;
    unsigned protocol = data[2] >> 2 & 7;
    bool setup = protocol == BOOT_LINUX16; /* of which the input is the file */
    size_t header_size = setup ? size - 4 : BOOT_HEADER_SIZE;
    u8 *header = malloc(header_size + 1);
    memset(header, data[3], header_size);
    if (setup)
        memcpy(header, data + 4, header_size);
    struct boot_config config = {
        .protocol = protocol < BOOT_PROTOCOLS ? boot_protocol_name[protocol] : NULL,
        .kernel = data + 4,
        .kernel_size = size - 4,
        .header = setup || data[2] & 1 ? header : NULL,
        .header_size = setup || data[2] & 1 ? header_size : 0,
        .initrd = data[1] ? initrd : NULL,
        .initrd_size = data[1] ? sizeof(initrd) >> data[1] % 16 : 0,
        .append = data[2] & 2 ? "console=ttyS0" : NULL,
        .seed = data[0],
        .acpi_rsdp = 0xe0000};
    if (!ram_create(&ram, (16 + 2 * (u64)(data[0] % 16)) << 20, &err)) {
        if (boot_load(&ram, &config, &state, &err) && !err.text[0])
            abort();
        ram_destroy(&ram);
    }
    free(header);
    return 0;
}
