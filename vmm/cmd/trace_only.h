/*
 * What `reprise trace --only` asks for: places (ranges of addresses, functions of the guest's
 * kernel) and processes. An instruction is wanted if it is at one of the places, if there are any,
 * and of one of the processes, if there are any.
 */
#ifndef REPRISE_CMD_TRACE_ONLY_H
#define REPRISE_CMD_TRACE_ONLY_H

#include "cpu/engine.h"
#include "inspect/running.h"

#define ONLY_MAX 64 /* of each kind; a function may be several ranges */

struct only {
    struct engine_range place[ONLY_MAX];
    unsigned nplaces;
    struct only_process {
        i32 pid; /* of the process or of a thread; -1: by name */
        char comm[16];
    } process[ONLY_MAX];
    unsigned nprocesses;
    bool by_name; /* some process is */
};

/* Is a word one that can be understood without the guest's symbols? For the command line: <0 with a
 * text if it can never be. */
int only_check(const char *word, struct err *err);
/* Adds a word; `s` may be NULL. -ENOENT with a text: no such function, or no symbols. */
int only_add(struct only *o, const char *word, const struct symbols *s, struct err *err);
/* After the last: places in the engine's order. */
void only_finish(struct only *o);
bool only_wants(const struct only *o, const struct running_task *task);

#endif
