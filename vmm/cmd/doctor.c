/*
 * `reprise doctor`: what this host can do for Reprise, each fact found by trying (cpu/kvm/probe.h,
 * doctor_host.c), and what follows from them (doctor_verdict.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/doctor.h"
#include "version.h"

enum { O_JSON = 256, O_ALL };

static const struct argp_option options[] = {
    {"json", O_JSON, NULL, 0, "Everything, as JSON", 0},
    {"all", O_ALL, NULL, 0, "Also what is as it should be, each with what it is for", 0},
    {0},
};

static const char doc[] =
    "Tells on one page what this host can do for Reprise: KVM, performance counters, what a tiny "
    "guest shows in each ring, graphics, disks, networks; what each engine can therefore do, and "
    "the "
    "one thing to change to get more. Each fact is tried, in processes of their own with a time "
    "limit; nothing on the host is changed, and no privileges are needed. The exit code is 0 "
    "whatever "
    "the host lacks." EXIT_HELP;

struct doctor_args {
    bool json, all;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct doctor_args *a = state->input;
    switch (key) {
    case O_JSON: a->json = true; break;
    case O_ALL: a->all = true; break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", arg); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* When a row is shown; --all shows all of them. */
enum show { ALWAYS, IF_WRONG, ONLY_ALL };

/* A key that ends in '.' is for all that begin so and have no row of their own. */
static const struct row {
    const char *key, *label;
    enum show show;
} rows[] = {
    {NULL, "Host", ALWAYS},
    {"host.cpu", "CPU", ALWAYS},
    {"host.cpus", "CPUs online", ALWAYS},
    {"host.kernel", "kernel", ALWAYS},
    {"host.hypervisor", "in a virtual machine", ALWAYS},
    {"host.cpuid_faulting", "CPUID faulting", ALWAYS},
    {"host", "facts of the host", IF_WRONG},
    {NULL, "Engine dbt", ALWAYS},
    {"dbt.engine", "runs code", ALWAYS},
    {"dbt.v2", "model x86-64-v2", ALWAYS},
    {"dbt.v3", "model x86-64-v3", ALWAYS},
    {"dbt.model.", "model ", ONLY_ALL},
    {NULL, "KVM", ALWAYS},
    {"kvm.device", "/dev/kvm", ALWAYS},
    {"kvm.api", "API version", ALWAYS},
    {"kvm.vm", "makes machines", IF_WRONG},
    {"kvm.caps", "capabilities", ALWAYS},
    {"cap.", "capability ", ONLY_ALL},
    {"kvm", "KVM", IF_WRONG},
    {NULL, "A tiny guest", ALWAYS},
    {"kvm.guest", "starts", ALWAYS},
    {"speed.ring0", "speed, ring 0", ALWAYS},
    {"speed.ring3", "speed, ring 3", ALWAYS},
    {"exit.ring0", "exit to the host, ring 0", ALWAYS},
    {"exit.ring3", "exit to the host, ring 3", ALWAYS},
    {"step.ring0", "single steps, ring 0", ALWAYS},
    {"step.ring3", "single steps, ring 3", ALWAYS},
    {"step.speed", "single steps, speed", ALWAYS},
    {"step.rep", "single steps in REP", ALWAYS},
    {"step.mov_ss", "single step of MOV SS", ONLY_ALL},
    {"step.pushf", "single step of PUSHF", ONLY_ALL},
    {"breakpoint.ring0", "breakpoints, ring 0", ALWAYS},
    {"breakpoint.ring3", "breakpoints, ring 3", ALWAYS},
    {"cpuid.ring0", "CPUID, ring 0", ALWAYS},
    {"cpuid.ring3", "CPUID, ring 3", ALWAYS},
    {"kvm.linux", "executes what Linux does", ALWAYS},
    {"insn.", "instruction ", ONLY_ALL},
    {"guest", "tests with guests", IF_WRONG},
    {NULL, "Time", ALWAYS},
    {"tsc.khz", "TSC of a guest", ALWAYS},
    {"tsc.offset", "its value can be set", ALWAYS},
    {"tsc.scaling", "its rate can be set", ALWAYS},
    {"tsc.still", "it stands still", ALWAYS},
    {"tsc", "tests of the TSC", IF_WRONG},
    {NULL, "Performance counter", ALWAYS},
    {"perf.paranoid", "perf_event_paranoid", ALWAYS},
    {"perf.sample_rate", "overflows allowed", ALWAYS},
    {"perf.nmi_watchdog", "NMI watchdog", ALWAYS},
    {"pmu.event", "event of this CPU", ALWAYS},
    {"pmu.counter", "counts a guest exactly", ALWAYS},
    {"pmu.", "", IF_WRONG},
    {"pmu", "tests of the counter", IF_WRONG},
    {NULL, "Graphics, disks, networks", ALWAYS},
    {"gpu.renderer", "3D renderer", ALWAYS},
    {"display.viewer", "VNC server, window", ALWAYS},
    {"display.screen", "a screen for the window", ALWAYS},
    {"disk.qemu_nbd", "qemu-nbd", ALWAYS},
    {"boot.grub_fstest", "grub-fstest", ALWAYS},
    {"debug.gdb", "gdb", ALWAYS},
    {"net.user", "network in user space", ALWAYS},
    {"net.tap", "tap devices", ALWAYS},
    {"share", "directories of the host", ALWAYS},
    {"sandbox", "sandbox of commands", ALWAYS},
    {"programs", "tests of programs", IF_WRONG},
};

