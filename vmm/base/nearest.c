/* See nearest.h. */
#include "base/nearest.h"

#include <string.h>

#define WORD_MAX 32

/* Insertions, deletions, replacements and swaps of neighbours that make one of the other. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[3][WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= m; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = MIN(MIN(now[j - 1], last[j]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = MIN(now[j], before[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *text_nearest(const char *typo, const char *const *names, size_t n, size_t stride)
{
    /* Half of a word may not be wrong; of a short one a letter or two. */
    unsigned best = (unsigned)(strlen(typo) < 3 ? 1 : strlen(typo) < 6 ? 2 : 3);
    const char *meant = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = *(const char *const *)(const void *)((const char *)names + i * stride);
        unsigned d = name ? distance(typo, name) : WORD_MAX;
        if (d < best || (d == best && !meant)) {
            best = d;
            meant = name;
        }
    }
    return meant;
}
