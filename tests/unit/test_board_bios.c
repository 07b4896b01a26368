/*
 * board/bios.h and board/linux16.h: the firmware's bytes, which recordings depend on; what a
 * program's setup code finds; files and machines that do not fit, changed at random, too.
 */
#include "board/bios.h"
#include "board/linux16.h"
#include "board/zero_page.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define MIB       (1ull << 20)
#define SETUP     (5 * 512u)
#define FILE_SIZE (SETUP + 100000)

static u8 file[FILE_SIZE];

static void make_file(void)
{
    memset(file, 0x90, sizeof(file));
    memset(file, 0, 0x290);
    file[ZP_SETUP_SECTS] = 4;
    memcpy(file + ZP_BOOT_FLAG, "\x55\xaa", 2);
    memcpy(file + ZP_MAGIC, "HdrS", 4);
    memcpy(file + ZP_VERSION, "\x0f\x02", 2);
    file[ZP_LOADFLAGS] = LOADFLAGS_LOADED_HIGH;
    memcpy(file + ZP_RAMDISK_MAX, "\xff\xff\xff\x7f", 4);
    memcpy(file + ZP_CMDLINE_SIZE, "\xff\x07\0\0", 4);
    memcpy(file + ZP_PREF_ADDRESS, "\0\0\0\x01\0\0\0\0", 8);
    memcpy(file + ZP_INIT_SIZE, "\0\0\x20\0", 4);
}

/* It does not depend on who assembles it, and changes only with a revision of the machine: code of
 * bios_image.S that is different is for a number of its own (board/description.h). */
static void bytes(void **state)
{
    struct ram ram;
    struct err err;
    assert_int_equal(ram_create(&ram, 16 * MIB, &err), 0);
    bios_write(&ram, 0x9000, 0xe000);
    assert_int_equal(XXH3_64bits(ram_ptr(&ram, BIOS_BASE, BIOS_SIZE), BIOS_SIZE),
                     0x92792aec0a61dff6ull);
    ram_destroy(&ram);
}

static u32 get32(const u8 *p)
{
    u32 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static void given(void **state)
{
    static const u8 initrd[5000] = "initrd";
    struct ram ram;
    struct err err;
    struct boot_state st;
    make_file();
    struct boot_config c = {.protocol = "linux16",
                            .header = file,
                            .header_size = sizeof(file),
                            .initrd = initrd,
                            .initrd_size = sizeof(initrd),
                            .append = "quiet",
                            .seed = 7};
    assert_int_equal(ram_create(&ram, 32 * MIB, &err), 0);
    assert_int_equal(boot_load(&ram, &c, &st, &err), 0);
    assert_true(st.real && st.cs == BIOS_SEGMENT && st.rip == BIOS_ENTRY);
    const u8 *setup = ram_ptr(&ram, 0x90000, SETUP);
    assert_memory_equal(setup + 0x290, file + 0x290, SETUP - 0x290);
    assert_memory_equal(ram_ptr(&ram, MIB, 100000), file + SETUP, 100000);
    assert_int_equal(setup[ZP_LOADFLAGS], LOADFLAGS_LOADED_HIGH | LOADFLAGS_HEAP);
    assert_string_equal(ram_ptr(&ram, get32(setup + ZP_CMDLINE), 16), "quiet");
    u64 at = get32(setup + ZP_RAMDISK);
    assert_int_equal(at, 32 * MIB - 8192); /* as high as it goes */
    assert_memory_equal(ram_ptr(&ram, at, 5000), initrd, 5000);
    assert_int_equal(get32(setup + ZP_SETUP_DATA), BOOT_SETUP_DATA);
    u8 seed[BOOT_SEED_SIZE];
    boot_seed_bytes(7, seed);
    assert_memory_equal(ram_ptr(&ram, BOOT_SETUP_DATA + 16, sizeof(seed)), seed, sizeof(seed));
    ram_destroy(&ram);
}

/* Refused, with `text`. */
static void expect(struct boot_config c, const char *text)
{
    struct ram ram;
    struct err err = {0};
    struct boot_state st;
    c.header = file;
    if (!c.header_size)
        c.header_size = sizeof(file);
    c.protocol = "linux16";
    assert_int_equal(ram_create(&ram, 32 * MIB, &err), 0);
    assert_true(boot_load(&ram, &c, &st, &err) < 0);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    ram_destroy(&ram);
}

#define BAD(change, text)                                                                          \
    do {                                                                                           \
        make_file();                                                                               \
        struct boot_config c = {0};                                                                \
        change;                                                                                    \
        expect(c, text);                                                                           \
    } while (0)

static void bad(void **state)
{
    static char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    BAD(c.header_size = 0x200, "no setup header");
    BAD(file[ZP_MAGIC] = 0, "no setup header");
    BAD(file[ZP_VERSION] = file[ZP_VERSION + 1] = 1, "boot protocol 1.01");
    BAD(file[ZP_LOADFLAGS] = 0, "zImage");
    BAD(file[ZP_SETUP_SECTS] = 64, "32 KiB of setup code");
    BAD(c.header_size = SETUP, "not more than its setup code");
    BAD(c.append = text, "2999 bytes; this kernel takes 2047");
    BAD((file[ZP_VERSION] = 5, c.append = text), "this kernel takes 255");
    BAD(file[ZP_PREF_ADDRESS + 3] = 2, "from 0x2000000 on to start");
    BAD(file[ZP_PREF_ADDRESS + 7] = 0xff, "to start");
    BAD(file[ZP_INIT_SIZE + 3] = 0xff, "to start");
    BAD((c.initrd = file, c.initrd_size = SIZE_MAX), "does not fit");
    BAD((c.initrd = file, c.initrd_size = sizeof(file), file[ZP_RAMDISK_MAX + 3] = 0),
        "does not fit");
}

/* Any bytes of the header wrong: refused with a text, or loaded. */
static void mutated(void **state)
{
    struct ram ram;
    struct err err;
    struct boot_state st;
    u64 x = 5;
    assert_int_equal(ram_create(&ram, 32 * MIB, &err), 0);
    for (int i = 0; i < 20000; i++) {
        make_file();
        for (int k = 0; k < 3; k++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            file[0x1f1 + (x >> 33) % 0x77] ^= (u8)(x >> 56 | 1);
        }
        struct boot_config c = {.protocol = "linux16",
                                .header = file,
                                .header_size = sizeof(file) - (x >> 20) % 104000 % sizeof(file),
                                .initrd = file,
                                .initrd_size = (x >> 40) % sizeof(file),
                                .append = "quiet"};
        err.text[0] = 0;
        assert_true(!boot_load(&ram, &c, &st, &err) || err.text[0]);
    }
    ram_destroy(&ram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes), cmocka_unit_test(given),
                                       cmocka_unit_test(bad), cmocka_unit_test(mutated)};
    return cmocka_run_group_tests_name("board/bios", tests, NULL, NULL);
}
