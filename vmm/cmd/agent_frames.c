/* See agent_frames.h. */
#include "cmd/agent_frames.h"

#include <string.h>

static bool is_output(u32 type)
{
    return type == AGENT_OUTPUT || type == AGENT_ERROR_OUTPUT;
}

/* A frame is over. */
static void over(struct agent_frames *a)
{
    if (!is_output(a->head.type))
        a->frame(a->opaque, a->head.type, a->text, a->head.len);
    a->within = false;
    a->have = 0;
}

static size_t take_head(struct agent_frames *a, const u8 *from, size_t len)
{
    size_t n = MIN(len, sizeof(a->head) - a->have);
    memcpy((u8 *)&a->head + a->have, from, n);
    a->have += (u32)n;
    if (a->have < sizeof(a->head))
        return n;
    a->broken = !agent_frame_fits(a->head.type, a->head.len, AGENT_GUEST);
    a->within = true;
    a->have = 0;
    if (!a->broken && !a->head.len)
        over(a);
    return n;
}

static size_t take_body(struct agent_frames *a, const u8 *from, size_t len)
{
    size_t n = MIN(len, (size_t)(a->head.len - a->have));
    if (is_output(a->head.type))
        a->output(a->opaque, a->head.type == AGENT_OUTPUT ? 1 : 2, from, n);
    else
        memcpy(a->text + a->have, from, n);
    a->have += (u32)n;
    if (a->have == a->head.len)
        over(a);
    return n;
}

void agent_frames_take(struct agent_frames *a, const void *data, size_t len)
{
    const u8 *from = data;
    while (len && !a->broken) {
        size_t n = a->within ? take_body(a, from, len) : take_head(a, from, len);
        from += n;
        len -= n;
    }
}
