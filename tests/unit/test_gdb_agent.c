/* Agent expressions: each bytecode, those gdb makes, and wrong ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "gdb_fake.h"
#include "replay/gdb/agent.h"
#include "replay/gdb/regs.h"

static struct machine *m;
static bool known; /* which process runs */

static struct machine *machine(void *opaque)
{
    return m;
}

static void process(void *opaque, struct gdb_process *out)
{
    *out = (struct gdb_process){.pgd = 0x53b2000, .known = known, .pid = known ? 105 : 0};
}

static const struct gdb_target target = {.machine = machine, .process = process};

#define MINUS(n)  0x22, (u8)(0x100 - (n)), 0x16, 8 /* const8, ext 8 */
#define C8(n)     0x22, n
#define INT64_LOW 0x25, 0x80, 0, 0, 0, 0, 0, 0, 0
#define END       0x27

struct expression {
    u64 value;
    u8 len;
    u8 code[40];
};

#define BYTES(...)                                                                                 \
    sizeof((u8[]){__VA_ARGS__}),                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static bool evaluate(const struct expression *e, u64 *value)
{
    u8 *exact = malloc(e->len + !e->len); /* a read beyond it is seen by the sanitizer */
    memcpy(exact, e->code, e->len);
    bool fine = agent_evaluate(exact, e->len, &target, value);
    free(exact);
    return fine;
}

/* clang-format off */
static const struct expression right[] = {
    {5, BYTES(C8(5), END)},
    {0x1234, BYTES(0x23, 0x12, 0x34, END)},
    {0xfffffffe, BYTES(0x24, 0xff, 0xff, 0xff, 0xfe, END)},
    {0x0102030405060708, BYTES(0x25, 1, 2, 3, 4, 5, 6, 7, 8, END)},
    {7, BYTES(C8(3), C8(4), 0x02, END)},                      /* add */
    {UINT64_MAX, BYTES(C8(3), C8(4), 0x03, END)},             /* sub */
    {12, BYTES(C8(3), C8(4), 0x04, END)},                     /* mul */
    {(u64)-2, BYTES(MINUS(5), C8(2), 0x05, END)},             /* div_signed */
    {1ull << 63, BYTES(INT64_LOW, MINUS(1), 0x05, END)},      /* which would trap the host */
    {0x7ffffffffffffffd, BYTES(MINUS(5), C8(2), 0x06, END)},  /* div_unsigned */
    {(u64)-1, BYTES(MINUS(5), C8(2), 0x07, END)},             /* rem_signed */
    {0, BYTES(INT64_LOW, MINUS(1), 0x07, END)},
    {1, BYTES(MINUS(5), C8(2), 0x08, END)},                   /* rem_unsigned */
    {16, BYTES(C8(1), C8(4), 0x09, END)},                     /* lsh */
    {0, BYTES(C8(1), C8(64), 0x09, END)},
    {(u64)-1, BYTES(MINUS(16), C8(4), 0x0a, END)},            /* rsh_signed */
    {(u64)-1, BYTES(MINUS(16), MINUS(1), 0x0a, END)},
    {15, BYTES(C8(0xf0), C8(4), 0x0b, END)},                  /* rsh_unsigned */
    {0, BYTES(C8(0xf0), MINUS(1), 0x0b, END)},
    {1, BYTES(C8(0), 0x0e, END)},                             /* log_not */
    {0, BYTES(C8(5), 0x0e, END)},
    {0x30, BYTES(C8(0xf0), C8(0x3c), 0x0f, END)},             /* and, or, xor, not */
    {0xfc, BYTES(C8(0xf0), C8(0x3c), 0x10, END)},
    {0xcc, BYTES(C8(0xf0), C8(0x3c), 0x11, END)},
    {UINT64_MAX, BYTES(C8(0), 0x12, END)},
    {1, BYTES(C8(3), C8(3), 0x13, END)},                      /* equal */
    {0, BYTES(C8(3), C8(4), 0x13, END)},
    {1, BYTES(MINUS(1), C8(1), 0x14, END)},                   /* less_signed */
    {0, BYTES(C8(1), MINUS(1), 0x14, END)},
    {0, BYTES(MINUS(1), C8(1), 0x15, END)},                   /* less_unsigned */
    {1, BYTES(C8(1), MINUS(1), 0x15, END)},
    {UINT64_MAX, BYTES(C8(0xff), 0x16, 1, END)},              /* ext */
    {0xff, BYTES(C8(0xff), 0x16, 64, END)},
    {0xff, BYTES(C8(0xff), 0x16, 255, END)},
    {15, BYTES(C8(0xff), 0x2a, 4, END)},                      /* zero_ext */
    {UINT64_MAX, BYTES(MINUS(1), 0x2a, 64, END)},
    {0x1c, BYTES(0x23, 0x10, 0x04, 0x17, END)},               /* ref8 to ref64 at linear 1004 */
    {0x231c, BYTES(0x23, 0x10, 0x04, 0x18, END)},
    {0x312a231c, BYTES(0x23, 0x10, 0x04, 0x19, END)},
    {0x4d463f38312a231c, BYTES(0x23, 0x10, 0x04, 0x1a, END)},
    {8, BYTES(C8(1), 0x20, 0, 8, C8(9), END, C8(8), END)},    /* if_goto */
    {9, BYTES(C8(0), 0x20, 0, 8, C8(9), END, C8(8), END)},
    {8, BYTES(0x21, 0, 6, C8(9), END, C8(8), END)},           /* goto */
    {0x1111, BYTES(0x26, 0, 0, END)},                         /* reg rax, eflags, cr8 */
    {2, BYTES(0x26, 0, 17, END)},
    {7, BYTES(0x26, 0, 80, END)},
    {10, BYTES(C8(5), 0x28, 0x02, END)},                      /* dup */
    {1, BYTES(C8(1), C8(2), 0x29, END)},                      /* pop */
    {1, BYTES(C8(1), C8(2), 0x2b, END)},                      /* swap */
    {3, BYTES(C8(1), C8(2), C8(3), 0x32, 0, END)},            /* pick */
    {1, BYTES(C8(1), C8(2), C8(3), 0x32, 2, END)},
    {2, BYTES(C8(1), C8(2), C8(3), 0x33, END)},               /* rot: 3 1 2 */
    {1, BYTES(C8(1), C8(2), C8(3), 0x33, 0x29, END)},
    {3, BYTES(C8(1), C8(2), C8(3), 0x33, 0x29, 0x29, END)},
    {4, BYTES(C8(4), C8(1), C8(2), 0x0c, END)},               /* tracing goes nowhere */
    {4, BYTES(C8(4), C8(1), C8(2), 0x2f, END)},
    {4, BYTES(C8(4), 0x0d, 8, END)},
    {4, BYTES(C8(4), 0x30, 0, 8, END)},
    /* As gdb makes them: (char)$rax == 0x11 || $cr3 == 5. */
    {1, BYTES(0x26, 0, 0, 0x16, 64, 0x16, 8, C8(0x11), 0x13, 0x20, 0, 29, 0x26, 0, 78, 0x16, 64,
              C8(5), 0x13, 0x20, 0, 29, C8(0), 0x21, 0, 31, C8(1), END)},
};
static const struct expression wrong[] = {
    {0, 0, {0}},
    {0, BYTES(C8(1))},                              /* no end */
    {0, BYTES(END)},                                /* nothing on the stack */
    {0, BYTES(0x22)},                               /* no operand */
    {0, BYTES(0x25, 1, 2, 3)},
    {0, BYTES(C8(1), 0x02, END)},                   /* too little on the stack */
    {0, BYTES(0x28, END)}, {0, BYTES(0x29, END)}, {0, BYTES(C8(1), C8(2), 0x33, END)},
    {0, BYTES(C8(1), C8(0), 0x05, END)},            /* division by 0 */
    {0, BYTES(C8(1), C8(0), 0x08, END)},
    {0, BYTES(C8(1), 0x16, 0, END)},                /* ext 0 */
    {0, BYTES(C8(1), 0x32, 1, END)},                /* pick beyond */
    {0, BYTES(C8(1), 0x17, END)},                   /* not mapped */
    {0, BYTES(MINUS(1), 0x1a, END)},
    {0, BYTES(0x26, 0, 40, END)},                   /* xmm0, and no register */
    {0, BYTES(0x26, 0, GDB_REGISTERS, END)}, {0, BYTES(0x26, 0xff, 0xff, END)},
    {0, BYTES(0x21, 0, 0)},                         /* for ever */
    {0, BYTES(C8(1), 0x21, 0, 0)},                  /* stack overflow */
    {0, BYTES(0x21, 0xff, 0xff)},
    {0, BYTES(0x01)}, {0, BYTES(C8(1), 0x1b, END)}, {0, BYTES(0x2c, 0, 0, END)},
    {0, BYTES(0x34)}, {0, BYTES(0x00)}, {0, BYTES(0xff)},
};
/* clang-format on */

