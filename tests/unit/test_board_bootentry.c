/* boot/menu.h: the menus of distributions, choosing, and scripts that are none. */
#include "boot/menu.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bootentry_samples.h"

static void grub(struct boot_menu *m, const char *text, const char *env)
{
    struct err err;
    if (boot_menu_grub(m, text, strlen(text), "disk", "(disk)/boot/grub", env,
                       env ? strlen(env) : 0, &err))
        fail_msg("%s", err.text);
}

static void bls(struct boot_menu *m, const char *name, const char *text)
{
    struct err err;
    if (boot_menu_bls(m, name, text, strlen(text), "disk", &err))
        fail_msg("%s", err.text);
}

/* The entry `at`: its files and command line; initrds with blanks between. */
static void is(const struct boot_menu *m, int at, const char *kernel, const char *options,
               const char *initrds)
{
    char list[1024] = "";
    assert_true(at >= 0 && (size_t)at < m->count);
    const struct boot_entry *e = &m->entry[at];
    assert_non_null(e->kernel);
    assert_string_equal(e->kernel, kernel);
    assert_string_equal(e->options, options);
    for (size_t i = 0; i < e->ninitrd; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? " " : "",
                 e->initrd[i]);
    assert_string_equal(list, initrds);
}

#define D_UUID "5e1f0c3a-0000-4b8e-9a66-0d2b7c915f4e"

static void debian(void **state)
{
    struct boot_menu m;
    char place[32];
    grub(&m, debian_cfg, NULL);
    assert_int_equal(m.count, 4); /* two, a submenu, no firmware settings */
    is(&m, boot_menu_default(&m, NULL), "(uuid:" D_UUID ")/boot/vmlinuz-6.1.0-28-amd64",
       "root=UUID=" D_UUID " ro quiet", "(uuid:" D_UUID ")/boot/initrd.img-6.1.0-28-amd64");
    int recovery = boot_menu_find(&m, "1>1");
    is(&m, recovery, "(uuid:" D_UUID ")/boot/vmlinuz-6.1.0-28-amd64",
       "root=UUID=" D_UUID " ro single", "(uuid:" D_UUID ")/boot/initrd.img-6.1.0-28-amd64");
    boot_menu_place(&m, recovery, place, sizeof(place));
    assert_string_equal(place, "1>1");
    assert_int_equal(boot_menu_find(&m, m.entry[recovery].title), recovery);
    assert_int_equal(boot_menu_find(&m, m.entry[recovery].id), recovery);
    assert_int_equal(boot_menu_find(&m, "Advanced options for Debian GNU/Linux>1"), recovery);
    assert_int_equal(boot_menu_find(&m, "1"),
                     boot_menu_find(&m, "1>0")); /* of a submenu, the first */
    assert_int_equal(boot_menu_find(&m, "2"), -1);
    assert_int_equal(boot_menu_find(&m, "1>2"), -1);
    assert_int_equal(boot_menu_find(&m, "0>0"), -1);
    assert_int_equal(boot_menu_find(&m, ""), -1);
    boot_menu_free(&m);
    grub(&m, debian_cfg, "next_entry=1>1\n");
    assert_int_equal(boot_menu_default(&m, NULL), recovery);
    boot_menu_free(&m);
    /* A default that is not there: the first, as in GRUB. */
    grub(&m, debian_cfg, "next_entry=gone\n");
    assert_int_equal(boot_menu_default(&m, NULL), 0);
    boot_menu_free(&m);
}

static void ubuntu(void **state)
{
    struct boot_menu m;
    grub(&m, ubuntu_cfg, NULL);
    is(&m, boot_menu_default(&m, NULL), "(label:cloudimg-rootfs)/boot/vmlinuz-6.8.0-45-generic",
       "root=PARTUUID=4f68bce3-e8cd-4db1-96e7-fbcaf984b709 ro quiet splash console=tty1 "
       "console=ttyS0 vt.handoff=7 panic=-1",
       "");
    boot_menu_free(&m);
    grub(&m, ubuntu_cfg, ubuntu_env);
    is(&m, boot_menu_default(&m, NULL), "(label:cloudimg-rootfs)/boot/vmlinuz-6.8.0-41-generic",
       "root=LABEL=cloudimg-rootfs ro quiet splash",
       "(label:cloudimg-rootfs)/boot/initrd.img-6.8.0-41-generic");
    boot_menu_free(&m);
    grub(&m, ubuntu_cfg, "initrdfail=1\n");
    is(&m, boot_menu_find(&m, "Ubuntu"), "(label:cloudimg-rootfs)/boot/vmlinuz-6.8.0-45-generic",
       "root=LABEL=cloudimg-rootfs ro console=tty1 console=ttyS0",
       "(label:cloudimg-rootfs)/boot/microcode.cpio "
       "(label:cloudimg-rootfs)/boot/initrd.img-6.8.0-45-generic");
    boot_menu_free(&m);
}

