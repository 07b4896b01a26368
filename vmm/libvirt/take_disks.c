/* Disks and what boots of them: see plan.h. */
#define _GNU_SOURCE
#include "libvirt/plan.h"

#include <libxml/tree.h>
#include <stdlib.h>
#include <string.h>

#include "board/description.h"
#include "host/disk_spec.h"

#define WHAT 160

/* As --disk takes it: a comma in a name is doubled. */
static void put_doubled(FILE *out, const char *text)
{
    for (; *text; text++) {
        fputc(*text, out);
        if (*text == ',')
            fputc(',', out);
    }
}

/* Letters, digits and what else stands for itself in a URI. */
static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/:", *text))
            fputc(*text, out);
        else
            fprintf(out, "%%%02X", (u8)*text);
}

/* An NBD export's URI. false: why not is told. */
static bool put_nbd(struct plan *p, xmlNodePtr source, FILE *out, const char *what)
{
    char name[XML_VALUE_MAX], host[256], port[16], socket[XML_VALUE_MAX];
    xmlNodePtr h = xml_find(source, "host");
    u64 number = 0;
    xml_attribute(source, "name", name, sizeof(name));
    xml_attribute(h, "name", host, sizeof(host));
    xml_attribute(h, "port", port, sizeof(port));
    xml_attribute(h, "socket", socket, sizeof(socket));
    if (xml_is(source, "tls", "yes")) {
        plan_left(p, what, "its server is spoken to by TLS",
                  "serve it without: qemu-nbd, --disk nbd://HOST/EXPORT");
        return false;
    }
    if (xml_is(h, "transport", "unix") && *socket) {
        fputs("nbd+unix:///", out);
        put_escaped(out, name);
        fputs("?socket=", out);
        put_escaped(out, socket);
        return true;
    }
    if (!*host || (*port && (!xml_number(port, &number) || number > 65535)) ||
        (h && xml_is(h, "transport", "rdma"))) {
        plan_left(p, what, "its server has no name", "--disk nbd://HOST[:PORT]/EXPORT");
        return false;
    }
    bool six = strchr(host, ':') && *host != '[';
    fputs(six ? "nbd://[" : "nbd://", out);
    put_escaped(out, host);
    fprintf(out, "%s%s%s/", six ? "]" : "", *port ? ":" : "", port);
    put_escaped(out, name);
    return true;
}

/* What the image is, FILE of --disk. false: it is none, and that is told. */
static bool put_image(struct plan *p, xmlNodePtr disk, FILE *out, const char *what)
{
    char path[XML_VALUE_MAX], todo[256];
    xmlNodePtr source = xml_find(disk, "source");
    if (xml_is(disk, "type", "network") && xml_is(source, "protocol", "nbd"))
        return put_nbd(p, source, out, what);
    if (xml_is(disk, "type", "network")) {
        char protocol[32];
        xml_attribute(source, "protocol", protocol, sizeof(protocol));
        snprintf(todo, sizeof(todo),
                 "serve it by NBD (`qemu-nbd --read-only %s:...`), --disk nbd://HOST/EXPORT",
                 protocol);
        plan_left(p, what, "it is elsewhere, and NBD is the only protocol", todo);
        return false;
    }
    if (xml_is(disk, "type", "volume")) {
        char pool[64], volume[64];
        xml_attribute(source, "pool", pool, sizeof(pool));
        xml_attribute(source, "volume", volume, sizeof(volume));
        snprintf(todo, sizeof(todo), "`virsh vol-path --pool %s %s` says where it is: --disk FILE",
                 pool, volume);
        plan_left(p, what, "it is a volume of a pool, whose file is not named", todo);
        return false;
    }
    if (!xml_is(disk, "type", "file|block")) {
        plan_left(p, what, "it is no file and no device", "make an image of it: --disk FILE");
        return false;
    }
    xml_attribute(source, xml_is(disk, "type", "file") ? "file" : "dev", path, sizeof(path));
    if (!*path) {
        bool drive = xml_is(disk, "device", "cdrom|floppy");
        plan_left(p, what, drive ? "there is nothing in the drive" : "it has no file",
                  drive ? "nothing" : "--disk FILE");
        return false;
    }
    /* libvirt wants whole paths; what looks like a URI is a file all the same. */
    if (*path != '/')
        fputs("./", out);
    put_doubled(out, path);
    return true;
}

/* format= and backing=. */
static bool put_format(struct plan *p, xmlNodePtr disk, FILE *out, const char *what)
{
    char type[32], chain[32];
    xmlNodePtr behind = xml_find(disk, "backingStore"), of = xml_find(behind, "source");
    xml_attribute(xml_find(disk, "driver"), "type", type, sizeof(type));
    xml_attribute(behind, "type", chain, sizeof(chain));
    if (xml_one_of(type, "aio|iso"))
        strcpy(type, "raw");
    if (xml_is(disk, "type", "network")) {
        if (!*type || !strcmp(type, "raw"))
            return true;
        plan_left(
            p, what, "its server has an image of another format than raw",
            "have the server read the format (`qemu-nbd --format`): --disk nbd://HOST/EXPORT");
        return false;
    }
    if (!*type)
        strcpy(type, "raw"); /* so it is with libvirt, whatever the image begins with */
    if (strcmp(type, "raw") && !disk_format_driver(type)) {
        plan_left(p, what, "there is no such image format",
                  "convert it (`qemu-img convert`): --disk FILE");
        return false;
    }
    fprintf(out, ",format=%s", type);
    /* The domain names what is behind the image, so the user does. */
    if (of && xml_one_of(chain, "file|block"))
        fputs(",backing=on", out);
    else if (of)
        plan_otherwise(p, what, "what is behind the image is read if it is a file",
                       "nothing, or copy it into one image");
    return true;
}

