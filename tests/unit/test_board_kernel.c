/*
 * board/kernel.h: bzImages packed in each way (made here from a small ELF), cut short and with
 * bytes changed; other kinds of file named for what they are. If build/images/NAME/vmlinuz exist,
 * they too.
 */
#include "board/kernel.h"

#include <elf.h>
#include <lz4.h>
#include <lz4hc.h>
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#define ELF_SIZE  (100u << 10)
#define SETUP     (2 * 512u)
#define ROOM      (SETUP + 2 * ELF_SIZE)
#define PAYLOAD   SETUP
#define MUTATIONS 600

static u8 elf[ELF_SIZE], image[ROOM];

static size_t pack(const char *how, u8 *out, size_t room)
{
    u32 size = ELF_SIZE;
    size_t n = 0;
    if (!strcmp(how, "gzip")) { /* has its size at the end by itself */
        z_stream z = {
            .next_in = elf, .avail_in = ELF_SIZE, .next_out = out, .avail_out = (u32)room};
        deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        n = z.total_out;
        deflateEnd(&z);
        return n;
    }
    if (!strcmp(how, "xz")) { /* as the kernel's build does: x86 filter, CRC32 */
        lzma_options_lzma o;
        lzma_lzma_preset(&o, 6);
        lzma_filter f[] = {
            {LZMA_FILTER_X86, NULL}, {LZMA_FILTER_LZMA2, &o}, {LZMA_VLI_UNKNOWN, NULL}};
        assert_int_equal(
            lzma_stream_buffer_encode(f, LZMA_CHECK_CRC32, NULL, elf, ELF_SIZE, out, &n, room),
            LZMA_OK);
    } else if (!strcmp(how, "zstd")) {
        n = ZSTD_compress(out, room, elf, ELF_SIZE, 19);
    } else if (!strcmp(how, "lz4")) {
        memcpy(out, "\x02\x21\x4c\x18", 4);
        u32 k = (u32)LZ4_compress_HC((char *)elf, (char *)out + 8, ELF_SIZE, (int)room - 8, 9);
        memcpy(out + 4, &k, 4);
        n = 8 + k;
    } else { /* not packed */
        memcpy(out, elf, ELF_SIZE);
        return ELF_SIZE;
    }
    memcpy(out + n, &size, 4);
    return n + 4;
}

static size_t make_image(const char *how)
{
    memset(image, 0, sizeof(image));
    u32 n = (u32)pack(how, image + PAYLOAD, sizeof(image) - PAYLOAD), offset = 0x20;
    memmove(image + PAYLOAD + offset, image + PAYLOAD, n);
    image[0x1f1] = 1;
    memcpy(image + 0x1fe, "\x55\xaa\xeb\x6aHdrS\x0f\x02", 10);
    memcpy(image + 0x248, &offset, 4);
    memcpy(image + 0x24c, &n, 4);
    return PAYLOAD + offset + n;
}

static int extract(const void *file, size_t size, struct kernel_image *k, struct err *err)
{
    /* A copy of exactly that size, so that asan sees a read beyond it. */
    u8 *copy = malloc(size ? size : 1);
    memcpy(copy, file, size);
    err->text[0] = 0;
    int rc = kernel_extract(copy, size, k, err);
    if (rc) {
        assert_true(rc < 0 && err->text[0]);
        assert_null(k->owned);
    } else {
        if (k->elf)
            assert_memory_equal(k->elf, ELFMAG, 4);
        else
            assert_non_null(k->header);
        if (k->header)
            assert_int_equal(k->header_size, size);
    }
    if (!k->owned)
        k->owned = copy;
    else
        free(copy);
    return rc;
}

static const char *const ways[] = {"gzip", "xz", "zstd", "lz4", "uncompressed"};

static void packed(void **state)
{
    struct kernel_image k;
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        size_t n = make_image(ways[i]);
        if (extract(image, n, &k, &err))
            fail_msg("%s: %s", ways[i], err.text);
        assert_string_equal(k.format, ways[i]);
        assert_int_equal(k.elf_size, ELF_SIZE);
        assert_memory_equal(k.elf, elf, ELF_SIZE);
        kernel_image_free(&k);
    }
    assert_int_equal(extract(elf, sizeof(elf), &k, &err), 0);
    assert_null(k.header);
    kernel_image_free(&k);
}

static void refused(const void *file, size_t size, const char *text)
{
    struct kernel_image k;
    struct err err;
    assert_true(extract(file, size, &k, &err) < 0);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    kernel_image_free(&k);
}

static void other_files(void **state)
{
    u8 e[64];
    refused("", 0, "is empty");
    refused("07070100000000", 14, "is an initramfs (cpio");
    refused("\x1f\x8b\x08", 3, "gzip");
    refused("#!/bin/sh\n", 10, "is a script");
    refused("hello, world\n", 13, "is a text file");
    refused("\x01\x02\x03", 3, "is neither");
    refused("\x7f"
            "ELF",
            4, "truncated");
    memcpy(e, elf, 64);
    e[EI_CLASS] = ELFCLASS32;
    refused(e, 64, "another architecture");
    e[EI_CLASS] = ELFCLASS64;
    e[18] = EM_AARCH64;
    refused(e, 64, "another architecture");
    make_image("gzip");
    memcpy(image + PAYLOAD + 0x20, "BZh9", 4);
    refused(image, ROOM, "packed with bzip2");
    memcpy(image + PAYLOAD + 0x20, "????", 4);
    refused(image, ROOM, "unknown way");
    image[0x207] = 1;
    refused(image, ROOM, "boot protocol 1.15");
    image[0x206] = 1;
    image[0x207] = 2;
    refused(image, ROOM, "boot protocol 2.01; 2.02");
    size_t n = make_image("xz");
    memset(image + n - 4, 0xff, 4);
    refused(image, n, "claims to have 4294967295");
    memset(image + n - 4, 0, 4);
    refused(image, n, "claims to have 0");
    n = make_image("lz4");
    image[n - 2]++; /* more than there is */
    refused(image, n, "lz4 data");
    image[n - 2] -= 2; /* less */
    refused(image, n, "lz4 data");
}