static void fedora(void **state)
{
    struct boot_menu m;
    grub(&m, fedora_cfg, fedora_env);
    assert_true(m.blscfg);
    bls(&m, "ab12-0-rescue.conf", fedora_0_conf);
    bls(&m, "ab12-6.10.3-200.fc40.x86_64.conf", fedora_2_conf);
    bls(&m, "ab12-6.11.4-201.fc40.x86_64.conf", fedora_1_conf);
    boot_menu_sort(&m);
    assert_int_equal(m.count, 4);
    is(&m, 0, "(disk)/vmlinuz-6.11.4-201.fc40.x86_64",
       "root=UUID=6a2c ro rootflags=subvol=root rhgb quiet mitigations=auto",
       "(disk)/initramfs-6.11.4-201.fc40.x86_64.img");
    assert_string_equal(m.entry[2].id, "ab12-0-rescue");
    assert_null(m.entry[3].kernel);
    /* saved_entry says the older one; its command line is the script's. */
    is(&m, boot_menu_default(&m, NULL), "(disk)/vmlinuz-6.10.3-200.fc40.x86_64",
       "root=UUID=6a2c ro rootflags=subvol=root console=tty0 rhgb quiet",
       "(disk)/initramfs-6.10.3-200.fc40.x86_64.img");
    assert_int_equal(boot_menu_find(&m, "0"), 0);
    assert_int_equal(boot_menu_find(&m, "ab12-6.11*"), 0);
    boot_menu_free(&m);
}

static void arch(void **state)
{
    struct boot_menu m;
    grub(&m, arch_cfg, NULL);
    assert_int_equal(m.count, 4);
    is(&m, boot_menu_default(&m, NULL), "(hd0,gpt1)/vmlinuz-linux-lts",
       "root=UUID=77 rw \"init=/bin/my init\" loglevel=3",
       "(hd0,gpt1)/intel-ucode.img (hd0,gpt1)/initramfs-linux-lts.img");
    assert_string_equal(m.entry[3].title, "Memory test memtest.efi");
    assert_string_equal(m.entry[3].kernel,
                        "(disk)/memtest.efi"); /* what an entry sets ends with it */
    boot_menu_free(&m);
}

static void systemd_boot(void **state)
{
    static const char loader[] = "timeout 3\n#console-mode keep\ndefault  arch-l*.conf\n";
    struct boot_menu m = {0};
    bls(&m, "arch-lts+3-1.conf", arch_lts_conf);
    bls(&m, "arm.conf", arm_conf);
    bls(&m, "arch.conf", arch_conf);
    bls(&m, "empty.conf", "");
    boot_menu_sort(&m);
    assert_int_equal(m.count, 2); /* nothing for another architecture, nothing without a kernel */
    is(&m, boot_menu_default(&m, NULL), "(disk)/vmlinuz-linux", "root=\"LABEL=arch os\" rw quiet",
       "(disk)/intel-ucode.img (disk)/initramfs-linux.img");
    char *wanted = boot_loader_default(loader, sizeof(loader) - 1);
    assert_string_equal(wanted, "arch-l*");
    is(&m, boot_menu_default(&m, wanted), "(disk)/vmlinuz-linux-lts", "root=LABEL=arch rw",
       "(disk)/initramfs-linux-lts.img");
    assert_string_equal(m.entry[1].id, "arch-lts");
    free(wanted);
    boot_menu_free(&m);
}

