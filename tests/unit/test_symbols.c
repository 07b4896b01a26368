/* Symbols out of a guest's memory: VMCOREINFO, kallsyms in all its forms, hostile ones, ELF files.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "board/ram.h"
#include "../unit/kallsyms_sample.h"
#include "host/output_file.h"
#include "inspect/btf.h"
#include "inspect/cfi.h"
#include "inspect/orc.h"

struct toy {
    u8 *bytes;
    struct ram ram;
    struct guest_memory memory;
    u64 map;
    bool mapped; /* the page tables map the kernel */
};

static bool peek(void *opaque, gva_t va, void *out, size_t len)
{
    const struct toy *t = opaque;
    u64 at = va - t->map;
    if (!t->mapped || at > t->ram.size || len > t->ram.size - at)
        return false;
    memcpy(out, t->bytes + at, len);
    return true;
}

static void toy_make(struct toy *t, struct sample *s)
{
    t->bytes = malloc(SAMPLE_RAM);
    sample_make(s, t->bytes);
    t->ram =
        (struct ram){.host = t->bytes, .size = SAMPLE_RAM, .low_size = SAMPLE_RAM, .pagemap = -1};
    t->memory = (struct guest_memory){.ram = &t->ram, .peek = peek, .opaque = t};
    t->map = sample_map(s);
    t->mapped = false;
}

static int toy_read(struct toy *t, struct symbols *out, struct err *err)
{
    struct guest_linux g;
    symbols_init(out);
    int code = guest_linux_open(&g, &t->memory, err);
    if (!code)
        code = guest_linux_symbols(&g, out, err);
    guest_linux_close(&g);
    return code;
}

static void check_all(const struct sample *s, const struct symbols *y)
{
    char name[512];
    assert_int_equal(y->count, SAMPLE_SYMBOLS);
    for (u32 i = 0; i < SAMPLE_SYMBOLS; i++) {
        u64 address = sample_symbol(s, i, name), found;
        bool seen = false;
        assert_true(symbols_address(y, name + 1, &found));
        assert_int_equal(found, address);
        for (u32 k = 0; k < y->count && !seen; k++)
            seen = !strcmp(y->names + y->list[k].name, name + 1) && y->list[k].type == name[0] &&
                   y->list[k].absolute == (address < sample_map(s));
        assert_true(seen);
    }
    assert_false(symbols_address(y, "fn_", &(u64){0}));
}

static void forms(void **state)
{
    for (int form = 0; form < 3 * 3 * 2 * 2 * 2 * 2; form++) {
        struct sample s = {.layout = (enum sample_layout)(form % 3),
                           .values = (enum sample_values)(form / 3 % 3),
                           .vmcoreinfo = form / 9 % 2,
                           .shift = form / 18 % 2 ? 0x5600000 : 0,
                           .narrow = form / 72};
        struct toy t;
        struct symbols y;
        struct err err = {0};
        if (s.layout == SAMPLE_NEW && s.values == SAMPLE_WIDE && !s.vmcoreinfo)
            continue; /* no kernel is like that */
        toy_make(&t, &s);
        t.mapped = form / 36 % 2;
        if (toy_read(&t, &y, &err))
            fail_msg("form %d: %s", form, err.text);
        check_all(&s, &y);
        assert_int_equal(y.narrow, s.narrow);
        if (s.narrow)
            assert_int_equal(y.floor, sample_map(&s));
        assert_string_equal(y.release, s.vmcoreinfo ? SAMPLE_RELEASE : "");
        assert_int_equal(y.build_id_size, s.vmcoreinfo ? 8 : 0);
        symbols_free(&y);
        free(t.bytes);
    }
}

