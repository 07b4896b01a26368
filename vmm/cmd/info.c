/* `reprise info`: what a recording holds. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/cmd.h"
#include "cmd/notes.h"
#include "replay/pack.h"
#include "replay/point.h"

enum { O_JSON = 256 };

static const struct argp_option options[] = {
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};

static const char doc[] = "Prints what a recording holds: machine, kernel, how it ended, sizes, "
                          "and whether it is damaged. "
                          "The kept files are checked." EXIT_HELP;

struct info_args {
    const char *dir;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct info_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END: option_need_recording(state, &a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const char *state_name(enum chunk_state state)
{
    static const char *const names[] = {
        [CHUNKS_READING] = "reading",
        [CHUNKS_COMPLETE] = "complete",
        [CHUNKS_CUT] = "cut",
        [CHUNKS_KILLED] = "killed",
        [CHUNKS_TRUNCATED] = "truncated",
        [CHUNKS_DAMAGED] = "damaged",
    };
    return names[state];
}

static void hash_line(const u8 *bytes, char out[HASH_TEXT])
{
    struct hash128 h = description_hash128(bytes);
    hash_text(&h, out);
}

/* What the recorder noted for people (cmd/notes.h), in the log's order. */
static const struct {
    const char *what, *title;
} notes[] = {{NOTE_BEGAN, "recorded on"},
             {NOTE_HOST, "host"},
             {NOTE_COMMAND, "command"},
             {NOTE_PANIC, "panic"},
             {NOTE_LACKING, "hint"}};

#define NOTE_TEXT 4200 /* bytes that are shown of one */

static bool is_note(const struct record *rec, const char *what)
{
    return rec->type == REC_NOTE && rec->note.what.len == strlen(what) &&
           !memcmp(rec->note.what.data, what, rec->note.what.len);
}

static void note_text(const struct record *rec, char out[NOTE_TEXT])
{
    snprintf(out, NOTE_TEXT, "%.*s", (int)MIN(rec->note.text.len, NOTE_TEXT - 1),
             (const char *)rec->note.text.data);
}

/* The last note of that name; false: none. */
static bool find_note(const char *dir, const char *what, char out[NOTE_TEXT])
{
    struct opened o;
    struct record rec;
    struct err ignored;
    bool found = false;
    if (open_recording(&o, dir, &ignored))
        return false;
    while (log_next(o.log, &rec))
        if (is_note(&rec, what)) {
            note_text(&rec, out);
            found = true;
        }
    close_recording(&o);
    return found;
}

/* Each recording that this one begins in, the first one first. */
static void each_from(const char *dir, void (*fn)(const struct record *rec, bool first))
{
    struct opened o;
    struct record rec;
    struct err ignored;
    bool first = true;
    if (open_recording(&o, dir, &ignored))
        return;
    while (log_next(o.log, &rec))
        if (is_note(&rec, NOTE_FROM)) {
            fn(&rec, first);
            first = false;
        }
    close_recording(&o);
}

static void print_from(const struct record *rec, bool first)
{
    char text[NOTE_TEXT], shown[NOTE_TEXT];
    note_text(rec, text);
    printf("%-13s %s, at position %" PRIu64 " and %" PRIu64 " ns\n", first ? "begun from" : "then",
           text_printable(text, shown, sizeof(shown)), rec->position, rec->time);
}

static void print_from_json(const struct record *rec, bool first)
{
    char text[NOTE_TEXT];
    note_text(rec, text);
    fputs(first ? "" : ",", stdout);
    fputs("{\"recording\":", stdout);
    json_text(stdout, text);
    printf(",\"position\":%" PRIu64 ",\"time\":%" PRIu64 "}", rec->position, rec->time);
}

static void print_notes(const char *dir)
{
    for (size_t i = 0; i < ARRAY_SIZE(notes); i++) {
        char text[NOTE_TEXT], shown[NOTE_TEXT];
        if (find_note(dir, notes[i].what, text))
            printf("%-13s %s\n", notes[i].title, text_printable(text, shown, sizeof(shown)));
    }
    each_from(dir, print_from);
}

