/* What several sub-commands do. */
#define _GNU_SOURCE /* strptime, timegm */
#include "cmd/run_place.h"
#include "cmd/cmd.h"
#include "cmd/command_table.h"
#include "board/kernel.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"

int cmd_fail(const struct err *err)
{
    fflush(stdout);
    fprintf(stderr, "reprise: %s\n", err->text);
    return EX_ERROR;
}

u64 option_number(struct argp_state *state, const char *arg, const char *what)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(arg, &end, 0);
    if (errno || end == arg || *end || strchr(arg, '-'))
        argp_error(state, "%s: '%s' is not a number", what, arg);
    return v;
}

u64 option_size(struct argp_state *state, const char *arg, const char *what)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long v = strtoull(arg, &end, 0);
    bool bad = errno || end == arg || strchr(arg, '-');
    const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        bad = bad || v > UINT64_MAX >> shift;
        v <<= shift;
        end++;
        end += end[0] == 'i' && end[1] == 'B' ? 2 : end[0] == 'B' ? 1 : 0;
    }
    if (bad || *end)
        argp_error(state, "%s: '%s' is not a size (such as 512M or 2G)", what, arg);
    return v;
}

u64 option_code_cache(struct argp_state *state, const char *arg)
{
    u64 v = option_size(state, arg, "--code-cache");
    if (v < CODE_CACHE_MIN || v > CODE_CACHE_MAX)
        argp_error(state, "--code-cache: %s: it can have %uM to %uM", arg, CODE_CACHE_MIN >> 20,
                   CODE_CACHE_MAX >> 20);
    return v;
}

#define LAST_TIME 253402300799u /* the end of the year 9999: the clock counts no further */

/* After the time of day: "", "Z", "+01:00", "-0530". */
static bool zone_offset(const char *s, long *seconds)
{
    unsigned hours, minutes = 0;
    int n = 0;
    *seconds = 0;
    if (!*s || !strcmp(s, "Z"))
        return true;
    if ((*s != '+' && *s != '-') || (sscanf(s + 1, "%2u:%2u%n", &hours, &minutes, &n) != 2 &&
                                     sscanf(s + 1, "%2u%2u%n", &hours, &minutes, &n) != 2))
        return false;
    *seconds = (long)(hours * 3600 + minutes * 60) * (*s == '+' ? 1 : -1);
    return !s[1 + n] && hours < 24 && minutes < 60;
}

u64 option_time(struct argp_state *state, const char *arg, const char *what)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
                                        "%Y-%m-%d %H:%M", "%Y-%m-%d"};
    const char *digits = arg + (*arg == '@');
    if (*digits && strspn(digits, "0123456789") == strlen(digits)) {
        u64 v = option_number(state, digits, what);
        if (v > LAST_TIME)
            argp_error(state, "%s: %s is beyond the year 9999", what, arg);
        return v;
    }
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct tm tm = {0};
        long offset;
        const char *rest = strptime(arg, forms[i], &tm);
        if (!rest || !zone_offset(rest, &offset))
            continue;
        time_t t = timegm(&tm) - offset;
        if (t >= 0 && (u64)t <= LAST_TIME)
            return (u64)t;
    }
    argp_error(state,
               "%s: '%s' is no time from 1970 to 9999 (such as 2026-11-22T10:57:29Z, or seconds "
               "since 1970)",
               what, arg);
    return 0;
}

double option_seconds(struct argp_state *state, const char *arg, const char *what)
{
    char *end;
    double v = strtod(arg, &end);
    if (end == arg || *end || !(v > 0 && v < 1e9))
        argp_error(state, "%s: '%s' is not a number of seconds above 0", what, arg);
    return v;
}

void option_recording(struct argp_state *state, const char *arg, const char **dir)
{
    if (*dir)
        argp_error(state, "only one recording at a time");
    *dir = arg;
}