enum { LABEL = 26, WIDTH = 100 };

/* Text in lines of WIDTH that begin under its first column. */
static void wrapped(const char *text, int column, int at)
{
    while (*text) {
        size_t room = (size_t)(WIDTH - at), n = strlen(text);
        if (n > room) {
            for (n = room; n && text[n] != ' '; n--)
                ;
            n = n ? n : room;
        }
        printf("%.*s\n", (int)n, text);
        text += n + (text[n] == ' ');
        at = column;
        if (*text)
            printf("%*s", column, "");
    }
}

static const char marks[] = {
    [FACT_NO] = '-', [FACT_YES] = '+', [FACT_INFO] = ' ', [FACT_UNTESTED] = '?'};
static const char *const states[] = {
    [FACT_NO] = "no", [FACT_YES] = "yes", [FACT_INFO] = "info", [FACT_UNTESTED] = "untested"};

static void print_fact(const struct fact *fact, const char *label, const char *rest)
{
    char name[64], text[sizeof(fact->value) + sizeof(fact->note) + 8];
    snprintf(name, sizeof(name), "%s%s", label, rest);
    snprintf(text, sizeof(text), "%s%s%s", fact->value, *fact->note ? "; " : "", fact->note);
    printf(" %c %-*s ", marks[fact->state], LABEL, name);
    wrapped(text, LABEL + 4, LABEL + 4);
}

static const struct row *row_of(const char *key)
{
    const struct row *found = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t n = rows[i].key ? strlen(rows[i].key) : 0;
        if (n && !strcmp(rows[i].key, key))
            return &rows[i];
        if (n && rows[i].key[n - 1] == '.' && !strncmp(rows[i].key, key, n))
            found = &rows[i];
    }
    return found;
}

