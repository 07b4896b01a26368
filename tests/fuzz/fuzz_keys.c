/*
 * Fuzz target: typed bytes through the Ctrl-A keys into the guest's queue. Each input is read as
 * steps: a length, bytes to type, then takes with the room that the next byte says.
 */
#include <stdlib.h>
#include <string.h>

#include "live/keys.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct keys *k = calloc(1, sizeof(*k));
    size_t at = 0, typed = 0, taken = 0;
    while (at < size) {
        size_t len = MIN((size_t)data[at] * 8, size - at - 1);
        at++;
        keys_typed(k, data + at, len);
        at += len;
        typed += len;
        if (keys_room(k) > KEYS_ROOM)
            abort();
        unsigned room = at < size ? data[at] % 20 : 16;
        for (unsigned i = 0; i < 200; i++) {
            struct input in;
            bool ready = keys_ready(k, room);
            if (keys_take(k, room, &in) != ready)
                abort();
            if (!ready)
                break;
            if (in.kind == INPUT_CONSOLE &&
                (!in.len || in.len > room || in.len > INPUT_CONSOLE_MAX))
                abort();
            taken += in.kind == INPUT_CONSOLE ? in.len : 1;
        }
        if (taken > typed)
            abort();
    }
    free(k);
    return 0;
}
