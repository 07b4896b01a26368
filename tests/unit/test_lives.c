/* What happened to a guest's processes: what each event does, what is found in them, and the file
 * that keeps them. What a kernel does: tests/suite/lives.py and life_points.py. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inspect/life_search.h"
#include "inspect/lives_file.h"

static struct life_event event(enum life_event_kind kind, u32 who, pos_t at)
{
    return (struct life_event){.kind = kind, .who = who, .by = LIVES_NONE, .at = {at, 2 * at}};
}

static void add(struct lives *l, struct life_event e)
{
    struct err err = {0};
    if (lives_add(l, &e, &err))
        fail_msg("%s", err.text);
}

static void begin(struct lives *l, pos_t at, u32 by, i32 pid, i32 tgid)
{
    struct life_event e = event(LIFE_BEGIN, LIVES_NONE, at);
    e.by = by;
    e.pid = pid;
    e.tgid = tgid;
    e.parent = by == LIVES_NONE ? 0 : l->list[by].tgid;
    e.task = 0xffff888000000000ull + 64 * (u64)l->count;
    strcpy(e.comm, "forked");
    add(l, e);
}

static void execute(struct lives *l, u32 who, pos_t at, const char *command, u32 first,
                    const char *comm, const char *program)
{
    struct life_event e = event(LIFE_EXEC, who, at);
    e.pid = e.tgid = l->list[who].tgid;
    e.command = lives_add_text(l, command, strlen(command));
    e.first = first;
    e.program = lives_add_text(l, program, strlen(program));
    strcpy(e.comm, comm);
    add(l, e);
}

static void coded(struct lives *l, enum life_event_kind kind, u32 who, pos_t at, u32 code)
{
    struct life_event e = event(kind, who, at);
    e.code = code;
    add(l, e);
}

/* A shell (0) that has a program with threads (1 to 3) killed, one end well, one executed by a
 * thread, one that the kernel kills by itself, an oops; at the end one that is dying. */
static void sample(struct lives *l)
{
    lives_init(l);
    struct life_event first = event(LIFE_BEGIN, LIVES_NONE, NEVER);
    first.at.time = 0;
    first.kernel = true;
    add(l, first);
    begin(l, 10, 0, 100, 100); /* 1 */
    execute(l, 1, 12, "/bin/sh -c x", 7, "sh", "busybox");
    begin(l, 20, 1, 101, 101); /* 2 */
    begin(l, 21, 2, 102, 101); /* 3: its thread */
    coded(l, LIFE_FATAL, 3, 30, 11);
    coded(l, LIFE_END, 3, 31, 11 | 0x80);
    coded(l, LIFE_END, 2, 32, 11 | 0x80);
    begin(l, 40, 1, 103, 103); /* 4 */
    begin(l, 41, 4, 104, 103); /* 5: ends the process, so that 4 seems to be killed */
    coded(l, LIFE_FATAL, 4, 42, 9);
    coded(l, LIFE_END, 4, 43, 3 << 8);
    coded(l, LIFE_END, 5, 44, 3 << 8);
    begin(l, 50, 1, 105, 105); /* 6 */
    begin(l, 51, 6, 106, 105); /* 7: executes a program, so that 6 seems to be killed */
    coded(l, LIFE_FATAL, 6, 52, 9);
    coded(l, LIFE_END, 6, 53, 0);
    execute(l, 7, 54, "ls /tmp", 2, "ls", "busybox");
    coded(l, LIFE_END, 7, 55, 0);
    begin(l, 60, 1, 107, 107); /* 8 */
    coded(l, LIFE_END, 8, 61, 31);
    begin(l, 70, 1, 108, 108); /* 9 */
    add(l, event(LIFE_OOPS, 9, 71));
    coded(l, LIFE_END, 9, 72, 11);
    add(l, event(LIFE_OOPS, LIVES_NONE, 73));
    begin(l, 80, 1, 101, 101); /* 10: a number once more */
    execute(l, 10, 81, "/usr/bin/a b/ls", 10, "exe", "a b");
    struct life_event named = event(LIFE_NAME, 10, 82), parent = event(LIFE_PARENT, 10, 83);
    strcpy(named.comm, "renamed");
    parent.parent = 1;
    add(l, named);
    add(l, parent);
    coded(l, LIFE_FATAL, 10, 90, 6);
}

