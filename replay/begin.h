/*
 * A recording that begins in another one: its machine is brought to an instant of the other, from
 * the last checkpoint file before it where there is one, else from power-on, and its log goes on
 * from there. So the new recording is complete in itself, and both are the same up to the instant:
 * machine.dtb, the log's bytes, checkpoint files.
 *
 * Called by the session of `record --from` (cmd/session.c), behind the door.
 */
#ifndef REPRISE_BEGIN_H
#define REPRISE_BEGIN_H

#include "replay/checkpoint.h"
#include "replay/opened.h"

struct begin;

/* The machine, at power-on, of both. Takes over the log of `from`, also on error. */
int begin_create(struct begin **out, struct opened *from, struct instant at, struct machine *m,
                 struct err *err);
/*
 * To the last of the checkpoint files in `to`, of which `notes` says which are believed, that is
 * not after the instant. *said: what is wrong with files; text "": nothing. <0: the machine is of
 * no use any more.
 */
int begin_jump(struct begin *b, const struct recording *to, const struct checkpoint_notes *notes,
               struct err *said, struct err *err);
/* The file that it stands at, and how many there are with it; NULL, 0: it is at power-on. */
const struct checkpoint_file *begin_file(const struct begin *b, u32 *files);
/* On to the instant. `poll` is called every few ms with the position; true ends it: -EINTR. */
int begin_run(struct begin *b, bool (*poll)(void *opaque, pos_t position), void *opaque,
              struct err *err);
/* The log of `to`, which goes on there: how many inputs it has, and of how much host time. *rest:
 * that of `from`, which stands there, and is the caller's; NULL: nobody wants it. */
int begin_log(struct begin *b, struct recording *to, struct log_writer **out, u64 *inputs,
              u64 *host_ns, struct log_reader **rest, struct err *err);
void begin_destroy(struct begin *b); /* NULL is safe */

#endif
