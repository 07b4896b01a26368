/*
 * board/ram.h and board/boot.h: what a good ELF looks like in RAM, and that hostile ELFs, headers
 * and sizes are refused with a text and touch nothing.
 */
#include "board/boot.h"

#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1ull << 20)

struct elf {
    Elf64_Ehdr eh;
    Elf64_Phdr ph[4];
    u8 data[4096];
};

static void make_elf(struct elf *e)
{
    memset(e, 0, sizeof(*e));
    memcpy(e->eh.e_ident, ELFMAG, SELFMAG);
    e->eh.e_ident[EI_CLASS] = ELFCLASS64;
    e->eh.e_ident[EI_DATA] = ELFDATA2LSB;
    e->eh.e_type = ET_EXEC;
    e->eh.e_machine = EM_X86_64;
    e->eh.e_phoff = offsetof(struct elf, ph);
    e->eh.e_phentsize = sizeof(Elf64_Phdr);
    e->eh.e_phnum = 2;
    e->eh.e_entry = 0xffffffff80000010ull;
    e->ph[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                            .p_offset = offsetof(struct elf, data),
                            .p_vaddr = 0xffffffff80000000ull,
                            .p_paddr = 0x200000,
                            .p_filesz = 4096,
                            .p_memsz = 8192};
    e->ph[1] = e->ph[0];
    e->ph[1].p_vaddr += 0x100000;
    e->ph[1].p_paddr += 0x100000;
    memset(e->data, 0xaa, sizeof(e->data));
}

static int load(u64 memory, const struct elf *e, struct boot_config *c, struct boot_state *st,
                struct ram *ram, struct err *err)
{
    assert_int_equal(ram_create(ram, memory, err), 0);
    c->kernel = e;
    if (!c->kernel_size)
        c->kernel_size = sizeof(*e);
    return boot_load(ram, c, st, err);
}

/* Loads and expects success when `text` is NULL, else a refusal whose text has `text` in it. */
static void expect(const struct elf *e, struct boot_config c, const char *text)
{
    struct ram ram;
    struct err err = {0};
    struct boot_state st;
    int rc = load(32 * MIB, e, &c, &st, &ram, &err);
    if (!text) {
        assert_int_equal(rc, 0);
    } else {
        assert_true(rc < 0);
        assert_int_equal(rc, err.code);
        if (!strstr(err.text, text))
            fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    }
    ram_destroy(&ram);
}

static void ram_sizes(void **state)
{
    struct ram ram;
    struct err err;
    assert_true(ram_create(&ram, 0, &err) < 0);
    assert_true(ram_create(&ram, 8 * MIB, &err) < 0);
    assert_true(ram_create(&ram, 16 * MIB + 4096, &err) < 0);
    assert_true(ram_create(&ram, 65536 * MIB + 2 * MIB, &err) < 0);
    assert_int_equal(ram_create(&ram, 16 * MIB, &err), 0);
    assert_int_equal(ram.low_size, 16 * MIB);
    ram_destroy(&ram);
    ram_destroy(&ram);
    assert_int_equal(ram_create(&ram, 65536 * MIB, &err), 0);
    assert_int_equal(ram.low_size, RAM_LOW_LIMIT);
    assert_null(ram_ptr(&ram, RAM_LOW_LIMIT - 1, 2));
    assert_null(ram_ptr(&ram, RAM_LOW_LIMIT, 1));
    assert_non_null(ram_ptr(&ram, 0x100000000ull, ram.size - ram.low_size));
    assert_null(ram_ptr(&ram, 0x100000000ull, ram.size - ram.low_size + 1));
    assert_null(ram_ptr(&ram, UINT64_MAX, 1));
    assert_null(ram_ptr(&ram, 1, UINT64_MAX));
    ram.host[0] = ram.host[ram.size - 1] = 1;
    ram_destroy(&ram);
}

static u64 walk(const struct ram *ram, u64 cr3, u64 va)
{
    u64 table = cr3;
    for (int shift = 39; shift >= 21; shift -= 9) {
        u64 e = *(u64 *)ram_ptr(ram, table + 8 * (va >> shift & 511), 8);
        if (!(e & 1))
            return UINT64_MAX;
        if (e & 0x80)
            return (e & ~0x1fffffull) + (va & 0x1fffff);
        table = e & ~0xfffull;
    }
    return UINT64_MAX;
}

