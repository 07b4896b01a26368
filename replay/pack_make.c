/* See pack_make.h. */
#include "replay/pack_make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replay/pack.h"
#include "replay/pack_disk.h"
#include "replay/statement.h"
#include "virtio-gpu-log/log.h"

#define REDACTED "redacted" /* in the place of a name */

struct maker {
    struct pack_writer *w;
    struct opened *o;
    const struct pack_wish *wish;
    struct pack_kept *kept;
    struct hash128 *named; /* pieces that the log names, sorted */
    size_t nnamed, room;
    bool all_pieces;
    void *machine; /* machine.dtb, as it goes in; */
    size_t machine_size;
};

/* A file of the recording, if it is there. */
static int add(struct maker *k, const char *name, struct err *err)
{
    struct blob file;
    int code = recording_file(&k->o->rec, name, NEVER, &file, err);
    if (code == -ENOENT)
        return 0;
    if (!code)
        code = pack_add_blob(k->w, name, &file, err);
    blob_close(&file);
    return code;
}

static int leave_out(struct maker *k, const char *name, const char *what, struct err *err)
{
    return recording_has(&k->o->rec, name)
               ? manifest_leave_out(pack_writer_manifest(k->w), err, "%s", what)
               : 0;
}

/* ---- machine.dtb ---- */

static void hide(char *name, size_t size)
{
    if (*name)
        snprintf(name, size, "%s", REDACTED);
}

static int add_machine(struct maker *k, struct err *err)
{
    struct machine_description *d = malloc(sizeof(*d));
    k->machine = malloc(DESCRIPTION_MAX_SIZE);
    int code = d && k->machine ? 0 : err_set(err, -ENOMEM, "no memory for machine.dtb");
    if (!code && !k->wish->redact) {
        memcpy(k->machine, k->o->rec.machine, k->o->rec.machine_size);
        k->machine_size = k->o->rec.machine_size;
    } else if (!code) {
        *d = k->o->desc;
        hide(d->kernel_name, sizeof(d->kernel_name));
        for (unsigned i = 0; i < DESCRIPTION_DISKS; i++)
            hide(d->disk[i].path, sizeof(d->disk[i].path));
        for (unsigned i = 0; i < DESCRIPTION_SHARES; i++)
            hide(d->share[i].path, sizeof(d->share[i].path));
        hide(d->from, sizeof(d->from));
        for (unsigned i = 0; i < DESCRIPTION_NETS; i++)
            hide(d->net[i].backend, sizeof(d->net[i].backend));
        for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
            hide(d->port[i].backend, sizeof(d->port[i].backend));
        code = description_write(d, k->machine, &k->machine_size, err);
        if (!code)
            code = manifest_leave_out(
                pack_writer_manifest(k->w), err,
                "names of the files, directories and networks that it was made from");
    }
    free(d);
    return code ? code : pack_add(k->w, "machine.dtb", k->machine, k->machine_size, err);
}

/* ---- the log ---- */

static int name_piece(struct maker *k, const struct hash128 *hash, struct err *err)
{
    if (k->nnamed == k->room) {
        size_t room = k->room ? k->room * 2 : 1024;
        struct hash128 *more = realloc(k->named, room * sizeof(*more));
        if (!more)
            return err_set(err, -ENOMEM, "no memory for the names of contents");
        k->named = more;
        k->room = room;
    }
    k->named[k->nnamed++] = *hash;
    return 0;
}

static void count(struct pack_kept *n, const struct record *rec)
{
    switch (rec->type) {
    case REC_CONSOLE: n->typed += rec->console.data.len; break;
    case REC_EVENTS: n->events += rec->events.data.len / 8; break;
    case REC_PORT: n->port_bytes += rec->port.data.len; break;
    case REC_SHARE: n->names += rec->share.data.len; break;
    case REC_GPU: n->gpu_bytes += rec->gpu.data.len; break;
    case REC_GENERATION:
    case REC_RESEED: n->seeds++; break;
    case REC_CONTENT:
        n->pieces++;
        n->content_bytes += rec->content.size;
        break;
    case REC_PACKET:
        n->frames++;
        n->frame_bytes += rec->packet.data.len;
        break;
    default: break;
    }
}

/* Without remarks and what a replay does not read, and of the machine as it goes in. */
static int put_record(struct maker *k, struct log_writer *out, const struct record *rec,
                      struct err *err)
{
    struct record copy = *rec;
    if (rec->type == REC_NOTE || rec->type == REC_MARK || rec->type == REC_REACHED ||
        rec->type == REC_KEPT)
        return 0;
    if (rec->type == REC_CUT)
        copy.cut.why = (struct log_bytes){sizeof(REDACTED) - 1, (const u8 *)REDACTED};
    if (rec->type == REC_START)
        copy.start.machine = hash_bytes(k->machine, k->machine_size);
    return log_add(out, &copy, err);
}

/* Goes through the log; `out` NULL: to look only. */
static int each_record(struct maker *k, struct log_writer *out, struct err *err)
{
    struct record rec;
    int code = 0;
    log_rewind(k->o->log);
    while (!code && log_next(k->o->log, &rec)) {
        count(k->kept, &rec);
        if (rec.type == REC_CONTENT)
            code = name_piece(k, &rec.content.hash, err);
        else if (rec.type == REC_KEPT && !k->wish->redact)
            code = name_piece(k, &rec.kept.hash, err);
        if (!code && out)
            code = put_record(k, out, &rec, err);
    }
    return code;
}

