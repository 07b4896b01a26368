/*
 * Finds the ELF kernel inside a bzImage (kernel.h): Linux Documentation/arch/x86/boot.rst, fields
 * setup_sects, payload_offset and payload_length (protocol 2.08). The payload ends in four bytes:
 * the unpacked size, which gzip has by itself and the kernel's build appends for the others. That
 * size, once checked, is the output buffer: nothing here grows with what a decompressor says.
 */
#include "board/kernel.h"

#include "board/linux16.h"
#include "board/protocol.h"
#include "base/bytes.h"

#include <elf.h>
#include <errno.h>
#include <lz4.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define SECTOR     512u
#define HDR_SECTS  0x1f1
#define HDR_FLAG   0x1fe
#define HDR_MAGIC  0x202
#define HDR_VER    0x206
#define HDR_START  0x214
#define HDR_OFFSET 0x248
#define HDR_LENGTH 0x24c
#define HDR_ROOM   0x260
#define HDR_END    0x268 /* what protocol 2.10 has, init_size included */

#define VERSION_PAYLOAD 0x20a /* says where the packed kernel is, and what it needs */

#define XZ_MEMORY (512ull << 20) /* the kernel's build uses a dictionary of at most 128 MiB */
#define LZ4_BLOCK (8u << 20)     /* of the legacy frame */

struct span {
    const u8 *bytes;
    size_t size;
};

struct magic {
    size_t offset;
    u8 length;
    const char *bytes;
    const char *text;
};

static const struct magic others[] = {
    {0, 6, "070701", "is an initramfs (cpio archive)"},
    {0, 6, "070702", "is an initramfs (cpio archive)"},
    {0, 6, "070707", "is a cpio archive"},
    {0, 2, "\x1f\x8b", "is a gzip-compressed file (an initramfs?)"},
    {0, 6, "\xfd\x37zXZ\0", "is an xz-compressed file (an initramfs?)"},
    {0, 4, "\x28\xb5\x2f\xfd", "is a zstd-compressed file (an initramfs?)"},
    {0, 4, "\x02\x21\x4c\x18", "is an lz4-compressed file (an initramfs?)"},
    {0, 4, "\x04\x22\x4d\x18", "is an lz4-compressed file"},
    {0, 3, "BZh", "is a bzip2-compressed file"},
    {0, 8, "!<arch>\n", "is an ar archive (a Debian package?)"},
    {0, 4, "\xed\xab\xee\xdb", "is an RPM package"},
    {0, 4, "QFI\xfb", "is a qcow2 disk image"},
    {0, 4, "\xd0\x0d\xfe\xed", "is a flattened device tree"},
    {0, 4, "PK\x03\x04", "is a zip archive"},
    {0, 2, "#!", "is a script"},
    {0x38, 4, "ARM\x64", "is an arm64 kernel"},
    {0x8001, 5, "CD001", "is an ISO 9660 image"},
    {257, 5, "ustar", "is a tar archive"},
    {0, 2, "MZ", "is an EFI or DOS program, but no Linux kernel"},
    {510, 2, "\x55\xaa", "is a boot sector or disk image, but no Linux kernel"},
};

static bool has(struct span s, size_t offset, const char *bytes, size_t length)
{
    return offset <= s.size && length <= s.size - offset &&
           !memcmp(s.bytes + offset, bytes, length);
}

const char *kernel_file_looks_like(const void *file, size_t size)
{
    struct span s = {file, size};
    if (!size)
        return "is empty";
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (has(s, others[i].offset, others[i].bytes, others[i].length))
            return others[i].text;
    for (size_t i = 0; i < MIN(size, (size_t)512); i++)
        if (s.bytes[i] >= 0x7f || (s.bytes[i] < 0x20 && !strchr("\t\n\f\r", s.bytes[i])) ||
            !s.bytes[i])
            return "is neither a bzImage nor an ELF file";
    return "is a text file";
}

