/* The script for fish: a `complete` for each option. */
#include "cmd/completion.h"

#include <string.h>

static const char *const kinds[VALUE_KINDS] = {
    [VALUE_FILE] = "",
    [VALUE_DIRECTORY] = "(__fish_complete_directories (commandline -ct))",
    [VALUE_RECORDING] = "(__reprise_recordings)",
    [VALUE_RUN] = "(__reprise_runs)",
    [VALUE_IMAGE] = "(reprise image --names 2>/dev/null)",
    [VALUE_PROGRAM] = "(__fish_complete_subcommand)",
};

static void begin(void)
{
    fputs("# Completion of reprise for fish: made by `reprise completion fish`.\n"
          "\n"
          "# Is it the command with these words, its verb among them?\n"
          "function __reprise_is\n"
          "    set -l words (commandline -opc)\n"
          "    set -e words[1]\n"
          "    test \"$words[1]\" = help; and set -e words[1]\n"
          "    set -l n (count $argv)\n"
          "    test (count $words) -ge $n; and test \"$words[1..$n]\" = \"$argv\"\n"
          "end\n"
          "# ... and nothing behind them yet?\n"
          "function __reprise_at\n"
          "    set -l words (commandline -opc)\n"
          "    set -e words[1]\n"
          "    test \"$words[1]\" = help; and set -e words[1]\n"
          "    test \"$words\" = \"$argv\"\n"
          "end\n"
          "function __reprise_recordings\n"
          "    for dir in (__fish_complete_directories (commandline -ct) '')\n"
          "        set -l path (string replace -r '\\t.*' '' -- $dir)\n"
          "        set -l within $path/*/\n"
          "        if test -e $path/machine.dtb; or test (count $within) -gt 0\n"
          "            echo $path\n"
          "        end\n"
          "    end\n"
          "    __fish_complete_suffix .reprise | string match -r '.*\\.reprise\\b.*'\n"
          "end\n"
          "function __reprise_runs\n"
          "    set -l home $XDG_DATA_HOME\n"
          "    test -n \"$home\"; or set home ~/.local/share\n"
          "    for dir in $home/reprise/*/\n"
          "        basename $dir\n"
          "    end\n"
          "end\n"
          "complete -c reprise -f\n"
          "complete -c reprise -n __reprise_at -a help -d 'says more about a command'\n",
          stdout);
}

static void verbs(const char *of, const struct verb *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char help[128];
        short_help(list[i].summary, help, sizeof(help));
        printf("complete -c reprise -n '__reprise_at%s%s' -a %s -d '%s'\n", *of ? " " : "", of,
               list[i].name, help);
    }
}

static void value(const struct value *v)
{
    if (v->kind == VALUE_WORDS)
        printf(" -f -a '%s'", v->words);
    else if (kinds[v->kind] && *kinds[v->kind])
        printf(" -f -a '%s'", kinds[v->kind]);
    else
        fputs(v->kind == VALUE_NONE ? " -f" : " -F", stdout);
}

static void option(const struct option_row *row, void *arg)
{
    const char *command = arg;
    char help[128];
    struct value v;
    if (!row->key && !row->name)
        return;
    short_help(row->help, help, sizeof(help));
    printf("complete -c reprise -n '__reprise_is %s'", command);
    if (row->key)
        printf(" -s %c", row->key);
    if (row->name)
        printf(" -l %s", row->name);
    if (value_of_option(row, &v)) {
        fputs(row->arg_optional ? "" : " -r", stdout);
        value(&v);
    }
    printf(" -d '%s'\n", help);
}

static void command(const struct command_table *t, void *arg)
{
    char name[64];
    struct value v;
    (void)arg;
    snprintf(name, sizeof(name), "%s", t->name);
    verbs(name, t->verbs, t->n);
    if (t->verbs)
        return;
    option_rows(t, option, name);
    value_of_command(t, &v);
    if (v.kind == VALUE_NONE)
        return;
    printf("complete -c reprise -n '__reprise_is %s'", name);
    value(&v);
    putchar('\n');
}

static void end(void)
{
    verbs("", reprise_commands, reprise_command_count);
}

const struct shell shell_fish = {"fish", begin, command, end};
