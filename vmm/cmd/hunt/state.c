/* See state.h. */
#include "cmd/hunt/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_io.h"
#include "base/text.h"

#define NAME    "reprise-hunt"
#define VERSION 1u

void hunt_state_free(struct hunt_state *s)
{
    free(s->what);
    free(s->done);
    free(s->kinds);
    *s = (struct hunt_state){0};
}

/* ---- what is done ---- */

/* The first range that ends at or behind `run`. */
static size_t range_at(const struct hunt_state *s, u64 run)
{
    size_t low = 0, high = s->ndone;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->done[middle].last < run)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool hunt_state_has(const struct hunt_state *s, u64 run)
{
    size_t i = range_at(s, run);
    return i < s->ndone && s->done[i].first <= run;
}

u64 hunt_state_next(const struct hunt_state *s, u64 from)
{
    size_t i = range_at(s, from);
    return i < s->ndone && s->done[i].first <= from ? s->done[i].last + 1 : from;
}

u64 hunt_state_runs(const struct hunt_state *s)
{
    u64 n = 0;
    for (size_t i = 0; i < s->ndone; i++)
        n += s->done[i].last - s->done[i].first + 1;
    return n;
}

static int insert(struct hunt_state *s, size_t at, struct hunt_range r, struct err *err)
{
    if (s->ndone == s->done_room) {
        size_t room = 2 * s->done_room + 16;
        struct hunt_range *more = realloc(s->done, room * sizeof(*more));
        if (!more)
            return err_set(err, -ENOMEM, "no memory");
        s->done = more;
        s->done_room = room;
    }
    memmove(s->done + at + 1, s->done + at, (s->ndone - at) * sizeof(*s->done));
    s->done[at] = r;
    s->ndone++;
    return 0;
}

int hunt_state_done(struct hunt_state *s, u64 run, struct err *err)
{
    size_t i = range_at(s, run);
    if (run >= HUNT_RUNS_MAX || (i < s->ndone && s->done[i].first <= run))
        return err_set(err, -EINVAL, "run %" PRIu64 " is there twice", run);
    bool before = i && s->done[i - 1].last + 1 == run;
    bool after = i < s->ndone && s->done[i].first == run + 1;
    if (before && after) {
        s->done[i - 1].last = s->done[i].last;
        memmove(s->done + i, s->done + i + 1, (s->ndone - i - 1) * sizeof(*s->done));
        s->ndone--;
    } else if (before) {
        s->done[i - 1].last = run;
    } else if (after) {
        s->done[i].first = run;
    } else {
        return insert(s, i, (struct hunt_range){run, run}, err);
    }
    return 0;
}

/* ---- kinds ---- */

static struct hunt_kind *find_kind(const struct hunt_state *s, const char *text, bool found)
{
    for (size_t i = 0; i < s->nkinds; i++)
        if (s->kinds[i].found == found && !strcmp(s->kinds[i].text, text))
            return &s->kinds[i];
    return NULL;
}

static struct hunt_kind *add_kind(struct hunt_state *s)
{
    if (s->nkinds == s->kinds_room) {
        size_t room = 2 * s->kinds_room + 8;
        struct hunt_kind *more = realloc(s->kinds, room * sizeof(*more));
        if (!more)
            return NULL;
        s->kinds = more;
        s->kinds_room = room;
    }
    s->kinds[s->nkinds] = (struct hunt_kind){.count = 0};
    return &s->kinds[s->nkinds++];
}

struct hunt_kind *hunt_state_count(struct hunt_state *s, const char *text, bool found, u64 run)
{
    struct hunt_kind *k = find_kind(s, text, found);
    if (!k && s->nkinds >= HUNT_KINDS) {
        text = HUNT_OTHERS;
        k = find_kind(s, text, found);
    }
    if (!k) {
        k = add_kind(s);
        if (!k)
            return NULL;
        snprintf(k->text, sizeof(k->text), "%s", text);
        text_ascii(k->text);
        k->found = found;
        k->first = run;
    }
    k->count++;
    return k;
}

u64 hunt_state_found(const struct hunt_state *s, u64 *runs)
{
    u64 n = 0;
    *runs = 0;
    for (size_t i = 0; i < s->nkinds; i++)
        if (s->kinds[i].found) {
            n++;
            *runs += s->kinds[i].count;
        }
    return n;
}

