/*
 * Fuzz target: a note about the disks of a recording. What is taken is the one text of what it
 * says, to the byte; nothing else is.
 */
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "replay/disk_notes.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct disk_notes notes;
    struct err err = {0};
    char *exact = malloc(size); /* so that one byte too far is seen */
    if (size)
        memcpy(exact, data, size);
    if (disk_notes_parse(exact, size, &notes, &err)) {
        if (!err.code)
            abort();
    } else {
        char *text = disk_notes_text(&notes);
        if (!text || strlen(text) != size || memcmp(text, exact, size))
            abort();
        free(text);
    }
    free(exact);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const char text[] =
        "reprise disks 1\n"
        "disk file=/srv/a%20b.qcow2 format=qcow2 backing=1 timeout=0 bytes=197120 "
        "modified=1700000000123456789 device=2049 inode=1234567\n"
        "disk file=nbd://host/x format=nbd backing=0 timeout=30 bytes=0 modified=0 device=0 "
        "inode=0\n";
    u8 *data = malloc(sizeof(text) - 1);
    memcpy(data, text, sizeof(text) - 1);
    *size = sizeof(text) - 1;
    return data;
}