static void print_text(const struct facts *f, bool all)
{
    struct verdict v[DOCTOR_VERDICTS];
    struct proof proof[DOCTOR_PROOFS];
    char advice[400], name[32];
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!rows[i].key)
            printf("%s%s\n", i ? "\n" : "", rows[i].label);
        for (u32 n = 0; rows[i].key && n < f->n; n++) {
            const struct fact *fact = &f->fact[n];
            if (row_of(fact->key) != &rows[i])
                continue;
            bool wrong = fact->state == FACT_NO || fact->state == FACT_UNTESTED;
            if (all || rows[i].show == ALWAYS || (wrong && rows[i].show == IF_WRONG))
                print_fact(fact, rows[i].label,
                           rows[i].key[strlen(rows[i].key) - 1] == '.'
                               ? fact->key + (*rows[i].label ? strlen(rows[i].key) : 0)
                               : "");
        }
    }
    puts("\nOnly hardware proves it: with what it takes, make check-hardware does");
    doctor_proofs(f, proof);
    for (unsigned i = 0; i < DOCTOR_PROOFS; i++)
        printf(" %c %-*s %s\n", marks[proof[i].state], LABEL, proof[i].what, proof[i].text);
    puts("\nWhat this host allows each engine to record");
    doctor_verdicts(f, v);
    for (unsigned i = 0; i < DOCTOR_VERDICTS; i++) {
        snprintf(name, sizeof(name), "%s%s%s", v[i].engine, v[i].counter ? ", counter " : "",
                 v[i].counter ? v[i].counter : "");
        printf(" %c %-*s ", v[i].stock ? '+' : '-', LABEL, name);
        wrapped(v[i].text, LABEL + 4, LABEL + 4);
    }
    doctor_advice(f, advice, sizeof(advice));
    fputs("\nTo get more: ", stdout);
    wrapped(advice, 13, 13);
}

static void json_field(const char *name, const char *text)
{
    printf("\"%s\": ", name);
    json_text(stdout, text);
}

static void print_json(const struct facts *f)
{
    struct verdict v[DOCTOR_VERDICTS];
    struct proof proof[DOCTOR_PROOFS];
    char advice[400];
    printf("{\"version\": \"%s\",\n \"facts\": {", REPRISE_VERSION);
    for (u32 i = 0; i < f->n; i++) {
        const struct fact *fact = &f->fact[i];
        printf("%s\n  ", i ? "," : "");
        json_text(stdout, fact->key);
        printf(": {\"state\": \"%s\", ", states[fact->state]);
        json_field("value", fact->value);
        if (fact->has_number)
            printf(", \"number\": %.9g", fact->number);
        fputs(", ", stdout);
        json_field("note", fact->note);
        putchar('}');
    }
    fputs("},\n \"engines\": [", stdout);
    doctor_verdicts(f, v);
    for (unsigned i = 0; i < DOCTOR_VERDICTS; i++) {
        printf("%s\n  {\"engine\": \"%s\", \"counter\": ", i ? "," : "", v[i].engine);
        if (v[i].counter)
            json_text(stdout, v[i].counter);
        else
            fputs("null", stdout);
        printf(", \"linux\": %s, \"tiny\": %s, ", v[i].stock ? "true" : "false",
               v[i].tiny ? "true" : "false");
        json_field("text", v[i].text);
        putchar('}');
    }
    fputs("],\n \"hardware\": [", stdout);
    doctor_proofs(f, proof);
    for (unsigned i = 0; i < DOCTOR_PROOFS; i++) {
        printf("%s\n  {\"state\": \"%s\", ", i ? "," : "", states[proof[i].state]);
        json_field("what", proof[i].what);
        fputs(", ", stdout);
        json_field("text", proof[i].text);
        putchar('}');
    }
    doctor_advice(f, advice, sizeof(advice));
    fputs("],\n ", stdout);
    json_field("advice", advice);
    puts("}");
}

int cmd_doctor(int argc, char **argv)
{
    static const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
    struct doctor_args args = {0};
    option_parse(&argp, argc, argv, &args);
    struct facts *f = calloc(1, sizeof(*f));
    if (!f) {
        struct err err;
        err_set(&err, -1, "no memory for the report");
        return cmd_fail(&err);
    }
    probe_isolated(f, "host", 5, probe_host);
    probe_isolated(f, "dbt.engine", 20, doctor_dbt);
    probe_isolated(f, "kvm", 10, probe_kvm);
    if (fact_yes(f, "kvm.vm")) {
        probe_isolated(f, "guest", 30, probe_guest);
        probe_isolated(f, "tsc", 10, probe_tsc);
        probe_isolated(f, "pmu", 60, probe_pmu);
    } else {
        probe_isolated(f, "perf", 5, probe_perf);
    }
    probe_isolated(f, "programs", 60, doctor_programs);
    if (args.json)
        print_json(f);
    else
        print_text(f, args.all);
    free(f);
    return EX_FINE;
}