/* ---- as text ---- */

char *hunt_state_text(const struct hunt_state *s, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out)
        return NULL;
    fprintf(out, NAME " %u\n", VERSION);
    fprintf(out, "what %s\n", s->what ? s->what : "");
    fprintf(out, "seed %" PRIu64 "\nspent %" PRIu64 "\nfailed %" PRIu64 "\n", s->seed, s->spent_ms,
            s->failed);
    for (size_t i = 0; i < s->ndone; i++)
        fprintf(out, "done %" PRIu64 " %" PRIu64 "\n", s->done[i].first, s->done[i].last);
    for (size_t i = 0; i < s->nkinds; i++) {
        const struct hunt_kind *k = &s->kinds[i];
        fprintf(out, "kind %" PRIu64 " %" PRIu64 " %d %d %s\n", k->count, k->first, k->found,
                k->kept, k->text);
    }
    fflush(out);
    u64 sum = ferror(out) || !text ? 0 : XXH3_64bits(text, *size);
    fprintf(out, "sum %016" PRIx64 "\n", sum);
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* Lines that are still to be read. */
struct lines {
    const char *at, *end;
    unsigned number;
};

/* The next one's first word has to be `word`: what follows it and a space, `*len` bytes. NULL: it
 * is another one, which stays. */
static const char *line(struct lines *l, const char *word, size_t *len)
{
    size_t n = strlen(word), left = (size_t)(l->end - l->at);
    const char *end = left ? memchr(l->at, '\n', left) : NULL;
    if (!end || (size_t)(end - l->at) < n + 1 || memcmp(l->at, word, n) || l->at[n] != ' ')
        return NULL;
    const char *value = l->at + n + 1;
    *len = (size_t)(end - value);
    l->at = end + 1;
    l->number++;
    return value;
}

