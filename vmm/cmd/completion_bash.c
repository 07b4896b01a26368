/* The script for bash: a function for each command, which says what there is, and one that asks it.
 * It needs nothing of the package bash-completion. */
#include "cmd/completion.h"

#include <string.h>

static const char *const kinds[VALUE_KINDS] = {
    "none", "words", "file", "directory", "recording", "recording_file", "run", "image", "program"};

static void begin(void)
{
    fputs("# Completion of reprise for bash: made by `reprise completion bash`.\n", stdout);
}

static void option_names(const struct option_row *row, void *arg)
{
    (void)arg;
    if (row->key)
        printf(" -%c", row->key);
    if (row->name)
        printf(" --%s", row->name);
}

static void option_value(const struct option_row *row, void *arg)
{
    struct value v;
    (void)arg;
    if (!value_of_option(row, &v))
        return;
    fputs("    ", stdout);
    if (row->key)
        printf("-%c%s", row->key, row->name ? "|" : "");
    if (row->name)
        printf("--%s", row->name);
    printf(") kind=%s words='%s' optional=%s ;;\n", kinds[v.kind], v.words,
           row->arg_optional ? "yes" : "");
}

static void command(const struct command_table *t, void *arg)
{
    struct value v;
    (void)arg;
    fputs("_reprise__", stdout);
    for (const char *p = t->name; *p; p++)
        putchar(*p == ' ' || *p == '-' ? '_' : *p);
    fputs("() {\n    verbs='", stdout);
    for (size_t i = 0; i < t->n; i++)
        printf("%s%s", i ? " " : "", t->verbs[i].name);
    fputs("' options='", stdout);
    option_rows(t, option_names, NULL);
    value_of_command(t, &v);
    printf("' positional=%s own='%s'\n    case $1 in\n", kinds[v.kind], v.words);
    option_rows(t, option_value, NULL);
    fputs("    esac\n}\n", stdout);
}

