/* See engine_option.h. */
#include "cmd/engine_option.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "replay/opened.h"

int option_engine(struct argp_state *state, const char *arg, bool chooses,
                  struct engine_paranoid *out)
{
    char name[8];
    size_t n = strcspn(arg, ",");
    snprintf(name, sizeof(name), "%.*s", (int)MIN(n, sizeof(name) - 1), arg);
    int kind = n < sizeof(name) ? engine_kind_find(name) : -1;
    *out = (struct engine_paranoid){.on = false};
    if (kind < 0 && (!chooses || strcmp(arg, "auto")))
        argp_error(state, "--engine: '%s' is none of dbt, dbt,paranoid, kvm%s", arg,
                   chooses ? ", auto" : "");
    if (!arg[n])
        return kind;
    const char *more = arg + n + 1, *seed = more + strcspn(more, ",");
    if (kind != ENGINE_DBT || strncmp(more, "paranoid", 8) || seed != more + 8 ||
        (*seed && strncmp(seed, ",seed=", 6)))
        argp_error(state, "--engine: '%s': what can follow is dbt,paranoid[,seed=N]", arg);
    out->on = true;
    u32 drawn = 0;
    if (*seed)
        out->seed = option_number(state, seed + 6, "--engine: seed");
    else if (getrandom(&drawn, sizeof(drawn), 0) == sizeof(drawn))
        out->seed = drawn;
    return kind;
}

void paranoid_summary(const struct engine_paranoid *p, const struct machine *m, bool failed,
                      const char *dir)
{
    struct machine_stats st;
    char count[32];
    if (!p->on)
        return;
    machine_stats(m, &st);
    fprintf(stderr,
            "reprise: paranoid, seed %" PRIu64 ": %s positions in %" PRIu64 " windows compared",
            p->seed, text_count(st.windows_compared, count), st.windows);
    if (st.windows_dropped)
        fprintf(stderr, "; %" PRIu64 " windows could not be", st.windows_dropped);
    if (!failed) {
        fputs("; no difference\n", stderr);
        return;
    }
    char *name = text_quoted(dir);
    fprintf(stderr,
            ". To see the difference again: reprise replay --engine dbt,paranoid,seed=%" PRIu64
            " %s\n",
            p->seed, name);
    free(name);
}
