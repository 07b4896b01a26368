/* `reprise record`: runs a machine with live input and records it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/agent/protocol.h"
#include "cmd/agent_minder.h"
#include "cmd/domain.h"
#include "cmd/engine_option.h"
#include "cmd/pack.h"
#include "cmd/session.h"
#include "host/clock.h"
#include "live/share_keep.h"
#include "virtio-gpu-log/log.h"

static u64 log_size(void *opaque)
{
    return recorder_log_bytes(opaque);
}

static void summary(struct session *s, const struct record_args *a, const struct run_end *end,
                    u64 host)
{
    char how[256], time[32], count[32], size[32], wall[32];
    char *name = text_quoted(a->packed ? a->packed : a->output);
    run_end_sentence(end, s->console.panicked, how, sizeof(how));
    fprintf(stderr, "\nreprise: %s after %s of virtual time and %s %s.", how,
            text_seconds(machine_now(s->m), time), text_count(machine_position(s->m), count),
            machine_positions_name(s->m));
    if (s->console.panicked)
        fprintf(stderr, " The panic: \"%s\".", s->console.panic_line);
    fprintf(stderr, " The log has %s; recording took %s. To replay it: reprise replay %s\n",
            text_bytes(recorder_log_bytes(s->recorder), size), text_seconds(host, wall),
            name ? name : a->output);
    free(name);
    if (s->lacking.text[0])
        fprintf(stderr, "reprise: %s\n", s->lacking.text);
    struct machine_stats st;
    machine_stats(s->m, &st);
    if (a->verbose && st.kvm_entries)
        fprintf(stderr,
                "reprise: KVM ran the guest freely %" PRIu64 " times, with %" PRIu64
                " entries in all; %" PRIu64
                " times its emulator did not know an instruction, which was executed here\n",
                st.kvm_entries, st.kvm_exits, st.kvm_refused);
    else if (a->verbose && st.kvm_steps)
        fprintf(stderr,
                "reprise: KVM ran %" PRIu64 " instructions and REP iterations in %" PRIu64
                " entries; the rest was executed here, %" PRIu64
                " times because KVM's emulator does not know the instruction\n",
                st.kvm_steps, st.kvm_exits, st.kvm_refused);
}

/* To the end, with what gdb wants on the way. */
static int run_machine(struct session *s, const struct record_args *a, struct run_limits *limits,
                       struct run_end *end, struct err *err)
{
    int failed = 0;
    for (unsigned i = 0; i < s->guest->nnets; i++)
        fputs(net_notice(s->guest->nets[i]), stderr);
    displays_notice(&s->displays);
    if (s->attach) {
        attach_begin(s->attach, s->m, s->recorder);
        fprintf(stderr, "reprise: in gdb: target remote %s\n%s", attach_address(s->attach),
                attach_open_to_all(s->attach) ? GDB_OPEN_WARNING : "");
        if (a->gdb_wait)
            machine_stop(s->m);
    }
    while (!failed) {
        failed = machine_run(s->m, &s->console.src, limits, end, err);
        if (failed || !s->attach || (end->reason != RUN_STOP && end->reason != RUN_DEBUG))
            break;
        failed = attach_stopped(s->attach, end, limits, err);
        agent_minder_resumed(&s->minder);
    }
    if (s->attach)
        attach_ended(s->attach, end);
    struct err ignored; /* recorder_finish says it again */
    if (failed && end->reason == RUN_QUIT)
        recorder_quit(s->recorder, s->m, end->arg, &ignored);
    return failed;
}

/* A log that cannot be written says so by itself. */
static void note_end(struct session *s)
{
    struct err ignored;
    char line[sizeof(s->console.panic_line) + 1];
    snprintf(line, sizeof(line), "%.*s", (int)s->console.panic_len, s->console.panic_line);
    if (s->console.panicked)
        recorder_note(s->recorder, s->m, NOTE_PANIC, line, &ignored);
    if (s->lacking.text[0])
        recorder_note(s->recorder, s->m, NOTE_LACKING, s->lacking.text, &ignored);
}

struct keeping {
    struct session *s;
    u32 unit;
};

static bool keep_part(void *opaque, u64 inode, u64 length, u64 offset, const u8 *data, u32 size)
{
    const struct keeping *k = opaque;
    const struct recorder_part part = {k->unit, inode, length, offset, data, size};
    struct err ignored;
    return !recorder_keep(k->s->recorder, k->s->m, &part, &ignored);
}

/* What a debugger will want of the files that the guest had, which it may not have read. */
static void keep_files(struct session *s)
{
    for (u32 i = 0; i < DESCRIPTION_SHARES; i++) {
        struct keeping k = {s, i};
        if (s->guest->shares[i])
            share_keep(s->guest->shares[i], &(struct share_keeper){keep_part, &k});
    }
}

