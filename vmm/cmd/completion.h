/*
 * `reprise completion`: what can stand where on a command line, out of the tables that commands
 * have their options in, and the scripts for shells that say so (completion_SHELL.c).
 */
#ifndef REPRISE_CMD_COMPLETION_H
#define REPRISE_CMD_COMPLETION_H

#include "cmd/command_table.h"

enum value_kind {
    VALUE_NONE, /* something that nobody can guess */
    VALUE_WORDS,
    VALUE_FILE,
    VALUE_DIRECTORY,
    VALUE_RECORDING,      /* a directory that is one, or FILE.reprise */
    VALUE_RECORDING_FILE, /* the same, or another file */
    VALUE_RUN,            /* a name of `reprise ls` */
    VALUE_IMAGE,          /* a name of `reprise image --list` */
    VALUE_PROGRAM,        /* a program, and what it takes */
    VALUE_KINDS,
};

/* What an option's argument, or a command's own, can be. */
struct value {
    enum value_kind kind;
    char words[1024]; /* of VALUE_WORDS, with blanks between; those that end in = or : go on */
};
/* false: the option takes no argument. */
bool value_of_option(const struct option_row *row, struct value *out);
void value_of_command(const struct command_table *table, struct value *out);

/* The first words of a text on options, for a line in a menu: no quotes, no brackets. */
void short_help(const char *help, char *out, size_t size);

/* What a shell's script consists of: its beginning, a part for each command, its end. */
struct shell {
    const char *name;
    void (*begin)(void);
    command_table_fn *command;
    void (*end)(void);
};
extern const struct shell shell_bash, shell_zsh, shell_fish;

#endif
