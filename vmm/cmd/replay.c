/* `reprise replay`: runs a recording again and compares. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "cmd/agent_frames.h"
#include "cmd/cmd.h"
#include "cmd/console.h"
#include "cmd/displays.h"
#include "cmd/engine_option.h"
#include "cmd/profile.h"
#include "cmd/replay_check.h"
#include "cmd/replay_screen.h"
#include "cmd/visit.h"
#include "replay/disk_sources.h"
#include "host/clock.h"
#include "replay/player.h"
#include "replay/recorder.h"

enum {
    O_FORCE = 256,
    O_ENGINE,
    O_JSON,
    O_QUIET,
    O_VERIFY,
    O_TO,
    O_REGS,
    O_CONSOLE,
    O_MEM,
    O_GDB,
    O_BUDGET,
    O_SCREENSHOT,
    O_DISPLAY,
    O_REALTIME,
    O_INSTRUCTIONS,
    O_CODE_CACHE,
};

/* clang-format off */
static const struct argp_option options[] = {
    {"verify", O_VERIFY, NULL, 0, "Compare every digest in the log, not only time, output and the end", 0},
    {"engine", O_ENGINE, "dbt|kvm", 0, "What runs the machine (default dbt), whatever it was recorded with. " PARANOID_HELP, 0},
    {"code-cache", O_CODE_CACHE, "SIZE", 0, CODE_CACHE_HELP, 0},
    {"output", 'o', "DIR2", 0, "Record the replay into DIR2, for `reprise diff`", 0},
    {"force", O_FORCE, NULL, 0, "Replace a recording that is in DIR2, or the screenshot's FILE", 0},
    {"instructions", O_INSTRUCTIONS, NULL, 0, "With -o, of a recording whose positions are branches (record --counter=pmu): positions of DIR2 are instructions, so that gdb can stop at each", 0},
    {"quiet", O_QUIET, NULL, 0, "Do not print the guest's console", 0},
    {"json", O_JSON, NULL, 0, "Print the result as JSON instead of the guest's console", 0},
    {"display", O_DISPLAY, "none|vnc=ADDRESS[,OPTION]...|sdl|png-every=SECONDS[,DIR]", 0, "Where the screen is shown, to look at only (up to 4). " DISPLAY_HELP, 0},
    {"realtime", O_REALTIME, NULL, 0, "While the guest is idle, wait for as long as it does", 0},
    {NULL, 0, NULL, 0, "Going to a point:", 1},
    {"to", O_TO, "POINT", 0, "Stop there and say where that is", 1},
    {"regs", O_REGS, NULL, 0, "Print the registers there", 1},
    {"mem", O_MEM, "ADDR[,LEN]", 0, "Print memory there (64 bytes); ADDR is a virtual address, a register or a symbol of the guest's kernel, the latter two with +N or -N; phys:ADDR a physical address", 1},
    {"console", O_CONSOLE, NULL, 0, "Print what the console showed up to there", 1},
    {"gdb", O_GDB, "ENDPOINT", OPTION_ARG_OPTIONAL, "Wait there for gdb: unix:PATH (default: a socket of this user, which is printed), [HOST:]PORT (this user's processes on this host; with ,open whoever connects), or - for stdin and stdout", 1},
    {"screenshot", O_SCREENSHOT, "FILE", 0, "Write what the screen shows there to a PNG file", 1},
    {"checkpoint-memory", O_BUDGET, "SIZE", 0, "Memory for checkpoints (default: a quarter of what is free)", 1},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording, printing the guest's console. On a terminal, what the "
    "terminal would answer to the guest is left out. No input of this "
    "host reaches the machine. " POINT_HELP EXIT_HELP;

struct replay_args {
    const char *dir, *output;
    bool verify, json, quiet, force, realtime, instructions;
    struct display_options display;
    struct profile_options profile;
    struct visit visit;
    enum engine_kind engine;
    struct engine_paranoid paranoid;
    bool visits;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct replay_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->disks;
        state->child_inputs[1] = &a->profile;
        break;
    case O_ENGINE:
        a->engine = (enum engine_kind)option_engine(state, arg, false, &a->paranoid);
        break;
    case O_CODE_CACHE: a->visit.with.code_cache = option_code_cache(state, arg); break;
    case O_VERIFY: a->verify = true; break;
    case O_JSON: a->json = true; break;
    case O_QUIET: a->quiet = true; break;
    case O_FORCE: a->force = true; break;
    case O_TO:
        option_point(state, arg, "--to", &a->visit.to);
        a->visit.have_to = a->visits = true;
        break;
    case O_REGS: a->visit.registers = a->visits = true; break;
    case O_CONSOLE: a->visit.console = a->visits = true; break;
    case O_MEM: {
        if (a->visit.nmemory == VISIT_MEMORIES)
            argp_error(state, "--mem: at most %d of them", VISIT_MEMORIES);
        struct err bad = {0};
        if (check_memory(arg, &bad))
            argp_error(state, "--mem: %s", bad.text);
        a->visit.memory[a->visit.nmemory++] = arg;
        a->visits = true;
        break;
    }
    case O_SCREENSHOT:
        a->visit.screenshot = arg;
        a->visits = true;
        break;
    case O_DISPLAY: option_display(state, arg, &a->display); break;
    case O_REALTIME: a->realtime = true; break;
    case O_INSTRUCTIONS: a->instructions = true; break;
    case O_GDB:
        a->visit.endpoint = arg ? arg : option_endpoint(state);
        a->visit.gdb = a->visits = true;
        break;
    case O_BUDGET:
        a->visit.with.memory = option_size(state, arg, "--checkpoint-memory");
        if (!a->visit.with.memory)
            argp_error(state, "--checkpoint-memory: cannot be 0");
        break;
    case 'o': a->output = arg; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (a->force && !a->output && !a->visit.screenshot)
            argp_error(state, "--force is for -o DIR2 and --screenshot FILE");
        if (a->visit.screenshot && (!*a->visit.screenshot || a->visit.gdb))
            argp_error(state, "--screenshot needs a FILE, and does not go with --gdb");
        if (a->instructions && (!a->output || a->engine != ENGINE_DBT))
            argp_error(state, "--instructions is for -o DIR2, and for the engine dbt");
        a->visit.force = a->force;
        if (a->output && !*a->output)
            argp_error(state, "-o: the directory has no name");
        if (a->visits && a->paranoid.on)
            argp_error(state, "--engine dbt,paranoid is for a replay to the end");
        if (a->visits && (a->verify || a->output || a->quiet || a->display.n || a->realtime ||
                          profile_wanted(&a->profile)))
            argp_error(state, "--verify, -o, --quiet, --display, --realtime, --stats, --perf-map "
                              "and --jitdump are for a replay to the end");
        if (a->visits && !a->visit.have_to && !a->visit.gdb) {
            a->visit.to.kind = POINT_END;
            a->visit.have_to = true;
        }
        if (a->visit.gdb && (a->visit.registers || a->visit.console || a->visit.nmemory || a->json))
            argp_error(state, "--gdb goes with --to, --checkpoint-memory and --code-cache only");
        if (a->visit.with.memory && !a->visits)
            argp_error(state, "--checkpoint-memory is for --to and --gdb");
        if (a->disks.trust && !a->visits)
            argp_error(state, "--trust-checkpoints is for --to and --gdb: a replay to the end "
                              "starts at power-on");
        a->visit.dir = a->dir;
        a->visit.with.named = &a->disks.where;
        a->visit.with.trust = a->disks.trust;
        a->visit.json = a->json;
        a->visit.with.engine = a->engine;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct shown {
    struct console console;
    struct replay_check *check;
    unsigned agent; /* the port of one (guest-agent/agent), which ran a program; 0: none */
    struct agent_frames frames;
};

/* Of a program that `reprise run` ran that is shown, and not its machine's console. */
static void on_program(void *opaque, int fd, const void *data, size_t len)
{
    (void)opaque;
    file_write_on(fd, data, len);
}

static void on_frame(void *opaque, enum agent_type type, const void *data, size_t len)
{
    (void)opaque;
    (void)type;
    (void)data;
    (void)len;
}

static void on_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct shown *s = opaque;
    if (kind == EMIT_PORT && unit == s->agent)
        agent_frames_take(&s->frames, data, len);
}

static unsigned agent_port(const struct machine_description *d)
{
    for (unsigned i = 1; i < DESCRIPTION_PORTS; i++)
        if (!strcmp(d->port[i].name, AGENT_PORT))
            return i;
    return 0;
}

static void on_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    struct shown *s = opaque;
    if (s->check->check)
        checkpoint_check_output(s->check->check, channel, data, len);
    if (channel == OUT_CONSOLE)
        console_output(&s->console, data, len);
}

