/* See stats.h. */
#include "cmd/stats.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "board/ram.h"
#include "cmd/cmd.h"
#include "host/clock.h"

struct row {
    const char *name, *text;
    size_t offset;
    bool kvm;
};
static const struct row rows[] = {
#define STAT(member, text)     {#member, text, offsetof(struct machine_stats, member), false},
#define STAT_KVM(member, text) {#member, text, offsetof(struct machine_stats, member), true},
#include "cpu/stats.def"
#undef STAT
#undef STAT_KVM
};

static const struct {
    const char *name, *text;
} phase_rows[] = {
#define P(id, name, text) {#name, text},
    PHASES(P)
#undef P
};

static u64 value_of(const struct machine_stats *st, const struct row *r)
{
    u64 v;
    memcpy(&v, (const u8 *)st + r->offset, sizeof(v));
    return v;
}

int stats_prepare(struct run_stats *s, struct err *err)
{
    s->on = true;
    s->status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    sandbox_plan_more(SANDBOX_TIMER);
    return s->status < 0 ? err_errno(err, "--stats: cannot open /proc/self/status") : 0;
}

/* getrusage() would say what the process had that started this program, too. */
static u64 peak_resident(int status)
{
    char text[4096];
    ssize_t n = pread(status, text, sizeof(text) - 1, 0);
    text[MAX(n, 0)] = 0;
    const char *at = strstr(text, "\nVmHWM:");
    return at ? strtoull(at + 7, NULL, 10) * 1024 : 0;
}

void stats_begin(struct run_stats *s)
{
    if (!s->on)
        return;
    s->wall = host_ns();
    s->cpu = host_clock_read(CLOCK_PROCESS_CPUTIME_ID);
    sampler_start(&s->sampler, &s->unsampled);
}

void stats_end(struct run_stats *s)
{
    if (!s->on)
        return;
    sampler_stop(&s->sampler);
    s->wall = host_ns() - s->wall;
    s->cpu = host_clock_read(CLOCK_PROCESS_CPUTIME_ID) - s->cpu;
    s->peak = peak_resident(s->status);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static u64 all_samples(void)
{
    u64 all = 0;
    for (unsigned p = 0; p < PHASE_COUNT; p++)
        all += phases.samples[p];
    return all;
}

/* "1,348,000" */
static char *text_grouped(u64 n, char out[32])
{
    char digits[32];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
    char *p = out;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *p++ = ',';
        *p++ = digits[i];
    }
    *p = 0;
    return out;
}

static void line(FILE *out, const char *what, const char *value, const char *more)
{
    fprintf(out, "  %-58s %15s%s%s\n", what, value, *more ? "   " : "", more);
}

static void print_run(const struct run_stats *s, struct machine *m, u64 log_bytes, FILE *out)
{
    char value[32], more[64], what[64];
    double positions = (double)machine_position(m), cpu = (double)s->cpu / 1e9;
    snprintf(value, sizeof(value), "%.3f s", (double)s->wall / 1e9);
    line(out, "wall clock", value, "");
    snprintf(value, sizeof(value), "%.3f s", cpu);
    snprintf(more, sizeof(more), "%.1f%% of wall clock", 100 * per(cpu, (double)s->wall / 1e9));
    line(out, "CPU time", value, more);
    snprintf(more, sizeof(more), "%.5g million a CPU second%s", per(positions / 1e6, cpu),
             machine_by_branch(m) ? "" : " (MIPS)");
    line(out, machine_positions_name(m), text_grouped(machine_position(m), value), more);
    snprintf(what, sizeof(what), "%.4f a thousand %s", per((double)log_bytes, positions / 1e3),
             machine_positions_name(m));
    line(out, "bytes of the log", text_grouped(log_bytes, value), what);
    line(out, "peak resident memory", text_bytes(s->peak, value), "");
    u64 ram = ram_touched(machine_ram(m));
    if (ram)
        line(out, "the guest's memory that was touched", text_bytes(ram, value), "");
}

static void print_samples(const struct run_stats *s, FILE *out)
{
    char value[32];
    u64 all = all_samples();
    if (s->unsampled.code) {
        fprintf(out, "  where the CPU time went is not known: %s\n", s->unsampled.text);
        return;
    }
    if (all) /* a run of a millisecond has none */
        fprintf(out, "  where the CPU time went (%" PRIu64 " samples, %u a second):\n", all,
                SAMPLER_HZ);
    for (unsigned p = 0; p < PHASE_COUNT; p++) {
        char what[80];
        snprintf(what, sizeof(what), "  %s", phase_rows[p].text);
        snprintf(value, sizeof(value), "%.1f%%", 100 * per((double)phases.samples[p], (double)all));
        if (phases.samples[p])
            line(out, what, value, "");
    }
}

void stats_print(const struct run_stats *s, struct machine *m, u64 log_bytes, FILE *out)
{
    struct machine_stats st;
    if (!s->on)
        return;
    machine_stats(m, &st);
    fputs("reprise: statistics of the run\n", out);
    print_run(s, m, log_bytes, out);
    print_samples(s, out);
    fputs("  what the engine counted:\n", out);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char what[80], value[32], more[64] = "";
        if (rows[i].kvm && !st.kvm_exits)
            continue;
        snprintf(what, sizeof(what), "  %s%s", rows[i].text[0] == ' ' ? " " : "", rows[i].text);
        if (rows[i].offset == offsetof(struct machine_stats, careful) && !machine_by_branch(m))
            snprintf(more, sizeof(more), "%.3f%% of all",
                     100 * per((double)st.careful, (double)machine_position(m)));
        line(out, what, text_grouped(value_of(&st, &rows[i]), value), more);
    }
}

void stats_json(const struct run_stats *s, struct machine *m, u64 log_bytes, FILE *out)
{
    struct machine_stats st;
    double positions = (double)machine_position(m);
    machine_stats(m, &st);
    fprintf(out,
            "{\"wall_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"positions\":%" PRIu64
            ",\"positions_per_cpu_second\":%.0f,\"log_bytes\":%" PRIu64
            ",\"log_bytes_per_thousand\":%.6f,\"peak_resident_bytes\":%" PRIu64
            ",\"touched_bytes\":%" PRIu64 ",\"samples\":",
            s->wall, s->cpu, machine_position(m), per(positions * 1e9, (double)s->cpu), log_bytes,
            per((double)log_bytes * 1000, positions), s->peak, ram_touched(machine_ram(m)));
    if (s->unsampled.code)
        fputs("null", out);
    for (unsigned p = 0; p < PHASE_COUNT && !s->unsampled.code; p++)
        fprintf(out, "%s\"%s\":%" PRIu64, p ? "," : "{", phase_rows[p].name, phases.samples[p]);
    fprintf(out, "%s,\"counters\":{", s->unsampled.code ? "" : "}");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        fprintf(out, "%s\"%s\":%" PRIu64, i ? "," : "", rows[i].name, value_of(&st, &rows[i]));
    fputs("}}", out);
}

void stats_close(struct run_stats *s)
{
    sampler_stop(&s->sampler);
    if (s->status >= 0)
        close(s->status);
    *s = RUN_STATS_OFF;
}
