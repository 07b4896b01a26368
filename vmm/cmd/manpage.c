/* `reprise manpage`: manual pages (man(7)), out of the tables that commands have their options in.
 */
#define _GNU_SOURCE /* asprintf */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/command_table.h"
#include "version.h"

struct args {
    const char *output;
    char wanted[64]; /* "gpu list"; "": reprise itself */
};

static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "Write all pages into DIR, which is there", 0}, {0}};

/* ---- text ---- */

#define LINE_LONG 60u /* where the source's lines end at the next blank */

/* `like this` is bold; a line never begins with what roff takes for a request. `wrap`: it is text
 * that is filled. */
static void put_words(FILE *out, const char *text, size_t n, bool wrap)
{
    bool bold = false, begins = true;
    size_t column = 0;
    for (size_t i = 0; i < n; i++, column++) {
        char c = text[i];
        if (wrap && c == ' ' && column > LINE_LONG) {
            c = '\n';
            column = 0;
        }
        if (c == '`') {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
        } else if (c == '\\') {
            fputs("\\e", out);
        } else if (c == '-') {
            fputs("\\-", out);
        } else if (c == '~' || c == '^') {
            fprintf(out, "\\(%s", c == '~' ? "ti" : "ha");
        } else {
            fprintf(out, "%s%c", begins && (c == '.' || c == '\'') ? "\\&" : "", c);
        }
        begins = c == '\n';
    }
    if (bold)
        fputs("\\fR", out);
}

static void put_text(FILE *out, const char *text, size_t n)
{
    put_words(out, text, n, false);
}

static void put_line(FILE *out, const char *text)
{
    put_words(out, text, strlen(text), true);
    fputc('\n', out);
}

/* Paragraphs; lines that begin with a blank stay lines. */
static void put_paragraphs(FILE *out, const char *text)
{
    bool lines = false, first = true;
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        bool line = *text == ' ';
        if (line != lines && n)
            fputs(line ? ".PP\n.nf\n" : ".fi\n.PP\n", out);
        else if (!n && !lines && !first && text[1] && text[1] != '\n' && text[1] != ' ')
            fputs(".PP\n", out);
        lines = n ? line : lines;
        put_words(out, text, n, !line);
        if (n)
            fputc('\n', out);
        first = false;
    }
    if (lines)
        fputs(".fi\n", out);
}

static void put_head(FILE *out, const char *page, const char *summary)
{
    fputs(".TH ", out);
    for (const char *p = page; *p; p++)
        fputc(toupper(*p), out);
    fprintf(out, " 1 %s \"reprise %s\" Reprise\n.SH NAME\n", REPRISE_DATE, REPRISE_VERSION);
    put_text(out, page, strlen(page));
    fputs(" \\- ", out);
    put_text(out, summary, strlen(summary));
    fputc('\n', out);
}

/* "gpu list" -> "reprise-gpu-list" */
static void page_name(const char *command, char *out, size_t size)
{
    snprintf(out, size, "reprise%s%s", *command ? "-" : "", command);
    for (char *p = out; *p; p++)
        *p = *p == ' ' ? '-' : *p;
}

/* ---- the page of a command ---- */

static void put_option(const struct option_row *row, void *arg)
{
    FILE *out = arg;
    if (!row->key && !row->name) {
        size_t n = strlen(row->help);
        fputs(".SS ", out);
        put_text(out, row->help, n - (n && row->help[n - 1] == ':'));
        fputc('\n', out);
        return;
    }
    fputs(".TP\n", out);
    if (row->key)
        fprintf(out, "\\fB\\-%c\\fR%s", row->key, row->name ? ", " : "");
    if (row->name) {
        fputs("\\fB\\-\\-", out);
        put_text(out, row->name, strlen(row->name));
        fputs("\\fR", out);
    }
    if (row->arg) {
        const char *between = row->name ? "=" : row->arg_optional ? "" : " ";
        fprintf(out, "%s%s\\fI", row->arg_optional ? "[" : "", between);
        put_text(out, row->arg, strlen(row->arg));
        fprintf(out, "\\fR%s", row->arg_optional ? "]" : "");
    }
    fputc('\n', out);
    if (*row->help)
        put_line(out, row->help);
}

