/* See command_table.h. */
#include "cmd/command_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const struct verb reprise_commands[] = {
#define COMMAND(name, function, needs, summary) {name, function, needs, summary},
#include "cmd/commands.def"
};
const size_t reprise_command_count = ARRAY_SIZE(reprise_commands);

/* In a process that was started for one table: who shows it. */
static struct {
    command_table_fn *show;
    void *arg;
    const struct verb *verb;
    char name[64];
} asked;

/* Has the verb show its table; this process ends with it. */
static _Noreturn void ask(const struct verb *verb, const char *of, command_table_fn *show,
                          void *arg)
{
    char name[64];
    char *argv[] = {name, NULL};
    snprintf(name, sizeof(name), "%s%s%s", of, *of ? " " : "", verb->name);
    asked.show = show;
    asked.arg = arg;
    asked.verb = verb;
    memcpy(asked.name, name, sizeof(name));
    verb->run(1, argv);
    fprintf(stderr, "reprise: the command '%s' has no table of options\n", name);
    _exit(EX_ERROR);
}

static int tables_of(const struct verb *verbs, size_t n, const char *of, command_table_fn *show,
                     void *arg)
{
    for (size_t i = 0; i < n; i++) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            ask(&verbs[i], of, show, arg);
        if (child < 0 || waitpid(child, &status, 0) < 0) {
            fprintf(stderr, "reprise: cannot start a process\n");
            return EX_ERROR;
        }
        if (status)
            return WIFEXITED(status) ? WEXITSTATUS(status) : EX_ERROR;
    }
    return EX_FINE;
}

int command_tables(const struct verb *verbs, size_t n, command_table_fn *show, void *arg)
{
    return tables_of(verbs, n, "", show, arg);
}

void command_table_show(const struct command_table *table)
{
    if (!asked.show)
        return;
    struct command_table t = *table;
    t.name = asked.name;
    t.summary = asked.verb->summary;
    asked.show(&t, asked.arg);
    int code = fflush(stdout) || ferror(stdout) ? EX_ERROR : EX_FINE;
    if (!code && t.verbs) {
        char of[sizeof(asked.name)];
        memcpy(of, asked.name, sizeof(of));
        code = tables_of(t.verbs, t.n, of, asked.show, asked.arg);
    }
    _exit(code);
}

static void rows_of(const struct argp *argp, option_row_fn *fn, void *arg)
{
    const struct argp_option *p = argp->options;
    for (; p && (p->name || p->key || p->doc); p++) {
        if (p->flags & OPTION_HIDDEN)
            continue;
        const char *help = p->doc ? p->doc : "";
        char *filtered = argp->help_filter ? argp->help_filter(p->key, help, NULL) : NULL;
        struct option_row row = {.key = p->key > ' ' && p->key < 127 ? p->key : 0,
                                 .name = p->name,
                                 .arg = p->arg,
                                 .help = filtered ? filtered : help,
                                 .arg_optional = p->flags & OPTION_ARG_OPTIONAL};
        fn(&row, arg);
        if (filtered != help)
            free(filtered);
    }
    for (const struct argp_child *c = argp->children; c && c->argp; c++)
        rows_of(c->argp, fn, arg);
}

void option_rows(const struct command_table *table, option_row_fn *fn, void *arg)
{
    static const struct option_row own = {.name = "help", .help = "Give this list"};
    rows_of(table->argp, fn, arg);
    fn(&own, arg);
}

const char *command_text_behind(const struct command_table *table)
{
    const char *cut = table->argp->doc ? strchr(table->argp->doc, '\v') : NULL;
    return cut ? cut + 1 : NULL;
}