static void told(void **state)
{
    struct lives l, then;
    struct err err;
    (void)state;
    sample(&l);
    assert_int_equal(l.count, 11);
    assert_string_equal(lives_text(&l, l.list[2].command), "/bin/sh -c x");
    assert_int_equal(l.list[3].process, 2);
    assert_int_equal(l.list[2].left.position, 32);
    assert_int_equal(l.list[7].execs, 1);
    assert_int_equal(l.list[6].left.position, 55);
    assert_string_equal(l.list[10].comm, "renamed");
    assert_int_equal(l.list[10].parent, 1);
    /* At what is in front of an instruction it has happened. */
    assert_int_equal(lives_as_of(&then, &l, 81, &err), 0);
    assert_string_equal(then.list[10].comm, "exe");
    assert_int_equal(then.list[10].parent, 100);
    lives_free(&then);
    assert_int_equal(lives_as_of(&then, &l, 80, &err), 0);
    assert_int_equal(then.count, 11);
    assert_string_equal(lives_text(&then, then.list[10].command), "/bin/sh -c x");
    assert_int_equal(then.list[10].execs, 0);
    lives_free(&then);
    assert_int_equal(lives_as_of(&then, &l, 9, &err), 0);
    assert_int_equal(then.count, 1);
    lives_free(&then);
    lives_free(&l);
}

static pos_t look(const struct lives *l, enum life_search_kind kind, const char *name, i32 pid,
                  u64 k, bool all)
{
    struct life_search s = {.kind = kind, .name = name, .pid = pid, .k = k};
    return life_search_on(&s, l, all) ? s.at.position : 0;
}

static void found(void **state)
{
    struct lives l;
    (void)state;
    sample(&l);
    assert_int_equal(look(&l, SEARCH_EXEC, "sh", 0, 1, true), 12);
    assert_int_equal(look(&l, SEARCH_EXEC, "busybox", 0, 2, true), 54);
    assert_int_equal(look(&l, SEARCH_EXEC, "ls", 0, 1, true), 54);
    assert_int_equal(look(&l, SEARCH_EXEC, "a", 0, 1, true), 81); /* not the last slash */
    assert_int_equal(look(&l, SEARCH_EXEC, "exe", 0, 1, true), 81);
    assert_int_equal(look(&l, SEARCH_EXEC, "ls", 0, 2, true), 0);
    assert_int_equal(look(&l, SEARCH_EXEC, "forked", 0, 1, true), 0);
    assert_int_equal(look(&l, SEARCH_EXEC, "", 0, 1, true), 0);
    assert_int_equal(look(&l, SEARCH_EXIT, NULL, 101, 1, false), 32);
    assert_int_equal(look(&l, SEARCH_EXIT, NULL, 101, 2, true), 0); /* lives */
    assert_int_equal(look(&l, SEARCH_EXIT, NULL, 102, 1, true), 0); /* a thread */
    assert_int_equal(look(&l, SEARCH_EXIT, NULL, 105, 1, true), 55);
    static const pos_t crashes[] = {30, 61, 71, 73};
    for (u64 k = 0; k < ARRAY_SIZE(crashes); k++)
        assert_int_equal(look(&l, SEARCH_CRASH, NULL, 0, k + 1, false), crashes[k]);
    assert_int_equal(look(&l, SEARCH_CRASH, NULL, 0, 5, false), 0); /* who knows */
    assert_int_equal(look(&l, SEARCH_CRASH, NULL, 0, 5, true), 90);
    assert_int_equal(look(&l, SEARCH_CRASH, NULL, 0, 6, true), 0);
    assert_int_equal(look(&l, SEARCH_PANIC, NULL, 0, 1, true), 0);
    add(&l, event(LIFE_PANIC, 10, 91));
    add(&l, event(LIFE_PANIC, LIVES_NONE, 92));
    assert_int_equal(look(&l, SEARCH_PANIC, NULL, 0, 1, false), 91);
    lives_free(&l);
}

/* A list that grows under a search finds what one that is there has. */
static void grows(void **state)
{
    struct lives all, l;
    static const enum life_search_kind kinds[] = {SEARCH_EXEC, SEARCH_EXIT, SEARCH_CRASH};
    (void)state;
    sample(&all);
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
        for (u64 k = 1; k < 6; k++) {
            struct life_search s = {.kind = kinds[i], .name = "busybox", .pid = 101, .k = k};
            bool is = false;
            lives_init(&l);
            for (u32 e = 0; e < all.nevents && !is; e++) {
                struct life_event copy = all.events[e];
                const char *text = lives_text(&all, copy.command);
                copy.command = lives_add_text(&l, text, strlen(text));
                text = lives_text(&all, copy.program);
                copy.program = lives_add_text(&l, text, strlen(text));
                add(&l, copy);
                is = life_search_on(&s, &l, false);
            }
            is = is || life_search_on(&s, &l, true);
            assert_int_equal(is ? s.at.position : 0, look(&all, kinds[i], "busybox", 101, k, true));
            lives_free(&l);
        }
    lives_free(&all);
}

