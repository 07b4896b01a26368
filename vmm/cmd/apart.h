/*
 * Commands of this program in processes of their own, which end with this one: recorders, and who
 * reads what a guest made, lock themselves in.
 */
#ifndef REPRISE_CMD_APART_H
#define REPRISE_CMD_APART_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct apart_ends {
    int agent; /* of the port of the machine's agent, as record_with_agent(); -1: none */
    int voice; /* what it says goes there, and it has no input and output; -1: it has ours */
    bool keys; /* those of a terminal are for others: it has a process group of its own */
};

/* `reprise record`; NULL ends argv. -1: errno. */
pid_t apart_record(const char *const *argv, const struct apart_ends *ends);
/* ... with a voice, which is waited for; what it said is said again if it failed, or, where `rec`
 * is not NULL, has not made the recording of that name. Its exit code; -1: errno. */
int apart_record_quietly(const char *const *argv, bool keys, const char *rec);
/* `reprise replay`, whose output goes to these, -1: where this one's does. The same. */
int apart_replay(const char *const *argv, int out, int errors);
/* Its exit code, 128 and the number of the signal that ended it; -1: errno. */
int apart_wait(pid_t pid);
/* What was said to a voice, on stderr. */
void apart_repeat(int voice);

/* What each answer begins with: <0 with a text, or 0, and then `err` is of no interest. */
struct apart_answer {
    int code;
    struct err err;
};
/* `find` fills in the answer, `size` bytes, which begin with a struct apart_answer, zeros before.
 * <0 with a text: what it says, or it could not be asked, or ended too early, at `what`. The answer
 * is of who read somebody's file. */
int apart_ask(void (*find)(const void *question, void *answer), const void *question, void *answer,
              size_t size, const char *what, struct err *err);

#endif