static void lookup(void **state)
{
    struct sample s = {.vmcoreinfo = true};
    struct toy t;
    struct symbols y;
    struct err err = {0};
    char out[64];
    u64 offset, at, text = SAMPLE_MAP + SAMPLE_TEXT;
    toy_make(&t, &s);
    assert_int_equal(toy_read(&t, &y, &err), 0);
    assert_string_equal(symbols_find(&y, text + 100 * 0x40 + 8, &offset), "fn_100.part.0");
    assert_int_equal(offset, 8);
    assert_string_equal(symbols_format(&y, text + 100 * 0x40 + 8, out, sizeof(out)),
                        "fn_100.part.0+0x8");
    assert_string_equal(symbols_format(&y, text + 103 * 0x40, out, sizeof(out)), "fn_103.part.0");
    /* Nothing there: below, far above, among the per-CPU offsets. */
    assert_null(symbols_find(&y, text, NULL));
    assert_null(symbols_find(&y, UINT64_MAX, NULL));
    assert_null(symbols_find(&y, 0x100, NULL));
    assert_string_equal(symbols_format(&y, 0x100, out, sizeof(out)), "0x100");
    /* The last symbol has no size. */
    assert_true(symbols_address(&y, "_end", &at));
    assert_string_equal(symbols_find(&y, at, NULL), "_end");
    assert_null(symbols_find(&y, at + 1, NULL));
    symbols_free(&y);
    free(t.bytes);
    /* An empty table. */
    assert_int_equal(symbols_finish(&y, &err), 0);
    assert_null(symbols_find(&y, text, NULL));
    assert_false(symbols_address(&y, "_text", &at));
    symbols_free(&y);
}

static void no_linux(void **state)
{
    struct sample s = {.vmcoreinfo = true};
    struct toy t;
    struct symbols y;
    struct err err = {0};
    toy_make(&t, &s);
    memset(t.bytes, 0, SAMPLE_RAM);
    assert_int_equal(toy_read(&t, &y, &err), -ENOENT);
    assert_non_null(strstr(err.text, "try a later point"));
    assert_int_equal(y.count, 0);
    free(t.bytes);
}

/* A page that only looks like VMCOREINFO does not hide the real one. */
static void forged(void **state)
{
    struct sample s = {.vmcoreinfo = true};
    struct toy t;
    struct symbols y;
    struct err err = {0};
    toy_make(&t, &s);
    strcpy((char *)t.bytes, "OSRELEASE=6.6.6\nPAGESIZE=4096\nSYMBOL(init_uts_ns)=0\n");
    assert_int_equal(toy_read(&t, &y, &err), 0);
    assert_string_equal(y.release, SAMPLE_RELEASE);
    symbols_free(&y);
    /* One that agrees with the kernel's name, but leads nowhere: the tables are found by shape. */
    memcpy(t.bytes, t.bytes + 0x1000, 0x1000);
    char *p = strstr((char *)t.bytes, "kallsyms_names)=ffffffff800");
    memcpy(p, "kallsyms_names)=ffffffff900", 27);
    assert_int_equal(toy_read(&t, &y, &err), 0);
    check_all(&s, &y);
    symbols_free(&y);
    free(t.bytes);
}

