/*
 * Fuzz target: a file of what happened to a guest's processes. Its sum is put right, so that all
 * behind it is reached. What is taken can be written, read again and written the same, searched,
 * and seen as of any position.
 */
#include <stdlib.h>
#include <string.h>

#include "inspect/life_search.h"
#include "inspect/lives_file.h"
#include "mutate.h"

static void search(const struct lives *l)
{
    static const enum life_search_kind kinds[] = {SEARCH_EXEC, SEARCH_EXIT, SEARCH_CRASH,
                                                  SEARCH_PANIC};
    struct lives then;
    struct err err = {0};
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        for (u64 k = 1; k < 4; k++) {
            struct life_search s = {.kind = kinds[i], .name = "ls", .pid = 101, .k = k};
            if (life_search_on(&s, l, false) && s.who != LIVES_NONE && s.who >= l->count)
                abort();
            s = (struct life_search){.kind = kinds[i], .name = "ls", .pid = 101, .k = k};
            life_search_on(&s, l, true);
        }
    pos_t middle = l->nevents ? l->events[l->nevents / 2].at.position : 0;
    if (lives_as_of(&then, l, middle, &err))
        abort();
    if (then.count > l->count)
        abort();
    lives_free(&then);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct lives l, back;
    struct lives_head h, other;
    struct err err = {0};
    u8 *exact = malloc(size ? size : 1); /* so that one byte too far is seen */
    if (size)
        memcpy(exact, data, size);
    if (size >= SHA256_SIZE) {
        struct sha256 sum = sha256_bytes(exact, size - SHA256_SIZE);
        memcpy(exact + size - SHA256_SIZE, &sum, sizeof(sum));
    }
    if (lives_unpack(&h, &l, exact, size, &err)) {
        if (!err.code || l.events)
            abort();
    } else {
        size_t n, again;
        u8 *text = lives_pack(&h, &l, &n), *same;
        if (!text || lives_unpack(&other, &back, text, n, &err))
            abort();
        same = lives_pack(&other, &back, &again);
        if (!same || n != again || memcmp(text, same, n))
            abort();
        search(&l);
        lives_free(&back);
        lives_free(&l);
        free(text);
        free(same);
    }
    free(exact);
    return 0;
}

/* A process that executes a program, is named, and dies of a signal. */
u8 *fuzz_sample(size_t *size)
{
    static const struct lives_head h = {.upto = {1000, 2000}, .end = LIVES_ENDS};
    static const enum life_event_kind kinds[] = {LIFE_BEGIN,  LIFE_BEGIN, LIFE_EXEC,  LIFE_NAME,
                                                 LIFE_PARENT, LIFE_OOPS,  LIFE_FATAL, LIFE_LEAVE,
                                                 LIFE_END,    LIFE_PANIC};
    struct lives l;
    struct err err;
    lives_init(&l);
    for (u32 i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct life_event e = {.kind = kinds[i],
                               .who = kinds[i] == LIFE_BEGIN ? LIVES_NONE : 1,
                               .by = i ? 0 : LIVES_NONE,
                               .code = 11,
                               .at = {100 * i, 200 * i},
                               .pid = 101,
                               .tgid = 101,
                               .comm = "ls",
                               .first = 2};
        e.command = kinds[i] == LIFE_EXEC ? lives_add_text(&l, "ls -l", 5) : 0;
        e.program = kinds[i] == LIFE_EXEC ? lives_add_text(&l, "busybox", 7) : 0;
        if (lives_add(&l, &e, &err))
            abort();
    }
    u8 *data = lives_pack(&h, &l, size);
    lives_free(&l);
    return data;
}
