/*
 * Fuzz target: which other files an image names, as each format that can. None is read unless it is
 * allowed, and then what is found are absolute paths that are there; a refusal says why.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/disk_chain.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static const char *const drivers[] = {"qcow2", "qed", "vmdk", "vdi"};
    int fd = memfd_create("image", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    for (unsigned i = 0; i < 2 * ARRAY_SIZE(drivers); i++) {
        struct disk_chain c;
        struct err err = {0};
        bool allowed = i & 1;
        if (disk_chain_find(&c, fd, "/nowhere/image", drivers[i / 2], allowed, &err)) {
            if (!err.code || !err.text[0] || c.n)
                abort();
            continue;
        }
        if (c.n && !allowed)
            abort();
        for (unsigned k = 0; k < c.n; k++)
            if (c.path[k][0] != '/' || access(c.path[k], F_OK))
                abort();
        disk_chain_free(&c);
    }
    close(fd);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    u8 *data = calloc(1, *size = 1024);
    memcpy(data, "QFI\xfb\0\0\0\3\0\0\0\0\0\0\1\0\0\0\0\11", 20);
    data[103] = 104;                                         /* header */
    memcpy(data + 104, "\xe2\x79\x2a\xca\0\0\0\5qcow2", 13); /* format of the backing file */
    memcpy(data + 256, "/dev/null", 9);
    return data;
}