/* A decimal number of *at, without sign and needless zeros, and what follows it. */
static bool number(const char **at, size_t *len, u64 *out)
{
    u64 v = 0;
    size_t n = 0;
    while (n < *len && (*at)[n] >= '0' && (*at)[n] <= '9') {
        u64 digit = (u64)((*at)[n] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = 10 * v + digit;
        n++;
    }
    if (!n || (n > 1 && **at == '0'))
        return false;
    *out = v;
    *at += n;
    *len -= n;
    return true;
}

/* The same, and a space behind it. */
static bool word(const char **at, size_t *len, u64 *out)
{
    if (!number(at, len, out) || !*len || **at != ' ')
        return false;
    ++*at;
    --*len;
    return true;
}

static bool one_number(struct lines *l, const char *name, u64 *out)
{
    size_t len;
    const char *at = line(l, name, &len);
    return at && number(&at, &len, out) && !len;
}

static bool read_done(struct hunt_state *s, const char *at, size_t len, struct err *err)
{
    struct hunt_range r;
    if (!word(&at, &len, &r.first) || !number(&at, &len, &r.last) || len || r.first > r.last ||
        r.last >= HUNT_RUNS_MAX ||
        (s->ndone && r.first <= s->done[s->ndone - 1].last + 1)) /* they would be one */
        return false;
    return !insert(s, s->ndone, r, err);
}

static bool is_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

static bool read_kind(struct hunt_state *s, const char *at, size_t len, struct err *err)
{
    u64 count, first, found, kept;
    if (!word(&at, &len, &count) || !word(&at, &len, &first) || !word(&at, &len, &found) ||
        !word(&at, &len, &kept) || !count || first >= HUNT_RUNS_MAX || found > 1 || kept > 1 ||
        !len || len >= HUNT_KIND_MAX || !is_text(at, len) || s->nkinds >= HUNT_KINDS + 2)
        return false;
    char text[HUNT_KIND_MAX];
    memcpy(text, at, len);
    text[len] = 0;
    if (find_kind(s, text, found))
        return false;
    struct hunt_kind *k = add_kind(s);
    if (!k) {
        err_set(err, -ENOMEM, "no memory");
        return false;
    }
    *k = (struct hunt_kind){.count = count, .first = first, .found = found, .kept = kept};
    memcpy(k->text, text, len + 1);
    return true;
}

/* As many runs as kinds say, each kind's first among them. */
static bool adds_up(const struct hunt_state *s)
{
    u64 runs = hunt_state_runs(s), n = s->failed;
    for (size_t i = 0; i < s->nkinds; i++) {
        if (s->kinds[i].count > runs || !hunt_state_has(s, s->kinds[i].first))
            return false;
        n += s->kinds[i].count;
    }
    return s->failed <= runs && n == runs;
}

static bool sum_is_right(const char *data, size_t size, const char **end)
{
    enum { SUM = 4 + 16 + 1 };
    char text[SUM + 1];
    if (size < SUM)
        return false;
    *end = data + size - SUM;
    snprintf(text, sizeof(text), "sum %016" PRIx64 "\n", (u64)XXH3_64bits(data, size - SUM));
    return !memcmp(*end, text, SUM);
}

static bool parse(struct hunt_state *s, struct lines *l, struct err *err)
{
    size_t len;
    const char *at = line(l, "what", &len);
    if (!at || len > HUNT_WHAT_MAX || memchr(at, 0, len))
        return false;
    s->what = strndup(at, len);
    if (!s->what) {
        err_set(err, -ENOMEM, "no memory");
        return false;
    }
    if (!one_number(l, "seed", &s->seed) || !one_number(l, "spent", &s->spent_ms) ||
        !one_number(l, "failed", &s->failed))
        return false;
    while ((at = line(l, "done", &len)))
        if (!read_done(s, at, len, err))
            return false;
    while ((at = line(l, "kind", &len)))
        if (!read_kind(s, at, len, err))
            return false;
    return l->at == l->end && adds_up(s);
}

int hunt_state_parse(struct hunt_state *s, const char *data, size_t size, struct err *err)
{
    struct lines l = {.at = data, .end = data + size};
    size_t len;
    u64 version;
    *s = (struct hunt_state){0};
    const char *at = line(&l, NAME, &len);
    if (!at || !number(&at, &len, &version) || len || !version)
        return err_set(err, -EINVAL, "it is not what a hunt has written");
    if (version > VERSION)
        return err_set(err, -ENOTSUP,
                       "it was written by a later version of reprise (its format is %" PRIu64
                       ", and %u is the last that is known here)",
                       version, VERSION);
    if (!sum_is_right(data, size, &l.end))
        return err_set(err, -EINVAL, "it is damaged: its sum is not right");
    *err = (struct err){0};
    if (parse(s, &l, err))
        return 0;
    hunt_state_free(s);
    return err->code ? err->code
                     : err_set(err, -EINVAL, "it is damaged at line %u or behind it", l.number + 1);
}

/* ---- the file ---- */

int hunt_state_read(struct hunt_state *s, int dir, const char *name, struct err *err)
{
    u64 size;
    *s = (struct hunt_state){0};
    int fd = file_open_regular(dir, name, HUNT_STATE_MAX, &size, err);
    if (fd < 0)
        return fd;
    char *data = malloc(size + 1);
    int code = !data                              ? err_set(err, -ENOMEM, "no memory")
               : !file_read_at(fd, data, size, 0) ? err_errno(err, "cannot read %s", name)
                                                  : 0;
    close(fd);
    if (!code && hunt_state_parse(s, data, size, err))
        code = err_prefix(err, "%s", name);
    free(data);
    return code;
}

int hunt_state_write(const struct hunt_state *s, int dir, const char *name, struct err *err)
{
    char fresh[64];
    size_t size;
    char *text = hunt_state_text(s, &size);
    if (!text)
        return err_set(err, -ENOMEM, "no memory");
    snprintf(fresh, sizeof(fresh), ".%s.new", name);
    int fd = file_create_at(dir, fresh), code = 0;
    if (fd < 0 || !file_write_at(fd, text, size, 0) || fdatasync(fd))
        code = err_errno(err, "cannot write %s", name);
    if (fd >= 0 && close(fd) && !code)
        code = err_errno(err, "cannot write %s", name);
    if (!code && renameat(dir, fresh, dir, name))
        code = err_errno(err, "cannot replace %s", name);
    if (code && fd >= 0)
        unlinkat(dir, fresh, 0);
    free(text);
    return code;
}
