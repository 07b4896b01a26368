/*
 * What the user meant: the option or command that a typo is close to. argp itself only says that it
 * knows no such thing.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/command_table.h"

#define WORD_MAX 32

/* Insertions, deletions, replacements and swaps of neighbours that make one of the other. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[3][WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = MIN(MIN(now[j - 1], last[j]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = MIN(now[j], before[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *option_meant(const char *typo, const char *const *names, size_t n, size_t stride)
{
    /* Half of a word may not be wrong; of a short one a letter or two. */
    unsigned best = (unsigned)(strlen(typo) < 3 ? 1 : strlen(typo) < 6 ? 2 : 3);
    const char *meant = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = *(const char *const *)(const void *)((const char *)names + i * stride);
        unsigned d = name ? distance(typo, name) : WORD_MAX;
        if (d < best || (d == best && !meant)) {
            best = d;
            meant = name;
        }
    }
    return meant;
}

/* ---- options of a command ---- */

#define OPTIONS_MAX 96

struct options {
    const struct argp_option *list[OPTIONS_MAX];
    const char *names[OPTIONS_MAX];
    size_t n;
};

static void gather(const struct argp *argp, struct options *o)
{
    const struct argp_option *p = argp->options;
    for (; p && (p->name || p->key || p->doc); p++)
        if ((p->name || p->key) && o->n < OPTIONS_MAX) {
            o->names[o->n] = p->name;
            o->list[o->n++] = p;
        }
    for (const struct argp_child *c = argp->children; c && c->argp; c++)
        gather(c->argp, o);
}

/* The option of a word "--name" or "--name=value"; as getopt a beginning will do. */
static const struct argp_option *find_long(const struct options *o, const char *word)
{
    size_t n = strcspn(word, "=");
    const struct argp_option *begins = NULL;
    for (size_t i = 0; i < o->n; i++) {
        if (!o->names[i] || strncmp(o->names[i], word, n))
            continue;
        if (!o->names[i][n])
            return o->list[i];
        begins = o->list[i];
    }
    return begins;
}

/* Does a word "-abc" end with an option whose argument is the next word? */
static bool short_takes_next(const struct options *o, const char *word)
{
    for (; *word; word++)
        for (size_t i = 0; i < o->n; i++)
            if (o->list[i]->key == *word && o->list[i]->arg &&
                !(o->list[i]->flags & OPTION_ARG_OPTIONAL))
                return !word[1];
    return false;
}

static void refuse(const struct argp *argp, const struct options *o, const char *program,
                   const char *word)
{
    static const char *const cpus[] = {"smp", "vcpus", "cores", "threads"};
    char name[WORD_MAX + 1];
    snprintf(name, sizeof(name), "%.*s", (int)MIN(strcspn(word, "="), (size_t)WORD_MAX), word);
    for (size_t i = 0; i < ARRAY_SIZE(cpus); i++)
        if (!strcmp(name, cpus[i])) {
            fprintf(stderr, "%s: --%s: here it is --cpus N,cores=N,threads=N\n", program, name);
            exit(EX_BAD_USAGE);
        }
    const char *meant = option_meant(name, o->names, o->n, sizeof(o->names[0]));
    fprintf(stderr, "%s: unrecognized option '--%s'%s%s%s\n", program, name,
            meant ? "; did you mean '--" : "", meant ? meant : "", meant ? "'?" : "");
    argp_help(argp, stderr, ARGP_HELP_SEE, (char *)(uintptr_t)program);
    exit(EX_BAD_USAGE);
}

void option_parse_in_order(const struct argp *argp, int argc, char **argv, void *input)
{
    command_table_show(&(struct command_table){.name = argv[0], .argp = argp});
    argp_parse(argp, argc, argv, ARGP_IN_ORDER, NULL, input);
}

void option_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    static const char *const own[] = {"help", "usage", "version"};
    struct options o = {.n = 0};
    command_table_show(&(struct command_table){.name = argv[0], .argp = argp});
    gather(argp, &o);
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        const char *word = argv[i];
        if (!strncmp(word, "--", 2)) {
            const struct argp_option *p = find_long(&o, word + 2);
            bool known = p;
            for (size_t k = 0; k < ARRAY_SIZE(own); k++)
                known = known || !strncmp(own[k], word + 2, strlen(word + 2));
            if (!known)
                refuse(argp, &o, argv[0], word + 2);
            if (p && p->arg && !(p->flags & OPTION_ARG_OPTIONAL) && !strchr(word, '='))
                i++;
        } else if (word[0] == '-' && word[1]) {
            if (!strcmp(word, "-h") && i == argc - 1)
                argv[i] = (char *)(uintptr_t) "--help";
            else if (short_takes_next(&o, word + 1))
                i++;
        }
    }
    argp_parse(argp, argc, argv, 0, NULL, input);
}
