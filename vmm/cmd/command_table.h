/*
 * The options that commands have, for manual pages and completion: each command is asked for its
 * own table, which is where it hands it to argp. So there is no second list of options anywhere.
 */
#ifndef REPRISE_CMD_COMMAND_TABLE_H
#define REPRISE_CMD_COMMAND_TABLE_H

#include <stdio.h>

#include "cmd/cmd.h"

struct command_table {
    const char *name;    /* "record", "gpu list" */
    const char *summary; /* its line in the list of commands */
    const struct argp *argp;
    const struct verb *verbs; /* n of them; NULL: it has none */
    size_t n;
    const char *before; /* with verbs: what it is, without the list of them */
};

/* Of each command, in order, then of its verbs: shows a table, in a process of its own whose stdout
 * goes where ours goes. EX_FINE, or what the first one ended with that did not end well. */
typedef void command_table_fn(const struct command_table *table, void *arg);
int command_tables(const struct verb *verbs, size_t n, command_table_fn *show, void *arg);
/* The table of `reprise` itself is not among them. */
extern const struct verb reprise_commands[];
extern const size_t reprise_command_count;

/* For those who parse options: if the process was started for its table, shows it and ends. */
void command_table_show(const struct command_table *table);

/* ---- what a row of argp's says ---- */

/* Each option that is shown, with its children's; one without name and letter is a heading. */
struct option_row {
    int key;                       /* its letter, or 0 */
    const char *name, *arg, *help; /* until the function returns */
    bool arg_optional;
};
typedef void option_row_fn(const struct option_row *row, void *arg);
void option_rows(const struct command_table *table, option_row_fn *fn, void *arg);

/* Of a command's text, what stands behind its options; NULL: nothing. */
const char *command_text_behind(const struct command_table *table);

#endif
