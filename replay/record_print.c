/* Records as text, as JSON and compared, driven by records.def. */
#include "replay/record.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "replay/frame.h"

#define SHORT_BYTES 64u /* of a packet, on one line */

const char *quit_reason_name(u64 reason)
{
    static const char *const names[] = {
        [QUIT_USER] = "user", [QUIT_SIGNAL] = "signal", [QUIT_TIMEOUT] = "timeout",
        [QUIT_TEXT] = "text", [QUIT_INSNS] = "insns",   [QUIT_DISK] = "disk",
        [QUIT_IDLE] = "idle", [QUIT_ENGINE] = "engine"};
    return reason < ARRAY_SIZE(names) && names[reason] ? names[reason] : "unknown";
}

const char *run_reason_name(u64 reason)
{
    static const char *const names[] = {[RUN_POWEROFF] = "poweroff",
                                        [RUN_RESET] = "reset",
                                        [RUN_TRIPLE_FAULT] = "triple-fault",
                                        [RUN_HALTED] = "halted",
                                        [RUN_EXIT] = "exit",
                                        [RUN_QUIT] = "quit",
                                        [RUN_STOP] = "stop",
                                        [RUN_UNSUPPORTED] = "unsupported",
                                        [RUN_ERROR] = "error",
                                        [RUN_LOST] = "lost"};
    return reason < ARRAY_SIZE(names) && names[reason] ? names[reason] : "unknown";
}

static void print_runs(FILE *out, const struct log_runs *runs, bool json)
{
    u32 at = 0;
    u64 length, digest;
    const char *sep = "";
    fputc(json ? '[' : ' ', out);
    while (runs_next(runs, &at, &length, &digest)) {
        fprintf(out, json ? "%s[%" PRIu64 ",\"%016" PRIx64 "\"]" : "%s%" PRIu64 "*%016" PRIx64, sep,
                length, digest);
        sep = ",";
    }
    if (json)
        fputc(']', out);
}

/* Digests beyond a few say nothing to a reader: they are left to --json. */
static void print_digests(FILE *out, const struct log_digests *list, bool all)
{
    fputc('[', out);
    for (u32 i = 0; i < list->count && (all || i < 1); i++)
        fprintf(out, "%s%016" PRIx64, i ? " " : "", digest_at(list, i));
    if (!all && list->count > 1)
        fprintf(out, " and %u more", list->count - 1);
    fputc(']', out);
}

static void print_field(FILE *out, const struct record_field *f, const void *value, bool all)
{
    const struct log_bytes *b = value;
    const struct hash128 *h = value;
    u64 v = 0;
    if (f->kind == FIELD_num || f->kind == FIELD_hex || f->kind == FIELD_quit ||
        f->kind == FIELD_reason)
        v = *(const u64 *)value;
    switch (f->kind) {
    case FIELD_num: fprintf(out, "%" PRIu64, v); break;
    case FIELD_hex: fprintf(out, "%016" PRIx64, v); break;
    case FIELD_quit: fputs(quit_reason_name(v), out); break;
    case FIELD_reason: fputs(run_reason_name(v), out); break;
    case FIELD_hash: fprintf(out, "%016" PRIx64 "%016" PRIx64, h->hi, h->lo); break;
    case FIELD_bytes:
        json_string(out, b->data, all ? b->len : MIN(b->len, SHORT_BYTES));
        if (!all && b->len > SHORT_BYTES)
            fprintf(out, "... %u bytes", b->len);
        break;
    case FIELD_text: json_string(out, b->data, b->len); break;
    case FIELD_digests: print_digests(out, value, all); break;
    case FIELD_runs:
        if (all)
            print_runs(out, value, false);
        else
            fprintf(out, "[%u runs]", ((const struct log_runs *)value)->count);
        break;
    }
}

