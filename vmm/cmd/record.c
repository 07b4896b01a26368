/* `reprise record`: runs a machine with live input and records it. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "board/initrd.h"
#include "board/kernel.h"
#include "cmd/attach.h"
#include "cmd/cmd.h"
#include "cmd/console.h"
#include "cmd/displays.h"
#include "cmd/guest.h"
#include "host/clock.h"
#include "host/live.h"
#include "replay/gpu_recorder.h"
#include "replay/keeper.h"
#include "replay/recorder.h"
#include "version.h"
#include "virtio-gpu-log/log.h"

#define DEFAULT_MEMORY     (512ull << 20)
#define DEFAULT_IDLE_LIMIT 3600

enum {
    O_ADD = 256,
    O_CHECKPOINT,
    O_CONSOLE,
    O_PORT,
    O_INPUT,
    O_DISK,
    O_ENGINE,
    O_COUNTER,
    O_GUEST_TSC,
    O_NET,
    O_GPU,
    O_GPU_LOG,
    O_DISPLAY,
    O_GDB,
    O_GDB_WAIT,
    O_APPEND_,
    O_BOOT_ENTRY,
    O_CPU,
    O_FORCE,
    O_IDLE,
    O_INITRD,
    O_KERNEL,
    O_MAX,
    O_NORT,
    O_SEED,
    O_STOP,
    O_TIMEOUT
};

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "Directory of the recording; created (required)", 0},
    {"kernel", O_KERNEL, "FILE", 0, "bzImage or ELF vmlinux (required); 'auto': kernel, initrd and command line of the boot entry that is on a --disk", 0},
    {"boot-entry", O_BOOT_ENTRY, "ENTRY", 0, "With --kernel=auto: not the default entry, but the one of this title, id, or number (2, 1>0: in a submenu); 'list' prints those there are, and that is all", 0},
    {"initrd", O_INITRD, "FILE", 0, "Initial RAM disk", 0},
    {"append", O_APPEND_, "STR", 0, "Kernel command line; a Linux kernel gets console=ttyS0 (see --console) and panic=-1 in front unless STR has its own", 0},
    {"memory", 'm', "SIZE", 0, "RAM, a multiple of 2M (default 512M)", 0},
    {"cpu", O_CPU, "MODEL", 0, "x86-64-v2 (default) or x86-64-v3", 0},
    {"engine", O_ENGINE, "dbt|kvm|auto", 0, "What runs the machine: dbt, the translator; kvm, /dev/kvm; auto (default): kvm where it is exact at full speed, else dbt (-v says why)", 0},
    {"counter", O_COUNTER, "auto|pmu|step", 0, "How kvm counts: pmu, by the CPU's performance counter, at full speed; step, by single steps, exact and slow, anywhere; auto (default): pmu where it is exact", 0},
    {"guest-tsc", O_GUEST_TSC, NULL, 0, "With --counter=pmu, where KVM cannot scale the guest's TSC: the guest loads the module of guest-agent/tsc; until then it runs as with dbt", 0},
    {"verbose", 'v', NULL, 0, "Say which engine runs the machine, and why", 0},
    {"seed", O_SEED, "N", 0, "The guest's entropy (default: random, and recorded)", 0},
    {"disk", O_DISK, "FILE[,OPTION]...", 0, "A disk with the contents of the image FILE, which is never written; up to 4. FILE may be nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH. Options: format=raw, qcow2, vmdk, vdi, vhdx ... (default auto: by first bytes and name), readonly, serial=TEXT, timeout=SECONDS for a server's answer (default 30)", 0},
    {"net", O_NET, "user[,OPTION=...]|tap,ifname=NAME[,OPTION=...]|none", 0, "A network; up to 4 (default: none). Options: mac=, mtu=; of user also hostfwd=tcp|udp:[ADDRESS]:PORT-[ADDRESS]:PORT (repeatable; from port 0: any free one), restrict=on, ipv6=off, net=, dhcpstart=, dns=, hostname=", 0},
    {"gpu", O_GPU, "virgl|2d|none[,OPTION]...", 0, "A display with a virtio-gpu, virgl: with 3D (default: none). Options: xres=N, yres=N (1280 by 800), hz=N (60: what is drawn is done a period later), driver=llvmpipe (default), softpipe or device:PATH, a render node: what draws it on the host; timeout=SECONDS: a renderer that does nothing for so long while the guest waits is ended (default 20)", 0},
    {"gpu-log", O_GPU_LOG, "on|off", 0, "Keep what the GPU was told in " GPU_LOG_NAME " of DIR, for `reprise gpu` (default on; off: `reprise gpu extract` makes it later)", 0},
    {"display", O_DISPLAY, "none|vnc=ADDRESS[,OPTION]...|sdl|png-every=SECONDS[,DIR]", 0, "Where the screen of --gpu is shown while recording (default: none; up to 4). With vnc and sdl the guest has a keyboard and a tablet, and what is done with them is recorded. " DISPLAY_HELP, 0},
    {"console", O_CONSOLE, "serial|hvc0", 0, "Which console of the guest is on the terminal: the serial port (default), or the virtio console's; a Linux kernel is told", 0},
    {"port", O_PORT, "NAME=unix:PATH|[in:FILE][,out:FILE]", 0, "A virtio port, /dev/virtio-ports/NAME in the guest, connected to a Unix socket where a program can connect, or to files; up to 7", 0},
    {"input", O_INPUT, "FILE", 0, "A keyboard and a tablet; FILE says what happens to them and when (docs/input.md)", 0},
    {"add", O_ADD, "FILE[:PATH]", 0, "Put a file or directory into the guest, appended to the initrd; may be repeated", 0},
    {"timeout", O_TIMEOUT, "SECONDS", 0, "Quit after that much host time", 0},
    {"max-insns", O_MAX, "N", 0, "Quit at exactly position N", 0},
    {"stop-at", O_STOP, "TEXT", 0, "Quit once the guest's console printed TEXT", 0},
    {"idle-limit", O_IDLE, "SECONDS", 0, "Quit when no input is left and the guest has only waited for that much virtual time (default 3600, with a network never; 0: never)", 0},
    {"no-realtime", O_NORT, NULL, 0, "Let time jump when the guest is idle even if somebody is typing", 0},
    {"checkpoint-every", O_CHECKPOINT, "SECONDS", 0, "Write a checkpoint each so many seconds of host time, so that the recording opens anywhere at once", 0},
    {"gdb", O_GDB, "ENDPOINT", OPTION_ARG_OPTIONAL, "Let gdb attach while recording: HOST:PORT (default 127.0.0.1 and any free port) or unix:PATH", 0},
    {"gdb-wait", O_GDB_WAIT, NULL, 0, "With --gdb: the machine starts when gdb says so", 0},
    {"force", O_FORCE, NULL, 0, "Replace a recording that is in DIR", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Runs a machine and records it. The guest's console is on the terminal; Ctrl-A x quits, "
    "Ctrl-A h lists the other keys." EXIT_HELP;

struct record_args {
    const char *output, *kernel, *initrd, *append, *stop_at;
    const char *boot_entry;
    const char *cpu;
    int engine; /* enum engine_kind; -1: auto */
    bool guest_tsc;
    enum position_unit unit; /* of engine kvm: UNIT_BRANCH is pmu, UNIT_INSN step; 0: auto */
    bool verbose;
    u64 memory, seed;
    pos_t max_position;
    double timeout, idle_limit; /* negative: not given */
    bool seeded, realtime, force, gdb_wait;
    double checkpoint_every; /* 0: none */
    const char *gdb;
    const char **add;
    size_t nadd;
    const char *disk[DESCRIPTION_DISKS];
    unsigned ndisks;
    const char *net[DESCRIPTION_NETS];
    unsigned nnets;
    u32 gpu_width, gpu_height, gpu_hz, gpu_timeout;
    bool virgl, gpu_log;
    char gpu_driver[256];
    struct display_options display;
    bool hvc0;
    const char *port[DESCRIPTION_PORTS];
    unsigned nports; /* with port 0 */
    const char *input;
};

