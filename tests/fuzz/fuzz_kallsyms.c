/*
 * Fuzz target: the search for VMCOREINFO and kallsyms in any memory, and what is made of them: an
 * input is a guest's RAM from physical address 0 on, or type information (BTF). In a kernel of 32
 * bits the code that is looked at is all of it, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/kallsyms_sample.h"
#include "board/ram.h"
#include "mutate.h"
#include "inspect/btf.h"

static const u64 narrow_text = 0xc0000000 + SAMPLE_TEXT;

/* The code of a kernel of 32 bits, again and again; nothing else. */
static bool peek_code(void *opaque, gva_t va, void *out, size_t len)
{
    const struct ram *ram = opaque;
    if (va < narrow_text || va >> 32 || !ram->size)
        return false;
    for (size_t i = 0; i < len; i++)
        ((u8 *)out)[i] = ram->host[(va - narrow_text + i) % ram->size];
    return true;
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

static void look_for_tasks(const struct guest_linux *g, const struct symbols *s)
{
    struct guest_current where;
    struct guest_tasks tasks;
    struct err err = {0};
    if (guest_current_find(&where, g, s, &err) && !err.text[0])
        abort();
    if (!guest_tasks_read(&tasks, g, s, &err))
        guest_tasks_free(&tasks);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct ram ram = {.host = (u8 *)data, .size = size, .low_size = size, .pagemap = -1};
    struct guest_memory memory = {.ram = &ram, .peek = peek_code, .opaque = &ram};
    struct guest_linux g;
    struct symbols s;
    struct err err = {0};
    read_types(data, size);
    if (guest_linux_open(&g, &memory, &err))
        abort();
    if (!guest_linux_symbols(&g, &s, &err)) {
        use(&s);
        look_for_tasks(&g, &s);
    } else if (!err.text[0])
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
