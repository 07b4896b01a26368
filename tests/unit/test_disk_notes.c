/* What a recorder noted of its disks: the text and back, what is refused of it. Where it lies and
 * whom it must belong to: tests/suite/disk_sources.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "replay/disk_notes.h"

static struct disk_notes sample(void)
{
    struct disk_notes n = {.n = 2};
    strcpy(n.disk[0].file, "/a b%c\n\x1b\xc3\xa9=\"");
    strcpy(n.disk[0].format, "qcow2");
    n.disk[0].backing = 1;
    n.disk[0].timeout = UINT32_MAX;
    n.disk[0].stamp = (struct disk_stamp){1, UINT64_MAX, 0, 42};
    strcpy(n.disk[1].file, "nbd://host/export");
    strcpy(n.disk[1].format, "nbd");
    return n;
}

static void there_and_back(void **state)
{
    const struct disk_notes from = sample();
    struct disk_notes to;
    struct err err;
    char *text = disk_notes_text(&from);
    assert_int_equal(disk_notes_parse(text, strlen(text), &to, &err), 0);
    assert_memory_equal(&from, &to, sizeof(to));
    char *again = disk_notes_text(&to);
    assert_string_equal(text, again);
    /* Each byte of a name, and the longest one, all of it escaped. */
    struct disk_notes all = {.n = 1};
    strcpy(all.disk[0].format, "raw");
    memset(all.disk[0].file, '\n', sizeof(all.disk[0].file) - 1);
    all.disk[0].file[0] = '/';
    for (unsigned i = 1; i < 256; i++)
        all.disk[0].file[i] = (char)i;
    free(text);
    text = disk_notes_text(&all);
    assert_int_equal(disk_notes_parse(text, strlen(text), &to, &err), 0);
    assert_memory_equal(&all, &to, sizeof(to));
    free(text);
    free(again);
}

static void refuses(void **state)
{
    static const char line[] = "disk file=/x format=raw backing=0 timeout=30 bytes=1 modified=2 "
                               "device=3 inode=4\n";
    static const struct {
        const char *from, *to;
    } bad[] = {{"reprise disks 1", "reprise disks 2"},
               {"file=/x", "file="},
               {"file=/x", "file=x"},
               {"file=/x", "file=/%00"},
               {"file=/x", "file=/%2"},
               {"file=/x", "file=/%4A"},
               {"file=/x", "file=/%41"}, /* needs no escape */
               {"file=/x", "path=/x"},
               {"format=raw", "format=none"},
               {"format=raw", "format=0123456789abcdef"},
               {"format=raw ", "format=raw  "},
               {"backing=0", "backing=2"},
               {"backing=0", "backing="},
               {"timeout=30", "timeout=4294967296"},
               {"timeout=30", "timeout=030"},
               {"timeout=30", "timeout=-1"},
               {"bytes=1", "bytes=18446744073709551616"},
               {"inode=4\n", "inode=4"},
               {"inode=4\n", "inode=4 more=5\n"},
               {"inode=4\n", "inode=4\n\n"},
               {" inode=4", ""}};
    char good[400], text[600];
    struct disk_notes n;
    struct err err;
    snprintf(good, sizeof(good), "reprise disks 1\n%s", line);
    assert_int_equal(disk_notes_parse(good, strlen(good), &n, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *at = strstr(good, bad[i].from);
        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, bad[i].to,
                 at + strlen(bad[i].from));
        if (!disk_notes_parse(text, strlen(text), &n, &err))
            fail_msg("taken: %s", text);
    }
    /* Nothing, no disk, too many, a part. */
    assert_int_not_equal(disk_notes_parse("", 0, &n, &err), 0);
    assert_int_not_equal(disk_notes_parse(good, strlen("reprise disks 1\n"), &n, &err), 0);
    for (size_t size = 0; size < strlen(good); size++)
        assert_int_not_equal(disk_notes_parse(good, size, &n, &err), 0);
    strcpy(text, "reprise disks 1\n");
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++)
        strcat(text, line);
    assert_int_equal(disk_notes_parse(text, strlen(text), &n, &err), 0);
    assert_int_equal(n.n, DESCRIPTION_DISKS);
    strcat(text, line);
    assert_int_not_equal(disk_notes_parse(text, strlen(text), &n, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
