/*
 * Symbol tables and their ELF files (symbols.h). A table comes from a guest, so it may hold
 * anything: sums of addresses are checked, sizes are only ever differences of sorted addresses.
 */
#define _GNU_SOURCE /* qsort_r */
#include "inspect/symbols.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/cfi.h"

/* A symbol that reaches farther lies before a gap, not before its neighbour. */
#define SIZE_LIMIT (32ull << 20)
#define RANGES_MAX 4096u

void symbols_init(struct symbols *s)
{
    memset(s, 0, sizeof(*s));
    s->floor = SYMBOLS_FLOOR;
}

void symbols_free(struct symbols *s)
{
    free(s->list);
    free(s->by_name);
    free(s->names);
    free(s->ranges);
    free(s->orc);
    symbols_init(s);
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory for the guest's symbols");
}

/* Makes room for one more name of `len` bytes and one more symbol. */
static int make_room(struct symbols *s, size_t len, struct err *err)
{
    if (s->count >= SYMBOLS_MAX || s->names_size + len > SYMBOLS_NAMES_MAX)
        return err_set(err, -E2BIG, "the guest's symbol table is too large: %u symbols, %u bytes",
                       s->count, s->names_size);
    if (s->names_size + len > s->names_room) {
        u32 room = MAX(2 * s->names_room, 1u << 20);
        char *names = realloc(s->names, room);
        if (!names)
            return no_memory(err);
        s->names = names;
        s->names_room = room;
    }
    if (s->count == s->room) {
        u32 room = MAX(2 * s->room, 16384u);
        struct symbol *list = realloc(s->list, room * sizeof(*list));
        if (!list)
            return no_memory(err);
        s->list = list;
        s->room = room;
    }
    return 0;
}

int symbols_add(struct symbols *s, u64 address, u64 size, char type, bool absolute,
                const char *name, struct err *err)
{
    size_t len = strnlen(name, SYMBOL_NAME_MAX) + 1;
    if (len > SYMBOL_NAME_MAX)
        return err_set(err, -E2BIG, "a symbol's name in the guest is longer than %u bytes",
                       SYMBOL_NAME_MAX - 1);
    int code = make_room(s, len + 1, err);
    if (code)
        return code;
    if (!s->names_size)
        s->names[s->names_size++] = 0; /* an ELF string table begins with "" */
    s->list[s->count] = (struct symbol){.address = address,
                                        .size = size,
                                        .name = s->names_size,
                                        .order = s->count,
                                        .type = type > ' ' && type <= '~' ? type : '?',
                                        .absolute = absolute};
    s->count++;
    for (size_t i = 0; i < len; i++) /* nothing that would control a terminal */
        s->names[s->names_size + i] = name[i] && (name[i] < ' ' || name[i] > '~') ? '?' : name[i];
    s->names_size += (u32)len;
    return 0;
}

int symbols_add_range(struct symbols *s, const char *name, u64 start, u64 end, bool code,
                      struct err *err)
{
    if (start >= end || start < s->floor || s->nranges >= RANGES_MAX)
        return 0;
    for (u32 i = 0; i < s->nranges; i++)
        if (start < s->ranges[i].end && s->ranges[i].start < end)
            return 0;
    struct symbol_range *ranges = realloc(s->ranges, (s->nranges + 1) * sizeof(*ranges));
    if (!ranges)
        return no_memory(err);
    s->ranges = ranges;
    struct symbol_range *r = &ranges[s->nranges++];
    *r = (struct symbol_range){.start = start, .end = end, .code = code};
    snprintf(r->name, sizeof(r->name), "%s", name);
    return 0;
}

/* ---- order ---- */

