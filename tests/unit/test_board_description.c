/* board/description.h: round trip, and every change to the bytes refused with a text. */
#include "board/description.h"

#include <errno.h>
#include <libfdt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill(struct machine_description *d)
{
    description_init(d);
    strcpy(d->creator, "0.1");
    d->memory = 512ull << 20;
    strcpy(d->cpu_model, "x86-64-v2");
    d->seed = 0x123456789abcdef0;
    d->wall_clock = 1700000000;
    strcpy(d->append, "console=ttyS0 -- echo hello");
    strcpy(d->kernel_name, "vmlinuz");
    d->kernel_size = 50000000;
    description_hash("kernel", 6, d->kernel_hash);
    d->initrd_size = 12345;
    description_hash("initrd", 6, d->initrd_hash);
    d->realtime = 1;
}

static size_t write_ok(const struct machine_description *d, u8 *out)
{
    struct err err;
    size_t n;
    if (description_write(d, out, &n, &err))
        fail_msg("%s", err.text);
    return n;
}

static void round_trip(void **state)
{
    static struct machine_description d, e;
    static u8 dtb[DESCRIPTION_MAX_SIZE], again[DESCRIPTION_MAX_SIZE];
    struct err err;
    char text[33];
    fill(&d);
    size_t n = write_ok(&d, dtb);
    assert_int_equal(n, write_ok(&d, again));
    assert_memory_equal(dtb, again, n);
    if (description_read(dtb, n, &e, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(&d, &e, sizeof(d));
    /* Not aligned, no initrd, empty command line, longest command line. */
    d.initrd_size = 0;
    memset(d.initrd_hash, 0, sizeof(d.initrd_hash));
    memset(d.append, 0, sizeof(d.append));
    n = write_ok(&d, dtb);
    memmove(dtb + 1, dtb, n);
    assert_int_equal(description_read(dtb + 1, n, &e, &err), 0);
    assert_memory_equal(&d, &e, sizeof(d));
    memset(d.append, 'x', sizeof(d.append) - 1);
    n = write_ok(&d, dtb);
    assert_int_equal(description_read(dtb, n, &e, &err), 0);
    assert_memory_equal(&d, &e, sizeof(d));
    description_hash_text(d.kernel_hash, text);
    assert_int_equal(strlen(text), 32);
}

static void parts_that_may_be_absent(void **state)
{
    static struct machine_description d, e;
    static u8 dtb[DESCRIPTION_MAX_SIZE];
    struct err err;
    size_t n;
    fill(&d);
    d.hvc0 = d.input = 1;
    strcpy(d.port[1].name, "agent");
    strcpy(d.port[1].backend, "unix:socket");
    strcpy(d.port[2].name, "x");
    d.net[0].mtu = 1500;
    strcpy(d.engine, "kvm");
    strcpy(d.counter, "step");
    n = write_ok(&d, dtb);
    assert_int_equal(description_read(dtb, n, &e, &err), 0);
    assert_memory_equal(&d, &e, sizeof(d));
    strcpy(d.counter, "clock");
    assert_int_equal(description_write(&d, dtb, &n, &err), -EINVAL);
    strcpy(d.counter, "pmu");
    strcpy(d.engine, "hvf");
    assert_int_equal(description_write(&d, dtb, &n, &err), -EINVAL);
    strcpy(d.engine, "kvm");
    d.hvc0 = 2;
    assert_int_equal(description_write(&d, dtb, &n, &err), -EINVAL);
    d.hvc0 = 0;
    d.port[1].name[0] = 0; /* a gap */
    assert_int_equal(description_write(&d, dtb, &n, &err), -EINVAL);
}

static void refused(const void *dtb, size_t n, int code, const char *text)
{
    static struct machine_description e;
    struct err err;
    int rc = description_read(dtb, n, &e, &err);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%d \"%s\", expected %d \"%s\"", rc, err.text, code, text);
}

static void bad_values(void **state)
{
    static struct machine_description d;
    static u8 dtb[DESCRIPTION_MAX_SIZE];
    struct err err;
    size_t n;
    fill(&d);
    d.format = 2;
    assert_int_equal(description_write(&d, dtb, &n, &err), -EPROTONOSUPPORT);
    fill(&d);
    strcpy(d.cpu_model, "486");
    assert_true(description_write(&d, dtb, &n, &err) < 0);
    fill(&d);
    memset(d.append, 'x', sizeof(d.append));
    assert_true(description_write(&d, dtb, &n, &err) < 0);

    refused("", 0, -EINVAL, "empty");
    refused(dtb, DESCRIPTION_MAX_SIZE + 1, -EINVAL, "too large");
    refused("not a device tree, not a device tree", 36, -EINVAL, "damaged");

    fill(&d);
    n = write_ok(&d, dtb);
    fdt_setprop_u32(dtb, 0, "format", 2);
    refused(dtb, n, -EPROTONOSUPPORT, "format 2, this version reads format 1");
    n = write_ok(&d, dtb);
    fdt_setprop_inplace_u64(dtb, fdt_path_offset(dtb, "/memory"), "size", 1ull << 30);
    refused(dtb, n, -EINVAL, "was changed");
    n = write_ok(&d, dtb);
    fdt_nop_property(dtb, fdt_path_offset(dtb, "/kernel"), "hash");
    refused(dtb, n, -EINVAL, "hash of node /kernel is missing");
    n = write_ok(&d, dtb);
    fdt_nop_node(dtb, fdt_path_offset(dtb, "/host"));
    refused(dtb, n, -EINVAL, "cpu-maker of node /host is missing");

    static u8 big[DESCRIPTION_MAX_SIZE];
    const char *node[] = {"/", "/cpu"};
    for (int i = 0; i < 2; i++) {
        n = write_ok(&d, dtb);
        fdt_open_into(dtb, big, (int)n + 256);
        fdt_setprop_u32(big, fdt_path_offset(big, node[i]), "extra", 1);
        fdt_pack(big);
        refused(big, fdt_totalsize(big), -EINVAL, "unknown property");
    }
    fdt_open_into(dtb, big, (int)n + 256);
    fdt_add_subnode(big, fdt_path_offset(big, "/cpu"), "extra");
    fdt_pack(big);
    refused(big, fdt_totalsize(big), -EINVAL, "unknown node");
    fdt_open_into(dtb, big, (int)n + 256);
    fdt_add_subnode(big, 0, "extra");
    fdt_pack(big);
    refused(big, fdt_totalsize(big), -EINVAL, "unknown node /extra");
    fdt_open_into(dtb, big, (int)n + 256);
    fdt_setprop_string(big, fdt_path_offset(big, "/cpu"), "model",
                       "x86-64-v2 but a good deal longer");
    fdt_pack(big);
    refused(big, fdt_totalsize(big), -EINVAL, "bad length");
}

/* A flipped bit anywhere and a cut anywhere are refused. */
static void every_bit(void **state)
{
    static struct machine_description d, e;
    static u8 dtb[DESCRIPTION_MAX_SIZE];
    struct err err;
    fill(&d);
    size_t n = write_ok(&d, dtb);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        u8 *copy = malloc(n); /* exact size, for asan */
        memcpy(copy, dtb, n);
        copy[bit / 8] ^= (u8)(1 << bit % 8);
        if (!description_read(copy, n, &e, &err))
            fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
        assert_int_equal(e.memory, 0);
        free(copy);
    }
    for (size_t cut = 0; cut < n; cut++)
        assert_true(description_read(dtb, cut, &e, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(parts_that_may_be_absent),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(every_bit),
    };
    return cmocka_run_group_tests_name("board/description", tests, NULL, NULL);
}