static void put_synopsis(FILE *out, const struct command_table *t)
{
    const char *args = t->argp->args_doc ? t->argp->args_doc : "";
    fputs(".SH SYNOPSIS\n", out);
    for (size_t n;; args += n + 1) {
        n = strcspn(args, "\n");
        fputs("\\fBreprise ", out);
        put_text(out, t->name, strlen(t->name));
        fprintf(out, "\\fR%s", t->verbs ? "" : " [\\fIOPTION\\fR...]");
        if (n) {
            fputs(" ", out);
            put_text(out, args, n);
        }
        fputc('\n', out);
        if (!args[n])
            break;
        fputs(".br\n", out);
    }
}

static void put_verbs(FILE *out, const char *of, const struct verb *verbs, size_t n)
{
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; i < n; i++) {
        char name[64], page[80];
        snprintf(name, sizeof(name), "%s%s%s", of, *of ? " " : "", verbs[i].name);
        page_name(name, page, sizeof(page));
        fputs(".TP\n\\fB", out);
        put_text(out, page, strlen(page));
        fputs("\\fR(1)\n", out);
        put_text(out, verbs[i].summary, strlen(verbs[i].summary));
        fputc('\n', out);
    }
}

/* EXIT_HELP and whatever else stands behind the options. */
static void put_behind(FILE *out, const char *text)
{
    static const char codes[] = "Exit codes: ";
    bool exit = !strncmp(text, codes, strlen(codes));
    fprintf(out, ".SH %s\n", exit ? "EXIT STATUS" : "NOTES");
    put_paragraphs(out, exit ? text + strlen(codes) : text);
}

static void put_see_also(FILE *out, const char *command)
{
    fputs(".SH SEE ALSO\n.BR reprise (1)", out);
    const char *space = strchr(command, ' ');
    if (space)
        fprintf(out, ",\n.BR reprise\\-%.*s (1)", (int)(space - command), command);
    fputc('\n', out);
}

static void put_page(FILE *out, const struct command_table *t)
{
    char page[80];
    const char *doc = t->verbs ? t->before : t->argp->doc;
    size_t n = doc ? strcspn(doc, "\v") : 0;
    char *front = strndup(doc ? doc : "", n);
    page_name(t->name, page, sizeof(page));
    put_head(out, page, t->summary);
    put_synopsis(out, t);
    fputs(".SH DESCRIPTION\n", out);
    put_paragraphs(out, front ? front : "");
    free(front);
    if (t->verbs) {
        put_verbs(out, t->name, t->verbs, t->n);
    } else {
        fputs(".SH OPTIONS\n", out);
        option_rows(t, put_option, out);
    }
    if (command_text_behind(t))
        put_behind(out, command_text_behind(t));
    put_see_also(out, t->name);
}

/* ---- the page of reprise ---- */

static const struct {
    const char *name, *text;
} variables[] =
    {
        {"REPRISE_IMAGES", "Where guest images are, and `reprise image` puts them, instead of the "
                           "places below."},
        {"XDG_CACHE_HOME", "Images and machines of `reprise run` are in its directory `reprise` "
                           "(default: ~/.cache)."},
        {"XDG_DATA_HOME", "Recordings of `reprise run` are in its directory `reprise` (default: "
                          "~/.local/share)."},
        {"TMPDIR", "Where unnamed files of disks are that no recording has room for."},
},
  files[] = {
      {"~/.cache/reprise/images/NAME", "Guest images that `reprise image NAME` has made."},
      {"~/.local/share/reprise/latest", "What commands mean that are given no recording: a link to "
                                        "the latest one of `reprise run`."},
};

static void put_list(FILE *out, const char *title, const char *name, const char *text)
{
    if (title)
        fprintf(out, ".SH %s\n", title);
    fputs(".TP\n\\fB", out);
    put_text(out, name, strlen(name));
    fputs("\\fR\n", out);
    put_line(out, text);
}