static int compare_address(const void *x, const void *y)
{
    const struct symbol *a = x, *b = y;
    if (a->absolute != b->absolute)
        return a->absolute ? -1 : 1;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool is_global(char type)
{
    return type >= 'A' && type <= 'Z';
}

static int compare_name(const void *x, const void *y, void *opaque)
{
    const struct symbols *s = opaque;
    u32 i = *(const u32 *)x, k = *(const u32 *)y;
    const struct symbol *a = &s->list[i], *b = &s->list[k];
    int c = strcmp(s->names + a->name, s->names + b->name);
    if (c)
        return c;
    if (a->absolute != b->absolute)
        return a->absolute ? 1 : -1;
    if (is_global(a->type) != is_global(b->type))
        return is_global(a->type) ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

int symbols_finish(struct symbols *s, struct err *err)
{
    free(s->by_name);
    s->by_name = malloc((s->count + 1) * sizeof(*s->by_name));
    if (!s->by_name)
        return no_memory(err);
    if (s->count)
        qsort(s->list, s->count, sizeof(*s->list), compare_address);
    u64 next = 0; /* the nearest address above */
    for (u32 i = s->count; i-- > 0;) {
        struct symbol *y = &s->list[i];
        bool last = i + 1 == s->count || s->list[i + 1].absolute != y->absolute;
        if (last)
            next = 0;
        else if (s->list[i + 1].address != y->address)
            next = s->list[i + 1].address;
        if (!y->size || (next && y->size > next - y->address))
            y->size = next && next - y->address <= SIZE_LIMIT ? next - y->address : 0;
        s->by_name[i] = i;
    }
    s->absolutes = 0;
    while (s->absolutes < s->count && s->list[s->absolutes].absolute)
        s->absolutes++;
    if (s->count)
        qsort_r(s->by_name, s->count, sizeof(*s->by_name), compare_name, s);
    return 0;
}

const char *symbols_find(const struct symbols *s, u64 address, u64 *offset)
{
    /* The first of the last address that is not above. */
    u32 low = s->absolutes, high = s->count;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (s->list[mid].address <= address)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == s->absolutes)
        return NULL;
    u32 i = low - 1;
    while (i > s->absolutes && s->list[i - 1].address == s->list[i].address)
        i--;
    u64 distance = address - s->list[i].address;
    if (distance && distance >= s->list[i].size)
        return NULL;
    if (offset)
        *offset = distance;
    return s->names + s->list[i].name;
}

bool symbols_in_kernel(const struct symbols *s, u64 address)
{
    return address >= s->floor;
}

char *symbols_format(const struct symbols *s, u64 address, char *out, size_t size)
{
    u64 offset;
    const char *name = symbols_find(s, address, &offset);
    if (!name)
        snprintf(out, size, "0x%" PRIx64, address);
    else if (!offset)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "%s+0x%" PRIx64, name, offset);
    return out;
}

