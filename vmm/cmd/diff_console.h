/* `reprise diff`: the consoles of two recordings, which only replays know. */
#ifndef REPRISE_CMD_DIFF_CONSOLE_H
#define REPRISE_CMD_DIFF_CONSOLE_H

#include <sys/types.h>

#include "base/err.h"

/* Who replays them: processes of their own, that wait from before we lock ourselves in. */
struct diff_consoles {
    pid_t pid[2];
    int go[2], from[2];
};
int diff_consoles_prepare(struct diff_consoles *c, const char *const dir[2], struct err *err);
void diff_consoles_end(struct diff_consoles *c); /* also after an error */

/* Replays both and prints where their consoles part, as a sentence or a member of a JSON object.
 * One that cannot be replayed (to its end) is named. */
void diff_consoles(struct diff_consoles *c, const char *const dir[2], bool json);

#endif