/* A copy of a kept file of one recording in another. */
static int copy_kept(struct opened *o, struct recording *to, const u8 *hash, u64 size,
                     const char *what, struct err *err)
{
    void *data;
    struct hash128 h = description_hash128(hash);
    int code = recording_load(&o->rec, &h, size, what, &data, err);
    if (code)
        return code;
    code = recording_keep(to, data, size, &h, err);
    free(data);
    return code;
}

/* --instructions: the machine runs as it did, and counts otherwise. */
static int count_instructions(struct opened *o, struct err *err)
{
    struct machine_description *d = &o->desc;
    if (strcmp(d->position_unit, "branch"))
        return err_set(err, -EINVAL, "--instructions: positions of %s are instructions", o->quoted);
    snprintf(d->position_unit, sizeof(d->position_unit), "insn");
    if (d->disk[0].size) /* another machine.dtb: what was noted of this one is not found by it */
        disk_sources_identify(d);
    return 0;
}

static int write_machine(const struct opened *o, const struct replay_args *a, struct recording *to,
                         struct err *err)
{
    size_t size;
    if (!a->instructions)
        return recording_write_machine(to, o->rec.machine, o->rec.machine_size, err);
    u8 *dtb = malloc(DESCRIPTION_MAX_SIZE);
    struct err note;
    int code = dtb ? description_write(&o->desc, dtb, &size, err)
                   : err_set(err, -ENOMEM, "no memory for the machine description");
    if (!code)
        code = recording_write_machine(to, dtb, size, err);
    free(dtb);
    if (!code && disk_sources_note(to, &o->desc, o->disks, &note))
        fprintf(stderr, "reprise: %s\n", note.text);
    return code;
}

