/*
 * Puts a kernel into RAM and says in which state the CPU starts (boot.h). Every input is hostile: a
 * segment, a size or an address is used only after it was checked against the file and against RAM.
 * Entropy enters the guest here (SETUP_RNG_SEED) and is a function of the seed.
 *
 * Linux Documentation/arch/x86/boot.rst, "64-bit boot protocol", "32-bit boot protocol" and "The
 * real-mode kernel header"; zero-page.rst for the offsets; System V ABI, AMD64 supplement, for ELF.
 */
#include "board/boot.h"

#include "board/linux16.h"
#include "board/protocol.h"
#include "board/zero_page.h"
#include "base/bytes.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define SETUP_RNG_SEED 9
#define E820_RAM       1
#define E820_RESERVED  2

#define MAX_SEGMENTS 64 /* a Linux has 5; more is not a kernel */
#define MAX_CMDLINE  (PAGE_SIZE - 1)
#define PTE_TABLE    0x003ull /* present, writable; A and D are the guest's to set */
#define PTE_LARGE    0x083ull

struct range {
    u64 start, end;
};

struct layout {
    struct range segments[MAX_SEGMENTS];
    unsigned nsegments;
    u64 kernel_start, kernel_end; /* end counts bss and init_size */
    u64 entry;
    u64 initrd;
};

static double mib(u64 bytes)
{
    return (double)bytes / (1 << 20);
}

const char *const boot_protocol_name[BOOT_PROTOCOLS] = {[BOOT_LINUX] = "linux",
                                                        [BOOT_PVH] = "pvh",
                                                        [BOOT_MULTIBOOT] = "multiboot",
                                                        [BOOT_MULTIBOOT2] = "multiboot2",
                                                        [BOOT_LINUX16] = "linux16"};

void boot_seed_bytes(u64 seed, u8 out[BOOT_SEED_SIZE])
{
    for (u64 i = 0; i < BOOT_SEED_SIZE / 8; i++) {
        u64 block[2] = {seed, i};
        put64(out + 8 * i, XXH3_64bits(block, sizeof(block)));
    }
}

static bool is_narrow(const Elf64_Ehdr *eh)
{
    return eh->e_ident[EI_CLASS] == ELFCLASS32;
}

/* A header of 32 bits as one of 64. */
static void widen(const struct boot_config *c, Elf64_Ehdr *eh)
{
    Elf32_Ehdr h;
    memcpy(&h, c->kernel, sizeof(h));
    *eh = (Elf64_Ehdr){.e_type = h.e_type,
                       .e_machine = h.e_machine,
                       .e_entry = h.e_entry,
                       .e_phoff = h.e_phoff,
                       .e_phentsize = h.e_phentsize,
                       .e_phnum = h.e_phnum};
    memcpy(eh->e_ident, h.e_ident, sizeof(h.e_ident));
}

static int check_elf(const struct boot_config *c, Elf64_Ehdr *eh, struct err *err)
{
    if (!c->kernel)
        return err_set(err, -ENOEXEC, "the kernel has no entry for the boot protocol %s",
                       c->protocol ? c->protocol : boot_protocol_name[BOOT_LINUX]);
    if (c->kernel_size < sizeof(*eh))
        return err_set(err, -ENOEXEC, "the kernel is truncated: %zu bytes are no ELF header",
                       c->kernel_size);
    memcpy(eh, c->kernel, sizeof(*eh));
    if (memcmp(eh->e_ident, ELFMAG, SELFMAG))
        return err_set(err, -ENOEXEC, "the kernel is not an ELF file");
    if (is_narrow(eh))
        widen(c, eh);
    if (eh->e_ident[EI_DATA] != ELFDATA2LSB ||
        (is_narrow(eh) ? eh->e_machine != EM_386
                       : eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_machine != EM_X86_64))
        return err_set(err, -ENOEXEC, "the kernel is not an x86 ELF file");
    size_t entry = is_narrow(eh) ? sizeof(Elf32_Phdr) : sizeof(Elf64_Phdr);
    if (eh->e_type != ET_EXEC && eh->e_type != ET_DYN)
        return err_set(err, -ENOEXEC, "the kernel is an ELF file of type %u, not an executable",
                       eh->e_type);
    if (eh->e_phentsize != entry)
        return err_set(err, -ENOEXEC,
                       "the kernel's ELF program headers have %u bytes each, not %zu",
                       eh->e_phentsize, entry);
    u64 table = (u64)eh->e_phnum * entry;
    if (eh->e_phoff > c->kernel_size || table > c->kernel_size - eh->e_phoff)
        return err_set(err, -ENOEXEC,
                       "the kernel is truncated: its program headers lie outside it");
    return 0;
}

