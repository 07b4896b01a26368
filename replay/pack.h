/*
 * A packed recording: one file, a tar archive (base/tar.h) of what a recording's directory has,
 * each file in Zstandard frames of its own (base/seekable.h), so that readers unpack what they read
 * and no more. docs/format.md has the bytes.
 *
 *     machine.dtb      as it is, and first: all that is read of a pack before the door is this and
 *                      the archive's headers (docs/security.md)
 *     log.zst ...      the recording's other files, by their names in it
 *     disks/N.map.zst  which sectors of disk N's image are known, by hash (pack_disk.h)
 *     disks/pages.zst  the pages of these, each once
 *     manifest         what is there, with sizes and hashes (manifest.h); last, so that a pack
 *                      without it was not written to its end
 *
 * A pack is somebody else's. Names other than a recording's are refused, links and whatever else
 * tar knows too, and what is there twice or lacks. Whoever opens a recording gets its files through
 * recording_file(), and need not know of packs.
 */
#ifndef REPRISE_PACK_H
#define REPRISE_PACK_H

#include "base/blob.h"
#include "replay/manifest.h"

#define PACK_SUFFIX ".zst"
#define PACK_PAGES  "disks/pages"

struct pack;

/* Does it begin as one? Else it is somebody else's file. */
bool pack_is(int fd);
/* Takes over `fd`, a regular file, also on error. `path` names it in errors. */
int pack_open(struct pack **out, int fd, const char *path, struct err *err);
void pack_close(struct pack *p); /* NULL is safe. Parts stay */

/* Is that file of a recording there? Of the archive's headers. */
bool pack_has(const struct pack *p, const char *name);
/* machine.dtb, the pack's. */
const void *pack_machine(const struct pack *p, size_t *size);
/* Reads it if it was not yet, and holds it against the members. NULL: *err. */
const struct manifest *pack_manifest(struct pack *p, struct err *err);
/* That file, as the manifest has it; -ENOENT: there is none. */
int pack_file(struct pack *p, const char *name, struct blob *out, struct err *err);
/* Reads all of it: each file is what the manifest says. <0: *err names the first that is not. */
int pack_check(struct pack *p, struct err *err);
/* Bytes of the pack. */
u64 pack_bytes(const struct pack *p);

/* Could a recording have a file of that name, or a pack? */
bool pack_name_known(const char *name);

#endif