/* Every way in which a table may be cut off or lie ends with a text. */
static void hostile(void **state)
{
    struct sample s = {.vmcoreinfo = true};
    struct toy t;
    struct symbols y;
    struct err err;
    toy_make(&t, &s);
    u8 *good = malloc(SAMPLE_RAM);
    memcpy(good, t.bytes, SAMPLE_RAM);
    for (int i = 0; i < 12; i++) {
        memcpy(t.bytes, good, SAMPLE_RAM);
        u8 *p = t.bytes;
        switch (i) {
        case 0: memset(p + s.count, 0, 4); break;
        case 1: memset(p + s.count, 0xff, 4); break;
        case 2: memcpy(p + s.count, &(u32){SYMBOLS_MAX}, 4); break;
        case 3: p[s.index + 5]++; break;
        case 4: p[s.index] = 1; break;
        case 5: memset(p + s.index, 0xff, 512); break;
        case 6: memset(p + s.tokens, 'a', s.index - s.tokens); break;
        case 7: p[s.names] = 0; break;
        case 8: p[s.names] = 0xff, p[s.names + 1] = 0xff; break;
        case 9:
            p[s.names + 3] = 200 - 160;
            p[s.tokens + 81] = 7;
            break;
        case 10: memset(p + s.names, 0x7f, 0x4000); break;
        case 11: memset(p + s.addresses, 0x7f, 4 * SAMPLE_SYMBOLS); break;
        }
        err = (struct err){0};
        int code = toy_read(&t, &y, &err);
        if (!code || !err.text[0] || y.count)
            fail_msg("case %d: code %d, %u symbols, \"%s\"", i, code, y.count, err.text);
    }
    /* Memory that ends anywhere. */
    u64 end = s.index + 512;
    for (u64 size = 0; size <= end; size += size > end - 600 ? 1 : 61) {
        u8 *exact = malloc(size + 1); /* for the address sanitizer */
        memcpy(exact, good, size);
        memset(exact, 0, MIN(size, 0x1000ull + (size % 2 ? 0x1000 : 0)));
        struct ram ram = {.host = exact, .size = size, .low_size = size, .pagemap = -1};
        struct guest_memory memory = {&ram, peek, &t};
        struct guest_linux g;
        err = (struct err){0};
        assert_int_equal(guest_linux_open(&g, &memory, &err), 0);
        int code = guest_linux_symbols(&g, &y, &err);
        assert_true((code == 0) == (size == end));
        symbols_free(&y);
        guest_linux_close(&g);
        free(exact);
    }
    free(good);
    free(t.bytes);
}

static void limits(void **state)
{
    struct symbols y;
    struct err err = {0};
    char name[600];
    symbols_init(&y);
    memset(name, 'n', sizeof(name));
    name[511] = 0;
    assert_int_equal(symbols_add(&y, 1, 0, 'T', false, name, &err), 0);
    name[511] = 'n';
    name[512] = 0;
    assert_int_equal(symbols_add(&y, 1, 0, 'T', false, name, &err), -E2BIG);
    assert_int_equal(symbols_add(&y, 2, 0, '\n', false, "a\033[2Jb", &err), 0);
    assert_int_equal(symbols_finish(&y, &err), 0);
    assert_string_equal(symbols_find(&y, 2, NULL), "a?[2Jb");
    assert_int_equal(y.list[1].type, '?');
    for (u32 i = y.count; i < SYMBOLS_MAX; i++)
        assert_int_equal(symbols_add(&y, i, 0, 'T', false, "n", &err), 0);
    assert_int_equal(symbols_add(&y, 2, 0, 'T', false, "n", &err), -E2BIG);
    symbols_free(&y);
}

static void types(void **state)
{
    u8 data[1024];
    size_t size = sample_btf(data);
    struct btf b;
    struct err err = {0};
    u32 at, of;
    assert_int_equal(btf_parse(&b, data, size, &err), 0);
    assert_int_equal(b.count, 9);
    assert_true(btf_member(&b, "list_head", "prev", &at, &of));
    assert_int_equal(at, 8);
    assert_int_equal(of, 0);
    assert_true(btf_member(&b, "outer", "list", &at, &of));
    assert_int_equal(at, 24);
    assert_int_equal(of, 16);
    assert_true(btf_member(&b, "outer", "list.prev", &at, &of));
    assert_int_equal(at, 32);
    assert_true(btf_member(&b, "outer", "list_head.prev", &at, NULL)); /* in the nameless union */
    assert_int_equal(at, 16);
    assert_true(btf_member(&b, "outer", "array.next", &at, NULL));
    assert_int_equal(at, 40);
    assert_true(btf_member(&b, "outer", "bits", &at, NULL));
    assert_int_equal(at, 104);
    assert_false(btf_member(&b, "outer", "lis", &at, NULL));
    assert_false(btf_member(&b, "outer", "x.y", &at, NULL));
    assert_false(btf_member(&b, "outer", "list.prev.next", &at, NULL)); /* not through a pointer */
    assert_false(btf_member(&b, "loop", "x", &at, NULL));
    assert_false(btf_member(&b, "none", "x", &at, NULL));
    btf_free(&b);
    for (size_t n = 0; n < size; n++) {
        u8 *exact = malloc(n + 1);
        memcpy(exact, data, n);
        err = (struct err){0};
        assert_int_equal(btf_parse(&b, exact, n, &err), -EINVAL);
        assert_true(err.text[0]);
        btf_free(&b);
        free(exact);
    }
}

