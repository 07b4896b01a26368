/* `reprise diff`: where two recordings part. */
#include <inttypes.h>
#include <libfdt.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cmd/cmd.h"
#include "cmd/diff_console.h"
#include "replay/checkpoint.h"
#include "replay/diff.h"

enum { O_JSON = 256, O_LOG_ONLY };

static const struct argp_option options[] = {
    {"log-only", O_LOG_ONLY, NULL, 0, "Do not replay them to compare their consoles", 0},
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};

static const char doc[] =
    "Compares two recordings and says how they part: what is different about the machines; the "
    "first "
    "record of the logs that differs, looking past what differs with a wall clock or a seed; the "
    "first input that differs, wherever it came; and, of recordings that differ, the first line of "
    "their consoles, for which they are replayed. The exit code is 0 when they are equal, 1 when "
    "they differ, "
    "4 when they are equal up to where one is damaged. Checkpoints are not looked at: `reprise "
    "verify` compares those of one with its replay." EXIT_HELP;

struct diff_args {
    const char *dir[2];
    unsigned n;
    bool json, log_only;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct diff_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
    case O_LOG_ONLY: a->log_only = true; break;
    case ARGP_KEY_ARG:
        if (a->n == 2)
            argp_error(state, "only two recordings");
        a->dir[a->n++] = arg;
        break;
    case ARGP_KEY_END:
        if (a->n != 2 || !*a->dir[0] || !*a->dir[1])
            argp_error(state, "two recordings are needed");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The row of a property that people have words for. */
static const struct description_row *row_of(const char *path)
{
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        const char *node = description_node(r);
        size_t n = strlen(node);
        if (r->words && !strncmp(path, node, n) && path[n] == '/' &&
            !strcmp(path + n + 1, r->property))
            return r;
    }
    return NULL;
}

/* A hash or a flag says nothing to people. */
static bool has_value(const struct description_row *r)
{
    return r && (r->kind == DESCRIPTION_NUMBER || r->kind == DESCRIPTION_TEXT);
}

#define DIFFERENCES_MAX 64

struct difference {
    char path[96];
    const void *value[2]; /* NULL: the machine has none */
    int size[2];
};
struct machine_differences {
    struct difference list[DIFFERENCES_MAX];
    unsigned n;
};

/* Adds the properties of side `x` that the other lacks or has otherwise; with `missing_only` just
 * the former. Both trees were checked by description_read: nodes one level deep. */
static void diff_node(struct machine_differences *found, const void *dx, const void *dy, int node,
                      const char *name, unsigned x, bool missing_only)
{
    int prop, other = *name ? fdt_subnode_offset(dy, 0, name) : 0;
    fdt_for_each_property_offset(prop, dx, node)
    {
        const char *field;
        int lx, ly = 0;
        const void *vx = fdt_getprop_by_offset(dx, prop, &field, &lx);
        const void *vy = other < 0 ? NULL : fdt_getprop(dy, other, field, &ly);
        /* The checksum is over all other fields; the id is random. */
        if (!vx || !strcmp(field, "checksum") ||
            (vy && (missing_only || (lx == ly && !memcmp(vx, vy, (size_t)lx)))) ||
            found->n == DIFFERENCES_MAX)
            continue;
        struct difference *d = &found->list[found->n++];
        snprintf(d->path, sizeof(d->path), "%s/%s", name, field);
        d->value[x] = vx;
        d->size[x] = lx;
        d->value[!x] = vy;
        d->size[!x] = ly;
    }
}

static void find_differences(struct machine_differences *found, const struct opened *x,
                             const struct opened *y)
{
    memset(found, 0, sizeof(*found));
    for (unsigned pass = 0; pass < 2; pass++) {
        const void *dx = pass ? y->rec.machine : x->rec.machine;
        const void *dy = pass ? x->rec.machine : y->rec.machine;
        int node;
        diff_node(found, dx, dy, 0, "", pass, pass);
        fdt_for_each_subnode(node, dx, 0)
            diff_node(found, dx, dy, node, fdt_get_name(dx, node, NULL), pass, pass);
    }
}

static const char *words_of(const struct difference *d)
{
    const struct description_row *r = row_of(d->path);
    return r ? r->words : d->path;
}

