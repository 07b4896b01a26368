/* Do a recording's checkpoints belong to it, as far as can be said without its machine: for
 * `reprise verify`. See checkpoint.h; what a replay uses of them checkpoint_read.c checks. */
#include "base/file_io.h"
#include "replay/checkpoint_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* NULL, or what is wrong. */
static const char *bound(const struct checkpoint_header *h, const struct recording *r,
                         struct log_reader *log, u32 sequence, u64 parent)
{
    struct record rec;
    struct err ignored;
    const char *why = checkpoint_header_wrong(h, sequence, parent, &r->machine_hash);
    if (why)
        return why;
    if (log_seek(log, &h->place.log, &ignored))
        return "its place is not in the log";
    if (log_next(log, &rec) && (rec.position < h->position || rec.time < h->time))
        return "its place in the log lies before it";
    return NULL;
}

int checkpoints_bound(const struct recording *r, struct log_reader *log, u32 *count,
                      struct err *err)
{
    u64 parent = 0;
    int code = 0;
    *count = 0;
    int dir = openat(r->dir, CHECKPOINT_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return errno == ENOENT ? 0 : err_errno(err, "cannot open %s/" CHECKPOINT_DIR, r->path);
    while (!code) {
        struct checkpoint_header h;
        char name[16];
        const char *why = "it was cut short";
        struct err none;
        snprintf(name, sizeof(name), "%06u", *count);
        int fd = file_open_regular(dir, name, NEVER, NULL, &none);
        if (fd == -ENOENT)
            break;
        if (fd >= 0 && file_read_at(fd, &h, sizeof(h), 0))
            why = bound(&h, r, log, *count, parent);
        else if (fd < 0)
            why = none.text;
        if (why) {
            code = err_set(err, -EINVAL, "the checkpoint %s/%s/%s is of no use: %s", r->path,
                           CHECKPOINT_DIR, name, why);
        } else {
            parent = h.header_check;
            ++*count;
        }
        if (fd >= 0)
            close(fd);
    }
    close(dir);
    log_rewind(log);
    return code;
}