static int check_segment(const struct boot_config *c, const struct ram *ram, const Elf64_Phdr *ph,
                         unsigned index, struct layout *l, struct err *err)
{
    if (ph->p_filesz > ph->p_memsz)
        return err_set(err, -ENOEXEC,
                       "segment %u of the kernel has more bytes in the file than in "
                       "memory",
                       index);
    if (ph->p_offset > c->kernel_size || ph->p_filesz > c->kernel_size - ph->p_offset)
        return err_set(err, -ENOEXEC,
                       "the kernel is truncated: its segment %u lies outside the file", index);
    if (ph->p_paddr < KERNEL_MIN_ADDR)
        return err_set(err, -ENOEXEC,
                       "segment %u of the kernel is to be loaded at 0x%llx, below 1 MiB", index,
                       (unsigned long long)ph->p_paddr);
    if (!ram_ptr(ram, ph->p_paddr, ph->p_memsz))
        return err_set(err, -ENOMEM,
                       "segment %u of the kernel (0x%llx, %.1f MiB) does not fit into "
                       "%.0f MiB of memory",
                       index, (unsigned long long)ph->p_paddr, mib(ph->p_memsz), mib(ram->size));
    struct range r = {ph->p_paddr, ph->p_paddr + ph->p_memsz};
    for (unsigned i = 0; i < l->nsegments; i++)
        if (r.start < l->segments[i].end && l->segments[i].start < r.end)
            return err_set(err, -ENOEXEC, "segment %u of the kernel overlaps another one", index);
    if (l->nsegments == MAX_SEGMENTS)
        return err_set(err, -ENOEXEC, "the kernel has more than %u segments", MAX_SEGMENTS);
    l->segments[l->nsegments++] = r;
    l->kernel_start = MIN(l->kernel_start, r.start);
    l->kernel_end = MAX(l->kernel_end, r.end);
    return 0;
}

/* The program header `index`. */
static void program_header(const struct boot_config *c, const Elf64_Ehdr *eh, unsigned index,
                           Elf64_Phdr *ph)
{
    const u8 *at = (const u8 *)c->kernel + eh->e_phoff + (size_t)index * eh->e_phentsize;
    Elf32_Phdr h;
    if (!is_narrow(eh)) {
        memcpy(ph, at, sizeof(*ph));
        return;
    }
    memcpy(&h, at, sizeof(h));
    *ph = (Elf64_Phdr){.p_type = h.p_type,
                       .p_offset = h.p_offset,
                       .p_vaddr = h.p_vaddr,
                       .p_paddr = h.p_paddr,
                       .p_filesz = h.p_filesz,
                       .p_memsz = h.p_memsz,
                       .p_align = h.p_align};
}

/* The segment header `index`, or false if it is none that loads anything. */
static bool segment(const struct boot_config *c, const Elf64_Ehdr *eh, unsigned index,
                    Elf64_Phdr *ph)
{
    program_header(c, eh, index, ph);
    return ph->p_type == PT_LOAD && ph->p_memsz;
}

