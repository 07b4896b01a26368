#define _GNU_SOURCE /* memmem */
/* Fuzz target: a pack's manifest. What is taken is the one text of what it says, but for who made
 * it; nothing else is. And a map of a disk, from the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "replay/pack_disk.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct manifest m;
    struct disk_map map;
    struct err err = {0};
    size_t n;
    char *exact = malloc(size + 1), *text; /* so that one byte too far is seen */
    memcpy(exact, data, size);
    exact = realloc(exact, size ? size : 1);
    if (manifest_parse(exact, size, &m, &err)) {
        if (!err.code || !err.text[0])
            abort();
    } else {
        const char *a = memmem(exact, size, "\n", 1),
                   *b = a ? memchr(a + 1, '\n', size - (size_t)(a + 1 - exact)) : NULL;
        text = manifest_text(&m, &n);
        const char *c = text ? strchr(text, '\n') : NULL, *d = c ? strchr(c + 1, '\n') : NULL;
        size_t rest = b ? size - (size_t)(b - exact) : 0;
        if (!b || !d || n - (size_t)(d - text) != rest || memcmp(b, d, rest))
            abort();
        free(text);
        manifest_free(&m);
    }
    if (!disk_map_parse(&map, exact, size, 1 << 20, 8, &err))
        disk_map_free(&map);
    else if (!err.text[0])
        abort();
    free(exact);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const char text[] =
        "reprise pack 1\ncreator reprise 0.1\n"
        "file machine.dtb 790 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
        "file log 1749 ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
        "disk 0 read 49152\ndisk 1 none 0\nleft-out notes of the log\nend\n";
    u8 *data = malloc(sizeof(text) - 1);
    memcpy(data, text, sizeof(text) - 1);
    *size = sizeof(text) - 1;
    return data;
}
