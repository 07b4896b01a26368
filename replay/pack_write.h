/* Writes a pack (pack.h): its files one after the other, then the manifest. */
#ifndef REPRISE_PACK_WRITE_H
#define REPRISE_PACK_WRITE_H

#include "base/blob.h"
#include "replay/manifest.h"

struct pack_writer;

/* To an empty file, whose descriptor stays the caller's. `path` names it in errors. The first file
 * has to be machine.dtb. */
int pack_writer_create(struct pack_writer **out, int fd, const char *path, struct err *err);
void pack_writer_destroy(struct pack_writer *w); /* NULL is safe */

/* A file by its name in a recording: begun, filled, ended. */
int pack_begin(struct pack_writer *w, const char *name, struct err *err);
int pack_put(struct pack_writer *w, const void *data, size_t len, struct err *err);
int pack_end(struct pack_writer *w, struct err *err);
/* All three. */
int pack_add(struct pack_writer *w, const char *name, const void *data, size_t len,
             struct err *err);
int pack_add_blob(struct pack_writer *w, const char *name, const struct blob *b, struct err *err);

/* What else the manifest says is the caller's to fill in. */
struct manifest *pack_writer_manifest(struct pack_writer *w);
/* The manifest and the archive's end; all of it is on the disk then. *bytes: of the pack. */
int pack_finish(struct pack_writer *w, u64 *bytes, struct err *err);

#endif