/* The entry that an ELF note of Xen's names (Xen public interface, "elfnote"); 0: none. */
static u64 pvh_entry(const struct boot_config *c, const Elf64_Ehdr *eh)
{
    Elf64_Phdr ph;
    for (unsigned i = 0; i < eh->e_phnum; i++) {
        program_header(c, eh, i, &ph);
        if (ph.p_type != PT_NOTE || ph.p_offset > c->kernel_size ||
            ph.p_filesz > c->kernel_size - ph.p_offset)
            continue;
        u64 entry = protocol_pvh_entry((const u8 *)c->kernel + ph.p_offset, ph.p_filesz,
                                       ph.p_align == 8 ? 8 : 4);
        if (entry)
            return entry;
    }
    return 0;
}

/* The protocol that was asked for, or else that fits: a kernel of 64 bits is entered as Linux is;
 * one of 32 bits too if it comes from a bzImage, else by what it says of itself. */
static int choose(const struct boot_config *c, const Elf64_Ehdr *eh, enum boot_protocol *out,
                  struct err *err)
{
    bool has[BOOT_PROTOCOLS] = {[BOOT_LINUX] = !is_narrow(eh) || c->header,
                                [BOOT_PVH] = pvh_entry(c, eh),
                                [BOOT_MULTIBOOT] =
                                    is_narrow(eh) &&
                                    protocol_multiboot(c->kernel, c->kernel_size, eh->e_entry),
                                [BOOT_MULTIBOOT2] = protocol_multiboot2(c->kernel, c->kernel_size)};
    unsigned p = 0;
    if (!c->protocol || !*c->protocol) {
        while (p < BOOT_PROTOCOLS && !has[p])
            p++;
        *out = (enum boot_protocol)p;
        return p < BOOT_PROTOCOLS ? 0
                                  : err_set(err, -ENOEXEC,
                                            "the kernel has 32 bits, and neither a note for PVH "
                                            "nor a header for Multiboot says how it is entered");
    }
    while (p < BOOT_PROTOCOLS && strcmp(c->protocol, boot_protocol_name[p]))
        p++;
    if (p == BOOT_PROTOCOLS || !has[p])
        return err_set(err, -ENOEXEC, "the kernel has no entry for the boot protocol %s",
                       c->protocol);
    *out = (enum boot_protocol)p;
    return 0;
}

/* Linux links its entry as a physical address, most bare guests as a virtual one. Physical first:
 * Linux has a segment at virtual address 0 (per-CPU data) that could be taken for anything. */
static int find_entry(const struct boot_config *c, const Elf64_Ehdr *eh, struct layout *l,
                      struct err *err)
{
    Elf64_Phdr ph;
    for (unsigned i = 0; i < eh->e_phnum; i++)
        if (segment(c, eh, i, &ph) && eh->e_entry - ph.p_paddr < ph.p_memsz) {
            l->entry = eh->e_entry;
            return 0;
        }
    for (unsigned i = 0; i < eh->e_phnum; i++)
        if (segment(c, eh, i, &ph) && eh->e_entry - ph.p_vaddr < ph.p_memsz) {
            l->entry = eh->e_entry - ph.p_vaddr + ph.p_paddr;
            return 0;
        }
    return err_set(err, -ENOEXEC, "the kernel's entry point 0x%llx is in none of its segments",
                   (unsigned long long)eh->e_entry);
}

