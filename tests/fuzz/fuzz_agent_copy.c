/*
 * Fuzz target: a copy that the other side of an agent's port sends (guest-agent/agent/copy.h),
 * which is the host to a guest, and a guest to `reprise cp`, into a directory that has links out of
 * it. Nothing outside is touched, no file gets a set-user-ID bit, no descriptor and no file that is
 * not whole is left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "guest-agent/agent/copy.h"
#include "hostile_place.h"
#include "mutate.h"
#include "program.h"

static size_t put_entry(struct program *s, u32 type, u8 *out)
{
    u32 odd = (u32)take(s, 1);
    const char *name = hostile_names[take(s, 1) % HOSTILE_NAMES];
    struct agent_entry e = {.nanoseconds = odd == 250 ? UINT32_MAX : 7,
                            .name_len = odd == 251 ? 200 : (u32)strlen(name)};
    e.mode = (u32)take(s, 2);
    e.seconds = (i64)take(s, 4);
    e.size = odd == 249 ? take(s, 8) : take(s, 2);
    memcpy(out, &e, sizeof(e));
    memcpy(out + sizeof(e), name, strlen(name));
    size_t len = sizeof(e) + strlen(name);
    if (type == AGENT_LINK) {
        const char *to = hostile_names[take(s, 1) % HOSTILE_NAMES];
        out[len++] = 0;
        memcpy(out + len, to, strlen(to));
        len += strlen(to);
    }
    return len;
}

static bool one(struct copy_sink *c, struct program *s)
{
    static const u8 often[] = {AGENT_DIRECTORY, AGENT_LEAVE, AGENT_FILE,  AGENT_CONTENT,
                               AGENT_LINK,      AGENT_FILE,  AGENT_OTHER, AGENT_COPIED};
    u8 out[1024];
    size_t len = 0;
    u32 what = (u32)take(s, 1);
    u32 type = what < 250 ? often[what % 8] : what;
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
    bool good = copy_take(c, type, exact, len);
    free(exact);
    return good && !c->over;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static struct copy_sink sink;
    static const char *const targets[] = {"",        "/new",   "/directory", "/file",
                                          "/victim", "/out/x", "/fifo"};
    struct program s = {data, size};
    char target[96];
    hostile_place_fill();
    /* The user's own target leads where it leads; what is sent may not. */
    u32 where = (u32)take(&s, 1) % ARRAY_SIZE(targets);
    snprintf(target, sizeof(target), "%s%s", hostile_inside, targets[where == 5 ? 0 : where]);
    bool good = copy_open(&sink, target, hostile_names[take(&s, 1) % HOSTILE_NAMES]);
    if (!good && !*sink.why)
        abort();
    while (good && s.left)
        good = one(&sink, &s);
    copy_close(&sink);
    hostile_place_check();
    program_check_descriptors();
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const u8 sample[] = {
        1, 0,                                         /* in/new */
        0, 0,  4, 0xed, 1,   9, 9, 9, 9, 0,  0, 0,    /* DIRECTORY */
        2, 0,  5, 0xff, 0xf, 9, 9, 9, 9, 50, 0, 0,    /* FILE, set-user-ID */
        3, 0,  0, 20,   0,                            /* CONTENT */
        3, 30, 0, 20,   0,                            /* CONTENT */
        4, 0,  2, 0xff, 1,   9, 9, 9, 9, 0,  0, 3, 0, /* LINK */
        0, 0,  2, 0xed, 1,   9, 9, 9, 9, 0,  0, 0,    /* DIRECTORY where the link is */
    };
    return program_copy(sample, sizeof(sample), size);
}
