/* The table of a hunt's outcomes: see hunt.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "cmd/hunt/hunt.h"
#include "host/clock.h"

#define WIDTH 80u /* of a terminal that does not say */
#define LINES 24u

/* What is hunted for first, then what came often; the rest by the first run. */
static int by_weight(const void *x, const void *y)
{
    const struct hunt_kind *a = *(const struct hunt_kind *const *)x,
                           *b = *(const struct hunt_kind *const *)y;
    if (a->found != b->found)
        return a->found ? -1 : 1;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* To be freed; NULL: none, or no memory. */
static const struct hunt_kind **sorted(const struct hunt *h)
{
    const struct hunt_kind **list = calloc(h->state.nkinds + 1, sizeof(*list));
    for (size_t i = 0; list && i < h->state.nkinds; i++)
        list[i] = &h->state.kinds[i];
    if (list)
        qsort(list, h->state.nkinds, sizeof(*list), by_weight);
    return list;
}

static u64 here_ms(const struct hunt *h)
{
    return (host_ns() - h->began) / 1000000u;
}

/* Runs a minute, of this time. */
static double rate(const struct hunt *h)
{
    u64 ms = here_ms(h);
    return ms ? 60000.0 * (double)h->done_here / (double)ms : 0;
}

static void span(u64 ms, char out[32])
{
    u64 s = ms / 1000;
    if (s < 3600)
        snprintf(out, 32, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
    else
        snprintf(out, 32, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60, s % 60);
}

static void summary(const struct hunt *h, bool live, char *out, size_t size)
{
    u64 found, runs = hunt_state_runs(&h->state), kinds = hunt_state_found(&h->state, &found);
    char most[40] = "", time[32], on[64] = "", bad[48] = "", much[64] = "";
    span(h->spent_before + here_ms(h), time);
    if (h->a->runs)
        snprintf(most, sizeof(most), " of %" PRIu64, h->a->runs);
    if (live)
        snprintf(on, sizeof(on), ", %u going on", h->running);
    if (h->state.failed)
        snprintf(bad, sizeof(bad), ", %" PRIu64 " without a recording", h->state.failed);
    if (h->done_here)
        snprintf(much, sizeof(much), ", %.0f a minute", rate(h));
    snprintf(out, size, "%" PRIu64 "%s runs in %s%s%s%s; %" PRIu64 " failed, in %" PRIu64 " kind%s",
             runs, most, time, much, on, bad, found, kinds, kinds == 1 ? "" : "s");
}

static void row(const struct hunt *h, const struct hunt_kind *k, char *out, size_t size)
{
    snprintf(out, size, "%8" PRIu64 "  %12" PRIu64 "  %s  %s", k->count, h->state.seed + k->first,
             k->found ? "*" : " ", k->text);
}

#define HEAD "    RUNS    FIRST SEED     OUTCOME"

void hunt_undraw(struct hunt *h)
{
    if (h->drawn)
        fprintf(stderr, "\033[%uA\r\033[J", h->drawn);
    h->drawn = 0;
    fflush(stderr);
}

void hunt_draw(struct hunt *h)
{
    struct winsize w = {.ws_row = LINES, .ws_col = WIDTH};
    char line[HUNT_KIND_MAX + 64];
    if (!isatty(STDERR_FILENO))
        return;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_row < 4 || w.ws_col < 20)
        w = (struct winsize){.ws_row = LINES, .ws_col = WIDTH};
    hunt_undraw(h);
    const struct hunt_kind **list = sorted(h);
    size_t room = w.ws_row - 3u, n = list ? MIN(h->state.nkinds, room) : 0;
    int width = w.ws_col - 1;
    fprintf(stderr, "%.*s\n", width, HEAD);
    for (size_t i = 0; i < n; i++) {
        row(h, list[i], line, sizeof(line));
        fprintf(stderr, "%.*s\n", width, line);
    }
    summary(h, true, line, sizeof(line));
    fprintf(stderr, "%.*s\n", width, line);
    h->drawn = (unsigned)n + 2;
    free(list);
    fflush(stderr);
}

void hunt_print(const struct hunt *h)
{
    const struct hunt_kind **list = sorted(h);
    char line[HUNT_KIND_MAX + 64];
    puts(HEAD);
    for (size_t i = 0; list && i < h->state.nkinds; i++) {
        row(h, list[i], line, sizeof(line));
        puts(line);
    }
    for (size_t i = 0; list && i < h->state.nkinds; i++) {
        char *path = list[i]->kept ? hunt_place_kept(&h->place, &h->state, list[i]) : NULL;
        if (!path)
            continue;
        fputs("reprise replay ", stdout);
        text_put_quoted(stdout, path);
        putchar('\n');
        free(path);
    }
    summary(h, false, line, sizeof(line));
    puts(line);
    free(list);
}

void hunt_print_json(const struct hunt *h)
{
    const struct hunt_kind **list = sorted(h);
    u64 found, kinds = hunt_state_found(&h->state, &found);
    printf("{\"directory\":");
    json_text(stdout, h->place.path);
    printf(",\"what\":");
    json_text(stdout, h->state.what);
    printf(",\"first_seed\":%" PRIu64 ",\"runs\":%" PRIu64 ",\"without_recording\":%" PRIu64
           ",\"found\":%" PRIu64 ",\"found_kinds\":%" PRIu64 ",\"seconds\":%.3f,\"complete\":%s",
           h->state.seed, hunt_state_runs(&h->state), h->state.failed, found, kinds,
           (double)(h->spent_before + here_ms(h)) / 1000.0,
           h->asked || h->err.code ? "false" : "true");
    if (h->err.code) {
        printf(",\"error\":");
        json_text(stdout, h->err.text);
    }
    printf(",\"kinds\":[");
    for (size_t i = 0; list && i < h->state.nkinds; i++) {
        const struct hunt_kind *k = list[i];
        printf("%s{\"runs\":%" PRIu64 ",\"seed\":%" PRIu64 ",\"found\":%s,\"outcome\":",
               i ? "," : "", k->count, h->state.seed + k->first, k->found ? "true" : "false");
        json_text(stdout, k->text);
        char *path = k->kept ? hunt_place_kept(&h->place, &h->state, k) : NULL;
        if (path) {
            printf(",\"recording\":");
            json_text(stdout, path);
        }
        free(path);
        putchar('}');
    }
    puts("]}");
    free(list);
}