static const char driver[] =
    "\n"
    "# Directories that are recordings, those on the way to one, and packed ones.\n"
    "_reprise_recordings() {\n"
    "    local path\n"
    "    while IFS= read -r path; do\n"
    "        if [[ -f $path/machine.dtb ]] || compgen -G \"$path/*/\" >/dev/null ||\n"
    "            compgen -G \"$path/*.reprise\" >/dev/null; then COMPREPLY+=(\"$path\"); fi\n"
    "    done < <(compgen -d -- \"$1\")\n"
    "    while IFS= read -r path; do COMPREPLY+=(\"$path\"); done < <(compgen -f -X '!*.reprise' "
    "-- "
    "\"$1\")\n"
    "}\n"
    "\n"
    "# _reprise_values KIND WORDS BEGINNING\n"
    "_reprise_values() {\n"
    "    case $1 in\n"
    "    words) mapfile -t COMPREPLY < <(compgen -W \"$2\" -- \"$3\") ;;\n"
    "    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$3\") ;;\n"
    "    directory) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$3\") ;;\n"
    "    recording) compopt -o filenames; _reprise_recordings \"$3\" ;;\n"
    "    recording_file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$3\") ;;\n"
    "    run) mapfile -t COMPREPLY < <(cd \"${XDG_DATA_HOME:-$HOME/.local/share}/reprise\" "
    "2>/dev/null &&\n"
    "        compgen -d -- \"$3\") ;;\n"
    "    image) mapfile -t COMPREPLY < <(compgen -W \"$(\"$program\" image --names 2>/dev/null)\" "
    "-- \"$3\") ;;\n"
    "    program) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -c -- \"$3\"; compgen -f "
    "-- \"$3\") ;;\n"
    "    esac\n"
    "    # A word that goes on behind = or : is not ended yet.\n"
    "    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[=:] ]] || compopt -o nospace\n"
    "}\n"
    "\n"
    "_reprise() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} word joined=() program=$1\n"
    "    local name= verbs= options= positional=none own= kind= words= optional=\n"
    "    COMPREPLY=()\n"
    "    # bash has words end at = and :, the user at blanks.\n"
    "    for word in \"${COMP_WORDS[@]:0:COMP_CWORD+1}\"; do\n"
    "        if [[ ${#joined[@]} = 0 || $line = [[:space:]]* ]]; then joined+=(\"$word\")\n"
    "        else joined[-1]+=$word; fi\n"
    "        line=${line#\"${line%%[![:space:]]*}\"}\n"
    "        line=${line#\"$word\"}\n"
    "    done\n"
    "    local cur=${joined[-1]} last=$((${#joined[@]} - 1)) at=1 i\n"
    "    [[ ${joined[1]:-} != help || $last -lt 2 ]] || at=2\n"
    "    if [[ $last = \"$at\" ]]; then\n"
    "        _reprise_values words \"$commands\" \"$cur\"\n"
    "        return\n"
    "    fi\n"
    "    local function=_reprise__${joined[at]//-/_}\n"
    "    declare -F \"$function\" >/dev/null || return\n"
    "    \"$function\" ''\n"
    "    if [[ -n $verbs ]]; then\n"
    "        at=$((at + 1))\n"
    "        if [[ $last = \"$at\" ]]; then _reprise_values words \"$verbs\" \"$cur\"; return; fi\n"
    "        function+=_${joined[at]//-/_}\n"
    "        declare -F \"$function\" >/dev/null || return\n"
    "        \"$function\" ''\n"
    "    fi\n"
    "    # Whatever stands behind -- or a program is not ours.\n"
    "    local behind=\n"
    "    for ((i = at + 1; i < last; i++)); do\n"
    "        if [[ ${joined[i]} = -- ]]; then behind=$((i + 1)); break; fi\n"
    "        if [[ ${joined[i]} != -* ]]; then\n"
    "            [[ $positional != program ]] || { behind=$i; break; }\n"
    "            continue\n"
    "        fi\n"
    "        kind=\n"
    "        \"$function\" \"${joined[i]}\"\n"
    "        [[ -z $kind || -n $optional ]] || i=$((i + 1))\n"
    "    done\n"
    "    kind= optional=\n"
    "    if [[ -n $behind ]]; then\n"
    "        [[ $positional = program && $behind = \"$last\" ]] || positional=file\n"
    "        _reprise_values \"$positional\" \"$own\" \"$cur\"\n"
    "    elif [[ $cur = --*=* ]]; then\n"
    "        \"$function\" \"${cur%%=*}\"\n"
    "        cur=${cur#*=}\n"
    "        [[ -z $kind ]] || _reprise_values \"$kind\" \"$words\" \"$cur\"\n"
    "    else\n"
    "        [[ ${joined[last-1]} != -* ]] || \"$function\" \"${joined[last-1]}\"\n"
    "        if [[ -n $kind && -z $optional ]]; then _reprise_values \"$kind\" \"$words\" "
    "\"$cur\"\n"
    "        elif [[ $cur = -* ]]; then _reprise_values words \"$options\" \"$cur\"\n"
    "        else _reprise_values \"$positional\" \"$own\" \"$cur\"; fi\n"
    "    fi\n"
    "    # bash replaces what stands behind the last : only.\n"
    "    if [[ $cur = *:* && $COMP_WORDBREAKS = *:* ]]; then\n"
    "        for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=${COMPREPLY[i]#\"${cur%:*}:\"}; done\n"
    "    fi\n"
    "}\n";

static void end(void)
{
    const char *at = strstr(driver, "\"$commands\"");
    printf("%.*s\"", (int)(at - driver), driver);
    for (size_t i = 0; i < reprise_command_count; i++)
        printf("%s ", reprise_commands[i].name);
    printf("help --help --version\"%s", at + strlen("\"$commands\""));
    fputs("complete -F _reprise reprise\n", stdout);
}

const struct shell shell_bash = {"bash", begin, command, end};
