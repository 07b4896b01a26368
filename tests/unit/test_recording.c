/* The recording's directory: created once, never lost by mistake, refused when changed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "replay/recording.h"

static char dir[64], path[100];

static void start(struct log_writer *w, struct recording *r)
{
    struct err err;
    struct record rec = {.type = REC_START};
    rec.start.machine = r->machine_hash;
    assert_int_equal(log_add(w, &rec, &err), 0);
    assert_int_equal(log_flush(w, false, &err), 0);
}

static void make(bool force, struct hash128 *hash)
{
    struct recording r;
    struct err err = {0};
    struct log_writer *w;
    if (recording_create(&r, path, force, &err))
        fail_msg("%s", err.text);
    assert_int_equal(recording_keep(&r, "kernel bytes", 12, hash, &err), 0);
    assert_int_equal(recording_write_machine(&r, "machine", 7, &err), 0);
    assert_int_equal(recording_create_log(&r, &w, &err), 0);
    start(w, &r);
    assert_int_equal(log_writer_close(w, &err), 0);
    recording_close(&r);
}

static int setup(void **state)
{
    strcpy(dir, "/tmp/reprise-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/rec", dir);
    return 0;
}

static int teardown(void **state)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static void flip(const char *name)
{
    char file[200];
    snprintf(file, sizeof(file), "%s/%s", path, name);
    int fd = open(file, O_RDWR);
    u8 byte;
    assert_int_equal(pread(fd, &byte, 1, 3), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 3), 1);
    close(fd);
}

static void makes_and_opens(void **state)
{
    struct recording r;
    struct err err;
    struct log_reader *log;
    struct hash128 hash;
    void *data;
    make(false, &hash);
    assert_int_equal(recording_open(&r, path, &err), 0);
    assert_int_equal(r.machine_size, 7);
    assert_int_equal(recording_open_log(&r, &log, &err), 0);
    log_reader_destroy(log);
    assert_int_equal(recording_load(&r, &hash, 12, "kernel", &data, &err), 0);
    assert_memory_equal(data, "kernel bytes", 12);
    free(data);
    recording_close(&r);
    recording_close(&r);
}

static void is_never_overwritten(void **state)
{
    struct recording r;
    struct err err;
    struct hash128 hash;
    char foreign[200];
    make(false, &hash);
    assert_int_equal(recording_create(&r, path, false, &err), -EEXIST);
    assert_non_null(strstr(err.text, "--force"));
    make(true, &hash);
    /* A directory that holds anything else is not ours to remove. */
    snprintf(foreign, sizeof(foreign), "%s/thesis.tex", path);
    close(open(foreign, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(recording_create(&r, path, true, &err), -EEXIST);
    assert_non_null(strstr(err.text, "thesis.tex"));
    assert_int_equal(recording_open(&r, path, &err), 0);
    recording_close(&r);
    unlink(foreign);
    snprintf(foreign, sizeof(foreign), "%s/files/notes", path);
    close(open(foreign, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(recording_create(&r, path, true, &err), -EEXIST);
    assert_int_equal(access(foreign, F_OK), 0);
    unlink(foreign);
    make(true, &hash);
    /* Nor is a file. */
    snprintf(foreign, sizeof(foreign), "%s/file", dir);
    close(open(foreign, O_CREAT | O_WRONLY, 0600));
    assert_true(recording_create(&r, foreign, true, &err) < 0);
    assert_true(recording_create(&r, "/proc/no/such", false, &err) < 0);
}

static void is_locked_while_recorded(void **state)
{
    struct recording r, other;
    struct err err;
    struct log_writer *w;
    struct log_reader *log;
    assert_int_equal(recording_create(&r, path, false, &err), 0);
    assert_int_equal(recording_write_machine(&r, "machine", 7, &err), 0);
    assert_int_equal(recording_create_log(&r, &w, &err), 0);
    start(w, &r);
    assert_int_equal(recording_open(&other, path, &err), 0);
    assert_int_equal(recording_open_log(&other, &log, &err), -EBUSY);
    recording_close(&other);
    assert_int_equal(recording_create(&other, path, true, &err), -EBUSY);
    assert_int_equal(log_writer_close(w, &err), 0);
    assert_int_equal(recording_open(&other, path, &err), 0);
    assert_int_equal(recording_open_log(&other, &log, &err), 0);
    log_reader_destroy(log);
    recording_close(&other);
    recording_discard(&r);
    assert_int_equal(access(path, F_OK), -1);
}

static void damage_is_named(void **state)
{
    struct recording r;
    struct err err;
    struct log_reader *log;
    struct hash128 hash;
    char name[HASH_TEXT], file[HASH_TEXT + 8];
    void *data;
    make(false, &hash);
    hash_text(&hash, name);
    snprintf(file, sizeof(file), "files/%s", name);

    flip(file);
    assert_int_equal(recording_open(&r, path, &err), 0);
    assert_int_equal(recording_load(&r, &hash, 12, "kernel", &data, &err), -EINVAL);
    assert_non_null(strstr(err.text, "kernel"));
    hash.lo ^= 1;
    assert_int_equal(recording_load(&r, &hash, 12, "initrd", &data, &err), -ENOENT);
    recording_close(&r);

    flip("machine.dtb");
    assert_int_equal(recording_open(&r, path, &err), 0);
    assert_int_equal(recording_open_log(&r, &log, &err), -EINVAL);
    assert_non_null(strstr(err.text, "machine.dtb"));
    recording_close(&r);
    flip("machine.dtb");

    flip("log");
    assert_int_equal(recording_open(&r, path, &err), 0);
    assert_int_equal(recording_open_log(&r, &log, &err), -EINVAL);
    assert_non_null(strstr(err.text, "log"));
    recording_close(&r);

    assert_int_equal(recording_open(&r, dir, &err), -ENOENT);
    assert_non_null(strstr(err.text, "not a recording"));
    assert_int_equal(recording_open(&r, "/proc/no/such", &err), -ENOENT);
}

/* Neither more is read than was said, nor anything that is no file. */
static void only_files_of_their_size(void **state)
{
    static const char *const names[] = {"machine.dtb", "log", NULL};
    struct recording r;
    struct err err;
    struct log_reader *log;
    struct hash128 hash;
    char name[HASH_TEXT], kept[200], moved[200];
    void *data;
    make(false, &hash);
    hash_text(&hash, name);
    snprintf(kept, sizeof(kept), "%s/files/%s", path, name);
    snprintf(moved, sizeof(moved), "%s/moved", dir);
    assert_int_equal(recording_open(&r, path, &err), 0);
    assert_int_equal(recording_load(&r, &hash, 11, "kernel", &data, &err), -EFBIG);
    assert_int_equal(recording_load(&r, &hash, 13, "kernel", &data, &err), -EINVAL);
    assert_int_equal(recording_load(&r, &hash, 1ull << 40, "kernel", &data, &err), -EFBIG);
    /* A terabyte, of which nothing is there. */
    assert_int_equal(truncate(kept, (off_t)1 << 40), 0);
    assert_int_equal(recording_load(&r, &hash, 12, "kernel", &data, &err), -EFBIG);
    unlink(kept);
    assert_int_equal(symlink("/etc/hostname", kept), 0);
    assert_int_equal(recording_load(&r, &hash, 12, "kernel", &data, &err), -EINVAL);
    assert_non_null(strstr(err.text, "link"));
    unlink(kept);
    assert_int_equal(mkfifo(kept, 0600), 0);
    assert_int_equal(recording_load(&r, &hash, 12, "kernel", &data, &err), -EINVAL);
    recording_close(&r);
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned i = 0; names[i]; i++) {
            char file[200];
            snprintf(file, sizeof(file), "%s/%s", path, names[i]);
            assert_int_equal(rename(file, moved), 0);
            if (kind == 0)
                assert_int_equal(symlink(moved, file), 0);
            else if (kind == 1)
                assert_int_equal(mkfifo(file, 0600), 0);
            else if (symlink("/dev/zero", file))
                fail();
            int code = recording_open(&r, path, &err);
            if (!code && (code = recording_open_log(&r, &log, &err)) == 0)
                log_reader_destroy(log);
            recording_close(&r);
            assert_int_equal(code, -EINVAL);
            unlink(file);
            assert_int_equal(rename(moved, file), 0);
        }
    char file[200];
    snprintf(file, sizeof(file), "%s/machine.dtb", path);
    assert_int_equal(truncate(file, (off_t)1 << 40), 0);
    assert_int_equal(recording_open(&r, path, &err), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(makes_and_opens, setup, teardown),
        cmocka_unit_test_setup_teardown(is_never_overwritten, setup, teardown),
        cmocka_unit_test_setup_teardown(is_locked_while_recorded, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(only_files_of_their_size, setup, teardown),
    };
    return cmocka_run_group_tests_name("recording", tests, NULL, NULL);
}
