/* Prints the table of record types for docs/format.md, from replay/records.def (`format_doc.sh`).
 */
#include <stdio.h>

#include "replay/record.h"

int main(void)
{
    static const char *const kinds[] = {
        [FIELD_num] = "num",     [FIELD_hex] = "hex",   [FIELD_hash] = "hash",
        [FIELD_bytes] = "bytes", [FIELD_text] = "text", [FIELD_digests] = "digests",
        [FIELD_runs] = "runs",   [FIELD_quit] = "quit", [FIELD_reason] = "reason",
    };
    for (size_t i = 0; i < record_table_size; i++) {
        const struct record_desc *d = &record_table[i];
        printf("### %llu `%s`\n\n%s\n", (unsigned long long)d->id, d->name, d->doc);
        if (d->nfields)
            printf("\n| field | kind | meaning |\n| --- | --- | --- |\n");
        for (size_t k = 0; k < d->nfields; k++)
            printf("| `%s` | %s | %s |\n", d->fields[k].name, kinds[d->fields[k].kind],
                   d->fields[k].doc);
        printf("\n");
    }
    printf("### Values of `reason`\n\n");
    for (u64 i = RUN_POWEROFF; i <= RUN_ERROR; i++)
        printf("%llu %s%s", (unsigned long long)i, run_reason_name(i),
               i < RUN_ERROR ? ", " : ".\n");
    printf("\n### Values of `quit`\n\n");
    for (u64 i = QUIT_USER; i <= QUIT_ENGINE; i++)
        printf("%llu %s%s", (unsigned long long)i, quit_reason_name(i),
               i < QUIT_ENGINE ? ", " : ".\n");
    return 0;
}