static const Elf64_Sym *elf_symbol(const u8 *elf, const char *name, u16 *section)
{
    const Elf64_Ehdr *h = (const void *)elf;
    const Elf64_Shdr *sh = (const void *)(elf + h->e_shoff);
    for (unsigned i = 0; i < h->e_shnum; i++) {
        const Elf64_Sym *sym = (const void *)(elf + sh[i].sh_offset);
        for (u64 k = 0; sh[i].sh_type == SHT_SYMTAB && k < sh[i].sh_size / sizeof(*sym); k++) {
            const u8 *names = elf + sh[sh[i].sh_link].sh_offset;
            assert_true((ELF64_ST_BIND(sym[k].st_info) == STB_LOCAL) == (k < sh[i].sh_info));
            if (!strcmp((const char *)names + sym[k].st_name, name)) {
                *section = sym[k].st_shndx;
                return &sym[k];
            }
        }
    }
    fail_msg("no symbol %s", name);
    return NULL;
}

static void elf(void **state)
{
    struct sample s = {.vmcoreinfo = true};
    struct toy t;
    struct symbols y;
    struct err err = {0};
    char *out;
    size_t size;
    u16 text, data, other;
    toy_make(&t, &s);
    assert_int_equal(toy_read(&t, &y, &err), 0);
    FILE *f = open_memstream(&out, &size);
    assert_int_equal(symbols_write_elf(&y, f, &err), 0);
    fclose(f);
    const u8 *elf = (const u8 *)out;
    const Elf64_Ehdr *h = (const void *)out;
    const Elf64_Shdr *sh = (const void *)(out + h->e_shoff);
    assert_int_equal(h->e_shoff + h->e_shnum * sizeof(*sh), size);
    const Elf64_Sym *fn = elf_symbol(elf, "fn_103.part.0", &text);
    assert_int_equal(fn->st_info, ELF64_ST_INFO(STB_LOCAL, STT_FUNC));
    assert_int_equal(fn->st_size, 0x40);
    assert_string_equal(out + sh[h->e_shstrndx].sh_offset + sh[text].sh_name, ".text");
    assert_int_equal(sh[text].sh_addr, SAMPLE_MAP + SAMPLE_TEXT + 10 * 0x40);
    assert_int_equal(sh[text].sh_type, SHT_NOBITS);
    const Elf64_Sym *sdata = elf_symbol(elf, "_sdata", &data);
    assert_int_equal(sdata->st_info, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT));
    assert_string_equal(out + sh[h->e_shstrndx].sh_offset + sh[data].sh_name, ".data");
    elf_symbol(elf, "__percpu_3", &other);
    assert_int_equal(other, SHN_ABS);
    elf_symbol(elf, "_end", &other);
    assert_int_not_equal(other, SHN_ABS);
    free(out);
    symbols_free(&y);
    free(t.bytes);
    /* No symbols at all still make a file. */
    f = open_memstream(&out, &size);
    assert_int_equal(symbols_write_elf(&y, f, &err), 0);
    fclose(f);
    assert_true(size > sizeof(Elf64_Ehdr));
    free(out);
}

