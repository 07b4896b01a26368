/* Fuzz target: what reprise-libvirt says, as reprise takes it; what was taken is printed and taken
 * again. */
#include <stdlib.h>
#include <string.h>

#include "host/domain_table.h"
#include "mutate.h"

static void print_again(const struct domain_table *t)
{
    char *text = NULL;
    size_t n = 0;
    struct domain_table again;
    struct err err;
    FILE *out = open_memstream(&text, &n);
    for (size_t i = 0; i < t->n; i++)
        domain_row_print(out, t->row[i].kind, t->row[i].field[0], t->row[i].field[1],
                         t->row[i].field[2]);
    fclose(out);
    if (domain_table_read(&again, text, n, &err) || again.n != t->n)
        abort();
    for (size_t i = 0; i < t->n; i++)
        for (unsigned f = 0; f < DOMAIN_TABLE_FIELDS; f++)
            if (strcmp(t->row[i].field[f] ? t->row[i].field[f] : "",
                       again.row[i].field[f] ? again.row[i].field[f] : ""))
                abort();
    domain_table_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct domain_table t;
    struct err err = {0};
    char *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    if (domain_table_read(&t, copy, size, &err)) {
        if (!err.text[0] || t.text)
            abort();
    } else {
        print_again(&t);
    }
    domain_table_free(&t);
    free(copy);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const char table[] =
        "reprise-libvirt\t1\nname\tweb\nplace\tqemu:///system\noption\tmemory\t512M\n"
        "otherwise\ta\tb\tc\nleft\ta\tb\tc\nbusy\tvda\nend\n";
    *size = sizeof(table) - 1;
    u8 *data = malloc(*size);
    memcpy(data, table, *size);
    return data;
}
