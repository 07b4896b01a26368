/*
 * Fuzz target: what a hostile guest says that a program wrote (`reprise run --write`), as frames of
 * its agent, on a directory that has links out of it. Nothing outside is touched, no file gets a
 * set-user-ID bit, no descriptor and no file that is not whole is left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/run_write.h"
#include "hostile_place.h"
#include "mutate.h"
#include "program.h"

static size_t put_entry(struct program *s, enum agent_type type, u8 *out)
{
    static const u32 kinds[] = {S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO, 0};
    u32 kind = type == AGENT_FILE ? S_IFREG : type == AGENT_LINK ? S_IFLNK : S_IFDIR;
    u32 odd = (u32)take(s, 1);
    if (odd > 250)
        kind = kinds[odd % ARRAY_SIZE(kinds)];
    const char *name = hostile_names[take(s, 1) % HOSTILE_NAMES];
    struct agent_entry e = {.flags = odd & 1,
                            .nanoseconds = odd == 250 ? UINT32_MAX : 7,
                            .name_len = (u32)strlen(name)};
    e.mode = kind | ((u32)take(s, 2) & 07777);
    e.seconds = (i64)take(s, 4);
    e.size = type == AGENT_TREE ? take(s, 1) % 2 : odd == 249 ? take(s, 8) : take(s, 2);
    if (type == AGENT_TREE)
        e.name_len = 0;
    if (type == AGENT_GONE && odd < 240)
        e.mode = 0;
    memcpy(out, &e, sizeof(e));
    memcpy(out + sizeof(e), name, e.name_len);
    size_t len = sizeof(e) + e.name_len;
    if (type == AGENT_LINK) {
        const char *to = hostile_names[take(s, 1) % HOSTILE_NAMES];
        out[len++] = 0;
        memcpy(out + len, to, strlen(to));
        len += strlen(to);
    }
    return len;
}

static bool one(struct run_write *w, struct program *s)
{
    static const u8 often[] = {AGENT_DIRECTORY, AGENT_LEAVE, AGENT_FILE,  AGENT_CONTENT,
                               AGENT_LINK,      AGENT_GONE,  AGENT_OTHER, AGENT_TREE};
    u8 out[1024];
    size_t len = 0;
    u32 what = (u32)take(s, 1);
    enum agent_type type = what < 250 ? often[what % 8] : what;
    if (type == AGENT_CONTENT) {
        u64 offset = take(s, 2);
        memcpy(out, &offset, sizeof(offset));
        len = sizeof(offset) + take(s, 1);
        memset(out + sizeof(offset), 'x', 256);
    } else if (type != AGENT_LEAVE) {
        len = put_entry(s, type, out);
    }
    if (take(s, 1) == 255)
        len = take(s, 1) % (len + 1);
    u8 *exact = malloc(len + !len); /* so that what is beyond it is seen */
    memcpy(exact, out, len);
    bool good = run_write_frame(w, type, exact, len);
    free(exact);
    return good;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct program s = {data, size};
    struct run_write *w;
    struct err err;
    hostile_place_fill();
    char *directories[] = {hostile_inside};
    if (run_write_open(&w, directories, 1, 1 << 20, &err))
        abort();
    struct agent_written all = {.bytes = take(&s, 3)};
    all.entries = take(&s, 2);
    bool good = run_write_frame(w, AGENT_WRITTEN, &all, sizeof(all));
    while (good && s.left)
        good = one(w, &s);
    if (!good && run_write_end(w, true, false))
        abort();
    run_write_close(w);
    hostile_place_check();
    program_check_descriptors();
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const u8 sample[] = {
        0, 16, 0,  200,  0,                            /* WRITTEN */
        7, 0,  0,  0xed, 1,   9, 9, 9, 9, 0,  0,       /* TREE */
        2, 0,  4,  0xff, 0xf, 9, 9, 9, 9, 50, 0, 0,    /* FILE new, set-user-ID */
        3, 0,  0,  20,   0,                            /* CONTENT */
        3, 30, 0,  20,   0,                            /* CONTENT */
        2, 0,  0,  0xa4, 1,   9, 9, 9, 9, 0,  0, 0,    /* FILE file */
        4, 0,  3,  0xff, 1,   9, 9, 9, 9, 0,  0, 2, 0, /* LINK victim */
        0, 0,  2,  0xed, 1,   9, 9, 9, 9, 0,  0, 0,    /* DIRECTORY out */
        2, 0,  3,  0xa4, 1,   9, 9, 9, 9, 0,  0, 0,    /* FILE victim */
        1, 0,                                          /* LEAVE */
        0, 1,  1,  0xed, 1,   9, 9, 9, 9, 0,  0, 0,    /* DIRECTORY directory, replaced */
        5, 0,  12, 0,    0,   9, 9, 9, 9, 0,  0, 0,    /* GONE both */
        1, 0,                                          /* LEAVE */
        5, 0,  14, 0,    0,   9, 9, 9, 9, 0,  0, 0,    /* GONE fifo */
        1, 0,                                          /* LEAVE */
    };
    return program_copy(sample, sizeof(sample), size);
}
