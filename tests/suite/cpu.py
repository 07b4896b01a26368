"""CPUs by name, with features more and less: what is accepted, what a guest has of it, what a host must have."""
import json
import re
import shutil

from suite.begin import begun
from suite.harness import ERROR, USAGE, cpu, test
from suite.run_program import compiled, last, own, replayed, run


def shown(t, name):
    return json.loads(t.run(t.reprise, "cpu", "show", "--json", name).out)


def here(t, base, *wanted):
    """The base with those of the features that this host has."""
    listed = {f["names"][0]: f["here"] for f in json.loads(t.run(t.reprise, "cpu", "list", "--json").out)["features"]}
    return ",".join([base, *(f"+{name}" for name in wanted if listed[name])])


def draws(r):
    return re.findall(r"^(rdrand|rdseed) ([0-9a-f]+)$", r.text, re.M)


@test("cpu/list", cost=1)
def listing(t):
    """list and show: models, features, numbers, CPUID; of what runs here and of what does not."""
    fake = {"REPRISE_TEST_LACKS": "avx2|sha_ni"}
    text = t.run(t.reprise, "cpu", "list").text
    t.equal(t.run(t.reprise, "record", "--cpu", "help").text, text, "record --cpu help")
    t.equal(t.run(t.reprise, "run", "--cpu", "help").text, text, "run --cpu help")
    listed = json.loads(t.run(t.reprise, "cpu", "list", "--json").out)
    names = [m["name"] for m in listed["models"]]
    t.equal(names[:4], ["x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4"], "the levels")
    for name in names + [listed["host"], "host"]:
        one = shown(t, name)
        t.check(one["cpuid"][0]["leaf"] == 0 and one["brand"] and "sse2" in one["features"], f"{name}: {one}")
        t.has(t.run(t.reprise, "cpu", "show", name).text, "^CPUID +00000000.0 ")
    t.check(shown(t, "host")["here"], "this host is not itself")
    lacking = json.loads(t.run(t.reprise, "cpu", "show", "--json", "icelake", env=fake).out)
    t.equal((lacking["here"], lacking["lacks"]), (False, ["avx2", "sha_ni"]), "what a host lacks")
    t.has(t.run(t.reprise, "cpu", "list", env=fake).text, r"^x86-64-v3 +no .*; this CPU lacks AVX2$")
    t.check("avx2" not in t.run(t.reprise, "cpu", "show", "host", env=fake).text, "host has what the host lacks")
    zen = shown(t, "zen2,+rdrand,-sha")
    t.equal((zen["family"], zen["number"], zen["changed"], zen["kvm_pmu"]), (23, 49, "+rdrand,-sha_ni", False), "zen2")
    leaf = {(c["leaf"], c["subleaf"]): c for c in zen["cpuid"]}
    t.check(leaf[1, 0]["ecx"] >> 30 & 1 and not leaf[7, 0]["ebx"] >> 29 & 1, "CPUID's bits")


@test("cpu/refused", cost=1)
def refused(t):
    """What makes no sense is said, and nothing is recorded."""
    for text, says in (("x86-64-v5", "is x86-64-v"), ("hasswell", "is haswell meant"), ("x86-64-v2,+avx2", r"\+avx,\+avx2"),
                       ("x86-64-v3,-avx", "-fma,-avx,-f16c,-avx2"), ("zen2,+avx512vl", r"avx512vl needs avx512f.*\+avx512f,\+avx512vl"), ("zen2,+avx512_fp16", "not executed here"),
                       ("zen2,-sse2", "cannot be turned off"), ("zen2,+sha_in", "is sha_ni meant"), ("zen2,sha", "neither"),
                       ("zen2,", "comma"), ("zen2,+aes,-aes", "twice")):
        r = t.tiny("rec", "random", "--cpu", text, code=USAGE)
        t.has(r.error, f"--cpu: .*{says}")
        t.has(t.run(t.reprise, "run", "--cpu", text, "true", code=USAGE).error, f"--cpu: .*{says}")
        t.has(t.run(t.reprise, "cpu", "show", text, code=USAGE).error, says)
    for text, says in (("x86-64-v2,+rdrand", "RDRAND and RDSEED would be the host's"), ("haswell,-aes", "turned off"),
                       ("x86-64-v4", "not taken out of KVM")):
        t.has(t.tiny("rec", "random", "--cpu", text, "--counter", "pmu", code=USAGE).error, f"not with --counter=pmu: .*{says}")
    t.check(not (t.dir / "rec").exists(), "there is a recording")
    fake = {"REPRISE_TEST_LACKS": "sse4_2"}
    t.has(t.tiny("rec", "random", code=ERROR, env=fake).error, "this host's CPU lacks SSE4.2, which the model x86-64-v2 has")
    r = t.tiny("rec", "random", "--cpu", "host", "-v", env=fake)
    t.lacks(r.text, "^FAIL")
    t.equal(t.info("rec")["cpu"], "x86-64-v1", "the level below")