/* The recording that a replay becomes: made before the machine is, as nothing can be made later. */
static int begin_again(struct opened *o, const struct replay_args *a, struct recording *to,
                       struct log_writer **log, struct err *err)
{
    static const struct room room = {.keep = ROOM_LEAST};
    struct stat from, there;
    if (!fstat(o->rec.dir, &from) && !stat(a->output, &there) && from.st_dev == there.st_dev &&
        from.st_ino == there.st_ino)
        return err_set(err, -EINVAL, "-o %s is the recording that is replayed; choose another",
                       a->output);
    int code = recording_create(to, a->output, a->force, err);
    if (code)
        return code;
    sandbox_write(a->output); /* to take it back */
    outside_remove(a->output);
    code = copy_kept(o, to, o->desc.kernel_hash, o->desc.kernel_size, "kernel", err);
    if (!code && o->desc.initrd_size)
        code = copy_kept(o, to, o->desc.initrd_hash, o->desc.initrd_size, "initrd", err);
    if (!code)
        code = write_machine(o, a, to, err);
    if (!code)
        code = description_shares(&o->desc) ? recording_create_contents(to, &room, err) : 0;
    if (!code)
        code = recording_create_log(to, log, err);
    if (code)
        recording_discard(to);
    return code;
}

/* The player stands where the live input was. */
static int record_again(struct recording *to, struct log_writer *log, struct player *player,
                        struct machine *m, struct recorder **out, struct err *err)
{
    struct recorder_config config = {.log = log,
                                     .contents = to->contents,
                                     .live = player_source(player),
                                     .machine = to->machine_hash};
    return recorder_create(out, &config, m, err);
}

static const char *result_name(enum player_result result)
{
    static const char *const names[] = {[PLAYER_SAME] = "same",
                                        [PLAYER_DIVERGED] = "diverged",
                                        [PLAYER_DAMAGE] = "damage",
                                        [PLAYER_ERROR] = "error"};
    return names[result];
}

struct outcome {
    enum player_result result;
    struct run_end end;
    struct err err;
    bool panicked;
    u64 host;
};