static void put_reprise(FILE *out)
{
    static const char codes[] = EXIT_HELP;
    put_head(out, "reprise", "records a whole virtual machine and replays it");
    fputs(".SH SYNOPSIS\n\\fBreprise \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", out);
    put_paragraphs(
        out, "Boots an unmodified Linux in a virtual machine, records everything that enters it, "
             "and replays it instruction for instruction: kernel, processes, devices, GPU.\n\n"
             "Where a command takes the DIR of a recording it takes a packed one, FILE.reprise, "
             "too. `reprise demo` shows a recording and its replay, `reprise doctor` what this "
             "host can do.");
    put_verbs(out, "", reprise_commands, reprise_command_count);
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        put_list(out, i ? NULL : "ENVIRONMENT", variables[i].name, variables[i].text);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        put_list(out, i ? NULL : "FILES", files[i].name, files[i].text);
    put_behind(out, codes + 1);
}

/* ---- the command ---- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    size_t n = strlen(a->wanted);
    switch (key) {
    case 'o': a->output = arg; return 0;
    case ARGP_KEY_ARG:
        if (n + strlen(arg) + 2 > sizeof(a->wanted))
            argp_error(state, "there is no page of '%s'", arg);
        snprintf(a->wanted + n, sizeof(a->wanted) - n, "%s%s", n ? " " : "", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->output && n)
            argp_error(state, "with -o it is all pages, not one");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const char doc[] =
    "Prints the manual page of a command (`gpu list`: of a command's verb), "
    "of reprise itself without one: `reprise manpage record | man -l -`. What "
    "`make install` installs is made by it." EXIT_HELP;

static FILE *page_open(const char *dir, const char *command)
{
    char page[80], *path = NULL;
    FILE *out = NULL;
    page_name(command, page, sizeof(page));
    if (asprintf(&path, "%s/%s.1", dir, page) >= 0 && !(out = fopen(path, "we")))
        fprintf(stderr, "reprise: cannot write %s: %s\n", path, strerror(errno));
    free(path);
    return out;
}

static int page_close(FILE *out, const char *dir)
{
    bool lost = ferror(out);
    if (!fclose(out) && !lost)
        return EX_FINE;
    fprintf(stderr, "reprise: cannot write into %s\n", dir);
    return EX_ERROR;
}

#define FOUND 100 /* a process' end: it has shown the page */

/* All pages go into files, each into its own; else the wanted one to stdout. */
static void show(const struct command_table *t, void *arg)
{
    const struct args *a = arg;
    if (a->output) {
        FILE *out = page_open(a->output, t->name);
        if (out)
            put_page(out, t);
        if (!out || page_close(out, a->output))
            _exit(EX_ERROR);
    } else if (!strcmp(t->name, a->wanted)) {
        put_page(stdout, t);
        _exit(fflush(stdout) || ferror(stdout) ? EX_ERROR : FOUND);
    }
}

/* Is there a command of that name, as far as one knows without asking it for its verbs? */
static const struct verb *command_of(const char *wanted)
{
    size_t n = strcspn(wanted, " ");
    for (size_t i = 0; i < reprise_command_count; i++)
        if (strlen(reprise_commands[i].name) == n && !memcmp(reprise_commands[i].name, wanted, n))
            return &reprise_commands[i];
    return NULL;
}

static int one_page(struct args *a)
{
    const struct verb *command = command_of(a->wanted);
    int code = command ? command_tables(command, 1, show, a) : EX_FINE;
    if (code)
        return code == FOUND ? EX_FINE : code;
    fprintf(stderr, "reprise: there is no command '%s': `reprise help` lists them\n", a->wanted);
    return EX_BAD_USAGE;
}

int cmd_manpage(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "[COMMAND [VERB]]", doc, NULL, NULL, NULL};
    struct args a = {0};
    option_parse(&argp, argc, argv, &a);
    if (*a.wanted)
        return one_page(&a);
    FILE *out = a.output ? page_open(a.output, "") : stdout;
    if (!out)
        return EX_ERROR;
    put_reprise(out);
    if (!a.output)
        return EX_FINE;
    int code = page_close(out, a.output);
    return code ? code : command_tables(reprise_commands, reprise_command_count, show, &a);
}