static void good(void **state)
{
    struct elf *e = malloc(sizeof(*e));
    struct ram ram;
    struct err err;
    struct boot_state st;
    static const char initrd[5000] = "initrd";
    make_elf(e);
    struct boot_config c = {.append = "console=ttyS0",
                            .initrd = initrd,
                            .initrd_size = sizeof(initrd),
                            .seed = 7,
                            .acpi_rsdp = 0xe0000};
    assert_int_equal(load(5120 * MIB, e, &c, &st, &ram, &err), 0);
    assert_int_equal(st.rip, 0x200010);
    assert_int_equal(st.rsi, BOOT_ZERO_PAGE);
    assert_int_equal(st.gdt_limit, 0x1f);
    u8 *k = ram_ptr(&ram, 0x200000, 8192);
    assert_int_equal(k[4095], 0xaa);
    assert_int_equal(k[4096], 0);

    u8 *zp = ram_ptr(&ram, st.rsi, 4096);
    assert_memory_equal(zp + 0x202, "HdrS", 4);
    assert_int_equal(*(u16 *)(zp + 0x1fe), 0xaa55);
    assert_int_equal(zp[0x210], 0xff);
    assert_string_equal(ram_ptr(&ram, *(u32 *)(zp + 0x228), 4096), "console=ttyS0");
    u64 at = *(u32 *)(zp + 0x218);
    assert_int_equal(at, 0x302000); /* above the second segment's bss */
    assert_int_equal(*(u32 *)(zp + 0x21c), sizeof(initrd));
    assert_string_equal(ram_ptr(&ram, at, 5000), "initrd");
    assert_int_equal(*(u64 *)(zp + 0x70), 0xe0000);
    u8 *sd = ram_ptr(&ram, *(u64 *)(zp + 0x250), 48);
    assert_int_equal(*(u64 *)sd, 0);
    assert_int_equal(*(u32 *)(sd + 8), 9);
    assert_int_equal(*(u32 *)(sd + 12), 32);

    /* e820: in order, disjoint, and all RAM but the hole, counted once. */
    u64 end = 0, usable = 0;
    assert_int_equal(zp[0x1e8], 5);
    for (unsigned i = 0; i < zp[0x1e8]; i++) {
        u64 base = *(u64 *)(zp + 0x2d0 + 20 * i), size = *(u64 *)(zp + 0x2d8 + 20 * i);
        assert_true(base >= end && size);
        end = base + size;
        if (*(u32 *)(zp + 0x2e0 + 20 * i) == 1) {
            usable += size;
            assert_non_null(ram_ptr(&ram, base, size));
        }
    }
    assert_int_equal(usable, 5120 * MIB - 0x60400);

    u64 vas[] = {0, 0xfec00000, 0xfee00020, 0xffffffff, 0x100000000ull, 0x17fffffffull};
    for (size_t i = 0; i < ARRAY_SIZE(vas); i++)
        assert_int_equal(walk(&ram, st.cr3, vas[i]), vas[i]);
    assert_int_equal(walk(&ram, st.cr3, 0x180000000ull), UINT64_MAX);
    u64 *gdt = ram_ptr(&ram, st.gdt_base, 32);
    assert_int_equal(gdt[2] >> 53 & 1, 1); /* CS.L */
    ram_destroy(&ram);

    /* Physical entry as it is; the largest machine's tables stay below 640 KiB. */
    e->eh.e_entry = 0x300020;
    c.initrd_size = 0;
    assert_int_equal(load(65536 * MIB, e, &c, &st, &ram, &err), 0);
    assert_int_equal(st.rip, 0x300020);
    assert_int_equal(walk(&ram, st.cr3, 0x103fffffffull), 0x103fffffffull);
    ram_destroy(&ram);
    free(e);
}

static void seeds(void **state)
{
    u8 a[32], b[32];
    boot_seed_bytes(1, a);
    boot_seed_bytes(1, b);
    assert_memory_equal(a, b, 32);
    boot_seed_bytes(2, b);
    assert_memory_not_equal(a, b, 32);
    /* For ever: a recording names only the seed. */
    boot_seed_bytes(0, a);
    static const u8 zero[8] = {0x68, 0x89, 0x52, 0xc7, 0x65, 0x6a, 0xa6, 0xd0};
    assert_memory_equal(a, zero, 8);
}

#define BAD(change, text)                                                                          \
    do {                                                                                           \
        make_elf(&e);                                                                              \
        struct boot_config c = {0};                                                                \
        change;                                                                                    \
        expect(&e, c, text);                                                                       \
    } while (0)

