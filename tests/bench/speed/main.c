/*
 * One workload of `bench.py --part speed`; in the guest and natively the same file runs.
 *
 *     speed NAME [N]     N units instead of what NAME has by itself
 *
 * Prints "speed NAME CHECKSUM N".
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "speed.h"

static const struct work *const groups[] = {
    compute_works,
#ifdef __x86_64__
    control_works, system_works, vector_works, part_works,
#endif
};

void must(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(1);
}

void *memory(uint64_t bytes)
{
    void *p = malloc(bytes);
    must(p != NULL, "malloc");
    return p;
}

void *pages(uint64_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(p != MAP_FAILED, "mmap");
    return p;
}

static const struct work *find(const char *name)
{
    for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
        for (const struct work *w = groups[i]; w->name; w++)
            if (!strcmp(w->name, name))
                return w;
    return NULL;
}

/* A guest has one CPU: two processes take turns on one here too. */
static void stay_on_one_cpu(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    const struct work *w = argc > 1 ? find(argv[1]) : NULL;
    if (argc > 1 && !strcmp(argv[1], "nothing"))
        return 0;
    if (!w) {
        fputs("speed NAME [N]\n", stderr);
        return 2;
    }
    stay_on_one_cpu();
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 0) : w->n;
    printf("speed %s %016" PRIx64 " %" PRIu64 "\n", w->name, w->run(n), n);
    return 0;
}