static void print_notes_json(const char *dir)
{
    bool first = true;
    fputs(",\"notes\":{", stdout);
    for (size_t i = 0; i < ARRAY_SIZE(notes); i++) {
        char text[NOTE_TEXT];
        if (!find_note(dir, notes[i].what, text))
            continue;
        printf("%s\"%s\":", first ? "" : ",", notes[i].what);
        json_text(stdout, text);
        first = false;
    }
    fputs("},\"descent\":[", stdout);
    each_from(dir, print_from_json);
    putchar(']');
}

/* What was added to a recording later: checkpoints and marks. */
struct additions {
    u32 checkpoints;
    u64 bytes;
    unsigned marks;
    u64 contents; /* bytes of what is kept of files that the guest read; 0: there is no such file */
};

static void count_mark(void *opaque, struct instant at, const char *name, size_t len)
{
    struct additions *a = opaque;
    (void)at;
    (void)name;
    (void)len;
    a->marks++;
}

static void find_additions(const struct opened *o, struct additions *a)
{
    struct err ignored;
    memset(a, 0, sizeof(*a));
    a->checkpoints = checkpoint_count(&o->rec, &a->bytes);
    marks_each(o->rec.path, count_mark, a, &ignored);
    if (!recording_size(&o->rec, CONTENTS_NAME, &a->contents))
        a->contents = 0;
}

/* Of "a|b": a if the value is 0 or "", else b; of a text without | all of it. */
static const char *choice(const char *text, bool value, int *len)
{
    size_t n = strcspn(text, "|");
    const char *at = value && text[n] ? text + n + 1 : text;
    *len = (int)strcspn(at, "|");
    return at;
}

/* A property's value, for people. false: there is none. */
static bool row_text(const struct machine_description *d, const struct description_row *r,
                     char *out, size_t size)
{
    static const u8 none[DESCRIPTION_HASH_SIZE];
    const void *field = (const u8 *)d + r->offset;
    const u8 *b = field;
    u64 value;
    switch (r->kind) {
    case DESCRIPTION_NUMBER:
    case DESCRIPTION_FLAG:
        value = description_number(d, r);
        if (r->arg && !strcmp(r->arg, "SIZE"))
            text_bytes(value, out);
        else
            snprintf(out, size, "%" PRIu64, value);
        return value;
    case DESCRIPTION_TEXT:
        text_printable(field, out, size);
        /* Of words that are said otherwise the first one is 0. */
        return r->values && !strchr(r->show, '%')
                   ? strncmp(field, r->values, strcspn(r->values, "|")) != 0
                   : *b;
    case DESCRIPTION_HASH: hash_line(field, out); return memcmp(field, none, sizeof(none));
    case DESCRIPTION_BYTES: break;
    }
    *out = 0;
    for (u32 i = 0; i < r->size && 3 * i + 3 < size; i++)
        snprintf(out + 3 * i - (i != 0), size - 3 * i, "%s%02x", i ? ":" : "", b[i]);
    return true;
}

/* What a row says on its line, appended to *line. false: nothing. */
static bool show_row(const struct machine_description *d, const struct description_row *r,
                     FILE *line)
{
    char value[sizeof(d->append)];
    int len;
    bool some = row_text(d, r, value, sizeof(value));
    const char *show = choice(r->show, some, &len);
    const char *at = memchr(show, '%', (size_t)len);
    if (!len)
        return false;
    if (at)
        fprintf(line, "%.*s%s%.*s", (int)(at - show), show, value, len - 1 - (int)(at - show),
                at + 1);
    else
        fprintf(line, "%.*s", len, show);
    return true;
}

/* The number at the end of the name of a node of which there are several; 0: it has none. */
static char node_number(const struct description_row *r)
{
    const char *name = description_node(r);
    char last = *name ? name[strlen(name) - 1] : 0;
    return last >= '0' && last <= '9' ? last : 0;
}