static void files(void **state)
{
    char dir[] = "/tmp/reprise-test-XXXXXX", path[64], command[100];
    struct output_file o;
    struct err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(output_open(&o, path, false, &err), 0);
    fputs("one", o.file);
    output_discard(&o);
    assert_int_equal(rmdir(dir), 0); /* nothing was left */
    assert_non_null(mkdtemp(strcpy(dir, "/tmp/reprise-test-XXXXXX")));
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(output_open(&o, path, false, &err), 0);
    assert_int_equal(output_commit(&o, &err), 0);
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(output_open(&o, path, false, &err), -EEXIST);
    assert_non_null(strstr(err.text, "--force"));
    assert_int_equal(output_open(&o, path, true, &err), 0);
    assert_int_equal(output_commit(&o, &err), 0);
    output_discard(&o);
    assert_int_equal(output_open(&o, dir, true, &err), -EEXIST);
    assert_int_equal(output_open(&o, "/dev/full", true, &err), -EEXIST);
    assert_int_equal(output_open(&o, "/nowhere/at/all", false, &err), -ENOENT);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* ---- unwind tables ---- */

#define ORC_BASE    0xffffffff81000000ull
#define ORC_IPS     0x2000u
#define ORC_ENTRIES 0x3000u
#define ORC_MOST    256u

/* Code at 0, then the tables; flags are those of Linux 6.4 (type << 8, signal 0x800). */
struct orc_toy {
    u8 bytes[0x4000];
    u32 count;
    struct guest_linux g;
    struct symbols s;
};

static bool orc_peek(void *opaque, gva_t va, void *out, size_t len)
{
    const struct orc_toy *t = opaque;
    if (va < ORC_BASE || va - ORC_BASE > sizeof(t->bytes) - len)
        return false;
    memcpy(out, t->bytes + (va - ORC_BASE), len);
    return true;
}

static void orc_symbol(struct orc_toy *t, u64 at, char type, const char *name)
{
    struct err err;
    assert_int_equal(symbols_add(&t->s, ORC_BASE + at, 0, type, false, name, &err), 0);
}

static void orc_begin(struct orc_toy *t, const char *release)
{
    memset(t, 0, sizeof(*t));
    t->g.memory = (struct guest_memory){.peek = orc_peek, .opaque = t};
    snprintf(t->s.release, sizeof(t->s.release), "%s", release);
}

static void orc_row(struct orc_toy *t, u32 at, i16 sp, i16 bp, u16 flags)
{
    unsigned major, minor;
    i32 offset = (i32)(at - (ORC_IPS + 4 * t->count));
    assert_int_equal(sscanf(t->s.release, "%u.%u", &major, &minor), 2);
    if (major < 6 || minor < 4) { /* types undefined and end are those without a register */
        unsigned type = flags >> 8 & 7;
        bool end = type == 1, signal = flags & 0x800;
        unsigned bits = type < 2 ? 0 : type - 2;
        bits |= minor == 3 ? (unsigned)signal << 2 | (unsigned)end << 3 : (unsigned)end << 2;
        flags = (u16)((flags & 0xff) | bits << 8);
    }
    memcpy(t->bytes + ORC_IPS + 4 * t->count, &offset, 4);
    memcpy(t->bytes + ORC_ENTRIES + 6 * t->count, &sp, 2);
    memcpy(t->bytes + ORC_ENTRIES + 6 * t->count + 2, &bp, 2);
    memcpy(t->bytes + ORC_ENTRIES + 6 * t->count + 4, &flags, 2);
    t->count++;
}

static void orc_end(struct orc_toy *t)
{
    struct err err = {0};
    orc_symbol(t, ORC_IPS, 'R', "__start_orc_unwind_ip");
    orc_symbol(t, ORC_IPS + 4 * t->count, 'R', "__stop_orc_unwind_ip");
    orc_symbol(t, ORC_ENTRIES, 'R', "__start_orc_unwind");
    orc_symbol(t, ORC_ENTRIES + 6 * t->count, 'R', "__stop_orc_unwind");
    assert_int_equal(symbols_finish(&t->s, &err), 0);
    assert_int_equal(orc_read(&t->s, &t->g, &err), 0);
    orc_finish(&t->s);
}

static u32 word_at(const u8 *p)
{
    u32 v;
    memcpy(&v, p, 4);
    return v;
}

/* What the frame information says about a piece of code: "S" or "", the rules; NULL: nothing. */
static const u8 *orc_find(const struct cfi *c, u64 from, u64 to, const char **kind, size_t *len)
{
    for (size_t at = 0; at < c->size; at += 4 + word_at(c->data + at)) {
        u64 start, size;
        if (word_at(c->data + at + 4) == UINT32_MAX)
            continue;
        memcpy(&start, c->data + at + 8, 8);
        memcpy(&size, c->data + at + 16, 8);
        if (start != ORC_BASE + from || start + size != ORC_BASE + to)
            continue;
        *kind = (const char *)c->data + word_at(c->data + at + 4) + 9;
        *len = word_at(c->data + at) - 20;
        return c->data + at + 24;
    }
    return NULL;
}

static void orc_rules(const struct cfi *c, u64 from, u64 to, const char *kind, const char *rules,
                      size_t len)
{
    const char *found;
    size_t there = 0;
    const u8 *p = orc_find(c, from, to, &found, &there);
    if (!p)
        fail_msg("nothing from %x to %x", (unsigned)from, (unsigned)to);
    assert_string_equal(found, kind);
    assert_true(there >= len && there < len + 8);
    assert_memory_equal(p, rules, len);
    for (; len < there; len++)
        assert_int_equal(p[len], 0);
}
#define RULES(c, from, to, kind, text) orc_rules(c, from, to, kind, text, sizeof(text) - 1)

static void orc_sample(struct orc_toy *t, const char *release)
{
    orc_begin(t, release);
    memcpy(t->bytes, "\x41\x54\x53\x55", 4); /* push %r12, %rbx, %rbp */
    memcpy(t->bytes + 0x100, "\x41\x57\x90\x53", 4);
    orc_symbol(t, 0, 'T', "_text");
    orc_symbol(t, 0, 't', "fn");
    orc_symbol(t, 0x40, 't', "irq");
    orc_symbol(t, 0x80, 't', "bp");
    orc_symbol(t, 0xc0, 't', "switched");
    orc_symbol(t, 0x100, 't', "gone");
    orc_symbol(t, 0x140, 't', "fn.cold");
    orc_symbol(t, 0x180, 'T', "_etext");
    orc_row(t, 0x00, 8, 0, 0x205);
    orc_row(t, 0x02, 16, 0, 0x205);
    orc_row(t, 0x03, 24, 0, 0x205);
    orc_row(t, 0x04, 32, -32, 0x215);
    orc_row(t, 0x20, 8, 0, 0x205);
    orc_row(t, 0x30, 0, 0, 0); /* padding */
    orc_row(t, 0x40, 0, 0, 0xc05);
    orc_row(t, 0x48, 0, 0, 0xb05);
    orc_row(t, 0x50, 0, 0, 0x100); /* the end */
    orc_row(t, 0x80, 8, 0, 0x205);
    orc_row(t, 0x84, 16, -16, 0x214);
    orc_row(t, 0x90, 0, -16, 0x216); /* R10 */
    orc_row(t, 0x98, -16, 0, 0x248); /* *(RBP - 16), RBP there */
    orc_row(t, 0xc0, 8, 0, 0x205);
    orc_row(t, 0xc8, 8, 0, 0x209);
    orc_row(t, 0x100, 8, 0, 0x205);
    orc_row(t, 0x102, 16, 0, 0x205);
    orc_row(t, 0x103, 24, 0, 0x205); /* no push: the code is another's by now */
    orc_row(t, 0x140, 24, 0, 0x205);
    orc_row(t, 0x180, 0, 0, 0);
    orc_end(t);
}

static void orc(void **state)
{
    static const char *const releases[] = {"6.4.0", "6.1.0-56-amd64", "6.3", "5.10.0",
                                           "6.12.3-rc1"};
    struct orc_toy *t = malloc(sizeof(*t));
    struct cfi c, first = {0};
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
        orc_sample(t, releases[i]);
        assert_int_equal(t->s.norc, t->count);
        assert_int_equal(cfi_make(&c, &t->s, &err), 0);
        if (i) {
            assert_int_equal(c.size, first.size);
            assert_memory_equal(c.data, first.data, c.size);
            cfi_free(&c);
        } else {
            first = c;
        }
        if (i + 1 < ARRAY_SIZE(releases))
            symbols_free(&t->s);
    }
    RULES(&first, 0, 0x40, "",
          "\x42\x0e\x10\x8c\x02"       /* 2: CFA 16, R12 at -16 */
          "\x41\x0e\x18\x83\x03"       /* 3: 24, RBX at -24 */
          "\x41\x0e\x20\x86\x04"       /* 4: 32, RBP at -32 */
          "\x5c\x0e\x08\xc6\xc3\xcc"); /* 20: all as at the entry */
    RULES(&first, 0x40, 0x48, "S", "");
    RULES(&first, 0x48, 0x50, "S", "");
    RULES(&first, 0x50, 0x80, "", "");
    RULES(&first, 0x80, 0xc0, "",
          "\x44\x0c\x06\x10\x86\x02\x07\x03\x07\x0c\x07\x0d\x07\x0e\x07\x0f" /* RBP + 16 */
          "\x4c\x0f\x02\x7a\x00"                                             /* R10 */
          "\x48\x0f\x03\x76\x70\x06\x10\x06\x02\x76\x00"); /* *(RBP - 16); RBP at 0(RBP) */
    RULES(&first, 0xc0, 0x100, "", "\x48\x0f\x06\x77\x00\x06\x11\x08\x22"); /* *RSP + 8 */
    RULES(&first, 0x100, 0x140, "",
          "\x42\x0e\x10\x8f\x02"
          "\x41\x0e\x18\x07\x03\x07\x0c\x07\x0d\x07\x0e\x07\x0f");
    RULES(&first, 0x140, 0x180, "", "\x0e\x18\x83\x03\x8c\x02");
    /* Within a file. */
    char *out;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    assert_int_equal(symbols_write_elf(&t->s, f, &err), 0);
    fclose(f);
    assert_non_null(memmem(out, size, first.data, first.size));
    free(out);
    cfi_free(&first);
    symbols_free(&t->s);
    free(t);
}

