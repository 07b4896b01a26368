/* See input_report.h. */
#include "host/input_report.h"

#include <string.h>

void input_report_make(struct input_report *r, u32 unit, const struct input_change *changes,
                       unsigned n)
{
    memset(r, 0, sizeof(*r));
    r->unit = unit;
    for (unsigned i = 0; i < n; i++, r->len += 8) {
        memcpy(r->events + r->len, &changes[i].type, 2);
        memcpy(r->events + r->len + 2, &changes[i].code, 2);
        memcpy(r->events + r->len + 4, &changes[i].value, 4);
    }
    r->len += 8; /* SYN_REPORT: zeros */
}
