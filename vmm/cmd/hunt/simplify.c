/*
 * `reprise simplify`: of a recording with chaos, one that ends in the same way with as few turns of
 * CPUs as can be found that are otherwise than without chaos. The recording is run again from where
 * its chaos begins, with what came from outside (`record --from --again`), first as it was, then
 * with less and less of it (A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing
 * Input, 2002). What runs and reads recordings are processes that lock themselves in; this one
 * handles files of turns, and directories of its own beside -o.
 */
#define _GNU_SOURCE /* asprintf, memfd_create */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/apart.h"
#include "cmd/cmd.h"
#include "cmd/hunt/outcome.h"
#include "cmd/hunt/simplify.h"
#include "host/outside.h"
#include "replay/recording.h"

enum { O_SHARE = 256, O_RUNS, O_STOP };

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "The new recording (required)", 0},
    {"share", O_SHARE, "DIR", 0, "A directory that the machine reads, as in `reprise record`; of what `reprise run` recorded it is /", 0},
    {"runs", O_RUNS, "N", 0, "Most runs (default 2000)", 0},
    {"stop-on", O_STOP, "TEXT", 0, "What the failure prints, however it ends (text:TEXT, as in `reprise hunt`); default: how the recording ends, by reason, status and panic, says what the failure is", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Finds out which turns of CPUs a failure needs that was recorded with --chaos: makes a "
    "recording that ends in the same way with as few of them as can be found, and prints each, "
    "with what ran before and after it.";

static const char *parse_text(struct argp_state *state, const char *arg)
{
    const struct hunt_stop s = hunt_stop_parse(state, arg);
    if (s.kind != STOP_TEXT)
        argp_error(state,
                   "--stop-on: without it the recording's own end says what is looked for, '%s' "
                   "too; the word is text:%s",
                   arg, arg);
    return s.text;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct simplify *s = state->input;
    switch (key) {
    case 'o': s->output = arg; break;
    case O_SHARE:
        if (s->nshares == SIMPLIFY_SHARES)
            argp_error(state, "--share: %u are the most", SIMPLIFY_SHARES);
        s->share[s->nshares++] = arg;
        break;
    case O_RUNS: s->most = option_number(state, arg, "--runs"); break;
    case O_STOP: s->stop_on = parse_text(state, arg); break;
    case ARGP_KEY_ARG: option_recording(state, arg, &s->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &s->dir);
        if (!s->output || !*s->output)
            argp_error(state, "-o DIR is missing: where does the new recording go?");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* ---- lists ---- */

static void list_free(struct turn_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->line[i]);
    free(l->line);
    *l = (struct turn_list){0};
}

static int list_read(struct turn_list *l, const char *path, struct err *err)
{
    char *line = NULL;
    size_t room = 0, all = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return err_errno(err, "cannot open %s", path);
    int code = 0;
    while (!code && getline(&line, &room, f) > 0) {
        if (l->n == all) {
            all = all ? 2 * all : 256;
            char **more = reallocarray(l->line, all, sizeof(*more));
            l->line = more ? more : l->line;
            code = more ? 0 : -ENOMEM;
        }
        if (!code && (l->line[l->n] = strdup(line)))
            l->n++;
        else
            code = -ENOMEM;
    }
    if (!code && ferror(f))
        code = -EIO;
    free(line);
    fclose(f);
    return code ? err_set(err, code, "%s: %s", path, strerror(-code)) : 0;
}

/* All but those from `first` on, `count` of them. */
static int list_write(const struct turn_list *l, size_t first, size_t count, const char *path,
                      struct err *err)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return err_errno(err, "cannot make %s", path);
    for (size_t i = 0; i < l->n; i++)
        if (i < first || i >= first + count)
            fputs(l->line[i], f);
    bool bad = ferror(f);
    return fclose(f) || bad ? err_errno(err, "cannot write %s", path) : 0;
}

/* ---- runs ---- */

/* Is the text in what the guest printed? Lines of ours begin with our name. */
static bool holds_text(int fd, const char *text)
{
    char line[HUNT_TEXT];
    for (u64 at = 0; outcome_find_text(fd, at, text, &at, line); at++)
        if (strncmp(line, "reprise: ", 9) != 0)
            return true;
    return false;
}

/* What it printed a replay says. */
static int prints(const struct simplify *s, const char *dir, bool *does, struct err *err)
{
    const char *const argv[] = {"reprise replay", dir, NULL};
    int out = memfd_create("out", MFD_CLOEXEC), errors = memfd_create("errors", MFD_CLOEXEC);
    int code = 0;
    if (out < 0 || errors < 0 || apart_replay(argv, out, errors) < 0)
        code = err_errno(err, "cannot start a replay");
    else
        *does = holds_text(out, s->stop_on) || holds_text(errors, s->stop_on);
    if (out >= 0)
        close(out);
    if (errors >= 0)
        close(errors);
    return code;
}

int simplify_run(struct simplify *s, const char *chaos, bool turns, bool *same, struct err *err)
{
    const char *argv[24 + 2 * SIMPLIFY_SHARES], **a = argv;
    const char *fixed[] = {"reprise record", "-o",          s->rec,   "--from",
                           s->dir,           "--at",        s->at,    "--again",
                           "--no-notes",     "--turns-out", s->given, chaos};
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        *a++ = fixed[i];
    for (unsigned i = 0; i < s->nshares; i++) {
        *a++ = "--share";
        *a++ = s->share[i];
    }
    if (turns) {
        *a++ = "--turns";
        *a++ = s->turns;
    }
    *a = NULL;
    struct hunt_end end = {0};
    unlink(s->given);
    s->runs++;
    if (apart_record_quietly(argv, false, s->rec) < 0)
        return err_errno(err, "cannot start a recorder");
    if (access(s->rec, F_OK))
        return err_set(err, -ENOENT, "nothing can begin in %s there", s->dir);
    int code = hunt_look_end(s->rec, &end, err);
    if (!code && s->stop_on && end.known)
        return prints(s, s->rec, same, err);
    *same = !code && !s->stop_on && end.known && end.reason == s->end.reason &&
            end.arg == s->end.arg && !strcmp(end.panic, s->end.panic);
    return code;
}

int simplify_drop(struct simplify *s, struct err *err)
{
    struct err why;
    return recording_remove(s->rec, &why) ? err_set(err, -EIO, "%s", why.text) : 0;
}

/* Does it end as the recording does? 1 with *took, the turns that were taken in fact; 0 or <0. The
 * run's recording is left only if so. */
static int attempt(struct simplify *s, const char *chaos, bool turns, struct turn_list *took,
                   struct err *err)
{
    bool same;
    int code = simplify_run(s, chaos, turns, &same, err);
    if (code || !same)
        return code ? code : simplify_drop(s, err);
    list_free(took);
    code = list_read(took, s->given, err);
    return code ? code : 1;
}

/* The last one that did it stays as `keep`, until another one does. */
static int keep(struct simplify *s, const char *as, struct err *err)
{
    struct err ignored;
    if (!access(as, F_OK))
        recording_remove(as, &ignored);
    return rename(s->rec, as) ? err_errno(err, "cannot rename %s", s->rec) : 0;
}

void simplify_progress(const struct simplify *s, size_t turns)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\x1b[K%zu turns, %" PRIu64 " runs", turns, s->runs);
}

/* Without parts of *l, in ever smaller parts, until none can be left out. */
static int reduce(struct simplify *s, struct turn_list *l, const char *best, struct err *err)
{
    char none[48];
    snprintf(none, sizeof(none), s->delays ? "%s,delays" : "--chaos=0", s->chaos);
    for (size_t part = MAX(l->n / 2, (size_t)1); l->n;) {
        bool less = false;
        for (size_t first = 0; first < l->n && s->runs < s->most;) {
            struct turn_list took = {0};
            int r = list_write(l, first, part, s->turns, err);
            if (!r)
                r = attempt(s, none, true, &took, err);
            if (r < 0)
                return r;
            simplify_progress(s, l->n);
            if (!r) {
                first += part;
                continue;
            }
            less = less || took.n < l->n;
            list_free(l);
            *l = took;
            if (keep(s, best, err))
                return err->code;
        }
        if (s->runs >= s->most || (part == 1 && !less))
            return 0;
        part = MIN(MAX(part / 2, (size_t)1), MAX(l->n / 2, (size_t)1));
    }
    return 0;
}

/* A few turns at the same places. */
static int search(struct simplify *s, struct turn_list *l, const char *best, struct err *err)
{
    bool found;
    if (l->n < 2 || s->runs >= s->most)
        return 0;
    int code = simplify_search(s, l, best, &found, err);
    if (code || !found)
        return code;
    list_free(l);
    code = list_read(l, s->given, err);
    if (!code)
        code = keep(s, best, err);
    s->delays = false;
    return code ? code : reduce(s, l, best, err);
}

static int find(struct simplify *s, struct turn_list *l, const char *best, struct err *err)
{
    struct turn_list took = {0};
    char less[64];
    int r = attempt(s, s->chaos, false, l, err);
    if (!r)
        return err_set(err, -ESRCH,
                       "%s does not end so when it is run again: is what it reads of --share as it "
                       "was, and did it begin with --gdb or so?",
                       s->dir);
    if (r < 0 || keep(s, best, err))
        return err->code;
    fprintf(stderr, "reprise: %zu turns are otherwise than without chaos\n", l->n);
    /* Turns alone, else with the delays. */
    for (int k = 0; k < 2; k++) {
        s->delays = k;
        snprintf(less, sizeof(less), k ? "%s,delays" : "--chaos=0", s->chaos);
        r = list_write(l, 0, 0, s->turns, err);
        r = r ? r : attempt(s, less, true, &took, err);
        if (r < 0)
            return r;
        if (r)
            break;
    }
    if (!r)
        return err_set(err, -ESRCH, "%s does not end so with its turns in a file", s->dir);
    list_free(l);
    *l = took;
    if (keep(s, best, err))
        return err->code;
    r = reduce(s, l, best, err);
    return r ? r : search(s, l, best, err);
}

/* ---- what is left ---- */

static int show(const struct simplify *s, const struct turn_list *l, const char *best,
                struct err *err)
{
    struct hunt_end end = {0};
    char to[64];
    const char *argv[] = {"reprise replay", "--to", to, best, NULL};
    int code = hunt_look_end(best, &end, err);
    if (code)
        return code;
    printf("%zu turn%s otherwise than without chaos%s, after %" PRIu64 " runs\n", l->n,
           l->n == 1 ? "" : "s", s->delays ? ", with delays" : "", s->runs);
    for (size_t i = 0; i < l->n && i < end.nturns && i < HUNT_TURNS; i++) {
        unsigned from = 0, after = 0;
        sscanf(l->line[i], "%u %*u %u", &from, &after);
        printf("\nTurn %zu of %zu, at position %" PRIu64 ": from CPU %u to CPU %u\n", i + 1, l->n,
               end.turn[i], from, after);
        for (unsigned k = 0; k < 2 && !code; k++) {
            printf("%s\n", k ? "to" : "from");
            snprintf(to, sizeof(to), "insn:%" PRIu64, end.turn[i] - 1 + 2 * k);
            if (apart_replay(argv, -1, -1) < 0)
                code = err_errno(err, "cannot start a process");
        }
    }
    return code;
}

static int prepare(struct simplify *s, struct err *err)
{
    int code = hunt_look_end(s->dir, &s->end, err);
    if (code)
        return code;
    if (!s->end.known)
        return err_set(err, -EINVAL, "%s has no end: what is to happen again?", s->dir);
    if (!s->end.chaos)
        return err_set(err, -EINVAL, "%s has no chaos of turns", s->dir);
    if (!access(s->output, F_OK))
        return err_set(err, -EEXIST, "%s exists", s->output);
    bool does = true;
    if (s->stop_on && (code = prints(s, s->dir, &does, err)))
        return code;
    if (!does)
        return err_set(err, -EINVAL, "%s does not print '%s'", s->dir, s->stop_on);
    snprintf(s->at, sizeof(s->at), "event:%" PRIu64, s->end.chaos_event);
    snprintf(s->chaos, sizeof(s->chaos), "--chaos=%" PRIu64, s->end.chaos);
    if (asprintf(&s->work, "%s.XXXXXX", s->output) < 0)
        return err_set(err, -ENOMEM, "no memory");
    if (!mkdtemp(s->work)) {
        free(s->work);
        s->work = NULL;
        return err_errno(err, "cannot make a directory beside %s", s->output);
    }
    if (asprintf(&s->rec, "%s/rec", s->work) < 0 || asprintf(&s->turns, "%s/turns", s->work) < 0 ||
        asprintf(&s->given, "%s/given", s->work) < 0)
        return err_set(err, -ENOMEM, "no memory");
    return 0;
}

static void clean(struct simplify *s)
{
    struct err ignored;
    if (!s->work)
        return;
    if (s->rec && !access(s->rec, F_OK))
        recording_remove(s->rec, &ignored);
    if (s->turns)
        unlink(s->turns);
    if (s->given)
        unlink(s->given);
    rmdir(s->work);
}

int cmd_simplify(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "[DIR]", doc, NULL, NULL, NULL};
    struct simplify s = {.most = 2000};
    struct turn_list l = {0};
    struct err err = {0};
    char *best = NULL;
    option_parse(&argp, argc, argv, &s);
    int code = prepare(&s, &err);
    if (!code && asprintf(&best, "%s/best", s.work) < 0)
        code = err_set(&err, -ENOMEM, "no memory");
    if (!code)
        code = find(&s, &l, best, &err);
    if (isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
    if (!code && rename(best, s.output))
        code = err_errno(&err, "cannot rename %s", best);
    if (!code)
        code = show(&s, &l, s.output, &err);
    struct err ignored;
    if (code && best && !access(best, F_OK))
        recording_remove(best, &ignored);
    clean(&s);
    list_free(&l);
    free(best);
    return code ? cmd_fail(&err) : EX_FINE;
}
