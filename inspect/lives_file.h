/*
 * A list of lives as bytes, to be kept as a cache:
 *
 *     "reprise lives 3\n"
 *     32 bytes   the key: what it was made from
 *     varints    up to where (position, time), flags, how the recording ends there
 *     text       what the kernel lacks
 *     varint     how many events; each: a byte with its kind (and 0x80: before anybody looked, with
 *                neither position nor time), position and time as distances from the last one's,
 *                its fields in the order of life_events.def (lives_file.c)
 *     32 bytes   SHA-256 of all before: against damage, not against forgers
 *
 * A varint is cursor.h's; a text is its length and its bytes, printable ASCII. What is read may be
 * anything: it is refused, or a list that holds together.
 */
#ifndef REPRISE_LIVES_FILE_H
#define REPRISE_LIVES_FILE_H

#include "base/sha256.h"
#include "inspect/lives.h"

#define LIVES_FILE_MAX (256u << 20) /* bytes */

enum lives_end { LIVES_GOES_ON, LIVES_ENDS, LIVES_DAMAGED, LIVES_ENDINGS };

struct lives_head {
    struct sha256 key;
    struct life_time upto; /* all before is in the list */
    bool pass;             /* ... and what happens right there, too */
    enum lives_end end;    /* that is where the recording ends, and how */
};

/* malloc'ed. NULL: no memory, or too much for a file. */
u8 *lives_pack(const struct lives_head *h, const struct lives *l, size_t *size);
/* `l` is zeros. -EINVAL with a text: not what lives_pack() makes; -ENOMEM. */
int lives_unpack(struct lives_head *h, struct lives *l, const void *data, size_t size,
                 struct err *err);

#endif