/* The line of that number, if there is what it is of. */
static void print_line(const struct machine_description *d, enum description_line line, char number)
{
    const char *name = description_line_label[line];
    char label[32], *text = NULL;
    size_t size;
    bool there = false, said = false;
    FILE *out = open_memstream(&text, &size);
    for (int first = 1; out && first >= 0; first--)
        for (size_t i = 0; i < description_row_count; i++) {
            const struct description_row *r = &description_rows[i];
            if (r->line != line || node_number(r) != number || r->first != first)
                continue;
            bool here = description_there(d, r);
            there |= here;
            if (here || !r->if_there)
                said |= show_row(d, r, out);
        }
    if (out)
        fclose(out);
    snprintf(label, sizeof(label), number ? "%s %c" : "%s", name, number);
    if (there && said && text)
        printf("%-13s %s\n", label, text);
    free(text);
}

static void print_machine(const struct machine_description *d)
{
    for (unsigned line = LINE_NONE + 1; line < LINE_COUNT; line++)
        for (char number = '0' - 1; number <= '9'; number++)
            print_line(d, (enum description_line)line, number < '0' ? 0 : number);
}

/* What code ran in: a line. */
static void print_modes(u64 modes)
{
    const char *sep = "code          ";
    for (unsigned i = 0; i < VCPU_MODES; i++)
        if (modes >> i & 1) {
            printf("%s%s", sep, vcpu_mode_name[i]);
            sep = ", ";
        }
    if (modes & ((1u << VCPU_MODES) - 1))
        putchar('\n');
}

static void print_text(const char *dir, const struct opened *o, const struct log_summary *s,
                       const char *files)
{
    struct additions added;
    char a[32], b[32], how[256];
    printf("recording     %s\n", dir);
    if (o->rec.pack)
        printf("packed        %s\n", text_bytes(pack_bytes(o->rec.pack), a));
    print_machine(&o->desc);
    if (s->has_end) {
        struct run_end end = {(enum run_reason)s->end_reason, (u32)s->end_arg};
        run_end_sentence(&end, false, how, sizeof(how));
    } else {
        snprintf(how, sizeof(how), "unknown: the log ends early");
    }
    printf("end           %s\n", how);
    print_modes(s->modes);
    print_notes(dir);
    printf("length        %" PRIu64 " positions, %s of virtual time, %s of host time\n",
           s->last_position, text_seconds(s->last_time, a), text_seconds(s->host_ns, b));
    printf("log           %s, %s unpacked, %u chunks, %" PRIu64 " records\n",
           text_bytes(s->file_bytes, a), text_bytes(s->raw_bytes, b), s->chunks, s->records);
    for (size_t i = 0; i < record_table_size; i++)
        if (s->counts[i])
            printf("                %-14s %" PRIu64 "\n", record_table[i].name, s->counts[i]);
    if (s->remarks)
        printf("                %-14s %" PRIu64 "\n", "unknown", s->remarks);
    find_additions(o, &added);
    if (added.contents)
        printf("contents      %s of files that the guest read\n", text_bytes(added.contents, a));
    if (added.checkpoints)
        printf("checkpoints   %u, %s\n", added.checkpoints, text_bytes(added.bytes, a));
    if (added.marks)
        printf("marks         %u\n", added.marks);
    printf("state         %s%s%s\n", state_name(s->damage.state), s->damage.text[0] ? ": " : "",
           s->damage.text);
    if (*files)
        printf("files         damaged: %s\n", files);
}

static void json_member(const char *name, const char *value)
{
    printf("\"%s\":", name);
    json_text(stdout, value);
    putchar(',');
}

/* What rows have a key for; what a machine has not is left out. */
static void print_machine_json(const struct machine_description *d)
{
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        char value[HASH_TEXT];
        const char *field = (const char *)d + r->offset;
        if (!r->json)
            continue;
        if (r->kind == DESCRIPTION_NUMBER)
            printf("\"%s\":%" PRIu64 ",", r->json, description_number(d, r));
        else if (r->kind == DESCRIPTION_FLAG)
            printf("\"%s\":%s,", r->json, description_number(d, r) ? "true" : "false");
        else if (r->kind == DESCRIPTION_TEXT && (*field || description_there(d, r)))
            json_member(r->json, field);
        else if (r->kind == DESCRIPTION_HASH && row_text(d, r, value, sizeof(value)))
            json_member(r->json, value);
    }
}

