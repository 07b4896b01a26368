/*
 * What a recording is, in a few lines of text: a line for each part with its size and a SHA-256.
 * Two recordings with the same statement replay the same; it is what `reprise sign` signs, and its
 * own SHA-256 is the recording's identity (docs/format.md, "Identity and signature").
 */
#ifndef REPRISE_STATEMENT_H
#define REPRISE_STATEMENT_H

#include "base/sha256.h"
#include "base/signing.h"
#include "replay/opened.h"

#define SIGNATURE_NAME "signature" /* in the recording */

struct statement {
    char *text; /* malloc'ed */
    size_t len;
    struct sha256 hash; /* of the text: the recording's identity */
    struct log_summary log;
    bool sealed; /* the log's chunks have seals, which are right */
};

/*
 * Reads all parts and checks what can be checked without replaying: seals and checksums of the log,
 * kernel and initrd against machine.dtb, that against the log. <0 when a part is missing or was
 * changed. A log that is damaged or was not ended counts up to there: look at log.damage.
 */
int statement_make(struct statement *s, struct opened *o, struct err *err);
void statement_free(struct statement *s);

enum signature_state {
    SIGNATURE_NONE,
    SIGNATURE_RIGHT, /* by the key that stands in it; whose that is, somebody has to say */
    SIGNATURE_WRONG,
};
/* Looks at the recording's signature. RIGHT: the key, the caller's. WRONG: *err says why, with the
 * part that differs. */
enum signature_state signature_check(const struct statement *s, const struct recording *r,
                                     struct signing_key **key, struct err *err);
/* Signs, in place of an older signature. */
int signature_write(const struct statement *s, struct recording *r, const struct signing_key *key,
                    struct err *err);

#endif
