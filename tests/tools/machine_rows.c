/* Prints the table of machine.dtb for docs/format.md, from board/description.def
 * (`format_doc.sh`). */
#include <stdio.h>
#include <string.h>

#include "board/description.h"

/* What a value is. */
static void print_value(const struct description_row *r)
{
    switch (r->kind) {
    case DESCRIPTION_NUMBER:
        printf("u%u", 8 * r->size);
        if (r->least || r->most)
            printf(", %llu to ", (unsigned long long)r->least);
        if (r->most)
            printf("%llu", (unsigned long long)r->most);
        else if (r->least)
            printf("any");
        if (r->step)
            printf(", a multiple of %llu", (unsigned long long)r->step);
        break;
    case DESCRIPTION_FLAG: printf("u32, 0 or 1"); break;
    case DESCRIPTION_TEXT: printf("text, %u bytes at most", r->size); break;
    case DESCRIPTION_HASH:
    case DESCRIPTION_BYTES: printf("%u bytes", r->size); break;
    }
    for (const char *v = r->kind == DESCRIPTION_TEXT ? r->values : NULL; v && *v;) {
        size_t n = strcspn(v, "|");
        printf("%s `%.*s`", v == r->values ? ":" : " or", (int)n, v);
        v += n + (v[n] == '|');
    }
}

/* Of nodes that are there several times only the first is said. */
static bool is_repeated(size_t row)
{
    const char *name = description_node(&description_rows[row]);
    size_t n = strcspn(name, "0123456789");
    for (size_t i = 0; name[n] && i < row; i++) {
        const char *other = description_node(&description_rows[i]);
        if (!strncmp(other, name, n) && strlen(other) == n + 1 && other[n] != name[n])
            return true;
    }
    return false;
}

int main(void)
{
    static struct machine_description nothing;
    description_init(&nothing);
    nothing.revision = 0;
    printf("| node | property | value | meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        const char *node = description_node(r);
        if (is_repeated(i))
            continue;
        size_t n = strcspn(node, "0123456789");
        printf("| /%.*s%s%s | `%s` | ", (int)n, node, node[n] ? "N" : "",
               description_there(&nothing, r) ? "" : "?", r->property);
        print_value(r);
        printf(" | %s |\n", r->doc);
    }
    return 0;
}
