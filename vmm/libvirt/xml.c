/* See xml.h. */
#include "libvirt/xml.h"

#include <errno.h>
#include <libxml/parser.h>
#include <libxml/xmlerror.h>
#include <string.h>

#define QEMU "http://libvirt.org/schemas/domain/qemu/1.0"

/* ---- reading ---- */

/* The parser's own data: what it stopped for. */
struct reading {
    bool type; /* the XML has a document type */
};

/* Called before anything of the type is read, the declarations of entities among it. */
static void on_type(void *context, const xmlChar *name, const xmlChar *external,
                    const xmlChar *system)
{
    xmlParserCtxtPtr parser = context;
    struct reading *r = parser->_private;
    (void)name;
    (void)external;
    (void)system;
    r->type = true;
    xmlStopParser(parser);
}

static xmlParserInputPtr no_entity(const char *url, const char *id, xmlParserCtxtPtr parser)
{
    (void)url;
    (void)id;
    (void)parser;
    return NULL;
}

/* libxml2 prints by itself otherwise. */
static void say_nothing(void *context, const char *format, ...)
{
    (void)context;
    (void)format;
}

static int refuse(xmlParserCtxtPtr parser, struct err *err)
{
    const xmlError *e = xmlCtxtGetLastError(parser);
    char why[200];
    snprintf(why, sizeof(why), "%s", e && e->message ? e->message : "it cannot be read");
    for (char *c = why; *c; c++)
        if ((u8)*c < ' ' || *c == 127)
            *c = c[1] ? '?' : 0;
    return err_set(err, -EINVAL, "line %d is no XML: %s", e ? e->line : 1, why);
}

/* In document order; NULL after the last. */
static xmlNodePtr step(xmlNodePtr n, unsigned *depth)
{
    if (n->type == XML_ELEMENT_NODE && n->children) {
        ++*depth;
        return n->children;
    }
    while (n && !n->next) {
        n = n->parent;
        if (*depth)
            --*depth;
    }
    return n && n->type != XML_DOCUMENT_NODE ? n->next : NULL;
}

static int check_bounds(xmlDocPtr doc, struct err *err)
{
    unsigned depth = 0, elements = 0;
    for (xmlNodePtr n = xmlDocGetRootElement(doc); n; n = step(n, &depth)) {
        if (depth > XML_DEPTH_MAX)
            return err_set(err, -EINVAL, "line %ld: elements are %u deep in each other",
                           xmlGetLineNo(n), depth);
        if (n->type == XML_ELEMENT_NODE && ++elements > XML_ELEMENTS_MAX)
            return err_set(err, -EINVAL, "it has more than %u elements", XML_ELEMENTS_MAX);
        if (n->type == XML_ENTITY_REF_NODE)
            return err_set(err, -EINVAL, "line %ld: it has entities", xmlGetLineNo(n));
    }
    return 0;
}

int xml_read(xmlDocPtr *out, const char *bytes, size_t size, struct err *err)
{
    struct reading r = {0};
    *out = NULL;
    if (!size)
        return err_set(err, -EINVAL, "it is empty");
    if (size > XML_SIZE_MAX)
        return err_set(err, -EINVAL, "it has more than %u MiB", XML_SIZE_MAX >> 20);
    xmlSetExternalEntityLoader(no_entity);
    xmlSetGenericErrorFunc(NULL, say_nothing);
    xmlParserCtxtPtr parser = xmlNewParserCtxt();
    if (!parser)
        return err_set(err, -ENOMEM, "no memory");
    parser->_private = &r;
    parser->sax->internalSubset = on_type;
    parser->sax->externalSubset = on_type;
    xmlDocPtr doc = xmlCtxtReadMemory(parser, bytes, (int)size, NULL, NULL,
                                      XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                          XML_PARSE_NOCDATA);
    int code = 0;
    if (r.type)
        code = err_set(err, -EINVAL,
                       "it has a document type (<!DOCTYPE>), in which entities can be: libvirt "
                       "writes none, take it out");
    else if (!doc || !parser->wellFormed)
        code = refuse(parser, err);
    else
        code = check_bounds(doc, err);
    xmlFreeParserCtxt(parser);
    if (code) {
        xmlFreeDoc(doc);
        return code;
    }
    *out = doc;
    return 0;
}

