/* See completion.h. What an argument can be follows from how its option's row calls it: FILE, DIR,
 * "on|off"; the few names behind which there is a table are looked up there. */
#include "cmd/completion.h"

#include <stdlib.h>
#include <string.h>

#include "board/description.h"
#include "cpu/model.h"
#include "host/net_options.h"
#include "replay/point.h"
#include "replay/record.h"

static void add_word(struct value *v, const char *word, size_t n)
{
    size_t used = strlen(v->words);
    if (!n || used + n + 2 > sizeof(v->words))
        return;
    v->kind = VALUE_WORDS;
    snprintf(v->words + used, sizeof(v->words) - used, "%s%.*s", used ? " " : "", (int)n, word);
}

/* ---- names behind which there are tables ---- */

static void cpu_models(struct value *v)
{
    for (int m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        const char *name = cpu_model_name((enum cpu_model)m);
        if (name)
            add_word(v, name, strlen(name));
    }
    add_word(v, "help", 4);
}

static void networks(struct value *v)
{
    for (size_t i = 0; i < net_parts.nkinds; i++)
        add_word(v, net_parts.kinds[i], strlen(net_parts.kinds[i]));
    add_word(v, "none", 4);
}

static void events(struct value *v)
{
    for (size_t i = 0; i < record_table_size; i++)
        add_word(v, record_table[i].name, strlen(record_table[i].name));
    add_word(v, "input", 5);
}

/* "insn:N, time:T (1.5s, 20ms), end-N or crash[#K]" -> "insn: time: crash" */
static void points(struct value *v)
{
    for (const char *p = POINT_FORMS; *p;) {
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz");
        if (p[n] != '-')
            add_word(v, p, n + (p[n] == ':'));
        int depth = 0;
        for (; *p && (depth || (strncmp(p, ", ", 2) && strncmp(p, " or ", 4))); p++)
            depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
        p += *p == ',' ? 2 : *p ? 4 : 0;
    }
}

static const struct {
    const char *option, *arg; /* NULL: any */
    void (*words)(struct value *v);
} tables[] = {
    {"cpu", "MODEL", cpu_models},
    {"net", NULL, networks},
    {"kind", NULL, events},
    {NULL, "POINT", points},
};

/* "a|b" of a property of the machine that has no other values. */
static void property(struct value *v, const char *option)
{
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        if (!r->option || strcmp(r->option, option) || !r->values)
            continue;
        for (const char *p = r->values; *p; p += p[strcspn(p, "|")] ? 1 : 0) {
            size_t n = strcspn(p, "|");
            add_word(v, p, n);
            p += n;
            if (!*p)
                break;
        }
    }
}

/* ---- how arguments are called ---- */

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* The end of an alternative: a | that stands in no brackets. */
static size_t alternative(const char *arg)
{
    int depth = 0;
    size_t n = 0;
    for (; arg[n] && (arg[n] != '|' || depth); n++)
        depth += arg[n] == '[' ? 1 : arg[n] == ']' ? -1 : 0;
    return n;
}

/* "on|off", "vnc=ADDRESS|sdl": what is in small letters is meant as it stands. */
static void alternatives(struct value *v, const char *arg)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    for (size_t n;; arg += n + 1) {
        n = alternative(arg);
        size_t word = strspn(arg, "abcdefghijklmnopqrstuvwxyz0123456789-");
        bool whole = word == n || (word < n && strchr("[,=:", arg[word]));
        if (word && word <= n && whole && strpbrk(arg, letters) < arg + word)
            add_word(v, arg, word + (word < n && strchr("=:", arg[word]) ? 1 : 0));
        if (!arg[n])
            return;
    }
}