/* Entries: what is saved by a callee that leaves it on the stack. */
static void orc_entries(void **state)
{
    static const struct {
        u32 saved; /* where ORC says that all is */
        bool tail;
    } forms[] = {{0x0c, false}, {0x09, false}, {0x0c, true}};
    struct orc_toy *t = malloc(sizeof(*t));
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct cfi c;
        orc_begin(t, "6.1.0");
        memcpy(t->bytes, "\x0f\x01\xca\xfc\xe8\x37\0\0\0\x48\x89\xc4", 12); /* call 40; mov */
        memcpy(t->bytes + 0x60, forms[i].tail ? "\xe9\x3b\0\0\0" : "\xe8\x3b\0\0\0", 5);
        orc_symbol(t, 0, 'T', "_text");
        orc_symbol(t, 0, 't', "asm_exc");
        orc_symbol(t, 0x40, 't', "error_entry");
        orc_symbol(t, 0xa0, 't', "sync_regs");
        orc_symbol(t, 0xc0, 'T', "_etext");
        orc_row(t, 0x00, 8, 0, 0xc05);
        orc_row(t, forms[i].saved, 0, 0, 0xb05);
        orc_row(t, 0x40, 8, 0, 0x205);
        orc_row(t, 0x41, 16, 0, 0x205);
        orc_row(t, 0x4b, 24, 0, 0xc05);
        orc_row(t, 0x50, 0, 0, 0xb05);
        orc_row(t, 0x51, 8, 0, 0xb05);
        orc_row(t, 0xa0, 8, 0, 0x205);
        orc_row(t, 0xc0, 0, 0, 0);
        orc_end(t);
        assert_int_equal(cfi_make(&c, &t->s, &err), 0);
        RULES(&c, 0x00, 0x09, "S", "\x0e\x08");
        RULES(&c, 0x09, 0x40, "S", ""); /* where the call returns to, and the CFA is the same */
        RULES(&c, 0x40, 0x50, "S", "\x0e\x10\x41\x0e\x18");
        RULES(&c, 0x50, 0x51, "S", "");
        RULES(&c, 0x51, 0xa0, "", "");
        if (forms[i].tail)
            RULES(&c, 0xa0, 0xc0, "S", "\x0e\x88\x01");
        else
            RULES(&c, 0xa0, 0xc0, "", "");
        cfi_free(&c);
        symbols_free(&t->s);
    }
    free(t);
}

