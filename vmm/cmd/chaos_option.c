/* See chaos_option.h. */
#include "cmd/chaos_option.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cmd/cmd.h"

static const char *const parts[] = {
    [CHAOS_ALL] = "", [CHAOS_TURNS] = ",turns", [CHAOS_DELAYS] = ",delays"};

static u64 random_seed(void)
{
    u64 seed;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed) || !seed)
        seed = (u64)time(NULL); /* no entropy so early after the host's boot */
    return seed;
}

void chaos_option(struct argp_state *state, const char *arg, struct chaos *out)
{
    const char *part = arg ? strchr(arg, ',') : NULL;
    char seed[32] = "";
    *out = (struct chaos){.part = CHAOS_ALL};
    for (size_t i = CHAOS_TURNS; part && i < ARRAY_SIZE(parts); i++)
        if (!strcmp(part, parts[i]))
            out->part = (enum chaos_part)i;
    if (part && (out->part == CHAOS_ALL || part - arg >= (int)sizeof(seed)))
        argp_error(state, "--chaos: '%s': what can follow is SEED,turns or SEED,delays", arg);
    if (part)
        memcpy(seed, arg, (size_t)(part - arg));
    out->seed = arg ? option_number(state, part ? seed : arg, "--chaos") : random_seed();
}

void chaos_option_text(const struct chaos *c, char out[CHAOS_TEXT])
{
    snprintf(out, CHAOS_TEXT, "--chaos=%" PRIu64 "%s", c->seed, parts[c->part]);
}