static void put_serial(struct plan *p, xmlNodePtr disk, FILE *out, const char *what)
{
    char serial[256];
    if (!xml_find(disk, "serial"))
        return;
    xml_text(xml_find(disk, "serial"), serial, sizeof(serial));
    if (*serial && strlen(serial) < DISK_SERIAL_MAX && !strchr(serial, ',')) {
        fprintf(out, ",serial=%s", serial);
        return;
    }
    plan_otherwise(p, what,
                   "its serial number is not taken over: one has up to 20 bytes and no comma",
                   "name it in the guest by UUID or label");
}

/* What the guest finds instead. */
static void tell_place(struct plan *p, xmlNodePtr disk, const char *what)
{
    char target[64], here[8], how[200], bus[32];
    bool cdrom = xml_is(disk, "device", "cdrom"), floppy = xml_is(disk, "device", "floppy");
    xml_attribute(xml_find(disk, "target"), "dev", target, sizeof(target));
    xml_attribute(xml_find(disk, "target"), "bus", bus, sizeof(bus));
    snprintf(here, sizeof(here), "vd%c", 'a' + (char)p->disks);
    if (cdrom || floppy)
        snprintf(how, sizeof(how), "it is a read-only disk, /dev/%s, and no drive", here);
    else if (*bus ? strcmp(bus, "virtio") : strncmp(target, "vd", 2))
        snprintf(how, sizeof(how), "it is a virtio disk, /dev/%s", here);
    else if (strcmp(target, here))
        snprintf(how, sizeof(how), "it is /dev/%s", here);
    else
        return;
    plan_otherwise(p, what, how,
                   "--append root=/dev/NAME, if the guest is told where its root is by that name");
}

static void tell_rest(struct plan *p, xmlNodePtr disk, const char *what)
{
    xmlNodePtr source = xml_find(disk, "source");
    if (xml_is(disk, "device", "lun") || xml_is(disk, "rawio", "yes"))
        plan_otherwise(p, what, "SCSI commands of the guest do not reach it", "nothing");
    if (xml_find(source, "slices"))
        plan_otherwise(p, what, "all of the image is the disk, and not a slice",
                       "copy the slice to a file of its own");
    if (xml_find(source, "snapshot") || xml_has(source, "query") || xml_find(source, "config"))
        plan_otherwise(p, what, "it is read as it is now", "nothing");
}

static bool encrypted(xmlNodePtr disk)
{
    return xml_find(disk, "encryption") || xml_find(disk, "source/encryption");
}

static void take_disk(struct plan *p, xmlNodePtr disk)
{
    char what[WHAT], *value = NULL;
    size_t size;
    plan_what(disk, what, sizeof(what));
    xmlNodePtr parts[] = {xml_find(disk, "encryption"), xml_find(disk, "auth"),
                          xml_find(disk, "source")};
    for (size_t i = 0; i < 2; i++)
        if (parts[i])
            plan_done(parts[i]);
    /* What is in <source> is looked at here. */
    for (xmlNodePtr in = parts[2] ? parts[2]->children : NULL; in; in = in->next)
        if (in->type == XML_ELEMENT_NODE &&
            xml_one_of((const char *)in->name, "encryption|auth|slices|snapshot|config|ssl|cookies|"
                                               "initiator|address|nfs|ports|knownHosts"))
            plan_done(in);
    FILE *out = open_memstream(&value, &size);
    bool good =
        out && !encrypted(disk) && put_image(p, disk, out, what) && put_format(p, disk, out, what);
    if (encrypted(disk))
        plan_left(p, what, "it is encrypted",
                  "decrypt it (`qemu-img convert`), or serve it by qemu-nbd with its secret: "
                  "--disk nbd://HOST/EXPORT");
    if (good && p->disks == DESCRIPTION_DISKS) {
        plan_left(p, what, "a machine has 4 disks", "leave out another one");
        good = false;
    }
    if (good) {
        bool readonly = xml_find(disk, "readonly") || xml_is(disk, "device", "cdrom|floppy");
        put_serial(p, disk, out, what);
        fputs(readonly ? ",readonly" : "", out);
        tell_place(p, disk, what);
        tell_rest(p, disk, what);
        if (p->facts.running && !readonly)
            plan_busy(p, what);
        if (!xml_is(disk, "device", "floppy"))
            p->bootable = true;
    }
    if (out)
        fclose(out);
    if (good && value) {
        plan_option(p, "disk", value, what);
        p->disks++;
    } else {
        plan_done(disk);
    }
    free(value);
}

void take_disks(struct plan *p)
{
    for (xmlNodePtr d = xml_find(p->domain, "devices/disk"); d; d = xml_next(d))
        take_disk(p, d);
}