void record_print(FILE *out, const struct record *rec, bool all_digests)
{
    const struct record_desc *desc = record_desc(rec->type);
    fprintf(out, "%" PRIu64 " %" PRIu64 ".%09" PRIu64, rec->position, rec->time / 1000000000,
            rec->time % 1000000000);
    if (!desc) {
        fprintf(out, " remark-%" PRIu64, rec->type);
        return;
    }
    fprintf(out, " %s", desc->name);
    for (size_t i = 0; i < desc->nfields; i++) {
        fprintf(out, " %s=", desc->fields[i].name);
        if (rec->type == REC_PACKET && desc->fields[i].kind == FIELD_bytes && !all_digests) {
            char text[FRAME_TEXT];
            fputs(frame_text(rec->packet.data.data, rec->packet.data.len, text), out);
            continue;
        }
        print_field(out, &desc->fields[i], (const u8 *)rec + desc->fields[i].offset, all_digests);
    }
}

static void print_field_json(FILE *out, const struct record_field *f, const void *value)
{
    switch (f->kind) {
    case FIELD_num: fprintf(out, "%" PRIu64, *(const u64 *)value); break;
    case FIELD_bytes:
    case FIELD_text: print_field(out, f, value, true); break;
    case FIELD_digests: {
        const struct log_digests *d = value;
        fputc('[', out);
        for (u32 i = 0; i < d->count; i++)
            fprintf(out, "%s\"%016" PRIx64 "\"", i ? "," : "", digest_at(d, i));
        fputc(']', out);
        break;
    }
    case FIELD_runs: print_runs(out, value, true); break;
    default:
        fputc('"', out);
        print_field(out, f, value, true);
        fputc('"', out);
    }
}

void record_print_json(FILE *out, const struct record *rec)
{
    const struct record_desc *desc = record_desc(rec->type);
    fprintf(out, "{\"index\":%" PRIu64 ",\"position\":%" PRIu64 ",\"time\":%" PRIu64 ",\"type\":",
            rec->index, rec->position, rec->time);
    if (!desc) {
        fprintf(out, "\"remark-%" PRIu64 "\"}", rec->type);
        return;
    }
    fprintf(out, "\"%s\"", desc->name);
    for (size_t i = 0; i < desc->nfields; i++) {
        fprintf(out, ",\"%s\":", desc->fields[i].name);
        print_field_json(out, &desc->fields[i], (const u8 *)rec + desc->fields[i].offset);
    }
    fputc('}', out);
}

static bool field_equal(enum field_kind kind, const void *a, const void *b)
{
    const struct log_bytes *ba = a, *bb = b;
    const struct log_digests *da = a, *db = b;
    const struct log_runs *ra = a, *rb = b;
    switch (kind) {
    case FIELD_hash: return !memcmp(a, b, sizeof(struct hash128));
    case FIELD_bytes:
    case FIELD_text:
        return ba->len == bb->len && (!ba->len || !memcmp(ba->data, bb->data, ba->len));
    case FIELD_digests:
        return da->count == db->count &&
               (!da->count || !memcmp(da->data, db->data, (size_t)da->count * 8));
    case FIELD_runs:
        return ra->size == rb->size && (!ra->size || !memcmp(ra->data, rb->data, ra->size));
    default: return *(const u64 *)a == *(const u64 *)b;
    }
}

bool record_equal(const struct record *a, const struct record *b, const char **field)
{
    *field = a->type != b->type           ? "type"
             : a->position != b->position ? "position"
             : a->time != b->time         ? "time"
                                          : NULL;
    const struct record_desc *desc = record_desc(a->type);
    for (size_t i = 0; !*field && desc && i < desc->nfields; i++) {
        /* Host time differs between any two runs and says nothing about the machine. */
        const struct record_field *f = &desc->fields[i];
        if (strcmp(f->name, "host_ns") &&
            !field_equal(f->kind, (const u8 *)a + f->offset, (const u8 *)b + f->offset))
            *field = f->name;
    }
    return !*field;
}
