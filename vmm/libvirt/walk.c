/* What becomes of all that take_*.c do not look at, by elements.def: see plan.h. */
#include "libvirt/plan.h"

#include <libxml/tree.h>
#include <string.h>

enum { IS_TAKEN, IS_EACH, IS_SAME, IS_LEFT, IS_OTHERWISE };

static const struct element {
    const char *path;
    int is;
    const char *values; /* attributes of one that is taken; values that are nothing to tell */
    const char *why, *todo;
} elements[] = {
#define TAKEN(path, attributes)            {path, IS_TAKEN, attributes, NULL, NULL},
#define EACH(path, attributes)             {path, IS_EACH, attributes, NULL, NULL},
#define SAME(path)                         {path, IS_SAME, "", NULL, NULL},
#define LEFT(path, values, why, todo)      {path, IS_LEFT, values, why, todo},
#define OTHERWISE(path, values, how, todo) {path, IS_OTHERWISE, values, how, todo},
#include "libvirt/elements.def"
};

static const struct element *find(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(elements); i++)
        if (!strcmp(elements[i].path, path))
            return &elements[i];
    return NULL;
}

/* The device that an element is a part of. */
static xmlNodePtr device_of(xmlNodePtr node)
{
    for (; node && node->parent && node->parent->type == XML_ELEMENT_NODE; node = node->parent)
        if (!strcmp((const char *)node->parent->name, "devices"))
            return node;
    return NULL;
}

/* "<NAME> of <DEVICE>". */
static void describe(xmlNodePtr node, const char *attribute, char *out, size_t size)
{
    char own[256], whole[160];
    xmlNodePtr device = device_of(node);
    plan_what(node, own, sizeof(own));
    if (attribute) {
        char name[64], value[64];
        xml_name(node, name, sizeof(name));
        xml_attribute(node, attribute, value, sizeof(value));
        snprintf(own, sizeof(own), "<%s %.60s='%s'>", name, attribute, value);
    }
    if (device && device != node)
        snprintf(out, size, "%s of %s", own, plan_what(device, whole, sizeof(whole)));
    else
        snprintf(out, size, "%s", own);
}

static void tell(struct plan *p, const struct element *e, xmlNodePtr node, const char *attribute)
{
    char what[440];
    describe(node, attribute, what, sizeof(what));
    if (!e)
        plan_left(p, what, "this version does not know it",
                  "leave it out, or look for its like in `reprise record --help`");
    else if (e->is == IS_LEFT)
        plan_left(p, what, e->why, e->todo);
    else if (e->is == IS_OTHERWISE)
        plan_otherwise(p, what, e->why, e->todo);
}

static void walk_attributes(struct plan *p, const struct element *e, xmlNodePtr node,
                            const char *path)
{
    char whole[512], value[XML_VALUE_MAX];
    for (xmlAttrPtr a = node->properties; a; a = a->next) {
        const char *name = (const char *)a->name;
        if (a->ns)
            continue; /* of tools that keep notes there */
        snprintf(whole, sizeof(whole), "%s@%s", path, name);
        const struct element *own = find(whole);
        xml_attribute(node, name, value, sizeof(value));
        if (own ? !xml_one_of(value, own->values) : !xml_one_of(name, e->values))
            tell(p, own, node, name);
    }
}

static bool is_second(xmlNodePtr node)
{
    xmlNodePtr first = node->parent->type == XML_ELEMENT_NODE
                           ? xml_find(node->parent, (const char *)node->name)
                           : NULL;
    return first && first != node;
}

static void walk(struct plan *p, xmlNodePtr node, const char *path)
{
    char inner[512], name[128], again[440];
    const struct element *e = find(path);
    if (node->_private)
        return;
    if (!e || (e->is != IS_TAKEN && e->is != IS_EACH)) {
        if (!e || e->is != IS_SAME)
            tell(p, e, node, NULL);
        return;
    }
    if (e->is == IS_TAKEN && is_second(node)) {
        describe(node, NULL, again, sizeof(again));
        plan_left(p, again, "it is there a second time, and the first one counts",
                  "leave out one of them");
        return;
    }
    walk_attributes(p, e, node, path);
    for (xmlNodePtr n = node->children; n; n = n->next) {
        if (n->type != XML_ELEMENT_NODE)
            continue;
        xml_name(n, name, sizeof(name));
        snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "/" : "", name);
        walk(p, n, inner);
    }
}

void walk_domain(struct plan *p)
{
    walk(p, p->domain, "");
}