static int run(struct session *s, const struct record_args *a, struct profile *profile)
{
    struct err err = {0}, finish = {0};
    struct run_limits limits = {.stop_at = NEVER, .slice = test_slice()};
    struct run_end end = {0};
    u64 began = host_ns();
    console_init(&s->console, recorder_source(s->recorder), STDOUT_FILENO, live_raw(s->live));
    s->console.stop_fd = live_signal_fd(s->live);
    s->console.log_bytes = log_size;
    s->console.opaque = s->recorder;
    session_connect(s);
    stats_begin(&profile->stats);
    int failed = run_machine(s, a, &limits, &end, &err);
    note_end(s);
    enum phase before = phase_enter(PHASE_LOG);
    if (!failed && !(end.reason == RUN_QUIT && end.arg == QUIT_DISK))
        keep_files(s);
    int unfinished = recorder_finish(s->recorder, s->m, &end, &finish);
    phase_leave(before);
    stats_end(&profile->stats);
    console_done(&s->console);
    struct err gpu = {0};
    int no_gpu_log = gpu_recorder_finish(s->gpu_log, unfinished ? NULL : s->m, NULL, &gpu);
    s->gpu_log = NULL;
    u32 files = 0;
    u64 disk = 0;
    struct err kept = {0}, not_noted = {0};
    int not_kept = s->keeper ? keeper_finish(s->keeper, &files, &disk, &not_noted, &kept) : 0;
    bool no_text = a->stop_at && !live_stop_text_seen(s->live);
    live_destroy(s->live); /* gives the terminal back before anything is said */
    s->live = NULL;
    if (failed)
        cmd_fail(&err);
    paranoid_summary(&a->guest.paranoid, s->m, failed, a->output);
    if (unfinished)
        cmd_fail(&finish);
    else if (end.reason == RUN_QUIT && end.arg == QUIT_DISK)
        fprintf(stderr, "reprise: the disk of the recording is full: it was ended while there was "
                        "room for its end, and is complete up to there\n");
    if (not_kept)
        fprintf(stderr,
                "reprise: checkpoints ended after %u of them: %s; `reprise checkpoint` makes "
                "them later\n",
                files, kept.text);
    if (not_noted.code)
        fprintf(stderr,
                "reprise: not all checkpoints are noted as your own: %s; `reprise verify` checks "
                "them\n",
                not_noted.text);
    if (no_gpu_log)
        fprintf(stderr,
                "reprise: " GPU_LOG_NAME " is not whole: %s; `reprise gpu extract` makes "
                "it from a replay\n",
                gpu.text);
    if (s->guest->gpu && gpu_host_death(s->guest->gpu))
        fprintf(stderr, "reprise: the renderer is gone: %s\n", gpu_host_death(s->guest->gpu));
    for (unsigned i = 0; i < s->guest->ndisks; i++)
        if (s->guest->disks[i].troubles)
            fprintf(stderr, "reprise: disk %u: %llu requests of the guest got an I/O error: %s\n",
                    i, (unsigned long long)s->guest->disks[i].troubles,
                    s->guest->disks[i].trouble.text);
    summary(s, a, &end, host_ns() - began);
    stats_print(&profile->stats, s->m, recorder_log_bytes(s->recorder), stderr);
    int code = run_exit_code(&end, s->console.panicked);
    if (displays_finish(&s->displays) != EX_FINE && code == EX_FINE)
        code = EX_ERROR;
    if (perf_finish(&profile->perf, &err)) {
        cmd_fail(&err);
        code = code == EX_FINE ? EX_ERROR : code;
    }
    if (unfinished)
        return EX_ERROR;
    if (no_text) {
        fprintf(stderr, "reprise: the guest did not print '%s'\n", a->stop_at);
        return code == EX_FINE ? EX_NO_TEXT : code;
    }
    return code;
}

/* With --force the one would be removed before the other begins. */
static int check_place(const struct record_args *a, struct err *err)
{
    struct stat from, to;
    if (a->from && !stat(a->from, &from) && !stat(a->output, &to) && from.st_dev == to.st_dev &&
        from.st_ino == to.st_ino)
        return err_set(err, -EINVAL, "-o %s is the recording that it is to begin in", a->output);
    return 0;
}

/* Why auto does not have the guest run freely, counted by the CPU; NULL: nothing of the machine
 * forbids it. */
static const char *not_free(const struct record_args *a, const struct guest_config *c)
{
    struct err ignored;
    struct cpu_choice cpu;
    if (a->gdb)
        return "gdb stops at each instruction, and the counter pmu counts branches";
    if (c->is.cpus > 1)
        return "the turns of several CPUs stop the counter pmu often, and what that costs was "
               "measured on no CPU (--engine=kvm --counter=pmu)";
    return !a->from && !description_cpu(&c->is, &cpu, &ignored) ? cpu_not_free(&cpu) : NULL;
}

