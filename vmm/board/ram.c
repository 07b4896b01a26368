/*
 * Guest RAM (ram.h): one private anonymous mapping between two PROT_NONE guards, so that a bug that
 * runs off either end faults instead of touching the engine. Nothing here is nondeterministic: a
 * page that was never touched reads as zero.
 */
#include "board/ram.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM_MIN   (16ull << 20)
#define RAM_MAX   (64ull << 30)
#define RAM_ALIGN (2ull << 20)
/* Larger than any displacement an instruction can add to a checked address within one access. */
#define RAM_GUARD (2ull << 20)

int ram_create(struct ram *ram, u64 size, struct err *err)
{
    memset(ram, 0, sizeof(*ram));
    if (size < RAM_MIN || size > RAM_MAX)
        return err_set(err, -EINVAL, "a machine can have 16 MiB to 64 GiB of memory, not %.6g %s",
                       (double)size / (size >> 30 ? 1 << 30 : 1 << 20), size >> 30 ? "GiB" : "MiB");
    if (size % RAM_ALIGN)
        return err_set(err, -EINVAL, "the memory size, %llu bytes, is not a multiple of 2 MiB",
                       (unsigned long long)size);
    /* 2 MiB-aligned start: a region of machine.h's digests is then one page-table page on the host.
     */
    u64 total = size + 2 * RAM_GUARD + RAM_ALIGN;
    u8 *area = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return err_errno(err,
                         "the host does not give %llu MiB of address space for the guest's memory "
                         "(see ulimit -v)",
                         (unsigned long long)(size >> 20));
    u8 *host = (u8 *)(((uintptr_t)area + RAM_GUARD + RAM_ALIGN - 1) & ~(uintptr_t)(RAM_ALIGN - 1));
    u8 *end = host + size + RAM_GUARD;
    munmap(area, (size_t)(host - RAM_GUARD - area));
    munmap(end, (size_t)(area + total - end));
    if (mprotect(host, size, PROT_READ | PROT_WRITE)) {
        int saved = errno;
        munmap(host - RAM_GUARD, size + 2 * RAM_GUARD);
        errno = saved;
        return err_errno(err, "the host does not give %llu MiB for the guest's memory",
                         (unsigned long long)(size >> 20));
    }
    /* Resident must mean touched: a huge page would make 2 MiB of one byte. Kernels without the
     * feature refuse the advice, which is as good. */
    madvise(host, size, MADV_NOHUGEPAGE);
    /* A process that stays outside (host/outside.c) has no use for it, and would make each page
     * that is there already cost a copy. */
    madvise(host, size, MADV_DONTFORK);
    ram->host = host;
    ram->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    ram->size = size;
    ram->low_size = MIN(size, RAM_LOW_LIMIT);
    return 0;
}

void ram_destroy(struct ram *ram)
{
    if (ram->host) {
        munmap(ram->host - RAM_GUARD, ram->size + 2 * RAM_GUARD);
        if (ram->pagemap >= 0)
            close(ram->pagemap);
    }
    memset(ram, 0, sizeof(*ram));
}

void ram_copied(const struct ram *ram, bool copied)
{
    madvise(ram->host, ram->size, copied ? MADV_DOFORK : MADV_DONTFORK);
}

/* How many pages of host memory [offset, offset + len) are touched; -1: that cannot be told. */
static i64 touched(const struct ram *ram, u64 offset, u64 len)
{
    /* One word a page: bit 63 present, bit 62 swapped out (Documentation/admin-guide/mm/pagemap).
     */
    u64 word[512], first = (uintptr_t)(ram->host + offset) / PAGE_SIZE, n = len / PAGE_SIZE;
    i64 all = 0;
    for (u64 i = 0; i < n;) {
        u64 want = MIN(n - i, (u64)ARRAY_SIZE(word)) * sizeof(word[0]);
        ssize_t got =
            ram->pagemap < 0 ? -1 : pread(ram->pagemap, word, want, (off_t)((first + i) * 8));
        if (got != (ssize_t)want)
            return -1;
        for (u64 k = 0; k < want / 8; k++)
            all += word[k] >> 62 != 0;
        i += want / 8;
    }
    return all;
}

bool ram_untouched(const struct ram *ram, u64 offset, u64 len)
{
    return touched(ram, offset, len) == 0;
}

u64 ram_touched(const struct ram *ram)
{
    return (u64)MAX(touched(ram, 0, ram->size), 0) * PAGE_SIZE;
}