static void print_value(const struct difference *d, unsigned i, const struct description_row *r)
{
    u64 v = 0;
    char text[512], time[64];
    if (!d->value[i]) {
        fputs("none", stdout);
        return;
    }
    for (int k = 0; k < d->size[i] && d->size[i] <= 8; k++)
        v = v << 8 | ((const u8 *)d->value[i])[k];
    if (r->kind == DESCRIPTION_TEXT)
        printf("'%s'", text_printable(d->value[i], text, sizeof(text)));
    else if (r->arg && !strcmp(r->arg, "TIME"))
        fputs(text_time(v, time), stdout);
    else
        printf("%" PRIu64, v);
}

static void print_differences(const struct diff_args *a, const struct machine_differences *found)
{
    for (unsigned i = 0; a->json && i < found->n; i++)
        printf("%s\"%s\"", i ? "," : "", found->list[i].path);
    if (a->json || !found->n)
        return;
    fputs("the machines differ: ", stdout);
    for (unsigned i = 0; i < found->n; i++)
        printf("%s%s", i ? ", " : "", words_of(&found->list[i]));
    putchar('\n');
    for (unsigned i = 0; i < found->n; i++) {
        const struct description_row *r = row_of(found->list[i].path);
        if (!has_value(r))
            continue;
        printf("  %s: ", r->words);
        print_value(&found->list[i], 0, r);
        fputs(", ", stdout);
        print_value(&found->list[i], 1, r);
        putchar('\n');
    }
}