static int plan_kernel(const struct boot_config *c, const struct ram *ram, const Elf64_Ehdr *eh,
                       enum boot_protocol protocol, struct layout *l, struct err *err)
{
    l->kernel_start = UINT64_MAX;
    for (unsigned i = 0; i < eh->e_phnum; i++) {
        Elf64_Phdr ph;
        int rc = segment(c, eh, i, &ph) ? check_segment(c, ram, &ph, i, l, err) : 0;
        if (rc)
            return rc;
    }
    if (!l->nsegments)
        return err_set(err, -ENOEXEC, "the kernel has no loadable segment");
    int rc = find_entry(c, eh, l, err);
    if (!rc && protocol == BOOT_PVH) {
        l->entry = pvh_entry(c, eh);
        if (l->entry >> 32 || !ram_ptr(ram, l->entry, 1))
            rc = err_set(err, -ENOEXEC, "the kernel's PVH entry 0x%llx is not in memory",
                         (unsigned long long)l->entry);
    }
    if (rc || !c->header)
        return rc;
    /* What the kernel uses while it starts: nothing of ours may lie in it. */
    u32 init_size = get32((const u8 *)c->header + ZP_INIT_SIZE);
    if (!ram_ptr(ram, l->kernel_start, init_size))
        return err_set(err, -ENOMEM,
                       "the kernel needs %.1f MiB from 0x%llx on to start, and the "
                       "machine has %.0f MiB of memory",
                       mib(init_size), (unsigned long long)l->kernel_start, mib(ram->size));
    l->kernel_end = MAX(l->kernel_end, l->kernel_start + init_size);
    return 0;
}

static int plan_initrd(const struct boot_config *c, const struct ram *ram, struct layout *l,
                       struct err *err)
{
    if (!c->initrd_size)
        return 0;
    l->initrd = (l->kernel_end + PAGE_SIZE - 1) & ~(u64)(PAGE_SIZE - 1);
    if (!ram_ptr(ram, l->initrd, c->initrd_size))
        return err_set(err, -ENOMEM,
                       "the initrd of %.1f MiB does not fit above the kernel, which ends "
                       "at %.1f MiB, into %.0f MiB of memory",
                       mib(c->initrd_size), mib(l->kernel_end), mib(ram->size));
    return 0;
}

static int check_header(const struct boot_config *c, struct err *err)
{
    const u8 *h = c->header;
    if (!h)
        return 0;
    if (c->header_size < ZP_INIT_SIZE + 4)
        return err_set(err, -ENOEXEC, "the kernel's setup header is truncated to %zu bytes",
                       c->header_size);
    if (memcmp(h + ZP_MAGIC, "HdrS", 4) || get16(h + ZP_BOOT_FLAG) != 0xaa55)
        return err_set(err, -ENOEXEC, "the kernel's setup header has no HdrS signature");
    if (get16(h + ZP_VERSION) < 0x20a)
        return err_set(err, -ENOEXEC,
                       "the kernel's boot protocol %u.%02u is too old (2.10 has what is "
                       "needed)",
                       get16(h + ZP_VERSION) >> 8, get16(h + ZP_VERSION) & 0xff);
    return 0;
}

int boot_check_cmdline(const char *append, size_t most, struct err *err)
{
    size_t len = append ? strlen(append) : 0, max = MIN(most, (size_t)MAX_CMDLINE);
    if (len > max)
        return err_set(err, -E2BIG, "the command line has %zu bytes; this kernel takes %zu", len,
                       max);
    return 0;
}

static void load_kernel(struct ram *ram, const struct boot_config *c, const Elf64_Ehdr *eh)
{
    for (unsigned i = 0; i < eh->e_phnum; i++) {
        Elf64_Phdr ph;
        if (!segment(c, eh, i, &ph))
            continue;
        /* The rest of p_memsz is zero already: RAM is fresh and segments do not overlap. */
        if (ph.p_filesz)
            memcpy(ram_ptr(ram, ph.p_paddr, ph.p_memsz), (const u8 *)c->kernel + ph.p_offset,
                   ph.p_filesz);
    }
}

