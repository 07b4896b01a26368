/* See limits.h. */
#include "base/limits.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_MEMORY false
#else
#define LIMIT_MEMORY true
#endif

static bool limit(int what, u64 value)
{
    struct rlimit now;
    if (getrlimit(what, &now))
        return false;
    if (now.rlim_max != RLIM_INFINITY)
        value = MIN(value, now.rlim_max);
    return !setrlimit(what, &(struct rlimit){value, value});
}

/* Bytes of address space in use. */
static u64 mapped(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%llu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * PAGE_SIZE;
}

bool limits_enter(u64 memory)
{
    return limit(RLIMIT_CORE, 0) && limit(RLIMIT_MEMLOCK, 0) &&
           (!LIMIT_MEMORY || limit(RLIMIT_AS, mapped() + memory)) && !prctl(PR_SET_DUMPABLE, 0) &&
           !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}
