/*
 * GRUB's script, as it is run: what the files script*.c share. Not for others: their header is
 * menu.h.
 */
#ifndef REPRISE_BOOT_SCRIPT_H
#define REPRISE_BOOT_SCRIPT_H

#include "boot/menu_internal.h"

#define SCRIPT_MAX_DEPTH  64u /* of blocks in blocks and calls in calls */
#define SCRIPT_FUNCTIONS  64u
#define SCRIPT_WORD_COSTS 16u

struct script_words {
    char **list;
    size_t count;
};

struct script_function {
    char *name;
    const char *body, *end;
};

struct script {
    struct boot_menu *m;
    const char *text; /* all of it, for line numbers */
    const char *env;  /* grubenv; NULL: none */
    size_t env_size;
    struct script_function function[SCRIPT_FUNCTIONS];
    size_t nfunctions;
    const struct script_words *args; /* $1 ... of the function or entry that runs */
    size_t scope;
    int entry, parent; /* the one that runs, -1: none; the submenu new ones go to */
    u64 budget;
    unsigned depth;
    int status; /* of the last command; 0: true */
    struct err *err;
};

/* Where in the text; a copy of it is a place to go back to. */
struct script_cursor {
    const char *at, *end;
};

enum script_token { SCRIPT_END, SCRIPT_LINE, SCRIPT_OPEN, SCRIPT_CLOSE, SCRIPT_WORD };

/* ---- script_words.c ---- */

/* Returns the error: `what`, and the line of `at`. */
int script_fail(struct script *s, const char *at, const char *what);
/* Takes `cost` from the budget; an error when that is used up. */
int script_pay(struct script *s, const char *at, u64 cost);
void script_words_free(struct script_words *w);
/*
 * The next token. Of a word, `*raw` is where it starts; with `w` not NULL what it stands for is
 * appended, which may be no word or several.
 */
int script_next(struct script *s, struct script_cursor *c, enum script_token *token,
                const char **raw, struct script_words *w);
/* Is the word that starts at `raw` and ends at the cursor `word`, without quotes? */
bool script_raw_is(const struct script_cursor *c, const char *raw, const char *word);
/* After `{`: *body is what stands up to the `}` that belongs to it. */
int script_block(struct script *s, struct script_cursor *c, struct script_cursor *body);

/* ---- script_test.c ---- */

/* What `test` says of these words. */
bool script_test(struct script *s, char **word, size_t count);

/* ---- script_command.c ---- */

/* One command that has no block; its status is s->status. */
int script_command(struct script *s, const char *at, struct script_words *w);

/* ---- script.c ---- */

/* Runs `body` in a scope of its own, or in the one that is, with `args`. */
int script_run(struct script *s, struct script_cursor body, const struct script_words *args,
               bool scoped);

#endif