static int unpack_gzip(struct span in, u8 *out, size_t size, struct err *err)
{
    z_stream z = {0};
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return err_set(err, -ENOMEM, "no memory to unpack the kernel");
    z.next_in = (Bytef *)in.bytes; /* zlib does not write there */
    z.avail_in = (uInt)in.size;
    z.next_out = out;
    z.avail_out = (uInt)size;
    int rc = inflate(&z, Z_FINISH);
    size_t got = z.total_out;
    inflateEnd(&z);
    if (rc != Z_STREAM_END || got != size)
        return err_set(err, -EINVAL, "has damaged gzip data (%zu of %zu bytes unpacked)", got,
                       size);
    return 0;
}

static int unpack_xz(struct span in, u8 *out, size_t size, struct err *err)
{
    lzma_stream z = LZMA_STREAM_INIT;
    if (lzma_stream_decoder(&z, XZ_MEMORY, 0) != LZMA_OK)
        return err_set(err, -ENOMEM, "no memory to unpack the kernel");
    z.next_in = in.bytes;
    z.avail_in = in.size - 4;
    z.next_out = out;
    z.avail_out = size;
    lzma_ret rc = lzma_code(&z, LZMA_FINISH);
    size_t got = (size_t)z.total_out;
    lzma_end(&z);
    if (rc == LZMA_MEMLIMIT_ERROR)
        return err_set(err, -EINVAL, "has xz data that need more than %llu MiB to unpack",
                       XZ_MEMORY >> 20);
    if (rc != LZMA_STREAM_END || got != size)
        return err_set(err, -EINVAL, "has damaged xz data (%zu of %zu bytes unpacked)", got, size);
    return 0;
}

static int unpack_zstd(struct span in, u8 *out, size_t size, struct err *err)
{
    size_t got = ZSTD_decompress(out, size, in.bytes, in.size - 4);
    if (ZSTD_isError(got))
        return err_set(err, -EINVAL, "has damaged zstd data (%s)", ZSTD_getErrorName(got));
    if (got != size)
        return err_set(err, -EINVAL, "has damaged zstd data (%zu of %zu bytes unpacked)", got,
                       size);
    return 0;
}

/* lz4_Frame_format.md, "Legacy frame": after the magic, blocks of {le32 packed size, data}, each of
 * 8 MiB unpacked except the last. The frame has no end mark: the payload's length ends it. */
static int unpack_lz4(struct span in, u8 *out, size_t size, struct err *err)
{
    size_t at = 4, end = in.size - 4, done = 0;
    while (at < end) {
        u32 n = end - at >= 4 ? get32(in.bytes + at) : 0;
        at += 4;
        if (!n || at > end || n > end - at || n > (u32)LZ4_compressBound(LZ4_BLOCK))
            return err_set(err, -EINVAL, "has damaged lz4 data (a block of %u bytes at %zu)", n,
                           at);
        size_t room = MIN(size - done, (size_t)LZ4_BLOCK);
        int got =
            LZ4_decompress_safe((const char *)in.bytes + at, (char *)out + done, (int)n, (int)room);
        if (got < 0)
            return err_set(err, -EINVAL, "has damaged lz4 data (the block at %zu)", at);
        done += (size_t)got;
        at += n;
    }
    if (done != size)
        return err_set(err, -EINVAL, "has damaged lz4 data (%zu of %zu bytes unpacked)", done,
                       size);
    return 0;
}

static const struct packing {
    const char *name, *magic;
    u8 magic_size;
    int (*unpack)(struct span in, u8 *out, size_t size, struct err *err); /* NULL: not supported */
} packings[] = {
    {"gzip", "\x1f\x8b", 2, unpack_gzip},
    {"xz", "\xfd\x37zXZ\0", 6, unpack_xz},
    {"zstd", "\x28\xb5\x2f\xfd", 4, unpack_zstd},
    {"lz4", "\x02\x21\x4c\x18", 4, unpack_lz4},
    {"bzip2", "BZh", 3, NULL},
    {"lzma", "\x5d\0\0", 3, NULL},
    {"lzo", "\x89LZO", 4, NULL},
};

static bool elf_magic(struct span s)
{
    return has(s, 0, ELFMAG, SELFMAG);
}