static int add_redacted_log(struct maker *k, struct err *err)
{
    struct log_writer *out;
    struct err closing;
    struct blob file = BLOB_CLOSED;
    int fd = fcntl(k->wish->scratch, F_DUPFD_CLOEXEC, 0);
    int code = fd < 0 ? err_errno(err, "no file for the log") : log_writer_create(&out, fd, err);
    if (code)
        return code;
    code = each_record(k, out, err);
    if (log_writer_close(out, &closing) && !code) {
        *err = closing;
        code = err->code;
    }
    file.fd = k->wish->scratch; /* the caller's */
    if (!code)
        code = pack_add_blob(k->w, "log", &file, err);
    return code ? code
                : manifest_leave_out(pack_writer_manifest(k->w), err,
                                     "notes of the log: date, host, command; marks");
}

static int add_log(struct maker *k, struct err *err)
{
    if (k->wish->redact)
        return add_redacted_log(k, err);
    int code = each_record(k, NULL, err);
    if (!code)
        code = add(k, "log", err);
    return code ? code : add(k, LOG_TAIL_NAME, err);
}

/* ---- files, contents, checkpoints ---- */

static int add_kept(struct maker *k, const u8 *hash, u64 size, const char *what, struct err *err)
{
    char name[sizeof("files/") + HASH_TEXT] = "files/";
    struct hash128 h = description_hash128(hash);
    void *data;
    int code = recording_load(&k->o->rec, &h, size, what, &data, err);
    if (code)
        return code;
    hash_text(&h, name + sizeof("files/") - 1);
    code = pack_add(k->w, name, data, size, err);
    free(data);
    return code;
}

static int by_value(const void *a, const void *b)
{
    const struct hash128 *x = a, *y = b;
    return x->hi != y->hi ? (x->hi > y->hi) - (x->hi < y->hi) : (x->lo > y->lo) - (x->lo < y->lo);
}

static bool is_named(void *opaque, const struct hash128 *hash)
{
    const struct maker *k = opaque;
    return k->all_pieces ||
           (k->nnamed && bsearch(hash, k->named, k->nnamed, sizeof(*hash), by_value));
}

static int put_piece(void *opaque, const void *data, size_t len, struct err *err)
{
    return pack_put(((struct maker *)opaque)->w, data, len, err);
}

static int add_contents(struct maker *k, struct err *err)
{
    u64 left;
    struct manifest *m = pack_writer_manifest(k->w);
    if (!k->o->rec.contents)
        return 0;
    qsort(k->named, k->nnamed, sizeof(*k->named), by_value);
    /* A signature is of all that is there. */
    k->all_pieces = !k->wish->redact && recording_has(&k->o->rec, SIGNATURE_NAME);
    int code = pack_begin(k->w, CONTENTS_NAME, err);
    if (!code)
        code = contents_copy(k->o->rec.contents, is_named, put_piece, k, &left, err);
    if (!code)
        code = pack_end(k->w, err);
    if (!code && left)
        code = manifest_leave_out(m, err, "%llu pieces of files that its replay does not read",
                                  (unsigned long long)left);
    return code;
}

static int add_checkpoints(struct maker *k, struct err *err)
{
    char name[32];
    int code = 0;
    for (u32 n = 0; !code; n++) {
        snprintf(name, sizeof(name), CHECKPOINT_DIR "/%06u", n);
        if (!recording_has(&k->o->rec, name))
            break;
        if (!k->wish->checkpoints)
            return leave_out(k, name, "checkpoints, which `reprise checkpoint` makes", err);
        code = add(k, name, err);
    }
    return code;
}

/* What is said to be in the log or beside it goes with the rest, or not. */
static int add_sayings(struct maker *k, struct err *err)
{
    if (!k->wish->redact) {
        int code = add(k, GPU_LOG_NAME, err);
        if (!code)
            code = add(k, SIGNATURE_NAME, err);
        return code ? code : add(k, "marks", err);
    }
    int code = leave_out(k, GPU_LOG_NAME, "gpu.log, which `reprise gpu extract` makes", err);
    if (!code)
        code =
            leave_out(k, SIGNATURE_NAME, "the signature, which is of the recording as it was", err);
    return code;
}

int pack_recording(struct pack_writer *w, struct opened *o, const struct pack_wish *wish,
                   struct pack_kept *kept, struct err *err)
{
    const struct machine_description *d = &o->desc;
    struct maker k = {.w = w, .o = o, .wish = wish, .kept = kept};
    *kept = (struct pack_kept){.command_line = d->append[0]};
    int code = add_machine(&k, err);
    if (!code)
        code = add_kept(&k, d->kernel_hash, d->kernel_size, "kernel", err);
    if (!code && d->initrd_size)
        code = add_kept(&k, d->initrd_hash, d->initrd_size, "initrd", err);
    if (!code)
        code = add_log(&k, err);
    if (!code)
        code = add_contents(&k, err);
    if (!code)
        code = add_sayings(&k, err);
    if (!code)
        code = add_checkpoints(&k, err);
    if (!code)
        code = leave_out(&k, "screens", "pictures of its screen", err);
    if (!code && wish->ndisks)
        code = pack_disks(w, wish->disk, wish->ndisks, wish->disks, err);
    free(k.named);
    free(k.machine);
    return code;
}
