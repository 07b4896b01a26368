/*
 * A CPU as users name it: `MODEL,+feature,-feature`. What of it this program executes, and what of
 * that this host has, is decided here and nowhere else; features.def has the facts.
 */
#ifndef REPRISE_CPU_FEATURES_H
#define REPRISE_CPU_FEATURES_H

#include "base/err.h"
#include "cpu/model.h"

struct cpu_choice {
    enum cpu_model model;
    u32 words[CPU_WORDS]; /* its features, with what was turned on and off */
};

enum { CPU_NATIVE, CPU_OURS }; /* the column `host` of features.def */

struct cpu_feature_row {
    enum cpu_feature feature;
    u8 host;
    bool free;         /* a user may turn it on and off */
    const char *names; /* "a|b"; "": none */
    const char *text;  /* "a CPU without %s" */
};
extern const struct cpu_feature_row cpu_feature_rows[];
extern const size_t cpu_feature_count;

#define CPU_FEATURE_NAME 32 /* bytes of a name */
/* The name that we print; "": it has none. */
void cpu_feature_name(const struct cpu_feature_row *r, char out[CPU_FEATURE_NAME]);

#define CPU_CHANGES 1024 /* bytes of "+a,-b" with all features, as cpu_changes_text() makes it */

/*
 * "MODEL", "host", or either with ",+feature" and ",-feature". -EINVAL with a text that says what
 * is wrong and what would be right. Whether this host has all of it is not asked.
 */
int cpu_choose(const char *text, struct cpu_choice *out, struct err *err);
/* The same of a model and of "+a,-b" ("": nothing). */
int cpu_change(enum cpu_model model, const char *changes, struct cpu_choice *out, struct err *err);
/* With that feature, and with what it needs. */
void cpu_add(struct cpu_choice *c, enum cpu_feature f);
/* In what the choice differs from its model: "+a,-b" in the order of features.def, "" if in
 * nothing. It is what cpu_change() takes, and the one text that says so. */
void cpu_changes_text(const struct cpu_choice *c, char out[CPU_CHANGES]);

/* What a host's CPU that runs the guest by itself (counter pmu) would not do of it: a text, or
 * NULL.
 */
const char *cpu_not_free(const struct cpu_choice *c);

/* ---- this host ---- */

/* Features whose instructions this host would have to execute, and does not have: bits of `words`.
 */
void cpu_host_missing(const u32 words[CPU_WORDS], u32 missing[CPU_WORDS]);
/* Can the feature be there on this host? */
bool cpu_host_executes(const struct cpu_feature_row *r);
/* NULL if it has all of them, else the first that it lacks. */
const char *cpu_host_lacks(const u32 words[CPU_WORDS]);
/* All of them, "AVX, FMA"; "" if there are none. */
void cpu_host_lacks_all(const u32 words[CPU_WORDS], char *out, size_t size);

#endif