@test("cpu/features", cost=2)
def features(t):
    """What CPUID says is executed, what it does not say is #UD; recordings of models as they are say nothing of it."""
    models = (("x86-64-v1,+rdrand", "+rdrand"), ("x86-64-v2,-cx16,-popcnt,-lahf_lm,-smap", "-cx16,-popcnt,-smap,-lahf_lm"),
              ("x86-64-v2", ""), ("x86-64-v2,-sse3,-ssse3,-sse4.1,-sse4.2", "-sse3,-ssse3,-sse4_1,-sse4_2"))
    for i, (text, changed) in enumerate(models):
        r = t.tiny(f"r{i}", "random", "--cpu", text)
        t.lacks(r.text, "^FAIL")
        t.same(f"r{i}", r)
        t.equal(t.info(f"r{i}").get("cpu_features", ""), changed, "what info says")
        t.check((b"features" in (t.dir / f"r{i}/machine.dtb").read_bytes()) == bool(changed), "machine.dtb")
    more = here(t, "x86-64-v2", "aes", "pclmulqdq", "adx", "sha_ni", "gfni", "bmi1", "movbe", "rdpid")
    r = t.tiny("more", "random", "--cpu", more)
    t.lacks(r.text, "^FAIL")
    t.same("more", r)
    t.same("more", r, "--engine", "dbt,paranoid")
    t.has(t.run(t.reprise, "diff", t.dir / "r2", t.dir / "r0", code=None).text, "CPU features")


@test("cpu/random", cost=2)
def numbers(t):
    """RDRAND and RDSEED follow from the seed and from where they are executed: the same in each replay and in
    recordings of the same seed, others with another one, also of a recording that begins in this one."""
    options = ("--cpu", "x86-64-v2,+rdrand,+rdseed", "--wall-clock", 1)
    r = t.tiny("rec", "random", *options, "--seed", 5)
    t.lacks(r.text, "^FAIL")
    t.equal([name for name, _ in draws(r)], ["rdrand", "rdseed"], "what was drawn")
    t.same("rec", r)
    t.same("rec", r, env={"REPRISE_TEST_SLICE": "7"})
    t.same("rec", r, "--engine", "dbt,paranoid")
    t.equal(draws(t.tiny("again", "random", *options, "--seed", 5)), draws(r), "with the same seed")
    other = draws(t.tiny("other", "random", *options, "--seed", 6))
    t.check(all(a != b for a, b in zip(draws(r), other)), "another seed gives the same numbers")
    # Between the two: what came before stays.
    begun(t, "from", "rec", "--at", "console:rdrand's flags")
    t.equal(draws(t.replay("from")), draws(r), "begun in it")
    begun(t, "seeded", "rec", "--at", "console:rdrand's flags", "--seed", 7)
    seeded = draws(t.replay("seeded"))
    t.equal(seeded[0], draws(r)[0], "before the other seed")
    t.check(seeded[1] != draws(r)[1], "another seed gives the same number")
    begun(t, "third", "seeded", "--at", "end-1")
    t.equal(draws(t.replay("third")), seeded, "begun in the one with the other seed")


@test("cpu/lacks", cost=2)
def lacks(t):
    """A replay on a host that lacks what the guest uses goes up to there, and says what and where."""
    name = here(t, "x86-64-v2", "aes", "adx", "gfni")
    if "+aes" not in name:
        t.skip("this host's CPU has no AES")
    r = t.tiny("rec", "random", "--cpu", name)
    fake = {"REPRISE_TEST_LACKS": "aes"}
    stopped = t.replay("rec", code=ERROR, env=fake)
    t.has(stopped.error, "this host's CPU lacks AES, which the recorded machine has: the replay goes up to")
    at = re.search(r"lacks AES, which the guest uses at position (\d+): aesenc xmm0, xmm1 at RIP", stopped.error)
    t.check(at, "it does not say where: " + stopped.error)
    t.check(r.out.startswith(stopped.out) and b"crc32" in stopped.out and b"aes" not in stopped.out, "what was replayed")
    t.has(t.run(t.reprise, "trace", t.dir / "rec", "--from", at[1], "--to", int(at[1]) + 1).text, "aesenc")
    for slice in ("1", "13"):
        t.equal(t.replay("rec", code=ERROR, env={**fake, "REPRISE_TEST_SLICE": slice}).error, stopped.error, "other slices")
    t.run(t.reprise, "replay", "--to", at[1], "--regs", t.dir / "rec", env=fake)
    t.has(t.run(t.reprise, "replay", "--to", "end", t.dir / "rec", code=ERROR, env=fake).error, f"AES.* position {at[1]}: ")
    t.has(t.run(t.reprise, "verify", t.dir / "rec", code=ERROR, env=fake).error, f"AES.* position {at[1]}: ")
    for refuses in (("replay", "--engine", "dbt,paranoid"), ("replay", "--engine", "kvm")):
        t.has(t.run(t.reprise, *refuses, t.dir / "rec", code=ERROR, env=fake).error, "lacks AES, which the model x86-64-v2,")
    t.has(begun(t, "from", "rec", "--at", "insn:0", code=ERROR, env=fake).error, "lacks AES, which the model x86-64-v2,")
    # What is never used need not be there.
    r = t.tiny("other", "waits", "--cpu", name, code=None)
    t.has(t.same("other", r, env=fake).error, "lacks AES.*up to where the guest first uses it")