/* A script that sets `r`; what it is then. */
static void language(void **state)
{
    static const struct {
        const char *script, *result;
    } cases[] = {
        {"set r=a", "a"},
        {"r=a # set r=b\n# r=c", "a"},
        {"set r=\"a b\"; set r=$r", "a"}, /* split: the second word is no assignment */
        {"set r='a b'; set r=\"$r\"", "a b"},
        {"x=1; set r='$x'\"$x\\$x\"${x}\\$x", "$x1$x1$x"},
        {"set r=a\\\nb", "ab"},
        {"if [ a = a ]; then r=y; else r=n; fi", "y"},
        {"if [ -z \"$none\" -a ! b = c ]; then r=y; fi", "y"},
        {"if [ -n \"$none\" -o 3 -lt 2 ]; then r=y; elif [ ( 2 -ge 2 ) ]; then r=z; fi", "z"},
        {"if false; then r=y; else if true; then r=z; fi; fi", "z"},
        {"if [ -f $prefix/custom.cfg ]; then r=y; else r=n; fi", "n"},
        {"if [ -s $prefix/grubenv ]; then r=y; else r=n; fi", "y"},
        {"load_env r", "env \\"},
        {"load_env other; if [ $r ]; then r=y; else r=n; fi", "n"},
        {"for i in a b c; do r=$r$i; done", "abc"},
        {"for i in; do r=$r$i; done; r=$r.", "."},
        {"while [ x$r != xaaa ]; do r=a$r; done", "aaa"},
        {"until [ x$r = xaa ]; do r=a$r; done", "aa"},
        {"function f { r=$2$#$1; }; f one two", "two2one"},
        {"function f { for i in $@; do r=$i$r; done; }; f 1 2 3", "321"},
        {"function f { r=x; if [ $1 ]; then g; fi; }\nfunction g { r=y; }\nf 1", "y"},
        {"true; a=$?; unknown-command; r=$a$?", "01"},
        {"search --fs-uuid --no-floppy --set=r AB-CD", "uuid:AB-CD"},
        {"search --no-floppy -l -s r --hint hd0 name", "label:name"},
        {"search.file /x r hd0,gpt1", "file:/x"},
        {"search --set -f /x; r=$root", "file:/x"},
        {"menuentry x { set r=no }; submenu y { set r=no; menuentry z { r=no; } }; r=yes$r", "yes"},
        {"set r=a; unset r; r=b$r", "b"},
        {"{ set r=no }; r=yes", "yes"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct boot_menu m;
        grub(&m, cases[i].script, "#\nx=y\nr=env \\\\\n");
        const char *r = boot_menu_variable(&m, "r");
        if (!r || strcmp(r, cases[i].result))
            fail_msg("%s: '%s', not '%s'", cases[i].script, r ? r : "(unset)", cases[i].result);
        boot_menu_free(&m);
    }
}

static void refused(void **state)
{
    static const struct {
        const char *script, *text;
    } cases[] = {
        {"\n\nset a='b", "line 3: a quote is not closed"},
        {"if true; then\nset a=b\n", "line 1: there is no fi"},
        {"if true; set a=b; fi", "there is no then"},
        {"while true; do a=b; fi", "there is no done"},
        {"for a do b; done", "not of the form: for NAME in WORDS"},
        {"\nfi", "line 2: a word that ends nothing"},
        {"menuentry x {\nlinux /x", "line 1: a { is not closed"},
        {"x\n}", "line 2: a } that closes nothing"},
        {"set a=${b", "${ without a name and }"},
        {"[ a = b", "[ without ]"},
        {"while true; do a=b; done", "does not come to an end"},
        {"function f { f; }; f", "too much within each other"},
        {"a=xxxxxxxx; while true; do a=$a$a; done", "a word is too long"},
        {"n=1; while true; do n=1$n; menuentry $n { }; done", "has more than 512 entries"},
        {"n=1; while true; do n=1$n; set a$n=1; done", "sets too many variables"},
        {"menuentry x { while true; do initrd /x; done }", "has too many initrds"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct boot_menu m;
        struct err err = {0};
        int code = boot_menu_grub(&m, cases[i].script, strlen(cases[i].script), "disk", "(disk)/",
                                  NULL, 0, &err);
        if (code != -EINVAL || !strstr(err.text, cases[i].text))
            fail_msg("%s: %d, '%s'", cases[i].script, code, err.text);
        boot_menu_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(debian),  cmocka_unit_test(ubuntu),       cmocka_unit_test(fedora),
        cmocka_unit_test(arch),    cmocka_unit_test(systemd_boot), cmocka_unit_test(language),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
