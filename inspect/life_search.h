/*
 * Looking for an instant in what happened to a guest's processes (lives.h), while the list grows:
 * the K-th program of a name that was executed, the end of a process, the K-th crash, the panic,
 * the K-th mark of a name that a program made.
 */
#ifndef REPRISE_LIFE_SEARCH_H
#define REPRISE_LIFE_SEARCH_H

#include "inspect/lives.h"

enum life_search_kind { SEARCH_EXEC, SEARCH_EXIT, SEARCH_CRASH, SEARCH_PANIC, SEARCH_MARK };

struct life_search {
    enum life_search_kind kind;
    const char *name; /* of a mark; of a program: its comm, or the last part of its first argument
                         or file */
    i32 pid;
    u64 k; /* from 1 */
    /* Zeros at first. */
    u32 next; /* the first that has not been looked at */
    u64 seen; /* so many before it */
    /* Once found. */
    u32 who; /* LIVES_NONE: in no task that is known */
    struct life_time at;
};

/* True: it is found. `all`: nothing more comes. */
bool life_search_on(struct life_search *s, const struct lives *l, bool all);
/* Was it a program of that name? */
bool life_is_program(const struct lives *l, const struct life_event *e, const char *name);
/* The last part of the first argument, of at most `size` bytes with the NUL. */
void life_first_argument(const struct lives *l, const struct life_event *e, char *out, size_t size);

#endif