@test("cpu/boot", cost=10)
def boots(t):
    """Linux on the least CPU, and on this host's own; on a host without AVX that replays up to where the kernel
    enables its registers, and not from a checkpoint after that."""
    script = "head -c 100000 /dev/urandom | md5sum; grep -m1 ^flags /proc/cpuinfo"
    least = "x86-64-v1,-xsave,-pcid,-invpcid,-smep,-smap,-umip,-fsgsbase,-rdtscp,-clwb,-clflushopt,-erms"
    for name, text in (("least", least), ("host", "host")):
        r = t.linux(name, "--cpu", text, script=script, end="poweroff")
        flags = re.search("^flags.*", r.text, re.M)[0].split()
        for flag in ("rdrand", "rdseed", "cx16", "smep", "avx2"):
            t.equal(flag in flags, flag in shown(t, text)["features"], f"{flag} in {text}")
        t.same(name, r)
    if "avx512f" in flags:  # registers that nobody uses need not be there
        fake = {"REPRISE_TEST_LACKS": "avx512f"}
        r = t.replay("host", code=ERROR, env=fake)
        t.has(r.error, r"lacks AVX-512F, which the guest uses at position \d+: v\w+ ")
        first = int(re.search(r"at position (\d+): v", r.error)[1])
        t.equal(t.run(t.reprise, "replay", "--to", first, "--json", t.dir / "host", env=fake).code, 0, "up to there")
        t.run(t.reprise, "checkpoint", "--every", "0.4", t.dir / "host")
        r = t.run(t.reprise, "replay", "--to", "end", t.dir / "host", code=ERROR, env=fake)
        t.has(r.error, "lacks AVX-512")
    if "avx" not in flags:
        return
    fake = {"REPRISE_TEST_LACKS": "avx"}
    t.has(t.replay("host", code=ERROR, env=fake).error, r"lacks AVX, which the guest uses at position \d+: its registers are enabled")
    t.run(t.reprise, "checkpoint", "--every", "0.4", t.dir / "host")
    r = t.run(t.reprise, "replay", "--to", "end", t.dir / "host", code=ERROR, env=fake)
    t.has(r.error, "AVX's registers are in use, and this host's CPU lacks AVX")


@test("cpu/openssl", cost=15)
def openssl(t):
    """A program that looks for AES, SHA, ADX and RDRAND, and uses what is there: the results are the host's."""
    own(t)
    draws_one = compiled(t, 'int main(void) { unsigned long v; __asm__ volatile("rdrand %0" : "=r"(v)); return !v; }')
    run(t, draws_one, code=128 + 4)
    t.has(t.run(t.reprise, "info", last(t)).text, "^hint .*rdrand rax at .*lacks: --cpu x86-64-v2,\\+rdrand has it")
    if not shutil.which("openssl"):
        t.skip("openssl is not installed")
    name = here(t, "x86-64-v2", "aes", "pclmulqdq", "adx", "sha_ni", "bmi2", "rdrand", "rdseed")
    script = ("head -c 300000 /dev/zero >z; openssl dgst -sha256 z; openssl dgst -sha1 z; "
              "openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 00 -in z 2>/dev/null | openssl dgst -sha512; "
              "openssl prime 162259276829213363391578010288127; grep -ow rdrand /proc/cpuinfo; openssl rand -hex 8 | wc -c")
    (t.dir / "there").mkdir()
    want = t.run("sh", "-c", script, cwd=t.dir / "there").out.replace(b"rdrand\n", b"")
    r = run(t, "sh", "-c", script, options=("--write", ".", "--cpu", name))
    t.equal(r.out.replace(b"rdrand\n", b""), want, "what openssl says")
    t.has(r.text, "^rdrand$")
    replayed(t, r)
    for feature, text in (("sha_ni", "SHA"), ("aes", "AES")):
        if "+" + feature in name:
            r = t.run(t.reprise, "replay", last(t), code=ERROR, env={"REPRISE_TEST_LACKS": feature})
            t.has(r.error, rf"lacks {text}, which the guest uses at position \d+: \w+ .* ring 3")
