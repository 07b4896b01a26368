/*
 * A file of events for keyboard and tablet (docs/input.md), as a feed: each report is given to the
 * machine exactly at its virtual time, or, while the driver has no room, as soon as it has.
 */
#ifndef REPRISE_LIVE_INPUT_FILE_H
#define REPRISE_LIVE_INPUT_FILE_H

#include "base/err.h"
#include "live/feed.h"
#include "host/input_report.h"

#define INPUT_FILE_MAX (1u << 20) /* bytes of text */

struct input_file;

/* `name` is for messages, which begin with it and the number of the line. */
int input_file_parse(struct input_file **out, const char *name, const char *text, size_t len,
                     struct err *err);
int input_file_load(struct input_file **out, const char *path, struct err *err);
/* Its reports, in order of time. */
const struct input_report *input_file_reports(const struct input_file *f, size_t *n);
struct feed *input_file_feed(struct input_file *f);
void input_file_destroy(struct input_file *f); /* NULL is safe */

#endif