static void write_header(u8 *zp, const struct boot_config *c, const struct layout *l)
{
    if (c->header) {
        /* The header's end is the target of the jump at 0x200 (boot.rst, "setup_header"). */
        const u8 *h = c->header;
        size_t end = MIN((size_t)(0x202 + h[ZP_HEADER_LENGTH]), (size_t)BOOT_HEADER_SIZE);
        end = MIN(end, c->header_size);
        memcpy(zp + ZP_HEADER, h + ZP_HEADER, MAX(end, ZP_INIT_SIZE + 4u) - ZP_HEADER);
    } else {
        put16(zp + ZP_BOOT_FLAG, 0xaa55);
        put16(zp + 0x200, 0x6aeb); /* jmp to 0x26c, the end of a 2.15 header */
        memcpy(zp + ZP_MAGIC, "HdrS", 4);
        put16(zp + ZP_VERSION, 0x20f);
        zp[ZP_LOADFLAGS] = LOADFLAGS_LOADED_HIGH;
        put32(zp + ZP_ALIGNMENT, 0x200000);
        put16(zp + ZP_XLOADFLAGS, XLOADFLAGS_KERNEL_64);
        put32(zp + ZP_CMDLINE_SIZE, MAX_CMDLINE);
        put64(zp + ZP_PREF_ADDRESS, l->kernel_start);
        put32(zp + ZP_INIT_SIZE, (u32)MIN(l->kernel_end - l->kernel_start, (u64)UINT32_MAX));
    }
    zp[ZP_LOADER] = LOADER_UNKNOWN;
    zp[ZP_LOADFLAGS] &= (u8)~LOADFLAGS_KASLR;
}

unsigned boot_memory_map(const struct ram *ram, struct boot_range out[BOOT_RANGES])
{
    const struct boot_range map[BOOT_RANGES] = {
        {0, BOOT_LOW_END, E820_RAM},
        {BOOT_LOW_END, ROM_BASE - BOOT_LOW_END, E820_RESERVED},
        {0xe0000, ROM_END - 0xe0000, E820_RESERVED}, /* ACPI tables */
        {ROM_END, ram->low_size - ROM_END, E820_RAM},
        {0x100000000ull, ram->size - ram->low_size, E820_RAM},
    };
    unsigned n = 0;
    for (size_t i = 0; i < BOOT_RANGES; i++)
        if (map[i].size)
            out[n++] = map[i];
    return n;
}

static void write_e820(u8 *zp, const struct ram *ram)
{
    struct boot_range map[BOOT_RANGES];
    unsigned n = boot_memory_map(ram, map);
    for (unsigned i = 0; i < n; i++) {
        u8 *e = zp + ZP_E820 + 20 * i;
        put64(e, map[i].base);
        put64(e + 8, map[i].size);
        put32(e + 16, map[i].type);
    }
    zp[ZP_E820_ENTRIES] = (u8)n;
}

void boot_write_seed(struct ram *ram, u64 seed)
{
    u8 *sd = ram_ptr(ram, BOOT_SETUP_DATA, 16 + BOOT_SEED_SIZE);
    put64(sd, 0); /* next */
    put32(sd + 8, SETUP_RNG_SEED);
    put32(sd + 12, BOOT_SEED_SIZE);
    boot_seed_bytes(seed, sd + 16);
}

static void write_zero_page(struct ram *ram, const struct boot_config *c, const struct layout *l)
{
    u8 *zp = ram_ptr(ram, BOOT_ZERO_PAGE, PAGE_SIZE);
    memset(zp, 0, PAGE_SIZE);
    write_header(zp, c, l);
    u8 *cmdline = ram_ptr(ram, BOOT_CMDLINE, PAGE_SIZE);
    memset(cmdline, 0, PAGE_SIZE);
    if (c->append)
        memcpy(cmdline, c->append, strlen(c->append));
    put32(zp + ZP_CMDLINE, BOOT_CMDLINE);
    put32(zp + ZP_EXT_CMDLINE, 0);
    put32(zp + ZP_RAMDISK, (u32)l->initrd);
    put32(zp + ZP_EXT_RAMDISK, (u32)(l->initrd >> 32));
    put32(zp + ZP_RAMDISK_N, (u32)c->initrd_size);
    put32(zp + ZP_EXT_RAMDISK_N, (u32)((u64)c->initrd_size >> 32));
    put64(zp + ZP_ACPI_RSDP, c->acpi_rsdp);
    put64(zp + ZP_SETUP_DATA, BOOT_SETUP_DATA);
    write_e820(zp, ram);
    boot_write_seed(ram, c->seed);
}

