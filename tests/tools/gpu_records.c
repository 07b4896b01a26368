/* Prints the records of gpu.log and the commands that it may hold for docs/gpu-log.md, from the
 * tables of virtio-gpu-log (`format_doc.sh`). */
#include <stdio.h>

#include "virtio-gpu-log/log_format.h"

static void fields(const struct gpu_desc *d)
{
    const char *sep = "";
    u32 optional = 0;
    for (u32 i = 0; i < d->nrows; i++) {
        const struct gpu_row *r = &d->rows[i];
        if (r->kind == GPU_MORE) {
            sep = " [";
            optional++;
        } else if (r->kind == GPU_EACH) {
            printf("%seach: ", *sep ? "; " : "");
            sep = "";
        } else if (r->kind == GPU_TIMES) {
            printf("%s%u times: ", *sep ? "; " : "", r->argument);
            sep = "";
        } else if (r->name) {
            printf("%s%s", sep, r->name);
            sep = ", ";
        }
    }
    while (optional--)
        putchar(']');
}

int main(void)
{
    static const char *const kinds[] = {
        [GPU_LOG_FIELD_num] = "num",       [GPU_LOG_FIELD_text] = "text",
        [GPU_LOG_FIELD_bytes] = "bytes",   [GPU_LOG_FIELD_blob] = "blob",
        [GPU_LOG_FIELD_ranges] = "ranges",
    };
    static const char *const treatments[] = {"passed on", "ignored", "answered by the device",
                                             "refused"};
    static const char *const effects[GPU_EFFECTS] = {
        "", "sets", "binds", "slots", "list", "draws", "clears", "writes", "transfers"};
    static const char *const features[] = {"", "virgl", "edid", "not offered"};
    for (size_t i = 0; i < gpu_log_table_size; i++) {
        const struct gpu_log_record_desc *d = &gpu_log_table[i];
        printf("### %llu `%s`\n\n%s\n\n", (unsigned long long)d->id, d->name, d->doc);
        printf("| field | kind | meaning |\n| --- | --- | --- |\n");
        for (size_t k = 0; k < d->nfields; k++)
            printf("| `%s` | %s | %s |\n", d->fields[k].name, kinds[d->fields[k].kind],
                   d->fields[k].doc);
        printf("\n");
    }
    printf("### Commands of virtio-gpu\n\nAfter the header of 24 bytes (virtio 1.2, "
           "5.7.6.7).\n\n| type | name | feature | what it does | fields |\n"
           "| --- | --- | --- | --- | --- |\n");
    for (u32 i = 0; i < gpu_command_table_size; i++) {
        const struct gpu_desc *d = &gpu_command_table[i];
        printf("| 0x%04x | %s | %s | %s | ", d->number, d->name, features[d->feature], d->doc);
        fields(d);
        printf(" |\n");
    }
    printf("\n### Commands of virgl\n\nInside SUBMIT_3D, after a header dword (bits 0 to 7 the "
           "command, 8 to 15 the type of object, 16 to 31 the length in dwords). "
           "Effects: the head of virtio-gpu-log/virgl.def.\n\n"
           "| number | name | treatment | effect | what it does | fields |\n"
           "| --- | --- | --- | --- | --- | --- |\n");
    for (u32 i = 0; i < virgl_table_size; i++) {
        const struct gpu_desc *d = &virgl_table[i];
        printf("| %u | %s | %s | %s | %s | ", d->number, d->name, treatments[d->treatment],
               effects[d->effect], d->doc);
        fields(d);
        printf(" |\n");
    }
    for (u32 i = 0; i < virgl_object_table_size; i++) {
        const struct gpu_desc *d = &virgl_object_table[i];
        printf("| 1 | CREATE_OBJECT %s (%u) | passed on |  | %s | ", d->name, d->number, d->doc);
        fields(d);
        printf(" |\n");
    }
    return 0;
}
