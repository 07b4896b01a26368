/*
 * boot/bootdisk.h on images of all formats: the same menu, kernel and initrd, and no copy left
 * behind. The rest is tested by booting (tests/suite/bootdisk.py).
 */
#include "boot/bootdisk.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/reprise-bootdisk-XXXXXX";

static bool sh(const char *script)
{
    return !system(script);
}

static int setup(void **state)
{
    if (!mkdtemp(dir) || chdir(dir) || setenv("TMPDIR", dir, 1))
        return -1;
    /* The kernel is larger than what one read takes, and has no end of line. */
    return sh("mkdir -p tree/boot/grub && "
              "printf 'menuentry \"One\" { linux /boot/kernel a=b\\n initrd /boot/1 /boot/2\\n}' "
              ">tree/boot/grub/grub.cfg && "
              "seq -s, 300000 | tr -d '\\n' >tree/boot/kernel && "
              "printf abcde >tree/boot/1 && printf fg >tree/boot/2 && truncate -s 16M disk.raw && "
              "PATH=$PATH:/sbin mke2fs -q -F -t ext4 -d tree disk.raw")
               ? 0
               : -1;
}

static int teardown(void **state)
{
    char script[64];
    snprintf(script, sizeof(script), "rm -rf %s", dir);
    return sh(script) ? 0 : -1;
}

static void boots(const char *path, const char *format)
{
    struct disk_config config = {.file = path, .format = format, .serial = ""};
    struct disk disk;
    struct bootdisk *b = NULL;
    struct err err = {0};
    u8 *kernel, *initrd;
    size_t size;
    if (disk_open(&disk, &config, &err) || bootdisk_open(&b, &disk, 1, &err))
        fail_msg("%s: %s", path, err.text);
    const struct boot_entry *e = bootdisk_choose(b, NULL, &err);
    assert_non_null(e);
    assert_string_equal(e->title, "One");
    assert_string_equal(e->options, "a=b");
    if (bootdisk_kernel(b, e, 1 << 24, &kernel, &size, &err))
        fail_msg("%s: %s", path, err.text);
    FILE *f = fopen("tree/boot/kernel", "rb");
    for (size_t i = 0; i < size; i++)
        if (kernel[i] != getc(f))
            fail_msg("%s: byte %zu of the kernel is another", path, i);
    assert_int_equal(getc(f), EOF);
    fclose(f);
    assert_int_equal(bootdisk_initrd(b, e, 9, &initrd, &size, &err), -EFBIG);
    assert_null(initrd);
    assert_int_equal(bootdisk_initrd(b, e, 10, &initrd, &size, &err), 0);
    assert_int_equal(size, 10); /* each starts at a multiple of 4 */
    assert_memory_equal(initrd, "abcde\0\0\0fg", 10);
    char *text = bootdisk_describe(b, e);
    assert_string_equal(text, "'One' from disk 0: /boot/kernel");
    free(text);
    free(kernel);
    free(initrd);
    bootdisk_close(b);
    disk_close(&disk);
    assert_true(sh("! ls reprise-disk-* 2>/dev/null"));
}

static void need(const char *program)
{
    char script[128];
    snprintf(script, sizeof(script), "PATH=$PATH:/usr/sbin command -v %s >/dev/null", program);
    if (!sh(script)) {
        print_message("%s is not installed\n", program);
        skip();
    }
}

static void raw(void **state)
{
    need("grub-fstest");
    boots("disk.raw", NULL);
    boots("disk.raw", "raw");
}

static void formats(void **state)
{
    static const char *const list[] = {"qcow2", "vmdk", "vdi", "vhdx", "vpc"};
    char script[256], name[32];
    need("grub-fstest");
    need("qemu-img");
    for (unsigned i = 0; i < sizeof(list) / sizeof(*list); i++) {
        snprintf(name, sizeof(name), "disk.%s", list[i]);
        snprintf(script, sizeof(script), "qemu-img convert -O %s disk.raw %s", list[i], name);
        assert_true(sh(script));
        boots(name, list[i]);
    }
    /* It became another one meanwhile. */
    struct disk_config config = {.file = "disk.qcow2", .format = "qcow2", .serial = ""};
    struct disk disk;
    struct bootdisk *b;
    struct err err = {0};
    assert_int_equal(disk_open(&disk, &config, &err), 0);
    assert_true(sh("head -c 9 /dev/zero | dd of=disk.qcow2 conv=notrunc 2>/dev/null"));
    assert_int_not_equal(bootdisk_open(&b, &disk, 1, &err), 0);
    assert_null(b);
    assert_non_null(strstr(err.text, "cannot copy disk.qcow2: "));
    assert_true(sh("! ls reprise-disk-* 2>/dev/null"));
    disk_close(&disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
