/* board/initrd.h: archives read back by cpio(1); the same bytes twice; bad arguments refused. */
#include "board/initrd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/reprise-initrd-XXXXXX";

static void sh(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void sh(const char *format, ...)
{
    char cmd[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(cmd, sizeof(cmd), format, ap);
    va_end(ap);
    if (system(cmd))
        fail_msg("failed: %s", cmd);
}

static int setup(void **state)
{
    if (!mkdtemp(dir))
        return -1;
    sh("cd %s && mkdir -p tree/sub/empty && echo hello >tree/a && echo 12345 >tree/sub/b && "
       "chmod 755 tree/sub/b && chmod 640 tree/a && ln -s ../a tree/sub/link && : >tree/none && "
       "mkfifo fifo && echo colon >'x:y' && chmod 644 tree/none x:y && chmod 755 tree tree/sub "
       "tree/sub/empty",
       dir);
    return 0;
}

static int teardown(void **state)
{
    sh("rm -rf %s", dir);
    return 0;
}

/* Builds from `n` specs below `dir`; the archive after `base` bytes goes to dir/out.cpio. */
static size_t build(const char *const *specs, const void *base, size_t base_size)
{
    struct initrd_builder b;
    struct err err;
    const u8 *bytes;
    size_t size;
    char spec[512];
    assert_int_equal(initrd_init(&b, base, base_size, &err), 0);
    for (; *specs; specs++) {
        snprintf(spec, sizeof(spec), "%s/%s", dir, *specs);
        if (initrd_add(&b, spec, &err))
            fail_msg("%s: %s", spec, err.text);
    }
    assert_int_equal(initrd_finish(&b, &bytes, &size, &err), 0);
    if (base_size)
        assert_memory_equal(bytes, base, base_size);
    size_t skip = (base_size + 3) & ~(size_t)3;
    snprintf(spec, sizeof(spec), "%s/out.cpio", dir);
    FILE *f = fopen(spec, "w");
    assert_int_equal(fwrite(bytes + skip, 1, size - skip, f), size - skip);
    fclose(f);
    initrd_fini(&b);
    initrd_fini(&b);
    assert_int_equal(size % 4, 0);
    return size;
}

static void lists(const char *expected)
{
    char cmd[512], got[4096] = {0};
    snprintf(cmd, sizeof(cmd), "cpio -it --quiet <%s/out.cpio", dir);
    FILE *p = popen(cmd, "r");
    size_t n = fread(got, 1, sizeof(got) - 1, p);
    got[n] = 0;
    assert_int_equal(pclose(p), 0);
    assert_string_equal(got, expected);
}

static void tree(void **state)
{
    static const char *const specs[] = {"tree:/opt/t", "tree/a:tmp/", "x:y", "tree/a:/opt/u/v",
                                        NULL};
    build(specs, "odd", 3);
    lists(
        "opt\nopt/t\nopt/t/a\nopt/t/none\nopt/t/sub\nopt/t/sub/b\nopt/t/sub/empty\nopt/t/sub/link\n"
        "tmp\ntmp/a\nx:y\nopt/u\nopt/u/v\n");
    sh("cd %s && rm -rf back && mkdir back && cd back && cpio -id --quiet <../out.cpio && "
       "diff -r --no-dereference ../tree opt/t && test \"$(cat tmp/a)\" = hello && "
       "test \"$(stat -c %%a tmp opt opt/t/a opt/t/sub/b | tr '\\n' ' ')\" = '1777 755 640 755 ' "
       "&& "
       "test \"$(readlink opt/t/sub/link)\" = ../a && test \"$(cat x:y)\" = colon",
       dir);
}

static void same_bytes(void **state)
{
    static const char *const specs[] = {"tree", NULL};
    build(specs, NULL, 0);
    sh("cd %s && mv out.cpio first.cpio && cp -r --preserve=mode,links tree copy && rm -rf tree && "
       "mv copy tree && touch tree/a",
       dir);
    build(specs, NULL, 0);
    sh("cd %s && cmp first.cpio out.cpio", dir);
}

static void onto_root(void **state)
{
    static const char *const specs[] = {"tree:/", NULL}, *const slash[] = {"tree/:/./x//y/", NULL};
    build(specs, "cafe", 4);
    lists("tree\ntree/a\ntree/none\ntree/sub\ntree/sub/b\ntree/sub/empty\ntree/sub/link\n");
    build(slash, NULL, 0);
    lists("x\nx/y\nx/y/tree\nx/y/tree/a\nx/y/tree/none\nx/y/tree/sub\nx/y/tree/sub/b\n"
          "x/y/tree/sub/empty\nx/y/tree/sub/link\n");
}

static void refused(const char *spec, const char *text)
{
    struct initrd_builder b;
    struct err err;
    assert_int_equal(initrd_init(&b, NULL, 0, &err), 0);
    assert_true(initrd_add(&b, spec, &err) < 0);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    initrd_fini(&b);
}

static void bad(void **state)
{
    char spec[512];
    refused("", "not FILE");
    refused(":/x", "not FILE");
    refused("/nonexistent", "No such file");
    refused("/nonexistent:/x", "No such file");
    snprintf(spec, sizeof(spec), "%s/tree:", dir);
    refused(spec, "no PATH");
    snprintf(spec, sizeof(spec), "%s/tree:/a/../../b", dir);
    refused(spec, "..");
    snprintf(spec, sizeof(spec), "%s/tree/a:.", dir);
    refused(spec, "names no file");
    snprintf(spec, sizeof(spec), "%s/fifo", dir);
    refused(spec, "neither a file");
}

static void nothing_added(void **state)
{
    struct initrd_builder b;
    struct err err;
    const u8 *bytes;
    size_t size;
    assert_int_equal(initrd_init(&b, "abc", 3, &err), 0);
    assert_int_equal(initrd_finish(&b, &bytes, &size, &err), 0);
    assert_int_equal(size, 3);
    initrd_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree), cmocka_unit_test(same_bytes),    cmocka_unit_test(onto_root),
        cmocka_unit_test(bad),  cmocka_unit_test(nothing_added),
    };
    return cmocka_run_group_tests_name("board/initrd", tests, setup, teardown);
}
