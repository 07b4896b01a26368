/*
 * A domain's XML, read by libxml2 with everything off that could reach out of it: no document type,
 * and so no entities of its own, no files, no network; bounded in size, depth and number of
 * elements. Its pieces are asked for by name, and are never NULL texts.
 */
#ifndef REPRISE_LIBVIRT_XML_H
#define REPRISE_LIBVIRT_XML_H

#include "base/err.h"

/* As libxml2 has them in the header of its trees, for who looks into one: this compiles where that
 * is not. */
typedef struct _xmlNode xmlNode;
typedef xmlNode *xmlNodePtr;
typedef struct _xmlDoc xmlDoc;
typedef xmlDoc *xmlDocPtr;

#define XML_SIZE_MAX     (4u << 20)
#define XML_DEPTH_MAX    48u
#define XML_ELEMENTS_MAX 50000u
#define XML_VALUE_MAX                                                                              \
    4096u /* bytes of an attribute, or of a text, that are taken over, with a NUL */

/* -EINVAL with a text of what is wrong and where. Free with xmlFreeDoc. */
int xml_read(xmlDocPtr *out, const char *bytes, size_t size, struct err *err);

/* An element's name with what its namespace is: "disk", "qemu:commandline", "other:NAME". */
const char *xml_name(const xmlNode *node, char *out, size_t size);

/* The first element of that name in `node`, by a path: "source/host". NULL: none; safe on NULL. */
xmlNodePtr xml_find(xmlNodePtr node, const char *path);
/* The next one of the same name beside it; or, of NULL, none. */
xmlNodePtr xml_next(xmlNodePtr node);

/* An attribute's value, or the text in an element, without spaces around it; "" where there is
 * none, and where it does not fit: half a path is another path. Returns `out`. */
const char *xml_attribute(const xmlNode *node, const char *name, char *out, size_t size);
const char *xml_text(const xmlNode *node, char *out, size_t size);
bool xml_has(const xmlNode *node, const char *name);
/* Is the attribute there, and one of "a|b"? */
bool xml_is(const xmlNode *node, const char *name, const char *values);

/* A decimal number, all of the text. false: it is none, or too large. */
bool xml_number(const char *text, u64 *out);
/* ... with an element's unit (KiB, G, bytes, ...; of none: KiB), in bytes. */
bool xml_size(const xmlNode *node, u64 *out);

/* Is `text` one of "a|b"? */
bool xml_one_of(const char *text, const char *values);

#endif