void option_need_recording(struct argp_state *state, const char **dir)
{
    if (!*dir)
        *dir = run_place_last();
    if (!*dir || !**dir)
        argp_error(state, "which recording?");
}

char **option_recording_and(struct argp_state *state, unsigned more, const char **dir)
{
    char **args = state->argv + state->next;
    unsigned n = (unsigned)(state->argc - state->next);
    if (n > more + 1)
        argp_error(state, "'%s' is one argument too many", args[more + 1]);
    state->next = state->argc;
    bool given = n == more + 1 || (n && (*args[0] < '0' || *args[0] > '9'));
    *dir = given ? args[0] : run_place_last();
    return n - given < more ? NULL : args + given;
}

/* `--gdb ENDPOINT` with a space, although ENDPOINT may be left out: if what follows looks like one,
 * it is one. */
const char *option_endpoint(struct argp_state *state)
{
    const char *next = state->next < state->argc ? state->argv[state->next] : "";
    const char *colon = strrchr(next, ':');
    const char *port = colon ? colon + 1 : next;
    size_t digits = strspn(port, "0123456789");
    bool is_port = digits && (!port[digits] || !strcmp(port + digits, ",open"));
    if (strcmp(next, "-") && strncmp(next, "unix:", 5) && !is_port)
        return NULL;
    state->next++;
    return next;
}

int run_exit_code(const struct run_end *end, bool panicked)
{
    bool quit = end->reason == RUN_QUIT;
    if (end->reason == RUN_ERROR || end->reason == RUN_LOST ||
        (quit && (end->arg == QUIT_DISK || end->arg == QUIT_ENGINE)))
        return EX_ERROR;
    if (end->reason == RUN_UNSUPPORTED)
        return EX_UNSUPPORTED;
    if (panicked)
        return EX_PANIC;
    switch (end->reason) {
    case RUN_TRIPLE_FAULT: return EX_CRASH;
    case RUN_HALTED: return EX_HALTED;
    case RUN_EXIT: return end->arg ? EX_GUEST + (int)(end->arg & 63) : EX_FINE;
    default: break;
    }
    return quit && end->arg == QUIT_TIMEOUT ? EX_TIMEOUT
           : quit && end->arg == QUIT_IDLE  ? EX_HALTED
                                            : EX_FINE;
}

void run_end_sentence(const struct run_end *end, bool panicked, char *out, size_t size)
{
    static const char *const how[] = {
        [RUN_POWEROFF] = "the guest powered off",
        [RUN_RESET] = "the guest reset the machine",
        [RUN_TRIPLE_FAULT] = "the guest crashed (triple fault)",
        [RUN_HALTED] = "the guest halted and nothing can wake it",
        [RUN_STOP] = "stopped at the position asked for",
        [RUN_UNSUPPORTED] = "the guest used an instruction that is not supported",
        [RUN_ERROR] = "an error ended the run",
        [RUN_LOST] = "the engine lost the guest",
    };
    static const char *const why[] = {
        [QUIT_USER] = "ended by Ctrl-A x",
        [QUIT_SIGNAL] = "ended by a signal",
        [QUIT_TIMEOUT] = "ended by the time limit",
        [QUIT_TEXT] = "ended because the text of --stop-at was printed",
        [QUIT_INSNS] = "ended by the limit of --max-insns",
        [QUIT_DISK] = "ended because the log could not be written",
        [QUIT_ENGINE] = "ended because the engine could not go on",
        [QUIT_IDLE] = "ended (no input is left and the guest only waits; see record --idle-limit)",
    };
    const char *panic = panicked ? "the guest's kernel panicked; " : "";
    if (end->reason == RUN_EXIT)
        snprintf(out, size, "%sthe guest ended with status %u", panic, end->arg);
    else if (end->reason == RUN_QUIT && end->arg < ARRAY_SIZE(why) && why[end->arg])
        snprintf(out, size, "%s%s", panic, why[end->arg]);
    else if (end->reason < ARRAY_SIZE(how) && how[end->reason])
        snprintf(out, size, "%s%s", panic, how[end->reason]);
    else
        snprintf(out, size, "%sended for an unknown reason", panic);
}