static void print_json(const struct replay_args *a, struct machine *m, struct player *p,
                       const struct outcome *r, const struct run_stats *stats, u64 log_bytes,
                       const struct replay_check *check)
{
    printf("{\"result\":\"%s\",\"verify\":%s,\"end\":\"%s\",\"arg\":%u,\"position\":%" PRIu64
           ",\"time\":%" PRIu64 ",\"host_ns\":%" PRIu64 ",\"panicked\":%s,\"message\":",
           result_name(r->result), a->verify ? "true" : "false", run_reason_name(r->end.reason),
           r->end.arg, machine_position(m), machine_now(m), r->host,
           r->panicked ? "true" : "false");
    json_text(stdout, r->err.text);
    fputs(",\"report\":", stdout);
    json_text(stdout, player_report(p));
    if (stats->on) {
        fputs(",\"stats\":", stdout);
        stats_json(stats, m, log_bytes, stdout);
    }
    replay_check_json(check);
    fputs("}\n", stdout);
}

static void print_text(struct machine *m, struct player *p, const struct outcome *r)
{
    char how[256], time[32], count[32], wall[32];
    if (r->result != PLAYER_SAME) {
        fprintf(stderr, "\nreprise: %s\n%s", r->err.text, player_report(p));
        return;
    }
    run_end_sentence(&r->end, r->panicked, how, sizeof(how));
    fprintf(stderr,
            "\nreprise: replayed without a difference: %s after %s of virtual time and %s "
            "%s; it took %s.\n",
            how, text_seconds(machine_now(m), time), text_count(machine_position(m), count),
            machine_positions_name(m), text_seconds(r->host, wall));
}

static int exit_code(enum player_result result)
{
    return result == PLAYER_SAME       ? EX_FINE
           : result == PLAYER_DIVERGED ? EX_DIVERGED
           : result == PLAYER_DAMAGE   ? EX_DAMAGE
                                       : EX_ERROR;
}

static int run(const struct replay_args *a, struct machine *m, struct player *player,
               struct recorder *recorder, struct displays *displays, struct replay_check *check,
               const char *dir, unsigned agent, const struct log_summary *log,
               struct profile *profile)
{
    struct shown shown = {
        .check = check, .agent = agent, .frames = {.output = on_program, .frame = on_frame}};
    bool shows = !a->quiet && !a->json;
    struct spectator spectator;
    struct outcome r = {0};
    struct err run_err = {0}, finish = {0};
    struct run_limits limits = {.stop_at = NEVER, .slice = test_slice()};
    u64 began = host_ns();
    spectator_init(&spectator,
                   recorder ? recorder_source(recorder) : replay_check_source(check, player),
                   displays, a->realtime);
    displays_notice(displays);
    console_init(&shown.console, &spectator.src, shows && !agent ? STDOUT_FILENO : -1, false);
    if (shows && agent)
        machine_set_emit(m, on_emit, &shown);
    shown.console.total = log->last_position;
    machine_set_output(m, on_output, &shown);
    stats_begin(&profile->stats);
    machine_run(m, &shown.console.src, &limits, &r.end, &run_err);
    enum phase before = phase_enter(PHASE_LOG);
    r.result = player_finish(player, m, &r.end, &run_err, &r.err);
    int unfinished = recorder ? recorder_finish(recorder, m, &r.end, &finish) : 0;
    phase_leave(before);
    stats_end(&profile->stats);
    r.host = host_ns() - began;
    r.panicked = shown.console.panicked;
    bool all_shown = console_done(&shown.console);
    int code = exit_code(r.result), checked = replay_check_finish(check, r.result);
    if (a->json)
        print_json(a, m, player, &r, &profile->stats, log->file_bytes, check);
    else
        print_text(m, player, &r);
    paranoid_summary(&a->paranoid, m, run_err.code, a->dir);
    if (!a->json) {
        stats_print(&profile->stats, m, log->file_bytes, stderr);
        replay_check_print(check, dir);
    }
    if (code == EX_FINE || (code == EX_DAMAGE && checked))
        code = checked ? checked : code;
    if (perf_finish(&profile->perf, &run_err)) {
        cmd_fail(&run_err);
        code = code ? code : EX_ERROR;
    }
    if (displays_finish(displays) != EX_FINE)
        all_shown = false;
    if (!all_shown && code == EX_FINE)
        code = EX_ERROR;
    if (unfinished) {
        cmd_fail(&finish);
        return code ? code : EX_ERROR;
    }
    return code;
}

