/* See sync.h. */
#include "guest-agent/agent/sync.h"

#include <string.h>

/* With the last byte apart, so that the magics stand in no program's file as they are sent. */
void sync_magic(uint32_t type, uint8_t out[AGENT_MAGIC_SIZE])
{
    static const uint8_t magic[AGENT_MAGIC_SIZE] = AGENT_MAGIC;
    memcpy(out, magic, AGENT_MAGIC_SIZE);
    out[AGENT_MAGIC_SIZE - 1] = type == AGENT_HELLO ? AGENT_MAGIC_HOST : AGENT_MAGIC_GUEST;
}

void sync_init(struct sync *s, uint32_t type)
{
    *s = (struct sync){.type = type};
}

/* Can what is there be the beginning of it? */
static bool fits(const struct sync *s)
{
    struct agent_frame head = {s->type, 0};
    uint8_t magic[AGENT_MAGIC_SIZE];
    size_t n = s->have < 4 ? s->have : 4;
    if (memcmp(s->bytes, &head, n))
        return false;
    if (s->have < sizeof(head))
        return true;
    memcpy(&head, s->bytes, sizeof(head));
    if (head.len < SYNC_LEAST || head.len > AGENT_HELLO_MAX)
        return false;
    n = s->have - sizeof(head);
    sync_magic(s->type, magic);
    return !memcmp(s->bytes + sizeof(head), magic, n < sizeof(magic) ? n : sizeof(magic));
}

size_t sync_take(struct sync *s, const void *data, size_t len)
{
    const uint8_t *from = data;
    size_t at = 0;
    while (at < len && !s->found) {
        s->bytes[s->have++] = from[at++];
        while (s->have && s->have <= SYNC_HEAD && !fits(s))
            memmove(s->bytes, s->bytes + 1, --s->have);
        if (s->have <= SYNC_HEAD)
            continue;
        struct agent_frame head;
        memcpy(&head, s->bytes, sizeof(head));
        s->found = s->have == sizeof(head) + head.len;
    }
    return at;
}

size_t sync_found(const struct sync *s, void *out, size_t size)
{
    struct agent_frame head;
    memcpy(&head, s->bytes, sizeof(head));
    memset(out, 0, size);
    memcpy(out, s->bytes + sizeof(head), head.len < size ? head.len : size);
    return head.len;
}