static void parse_gpu_option(struct argp_state *state, const char *one, struct record_args *a)
{
    const struct {
        const char *name;
        u32 *value, least, most;
        const char *who, *what;
    } numbers[] = {
        {"xres=", &a->gpu_width, DESCRIPTION_GPU_MIN, DESCRIPTION_GPU_MAX, "a display",
         "pixels each way"},
        {"yres=", &a->gpu_height, DESCRIPTION_GPU_MIN, DESCRIPTION_GPU_MAX, "a display",
         "pixels each way"},
        {"hz=", &a->gpu_hz, 1, DESCRIPTION_HZ_MAX, "a display", "pictures a second"},
        {"timeout=", &a->gpu_timeout, 1, 3600, "a renderer", "seconds"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        size_t n = strlen(numbers[i].name);
        if (strncmp(one, numbers[i].name, n))
            continue;
        u64 value = option_number(state, one + n, "--gpu");
        if (value < numbers[i].least || value > numbers[i].most)
            argp_error(state, "--gpu: %s: %s has %u to %u %s", one, numbers[i].who,
                       numbers[i].least, numbers[i].most, numbers[i].what);
        *numbers[i].value = (u32)value;
        return;
    }
    if (strncmp(one, "driver=", 7))
        argp_error(state,
                   "--gpu: '%s' is none of xres=N, yres=N, hz=N, driver=NAME, timeout=SECONDS",
                   one);
    if (!a->virgl)
        argp_error(state, "--gpu: driver= goes with virgl");
    snprintf(a->gpu_driver, sizeof(a->gpu_driver), "%s", one + 7);
}

static void parse_gpu(struct argp_state *state, const char *arg, struct record_args *a)
{
    size_t n = strcspn(arg, ",");
    a->gpu_width = a->gpu_height = a->gpu_hz = a->gpu_timeout = 0;
    a->gpu_driver[0] = 0;
    a->virgl = n == 5 && !strncmp(arg, "virgl", n);
    if (n == 4 && !strncmp(arg, "none", n) && !arg[n])
        return;
    if (!a->virgl && (n != 2 || strncmp(arg, "2d", n)))
        argp_error(state, "--gpu: '%.*s' is none of virgl, 2d, none", (int)n, arg);
    a->gpu_width = 1280;
    a->gpu_height = 800;
    for (const char *p = arg + n; *p; p += n) {
        char one[sizeof(a->gpu_driver)];
        n = strcspn(++p, ",");
        if (n >= sizeof(one))
            argp_error(state, "--gpu: '%s' is too long", p);
        snprintf(one, sizeof(one), "%.*s", (int)n, p);
        parse_gpu_option(state, one, a);
    }
    if (a->gpu_timeout && !a->virgl)
        argp_error(state, "--gpu: timeout= goes with virgl");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct record_args *a = state->input;
    switch (key) {
    case 'o': a->output = arg; break;
    case 'm': a->memory = option_size(state, arg, "--memory"); break;
    case O_KERNEL: a->kernel = arg; break;
    case 'v': a->verbose = true; break;
    case O_ENGINE:
        a->engine = engine_kind_find(arg);
        if (a->engine < 0 && strcmp(arg, "auto"))
            argp_error(state, "--engine: '%s' is none of dbt, kvm, auto", arg);
        break;
    case O_COUNTER:
        a->unit = !strcmp(arg, "pmu") ? UNIT_BRANCH : !strcmp(arg, "step") ? UNIT_INSN : 0;
        if (!a->unit && strcmp(arg, "auto"))
            argp_error(state, "--counter: '%s' is none of auto, pmu, step", arg);
        break;
    case O_GUEST_TSC: a->guest_tsc = true; break;
    case O_BOOT_ENTRY: a->boot_entry = arg; break;
    case O_INITRD: a->initrd = arg; break;
    case O_APPEND_: a->append = arg; break;
    case O_CPU: a->cpu = arg; break;
    case O_SEED:
        a->seed = option_number(state, arg, "--seed");
        a->seeded = true;
        break;
    case O_ADD:
        a->add = realloc(a->add, (a->nadd + 1) * sizeof(*a->add));
        if (!a->add)
            argp_failure(state, EX_ERROR, ENOMEM, "--add");
        a->add[a->nadd++] = arg;
        break;
    case O_DISK:
        if (a->ndisks == DESCRIPTION_DISKS)
            argp_error(state, "--disk: at most %d of them", DESCRIPTION_DISKS);
        if (!*arg || *arg == ',')
            argp_error(state, "--disk: the file has no name");
        a->disk[a->ndisks++] = arg;
        break;
    case O_NET:
        if (!strcmp(arg, "none")) {
            a->nnets = 0;
            break;
        }
        if (a->nnets == DESCRIPTION_NETS)
            argp_error(state, "--net: at most %d of them", DESCRIPTION_NETS);
        a->net[a->nnets++] = arg;
        break;
    case O_GPU: parse_gpu(state, arg, a); break;
    case O_GPU_LOG:
        a->gpu_log = !strcmp(arg, "on");
        if (!a->gpu_log && strcmp(arg, "off"))
            argp_error(state, "--gpu-log: '%s' is neither on nor off", arg);
        break;
    case O_DISPLAY: option_display(state, arg, &a->display); break;
    case O_CONSOLE:
        a->hvc0 = !strcmp(arg, "hvc0");
        if (!a->hvc0 && strcmp(arg, "serial"))
            argp_error(state, "--console: '%s' is neither serial nor hvc0", arg);
        break;
    case O_PORT:
        if (a->nports == DESCRIPTION_PORTS)
            argp_error(state, "--port: at most %d of them", DESCRIPTION_PORTS - 1);
        a->port[a->nports++] = arg;
        break;
    case O_INPUT:
        if (a->input)
            argp_error(state, "--input: one file");
        a->input = arg;
        break;
    case O_TIMEOUT: a->timeout = option_seconds(state, arg, "--timeout"); break;
    case O_MAX: a->max_position = option_number(state, arg, "--max-insns"); break;
    case O_STOP:
        a->stop_at = arg;
        if (!*arg)
            argp_error(state, "--stop-at: the text is empty");
        break;
    case O_NORT: a->realtime = false; break;
    case O_CHECKPOINT:
        a->checkpoint_every = option_seconds(state, arg, "--checkpoint-every");
        if (a->checkpoint_every <= 0)
            argp_error(state, "--checkpoint-every: must be more than 0");
        break;
    case O_GDB:
        a->gdb = arg ? arg : option_endpoint(state);
        if (!strcmp(a->gdb, "-"))
            argp_error(state, "--gdb: standard input and output are the guest's console");
        break;
    case O_GDB_WAIT: a->gdb_wait = true; break;
    case O_FORCE: a->force = true; break;
    case O_IDLE:
        a->idle_limit = strcmp(arg, "0") ? option_seconds(state, arg, "--idle-limit") : 0;
        break;
    case ARGP_KEY_ARG: argp_error(state, "'%s' belongs to no option", arg); break;
    case ARGP_KEY_END:
        if (a->boot_entry && (!a->kernel || strcmp(a->kernel, GUEST_KERNEL_AUTO)))
            argp_error(state, "--boot-entry goes with --kernel=auto");
        if (a->kernel && !strcmp(a->kernel, GUEST_KERNEL_AUTO) && !a->ndisks)
            argp_error(state, "--kernel=auto takes the kernel from a disk: --disk FILE is missing");
        if (a->boot_entry && !strcmp(a->boot_entry, "list"))
            break;
        if (!a->output || !*a->output)
            argp_error(state, "-o DIR is missing: where does the recording go?");
        if (a->display.n && !a->gpu_width)
            argp_error(state, "--display shows a screen, and there is none: --gpu is missing");
        if (a->gdb_wait && !a->gdb)
            argp_error(state, "--gdb-wait goes with --gdb");
        if (a->unit && a->engine == ENGINE_DBT)
            argp_error(state, "--counter is for --engine=kvm: dbt counts by itself");
        if (a->gdb && a->unit == UNIT_BRANCH)
            argp_error(state, "--gdb stops at each instruction, and --counter=pmu counts branches");
        if (a->guest_tsc && a->unit != UNIT_BRANCH)
            argp_error(state, "--guest-tsc goes with --counter=pmu");
        if (a->unit)
            a->engine = ENGINE_KVM; /* the only one that has counters */
        if (!a->kernel || !*a->kernel)
            argp_error(state, "--kernel FILE is missing");
        if (cpu_model_find(a->cpu) == CPU_MODEL_NONE)
            argp_error(state, "--cpu: there is no model '%s' (x86-64-v2, x86-64-v3)", a->cpu);
        if (!a->memory || a->memory % RAM_REGION)
            argp_error(state, "--memory: must be a multiple of 2M, and not 0");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct session {
    struct recording rec;
    struct keeper *keeper;
    struct attach *attach;
    struct machine *m;
    struct live *live;
    struct recorder *recorder;
    struct console console;
    struct guest *guest;
    struct gpu_recorder *gpu_log;
    struct displays displays;
    struct screen_source screen; /* with a renderer */
    struct feed *feeds[LIVE_FEEDS];
    unsigned nfeeds;
};

/* What the guest sends goes to the host at once; a feed that has an answer gives it at the next
 * stop. */
static void on_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    struct session *s = opaque;
    if (kind == EMIT_PACKET && unit < s->guest->nnets)
        net_send(s->guest->nets[unit], data, len);
    if (kind == EMIT_PORT && unit < DESCRIPTION_PORTS && s->guest->ports[unit])
        port_send(s->guest->ports[unit], data, len);
    if (kind == EMIT_GPU && s->gpu_log)
        gpu_recorder_emit(s->gpu_log, s->m, data);
    if (kind == EMIT_GPU && s->guest->gpu)
        gpu_host_emit(s->guest->gpu, data);
}

static void on_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    struct session *s = opaque;
    if (s->keeper)
        keeper_output(s->keeper, channel, data, len);
    if (channel != OUT_CONSOLE)
        return;
    console_output(&s->console, data, len);
    live_output(s->live, s->m, data, len);
}

static u64 log_size(void *opaque)
{
    return recorder_log_bytes(opaque);
}

static int start_gpu_log(struct session *s, const struct machine_description *d, struct err *err)
{
    int fd, code = recording_create_gpu_log(&s->rec, &fd, err);
    return code ? code : gpu_recorder_create(&s->gpu_log, fd, d, err);
}

/* Everything up to the first instruction. */
static int start(struct session *s, const struct record_args *a, struct guest *g, struct err *err)
{
    int code = guest_create_machine(g, &s->m, err);
    if (code)
        return code;
    s->guest = g;
    for (unsigned i = 0; i < g->nnets; i++)
        s->feeds[s->nfeeds++] = net_feed(g->nets[i]);
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
        if (g->ports[i])
            s->feeds[s->nfeeds++] = port_feed(g->ports[i]);
    if (g->input)
        s->feeds[s->nfeeds++] = input_file_feed(g->input);
    if (g->gpu && (code = screen_gpu_create(&s->screen, s->m, g->gpu, err)))
        return code;
    struct display_config display = {.source = g->gpu ? s->screen : screen_of_machine(s->m),
                                     .recording = a->output,
                                     .width = a->gpu_width,
                                     .height = a->gpu_height,
                                     .input = true};
    code = displays_open(&s->displays, &a->display, &display, err);
    if (code)
        return code;
    static_assert(DESCRIPTION_NETS + DESCRIPTION_PORTS + DISPLAYS <= LIVE_FEEDS,
                  "as many as there may be, and the file of events instead of port 0");
    for (unsigned i = 0; i < s->displays.n; i++)
        s->feeds[s->nfeeds++] = s->displays.feed[i];
    /* A server waits for as long as it takes. */
    bool waits = false;
    for (unsigned i = 0; i < s->nfeeds; i++)
        waits = waits || s->feeds[i]->ops->live(s->feeds[i]);
    double idle_limit = a->idle_limit >= 0 ? a->idle_limit : waits ? 0 : DEFAULT_IDLE_LIMIT;
    struct live_config live = {
        .fd = STDIN_FILENO,
        .hvc0 = a->hvc0,
        .realtime = a->realtime,
        .timeout = a->timeout,
        .max_position = a->max_position,
        .idle_limit = (vns_t)(idle_limit * 1e9),
        .stop_at = a->stop_at,
        .signals = true,
        .feeds = s->feeds,
        .nfeeds = s->nfeeds,
        .gpu = g->gpu,
        .help = stderr,
    };
    if (a->gdb) {
        code = attach_create(&s->attach, a->gdb, s->m, err);
        if (code)
            return code;
        live.wants = attach_wants;
        live.fds = attach_fds;
        live.debugger = s->attach;
    }
    code = recording_create(&s->rec, a->output, a->force, err);
    if (code)
        return code;
    struct log_writer *log;
    code = guest_keep(g, &s->rec, err);
    for (unsigned i = 0; i < g->ndisks; i++)
        disk_overlay_in(&g->disks[i], s->rec.path);
    if (!code && a->gpu_log && g->desc.gpu_width)
        code = start_gpu_log(s, &g->desc, err);
    if (!code)
        code = recording_create_log(&s->rec, &log, err);
    if (!code) {
        /* The terminal changes last, when nothing is left that fails for the user's reasons. */
        code = live_create(&s->live, &live, err);
        if (code) {
            struct err ignored;
            log_writer_close(log, &ignored);
        }
    }
    if (!code && a->checkpoint_every > 0) {
        code = keeper_create(&s->keeper, &s->rec, (u64)(a->checkpoint_every * 1e9), s->m, err);
        if (code) {
            struct err ignored;
            log_writer_close(log, &ignored);
        }
    }
    if (!code) {
        struct recorder_config config = {.log = log,
                                         .keep_due = keeper_due,
                                         .keep = s->keeper ? keeper_take : NULL,
                                         .keeper = s->keeper,
                                         .live = live_source(s->live),
                                         .machine = s->rec.machine_hash,
                                         .set_alarm = live_set_alarm,
                                         .opaque = s->live};
        code = recorder_create(&s->recorder, &config, s->m, err);
    }
    if (code)
        recording_discard(&s->rec);
    return code;
}

static void summary(struct session *s, const struct record_args *a, const struct run_end *end,
                    u64 host)
{
    char how[256], time[32], count[32], size[32], wall[32];
    char *name = text_quoted(a->output);
    run_end_sentence(end, s->console.panicked, how, sizeof(how));
    fprintf(stderr, "\nreprise: %s after %s of virtual time and %s %s.", how,
            text_seconds(machine_now(s->m), time), text_count(machine_position(s->m), count),
            machine_positions_name(s->m));
    if (s->console.panicked)
        fprintf(stderr, " The panic: \"%s\".", s->console.panic_line);
    fprintf(stderr, " The log has %s; recording took %s. To replay it: reprise replay %s\n",
            text_bytes(recorder_log_bytes(s->recorder), size), text_seconds(host, wall), name);
    free(name);
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
        attach_set_recorder(s->attach, s->recorder);
        fprintf(stderr, "reprise: in gdb: target remote %s\n", attach_address(s->attach));
        if (a->gdb_wait)
            machine_stop(s->m);
    }
    while (!failed) {
        failed = machine_run(s->m, &s->console.src, limits, end, err);
        if (failed || !s->attach || (end->reason != RUN_STOP && end->reason != RUN_DEBUG))
            break;
        failed = attach_stopped(s->attach, end, limits, err);
    }
    if (s->attach)
        attach_ended(s->attach, end);
    struct err ignored; /* recorder_finish says it again */
    if (failed && end->reason == RUN_QUIT)
        recorder_quit(s->recorder, s->m, end->arg, &ignored);
    return failed;
}

