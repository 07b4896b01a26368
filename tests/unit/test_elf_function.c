#define _GNU_SOURCE /* dl_iterate_phdr */
/* Functions of an ELF file: of this test's own, as its linker has them. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "inspect/elf_function.h"

static size_t read_fd(void *opaque, u64 offset, void *out, size_t len)
{
    ssize_t n = pread(*(int *)opaque, out, len, (off_t)offset);
    return n < 0 ? 0 : (size_t)n;
}

static u64 load_base;

static int take_base(struct dl_phdr_info *info, size_t size, void *opaque)
{
    (void)size;
    (void)opaque;
    load_base = info->dlpi_addr; /* the program comes first */
    return 1;
}

/* Of code in this program: its offset in the file, by the segment that it is in. */
static u64 offset_of(int fd, const void *code)
{
    Elf64_Ehdr e;
    Elf64_Phdr h;
    dl_iterate_phdr(take_base, NULL);
    u64 va = (u64)(uintptr_t)code - load_base;
    assert_int_equal(pread(fd, &e, sizeof(e), 0), sizeof(e));
    for (unsigned i = 0; i < e.e_phnum; i++) {
        assert_int_equal(pread(fd, &h, sizeof(h), (off_t)(e.e_phoff + i * sizeof(h))), sizeof(h));
        if (h.p_type == PT_LOAD && va >= h.p_vaddr && va - h.p_vaddr < h.p_filesz)
            return va - h.p_vaddr + h.p_offset;
    }
    fail();
    return 0;
}

__attribute__((noinline)) static u64 found_by_its_name(u64 x)
{
    return x * 3 + 1;
}

static void own(void **state)
{
    (void)state;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const struct elf_bytes file = {&fd, read_fd};
    char name[ELF_FUNCTION_MAX];
    u64 beyond = 1;
    assert_true(fd >= 0);
    assert_int_equal(found_by_its_name(2), 7);
    u64 at = offset_of(fd, (const void *)(uintptr_t)found_by_its_name);
    assert_true(elf_function(&file, at, name, &beyond));
    assert_string_equal(name, "found_by_its_name");
    assert_int_equal(beyond, 0);
    assert_true(elf_function(&file, at + 2, name, &beyond));
    assert_string_equal(name, "found_by_its_name");
    assert_int_equal(beyond, 2);
    at = offset_of(fd, (const void *)(uintptr_t)elf_function);
    assert_true(elf_function(&file, at + 5, name, &beyond));
    assert_string_equal(name, "elf_function");
    assert_int_equal(beyond, 5);
    close(fd);
}

static void nowhere(void **state)
{
    (void)state;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const struct elf_bytes file = {&fd, read_fd};
    char name[ELF_FUNCTION_MAX];
    u64 beyond;
    assert_false(elf_function(&file, 0, name, &beyond)); /* its header */
    assert_false(elf_function(&file, UINT64_MAX, name, &beyond));
    close(fd);
    assert_false(elf_function(&file, 0x1000, name, &beyond));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(own), cmocka_unit_test(nowhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
