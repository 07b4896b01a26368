/* `reprise diff`: where two recordings part. */
#include <inttypes.h>
#include <libfdt.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "replay/diff.h"

enum { O_JSON = 256 };

static const struct argp_option options[] = {
    {"json", O_JSON, NULL, 0, "As JSON", 0},
    {0},
};

static const char doc[] =
    "Compares two recordings: their machines, then their logs, and prints the first record that "
    "differs. The exit code is 0 when they are equal, 1 when they differ, "
    "4 when they are equal up to where one is damaged." EXIT_HELP;

struct diff_args {
    const char *dir[2];
    unsigned n;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct diff_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
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

/* Prints the properties of A that B lacks or has otherwise; with `missing_only` just the former.
 * Both trees were checked by description_read: nodes one level deep. */
static unsigned diff_node(const struct diff_args *a, const void *da, const void *db, int node,
                          const char *name, bool missing_only, unsigned found)
{
    int prop, other = *name ? fdt_subnode_offset(db, 0, name) : 0;
    fdt_for_each_property_offset(prop, da, node)
    {
        const char *field;
        int la, lb;
        const void *va = fdt_getprop_by_offset(da, prop, &field, &la);
        const void *vb = other < 0 ? NULL : fdt_getprop(db, other, field, &lb);
        /* The checksum is over all other fields. */
        if (!va || !strcmp(field, "checksum") ||
            (vb && (missing_only || (la == lb && !memcmp(va, vb, (size_t)la)))))
            continue;
        if (a->json)
            printf("%s\"%s/%s\"", found ? "," : "", name, field);
        else
            printf("machine: /%s%s%s differs\n", name, *name ? "/" : "", field);
        found++;
    }
    return found;
}

static unsigned diff_machines(const struct diff_args *a, const struct opened *x,
                              const struct opened *y)
{
    unsigned found = 0;
    for (int pass = 0; pass < 2; pass++) {
        const void *da = pass ? y->rec.machine : x->rec.machine;
        const void *db = pass ? x->rec.machine : y->rec.machine;
        int node;
        found = diff_node(a, da, db, 0, "", pass, found);
        fdt_for_each_subnode(node, da, 0) found =
            diff_node(a, da, db, node, fdt_get_name(da, node, NULL), pass, found);
    }
    return found;
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
    printf("  %s: ", a->dir[i]);
    if (has)
        record_print(stdout, rec, false);
    else if (log_damage(log)->text[0])
        printf("no more: %s", log_damage(log)->text);
    else
        printf("no more");
    putchar('\n');
}

static unsigned diff_logs(const struct diff_args *a, struct opened *x, struct opened *y)
{
    struct log_difference d;
    log_diff(x->log, y->log, &d);
    if (a->json)
        printf("\"compared\":%" PRIu64 ",\"field\":", d.compared);
    if (!d.differ) {
        if (a->json)
            fputs("null", stdout);
        return 0;
    }
    if (a->json)
        json_string(stdout, d.field, strlen(d.field));
    else if (d.has_a && d.has_b)
        printf("log: first difference at position %" PRIu64 ": %s\n",
               MIN(d.a.position, d.b.position), d.field);
    else
        printf("log: one ends where the other goes on, at position %" PRIu64 "\n",
               d.has_a ? d.a.position : d.b.position);
    print_side(a, 0, d.has_a, &d.a, x->log);
    print_side(a, 1, d.has_b, &d.b, y->log);
    return 1;
}

/* What keeps equal logs from being whole, malloc'ed; NULL: nothing. */
static char *find_damage(const struct opened *x, const struct opened *y)
{
    const struct log_damage *a = log_damage(x->log), *b = log_damage(y->log);
    return a->state != LOG_COMPLETE   ? strdup(a->text)
           : b->state != LOG_COMPLETE ? strdup(b->text)
                                      : NULL;
}

int cmd_diff(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "DIR DIR", .doc = doc};
    struct diff_args a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    struct err err = {0};
    struct opened x, y;
    if (open_recording(&x, a.dir[0], &err))
        return cmd_fail(&err);
    if (open_recording(&y, a.dir[1], &err)) {
        close_recording(&x);
        return cmd_fail(&err);
    }
    if (a.json)
        fputs("{\"machine\":[", stdout);
    unsigned differ = diff_machines(&a, &x, &y);
    if (a.json)
        fputs("],", stdout);
    differ += diff_logs(&a, &x, &y);
    char *damage = differ ? NULL : find_damage(&x, &y);
    if (a.json) {
        printf(",\"equal\":%s,\"damage\":", differ ? "false" : "true");
        json_text(stdout, damage ? damage : "");
        fputs("}\n", stdout);
    } else if (!differ)
        puts(damage ? "the recordings are equal up to the damage" : "the recordings are equal");
    if (damage)
        fprintf(stderr, "reprise: a log ends early: %s\n", damage);
    close_recording(&x);
    close_recording(&y);
    int code = differ ? EX_ERROR : damage ? EX_DAMAGE : EX_FINE;
    free(damage);
    return code;
}