static const struct lives_head head = {
    .key = {{1, 2, 3}}, .upto = {95, 200}, .pass = true, .end = LIVES_DAMAGED};

static void kept(void **state)
{
    struct lives l, back;
    struct lives_head is;
    struct err err;
    size_t size, again;
    (void)state;
    sample(&l);
    strcpy(l.lacks, "nothing that is needed");
    u8 *data = lives_pack(&head, &l, &size);
    assert_non_null(data);
    if (lives_unpack(&is, &back, data, size, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(&is.key, &head.key, sizeof(is.key));
    assert_int_equal(is.upto.position, 95);
    assert_int_equal(is.upto.time, 200);
    assert_true(is.pass);
    assert_int_equal(is.end, LIVES_DAMAGED);
    assert_string_equal(back.lacks, l.lacks);
    assert_int_equal(back.nevents, l.nevents);
    assert_int_equal(back.ncrashes, l.ncrashes);
    for (u32 i = 0; i < l.count; i++) {
        assert_string_equal(lives_text(&back, back.list[i].command),
                            lives_text(&l, l.list[i].command));
        assert_string_equal(back.list[i].comm, l.list[i].comm);
        assert_int_equal(back.list[i].ended.position, l.list[i].ended.position);
        assert_int_equal(back.list[i].task, l.list[i].task);
    }
    u8 *once_more = lives_pack(&is, &back, &again);
    assert_int_equal(size, again);
    assert_memory_equal(data, once_more, size);
    free(once_more);
    lives_free(&back);
    lives_free(&l);
    free(data);
}

static void refuse(const u8 *data, size_t size, const char *why)
{
    struct lives l;
    struct lives_head is;
    struct err err = {0};
    if (lives_unpack(&is, &l, data, size, &err) != -EINVAL || !strstr(err.text, why))
        fail_msg("%zu bytes are not refused with '%s': %s", size, why, err.text);
    assert_null(l.events);
}

/* Whatever is cut off, changed or added. */
static void damaged(void **state)
{
    struct lives l;
    size_t size;
    (void)state;
    sample(&l);
    u8 *data = lives_pack(&head, &l, &size), *more = malloc(size + 1);
    for (size_t i = 0; i < size; i++) {
        u8 *cut = malloc(i + 1);
        memcpy(cut, data, i);
        refuse(cut, i, "it is");
        free(cut);
        data[i] ^= 1;
        refuse(data, size, "it is");
        data[i] ^= 1;
    }
    memcpy(more, data, size);
    more[size] = 0;
    refuse(more, size + 1, "damaged");
    free(more);
    free(data);
    lives_free(&l);
}

/* Made with care, but nonsense: the sum is right. */
static void forged(void **state)
{
    static const struct {
        enum life_event_kind kind;
        u32 who, by;
        pos_t at;
        const char *comm;
    } bad[] = {
        {LIFE_END, 11, LIVES_NONE, 92, ""},          /* nobody's */
        {LIFE_EXEC, LIVES_NONE, LIVES_NONE, 92, ""}, /* of none */
        {LIFE_BEGIN, LIVES_NONE, 11, 92, ""},        /* by itself */
        {LIFE_BEGIN, LIVES_NONE, 0, NEVER, ""},      /* before, after others */
        {LIFE_OOPS, LIVES_NONE, 0, 96, ""},          /* after the end of what is known */
        {LIFE_OOPS, LIVES_NONE, 0, 89, ""},          /* before the last one */
        {LIFE_NAME, 1, 0, 92, "a\x1b[31m"},          /* not printable */
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        struct lives l;
        size_t size;
        sample(&l);
        struct life_event e = event(bad[i].kind, bad[i].who, bad[i].at);
        e.at.time = 190;
        e.by = bad[i].by;
        strcpy(e.comm, bad[i].comm);
        add(&l, event(LIFE_PANIC, LIVES_NONE, 92)); /* room */
        l.events[l.nevents - 1] = e;
        u8 *data = lives_pack(&head, &l, &size);
        refuse(data, size, "makes no sense");
        free(data);
        lives_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(told),    cmocka_unit_test(found),
                                       cmocka_unit_test(grows),   cmocka_unit_test(kept),
                                       cmocka_unit_test(damaged), cmocka_unit_test(forged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
