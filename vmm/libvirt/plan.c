/* See plan.h. */
#define _GNU_SOURCE
#include "libvirt/plan.h"

#include <errno.h>
#include <libxml/tree.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static void add(struct plan *p, enum domain_row_kind kind, const char *a, const char *b,
                const char *c)
{
    const char *const field[DOMAIN_TABLE_FIELDS] = {a, b, c};
    bool once = kind == DOMAIN_OTHERWISE || kind == DOMAIN_LEFT;
    for (unsigned i = 0; once && i < p->n; i++) {
        struct plan_row *r = &p->row[i];
        if (r->kind == kind && !strcmp(r->field[0], a) && !strcmp(r->field[1], b) &&
            !strcmp(r->field[2], c)) {
            r->times++;
            return;
        }
    }
    if (p->n == PLAN_ROWS) {
        p->more++;
        return;
    }
    struct plan_row *r = &p->row[p->n++];
    *r = (struct plan_row){.kind = kind, .times = 1};
    for (unsigned i = 0; i < DOMAIN_TABLE_FIELDS; i++) {
        r->field[i] = strdup(field[i] ? field[i] : "");
        CHECK(r->field[i], "no memory for what becomes of a domain");
    }
}

void plan_option(struct plan *p, const char *name, const char *value, const char *what)
{
    for (const char *c = value; *c; c++)
        if ((u8)*c < ' ' || *c == 127) {
            plan_left(p, what, "there are control characters in it", "give it another name");
            return;
        }
    add(p, DOMAIN_OPTION, name, value, NULL);
}

void plan_otherwise(struct plan *p, const char *what, const char *how, const char *todo)
{
    add(p, DOMAIN_OTHERWISE, what, how, todo);
}

void plan_left(struct plan *p, const char *what, const char *why, const char *todo)
{
    add(p, DOMAIN_LEFT, what, why, todo);
}

void plan_busy(struct plan *p, const char *what)
{
    add(p, DOMAIN_BUSY, what, NULL, NULL);
}

const char *plan_what(xmlNodePtr node, char *out, size_t size)
{
    static const char *const tells[] = {"type", "model", "name", "dev", "mode", "policy"};
    char name[64], value[64], target[64];
    xml_name(node, name, sizeof(name));
    xml_attribute(xml_find(node, "target"), "dev", target, sizeof(target));
    if (!*target)
        xml_attribute(xml_find(node, "mac"), "address", target, sizeof(target));
    if (!*target)
        xml_attribute(xml_find(node, "target"), "name", target, sizeof(target));
    if (*target) {
        snprintf(out, size, "<%s> %s", name, target);
        return out;
    }
    for (size_t i = 0; i < ARRAY_SIZE(tells); i++)
        if (*xml_attribute(node, tells[i], value, sizeof(value))) {
            snprintf(out, size, "<%s %s='%s'>", name, tells[i], value);
            return out;
        }
    snprintf(out, size, "<%s>", name);
    return out;
}

void plan_done(xmlNodePtr node)
{
    node->_private = node;
}

static void print(struct plan *p, FILE *out)
{
    for (unsigned i = 0; i < p->n; i++) {
        struct plan_row *r = &p->row[i];
        char *what = r->field[0], *many = NULL;
        if (r->times > 1 && asprintf(&many, "%s (%u times)", what, r->times) >= 0)
            what = many;
        domain_row_print(out, r->kind, what, r->field[1], r->field[2]);
        free(many);
    }
    if (p->more) {
        char more[64];
        snprintf(more, sizeof(more), "%u more", p->more);
        domain_row_print(out, DOMAIN_LEFT, more, "there was no room to say of each",
                         "make the domain simpler");
    }
}

/* The places of what others give, and of what depends on it, in the order in which it must be. */
static int take(struct plan *p, FILE *out, struct err *err)
{
    char name[256];
    if (strcmp(xml_name(p->domain, name, sizeof(name)), "domain"))
        return err_set(err, -EINVAL,
                       "it is a <%.60s>, and no <domain>: `virsh dumpxml NAME` prints one", name);
    xml_text(xml_find(p->domain, "name"), name, sizeof(name));
    domain_row_print(out, DOMAIN_NAME, name, NULL, NULL);
    domain_row_print(out, DOMAIN_PLACE, p->facts.uri, NULL, NULL);
    int code = take_kind(p, err);
    if (code)
        return code;
    take_machine(p);
    take_cpu(p);
    take_disks(p);
    take_boot(p);
    take_networks(p);
    take_ports(p);
    take_screen(p);
    take_shares(p);
    walk_domain(p);
    print(p, out);
    return 0;
}

int plan_print(const char *xml, size_t size, const char *networks, size_t networks_size,
               const struct plan_facts *facts, FILE *out)
{
    xmlDocPtr doc = NULL, others = NULL;
    struct err err = {0}, ignored = {0};
    struct plan *p = calloc(1, sizeof(*p));
    int code = p ? xml_read(&doc, xml, size, &err) : err_set(&err, -ENOMEM, "no memory");
    domain_row_print(out, DOMAIN_BEGIN, DOMAIN_TABLE_VERSION, NULL, NULL);
    if (!code) {
        p->facts = *facts;
        p->domain = xmlDocGetRootElement(doc);
        /* What libvirt says of its networks only makes the answer better. */
        if (networks_size && !xml_read(&others, networks, networks_size, &ignored))
            p->facts.networks = xmlDocGetRootElement(others);
        code = take(p, out, &err);
    }
    if (code)
        domain_row_print(out, DOMAIN_ERROR, err.text, NULL, NULL);
    domain_row_print(out, DOMAIN_END, NULL, NULL, NULL);
    for (unsigned i = 0; p && i < p->n; i++)
        for (unsigned f = 0; f < DOMAIN_TABLE_FIELDS; f++)
            free(p->row[i].field[f]);
    free(p);
    xmlFreeDoc(doc);
    xmlFreeDoc(others);
    return code;
}