/* --engine and --counter, and with -v what came of them. */
static void choose_engine(const struct record_args *a, struct guest_config *c)
{
    struct err why = {0};
    bool asked = a->engine >= 0 && (a->engine == ENGINE_DBT || a->unit);
    const char *held = not_free(a, c);
    bool exact = !asked && !held && engine_best(&why) == ENGINE_KVM;
    if (!asked && held)
        err_set(&why, -ENOTSUP, "%s", held);
    c->engine = a->engine >= 0 ? (enum engine_kind)a->engine : exact ? ENGINE_KVM : ENGINE_DBT;
    c->unit = c->engine == ENGINE_DBT ? UNIT_INSN
              : a->unit               ? a->unit
              : exact                 ? UNIT_BRANCH
                                      : UNIT_INSN;
    if (c->engine == ENGINE_DBT && getenv("REPRISE_TEST_BRANCH"))
        c->unit = UNIT_BRANCH;
    if (!a->verbose)
        return;
    const char *counter = c->unit == UNIT_BRANCH ? "pmu" : "step";
    if (asked)
        fprintf(stderr, "reprise: the engine is %s%s%s, as asked for\n",
                engine_kind_name(c->engine), a->unit ? " with counter " : "",
                a->unit ? counter : "");
    else if (exact)
        fprintf(stderr, "reprise: the engine is kvm with counter pmu, which is exact here at full "
                        "speed\n");
    else if (c->engine == ENGINE_KVM)
        fprintf(stderr, "reprise: the engine is kvm with counter step, and not pmu: %s\n",
                why.text);
    else
        fprintf(stderr, "reprise: the engine is dbt, and not kvm: %s\n", why.text);
}

/* Options as they were parsed; what the recording notes is the command line. */
struct recording_job {
    struct record_args a;
    int argc;
    char **argv;
    int agent;
};

static int record(struct recording_job *job);

static int record_in(void *opaque, const char *dir)
{
    struct recording_job *job = opaque;
    job->a.packed = job->a.output;
    job->a.output = dir;
    job->a.force = false;
    return record(job);
}

/* Reads them, and those that a domain of libvirt's is. false: that was all, *code is the exit code.
 */
static bool read_options(struct recording_job *job, struct domain_command *domain, int *code)
{
    record_options(job->argc, job->argv, &job->a);
    bool dry = job->a.dry_run;
    if (!job->a.domain)
        return true;
    if (!domain_command(domain, job->argc, job->argv, &job->a, code))
        return false;
    free(job->a.guest.add);
    job->argc = domain->argc;
    job->argv = domain->argv;
    record_options(job->argc, job->argv, &job->a);
    if (dry)
        domain_print(domain);
    return !dry;
}

int record_with_agent(int argc, char **argv, int agent)
{
    struct recording_job job = {.argc = argc, .argv = argv, .agent = agent};
    struct domain_command domain = {0};
    int code;
    if (read_options(&job, &domain, &code))
        code = record(&job);
    domain_command_free(&domain);
    return code;
}

int cmd_record(int argc, char **argv)
{
    struct recording_job job = {.argc = argc, .argv = argv, .agent = -1};
    struct domain_command domain = {0};
    int code;
    if (read_options(&job, &domain, &code))
        code = job.a.output && packed_name(job.a.output)
                   ? packed_record(job.a.output, &job.a.force, record_in, &job, EX_ERROR)
                   : record(&job);
    domain_command_free(&domain);
    return code;
}

static int record(struct recording_job *job)
{
    struct record_args a = job->a;
    int argc = job->argc, agent = job->agent;
    char **argv = job->argv;
    struct err err = {0};
    struct session s = SESSION_CLOSED;
    struct guest g = {0};
    struct profile profile = PROFILE_OFF;
    choose_engine(&a, &a.guest);
    if (a.guest.boot_entry && !strcmp(a.guest.boot_entry, "list"))
        return guest_list_entries(&a.guest, &err) ? cmd_fail(&err) : EX_FINE;
    int code = check_place(&a, &err);
    if (!code && a.agent)
        code = agent_minder_begin(&s.minder, job->a.agent_path, a.from != NULL, &err);
    if (!code)
        code = profile_open(&profile, &a.profile, a.guest.engine, &err);
    if (!code)
        code = a.from ? guest_load_from(&g, &a.guest, a.from, &a.at, &err)
                      : guest_load(&g, &a.guest, &err);
    if (!code && agent >= 0)
        code = guest_connect(&g, AGENT_PORT, agent, &err);
    if (!code)
        code = session_start(&s, &a, &g, &err);
    if (!code)
        perf_attach(&profile.perf, s.m);
    guest_fini(&g);
    if (!code && a.from)
        recorder_note(s.recorder, s.m, NOTE_FROM, g.from_name ? g.from_name : a.from, &err);
    if (!code && !a.no_notes)
        notes_origin(s.recorder, s.m, argc, argv, &err); /* a full disk ends the run, and is said */
    code = code ? cmd_fail(&err) : run(&s, &a, &profile);
    profile_close(&profile);
    session_close(&s);
    free(a.guest.add);
    return code;
}