static void bad_elf(void **state)
{
    static struct elf e;
    BAD((void)0, NULL);
    BAD(c.kernel_size = 10, "truncated");
    BAD(e.eh.e_ident[0] = 0, "not an ELF");
    BAD(e.eh.e_ident[EI_CLASS] = ELFCLASS32, "x86");
    BAD(e.eh.e_machine = EM_AARCH64, "x86");
    BAD(e.eh.e_type = ET_CORE, "type");
    BAD(e.eh.e_phentsize = 1, "program headers");
    BAD(e.eh.e_phoff = UINT64_MAX - 8, "truncated");
    BAD(e.eh.e_phnum = 0xffff, "truncated");
    BAD(e.eh.e_phnum = 0, "no loadable");
    BAD(e.ph[0].p_offset = UINT64_MAX, "truncated");
    BAD((e.ph[0].p_filesz = e.ph[0].p_memsz = UINT64_MAX), "truncated");
    BAD(e.ph[0].p_filesz = 9000, "more bytes");
    BAD(e.ph[0].p_memsz = UINT64_MAX, "does not fit");
    BAD(e.ph[0].p_paddr = 0, "below 1 MiB");
    BAD(e.ph[0].p_paddr = 32 * MIB - 4096, "does not fit");
    BAD(e.ph[0].p_paddr = UINT64_MAX - 4095, "does not fit");
    BAD(e.ph[0].p_paddr = 0xfee00000, "does not fit");
    BAD(e.ph[1].p_paddr = e.ph[0].p_paddr + 8191, "overlaps");
    BAD(e.eh.e_entry = 0x1234, "entry point");
    BAD(e.eh.e_entry = UINT64_MAX, "entry point");
    BAD((c.initrd = &e, c.initrd_size = 30 * MIB), "initrd of 30.0 MiB does not fit");
    BAD((c.initrd = &e, c.initrd_size = SIZE_MAX), "does not fit");
}

static void bad_cmdline(void **state)
{
    static struct elf e;
    static char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    BAD(c.append = text, "4999 bytes; this kernel takes 4095");
    BAD(c.append = text + 4999 - 4095, NULL);
}

static void headers(void **state)
{
    static struct elf e;
    static u8 h[0x290];
    struct ram ram;
    struct err err;
    struct boot_state st;
    *(u16 *)(h + 0x1fe) = 0xaa55;
    memset(h + 0x1f1, 0x5a, 6);
    h[0x201] = 0x6a;
    memcpy(h + 0x202, "HdrS", 4);
    *(u16 *)(h + 0x206) = 0x20f;
    *(u32 *)(h + 0x238) = 2047;
    *(u32 *)(h + 0x260) = 4 * MIB;
    h[0x211] = 3;
    struct boot_config c0 = {
        .header = h, .header_size = sizeof(h), .initrd = "x", .initrd_size = 1};
    make_elf(&e);
    struct boot_config cc = c0;
    assert_int_equal(load(32 * MIB, &e, &cc, &st, &ram, &err), 0);
    u8 *zp = ram_ptr(&ram, st.rsi, 4096);
    assert_int_equal(zp[0x1f1], 0x5a);
    assert_int_equal(zp[0x1f0], 0);
    assert_int_equal(zp[0x211], 1);                             /* KASLR_FLAG clear */
    assert_int_equal(*(u32 *)(zp + 0x218), 0x200000 + 4 * MIB); /* above init_size */
    ram_destroy(&ram);
    BAD((c = c0, c.header_size = 0x220), "truncated");
    BAD((c = c0, c.header_size = 0x264), NULL);
    BAD((c = c0, h[0x201] = 0xff), NULL);
    BAD((c = c0, h[0x201] = 0), NULL);
    BAD((c = c0, *(u32 *)(h + 0x260) = UINT32_MAX), "to start");
    *(u32 *)(h + 0x260) = 0;
    BAD((c = c0, h[0x202] = 0), "HdrS");
    memcpy(h + 0x202, "HdrS", 4);
    BAD((c = c0, h[0x207] = 1), "too old");
    *(u16 *)(h + 0x206) = 0x20f;
    *(u32 *)(h + 0x238) = 3;
    BAD((c = c0, c.append = "long"), "this kernel takes 3");
}

/* Any byte of headers and tables wrong: refused or loaded, never out of bounds (run it with asan).
 */
static void mutated(void **state)
{
    static struct elf e;
    u64 x = 1;
    struct ram ram;
    struct err err;
    struct boot_state st;
    assert_int_equal(ram_create(&ram, 32 * MIB, &err), 0);
    for (int i = 0; i < 20000; i++) {
        make_elf(&e);
        for (int k = 0; k < 3; k++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            ((u8 *)&e)[(x >> 33) % offsetof(struct elf, data)] ^= (u8)(x >> 56 | 1);
        }
        struct boot_config c = {.kernel = &e, .kernel_size = sizeof(e) - (x >> 20) % 4200};
        int rc = boot_load(&ram, &c, &st, &err);
        if (!rc)
            assert_non_null(ram_ptr(&ram, st.rip, 1));
    }
    ram_destroy(&ram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ram_sizes), cmocka_unit_test(good),        cmocka_unit_test(seeds),
        cmocka_unit_test(bad_elf),   cmocka_unit_test(bad_cmdline), cmocka_unit_test(headers),
        cmocka_unit_test(mutated),
    };
    return cmocka_run_group_tests_name("board/boot", tests, NULL, NULL);
}
