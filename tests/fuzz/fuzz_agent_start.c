/* Fuzz target: what START carries, read by the agent; what was read lies within what was sent. */
#include <stdlib.h>
#include <string.h>

#include "guest-agent/agent/start.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct start s;
    char why[START_WHY] = "";
    char *bytes = malloc(size + !size);
    size_t total = 0;
    if (size)
        memcpy(bytes, data, size);
    if (!start_read(&s, bytes, size, why)) {
        if (!why[0])
            abort();
        free(bytes);
        return 0;
    }
    char **const lists[] = {s.arguments, s.variables, s.writes};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        for (char **l = lists[i]; *l; l++)
            total += strlen(*l) + 1;
    total += strlen(s.host) + strlen(s.directory) + strlen(s.file) + s.groups * sizeof(*s.group);
    if (total >= size)
        abort();
    start_free(&s);
    free(bytes);
    return 0;
}