/* Versions that we do not know, tables that make no sense: nothing, and no error. */
static void orc_hostile(void **state)
{
    struct orc_toy *t = malloc(sizeof(*t));
    struct cfi c;
    struct err err = {0};
    static const char *const releases[] = {"", "6", "6.", "x.y", "4.9.1", "-1.2"};
    for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
        orc_sample(t, "6.4.0");
        free(t->s.orc);
        t->s.orc = NULL;
        t->s.norc = 0;
        snprintf(t->s.release, sizeof(t->s.release), "%s", releases[i]);
        assert_int_equal(orc_read(&t->s, &t->g, &err), 0);
        assert_int_equal(
            orc_add(&t->s, &t->g, ORC_BASE + ORC_IPS, ORC_BASE + ORC_ENTRIES, t->count, &err), 0);
        assert_int_equal(t->s.norc, 0);
        assert_int_equal(cfi_make(&c, &t->s, &err), 0);
        assert_int_equal(c.size, 0);
        symbols_free(&t->s);
    }
    /* Other numbers for registers; tables outside of memory, and as long as can be. */
    orc_begin(t, "6.99");
    for (u32 i = 0; i < 100; i++)
        orc_row(t, 16 * i, 8, 0, 0x203);
    orc_end(t);
    assert_int_equal(t->s.norc, 0);
    symbols_free(&t->s);
    orc_sample(t, "6.4.0");
    t->s.norc = 0;
    assert_int_equal(orc_add(&t->s, &t->g, ORC_BASE, ORC_BASE, 0x3000, &err), 0);
    assert_int_equal(orc_add(&t->s, &t->g, 0, UINT64_MAX - 8, 100, &err), 0);
    assert_int_equal(orc_add(&t->s, &t->g, ORC_BASE, ORC_BASE, UINT32_MAX, &err), 0);
    for (int i = 0; i < 100; i++) /* the budget ends */
        assert_int_equal(orc_add(&t->s, &t->g, 0, 0, ORC_MAX / 8, &err), 0);
    assert_int_equal(
        orc_add(&t->s, &t->g, ORC_BASE + ORC_IPS, ORC_BASE + ORC_ENTRIES, ORC_MAX / 8, &err), 0);
    assert_int_equal(t->s.norc, 0);
    symbols_free(&t->s);
    /* Anything else. */
    u64 random = 88172645463325252ull;
    for (int i = 0; i < 2000; i++) {
        orc_begin(t, i % 2 ? "6.1.0" : "6.8.0");
        for (u32 k = 0; k < ORC_MOST; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            u32 at = i % 3 ? 16 * k + (random >> 60) : (u32)(random >> 40);
            if (k % 4)
                orc_row(t, at, (i16)random, (i16)(random >> 16), (u16)(random >> 32));
            else
                orc_row(t, at, 8, 0, 0x205);
            t->bytes[k] = (u8)(random >> 8);
            if (k % 8 == 1)
                orc_symbol(t, at, 't', k % 3 ? "fn" : k % 2 ? "x.cold" : "x");
        }
        orc_end(t);
        assert_true(t->s.norc > 0);
        assert_int_equal(cfi_make(&c, &t->s, &err), 0);
        size_t at = 0;
        while (at < c.size)
            at += 4 + word_at(c.data + at);
        assert_int_equal(at, c.size);
        cfi_free(&c);
        symbols_free(&t->s);
    }
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),  cmocka_unit_test(lookup),      cmocka_unit_test(no_linux),
        cmocka_unit_test(forged), cmocka_unit_test(hostile),     cmocka_unit_test(limits),
        cmocka_unit_test(elf),    cmocka_unit_test(types),       cmocka_unit_test(files),
        cmocka_unit_test(orc),    cmocka_unit_test(orc_entries), cmocka_unit_test(orc_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