/* Identity map of 2 MiB pages over all RAM and at least 4 GiB (the APICs are below it). */
static void write_page_tables(struct ram *ram)
{
    u64 top = 4;
    if (ram->size > ram->low_size)
        top += (ram->size - ram->low_size + (1ull << 30) - 1) >> 30;
    u64 pages = 2 + top; /* at most 67: they end well below BOOT_LOW_END */
    u64 *pml4 = ram_ptr(ram, BOOT_PAGE_TABLE, pages * PAGE_SIZE);
    u64 *pdpt = pml4 + 512;
    pml4[0] = (BOOT_PAGE_TABLE + PAGE_SIZE) | PTE_TABLE;
    for (u64 g = 0; g < top; g++) {
        u64 *pd = pdpt + 512 * (1 + g);
        pdpt[g] = (BOOT_PAGE_TABLE + (2 + g) * PAGE_SIZE) | PTE_TABLE;
        for (u64 i = 0; i < 512; i++)
            pd[i] = (g << 30 | i << 21) | PTE_LARGE;
    }
}

/* Was its code of 16 bits asked for, or is there no other way in? */
static bool by_setup_code(const struct boot_config *c)
{
    const char *name = c->protocol ? c->protocol : "";
    return c->header && (!strcmp(name, boot_protocol_name[BOOT_LINUX16]) || (!*name && !c->kernel));
}

int boot_load(struct ram *ram, const struct boot_config *config, struct boot_state *out,
              struct err *err)
{
    static const u64 gdt[] = {
        0, 0, 0x00af9b000000ffff, /* 0x10: 64-bit code, present, accessed */
        0x00cf93000000ffff,       /* 0x18: data, flat, present, writable, accessed */
    };
    static const u64 gdt_32[] = {0, 0, 0x00cf9b000000ffff, 0x00cf93000000ffff};
    Elf64_Ehdr eh;
    struct layout l = {0};
    enum boot_protocol protocol = BOOT_LINUX;
    if (by_setup_code(config))
        return linux16_load(ram, config, out, err);
    int rc = check_elf(config, &eh, err);
    if (!rc)
        rc = choose(config, &eh, &protocol, err);
    if (!rc)
        rc = check_header(config, err);
    if (!rc)
        rc = boot_check_cmdline(config->append,
                                config->header ? get32((const u8 *)config->header + ZP_CMDLINE_SIZE)
                                               : MAX_CMDLINE,
                                err);
    if (!rc)
        rc = plan_kernel(config, ram, &eh, protocol, &l, err);
    if (!rc)
        rc = plan_initrd(config, ram, &l, err);
    if (rc)
        return rc;

    load_kernel(ram, config, &eh);
    if (config->initrd_size)
        memcpy(ram_ptr(ram, l.initrd, config->initrd_size), config->initrd, config->initrd_size);
    if (protocol != BOOT_LINUX) {
        struct protocol_info info = {.append = config->append ? config->append : "",
                                     .initrd = l.initrd,
                                     .initrd_size = config->initrd_size,
                                     .acpi_rsdp = config->acpi_rsdp,
                                     .bios_data = config->bios_data};
        *out = (struct boot_state){.rip = l.entry, .rsp = BOOT_STACK_TOP};
        protocol_write(ram, protocol, &info, out);
    } else {
        *out = (struct boot_state){.wide = !is_narrow(&eh),
                                   .rip = l.entry,
                                   .rsp = BOOT_STACK_TOP,
                                   .rsi = BOOT_ZERO_PAGE,
                                   .cr3 = is_narrow(&eh) ? 0 : BOOT_PAGE_TABLE};
        write_zero_page(ram, config, &l);
        if (out->wide)
            write_page_tables(ram);
    }
    memcpy(ram_ptr(ram, BOOT_GDT, sizeof(gdt)), out->wide ? gdt : gdt_32, sizeof(gdt));
    out->gdt_base = BOOT_GDT;
    out->gdt_limit = sizeof(gdt) - 1;
    return 0;
}
