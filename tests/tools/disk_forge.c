/*
 * disk_forge DIR N PATH FORMAT [SIZE [old]]: makes of a recording one that says its disk N is PATH,
 * of that format; everything that can be computed (checksums, the hash of machine.dtb in the log)
 * is right, as in a recording whose author wrote it so. `old`: without an id, as of older versions.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "board/description.h"
#include "replay/recording.h"

static int fail(const struct err *err)
{
    fprintf(stderr, "disk_forge: %s\n", err->text);
    return 1;
}

static int copy_log(struct recording *r, const char *to, struct err *err)
{
    struct log_reader *from;
    struct log_writer *writer;
    struct record rec;
    int out = openat(r->dir, to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int in = openat(r->dir, "log", O_RDONLY | O_CLOEXEC);
    int code = log_reader_create(&from, in, err);
    if (!code)
        code = log_writer_create(&writer, out, err);
    while (!code && log_next(from, &rec)) {
        if (rec.type == REC_START)
            rec.start.machine = r->machine_hash;
        code = log_add(writer, &rec, err);
        if (!code && rec.type == REC_END)
            code = log_flush(writer, true, err);
    }
    if (!code)
        code = log_writer_close(writer, err);
    if (!code)
        log_reader_destroy(from);
    return code;
}

int main(int argc, char **argv)
{
    static u8 dtb[DESCRIPTION_MAX_SIZE];
    struct recording r;
    struct machine_description d;
    struct err err;
    size_t size;
    if (argc < 5 || argc > 7)
        return 2;
    if (recording_open(&r, argv[1], &err) || description_read(r.machine, r.machine_size, &d, &err))
        return fail(&err);
    struct description_disk *k = &d.disk[strtoul(argv[2], NULL, 10) % DESCRIPTION_DISKS];
    snprintf(k->path, sizeof(k->path), "%s", argv[3]);
    snprintf(k->format, sizeof(k->format), "%s", argv[4]);
    if (argc > 5)
        k->size = strtoull(argv[5], NULL, 10);
    if (argc > 6)
        memset(d.recording_id, 0, sizeof(d.recording_id));
    if (description_write(&d, dtb, &size, &err) || recording_write_machine(&r, dtb, size, &err) ||
        copy_log(&r, "log.new", &err))
        return fail(&err);
    if (renameat(r.dir, "log.new", r.dir, "log"))
        return 1;
    recording_close(&r);
    return 0;
}
