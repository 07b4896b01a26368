/*
 * Fuzz target: whole recordings that were forged with every checksum right, opened as commands do
 * it, on the real machine: replayed and compared, moved about in, printed. An input seeds what is
 * forged: records of the log, the machine's description, checkpoints (the machine's saved state
 * too), the kernel, or any byte. FUZZ_RECORDINGS names the recordings that it begins with,
 * separated by colons.
 *
 * What must hold: nothing aborts; no run goes on past what its positions allow; and a log that
 * replays without a difference is one of which `diff` says that it is the same, or in what not.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libfdt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "checkpoint_edit.h"
#include "tests/splitmix.h"
#include "mutate.h"
#include "replay/diff.h"
#include "replay/timeline.h"

#define BASES       16
#define RECORDS     4096
#define TAKES_MAX   20000  /* the host is looked at so often at most */
#define BEYOND      300000 /* positions after the recording's end that a run may take */
#define CHECKPOINTS 64

struct base {
    char path[300];
    pos_t end;
};

static struct base bases[BASES];
static unsigned nbases;
static char where[] = "/dev/shm/reprise-forged-XXXXXX", forged[300];
static u64 state; /* of the generator */
static FILE *nowhere;

static u32 draw(u32 below)
{
    return (u32)(splitmix64(&state) % below);
}

static u64 odd_number(u64 near)
{
    static const u64 odd[] = {0,          1,          0x7fffffff,     0xffffffff,
                              1ull << 32, 1ull << 40, 1ull << 61,     1ull << 62,
                              1ull << 63, INT64_MAX,  UINT64_MAX - 1, UINT64_MAX};
    switch (draw(4)) {
    case 0: return odd[draw(ARRAY_SIZE(odd))];
    case 1: return near + draw(2000) - 1000;
    case 2: return near ^ 1ull << draw(64);
    default: return near + 1 - draw(3);
    }
}

static void odd_bytes(u8 *p, size_t n)
{
    for (unsigned k = 1 + draw(3); n && k; k--) {
        size_t at = draw((u32)n);
        u64 v = 0;
        size_t wide = (size_t)1 << draw(4);
        wide = MIN(wide, n - at);
        memcpy(&v, p + at, wide);
        v = draw(3) ? odd_number(v) : (u64)draw(256) * 0x0101010101010101ull;
        memcpy(p + at, &v, wide);
    }
}

/* ---- files ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void *read_file(const char *path, size_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    u8 *data = malloc((size_t)st.st_size + 1);
    *size = (size_t)st.st_size;
    if (read(fd, data, *size) != (ssize_t)*size)
        abort();
    close(fd);
    return data;
}

static void write_file(const char *path, const void *data, size_t size)
{
    unlink(path); /* it may be a link to the original */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
}

/* Into the memory file system, once; from there by links. */
static void copy_tree(const char *from, const char *to, bool links)
{
    char a[600], b[600];
    DIR *d = opendir(from);
    if (!d || mkdir(to, 0700)) {
        perror(from);
        exit(1);
    }
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        snprintf(a, sizeof(a), "%s/%s", from, e->d_name);
        snprintf(b, sizeof(b), "%s/%s", to, e->d_name);
        if (lstat(a, &st))
            abort();
        if (S_ISDIR(st.st_mode)) {
            copy_tree(a, b, links);
        } else if (links) {
            if (link(a, b))
                abort();
        } else {
            size_t size;
            void *data = read_file(a, &size);
            write_file(b, data, size);
            free(data);
        }
    }
    closedir(d);
}

static const char *in_forged(const char *name)
{
    static char path[700];
    snprintf(path, sizeof(path), "%s/%s", forged, name);
    return path;
}

/* ---- the log ---- */

static struct record list[RECORDS];
static u8 *copies[RECORDS];

/* Where a field's bytes are, and how many; NULL: it has none. */
static const u8 **bytes_of(struct record *rec, const struct record_field *f, u32 *n)
{
    void *field = (u8 *)rec + f->offset;
    struct log_bytes *b = field;
    struct log_digests *d = field;
    struct log_runs *r = field;
    switch (f->kind) {
    case FIELD_bytes:
    case FIELD_text: *n = b->len; return &b->data;
    case FIELD_digests: *n = 8 * d->count; return &d->data;
    case FIELD_runs: *n = r->size; return &r->data;
    default: return NULL;
    }
}