/* ---- pieces ---- */

const char *xml_name(const xmlNode *node, char *out, size_t size)
{
    const char *space = node->ns ? (const char *)node->ns->href : NULL;
    snprintf(out, size, "%s%s",
             !space                 ? ""
             : !strcmp(space, QEMU) ? "qemu:"
                                    : "other:",
             (const char *)node->name);
    return out;
}

static bool is_element(const xmlNode *n, const char *name, size_t len)
{
    return n->type == XML_ELEMENT_NODE && !n->ns && strlen((const char *)n->name) == len &&
           !memcmp(n->name, name, len);
}

xmlNodePtr xml_find(xmlNodePtr node, const char *path)
{
    while (node && *path) {
        size_t n = strcspn(path, "/");
        node = node->children;
        while (node && !is_element(node, path, n))
            node = node->next;
        path += path[n] ? n + 1 : n;
    }
    return node;
}

xmlNodePtr xml_next(xmlNodePtr node)
{
    if (!node)
        return NULL;
    const char *name = (const char *)node->name;
    for (node = node->next; node && !is_element(node, name, strlen(name));)
        node = node->next;
    return node;
}

/* Without spaces around it. */
static const char *tidy(const xmlChar *text, char *out, size_t size)
{
    const char *from = text ? (const char *)text : "";
    while (*from && strchr(" \t\r\n", *from))
        from++;
    size_t n = strlen(from);
    while (n && strchr(" \t\r\n", from[n - 1]))
        n--;
    if (n >= size)
        n = 0;
    memcpy(out, from, n);
    out[n] = 0;
    return out;
}

const char *xml_attribute(const xmlNode *node, const char *name, char *out, size_t size)
{
    xmlChar *value = node ? xmlGetNoNsProp(node, (const xmlChar *)name) : NULL;
    tidy(value, out, size);
    xmlFree(value);
    return out;
}

const char *xml_text(const xmlNode *node, char *out, size_t size)
{
    xmlChar *value = node ? xmlNodeGetContent(node) : NULL;
    tidy(value, out, size);
    xmlFree(value);
    return out;
}

bool xml_has(const xmlNode *node, const char *name)
{
    return node && xmlHasNsProp((xmlNodePtr)(uintptr_t)node, (const xmlChar *)name, NULL);
}

bool xml_one_of(const char *text, const char *values)
{
    size_t len = strlen(text), n;
    for (;; values += n + 1) {
        n = strcspn(values, "|");
        if (n == len && !memcmp(values, text, n))
            return true;
        if (!values[n])
            return false;
    }
}

bool xml_is(const xmlNode *node, const char *name, const char *values)
{
    char value[64];
    return xml_has(node, name) &&
           xml_one_of(xml_attribute(node, name, value, sizeof(value)), values);
}

bool xml_number(const char *text, u64 *out)
{
    u64 v = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (u64)(*text - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

/* libvirt's units (virScaleInteger): a letter alone and "iB" are powers of 1024, "B" of 1000. */
static bool unit_bytes(const char *unit, u64 *out)
{
    static const char letters[] = "kmgtpe";
    *out = 1;
    if (!*unit) {
        *out = 1024;
        return true;
    }
    if (xml_one_of(unit, "b|byte|bytes"))
        return true;
    const char *letter = strchr(letters, *unit | 32);
    if (!letter)
        return false;
    u64 base = !strcasecmp(unit + 1, "b") ? 1000 : 1024;
    if (unit[1] && strcasecmp(unit + 1, "b") && strcasecmp(unit + 1, "ib"))
        return false;
    for (const char *l = letters; l <= letter; l++)
        *out *= base;
    return true;
}

bool xml_size(const xmlNode *node, u64 *out)
{
    char value[32], unit[16];
    u64 number, bytes;
    return node && xml_number(xml_text(node, value, sizeof(value)), &number) &&
           unit_bytes(xml_attribute(node, "unit", unit, sizeof(unit)), &bytes) &&
           !__builtin_mul_overflow(number, bytes, out);
}
