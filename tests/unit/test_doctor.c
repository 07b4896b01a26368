/* cpu/kvm/probe.h: tests that hang or crash cost their facts only; and what follows from facts. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/doctor.h"
#include "host/clock.h"

static void hangs(struct facts *f)
{
    fact_add(f, "first", FACT_YES, "found");
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

static void crashes(struct facts *f)
{
    fact_number(fact_add(f, "second", FACT_INFO, "%d", 7), 7);
    signal(SIGSEGV, SIG_DFL); /* cmocka has a handler */
    raise(SIGSEGV);
}

static void gives_up(struct facts *f)
{
    _exit(3);
}

static void says_no(struct facts *f)
{
    fact_note(fact_add(f, "third", FACT_NO, "no"), "because");
}

static void isolation(void **state)
{
    static struct facts f;
    u64 began = host_ns();
    probe_isolated(&f, "hang", 1, hangs);
    assert_true(host_ns() - began < 20000000000ull);
    probe_isolated(&f, "crash", 20, crashes);
    probe_isolated(&f, "status", 20, gives_up);
    probe_isolated(&f, "good", 20, says_no);
    assert_int_equal(f.n, 6);
    assert_true(fact_yes(&f, "first"));
    assert_int_equal(fact_find(&f, "hang")->state, FACT_UNTESTED);
    assert_string_equal(fact_find(&f, "hang")->note, "no end after 1 s");
    assert_true(fact_find(&f, "second")->number == 7);
    assert_non_null(strstr(fact_find(&f, "crash")->note, "signal 11"));
    assert_non_null(strstr(fact_find(&f, "status")->note, "status 3"));
    assert_string_equal(fact_find(&f, "third")->note, "because");
    assert_null(fact_find(&f, "good"));
}

/* Everything that any engine needs. */
static const char *const needed[] = {
    "dbt.v2",      "dbt.engine", "kvm.device",  "kvm.api",    "kvm.vm",
    "kvm.caps",    "kvm.guest",  "step.ring0",  "step.ring3", "kvm.linux",
    "pmu.counter", "tsc.offset", "tsc.scaling", "tsc.still",
};

/* A host that has all but one thing. */
static void host_without(struct facts *f, const char *missing)
{
    memset(f, 0, sizeof(*f));
    fact_number(fact_add(f, "step.speed", FACT_INFO, "fast"), 500000);
    fact_add(f, "host.hypervisor", FACT_INFO, "no");
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        bool no = missing && !strcmp(missing, needed[i]);
        struct fact *fact =
            fact_add(f, needed[i], no ? FACT_NO : FACT_YES, "%s", no ? "no" : "yes");
        if (no)
            fact_note(fact, "for want of a nail");
    }
}

static void judge(const char *missing, const char *can, const char *says)
{
    static struct facts f;
    struct verdict v[DOCTOR_VERDICTS];
    char got[16] = "", advice[400];
    host_without(&f, missing);
    doctor_verdicts(&f, v);
    for (unsigned i = 0; i < DOCTOR_VERDICTS; i++) {
        strcat(got, v[i].stock ? "L" : v[i].tiny ? "t" : "-");
        assert_true(v[i].tiny || !v[i].stock);
        bool blamed = strstr(v[i].text, "for want of a nail");
        if (v[i].stock == blamed)
            fail_msg("without %s: %s", missing, v[i].text);
    }
    doctor_advice(&f, advice, sizeof(advice));
    if (strcmp(got, can) || !strstr(advice, says))
        fail_msg("without %s: %s, not %s; advice '%s'", missing ? missing : "nothing", got, can,
                 advice);
}

static void verdicts(void **state)
{
    const char *nail = "for want of a nail";
    judge(NULL, "LLL", "nothing: this host has all");
    judge("dbt.engine", "-LL", nail);
    judge("kvm.device", "L--", nail);
    judge("kvm.caps", "L--", nail);
    judge("kvm.guest", "L--", nail);
    judge("step.ring0", "LLL", "nothing: this host has all");
    judge("step.ring3", "LLL", "nothing: this host has all");
    judge("kvm.linux", "LLt", "virtualization in the firmware");
    judge("pmu.counter", "LL-", nail);
    judge("tsc.scaling", "LL-", nail);
    judge("tsc.still", "LL-", nail);
}

/* Steps so slow that nobody waits for a boot; and none at all. */
static void slow_steps(void **state)
{
    static struct facts f;
    struct verdict v[DOCTOR_VERDICTS];
    host_without(&f, NULL);
    f.fact[0].number = 20000;
    doctor_verdicts(&f, v);
    assert_true(v[1].tiny && !v[1].stock);
    assert_non_null(strstr(v[1].text, "20 k instructions/s"));
    assert_non_null(strstr(v[1].text, "14 hours"));
    for (u32 i = 0; i < f.n; i++)
        if (!strncmp(f.fact[i].key, "step.ring", 9))
            f.fact[i].state = FACT_NO;
    doctor_verdicts(&f, v);
    assert_false(v[1].tiny);
    assert_non_null(strstr(v[1].text, "in any ring"));
}

static void prove(struct facts *f, const char *states)
{
    struct proof p[DOCTOR_PROOFS];
    char got[DOCTOR_PROOFS + 1] = "";
    doctor_proofs(f, p);
    for (unsigned i = 0; i < DOCTOR_PROOFS; i++)
        got[i] = "-+ ?"[p[i].state];
    assert_string_equal(got, states);
}

/* What a host shows of what only hardware can. */
static void proofs(void **state)
{
    static const char *const keys[] = {"pmu.exact.ring0", "pmu.exits.ring0", "pmu.exact.ring3",
                                       "pmu.exits.ring3", "pmu.insns.ring0", "pmu.insns.ring3",
                                       "step.rep"};
    static struct facts f;
    memset(&f, 0, sizeof(f));
    prove(&f, "?????");
    struct fact *linux_runs = fact_add(&f, "kvm.linux", FACT_YES, "yes");
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        fact_add(&f, keys[i], FACT_YES, "yes");
    prove(&f, "++???");
    struct fact *shadow = fact_add(&f, "step.mov_ss", FACT_INFO, "after the next instruction");
    struct fact *still = fact_add(&f, "tsc.still", FACT_YES, "yes");
    prove(&f, "++++?");
    snprintf(shadow->value, sizeof(shadow->value), "directly after it");
    still->state = FACT_NO;
    f.fact[3].state = FACT_NO; /* pmu.exact.ring3 */
    prove(&f, "-+--?");
    linux_runs->state = FACT_NO; /* an emulation's steps prove nothing */
    prove(&f, "-+?-?");
    f.fact[3].state = FACT_UNTESTED;
    prove(&f, "?+?-?");
}

/* Nothing found out: nothing promised. */
static void nothing_known(void **state)
{
    static struct facts f;
    struct verdict v[DOCTOR_VERDICTS];
    memset(&f, 0, sizeof(f));
    doctor_verdicts(&f, v);
    for (unsigned i = 0; i < DOCTOR_VERDICTS; i++) {
        assert_false(v[i].tiny);
        assert_non_null(strstr(v[i].text, "not tested"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isolation), cmocka_unit_test(verdicts),      cmocka_unit_test(slow_steps),
        cmocka_unit_test(proofs),    cmocka_unit_test(nothing_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