/* Its bytes go with the reader's chunk: copied. */
static void keep_bytes(struct record *rec, u32 i)
{
    const struct record_desc *desc = record_desc(rec->type);
    u32 all = 0, n;
    for (size_t k = 0; desc && k < desc->nfields; k++)
        all += bytes_of(rec, &desc->fields[k], &n) ? n : 0;
    u8 *to = copies[i] = malloc(all + 1);
    for (size_t k = 0; desc && k < desc->nfields; k++) {
        const u8 **from = bytes_of(rec, &desc->fields[k], &n);
        if (!from)
            continue;
        if (n)
            memcpy(to, *from, n);
        *from = to;
        to += n;
    }
}

static u32 read_log(const char *path)
{
    struct log_reader *log;
    struct err err;
    u32 n = 0;
    if (log_reader_create(&log, open(path, O_RDONLY | O_CLOEXEC), &err))
        return 0;
    while (n < RECORDS && log_next(log, &list[n])) {
        keep_bytes(&list[n], n);
        n++;
    }
    log_reader_destroy(log);
    return n;
}

/* One record of one that was read. Host times and remarks are no part of a replay: left alone. */
static void forge_record(struct record *rec)
{
    struct log_bytes *b = record_input_bytes(rec);
    switch (draw(6)) {
    case 0: rec->position = odd_number(rec->position); break;
    case 1: rec->time = odd_number(rec->time); break;
    case 2: /* its fields */
        if (rec->type == REC_PROGRESS && rec->progress.components.count)
            odd_bytes((u8 *)(uintptr_t)rec->progress.components.data,
                      8 * rec->progress.components.count);
        else if (rec->type == REC_END && draw(2))
            rec->end.arg = odd_number(rec->end.arg);
        else if (rec->type == REC_END)
            rec->end.reason = draw(14);
        else if (rec->type == REC_RAM)
            odd_bytes((u8 *)(uintptr_t)rec->ram.regions.data, rec->ram.regions.size);
        else if (record_input(rec, NULL))
            rec->quit.cpu = odd_number(rec->quit.cpu);
        break;
    case 3: /* its unit or argument, whatever it is: the second field */
        if (record_input(rec, NULL) && !b)
            rec->link.unit = odd_number(rec->link.unit);
        else if (rec->type == REC_PLACE)
            rec->place.ns = odd_number(rec->place.ns);
        else if (rec->type == REC_PROGRESS)
            rec->progress.console = odd_number(rec->progress.console);
        else if (rec->type == REC_END)
            rec->end.ram = odd_number(rec->end.ram);
        break;
    default:
        if (b && b->len)
            odd_bytes((u8 *)(uintptr_t)b->data, b->len);
        else
            rec->position = odd_number(rec->position);
    }
}

