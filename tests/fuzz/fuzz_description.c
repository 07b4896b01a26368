/* Fuzz target: description_read on any bytes; once as they are, once with the checksum repaired. */
#include <libfdt.h>
#include <stdlib.h>
#include <string.h>

#include "board/description.h"
#include "mutate.h"

static void read_one(const u8 *data, size_t size)
{
    struct machine_description d, again;
    struct err err = {0};
    u8 *out = malloc(DESCRIPTION_MAX_SIZE);
    size_t n;
    if (description_read(data, size, &d, &err)) {
        if (!err.text[0])
            abort();
    } else if (description_write(&d, out, &n, &err) || description_read(out, n, &again, &err) ||
               memcmp(&d, &again, sizeof(d))) {
        abort(); /* what was read cannot be written and read again */
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    read_one(data, size);
    return 0;
}