bool symbols_address(const struct symbols *s, const char *name, u64 *address)
{
    u32 low = 0, high = s->by_name ? s->count : 0;
    while (low < high) { /* the first that is not below */
        u32 mid = low + (high - low) / 2;
        if (strcmp(s->names + s->list[s->by_name[mid]].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (!s->by_name || low == s->count || strcmp(s->names + s->list[s->by_name[low]].name, name))
        return false;
    *address = s->list[s->by_name[low]].address;
    return true;
}

/* ---- the ELF file ---- */

/* Parts of a kernel between two of its symbols; what lies between the parts becomes ".kernel.N". */
static const struct {
    const char *name, *start, *end;
    bool code;
} kernel_parts[] = {
    {".text", "_text", "_etext", true},
    {".text", "_stext", "_etext", true}, /* left out when _text made one */
    {".rodata", "__start_rodata", "__end_rodata", false},
    {".data", "_sdata", "_edata", false},
    {".init.text", "_sinittext", "_einittext", true},
    {".bss", "__bss_start", "__bss_stop", false},
};

static int compare_range(const void *x, const void *y)
{
    const struct symbol_range *a = x, *b = y;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Adds what lies between the (sorted) ranges within the kernel's image, then sorts again. */
static int fill_gaps(const struct symbols *s, struct symbols *out, struct err *err)
{
    u64 first, last;
    u32 n = out->nranges, gaps = 0;
    int code = 0;
    if (!symbols_address(s, "_text", &first) || !symbols_address(s, "_end", &last))
        return 0;
    for (u32 i = 0; !code && i <= n; i++) { /* before each, and after the last */
        u64 start = i ? MAX(out->ranges[i - 1].end, first) : first;
        u64 end = i < n ? MIN(out->ranges[i].start, last) : last;
        char name[32];
        snprintf(name, sizeof(name), ".kernel.%u", gaps);
        code = symbols_add_range(out, name, start, end, false, err);
        gaps += start < end;
    }
    qsort(out->ranges, out->nranges, sizeof(*out->ranges), compare_range);
    return code;
}

/* The ranges of the file, sorted: kernel parts, what was added (modules), gaps in the kernel. */
static int make_ranges(const struct symbols *s, struct symbols *out, struct err *err)
{
    u64 start, end;
    int code = 0;
    symbols_init(out);
    out->floor = s->floor;
    for (size_t i = 0; !code && i < ARRAY_SIZE(kernel_parts); i++)
        if (symbols_address(s, kernel_parts[i].start, &start) &&
            symbols_address(s, kernel_parts[i].end, &end))
            code =
                symbols_add_range(out, kernel_parts[i].name, start, end, kernel_parts[i].code, err);
    for (u32 i = 0; !code && i < s->nranges; i++)
        code = symbols_add_range(out, s->ranges[i].name, s->ranges[i].start, s->ranges[i].end,
                                 s->ranges[i].code, err);
    if (code || !out->nranges)
        return code;
    qsort(out->ranges, out->nranges, sizeof(*out->ranges), compare_range);
    return fill_gaps(s, out, err);
}

/* The range's number, or their count if there is none. An end that begins nothing is its range's.
 */
static u32 range_of(const struct symbols *r, u64 address)
{
    u32 low = 0, high = r->nranges;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (r->ranges[mid].start <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low && address <= r->ranges[low - 1].end ? low - 1 : r->nranges;
}

static unsigned char symbol_info(const struct symbol *y)
{
    unsigned type = strchr("TtWw", y->type)       ? STT_FUNC
                    : strchr("DdBbRrVv", y->type) ? STT_OBJECT
                                                  : STT_NOTYPE;
    unsigned bind = strchr("WwVv", y->type) ? STB_WEAK
                    : is_global(y->type)    ? STB_GLOBAL
                                            : STB_LOCAL;
    return (unsigned char)ELF64_ST_INFO(bind, type);
}

/* Section numbers: 0, the ranges, then these. */
enum { SEC_NOTE, SEC_SYMTAB, SEC_STRTAB, SEC_FRAME, SEC_SHSTRTAB, SEC_FIXED };
static const char *const fixed_names[SEC_FIXED] = {".note.gnu.build-id", ".symtab", ".strtab",
                                                   ".debug_frame", ".shstrtab"};

struct elf_layout {
    u32 sections; /* of all */
    u32 first;    /* number of SEC_NOTE */
    u32 locals;   /* symbols before the first that is not local, the null symbol included */
    char *names;  /* section names */
    size_t names_size;
    struct cfi frame;
    u64 note, note_size, symtab, symtab_size, strtab, strtab_size, frame_at, shstrtab, headers;
};

/* Headers and symbols are made as those of 64 bits, and written as the kernel's own have them. */
static void write_symbol(const struct symbols *s, const Elf64_Sym *y, FILE *f)
{
    const Elf32_Sym narrow = {.st_name = y->st_name,
                              .st_info = y->st_info,
                              .st_shndx = y->st_shndx,
                              .st_value = (u32)y->st_value,
                              .st_size = (u32)y->st_size};
    if (s->narrow)
        fwrite(&narrow, sizeof(narrow), 1, f);
    else
        fwrite(y, sizeof(*y), 1, f);
}

static void write_section(const struct symbols *s, const Elf64_Shdr *h, FILE *f)
{
    const Elf32_Shdr narrow = {.sh_name = h->sh_name,
                               .sh_type = h->sh_type,
                               .sh_flags = (u32)h->sh_flags,
                               .sh_addr = (u32)h->sh_addr,
                               .sh_offset = (u32)h->sh_offset,
                               .sh_size = (u32)h->sh_size,
                               .sh_link = h->sh_link,
                               .sh_info = h->sh_info,
                               .sh_addralign = (u32)h->sh_addralign,
                               .sh_entsize = (u32)h->sh_entsize};
    if (s->narrow)
        fwrite(&narrow, sizeof(narrow), 1, f);
    else
        fwrite(h, sizeof(*h), 1, f);
}

static size_t head_size(const struct symbols *s)
{
    return s->narrow ? sizeof(Elf32_Ehdr) : sizeof(Elf64_Ehdr);
}

static size_t symbol_size(const struct symbols *s)
{
    return s->narrow ? sizeof(Elf32_Sym) : sizeof(Elf64_Sym);
}

static void write_head(const struct symbols *s, const struct elf_layout *l, FILE *f)
{
    Elf64_Ehdr h = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_EXEC,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_shoff = l->headers,
        .e_ehsize = sizeof(h),
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = (u16)l->sections,
        .e_shstrndx = (u16)(l->first + SEC_SHSTRTAB)};
    if (!s->narrow) {
        symbols_address(s, "startup_64", &h.e_entry);
        fwrite(&h, sizeof(h), 1, f);
        return;
    }
    Elf32_Ehdr narrow = {.e_type = h.e_type,
                         .e_machine = EM_386,
                         .e_version = EV_CURRENT,
                         .e_shoff = (u32)l->headers,
                         .e_ehsize = sizeof(narrow),
                         .e_shentsize = sizeof(Elf32_Shdr),
                         .e_shnum = h.e_shnum,
                         .e_shstrndx = h.e_shstrndx};
    memcpy(narrow.e_ident, h.e_ident, sizeof(narrow.e_ident));
    narrow.e_ident[EI_CLASS] = ELFCLASS32;
    symbols_address(s, "startup_32", &h.e_entry);
    narrow.e_entry = (u32)h.e_entry;
    fwrite(&narrow, sizeof(narrow), 1, f);
}

static void write_symbols(const struct symbols *s, const struct symbols *r, FILE *f)
{
    const Elf64_Sym null = {0};
    write_symbol(s, &null, f);
    for (int global = 0; global < 2; global++) /* local ones come first */
        for (u32 i = 0; i < s->count; i++) {
            const struct symbol *y = &s->list[i];
            unsigned char info = symbol_info(y);
            if ((ELF64_ST_BIND(info) != STB_LOCAL) != global)
                continue;
            u32 range = y->absolute ? r->nranges : range_of(r, y->address);
            Elf64_Sym sym = {.st_name = y->name,
                             .st_info = info,
                             .st_shndx = range < r->nranges ? (u16)(range + 1) : SHN_ABS,
                             .st_value = y->address,
                             .st_size = y->size};
            write_symbol(s, &sym, f);
        }
}

static void write_note(const struct symbols *s, FILE *f)
{
    Elf64_Nhdr note = {.n_namesz = 4, .n_descsz = s->build_id_size, .n_type = NT_GNU_BUILD_ID};
    u8 id[(sizeof(s->build_id) + 3) & ~3u] = {0};
    memcpy(id, s->build_id, s->build_id_size);
    fwrite(&note, sizeof(note), 1, f);
    fwrite("GNU", 4, 1, f);
    fwrite(id, (s->build_id_size + 3u) & ~3u, 1, f);
}

static void write_headers(const struct symbols *s, const struct symbols *r,
                          const struct elf_layout *l, FILE *f)
{
    Elf64_Shdr h = {0};
    u32 name = 1;
    write_section(s, &h, f);
    for (u32 i = 0; i < r->nranges; i++) {
        const struct symbol_range *p = &r->ranges[i];
        h = (Elf64_Shdr){.sh_name = name,
                         .sh_type = SHT_NOBITS,
                         .sh_flags = SHF_ALLOC | (p->code ? SHF_EXECINSTR : SHF_WRITE),
                         .sh_addr = p->start,
                         .sh_offset = l->note,
                         .sh_size = p->end - p->start,
                         .sh_addralign = 1};
        name += (u32)strlen(p->name) + 1;
        write_section(s, &h, f);
    }
    const Elf64_Shdr fixed[SEC_FIXED] = {
        [SEC_NOTE] = {.sh_type = s->build_id_size ? SHT_NOTE : SHT_NULL,
                      .sh_offset = l->note,
                      .sh_size = l->note_size,
                      .sh_addralign = 4},
        [SEC_SYMTAB] = {.sh_type = SHT_SYMTAB,
                        .sh_offset = l->symtab,
                        .sh_size = l->symtab_size,
                        .sh_link = l->first + SEC_STRTAB,
                        .sh_info = l->locals,
                        .sh_addralign = 8,
                        .sh_entsize = symbol_size(s)},
        [SEC_STRTAB] = {.sh_type = SHT_STRTAB,
                        .sh_offset = l->strtab,
                        .sh_size = l->strtab_size,
                        .sh_addralign = 1},
        [SEC_FRAME] = {.sh_type = l->frame.size ? SHT_PROGBITS : SHT_NULL,
                       .sh_offset = l->frame_at,
                       .sh_size = l->frame.size,
                       .sh_addralign = 8},
        [SEC_SHSTRTAB] = {.sh_type = SHT_STRTAB,
                          .sh_offset = l->shstrtab,
                          .sh_size = l->names_size,
                          .sh_addralign = 1},
    };
    for (unsigned i = 0; i < SEC_FIXED; i++) {
        h = fixed[i];
        h.sh_name = name;
        name += (u32)strlen(fixed_names[i]) + 1;
        write_section(s, &h, f);
    }
}

static int lay_out(const struct symbols *s, const struct symbols *r, struct elf_layout *l,
                   struct err *err)
{
    FILE *names = open_memstream(&l->names, &l->names_size);
    if (!names)
        return no_memory(err);
    fputc(0, names);
    for (u32 i = 0; i < r->nranges; i++)
        fwrite(r->ranges[i].name, strlen(r->ranges[i].name) + 1, 1, names);
    for (unsigned i = 0; i < SEC_FIXED; i++)
        fwrite(fixed_names[i], strlen(fixed_names[i]) + 1, 1, names);
    if (fclose(names))
        return no_memory(err);
    l->first = r->nranges + 1;
    l->sections = l->first + SEC_FIXED;
    l->locals = 1;
    for (u32 i = 0; i < s->count; i++)
        l->locals += ELF64_ST_BIND(symbol_info(&s->list[i])) == STB_LOCAL;
    l->note = head_size(s);
    l->note_size = s->build_id_size ? sizeof(Elf64_Nhdr) + 4 + ((s->build_id_size + 3u) & ~3u) : 0;
    l->symtab = (l->note + l->note_size + 7) & ~7ull;
    l->symtab_size = (s->count + 1ull) * symbol_size(s);
    l->strtab = l->symtab + l->symtab_size;
    l->strtab_size = MAX(s->names_size, 1u);
    l->frame_at = (l->strtab + l->strtab_size + 7) & ~7ull;
    l->shstrtab = l->frame_at + l->frame.size;
    l->headers = (l->shstrtab + l->names_size + 7) & ~7ull;
    return 0;
}

static void pad(FILE *f, u64 from, u64 to)
{
    while (from++ < to)
        fputc(0, f);
}

int symbols_write_elf(const struct symbols *s, FILE *f, struct err *err)
{
    struct symbols r;
    struct elf_layout l = {0};
    int code = make_ranges(s, &r, err);
    if (!code)
        code = cfi_make(&l.frame, s, err);
    if (!code)
        code = lay_out(s, &r, &l, err);
    if (!code) {
        write_head(s, &l, f);
        if (s->build_id_size)
            write_note(s, f);
        pad(f, l.note + l.note_size, l.symtab);
        write_symbols(s, &r, f);
        fwrite(s->names_size ? s->names : "", l.strtab_size, 1, f);
        pad(f, l.strtab + l.strtab_size, l.frame_at);
        if (l.frame.size)
            fwrite(l.frame.data, l.frame.size, 1, f);
        fwrite(l.names, l.names_size, 1, f);
        pad(f, l.shstrtab + l.names_size, l.headers);
        write_headers(s, &r, &l, f);
        if (ferror(f))
            code = err_errno(err, "cannot write the symbol file");
    }
    free(l.names);
    cfi_free(&l.frame);
    symbols_free(&r);
    return code;
}