/* Before 2.10 nobody but its setup code can unpack it. */
static void setup_code(void **state)
{
    struct kernel_image k;
    struct err err;
    size_t n = make_image("gzip");
    memcpy(image + 0x206, "\x09\x02", 2);
    image[0x211] = 1;
    assert_int_equal(extract(image, n, &k, &err), 0);
    assert_null(k.elf);
    assert_string_equal(k.format, "setup code");
    kernel_image_free(&k);
    image[0x211] = 0;
    refused(image, n, "zImage");
}

/* Code of 32 bits instead of a packed kernel. */
static void raw(void **state)
{
    const u32 none = 0, start = 0x100000, room = 0x5000;
    struct kernel_image k;
    struct err err;
    Elf32_Ehdr eh;
    Elf32_Phdr ph;
    make_image("gzip");
    memcpy(image + 0x214, &start, 4);
    memcpy(image + 0x248, &none, 4);
    memcpy(image + 0x24c, &none, 4);
    memcpy(image + 0x260, &room, 4);
    assert_int_equal(extract(image, 0x400 + 100, &k, &err), 0);
    assert_string_equal(k.format, "raw");
    memcpy(&eh, k.elf, sizeof(eh));
    memcpy(&ph, (const u8 *)k.elf + eh.e_phoff, sizeof(ph));
    assert_int_equal(eh.e_entry, start);
    assert_int_equal(ph.p_paddr, start);
    assert_int_equal(ph.p_filesz, 100);
    assert_int_equal(ph.p_memsz, room);
    assert_memory_equal((const u8 *)k.elf + ph.p_offset, image + 0x400, 100);
    kernel_image_free(&k);
    refused(image, 0x400, "nothing after its setup code");
    memcpy(image + 0x260, "\xff\xff\xff\xff", 4);
    refused(image, 0x500, "nothing after");
}

static void cut_short(void **state)
{
    struct kernel_image k;
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        size_t n = make_image(ways[i]);
        for (size_t cut = 0; cut < n; cut += cut < 0x300 ? 1 : 1 + n / 50) {
            assert_true(extract(image, cut, &k, &err) < 0);
            kernel_image_free(&k);
        }
    }
}

static void mutated(void **state)
{
    struct kernel_image k;
    struct err err;
    u64 x = 3;
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        size_t n = make_image(ways[i]);
        static u8 saved[ROOM];
        memcpy(saved, image, n);
        for (int m = 0; m < MUTATIONS; m++) {
            for (int b = 0; b < 2; b++) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                size_t at = b ? 0x1f0 + (x >> 32) % 0x80 : (x >> 32) % n;
                image[at] ^= (u8)(x >> 24 | 1);
            }
            /* A claimed size of hundreds of MiB is allowed; it only costs time here. */
            extract(image, n, &k, &err);
            kernel_image_free(&k);
            memcpy(image, saved, n);
        }
    }
}

/* How a bzImage is packed: by the first bytes of what its header says is packed. */
static const char *packed_by(const u8 *file)
{
    static const struct {
        const char *format;
        u8 magic[4];
    } known[] = {{"lz4", {0x02, 0x21, 0x4c, 0x18}},
                 {"xz", {0xfd, '7', 'z', 'X'}},
                 {"zstd", {0x28, 0xb5, 0x2f, 0xfd}}};
    u32 offset;
    memcpy(&offset, file + 0x248, sizeof(offset));
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (!memcmp(file + (file[0x1f1] + 1u) * 512u + offset, known[i].magic, 4))
            return known[i].format;
    return "something else";
}

/* Debian packs its kernels by lz4 and xz, and since 13 otherwise. */
static void real(void **state)
{
    static const char *const files[] = {"build/images/linux/vmlinuz",
                                        "build/images/generic/vmlinuz"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        FILE *f = fopen(files[i], "r");
        if (!f)
            continue;
        size_t room = 64u << 20, n;
        u8 *bytes = malloc(room);
        n = fread(bytes, 1, room, f);
        fclose(f);
        struct kernel_image k;
        struct err err;
        if (kernel_extract(bytes, n, &k, &err))
            fail_msg("%s: %s", files[i], err.text);
        assert_string_equal(k.format, packed_by(bytes));
        assert_true(k.elf_size > 20u << 20);
        kernel_image_free(&k);
        for (int b = 1; b < 4; b++) {
            assert_true(kernel_extract(bytes, n / 4 * (size_t)b, &k, &err) < 0);
            assert_non_null(strstr(err.text, "truncated"));
        }
        free(bytes);
    }
}

int main(void)
{
    Elf64_Ehdr eh = {.e_type = ET_EXEC, .e_machine = EM_X86_64};
    u64 x = 1;
    memcpy(eh.e_ident, ELFMAG, SELFMAG);
    eh.e_ident[EI_CLASS] = ELFCLASS64;
    eh.e_ident[EI_DATA] = ELFDATA2LSB;
    for (size_t i = 0; i < ELF_SIZE; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        elf[i] = (u8)(x >> 60);
    }
    memcpy(elf, &eh, sizeof(eh));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed),     cmocka_unit_test(other_files), cmocka_unit_test(raw),
        cmocka_unit_test(setup_code), cmocka_unit_test(cut_short),   cmocka_unit_test(mutated),
        cmocka_unit_test(real),
    };
    return cmocka_run_group_tests_name("board/kernel", tests, NULL, NULL);
}
