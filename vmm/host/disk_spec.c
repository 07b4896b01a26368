/* See disk_spec.h. */
#include "host/disk_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts FILE at the comma; what follows it is returned. */
static const char *cut_file(const char *spec, char *file)
{
    for (; *spec && (*spec != ',' || spec[1] == ','); spec++) {
        spec += *spec == ',';
        *file++ = *spec;
    }
    *file = 0;
    return spec;
}

#define FIELD(field) PART_FIELD(struct disk_spec, field)
static const struct part rows[] = {
    {"format", "NAME", .read = part_text, FIELD(format),
     .help = "raw, qcow2, vmdk, vdi, vhdx ...; default auto: by first bytes and name"},
    {"readonly", .of = DISK_OF_MACHINE, .read = part_flag, FIELD(readonly)},
    {"serial", "TEXT", "a text of at most 20 bytes", .of = DISK_OF_MACHINE, .read = part_text,
     FIELD(serial), .help = "what the guest is told"},
    {"backing", "on|off", "on or off", .read = part_on_off, FIELD(backing),
     .help = "on: an image that names other files, a backing file, may have them read"},
    {"timeout", "SECONDS", "a number of SECONDS from 1 to 86400", .read = part_number,
     FIELD(timeout), .least = 1, .at_most = 86400, .help = "for a server's answer; default 30"},
};
const struct parts disk_parts = {rows, ARRAY_SIZE(rows), NULL, 0};

int disk_spec_parse(struct disk_spec *s, const char *text, bool of_machine, struct err *err)
{
    *s = (struct disk_spec){.file = malloc(strlen(text) + 1)};
    if (!s->file)
        return err_set(err, -ENOMEM, "no memory");
    const char *from = cut_file(text, s->file);
    int code = *s->file ? 0 : err_set(err, -EINVAL, "--disk %s: the file has no name", text);
    if (!code) {
        code = parts_read(&disk_parts, of_machine ? DISK_OF_MACHINE : 0, from, "", s, err);
        if (code)
            err_prefix(err, "--disk %s", text);
    }
    if (code)
        disk_spec_free(s);
    return code;
}

void disk_spec_free(struct disk_spec *s)
{
    free(s->file);
    *s = (struct disk_spec){0};
}
