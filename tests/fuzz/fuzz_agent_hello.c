/* Fuzz target: HELLO and WELCOME looked for among whatever comes (guest-agent/agent/sync.h), in
 * pieces of as many bytes as the first one says, and at once; and one that comes after all of it.
 */
#include <stdlib.h>
#include <string.h>

#include "guest-agent/agent/sync.h"
#include "mutate.h"

static size_t look(struct sync *s, u32 type, const u8 *data, size_t size, size_t piece)
{
    size_t at = 0;
    sync_init(s, type);
    while (at < size && !s->found) {
        size_t n = MIN(piece, size - at), used = sync_take(s, data + at, n);
        if (used > n || (used < n && !s->found))
            abort();
        at += used;
    }
    return at;
}

static void as(u32 type, const u8 *data, size_t size, size_t piece)
{
    struct sync in_pieces, at_once;
    struct agent_hello h, again;
    size_t end = look(&in_pieces, type, data, size, piece);
    if (look(&at_once, type, data, size, size + 1) != end || at_once.found != in_pieces.found)
        abort();
    if (at_once.found) {
        size_t len = sync_found(&at_once, &h, sizeof(h));
        sync_found(&in_pieces, &again, sizeof(again));
        if (memcmp(&h, &again, sizeof(h)) || len < SYNC_LEAST || len > AGENT_HELLO_MAX ||
            end < len || memcmp(data + end - len, &h, MIN(len, sizeof(h))))
            abort();
        return;
    }
    /* Nothing that came may hide the next, but for what took a part of it for its own end: so it is
     * said twice. */
    struct {
        struct agent_frame head;
        struct agent_hello body;
    } hello[2] = {{.head = {type, sizeof(h)}, .body = {.number = 77}}};
    sync_magic(type, hello[0].body.magic);
    hello[1] = hello[0];
    u8 *all = malloc(size + AGENT_HELLO_MAX + sizeof(hello));
    if (size)
        memcpy(all, data, size);
    memset(all + size, 0, AGENT_HELLO_MAX);
    memcpy(all + size + AGENT_HELLO_MAX, hello, sizeof(hello));
    look(&at_once, type, all, size + AGENT_HELLO_MAX + sizeof(hello), piece);
    if (!at_once.found)
        abort();
    free(all);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    if (!size)
        return 0;
    as(AGENT_HELLO, data + 1, size - 1, data[0] + 1u);
    as(AGENT_WELCOME, data + 1, size - 1, data[0] + 1u);
    return 0;
}
