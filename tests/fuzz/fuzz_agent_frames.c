/* Fuzz target: what `reprise run` hears of a guest's agent, in pieces of as many bytes as the first
 * one says, and at once. */
#include <stdlib.h>
#include <string.h>

#include "cmd/agent_frames.h"
#include "mutate.h"

static size_t heard, whole;

static void on_output(void *opaque, int fd, const void *data, size_t len)
{
    if (opaque != &heard || (fd != 1 && fd != 2) || (len && !data))
        abort();
    heard += len;
}

static void on_frame(void *opaque, enum agent_type type, const void *data, size_t len)
{
    if (opaque != &heard || !agent_frame_fits(type, (u32)len, AGENT_GUEST) || !data ||
        len > AGENT_DATA_MAX)
        abort();
    whole++;
}

static void as_host(const u8 *data, size_t size, size_t piece)
{
    struct agent_frames a = {.output = on_output, .frame = on_frame, .opaque = &heard};
    heard = whole = 0;
    for (size_t at = 0; at < size; at += piece)
        agent_frames_take(&a, data + at, MIN(piece, size - at));
    size_t again = heard, frames = whole;
    bool broken = a.broken;
    a = (struct agent_frames){.output = on_output, .frame = on_frame, .opaque = &heard};
    heard = whole = 0;
    agent_frames_take(&a, data, size);
    if (heard != again || whole != frames || a.broken != broken || heard > size)
        abort();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    if (size)
        as_host(data + 1, size - 1, data[0] + 1u);
    return 0;
}
