/* See replay_check.h. */
#include "cmd/replay_check.h"

#include <errno.h>

void replay_check_prepare(struct replay_check *c, const struct opened *o)
{
    u64 bytes;
    c->wanted = c->wanted && checkpoint_count(&o->rec, &bytes);
    if (c->wanted)
        checkpoint_notes_begin(&c->notes, &o->rec, &c->not_noted);
}

int replay_check_begin(struct replay_check *c, const struct opened *o, struct player *player,
                       struct machine *m, struct err *err)
{
    return c->wanted ? checkpoint_check_create(&c->check, o, player,
                                               c->not_noted.code ? NULL : &c->notes, m, err)
                     : 0;
}

struct input_source *replay_check_source(const struct replay_check *c, struct player *player)
{
    return c->check ? checkpoint_check_source(c->check) : player_source(player);
}

int replay_check_finish(struct replay_check *c, enum player_result result)
{
    if (!c->check)
        return EX_FINE;
    checkpoint_check_finish(c->check, result == PLAYER_SAME, &c->verdict);
    if (!c->not_noted.code)
        c->not_noted = c->verdict.not_noted;
    return c->verdict.differs ? EX_DIVERGED : c->verdict.wrong.code ? EX_ERROR : EX_FINE;
}

void replay_check_json(const struct replay_check *c)
{
    if (!c->check)
        return;
    printf(",\"checkpoints\":{\"files\":%u,\"same\":%u,\"noted\":%s,\"message\":", c->verdict.files,
           c->verdict.same, c->not_noted.code ? "false" : "true");
    json_text(stdout, c->verdict.wrong.code ? c->verdict.wrong.text : "");
    putchar('}');
}

void replay_check_print(const struct replay_check *c, const char *dir)
{
    const struct checkpoint_verdict *v = &c->verdict;
    if (!c->check)
        return;
    if (v->wrong.code)
        fprintf(stderr, "reprise: %s (`reprise checkpoint %s` makes new ones)\n", v->wrong.text,
                dir);
    if (v->same)
        fprintf(stderr, "reprise: checkpoints that are what the replay came to: %u of %u%s%s\n",
                v->same, v->files,
                c->not_noted.code ? "; they cannot be noted as checked: " : ", noted as checked",
                c->not_noted.text);
}

void replay_check_close(struct replay_check *c)
{
    checkpoint_check_destroy(c->check);
    c->check = NULL;
    checkpoint_notes_close(&c->notes);
}
