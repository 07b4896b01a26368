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
#include "replay/btf.h"

struct toy {
    u8 *bytes;
    struct ram ram;
    struct guest_memory memory;
    u64 shift;
    bool mapped; /* the page tables map the kernel */
};

static bool peek(void *opaque, gva_t va, void *out, size_t len)
{
    const struct toy *t = opaque;
    u64 at = va - SAMPLE_MAP - t->shift;
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
    t->shift = s->shift;
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
                   y->list[k].absolute == (address < SAMPLE_MAP);
        assert_true(seen);
    }
    assert_false(symbols_address(y, "fn_", &(u64){0}));
}

static void forms(void **state)
{
    for (int form = 0; form < 3 * 3 * 2 * 2 * 2; form++) {
        struct sample s = {.layout = (enum sample_layout)(form % 3),
                           .values = (enum sample_values)(form / 3 % 3),
                           .vmcoreinfo = form / 9 % 2,
                           .shift = form / 18 % 2 ? 0x5600000 : 0};
        struct toy t;
        struct symbols y;
        struct err err = {0};
        if (s.layout == SAMPLE_NEW && s.values == SAMPLE_WIDE && !s.vmcoreinfo)
            continue; /* no kernel is like that */
        toy_make(&t, &s);
        t.mapped = form / 36;
        if (toy_read(&t, &y, &err))
            fail_msg("form %d: %s", form, err.text);
        check_all(&s, &y);
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
    struct elf_output o;
    struct err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(elf_output_open(&o, path, false, &err), 0);
    fputs("one", o.file);
    elf_output_discard(&o);
    assert_int_equal(rmdir(dir), 0); /* nothing was left */
    assert_non_null(mkdtemp(strcpy(dir, "/tmp/reprise-test-XXXXXX")));
    snprintf(path, sizeof(path), "%s/out", dir);
    assert_int_equal(elf_output_open(&o, path, false, &err), 0);
    assert_int_equal(elf_output_commit(&o, &err), 0);
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(elf_output_open(&o, path, false, &err), -EEXIST);
    assert_non_null(strstr(err.text, "--force"));
    assert_int_equal(elf_output_open(&o, path, true, &err), 0);
    assert_int_equal(elf_output_commit(&o, &err), 0);
    elf_output_discard(&o);
    assert_int_equal(elf_output_open(&o, dir, true, &err), -EEXIST);
    assert_int_equal(elf_output_open(&o, "/dev/full", true, &err), -EEXIST);
    assert_int_equal(elf_output_open(&o, "/nowhere/at/all", false, &err), -ENOENT);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),  cmocka_unit_test(lookup),  cmocka_unit_test(no_linux),
        cmocka_unit_test(forged), cmocka_unit_test(hostile), cmocka_unit_test(limits),
        cmocka_unit_test(elf),    cmocka_unit_test(types),   cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