/* The components whose state differs for no other reason, joined by commas. */
static void known_components(const struct machine_differences *found, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (unsigned i = 0; i < found->n; i++) {
        const struct description_row *r = row_of(found->list[i].path);
        if (r && r->shows && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", r->shows);
    }
}

/* The recording as a line begins with it. */
static const char *side_name(const struct diff_args *a, unsigned i, char *out, size_t size)
{
    return text_printable(a->dir[i], out, size);
}

static void print_side(const struct diff_args *a, unsigned i, bool has, const struct record *rec,
                       struct log_reader *log)
{
    if (a->json) {
        printf(",\"%s\":", i ? "b" : "a");
        if (has)
            record_print_json(stdout, rec);
        else
            fputs("null", stdout);
        return;
    }
    char name[512];
    printf("  %s: ", side_name(a, i, name, sizeof(name)));
    if (has)
        record_print(stdout, rec, false);
    else if (log_damage(log)->text[0])
        printf("no more: %s", log_damage(log)->text);
    else
        printf("no more");
    putchar('\n');
}

/* Of components: which one, and its digests, because the record's line shows just the first. */
static void print_components(const struct diff_args *a, const struct log_difference *d)
{
    for (unsigned i = 0; i < 2; i++) {
        char name[512];
        printf("  %s: %016" PRIx64 "\n", side_name(a, i, name, sizeof(name)), d->digest[i]);
    }
}

static unsigned diff_logs(const struct diff_args *a, struct opened *x, struct opened *y,
                          const char *but)
{
    struct log_difference d;
    log_diff_but(x->log, y->log, but, &d);
    if (a->json)
        printf("\"compared\":%" PRIu64 ",\"looked_past\":\"%s\",\"field\":", d.compared, but);
    if (!d.differ) {
        if (a->json)
            fputs("null", stdout);
        else if (*but)
            printf("the logs agree but for what differs with the machines: %s\n", but);
        return 0;
    }
    pos_t at = MIN(d.has_a ? d.a.position : NEVER, d.has_b ? d.b.position : NEVER);
    vns_t time = MIN(d.has_a ? d.a.time : NEVER, d.has_b ? d.b.time : NEVER);
    char seconds[32];
    if (a->json)
        json_string(stdout, d.field, strlen(d.field));
    else if (d.has_a && d.has_b)
        printf("log: first difference at position %" PRIu64 ": %s (%s of virtual time)%s%s\n", at,
               d.field, text_seconds(time, seconds), *but ? ", looking past " : "", but);
    else
        printf("log: one ends where the other goes on, at position %" PRIu64 "\n", at);
    if (!a->json && d.component) {
        print_components(a, &d);
        return 1;
    }
    print_side(a, 0, d.has_a, &d.a, x->log);
    print_side(a, 1, d.has_b, &d.b, y->log);
    return 1;
}

static void print_inputs_json(const struct diff_args *a, const struct input_difference *d,
                              const struct opened *x, const struct opened *y)
{
    printf(",\"inputs\":{\"same\":%" PRIu64 ",\"differ\":%s", d->same,
           d->differ ? "true" : "false");
    if (d->moved)
        printf(",\"moved_at\":%" PRIu64, d->moved_at);
    if (d->differ) {
        print_side(a, 0, d->has_a, &d->a, x->log);
        print_side(a, 1, d->has_b, &d->b, y->log);
    }
    putchar('}');
}

/* What came in, wherever it did: of recordings that differ. */
static void diff_inputs(const struct diff_args *a, struct opened *x, struct opened *y)
{
    struct input_difference d;
    char name[2][512];
    log_diff_inputs(x->log, y->log, &d);
    if (a->json) {
        print_inputs_json(a, &d, x, y);
        return;
    }
    if (d.differ && d.same)
        printf("inputs: the first %" PRIu64 " agree, the next one differs:\n", d.same);
    else if (d.differ)
        puts("inputs: the first one differs:");
    else if (d.same)
        printf("inputs: all %" PRIu64 " agree\n", d.same);
    else
        puts("inputs: none in either");
    if (d.differ) {
        print_side(a, 0, d.has_a, &d.a, x->log);
        print_side(a, 1, d.has_b, &d.b, y->log);
    }
    if (d.moved)
        printf("inputs: from number %" PRIu64 " on they come at other positions: %s at %" PRIu64
               ", %s at %" PRIu64 "\n",
               d.moved_at, side_name(a, 0, name[0], sizeof(name[0])), d.moved_a,
               side_name(a, 1, name[1], sizeof(name[1])), d.moved_b);
}

/* What keeps equal logs from being whole, malloc'ed; NULL: nothing. */
static char *find_damage(const struct opened *x, const struct opened *y)
{
    const struct chunk_damage *a = log_damage(x->log), *b = log_damage(y->log);
    return a->state != CHUNKS_COMPLETE   ? strdup(a->text)
           : b->state != CHUNKS_COMPLETE ? strdup(b->text)
                                         : NULL;
}

/* Both, read anew. */
static int open_both(const struct diff_args *a, struct opened *x, struct opened *y, struct err *err)
{
    int code = open_recording(x, a->dir[0], err);
    if (code)
        return code;
    code = open_recording(y, a->dir[1], err);
    if (code)
        close_recording(x);
    return code;
}

/* Two recordings that differ: in what way, as far as people see it. */
static int explain(const struct diff_args *a, struct diff_consoles *c, struct err *err)
{
    struct opened x, y;
    int code = open_both(a, &x, &y, err);
    if (code)
        return code;
    diff_inputs(a, &x, &y);
    close_recording(&x);
    close_recording(&y);
    if (!a->log_only)
        diff_consoles(c, a->dir, a->json);
    return 0;
}

int cmd_diff(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "DIR DIR", .doc = doc};
    struct diff_args a = {0};
    option_parse(&argp, argc, argv, &a);
    struct err err = {0};
    struct opened x, y;
    struct machine_differences machines;
    char but[256];
    sandbox_read(a.dir[0]);
    sandbox_read(a.dir[1]);
    struct diff_consoles consoles;
    if (diff_consoles_prepare(&consoles, a.dir, &err) || sandbox_enter(&err) ||
        open_both(&a, &x, &y, &err)) {
        diff_consoles_end(&consoles);
        return cmd_fail(&err);
    }
    if (a.json)
        fputs("{\"machine\":[", stdout);
    find_differences(&machines, &x, &y);
    print_differences(&a, &machines);
    if (a.json)
        fputs("],", stdout);
    known_components(&machines, but, sizeof(but));
    unsigned differ = machines.n + diff_logs(&a, &x, &y, but);
    char *damage = differ ? NULL : find_damage(&x, &y);
    u64 bytes;
    u32 checkpoints = checkpoint_count(&x.rec, &bytes) + checkpoint_count(&y.rec, &bytes);
    close_recording(&x);
    close_recording(&y);
    int failed = differ ? explain(&a, &consoles, &err) : 0;
    if (a.json) {
        printf(",\"equal\":%s,\"checkpoints_compared\":false,\"damage\":",
               differ ? "false" : "true");
        json_text(stdout, damage ? damage : "");
        fputs("}\n", stdout);
    } else if (!differ)
        printf("the recordings are equal%s%s\n", damage ? " up to the damage" : "",
               checkpoints ? "; their checkpoints were not looked at (`reprise verify` does that)"
                           : "");
    if (damage)
        fprintf(stderr, "reprise: a log ends early: %s\n", damage);
    if (failed)
        cmd_fail(&err);
    int code = differ ? EX_ERROR : damage ? EX_DAMAGE : EX_FINE;
    diff_consoles_end(&consoles);
    free(damage);
    return code;
}
