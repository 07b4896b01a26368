/*
 * `reprise pack`: a recording and all that its replay needs as one file (replay/pack.h). Which
 * blocks of its disks those are only a replay knows, so it is replayed where it has disks. And
 * `record -o FILE.reprise`: a recording that is packed when it has ended.
 */
#define _GNU_SOURCE /* memfd_create */
#include "cmd/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/interrupt.h"
#include "cmd/travel.h"
#include "replay/disk_sources.h"
#include "replay/pack_make.h"
#include "replay/timeline.h"

enum { O_CHECKPOINTS = 256, O_REDACT, O_DISKS, O_FORCE, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "The packed recording, by custom FILE.reprise (required)", 0},
    {"disks", O_DISKS, "WHAT", 0, "Of the disks' images: read, what the replay reads, which is found by replaying (default); all, so that others can go on in it; none, each replay needs the images", 0},
    {"checkpoints", O_CHECKPOINTS, NULL, 0, "With its checkpoints", 0},
    {"redact", O_REDACT, NULL, 0, "Without what a replay can do without: notes (host, command, date), names of files, directories and networks, marks, signature, checkpoints, screens, gpu.log, files kept for gdb. What was typed, received and read stays, as without it the replay would be another; how much is said. What the guest sent and showed is in no pack, and each replay makes it again", 0},
    {"force", O_FORCE, NULL, 0, "Replace FILE", 0},
    {"json", O_JSON, NULL, 0, "What was packed, as JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Packs a recording into one file: kernel, initrd, log, contents of shared files, the blocks of "
    "its disks that are read, each once, compressed, with hashes of all. Every command takes that "
    "FILE where it takes a directory. `tar tvf FILE` lists it, `reprise unpack` makes a directory "
    "of it again, `reprise verify` checks it. The recording stays as it is.\v"
    "Exit codes: 0 packed; 1 error, nothing was written; 2 wrong usage; 3 the replay that finds "
    "the "
    "disks' blocks differs from the recording; nothing was written; 4 packed, and the log is cut "
    "off or damaged: up to there.";

struct pack_args {
    const char *dir, *output;
    enum pack_disk disks;
    bool checkpoints, redact, force, json;
    struct disk_names names;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct pack_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->names; break;
    case 'o': a->output = arg; break;
    case O_CHECKPOINTS: a->checkpoints = true; break;
    case O_REDACT: a->redact = true; break;
    case O_DISKS:
        for (a->disks = 0; a->disks < ARRAY_SIZE(pack_disk_names); a->disks++)
            if (!strcmp(arg, pack_disk_names[a->disks]))
                return 0;
        argp_error(state, "--disks: '%s' is none of read, all, none", arg);
        break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (!a->output || !*a->output)
            argp_error(state, "-o FILE is missing: where to?");
        if (a->redact && a->checkpoints)
            argp_error(state, "--redact leaves out checkpoints: they have the guest's memory");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- what is said of it ---- */

static void say_kept(const struct pack_kept *k)
{
    const struct {
        u64 n;
        const char *what;
    } rows[] = {
#define X(field, name, what) {k->field, what},
        PACK_KEPT(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].n)
            printf("still in it: %" PRIu64 " %s\n", rows[i].n, rows[i].what);
    if (k->command_line)
        puts("still in it: the kernel's command line");
    puts("still in it: kernel and initrd, with what was added to it; the clock it began by, the "
         "seed");
    puts("Its replay needs these, and shows again all that the guest put out.");
}

static void say(const struct pack_args *a, const struct manifest *m, const struct pack_kept *kept,
                u64 bytes)
{
    char packed[32], raw[32];
    u64 all = 0;
    for (u32 i = 0; i < m->n; i++)
        all += m->file[i].size;
    if (!a->json) {
        printf("%s: %s, of %s in %u files\n", a->output, text_bytes(bytes, packed),
               text_bytes(all, raw), m->n);
        for (unsigned i = 0; i < m->ndisks; i++)
            printf("disk %u: %s of it (%s)\n", i, text_bytes(m->disk_bytes[i], raw),
                   pack_disk_names[m->disk[i]]);
        for (const char *p = m->left_out; p && *p; p += strcspn(p, "\n") + 1)
            printf("left out: %.*s\n", (int)strcspn(p, "\n"), p);
        if (a->redact)
            say_kept(kept);
        return;
    }
    fputs("{\"file\":", stdout);
    json_text(stdout, a->output);
    printf(",\"bytes\":%" PRIu64 ",\"raw_bytes\":%" PRIu64 ",\"files\":%u,\"disks\":[", bytes, all,
           m->n);
    for (unsigned i = 0; i < m->ndisks; i++)
        printf("%s{\"what\":\"%s\",\"bytes\":%" PRIu64 "}", i ? "," : "",
               pack_disk_names[m->disk[i]], m->disk_bytes[i]);
    fputs("],\"left_out\":[", stdout);
    for (const char *p = m->left_out, *comma = ""; p && *p;
         p += strcspn(p, "\n") + 1, comma = ",") {
        char line[256];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(p, "\n"), p);
        fputs(comma, stdout);
        json_text(stdout, line);
    }
    fputs("],\"kept\":{", stdout);
#define X(field, name, what) printf("\"" name "\":%" PRIu64 ",", kept->field);
    PACK_KEPT(X)
#undef X
    printf("\"command_line\":%s}}\n", kept->command_line ? "true" : "false");
}

/* ---- packing ---- */

/* Behind the door. An exit code. */
static int write_pack(const struct pack_args *a, struct opened *o, const struct pack_wish *wish,
                      struct output_file *file)
{
    struct pack_writer *w;
    struct pack_kept kept;
    struct err err = {0};
    u64 bytes;
    int code = pack_writer_create(&w, fileno(file->file), a->output, &err);
    if (code)
        return cmd_fail(&err);
    code = pack_recording(w, o, wish, &kept, &err);
    if (!code)
        code = pack_finish(w, &bytes, &err);
    if (!code)
        code = output_commit(file, &err);
    if (!code)
        say(a, pack_writer_manifest(w), &kept, bytes);
    pack_writer_destroy(w);
    if (code) {
        cmd_fail(&err);
        return EX_ERROR;
    }
    if (log_damage(o->log)->state == CHUNKS_COMPLETE)
        return EX_FINE;
    fprintf(stderr, "reprise: packed; the recording ends early: %s\n", log_damage(o->log)->text);
    return EX_DAMAGE;
}

/* Replays, to see what is read of the disks. */
static int pack_replayed(const struct pack_args *a, struct pack_wish *wish,
                         struct output_file *file)
{
    struct disk *disks[DESCRIPTION_DISKS];
    struct opened again;
    struct travel tr;
    struct err err = {0};
    const struct point end = {.kind = POINT_END};
    enum timeline_stop stop;
    const struct travel_with with = {.named = &a->names.where, .from_start = true, .once = true};
    interrupt_catch();
    int code = travel_open(&tr, a->dir, &with, &err);
    for (; !code && wish->ndisks < description_disks(&timeline_recording(tr.t)->desc);
         wish->ndisks++) {
        struct disk *d = timeline_disk(tr.t, wish->ndisks);
        disks[wish->ndisks] = d;
        d->reads = disk_reads_create(d->size);
        if (!d->reads)
            code = err_set(&err, -ENOMEM, "no memory for what is read of the disks");
    }
    if (!code)
        code = travel_to(&tr, &end, &stop, &err);
    int result = code ? cmd_fail(&err) : travel_end_code(&tr);
    if (result == EX_DIVERGED || (result == EX_ERROR && !code))
        fprintf(stderr, "reprise: nothing was packed: %s\n", timeline_end_text(tr.t));
    if (result == EX_FINE || result == EX_DAMAGE) {
        wish->disk = disks;
        code = open_recording(&again, a->dir, &err);
        result = code ? cmd_fail(&err) : write_pack(a, &again, wish, file);
        if (!code)
            close_recording(&again);
    }
    travel_close(&tr);
    return result;
}

/* No machine has to run. */
static int pack_still(const struct pack_args *a, struct opened *o, struct pack_wish *wish,
                      struct output_file *file)
{
    struct disk *disks[DESCRIPTION_DISKS];
    struct err err = {0};
    sandbox_plan(SANDBOX_READ);
    o->named = &a->names.where;
    wish->disk = disks;
    int code = description_disks(&o->desc) ? disk_sources_open(o, disks, &wish->ndisks, &err) : 0;
    if (!code)
        code = sandbox_enter(&err);
    if (!code)
        code = recording_open_log(&o->rec, &o->log, &err);
    return code ? cmd_fail(&err) : write_pack(a, o, wish, file);
}

static int pack(const struct pack_args *a)
{
    struct pack_wish wish = {
        .checkpoints = a->checkpoints, .redact = a->redact, .disks = a->disks, .scratch = -1};
    struct output_file file = OUTPUT_CLOSED;
    struct opened o;
    struct err err = {0};
    int result = EX_ERROR, code = output_open(&file, a->output, a->force, &err);
    if (!code && a->redact && (wish.scratch = memfd_create("log", MFD_CLOEXEC)) < 0)
        code = err_errno(&err, "no memory for the log");
    if (!code)
        code = find_recording(&o, a->dir, &err);
    if (code) {
        cmd_fail(&err);
    } else if (description_disks(&o.desc) && a->disks != PACK_DISK_ALL) {
        close_recording(&o);
        result = pack_replayed(a, &wish, &file);
    } else {
        result = pack_still(a, &o, &wish, &file);
        close_recording(&o);
    }
    if (wish.scratch >= 0)
        close(wish.scratch);
    output_discard(&file);
    return result;
}

int cmd_pack(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = disk_option_children};
    struct pack_args a = {.disks = PACK_DISK_READ};
    option_parse(&argp, argc, argv, &a);
    return pack(&a);
}