static void print_json(const char *dir, const struct opened *o, const struct log_summary *s,
                       const char *files)
{
    const struct machine_description *d = &o->desc;
    struct additions added;
    find_additions(o, &added);
    putchar('{');
    print_machine_json(d);
    json_member("end", s->has_end ? run_reason_name(s->end_reason) : "unknown");
    if (s->has_end && s->end_reason == RUN_QUIT)
        json_member("why", quit_reason_name(s->end_arg));
    json_member("state", state_name(s->damage.state));
    json_member("damage", s->damage.text);
    json_member("files_damage", files);
    printf("\"checkpoints\":%u,\"checkpoint_bytes\":%" PRIu64 ",\"marks\":%u,\"ports\":[",
           added.checkpoints, added.bytes, added.marks);
    for (unsigned i = 1; i < DESCRIPTION_PORTS && d->port[i].name[0]; i++) {
        fputs(i > 1 ? "," : "", stdout);
        json_text(stdout, d->port[i].name);
    }
    printf("],\"packed_bytes\":%" PRIu64 ",\"contents_bytes\":%" PRIu64 ",\"shares\":[",
           o->rec.pack ? pack_bytes(o->rec.pack) : 0, added.contents);
    for (unsigned i = 0; i < description_shares(d); i++) {
        fputs(i ? ",{" : "{", stdout);
        json_member("tag", d->share[i].tag);
        fputs("\"path\":", stdout);
        json_text(stdout, d->share[i].path);
        putchar('}');
    }
    fputs("],\"modes\":[", stdout);
    for (unsigned i = 0, n = 0; i < VCPU_MODES; i++)
        if (s->modes >> i & 1) {
            fputs(n++ ? "," : "", stdout);
            json_text(stdout, vcpu_mode_name[i]);
        }
    putchar(']');
    printf(",\"end_arg\":%" PRIu64 ",\"position\":%" PRIu64 ",\"time\":%" PRIu64
           ",\"host_ns\":%" PRIu64 ",\"log_bytes\":%" PRIu64 ",\"raw_bytes\":%" PRIu64
           ",\"chunks\":%u,\"records\":%" PRIu64 ",\"counts\":{",
           s->end_arg, s->last_position, s->last_time, s->host_ns, s->file_bytes, s->raw_bytes,
           s->chunks, s->records);
    for (size_t i = 0; i < record_table_size; i++)
        printf("%s\"%s\":%" PRIu64, i ? "," : "", record_table[i].name, s->counts[i]);
    putchar('}');
    print_notes_json(dir);
    puts("}");
}

/* The first kept file that is missing or changed; "" when all are as they were. */
static void check_files(struct opened *o, struct err *err)
{
    const struct machine_description *d = &o->desc;
    struct hash128 kernel = description_hash128(d->kernel_hash);
    struct hash128 initrd = description_hash128(d->initrd_hash);
    void *data;
    if (recording_load(&o->rec, &kernel, d->kernel_size, "kernel", &data, err))
        return;
    free(data);
    if (!d->initrd_size || recording_load(&o->rec, &initrd, d->initrd_size, "initrd", &data, err))
        return;
    free(data);
}

int cmd_info(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR]", .doc = doc};
    struct info_args a = {0};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0}, files = {0};
    struct opened o;
    struct log_summary summary;
    sandbox_read(a.dir);
    if (sandbox_enter(&err) || open_recording(&o, a.dir, &err))
        return cmd_fail(&err);
    log_summarise(o.log, &summary);
    check_files(&o, &files);
    if (a.json)
        print_json(a.dir, &o, &summary, files.text);
    else
        print_text(a.dir, &o, &summary, files.text);
    close_recording(&o);
    return files.code ? EX_ERROR : summary.damage.state != CHUNKS_COMPLETE ? EX_DAMAGE : EX_FINE;
}