static void test_right(void **state)
{
    m->cpu.gpr[RAX] = 0x1111;
    for (unsigned i = 0; i < ARRAY_SIZE(right); i++) {
        u64 v = 0;
        if (!evaluate(&right[i], &v) || v != right[i].value)
            fail_msg("expression %u is %llx", i, (unsigned long long)v);
    }
}

static void test_wrong(void **state)
{
    for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
        u64 v = 0;
        if (evaluate(&wrong[i], &v))
            fail_msg("expression %u is %llx", i, (unsigned long long)v);
    }
}

static struct gdb_condition *condition(const u8 *code, size_t len, struct gdb_condition *next)
{
    struct gdb_condition *c = malloc(sizeof(*c) + len);
    c->next = next;
    c->len = len;
    memcpy(c->code, code, len);
    return c;
}

/* $pid == 105 && $pgd == 0x53b2000, by registers; one that is not known is no value. */
static void test_process(void **state)
{
    static const struct expression pid = {105, BYTES(0x26, 0, 100, END)},
                                   pgd = {0x53b2000, BYTES(0x26, 0, 99, END)},
                                   comm = {0, BYTES(0x26, 0, 101, END)};
    u64 value;
    known = true;
    assert_true(evaluate(&pid, &value) && value == 105);
    assert_true(evaluate(&pgd, &value) && value == 0x53b2000);
    assert_false(evaluate(&comm, &value)); /* wider than a value */
    known = false;
    assert_false(evaluate(&pid, &value));
    assert_true(evaluate(&pgd, &value) && value == 0x53b2000);
}

static void test_lists(void **state)
{
    static const u8 yes[] = {C8(1), END}, no[] = {C8(0), END}, bad[] = {0xff};
    struct gdb_condition *list = condition(no, sizeof(no), NULL);
    assert_true(gdb_condition_holds(NULL, &target));
    assert_false(gdb_condition_holds(list, &target));
    list = condition(no, sizeof(no), list);
    assert_false(gdb_condition_holds(list, &target));
    list->next->next = condition(yes, sizeof(yes), NULL);
    assert_true(gdb_condition_holds(list, &target));
    gdb_conditions_free(list);
    list = condition(no, sizeof(no), condition(bad, sizeof(bad), NULL));
    assert_true(gdb_condition_holds(list, &target));
    gdb_conditions_free(list);
}

int main(void)
{
    m = fake_machine(CPU_X86_64_V3);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_process),
                                       cmocka_unit_test(test_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
