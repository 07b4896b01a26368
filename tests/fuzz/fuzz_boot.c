/*
 * Fuzz target: boot_load on any ELF. The input's first four bytes choose memory, initrd sizes and
 * the boot protocol; the rest is the kernel. Whatever it says, nothing outside guest RAM is
 * written.
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
    u8 *header = malloc(BOOT_HEADER_SIZE);
    memset(header, data[3], BOOT_HEADER_SIZE);
    unsigned protocol = data[2] >> 2 & 7;
    struct boot_config config = {
        .protocol = protocol < BOOT_PROTOCOLS ? boot_protocol_name[protocol] : NULL,
        .kernel = data + 4,
        .kernel_size = size - 4,
        .header = data[2] & 1 ? header : NULL,
        .header_size = data[2] & 1 ? BOOT_HEADER_SIZE : 0,
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