/* They start programs and make directories: before the machine is there. */
static int open_displays(struct opened *o, const struct replay_args *a,
                         struct replay_screen *screen, struct displays *displays, struct err *err)
{
    if (a->display.n && !o->desc.gpu.width)
        return err_set(err, -ENOTSUP, "this was recorded without a display (record --gpu)");
    if (!screen)
        return err_set(err, -ENOMEM, "no memory for the screen");
    if (a->display.n && o->desc.gpu.capset_size)
        sandbox_outside()->renderer = true;
    struct display_config c = {.source = screen_of_replay(screen),
                               .recording = a->dir,
                               .width = o->desc.gpu.width,
                               .height = o->desc.gpu.height,
                               .keep_free = ROOM_LEAST};
    return displays_open(displays, &a->display, &c, err);
}

static char *help(int key, const char *text, void *input)
{
    (void)input;
    return key == O_DISPLAY ? parts_help(&vnc_parts, 0, text) : (char *)(uintptr_t)text;
}

static int replay_command(int argc, char **argv, bool checkpoints)
{
    const struct argp_child children[] = {
        travel_option_children[0], {&profile_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "[DIR]",
                              .doc = doc,
                              .children = children,
                              .help_filter = help};
    struct replay_args a = {0};
    option_parse(&argp, argc, argv, &a);
    if (a.visits)
        return visit(&a.visit);
    struct err err = {0};
    struct opened o;
    struct machine *m = NULL;
    struct player *player = NULL;
    struct recorder *recorder = NULL;
    struct log_writer *log = NULL;
    struct recording to = RECORDING_CLOSED;
    struct displays displays = {.n = 0};
    struct log_summary summary = {.records = 0};
    struct profile profile = PROFILE_OFF;
    struct replay_check check = REPLAY_CHECK_CLOSED;
    int code = find_recording(&o, a.dir, &err);
    if (code)
        return cmd_fail(&err);
    struct replay_screen *screen = replay_screen_create(a.dir);
    o.engine = a.engine;
    o.code_cache = a.visit.with.code_cache;
    o.paranoid = a.paranoid;
    o.named = &a.disks.where;
    code = profile_open(&profile, &a.profile, a.engine, &err);
    if (!code && a.instructions)
        code = count_instructions(&o, &err);
    if (!code)
        code = open_displays(&o, &a, screen, &displays, &err);
    if (!code && a.output)
        code = begin_again(&o, &a, &to, &log, &err);
    check.wanted = checkpoints;
    replay_check_prepare(&check, &o);
    if (!code)
        code = build_machine(&o, &m, &err);
    if (!code)
        perf_attach(&profile.perf, m);
    for (unsigned i = 0; !code && i < o.nseen; i++)
        if (o.seen[i].changed)
            fprintf(stderr, "reprise: %s\n", o.seen[i].changed);
    if (!code) {
        log_summarise(o.log, &summary);
        replay_screen_on(screen, m);
        const char *perturb = getenv("REPRISE_TEST_PERTURB");
        struct player_config config = {.log = o.log,
                                       .dir = o.quoted,
                                       .disks = o.seen,
                                       .ndisks = o.nseen,
                                       .contents = o.rec.contents,
                                       .verify = a.verify,
                                       .by_branch = a.instructions,
                                       .perturb = perturb ? strtoull(perturb, NULL, 10) : 0};
        o.log = NULL;
        code = player_create(&player, &config, m, &err);
    }
    if (!code)
        code = replay_check_begin(&check, &o, player, m, &err);
    if (!code && a.output) {
        code = record_again(&to, log, player, m, &recorder, &err);
        log = NULL;
    }
    if (code && a.output) {
        struct err ignored;
        if (log)
            log_writer_close(log, &ignored);
        recording_discard(&to);
    }
    code = code ? cmd_fail(&err)
                : run(&a, m, player, recorder, &displays, &check, o.quoted, agent_port(&o.desc),
                      &summary, &profile);
    profile_close(&profile);
    displays_close(&displays);
    replay_screen_destroy(screen);
    recorder_destroy(recorder);
    replay_check_close(&check);
    player_destroy(player);
    if (m)
        machine_destroy(m);
    recording_close(&to);
    close_recording(&o);
    return code;
}

int cmd_replay(int argc, char **argv)
{
    return replay_command(argc, argv, false);
}

int cmd_replay_checking(int argc, char **argv)
{
    return replay_command(argc, argv, true);
}
