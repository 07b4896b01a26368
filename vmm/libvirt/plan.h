/*
 * What becomes of a domain: options of `record`, and what is told of the rest. Each take_*() looks
 * at a part of the XML and adds to it; walk_domain() adds what none of them takes, by elements.def.
 */
#ifndef REPRISE_LIBVIRT_PLAN_H
#define REPRISE_LIBVIRT_PLAN_H

#include "host/domain_table.h"
#include "libvirt/xml.h"

#define PLAN_ROWS 256u /* beyond these one says that there are more */

/* What is known besides the domain's own XML. */
struct plan_facts {
    const char *uri; /* NULL: a file */
    bool running;
    xmlNodePtr networks; /* an element with the <network>s of that place in it; NULL: not known */
};

struct plan_row {
    enum domain_row_kind kind;
    char *field[DOMAIN_TABLE_FIELDS];
    unsigned times;
};

struct plan {
    struct plan_facts facts;
    xmlNodePtr domain;
    struct plan_row row[PLAN_ROWS];
    unsigned n;
    unsigned more; /* rows that did not fit */
    unsigned disks, nets, ports, shares, displays;
    bool bootable, input, shown;
};

/* An option; what no option can have (control characters) is told as left, of `what`. */
void plan_option(struct plan *p, const char *name, const char *value, const char *what);
void plan_otherwise(struct plan *p, const char *what, const char *how, const char *todo);
void plan_left(struct plan *p, const char *what, const char *why, const char *todo);
void plan_busy(struct plan *p, const char *what);

/* "<sound model='ich6'>", "<disk> vda": an element as people see it. Returns `out`. */
const char *plan_what(xmlNodePtr node, char *out, size_t size);
/* Nothing more is to be said of it, nor of what is in it. */
void plan_done(xmlNodePtr node);

/* ---- parts of the domain ---- */
/* May it be recorded at all? -ENOTSUP or -EINVAL with a text. */
int take_kind(struct plan *p, struct err *err);
void take_machine(struct plan *p); /* memory, CPUs, clock */
void take_cpu(struct plan *p);
void take_disks(struct plan *p);
void take_boot(struct plan *p); /* after the disks */
void take_networks(struct plan *p);
void take_ports(struct plan *p);  /* serial ports, consoles, channels */
void take_screen(struct plan *p); /* video, graphics, input */
void take_shares(struct plan *p);
void walk_domain(struct plan *p);

/* All of it, printed as a table; or why not, as a table too. 0 or the error's code. */
int plan_print(const char *xml, size_t size, const char *networks, size_t networks_size,
               const struct plan_facts *facts, FILE *out);

#endif
