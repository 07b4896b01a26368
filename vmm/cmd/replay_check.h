/* `reprise verify`: a replay to the end that also compares the recording's checkpoints, and notes
 * them for this user. */
#ifndef REPRISE_CMD_REPLAY_CHECK_H
#define REPRISE_CMD_REPLAY_CHECK_H

#include "cmd/cmd.h"
#include "replay/checkpoint_check.h"

struct replay_check {
    bool wanted;
    struct checkpoint_notes notes;
    struct err not_noted;           /* code 0: notes can be made */
    struct checkpoint_check *check; /* NULL: nothing to compare */
    struct checkpoint_verdict verdict;
};
#define REPLAY_CHECK_CLOSED                                                                        \
    {                                                                                              \
        .notes = CHECKPOINT_NOTES_NONE                                                             \
    }

/* Before the machine is there, as it opens this user's notes. */
void replay_check_prepare(struct replay_check *c, const struct opened *o);
int replay_check_begin(struct replay_check *c, const struct opened *o, struct player *player,
                       struct machine *m, struct err *err);
/* What the machine is run with. */
struct input_source *replay_check_source(const struct replay_check *c, struct player *player);
/* After the run, which came to `result`: exit code of the checkpoints alone. */
int replay_check_finish(struct replay_check *c, enum player_result result);
void replay_check_json(const struct replay_check *c);
void replay_check_print(const struct replay_check *c, const char *dir);
void replay_check_close(struct replay_check *c);

#endif
