/*
 * Fuzz target: what a hunt knows of its runs. Its sum is put right, so that all behind it is
 * reached. What is taken can be written, and is the same when it is read again; and runs can be
 * added to it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cmd/hunt/state.h"
#include "mutate.h"

#define SUM 21u /* bytes of its line */

static void use(struct hunt_state *s)
{
    struct err err;
    u64 found, kinds = hunt_state_found(s, &found), runs = hunt_state_runs(s);
    u64 next = hunt_state_next(s, 0);
    if (kinds > s->nkinds || found > runs || hunt_state_has(s, next))
        abort();
    if (next >= HUNT_RUNS_MAX)
        return;
    if (hunt_state_done(s, next, &err) || !hunt_state_has(s, next) ||
        hunt_state_runs(s) != runs + 1 || !hunt_state_done(s, next, &err))
        abort();
    const struct hunt_kind *k = hunt_state_count(s, "status 0", false, next);
    if (!k || !k->count)
        abort();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct hunt_state s, back;
    struct err err = {0};
    char *exact = malloc(size ? size : 1); /* so that one byte too far is seen */
    if (size)
        memcpy(exact, data, size);
    if (size >= SUM) {
        char line[SUM + 1];
        snprintf(line, sizeof(line), "sum %016" PRIx64 "\n", (u64)XXH3_64bits(exact, size - SUM));
        memcpy(exact + size - SUM, line, SUM);
    }
    if (hunt_state_parse(&s, exact, size, &err)) {
        if (!err.code || !*err.text || s.what || s.done || s.kinds)
            abort();
    } else {
        size_t n, again;
        char *text = hunt_state_text(&s, &n), *same;
        if (!text || n != size || memcmp(text, exact, n))
            abort();
        use(&s);
        same = hunt_state_text(&s, &again);
        if (!same || hunt_state_parse(&back, same, again, &err))
            abort();
        hunt_state_free(&back);
        hunt_state_free(&s);
        free(text);
        free(same);
    }
    free(exact);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    struct hunt_state s = {.seed = 1, .spent_ms = 1500};
    struct err err;
    static const u64 runs[] = {0, 1, 2, 5, 9, 8};
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
        if (hunt_state_done(&s, runs[i], &err) ||
            !hunt_state_count(&s, i % 2 ? "crash: signal 11 at 0x8 in app+0x1136" : "status 0",
                              i % 2, runs[i]))
            abort();
    s.what = strdup("--stop-on crash --limit 600 -- run ./app");
    u8 *text = (u8 *)hunt_state_text(&s, size);
    hunt_state_free(&s);
    return text;
}
