/* Directories of the host: see plan.h. */
#define _GNU_SOURCE
#include "libvirt/plan.h"

#include <stdlib.h>
#include <string.h>

#include "board/description.h"

static bool good_tag(const char *tag)
{
    if (!*tag || strlen(tag) > 36)
        return false;
    for (; *tag; tag++)
        if (*tag <= ' ' || *tag > '~')
            return false;
    return true;
}

static void take_share(struct plan *p, xmlNodePtr f)
{
    char what[160], dir[XML_VALUE_MAX], tag[256], how[320], *value = NULL;
    xml_attribute(xml_find(f, "source"), "dir", dir, sizeof(dir));
    xml_attribute(xml_find(f, "target"), "dir", tag, sizeof(tag));
    snprintf(what, sizeof(what), "<filesystem> %.100s", tag);
    const char *why = (xml_has(f, "type") && !xml_is(f, "type", "mount")) || !*dir
                          ? "it is no directory of this host"
                      : !good_tag(tag)
                          ? "what the guest mounts has 1 to 36 bytes of printable ASCII"
                      : p->shares == DESCRIPTION_SHARES ? "a machine has 4 directories"
                                                        : NULL;
    if (why) {
        plan_left(p, what, why, "--share DIR,tag=NAME");
        plan_done(f);
        return;
    }
    if (!xml_is(xml_find(f, "driver"), "type", "virtiofs")) {
        snprintf(how, sizeof(how), "it is mounted by virtiofs, and not by 9p");
        plan_otherwise(p, what, how, "`mount -t virtiofs TAG DIR` in the guest");
    }
    if (!xml_find(f, "readonly"))
        plan_otherwise(p, what, "the guest cannot write there",
                       "copy it into the guest to write, or onto a disk");
    if (asprintf(&value, "%s%s,tag=%s", *dir == '/' ? "" : "./", dir, tag) < 0)
        return;
    plan_option(p, "share", value, what);
    p->shares++;
    free(value);
}

void take_shares(struct plan *p)
{
    for (xmlNodePtr f = xml_find(p->domain, "devices/filesystem"); f; f = xml_next(f))
        take_share(p, f);
}
