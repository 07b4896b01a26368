/* The script for zsh: _arguments is told of each command's options. */
#include "cmd/completion.h"

#include <string.h>

static const char *const kinds[VALUE_KINDS] = {
    [VALUE_NONE] = " ",
    [VALUE_FILE] = "_files",
    [VALUE_DIRECTORY] = "_files -/",
    [VALUE_RECORDING] = "_reprise_recordings",
    [VALUE_RECORDING_FILE] = "_files",
    [VALUE_RUN] = "_reprise_runs",
    [VALUE_IMAGE] = "_reprise_images",
    [VALUE_PROGRAM] = "_reprise_program",
};

static void function_name(const char *command)
{
    fputs("_reprise__", stdout);
    for (; *command; command++)
        putchar(*command == ' ' || *command == '-' ? '_' : *command);
}

/* Behind a blank _arguments adds nothing of its own to a function's arguments. */
static void action(const struct value *v)
{
    bool go_on = strpbrk(v->words, "=:");
    if (v->kind != VALUE_WORDS) {
        fputs(kinds[v->kind], stdout);
        return;
    }
    fputs(go_on ? " _reprise_words " : "(", stdout);
    for (const char *p = v->words; *p; p++)
        printf("%s%c", *p == ':' ? "\\" : "", *p);
    fputs(go_on ? "" : ")", stdout);
}

static void option(const struct option_row *row, void *arg)
{
    char help[128], value[80];
    struct value v;
    (void)arg;
    bool takes = value_of_option(row, &v);
    short_help(row->help, help, sizeof(help));
    short_help(row->arg ? row->arg : "", value, sizeof(value));
    for (int letter = 0; letter < 2; letter++) {
        if (letter ? !row->key : !row->name)
            continue;
        fputs(" \\\n        '", stdout);
        if (letter)
            printf("*-%c%s", row->key, takes ? "+" : "");
        else
            printf("*--%s%s", row->name, !takes ? "" : row->arg_optional ? "=-" : "=");
        printf("[%s]", help);
        if (takes) {
            printf("%s:%s:", row->arg_optional ? ":" : "", *value ? value : "value");
            action(&v);
        }
        putchar('\'');
    }
}

static void describe(const struct verb *verbs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char help[128];
        short_help(verbs[i].summary, help, sizeof(help));
        printf(" \\\n        '%s:%s'", verbs[i].name, help);
    }
    fputs(")\n", stdout);
}

/* What both reprise and a command with verbs do: the first word, then what that one takes. */
static void dispatch(const struct verb *verbs, size_t n, const char *of)
{
    fputs("    local -a verbs\n    verbs=(", stdout);
    describe(verbs, n);
    fputs("    if ((CURRENT == 2)); then\n        _describe -t commands command verbs\n"
          "        return\n    fi\n",
          stdout);
    if (!*of)
        fputs("    [[ $words[2] != help ]] || { shift words; ((CURRENT--)); _reprise; return; }\n",
              stdout);
    fputs("    local function=", stdout);
    function_name(of);
    fputs(*of ? "_" : "", stdout);
    fputs("${words[2]//-/_}\n    (( $+functions[$function] )) || return 1\n"
          "    shift words\n    ((CURRENT--))\n    $function\n",
          stdout);
}

static void begin(void)
{
    fputs("#compdef reprise\n"
          "# Completion of reprise for zsh: made by `reprise completion zsh`.\n"
          "\n"
          "_reprise_words() {\n"
          "    local -a plain more\n"
          "    local word\n"
          "    for word in \"$@\"; do\n"
          "        case $word in\n"
          "        *[=:]) more+=($word) ;;\n"
          "        *) plain+=($word) ;;\n"
          "        esac\n"
          "    done\n"
          "    compadd -a plain\n"
          "    compadd -S '' -a more\n"
          "}\n"
          "# A directory that is one, or is on the way to one.\n"
          "_reprise_leads() {\n"
          "    local -a within\n"
          "    within=($REPLY/*(N-/))\n"
          "    [[ -e $REPLY/machine.dtb ]] || ((#within))\n"
          "}\n"
          "_reprise_recordings() {\n"
          "    _path_files -g '*(-/+_reprise_leads) *.reprise(-.)'\n"
          "}\n"
          "_reprise_runs() {\n"
          "    _path_files -W \"${XDG_DATA_HOME:-$HOME/.local/share}/reprise\" -/\n"
          "}\n"
          "_reprise_images() {\n"
          "    compadd -- ${(f)\"$(reprise image --names 2>/dev/null)\"}\n"
          "}\n"
          "_reprise_program() {\n"
          "    if ((CURRENT == 1)); then _command_names -e; _files; else _normal; fi\n"
          "}\n",
          stdout);
}

static void command(const struct command_table *t, void *arg)
{
    struct value v;
    (void)arg;
    function_name(t->name);
    fputs("() {\n", stdout);
    if (t->verbs) {
        dispatch(t->verbs, t->n, t->name);
    } else {
        value_of_command(t, &v);
        fputs("    _arguments -s -S", stdout);
        option_rows(t, option, NULL);
        /* An argument that nobody can guess would hide the options. */
        if (v.kind != VALUE_NONE) {
            printf(" \\\n        '%s:argument:", v.kind == VALUE_PROGRAM ? "*:" : "*");
            action(&v);
            putchar('\'');
        }
        putchar('\n');
    }
    fputs("}\n", stdout);
}

static void end(void)
{
    fputs("_reprise() {\n", stdout);
    dispatch(reprise_commands, reprise_command_count, "");
    fputs("}\n"
          "# Found by compinit this file is the function; sourced, it defines it.\n"
          "if [[ $funcstack[1] = _reprise ]]; then _reprise \"$@\"; else compdef _reprise reprise; "
          "fi\n",
          stdout);
}

const struct shell shell_zsh = {"zsh", begin, command, end};