static int run(struct session *s, const struct record_args *a)
{
    struct err err = {0}, finish = {0};
    struct run_limits limits = {.stop_at = NEVER, .slice = test_slice()};
    struct run_end end = {0};
    u64 began = host_ns();
    console_init(&s->console, recorder_source(s->recorder), STDOUT_FILENO, live_raw(s->live));
    s->console.stop_fd = live_signal_fd(s->live);
    s->console.log_bytes = log_size;
    s->console.opaque = s->recorder;
    machine_set_output(s->m, on_output, s);
    machine_set_emit(s->m, on_emit, s);
    int failed = run_machine(s, a, &limits, &end, &err);
    int unfinished = recorder_finish(s->recorder, s->m, &end, &finish);
    console_done(&s->console);
    struct err gpu = {0};
    int no_gpu_log = gpu_recorder_finish(s->gpu_log, unfinished ? NULL : s->m, NULL, &gpu);
    s->gpu_log = NULL;
    u32 files = 0;
    u64 disk = 0;
    struct err kept = {0};
    int not_kept = s->keeper ? keeper_finish(s->keeper, &files, &disk, &kept) : 0;
    bool no_text = a->stop_at && !live_stop_text_seen(s->live);
    live_destroy(s->live); /* gives the terminal back before anything is said */
    s->live = NULL;
    if (failed)
        cmd_fail(&err);
    if (unfinished)
        cmd_fail(&finish);
    if (not_kept)
        fprintf(stderr,
                "reprise: checkpoints ended after %u of them: %s; `reprise checkpoint` makes "
                "them later\n",
                files, kept.text);
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
    int code = run_exit_code(&end, s->console.panicked);
    if (displays_finish(&s->displays) != EX_FINE && code == EX_FINE)
        code = EX_ERROR;
    if (unfinished)
        return EX_ERROR;
    if (no_text) {
        fprintf(stderr, "reprise: the guest did not print '%s'\n", a->stop_at);
        return code == EX_FINE ? EX_NO_TEXT : code;
    }
    return code;
}