bool value_of_option(const struct option_row *row, struct value *out)
{
    const char *name = row->name ? row->name : "", *arg = row->arg;
    *out = (struct value){.kind = VALUE_NONE};
    if (!arg)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
        if ((!tables[i].option || !strcmp(tables[i].option, name)) &&
            (!tables[i].arg || !strcmp(tables[i].arg, arg)))
            tables[i].words(out);
    if (out->kind == VALUE_NONE)
        property(out, name);
    if (out->kind == VALUE_NONE)
        alternatives(out, arg);
    if (out->kind != VALUE_NONE)
        return true;
    if (begins(arg, "DIR"))
        out->kind = strcmp(name, "from") != 0 ? VALUE_DIRECTORY : VALUE_RECORDING;
    else if (begins(arg, "FILE") || strstr(arg, "=FILE"))
        out->kind = VALUE_FILE;
    return true;
}

void value_of_command(const struct command_table *table, struct value *out)
{
    static const struct {
        const char *in;
        enum value_kind kind;
    } kinds[] = {
        {"DIR|FILE", VALUE_RECORDING_FILE},
        {"A B", VALUE_RECORDING_FILE},
        {"DIR", VALUE_RECORDING},
        {"FILE", VALUE_FILE},
        {"NAME", VALUE_RUN},
        {"IMAGE", VALUE_IMAGE},
        {"PROGRAM", VALUE_PROGRAM},
        {"OPTIONS", VALUE_PROGRAM},
    };
    const char *args = table->argp->args_doc;
    *out = (struct value){.kind = VALUE_NONE};
    if (!args)
        return;
    if (strstr(args, "COMMAND")) {
        for (size_t i = 0; i < reprise_command_count; i++)
            add_word(out, reprise_commands[i].name, strlen(reprise_commands[i].name));
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds) && out->kind == VALUE_NONE; i++)
        if (strstr(args, kinds[i].in))
            out->kind = kinds[i].kind;
    if (out->kind == VALUE_NONE)
        alternatives(out, args);
}

void short_help(const char *help, char *out, size_t size)
{
    size_t n = 0, depth = 0;
    for (const char *p = help; *p && n + 1 < size && n < 72; p++) {
        bool stops = !depth && (*p == ';' || (*p == '.' && (p[1] == ' ' || !p[1])) ||
                                (*p == ':' && p[1] == ' ' && n > 20));
        if (stops || *p == '\n')
            break;
        depth += *p == '(';
        if (!depth && !strchr("[]'\"`\\$:", *p))
            out[n++] = *p;
        depth -= *p == ')' && depth;
    }
    if (n >= 72)
        while (n && out[n - 1] != ' ')
            n--;
    while (n && strchr(" ,", out[n - 1]))
        n--;
    out[n] = 0;
}

/* ---- the command ---- */

static const struct shell *const shells[] = {&shell_bash, &shell_zsh, &shell_fish};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    const struct shell **chosen = state->input;
    if (key == ARGP_KEY_END && !*chosen)
        argp_error(state, "which shell?");
    if (key != ARGP_KEY_ARG)
        return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
    if (*chosen)
        argp_error(state, "only one shell at a time");
    for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
        if (!strcmp(arg, shells[i]->name))
            *chosen = shells[i];
    if (!*chosen)
        argp_error(state, "there is none for '%s': bash, zsh, fish", arg);
    return 0;
}

static const char doc[] =
    "Prints a script that has the shell complete commands, options, their values and recordings. "
    "`make install` puts it where the shell finds it; without that:\n\n"
    "  bash: source <(reprise completion bash)\n"
    "  zsh:  source <(reprise completion zsh), after compinit\n"
    "  fish: reprise completion fish | source" EXIT_HELP;

int cmd_completion(int argc, char **argv)
{
    static const struct argp argp = {NULL, parse, "bash|zsh|fish", doc, NULL, NULL, NULL};
    const struct shell *chosen = NULL;
    option_parse(&argp, argc, argv, &chosen);
    chosen->begin();
    int code = command_tables(reprise_commands, reprise_command_count, chosen->command, NULL);
    if (!code)
        chosen->end();
    return code;
}
