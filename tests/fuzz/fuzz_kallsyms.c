/*
 * Fuzz target: the search for VMCOREINFO and kallsyms in any memory, and what is made of them: an
 * input is a guest's RAM from physical address 0 on, or type information (BTF).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/kallsyms_sample.h"
#include "board/ram.h"
#include "mutate.h"
#include "inspect/btf.h"

static bool not_mapped(void *opaque, gva_t va, void *out, size_t len)
{
    return false;
}

static void use(const struct symbols *s)
{
    struct err err = {0};
    char *out = NULL, text[64];
    size_t size;
    for (u32 i = 0; i < s->count; i++) {
        u64 address, at = s->list[i].address;
        if (!symbols_address(s, s->names + s->list[i].name, &address))
            abort(); /* a symbol that is there is not found */
        if (!s->list[i].absolute && !symbols_find(s, at, &address))
            abort();
        symbols_format(s, at + i, text, sizeof(text));
    }
    FILE *f = open_memstream(&out, &size);
    if (symbols_write_elf(s, f, &err))
        abort();
    fclose(f);
    free(out);
}

static void read_types(const u8 *data, size_t size)
{
    struct btf b;
    struct err err = {0};
    u32 offset;
    if (!btf_parse(&b, data, size, &err)) {
        btf_member(&b, "outer", "list.prev", &offset, NULL);
        btf_member(&b, "outer", "array.prev", &offset, NULL);
        btf_member(&b, "loop", "x", &offset, NULL);
    } else if (!err.text[0]) {
        abort();
    }
    btf_free(&b);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct ram ram = {.host = (u8 *)data, .size = size, .low_size = size, .pagemap = -1};
    struct guest_memory memory = {.ram = &ram, .peek = not_mapped};
    struct guest_linux g;
    struct symbols s;
    struct err err = {0};
    read_types(data, size);
    if (guest_linux_open(&g, &memory, &err))
        abort();
    if (!guest_linux_symbols(&g, &s, &err))
        use(&s);
    else if (!err.text[0])
        abort();
    symbols_free(&s);
    guest_linux_close(&g);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    struct sample s = {.layout = SAMPLE_OLD, .vmcoreinfo = true};
    u8 *ram = malloc(SAMPLE_RAM);
    sample_make(&s, ram);
    *size = s.index + 1024;
    return ram;
}