/* --engine and --counter, and with -v what came of them. */
static void choose_engine(const struct record_args *a, struct guest_config *c)
{
    struct err why = {0};
    bool asked = a->engine >= 0 && (a->engine == ENGINE_DBT || a->unit);
    bool exact = !asked && !a->gdb && engine_best(&why) == ENGINE_KVM;
    if (!asked && a->gdb)
        err_set(&why, -ENOTSUP,
                "gdb stops at each instruction, and the counter pmu counts branches");
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

int cmd_record(int argc, char **argv)
{
    static const struct argp argp = {.options = options, .parser = parse, .doc = doc};
    struct record_args a = {.memory = DEFAULT_MEMORY,
                            .cpu = "x86-64-v2",
                            .engine = -1,
                            .max_position = NEVER,
                            .idle_limit = -1,
                            .nports = 1,
                            .gpu_log = true,
                            .realtime = true};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    struct err err = {0};
    struct session s = {.rec = RECORDING_CLOSED};
    struct guest g = {0};
    struct guest_config config = {.kernel = a.kernel,
                                  .initrd = a.initrd,
                                  .append = a.append,
                                  .boot_entry = a.boot_entry,
                                  .add = a.add,
                                  .nadd = a.nadd,
                                  .ndisks = a.ndisks,
                                  .nnets = a.nnets,
                                  .gpu_width = a.gpu_width,
                                  .gpu_height = a.gpu_height,
                                  .gpu_hz = a.gpu_hz,
                                  .virgl = a.virgl,
                                  .gpu_timeout = a.gpu_timeout,
                                  .gpu_driver = a.gpu_driver[0] ? a.gpu_driver : NULL,
                                  .hvc0 = a.hvc0,
                                  .nports = a.nports,
                                  .input = a.input,
                                  .keyboard = display_options_input(&a.display),
                                  .cpu = a.cpu,
                                  .memory = a.memory,
                                  .seed = a.seed,
                                  .realtime = a.realtime};
    choose_engine(&a, &config);
    config.guest_tsc = a.guest_tsc;
    memcpy(config.disk, a.disk, sizeof(config.disk));
    memcpy(config.net, a.net, sizeof(config.net));
    memcpy(config.port, a.port, sizeof(config.port));
    if (a.boot_entry && !strcmp(a.boot_entry, "list"))
        return guest_list_entries(&config, &err) ? cmd_fail(&err) : EX_FINE;
    if (!a.seeded && getrandom(&config.seed, sizeof(config.seed), 0) != sizeof(config.seed))
        config.seed = (u64)time(NULL); /* no entropy so early after the host's boot */
    int code = guest_load(&g, &config, &err);
    if (!code)
        code = start(&s, &a, &g, &err);
    guest_fini(&g);
    code = code ? cmd_fail(&err) : run(&s, &a);
    recorder_destroy(s.recorder);
    struct err ignored;
    gpu_recorder_finish(s.gpu_log, NULL, NULL, &ignored);
    keeper_destroy(s.keeper);
    attach_destroy(s.attach);
    live_destroy(s.live);
    displays_close(&s.displays);
    screen_gpu_destroy(&s.screen);
    if (s.m)
        machine_destroy(s.m);
    guest_close_host(&g);
    recording_close(&s.rec);
    free(a.add);
    return code;
}
