/*
 * Fuzz target: a domain's XML, as reprise-libvirt reads it. Whatever it is, the table that comes
 * out is one that reprise takes, and no option in it is of more than one line. The same bytes are
 * libvirt's networks, too.
 */
#include <stdlib.h>
#include <string.h>

#include "host/disk_spec.h"
#include "host/domain_table.h"
#include "host/net_options.h"
#include "libvirt/plan.h"
#include "mutate.h"

/* What `record` would make of it is no surprise to it. */
static void check_option(const struct domain_row *r)
{
    struct err err;
    struct disk_spec disk;
    struct net_options net;
    if (!strcmp(r->field[0], "disk")) {
        if (disk_spec_parse(&disk, r->field[1], true, &err))
            abort();
        disk_spec_free(&disk);
    }
    if (!strcmp(r->field[0], "net") && net_options_parse(&net, r->field[1], &err))
        abort();
    if (!strcmp(r->field[0], "kernel") && strcmp(r->field[1], "auto") && !strchr(r->field[1], '/'))
        abort();
}

static void once(const u8 *data, size_t size, bool running)
{
    char *table = NULL;
    size_t n = 0;
    struct domain_table t;
    struct err err;
    FILE *out = open_memstream(&table, &n);
    struct plan_facts facts = {.uri = running ? "test:///default" : NULL, .running = running};
    char *xml = malloc(size ? size : 1); /* so that reading past its end is seen */
    memcpy(xml, data, size);
    int code = plan_print(xml, size, running ? xml : NULL, running ? size : 0, &facts, out);
    fclose(out);
    if (domain_table_read(&t, table, n, &err))
        abort();
    if ((code != 0) != (domain_table_one(&t, DOMAIN_ERROR) != NULL))
        abort();
    for (size_t i = 0; i < t.n; i++)
        if (t.row[i].kind == DOMAIN_OPTION)
            check_option(&t.row[i]);
    domain_table_free(&t);
    free(table);
    free(xml);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    once(data, size, false);
    once(data, size, true);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const char xml[] =
        "<networks><network><name>n</name><forward mode='nat'/></network></networks>";
    *size = sizeof(xml) - 1;
    u8 *data = malloc(*size);
    memcpy(data, xml, *size);
    return data;
}