static int check_elf(struct span s, struct err *err)
{
    if (s.size < sizeof(Elf64_Ehdr))
        return err_set(err, -EINVAL, "is truncated: %zu bytes are no ELF header", s.size);
    Elf64_Ehdr eh;
    memcpy(&eh, s.bytes, sizeof(eh));
    bool narrow = eh.e_ident[EI_CLASS] == ELFCLASS32; /* e_machine is at the same place */
    if (eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_machine != (narrow ? EM_386 : EM_X86_64))
        return err_set(err, -EINVAL, "is an ELF file for another architecture (ELF machine %u)",
                       eh.e_machine);
    if (eh.e_type != ET_EXEC && eh.e_type != ET_DYN)
        return err_set(err, -EINVAL, "is an ELF file, but no executable (ELF type %u)", eh.e_type);
    return 0;
}

/* Where the part of a bzImage begins that is no setup code. */
static size_t setup_size(struct span s)
{
    return ((size_t)(s.bytes[HDR_SECTS] ? s.bytes[HDR_SECTS] : 4) + 1) * SECTOR;
}

/* Code that is entered as it is, as an ELF file of 32 bits, which has one segment: the part `what`
 * says of the file. */
static int wrap_code(struct span file, const struct protocol_flat *what, struct kernel_image *out,
                     struct err *err)
{
    struct {
        Elf32_Ehdr eh;
        Elf32_Phdr ph;
        u32 pad; /* headers stay at multiples of 8 */
    } head = {.eh = {.e_type = ET_EXEC,
                     .e_machine = EM_386,
                     .e_version = EV_CURRENT,
                     .e_entry = what->entry,
                     .e_phoff = sizeof(head.eh),
                     .e_ehsize = sizeof(head.eh),
                     .e_phentsize = sizeof(head.ph),
                     .e_phnum = 1}};
    memcpy(head.eh.e_ident, ELFMAG, SELFMAG);
    head.eh.e_ident[EI_CLASS] = ELFCLASS32;
    head.eh.e_ident[EI_DATA] = ELFDATA2LSB;
    head.ph = (Elf32_Phdr){.p_type = PT_LOAD,
                           .p_offset = (u32)(sizeof(head) + what->offset),
                           .p_vaddr = what->load,
                           .p_paddr = what->load,
                           .p_filesz = (u32)what->size,
                           .p_memsz = MAX((u32)what->size, what->room),
                           .p_align = 1};
    out->elf_size = sizeof(head) + file.size;
    out->elf = out->owned = malloc(out->elf_size);
    if (!out->owned)
        return err_set(err, -ENOMEM, "no memory for the kernel (%zu bytes)", file.size);
    memcpy(out->owned, &head, sizeof(head));
    memcpy((u8 *)out->owned + sizeof(head), file.bytes, file.size);
    out->format = "raw";
    return 0;
}

/* A bzImage with no packed kernel, but code (memtest86+). */
static int wrap(struct span s, struct kernel_image *out, struct err *err)
{
    size_t setup = setup_size(s), size = s.size > setup ? s.size - setup : 0;
    u32 room = get32(s.bytes + HDR_ROOM), start = get32(s.bytes + HDR_START);
    if (!size || size > KERNEL_MAX_SIZE || room > KERNEL_MAX_SIZE)
        return err_set(err, -EINVAL, "is a bzImage of %zu bytes with nothing after its setup code",
                       s.size);
    const struct protocol_flat what = {.size = size, .load = start, .room = room, .entry = start};
    return wrap_code((struct span){s.bytes + setup, size}, &what, out, err);
}

/* Checks the setup header and finds the packed kernel; *payload is empty if there is none at all.
 */
static int find_payload(struct span s, struct span *payload, struct err *err)
{
    if (s.size < HDR_END)
        return err_set(err, -EINVAL,
                       "is a truncated bzImage: %zu bytes do not hold the setup header", s.size);
    size_t setup = setup_size(s);
    u64 offset = setup + (u64)get32(s.bytes + HDR_OFFSET);
    u64 length = get32(s.bytes + HDR_LENGTH);
    if (!get32(s.bytes + HDR_OFFSET) && !length)
        return 0;
    if (!get32(s.bytes + HDR_OFFSET) || length < 16)
        return err_set(err, -EINVAL, "is a bzImage without a packed kernel");
    if (offset > s.size || length > s.size - offset)
        return err_set(err, -EINVAL,
                       "is a truncated bzImage: the packed kernel ends at byte %llu, the "
                       "file at %zu",
                       (unsigned long long)(offset + length), s.size);
    *payload = (struct span){s.bytes + offset, (size_t)length};
    return 0;
}