static void forge_log(void)
{
    u32 n = read_log(in_forged("log"));
    for (unsigned k = 1 + draw(3); n > 1 && k; k--) {
        u32 i = 1 + draw(n - 1), j = 1 + draw(n - 1);
        switch (draw(10)) {
        case 0: /* gone */
            free(copies[i]);
            memmove(list + i, list + i + 1, (n - i - 1) * sizeof(*list));
            memmove(copies + i, copies + i + 1, (n - i - 1) * sizeof(*copies));
            n--;
            break;
        case 1: { /* two change places */
            struct record r = list[i];
            u8 *c = copies[i];
            list[i] = list[j], copies[i] = copies[j];
            list[j] = r, copies[j] = c;
            break;
        }
        case 2: /* twice */
            if (n < RECORDS) {
                memmove(list + i + 1, list + i, (n - i) * sizeof(*list));
                memmove(copies + i + 1, copies + i, (n - i) * sizeof(*copies));
                list[i] = list[i + 1];
                keep_bytes(&list[i], i);
                n++;
            }
            break;
        case 3: /* of another kind, at that place */
            if (n < RECORDS) {
                static const u64 kinds[] = {
#define INPUT(NAME, ...) REC_##NAME,
#include "dev/inputs.def"
#undef INPUT
                };
                struct record r = {.position = list[i].position, .time = list[i].time};
                memmove(list + i + 1, list + i, (n - i) * sizeof(*list));
                memmove(copies + i + 1, copies + i, (n - i) * sizeof(*copies));
                r.type = kinds[draw(ARRAY_SIZE(kinds))];
                copies[i] = calloc(1, 2048);
                struct log_bytes *b = record_input_bytes(&r);
                if (b)
                    *b = (struct log_bytes){r.type == REC_PLACE ? 32 : 1 + draw(64), copies[i]};
                if (b)
                    odd_bytes(copies[i], b->len);
                if (r.type == REC_QUIT)
                    r.quit.why = draw(10);
                list[i] = r;
                n++;
            }
            break;
        case 4: /* cut */
            while (n > i)
                free(copies[--n]);
            break;
        default: forge_record(&list[i]); break;
        }
    }
    struct log_writer *w;
    struct err err;
    unlink(in_forged("log"));
    int fd = open(in_forged("log"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || log_writer_create(&w, fd, &err))
        abort();
    /* The writer takes only what goes forwards. */
    struct record before = {.position = 0};
    for (u32 i = 0; i < n; i++) {
        struct record r = list[i];
        r.position = MAX(r.position, before.position);
        r.time = MAX(r.time, before.time);
        if (log_add(w, &r, &err))
            break;
        before = r;
    }
    log_flush(w, true, &err);
    log_writer_close(w, &err);
    for (u32 i = 0; i < n; i++)
        free(copies[i]);
}

/* ---- the rest ---- */

/* After the machine's description was changed: the log belongs to it again. */
static void tie_log(void)
{
    size_t size;
    void *dtb = read_file(in_forged("machine.dtb"), &size);
    u32 n = read_log(in_forged("log"));
    struct log_writer *w;
    struct err err;
    if (!dtb || !n) {
        free(dtb);
        return;
    }
    list[0].start.machine = hash_bytes(dtb, size);
    unlink(in_forged("log"));
    if (log_writer_create(&w, open(in_forged("log"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600),
                          &err))
        abort();
    for (u32 i = 0; i < n && !log_add(w, &list[i], &err); i++)
        ;
    log_flush(w, true, &err);
    log_writer_close(w, &err);
    for (u32 i = 0; i < n; i++)
        free(copies[i]);
    free(dtb);
}

/* The value of any property, or of the one that is named. */
static void *property(void *dtb, const char *named, int *len)
{
    unsigned count = 0, wanted = draw(60);
    for (int pass = 0; pass < 2; pass++) {
        for (int node = 0, depth = 0; node >= 0; node = fdt_next_node(dtb, node, &depth)) {
            int at;
            fdt_for_each_property_offset(at, dtb, node)
            {
                const char *name;
                const void *value = fdt_getprop_by_offset(dtb, at, &name, len);
                if (named ? !strcmp(name, named) : pass && count++ == wanted)
                    return (void *)(uintptr_t)value;
                if (!pass)
                    count++;
            }
        }
        if (!pass)
            wanted %= count ? count : 1, count = 0;
    }
    return NULL;
}

static void put_machine(void *dtb, size_t size)
{
    fdt_setprop_inplace_u64(dtb, 0, "checksum", 0);
    fdt_setprop_inplace_u64(dtb, 0, "checksum", XXH3_64bits(dtb, size));
    write_file(in_forged("machine.dtb"), dtb, size);
    free(dtb);
    tie_log();
}

static void forge_machine(void)
{
    size_t size;
    int len;
    void *dtb = read_file(in_forged("machine.dtb"), &size);
    for (unsigned k = 1 + draw(2); k; k--) {
        u8 *value = property(dtb, NULL, &len);
        if (value && len > 0)
            odd_bytes(value, (size_t)len);
    }
    put_machine(dtb, size);
}

static void forge_kernel(void)
{
    size_t size, kernel_size;
    char name[HASH_TEXT + 8];
    u8 *dtb = read_file(in_forged("machine.dtb"), &size);
    struct machine_description d;
    struct err err;
    if (description_read(dtb, size, &d, &err))
        abort();
    struct hash128 hash = description_hash128(d.kernel_hash);
    strcpy(name, "files/");
    hash_text(&hash, name + 6);
    u8 *kernel = read_file(in_forged(name), &kernel_size);
    odd_bytes(kernel, draw(2) ? MIN(kernel_size, (size_t)4096) : kernel_size);
    hash = hash_bytes(kernel, kernel_size);
    hash_text(&hash, name + 6);
    write_file(in_forged(name), kernel, kernel_size);
    free(kernel);
    u8 *value = NULL;
    for (size_t at = 0; at + 16 <= size && !value; at++)
        if (!memcmp(dtb + at, d.kernel_hash, 16))
            value = dtb + at;
    if (!value)
        abort();
    description_hash(NULL, 0, d.kernel_hash);
    for (unsigned i = 0; i < 8; i++) {
        value[i] = (u8)(hash.hi >> (56 - 8 * i));
        value[8 + i] = (u8)(hash.lo >> (56 - 8 * i));
    }
    put_machine(dtb, size);
}

static void forge_header(struct checkpoint_edit *e)
{
    u8 *from = (u8 *)&e->h.machine, *to = (u8 *)&e->h.header_check;
    switch (draw(6)) {
    case 0: odd_bytes(from, (size_t)(to - from)); break;
    case 1:
        e->h.position = odd_number(e->h.position);
        e->h.time = odd_number(e->h.time);
        break;
    case 2: odd_bytes(e->meta, e->raw); break;
    default: odd_bytes(e->meta, MIN(e->h.state_size, e->raw)); break;
    }
}

/* Header or packed part of one checkpoint; the ones after it say that they follow it. */
static void forge_checkpoint(void)
{
    char name[32];
    unsigned count = 0;
    struct stat st;
    for (; count < CHECKPOINTS; count++) {
        snprintf(name, sizeof(name), "checkpoints/%06u", count);
        if (stat(in_forged(name), &st))
            break;
    }
    if (!count)
        return;
    unsigned which = draw(count);
    u64 parent = 0;
    for (unsigned i = which; i < count; i++) {
        struct checkpoint_edit e;
        snprintf(name, sizeof(name), "checkpoints/%06u", i);
        if (!checkpoint_edit_open(&e, in_forged(name)))
            return;
        if (i > which)
            e.h.parent = parent;
        else
            forge_header(&e);
        parent = checkpoint_edit_close(&e, in_forged(name));
    }
}

static void forge_bytes(void)
{
    static const char *const names[] = {"log",
                                        "machine.dtb",
                                        "marks",
                                        "gpu.log",
                                        "contents",
                                        "checkpoints/000000",
                                        "checkpoints/000001"};
    size_t size;
    const char *name = names[draw(ARRAY_SIZE(names))];
    u8 *data = read_file(in_forged(name), &size);
    if (data) {
        odd_bytes(data, size);
        write_file(in_forged(name), data, draw(4) ? size : draw((u32)size + 1));
    }
    free(data);
}

/* ---- what is done with it ---- */

/* A player's source that is given up after so many questions. */
struct patience {
    struct input_source src, *of;
    u32 takes;
    bool lost, between; /* given up; while the guest stood between two positions */
};

static pos_t patient_next(struct input_source *src, struct machine *m)
{
    struct patience *p = (struct patience *)src;
    return p->of->ops->next_position(p->of, m);
}

static int patient_take(struct input_source *src, struct machine *m, struct input *in,
                        struct err *err)
{
    struct patience *p = (struct patience *)src;
    if (++p->takes > TAKES_MAX) {
        p->lost = true;
        return err_set(err, -ETIME, "too long");
    }
    return p->of->ops->take(p->of, m, in, err);
}

static int patient_idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                        struct err *err)
{
    struct patience *p = (struct patience *)src;
    return p->of->ops->idle(p->of, m, deadline, until, err);
}

static int patient_between(struct input_source *src, struct machine *m, struct input *in,
                           struct err *err)
{
    struct patience *p = (struct patience *)src;
    if ((p->takes += 1000) > TAKES_MAX) {
        p->lost = p->between = true;
        return err_set(err, -ETIME, "too long");
    }
    return p->of->ops->between(p->of, m, in, err);
}

static const struct input_source_ops patient_ops = {patient_next, patient_take, patient_idle,
                                                    patient_between, NULL};

static unsigned opened, same, diverged, damaged, failed, moved;
/* Given up: the log asked for too many looks, at places or between two; the run went on. */
static unsigned looks, betweens, beyond;

static void print_all(void)
{
    struct opened o;
    struct record rec;
    struct err err;
    if (open_recording(&o, forged, &err))
        return;
    while (log_next(o.log, &rec)) {
        record_print(nowhere, &rec, true);
        record_print_json(nowhere, &rec);
    }
    close_recording(&o);
}

/* What a replay follows, as text: no progress records, which are places to compare at, no remarks,
 * no host times. */
static char *meaning(struct log_reader *log)
{
    char *text;
    size_t size;
    struct record r;
    FILE *out = open_memstream(&text, &size);
    log_rewind(log);
    while (log_next(log, &r)) {
        if (r.type == REC_PROGRESS || r.type == REC_START || r.type >= RECORD_REMARKS)
            continue;
        if (r.type == REC_END)
            r.end.host_ns = 0;
        r.index = 0;
        record_print_json(out, &r);
        fputc('\n', out);
    }
    fclose(out);
    return text;
}

/* Of a log that replays like the recording it was forged from. */
static void must_be_named(const struct base *b)
{
    struct opened x, y;
    struct err err;
    struct log_difference d;
    if (open_recording(&x, b->path, &err) || open_recording(&y, forged, &err))
        abort();
    log_diff(x.log, y.log, &d);
    char *one = meaning(x.log), *other = meaning(y.log);
    if (!d.differ && strcmp(one, other)) {
        fprintf(stderr, "a forged log replays without a difference, and diff names none\n%s---\n%s",
                one, other);
        abort();
    }
    free(one);
    free(other);
    close_recording(&x);
    close_recording(&y);
}

/* false: it would go on for too long. */
static bool replay(const struct base *b)
{
    struct opened o;
    struct machine *m = NULL;
    struct player *p = NULL;
    struct err err = {0}, run_err = {0};
    struct run_end end = {0};
    struct patience patience = {.src = {&patient_ops}};
    struct run_limits limits = {.stop_at = b->end + BEYOND, .slice = draw(2) ? 0 : 1009};
    if (open_recording(&o, forged, &err))
        return false;
    opened++;
    if (!build_machine(&o, &m, &err)) {
        struct player_config config = {
            .log = o.log, .dir = o.quoted, .contents = o.rec.contents, .verify = draw(4) != 0};
        o.log = NULL;
        if (!player_create(&p, &config, m, &err)) {
            patience.of = player_source(p);
            machine_run(m, &patience.src, &limits, &end, &run_err);
            if (end.reason != RUN_STOP && !patience.lost)
                switch (player_finish(p, m, &end, &run_err, &err)) {
                case PLAYER_SAME:
                    same++;
                    must_be_named(b);
                    break;
                case PLAYER_DIVERGED: diverged++; break;
                case PLAYER_DAMAGE: damaged++; break;
                case PLAYER_ERROR: failed++; break;
                }
            else if (end.reason == RUN_STOP)
                beyond++;
            else
                *(patience.between ? &betweens : &looks) += 1;
        } else {
            failed++;
        }
        player_destroy(p);
        machine_destroy(m);
    } else {
        failed++;
    }
    bool go_on = m && !patience.lost && end.reason != RUN_STOP;
    close_recording(&o);
    return go_on;
}

static void travel(const struct base *b)
{
    struct timeline *t;
    struct err err;
    struct timeline_config config = {.memory = 512u << 20, .trust = true};
    enum timeline_stop stop;
    if (timeline_open(&t, forged, &config, &err))
        return;
    moved++;
    for (unsigned i = 0; i < 3; i++) {
        pos_t to = draw((u32)MIN(b->end + 1000, (pos_t)UINT32_MAX));
        if (timeline_seek(t, (struct instant){to, 0}, &stop, &err))
            break;
        timeline_step_back(t, &stop, &err);
        struct instant a = timeline_now(t);
        timeline_forward(t, (struct instant){a.position + 3, 0}, false, &stop, &err);
    }
    timeline_close(t);
}

/* ---- driver ---- */

static void report(void)
{
    remove_tree(where);
    printf(
        "opened %u: %u the same, %u diverged, %u cut short, %u refused; given up: %u at too many "
        "looks, %u at too many between two positions, %u far past the end; moved about in %u\n",
        opened, same, diverged, damaged, failed, looks, betweens, beyond, moved);
}

static void begin(void)
{
    char *names = getenv("FUZZ_RECORDINGS");
    if (!names || !*names) {
        fprintf(stderr, "fuzz_recording: FUZZ_RECORDINGS names no recordings\n");
        exit(1);
    }
    if (!mkdtemp(where) && !mkdtemp(strcpy(where, "/tmp/reprise-forged-XXXXXX")))
        abort();
    snprintf(forged, sizeof(forged), "%s/forged", where);
    nowhere = fopen("/dev/null", "w");
    atexit(report);
    names = strdup(names);
    for (char *at = strtok(names, ":"); at && nbases < BASES; at = strtok(NULL, ":")) {
        struct base *b = &bases[nbases++];
        struct opened o;
        struct log_summary summary;
        struct err err;
        snprintf(b->path, sizeof(b->path), "%s/base%u", where, nbases);
        copy_tree(at, b->path, false);
        if (open_recording(&o, b->path, &err)) {
            fprintf(stderr, "fuzz_recording: %s\n", err.text);
            exit(1);
        }
        log_summarise(o.log, &summary);
        b->end = summary.last_position;
        close_recording(&o);
    }
    free(names);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static void (*const ways[])(void) = {forge_log,     forge_log,        forge_log,
                                         forge_machine, forge_checkpoint, forge_checkpoint,
                                         forge_kernel,  forge_bytes};
    state = XXH3_64bits(data, size);
    const struct base *b = &bases[draw(nbases)];
    copy_tree(b->path, forged, true);
    ways[draw(ARRAY_SIZE(ways))]();
    if (!draw(6))
        forge_checkpoint();
    print_all();
    if (replay(b))
        travel(b);
    remove_tree(forged);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    begin();
    u8 *data = malloc(*size = 64);
    memset(data, 'R', 64);
    return data;
}
