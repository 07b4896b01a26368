/* cpu/kvm/pmu_check.h: each way in which counters have been wrong is found and named. */
#include "cpu/kvm/pmu_check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A guest that executes the known code on a counter with faults. */
struct machine {
    /* Faults, all zero: none. */
    u64 per_exit;     /* the host's branches that each exit counts */
    u64 per_overflow; /* branches lost around each overflow */
    u64 skid;         /* of each overflow */
    u64 lock_maps;    /* of the event that must stay zero, for each LOCK */
    unsigned once;    /* that try counts one too many */
    bool lost, early, hangs;
    bool loop_insn; /* LOOP and JRCXZ do not count */
    bool rep;       /* iterations count */
    int fails;      /* count() */

    enum pmu_check_code code;
    unsigned ring;
    bool began;
    u64 left, count, zero, tries;
    u64 overflow_at;
    u64 ns;
};

static int count(void *host, u64 *branches, struct err *err)
{
    struct machine *m = host;
    if (m->fails)
        return err_set(err, m->fails, "taken");
    *branches = m->count;
    return 0;
}

static int arm(void *host, u64 branches, struct err *err)
{
    struct machine *m = host;
    m->overflow_at = branches == PMU_NO_PERIOD ? NEVER : m->count + branches;
    return 0;
}

static int run(void *host, struct err *err)
{
    static const u8 per_n[] = {[PMU_CODE_LOOP] = 1,
                               [PMU_CODE_INSNS] = 2,
                               [PMU_CODE_REP] = 0,
                               [PMU_CODE_EXITS] = 1,
                               [PMU_CODE_LOCKS] = 1};
    struct machine *m = host;
    u64 each = m->code == PMU_CODE_INSNS && m->loop_insn ? 0
               : m->code == PMU_CODE_REP && m->rep       ? 1
                                                         : per_n[m->code];
    if (m->hangs)
        return PMU_STOP_SIGNAL;
    if (m->early && m->overflow_at != NEVER && m->left > 5) {
        m->left -= 5;
        m->count += 5;
        m->early = false;
        return PMU_STOP_SIGNAL;
    }
    if (m->code == PMU_CODE_EXITS) {
        /* The exit is in front of the branch; the last run goes through to the end's exit. */
        if (m->began && m->left) {
            m->left--;
            m->count++;
        }
        m->began = true;
        m->count += m->per_exit;
        return PMU_STOP_EXIT;
    }
    while (m->left) {
        m->left--;
        m->count += each;
        m->zero += m->code == PMU_CODE_LOCKS ? m->lock_maps : 0;
        if (!m->lost && m->count >= m->overflow_at + m->skid && m->overflow_at != NEVER) {
            m->overflow_at = NEVER;
            m->count -= m->per_overflow;
            return PMU_STOP_SIGNAL;
        }
    }
    if (m->once && ++m->tries == m->once)
        m->count++;
    return PMU_STOP_EXIT;
}

static void kick_at(void *host, u64 ns)
{
}

static u64 now(void *host)
{
    return ((struct machine *)host)->ns += 1000;
}

static const struct pmu_host_ops ops = {
    .count = count, .arm = arm, .run = run, .kick_at = kick_at, .now = now};

static int load(void *host, enum pmu_check_code code, unsigned ring, u64 n, struct err *err)
{
    struct machine *m = host;
    m->code = code;
    m->ring = ring;
    m->left = n;
    m->overflow_at = NEVER;
    m->began = false;
    return 0;
}

static int must_stay_zero(void *host, u64 *value, struct err *err)
{
    *value = ((struct machine *)host)->zero;
    return 0;
}

static const struct pmu_event event = {
    .family = "test", .config = 1, .margin = 100, .must_stay_zero = 0x510825};

static int check(struct machine *m, struct pmu_check *c, struct err *err)
{
    const struct pmu_check_host h = {&ops, m, load, must_stay_zero};
    return pmu_check_ring(&h, &event, 3, c, err);
}

/* Only `kind` is bad, and this is said. */
static void finds(struct machine m, enum pmu_check_kind kind, const char *text)
{
    struct pmu_check c;
    struct err err = {0};
    if (check(&m, &c, &err))
        fail_msg("%s", err.text);
    for (unsigned k = 0; k < PMU_CHECKS; k++)
        if (c.good[k] != (k != (unsigned)kind) || !c.tried[k])
            fail_msg("%s is %s: %s", pmu_check_name((enum pmu_check_kind)k),
                     c.good[k] ? "good" : "bad", c.text[k]);
    assert_int_equal(pmu_check_verdict(&c, &event, 3, &err), -EPROTO);
    if (!strstr(err.text, text) || !strstr(err.text, "ring 3"))
        fail_msg("'%s' has no '%s'", err.text, text);
}

static void good_counter(void **state)
{
    struct machine m = {.skid = 77};
    struct pmu_check c;
    struct err err = {0};
    assert_int_equal(check(&m, &c, &err), 0);
    assert_int_equal(pmu_check_verdict(&c, &event, 3, &err), 0);
    assert_int_equal(c.skid, 77);
    assert_non_null(strstr(c.text[PMU_CHECK_EXACT], "1000 of 1000"));
    m = (struct machine){.early = true}; /* a stray signal is no fault */
    assert_int_equal(check(&m, &c, &err), 0);
    assert_int_equal(pmu_check_verdict(&c, &event, 3, &err), 0);
    m = (struct machine){.skid = 100}; /* all of the margin */
    assert_int_equal(check(&m, &c, &err), 0);
    assert_int_equal(pmu_check_verdict(&c, &event, 3, &err), 0);
}

static void miscounts(void **state)
{
    finds((struct machine){.per_exit = 3}, PMU_CHECK_EXITS, "(KVM counting the host's");
    finds((struct machine){.per_overflow = 1}, PMU_CHECK_OVERFLOWS, "(Xen is known for that)");
    finds((struct machine){.skid = 101}, PMU_CHECK_SKID, "up to 101 branches");
    finds((struct machine){.loop_insn = true}, PMU_CHECK_INSNS, "0 of 100 counts are exact");
    finds((struct machine){.rep = true}, PMU_CHECK_REP, "0 of 100 counts are exact");
    finds((struct machine){.lock_maps = 1}, PMU_CHECK_LOCKS, "SpecLockMap");
    /* Rare: one of a thousand tries. */
    finds((struct machine){.once = 400}, PMU_CHECK_EXACT, "999 of 1000 counts are exact");
}

static void no_overflows(void **state)
{
    struct machine m = {.lost = true};
    struct pmu_check c;
    struct err err = {0};
    assert_int_equal(check(&m, &c, &err), 0);
    assert_false(c.good[PMU_CHECK_OVERFLOWS]);
    assert_false(c.good[PMU_CHECK_SKID]);
    assert_non_null(strstr(c.text[PMU_CHECK_OVERFLOWS], "1000 of 1000 were lost"));
}

static void cannot_run(void **state)
{
    struct machine m = {.hangs = true};
    struct pmu_check c;
    struct err err = {0};
    assert_int_equal(check(&m, &c, &err), -ETIME);
    assert_false(c.tried[PMU_CHECK_EXACT]);
    assert_int_equal(pmu_check_verdict(&c, &event, 3, &err), -EPROTO);
    assert_non_null(strstr(err.text, "not tried"));
    m = (struct machine){.fails = -ENODATA};
    assert_int_equal(check(&m, &c, &err), -ENODATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_counter),
        cmocka_unit_test(miscounts),
        cmocka_unit_test(no_overflows),
        cmocka_unit_test(cannot_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
