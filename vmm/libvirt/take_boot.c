/* What the machine begins with: see plan.h. */
#include "libvirt/plan.h"

#include <libxml/tree.h>
#include <string.h>

#include "board/description.h"

#define BY_HAND "--kernel FILE, with --initrd and --append"

static void take_file(struct plan *p, xmlNodePtr node, const char *option)
{
    char path[XML_VALUE_MAX], value[XML_VALUE_MAX + 2], what[32];
    snprintf(what, sizeof(what), "<%s>", option);
    if (!*xml_text(node, path, sizeof(path))) {
        plan_left(p, what, "it names no file", BY_HAND);
        return;
    }
    /* A whole path, usually; 'auto' would be a word to `record`. */
    snprintf(value, sizeof(value), "%s%s", *path == '/' ? "" : "./", path);
    plan_option(p, option, value, what);
}

static void take_firmware(struct plan *p, xmlNodePtr os)
{
    char dev[32];
    xmlNodePtr boot = xml_find(os, "boot");
    xml_attribute(boot, "dev", dev, sizeof(dev));
    if (p->bootable && !strcmp(dev, "network"))
        plan_otherwise(p, "<boot dev='network'>",
                       "nothing is booted from a network: the disks are looked at", BY_HAND);
    if (!p->bootable) {
        plan_left(p, "<os>", "there is no kernel, and no disk with one", BY_HAND);
        return;
    }
    plan_option(p, "kernel", "auto", "<os>");
    plan_otherwise(
        p, "<os>",
        "no firmware runs: kernel, initrd and command line are those of the disk's own boot entry",
        "--boot-entry ENTRY for another entry (docs/boot.md); or " BY_HAND);
}

void take_boot(struct plan *p)
{
    char append[XML_VALUE_MAX];
    xmlNodePtr os = xml_find(p->domain, "os"), kernel = xml_find(os, "kernel");
    xmlNodePtr initrd = xml_find(os, "initrd"), cmdline = xml_find(os, "cmdline");
    if (!kernel) {
        take_firmware(p, os);
        return;
    }
    take_file(p, kernel, "kernel");
    if (initrd)
        take_file(p, initrd, "initrd");
    xml_text(cmdline, append, sizeof(append));
    if (*append)
        plan_option(p, "append", append, "<cmdline>");
    else if (cmdline && cmdline->children)
        plan_left(p, "<cmdline>", "it is empty, or longer than 4095 bytes", "--append TEXT");
}