static int unpack(struct span payload, struct kernel_image *out, struct err *err)
{
    const struct packing *p = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(packings) && !p; i++)
        if (has(payload, 0, packings[i].magic, packings[i].magic_size))
            p = &packings[i];
    if (!p && elf_magic(payload)) { /* CONFIG_KERNEL_UNCOMPRESSED */
        out->elf = payload.bytes;
        out->elf_size = payload.size;
        out->format = "uncompressed";
        return 0;
    }
    if (!p)
        return err_set(err, -EINVAL,
                       "is a bzImage packed in an unknown way (it begins with "
                       "%02x %02x %02x %02x)",
                       payload.bytes[0], payload.bytes[1], payload.bytes[2], payload.bytes[3]);
    if (!p->unpack)
        return err_set(err, -EINVAL,
                       "is a bzImage packed with %s; gzip, xz, zstd and lz4 are "
                       "supported",
                       p->name);
    u64 size = get32(payload.bytes + payload.size - 4);
    if (size > KERNEL_MAX_SIZE || size < sizeof(Elf64_Ehdr))
        return err_set(err, -EINVAL,
                       "is a damaged bzImage: the kernel in it claims to have %llu bytes",
                       (unsigned long long)size);
    out->owned = malloc(size);
    if (!out->owned)
        return err_set(err, -ENOMEM, "no memory to unpack the kernel (%llu bytes)",
                       (unsigned long long)size);
    int rc = p->unpack(payload, out->owned, size, err);
    out->elf = out->owned;
    out->elf_size = size;
    out->format = p->name;
    return rc;
}

int kernel_extract(const void *file, size_t size, struct kernel_image *out, struct err *err)
{
    struct span s = {file, size}, payload = {0};
    *out = (struct kernel_image){0};
    if (size > KERNEL_MAX_SIZE)
        return err_set(err, -EFBIG, "has %zu MiB: more than a kernel can have", size >> 20);
    if (elf_magic(s)) {
        int rc = check_elf(s, err);
        if (rc)
            return rc;
        *out = (struct kernel_image){.elf = file, .elf_size = size, .format = "ELF"};
        return 0;
    }
    if (!has(s, HDR_MAGIC, "HdrS", 4) || !has(s, HDR_FLAG, "\x55\xaa", 2)) {
        struct protocol_flat flat;
        int is = protocol_flat(s.bytes, s.size, &flat, err);
        if (is < 0)
            return is;
        if (is)
            return wrap_code(s, &flat, out, err);
        return err_set(err, -EINVAL, "%s; a kernel is a bzImage or an ELF vmlinux",
                       kernel_file_looks_like(file, size));
    }
    out->header = file;
    out->header_size = size;
    if (s.size >= HDR_END && get16(s.bytes + HDR_VER) < VERSION_PAYLOAD) {
        int old = linux16_check(file, size, err);
        if (old)
            kernel_image_free(out);
        else
            out->format = "setup code";
        return old;
    }
    int rc = find_payload(s, &payload, err);
    if (!rc)
        rc = payload.size ? unpack(payload, out, err) : wrap(s, out, err);
    if (!rc) {
        struct span elf = {out->elf, out->elf_size};
        if (!elf_magic(elf))
            rc = err_set(err, -EINVAL, "is a bzImage, but what is packed in it is no ELF file");
        else if ((rc = check_elf(elf, err)))
            err_prefix(err, "is a bzImage, but what is packed in it");
    }
    if (rc) {
        kernel_image_free(out);
        return rc;
    }
    return 0;
}

void kernel_image_free(struct kernel_image *image)
{
    free(image->owned);
    *image = (struct kernel_image){0};
}