u64 test_slice(void)
{
    const char *slice = getenv("REPRISE_TEST_SLICE");
    return slice ? strtoull(slice, NULL, 10) : 0;
}

char *text_bytes(u64 bytes, char out[32])
{
    if (bytes < 10240)
        snprintf(out, 32, "%" PRIu64 " B", bytes);
    else if (bytes < 10u << 20)
        snprintf(out, 32, "%.1f KiB", (double)bytes / 1024);
    else
        snprintf(out, 32, "%.1f MiB", (double)bytes / (1 << 20));
    return out;
}

char *text_seconds(u64 ns, char out[32])
{
    snprintf(out, 32, "%.3f s", (double)ns / 1e9);
    return out;
}

char *text_time(u64 seconds, char out[64])
{
    struct tm tm;
    time_t t = (time_t)seconds;
    if (seconds > LAST_TIME || !gmtime_r(&t, &tm) || !strftime(out, 64, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(out, 64, "%" PRIu64 " s after 1970", seconds);
    return out;
}

char *text_count(u64 n, char out[32])
{
    if (n < 10000)
        snprintf(out, 32, "%" PRIu64, n);
    else if (n < 1000000)
        snprintf(out, 32, "%.1f k", (double)n / 1e3);
    else if (n < 1000000000)
        snprintf(out, 32, "%.1f M", (double)n / 1e6);
    else
        snprintf(out, 32, "%.2f G", (double)n / 1e9);
    return out;
}

static error_t verb_parse(int key, char *arg, struct argp_state *state)
{
    struct verb_choice *c = state->input;
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "which %s?", c->what);
    if (key != ARGP_KEY_ARG)
        return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(arg, c->verbs[i].name))
            c->chosen = &c->verbs[i];
    if (!c->chosen) {
        const char *meant = option_meant(arg, &c->verbs[0].name, c->n, sizeof(c->verbs[0]));
        argp_error(state, "there is no %s '%s'%s%s%s", c->what, arg,
                   meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
    }
    c->argv = state->argv + state->next - 1;
    c->argc = state->argc - state->next + 1;
    state->next = state->argc;
    return 0;
}

/* What argp shows as help; for the rest of the program's life. */
static char *verb_help(const struct verb_choice *c, const char *before, const char *after)
{
    char *text = NULL;
    size_t size;
    int width = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (size_t i = 0; i < c->n; i++)
        width = MAX(width, (int)strlen(c->verbs[i].name));
    fprintf(out, "%s\n\n%c%ss:\n", before, toupper(c->what[0]), c->what + 1);
    for (size_t i = 0; i < c->n; i++)
        fprintf(out, "  %-*s  %s\n", width, c->verbs[i].name, c->verbs[i].summary);
    fprintf(out, "\n%s", after);
    return fclose(out) ? NULL : text;
}

void verb_choose(struct verb_choice *c, const char *before, const char *after, int argc,
                 char **argv)
{
    char args[40];
    snprintf(args, sizeof(args), "%s [OPTION...]", c->what);
    for (char *p = args; *p && *p != ' '; p++)
        *p = (char)toupper(*p);
    char *text = verb_help(c, before, after);
    const struct argp argp = {.parser = verb_parse, .args_doc = args, .doc = text};
    const struct command_table table = {
        .name = argv[0], .argp = &argp, .verbs = c->verbs, .n = c->n, .before = before};
    command_table_show(&table);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, c);
    free(text);
}

int verb_run(const struct verb_choice *c, const char *program)
{
    char name[64];
    snprintf(name, sizeof(name), "%s %s", program, c->argv[0]);
    c->argv[0] = name;
    if (c->chosen->needs)
        sandbox_plan(c->chosen->needs);
    return c->chosen->run(c->argc, c->argv);
}
