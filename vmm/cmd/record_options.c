/* See record_options.h. What a machine is like is an option because its row says so
 * (board/description.def); the others are here. */
#define _GNU_SOURCE /* asprintf */
#include "cmd/record_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/room.h"
#include "cmd/chaos_option.h"
#include "cmd/engine_option.h"
#include "cmd/guest.h"
#include "cpu/engine.h"
#include "host/disk_spec.h"
#include "host/net_options.h"
#include "virtio-gpu-log/log.h"

enum {
    O_ADD = 256,
    O_AGAIN,
    O_CHAOS,
    O_CHECKPOINT,
    O_CHECKPOINT_END,
    O_CODE_CACHE,
    O_PORT,
    O_SHARE,
    O_INPUT,
    O_DISK,
    O_ENGINE,
    O_COUNTER,
    O_NET,
    O_GPU,
    O_GPU_LOG,
    O_GPU_LOG_LIMIT,
    O_OVERLAY_LIMIT,
    O_KEEP_FREE,
    O_DISPLAY,
    O_GDB,
    O_GDB_WAIT,
    O_APPEND_,
    O_BOOT_ENTRY,
    O_FORCE,
    O_FROM,
    O_AT,
    O_IDLE,
    O_INITRD,
    O_KERNEL,
    O_MAX,
    O_MAX_TIME,
    O_STOP,
    O_TIMEOUT,
    O_UNPACED,
    O_TURNS,
    O_TURNS_OUT,
    O_NO_NOTES,
    O_LIBVIRT,
    O_LIBVIRT_XML,
    O_DRY_RUN,
    O_ROW, /* and more: description_rows[] */
};

/* clang-format off */
static const struct argp_option own_options[] = {
    {"output", 'o', "DIR", 0, "Directory of the recording; created (required). DIR.reprise: one file, packed when it has ended", 0},
    {"kernel", O_KERNEL, "FILE", 0, "bzImage or ELF vmlinux (required); 'auto': kernel, initrd and command line of the boot entry that is on a --disk", 0},
    {"boot-entry", O_BOOT_ENTRY, "ENTRY", 0, "With --kernel=auto: not the default entry, but the one of this title, id, or number (2, 1>0: in a submenu); 'list' prints those there are, and that is all", 0},
    {"initrd", O_INITRD, "FILE", 0, "Initial RAM disk", 0},
    {"append", O_APPEND_, "STR", 0, "Kernel command line; a Linux kernel gets console=ttyS0 (see --console) and panic=-1 in front unless STR has its own", 0},
    {"engine", O_ENGINE, "dbt|kvm|auto", 0, "What runs the machine: dbt, the translator; kvm, /dev/kvm; auto (default): kvm where it is exact at full speed, else dbt (-v says why). " PARANOID_HELP, 0},
    {"counter", O_COUNTER, "auto|pmu|step", 0, "How kvm counts: pmu, by the CPU's performance counter, at full speed; step, by single steps, exact and slow, anywhere; auto (default): pmu where it is exact", 0},
    {"code-cache", O_CODE_CACHE, "SIZE", 0, CODE_CACHE_HELP, 0},
    {"verbose", 'v', NULL, 0, "Say which engine runs the machine, and why", 0},
    {"disk", O_DISK, "FILE[,OPTION]...", 0, "A disk with the contents of the image FILE, which is never written; up to 4. FILE may be nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH. Options: %", 0},
    {"overlay-limit", O_OVERLAY_LIMIT, "SIZE", 0, "Most that what the guest writes to each disk may take of the host (beside 64M of memory); more is an I/O error of the guest (default: no limit but --keep-free)", 0},
    {"keep-free", O_KEEP_FREE, "SIZE", 0, "So much of a file system stays free of what the guest makes grow: overlays of disks, " GPU_LOG_NAME ", checkpoints, files of --port, what is read of --share, pictures of --display (default: a twentieth of it and at least 1G, but no more than half of what is free; 0: nothing)", 0},
    {"net", O_NET, "KIND[,OPTION]...", 0, "A network, of KIND user, tap, unplugged (a card without a cable) or none; up to 4 (default: none). Options: %", 0},
    {"gpu", O_GPU, "virgl|2d|none[,OPTION]...", 0, "A display with a virtio-gpu, virgl: with 3D (default: none). Options: %", 0},
    {"gpu-log", O_GPU_LOG, "on|off", 0, "Keep what the GPU was told in " GPU_LOG_NAME " of DIR, for `reprise gpu` (default on; off: `reprise gpu extract` makes it later)", 0},
    {"gpu-log-limit", O_GPU_LOG_LIMIT, "SIZE", 0, "End " GPU_LOG_NAME " when it would become larger (default 8G; 0: no limit); the recording goes on", 0},
    {"display", O_DISPLAY, "none|vnc=ADDRESS[,OPTION]...|sdl|png-every=SECONDS[,DIR]", 0, "Where the screen of --gpu is shown while recording (default: none; up to 4). With vnc and sdl the guest has a keyboard and a tablet, and what is done with them is recorded. " DISPLAY_HELP, 0},
    {"port", O_PORT, "NAME=WHERE", 0, "A virtio port, /dev/virtio-ports/NAME in the guest, connected to what WHERE says: unix:PATH, a socket where a program can connect; or in:FILE, out:FILE, or both with a comma; up to 7", 0},
    {"share", O_SHARE, "DIR[,tag=NAME]", 0, "A directory of this host, read-only, in the guest: mount -t virtiofs NAME /mnt (NAME is share for the first, share1, ... for others); up to 4, and one for each slot of the bus that is left. A replay needs no DIR", 0},
    {"input", O_INPUT, "FILE", 0, "A keyboard and a tablet; FILE says what happens to them and when (docs/input.md); none: nothing does", 0},
    {"add", O_ADD, "FILE[:PATH]", 0, "Put a file or directory into the guest, appended to the initrd; may be repeated", 0},
    {"chaos", O_CHAOS, CHAOS_ARG, OPTION_ARG_OPTIONAL, "With several --cpus: " CHAOS_HELP "; 0: none, of a recording that begins in one with chaos", 0},
    {"turns", O_TURNS, "FILE", 0, "With several --cpus: FILE says which CPU gets its turn when, otherwise than usual (docs/chaos.md)", 0},
    {"turns-out", O_TURNS_OUT, "FILE", 0, "Write to FILE, as --turns takes it, which turns chaos or --turns gave", 0},
    {"timeout", O_TIMEOUT, "SECONDS", 0, "Quit after that much host time", 0},
    {"max-insns", O_MAX, "N", 0, "Quit at exactly position N", 0},
    {"max-time", O_MAX_TIME, "SECONDS", 0, "Quit after that much virtual time, from where it begins", 0},
    {"unpaced", O_UNPACED, NULL, 0, "An idle guest never waits for the host's clock: its time goes on at once, whatever is connected", 0},
    {"stop-at", O_STOP, "TEXT", 0, "Quit once the guest's console printed TEXT", 0},
    {"idle-limit", O_IDLE, "SECONDS", 0, "Quit when no input is left and the guest has only waited for that much virtual time (default 3600, with a network never; 0: never)", 0},
    {"checkpoint-end", O_CHECKPOINT_END, NULL, 0, "Write one where it is ended from outside (Ctrl-A x, a signal, --stop-at and so on), so that another recording can begin there at once", 0},
    {"checkpoint-every", O_CHECKPOINT, "SECONDS", 0, "Write a checkpoint each so many seconds of host time, so that the recording opens anywhere at once", 0},
    {"gdb", O_GDB, "ENDPOINT", OPTION_ARG_OPTIONAL, "Let gdb attach while recording: unix:PATH (default: a socket of this user, which is printed) or [HOST:]PORT (this user's processes on this host; with ,open whoever connects)", 0},
    {"gdb-wait", O_GDB_WAIT, NULL, 0, "With --gdb: the machine starts when gdb says so", 0},
    {"no-notes", O_NO_NOTES, NULL, 0, "Do not note in the recording when, on which host and by which command it was made (`reprise info`)", 0},
    {"from", O_FROM, "DIR", 0, "Begin in another recording: the machine is the one of DIR, and does what it did there up to --at; from there on it is live. What is made is complete without DIR", 0},
    {"at", O_AT, "POINT", 0, "With --from: where (default: end); a POINT is " POINT_FORMS, 0},
    {"again", O_AGAIN, NULL, 0, "With --from: what came from outside in DIR after that (typed, received by networks and ports) comes again, at the same virtual times; directories are read again: --share. With --chaos, --turns or --seed for another run of the same", 0},
    {"libvirt", O_LIBVIRT, "[URI/]DOMAIN", 0, "The machine of a domain of libvirt's, by name or UUID, as web, qemu:///system/web: what it is becomes options, those given here add to them and have the last word. What cannot be taken over is told first (docs/libvirt.md)", 0},
    {"libvirt-xml", O_LIBVIRT_XML, "FILE", 0, "... of a file of its XML (-: standard input)", 0},
    {"dry-run", O_DRY_RUN, NULL, 0, "With --libvirt or --libvirt-xml: print the command line that it is, and that is all", 0},
    {"force", O_FORCE, NULL, 0, "Replace a recording that is in DIR", 0},
};
/* clang-format on */

/* The description's row of an option: of one of its own, or of a part of `of`. NULL: none. */
static const struct description_row *find_row(const char *of, const char *part, size_t n)
{
    for (size_t i = 0; i < description_row_count; i++) {
        const char *name = description_rows[i].option, *dot = name ? strchr(name, '.') : NULL;
        if (dot && strlen(of) == (size_t)(dot - name) && !memcmp(name, of, strlen(of)) &&
            strlen(dot + 1) == n && !memcmp(dot + 1, part, n))
            return &description_rows[i];
    }
    return NULL;
}

/* "xres=N, yres=N, hz=N": the description's parts of an option; with what they are for. */
static char *list_parts(const char *of, bool help)
{
    char *text = NULL;
    size_t size, n = strlen(of);
    const char *between = "";
    FILE *out = open_memstream(&text, &size);
    for (size_t i = 0; out && i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        if (!r->option || strncmp(r->option, of, n) || r->option[n] != '.')
            continue;
        fprintf(out, "%s%s=%s", between, r->option + n + 1, r->arg);
        if (help)
            fprintf(out, " (%s)", r->help);
        between = ", ";
    }
    if (out)
        fclose(out);
    return text;
}

/* Parts of --gpu that are the host's; what the machine has of it are rows of the description. */
enum { GPU_VIRGL = 1 };
#define FIELD(field) PART_FIELD(struct guest_config, field)
static const struct part gpu_rows[] = {
    {"driver", "NAME", "a name of 1 to 255 bytes", .of = GPU_VIRGL, .read = part_text,
     FIELD(gpu_driver),
     .help = "what draws 3D on the host: llvmpipe, the default, softpipe, or device:PATH, a render "
             "node"},
    {"timeout", "SECONDS", "1 to 3600 seconds", .of = GPU_VIRGL, .read = part_number,
     FIELD(gpu_timeout), .least = 1, .at_most = 3600,
     .help = "a renderer that does nothing for so long while the guest waits is ended; default 20"},
};
static const char *const gpu_kinds[] = {"virgl"};
static const struct parts gpu_parts = {gpu_rows, ARRAY_SIZE(gpu_rows), gpu_kinds, 1};

/* The description's parts in front of the host's. */
static char *gpu_help(const char *text)
{
    char *rows = list_parts("gpu", true), *both = NULL, *all = NULL;
    size_t n = strcspn(text, "%");
    if (rows && asprintf(&both, "%.*s%s%s", (int)n, text, rows, text + n) >= 0)
        all = parts_help(&gpu_parts, GPU_VIRGL, both);
    free(rows);
    free(both);
    return all;
}

static char *help(int key, const char *text, void *input)
{
    (void)input;
    switch (key) {
    case O_GPU: return gpu_help(text);
    case O_NET: return parts_help(&net_parts, ~0u, text);
    case O_DISK: return parts_help(&disk_parts, DISK_OF_MACHINE, text);
    case O_DISPLAY: return parts_help(&vnc_parts, 0, text);
    default: return (char *)(uintptr_t)text;
    }
}

/* The options of their own that rows are, after `own_options`. NULL: no memory. */
static struct argp_option *all_options(void)
{
    struct argp_option *all =
        calloc(ARRAY_SIZE(own_options) + description_row_count + 1, sizeof(*all));
    size_t n = ARRAY_SIZE(own_options);
    if (!all)
        return NULL;
    memcpy(all, own_options, sizeof(own_options));
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        if (r->option && !strchr(r->option, '.'))
            all[n++] = (struct argp_option){
                r->option, r->key ? r->key : O_ROW + (int)i, r->arg, 0, r->help, 0};
    }
    return all;
}

/* One of the words "a|b" that are a flag's 0 and 1. */
static u64 parse_word(struct argp_state *state, const char *arg, const char *what,
                      const char *words)
{
    size_t n = strcspn(words, "|");
    if (strlen(arg) == n && !strncmp(arg, words, n))
        return 0;
    if (strcmp(arg, words + n + 1))
        argp_error(state, "%s: '%s' is neither %.*s nor %s", what, arg, (int)n, words,
                   words + n + 1);
    return 1;
}

/* "a|b" as "a, b". */
static const char *listed(const char *values, char out[128])
{
    size_t n = 0;
    for (; *values && n < 125; values++) {
        out[n++] = *values == '|' ? ',' : *values;
        if (*values == '|')
            out[n++] = ' ';
    }
    out[n] = 0;
    return out;
}

/* An argument, or a part of one ("hz=50" of --gpu), of what a row says. */
static void parse_row(struct argp_state *state, const struct description_row *r, const char *arg,
                      struct machine_description *d)
{
    char what[64], why[128];
    const char *dot = strchr(r->option, '.'), *given = arg;
    snprintf(what, sizeof(what), "--%.*s", (int)strcspn(r->option, "."), r->option);
    if (dot)
        arg = strchr(arg, '=') + 1;
    if (r->kind == DESCRIPTION_TEXT) {
        if (strlen(arg) >= r->size)
            argp_error(state, "%s: '%s' is too long", what, arg);
        if (r->values && !description_one_of(arg, r->values))
            argp_error(state, "%s: '%s' is none of %s", what, arg, listed(r->values, why));
        snprintf((char *)d + r->offset, r->size, "%s", arg);
        return;
    }
    u64 value = !r->arg                   ? strncmp(r->option, "no-", 3) != 0
                : r->values               ? parse_word(state, arg, what, r->values)
                : !strcmp(r->arg, "SIZE") ? option_size(state, arg, what)
                : !strcmp(r->arg, "TIME") ? option_time(state, arg, what)
                                          : option_number(state, arg, what);
    if (description_set(d, r, value))
        return;
    description_refusal(r, why, sizeof(why));
    argp_error(state, "%s: %s%s%s", what, dot ? given : "", dot ? ": " : "", why);
}

/* "N,cores=N,threads=N" of --cpus, into CPUs and what they are parts of. */
static void parse_cpus(struct argp_state *state, const struct description_row *row, const char *arg,
                       struct machine_description *d)
{
    char all[64], *rest = all;
    if (strlen(arg) >= sizeof(all))
        argp_error(state, "--cpus: '%s' is too long", arg);
    strcpy(all, arg);
    parse_row(state, row, strsep(&rest, ","), d);
    d->cores = 0;
    d->threads = 1;
    for (const char *one; (one = strsep(&rest, ","));) {
        const struct description_row *r = find_row("cpus", one, strcspn(one, "="));
        if (!r || !strchr(one, '=')) {
            char *rows = list_parts("cpus", false);
            argp_error(state, "--cpus: '%s' is none of %s", one, rows ? rows : "");
            free(rows);
            return;
        }
        parse_row(state, r, one, d);
    }
    if (d->threads > 1 && !d->cores)
        d->cores = MAX(1u, d->cpus / d->threads);
}

static const char doc[] =
    "Runs a machine and records it. The guest's console is on the terminal; Ctrl-A x quits, "
    "Ctrl-A h lists the other keys." EXIT_HELP;

/* ",NAME=VALUE" of --gpu. */
static void parse_gpu_option(struct argp_state *state, const char *one, struct guest_config *g)
{
    const struct description_row *r = find_row("gpu", one + 1, strcspn(one + 1, "="));
    struct err err;
    if (r && strchr(one, '=')) {
        parse_row(state, r, one + 1, &g->is);
        return;
    }
    char *rows = list_parts("gpu", false);
    if (parts_read(&gpu_parts, g->virgl ? GPU_VIRGL : 0, one, rows ? rows : "", g, &err))
        argp_error(state, "--gpu: %s", err.text);
    free(rows);
}

static void parse_gpu(struct argp_state *state, const char *arg, struct guest_config *g)
{
    size_t n = strcspn(arg, ",");
    struct machine_description std;
    description_init(&std);
    g->is.gpu = std.gpu;
    g->gpu_timeout = 0;
    g->gpu_driver[0] = 0;
    g->virgl = n == 5 && !strncmp(arg, "virgl", n);
    if (n == 4 && !strncmp(arg, "none", n) && !arg[n])
        return;
    if (!g->virgl && (n != 2 || strncmp(arg, "2d", n)))
        argp_error(state, "--gpu: '%.*s' is none of virgl, 2d, none", (int)n, arg);
    g->is.gpu.width = 1280;
    g->is.gpu.height = 800;
    for (const char *p = arg + n; *p; p += n) {
        char one[2 * sizeof(g->gpu_driver)];
        n = 1 + strcspn(p + 1, ",");
        if (n >= sizeof(one))
            argp_error(state, "--gpu: '%s' is too long", p + 1);
        snprintf(one, sizeof(one), "%.*s", (int)n, p);
        parse_gpu_option(state, one, g);
    }
}

/* What kind of machine, and what it starts with. */
static error_t parse_machine(int key, char *arg, struct argp_state *state, struct record_args *a)
{
    struct guest_config *g = &a->guest;
    switch (key) {
    case O_KERNEL: g->kernel = arg; break;
    case O_BOOT_ENTRY: g->boot_entry = arg; break;
    case O_INITRD: g->initrd = arg; break;
    case O_APPEND_: g->append = arg; break;
    case O_ADD:
        g->add = realloc(g->add, (g->nadd + 1) * sizeof(*g->add));
        if (!g->add)
            argp_failure(state, EX_ERROR, ENOMEM, "--add");
        g->add[g->nadd++] = arg;
        break;
    case O_ENGINE: a->engine = option_engine(state, arg, true, &a->guest.paranoid); break;
    case O_COUNTER:
        a->unit = !strcmp(arg, "pmu") ? UNIT_BRANCH : !strcmp(arg, "step") ? UNIT_INSN : 0;
        if (!a->unit && strcmp(arg, "auto"))
            argp_error(state, "--counter: '%s' is none of auto, pmu, step", arg);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* What is connected to it. */
static error_t parse_device(int key, char *arg, struct argp_state *state, struct record_args *a)
{
    struct guest_config *g = &a->guest;
    switch (key) {
    case O_DISK:
        if (g->ndisks == DESCRIPTION_DISKS)
            argp_error(state, "--disk: at most %d of them", DESCRIPTION_DISKS);
        if (!*arg || *arg == ',')
            argp_error(state, "--disk: the file has no name");
        g->disk[g->ndisks++] = arg;
        break;
    case O_NET:
        if (!strcmp(arg, "none")) {
            g->nnets = 0;
            break;
        }
        if (g->nnets == DESCRIPTION_NETS)
            argp_error(state, "--net: at most %d of them", DESCRIPTION_NETS);
        g->net[g->nnets++] = arg;
        break;
    case O_GPU: parse_gpu(state, arg, g); break;
    case O_PORT:
        if (g->nports == DESCRIPTION_PORTS)
            argp_error(state, "--port: at most %d of them", DESCRIPTION_PORTS - 1);
        g->port[g->nports++] = arg;
        break;
    case O_SHARE:
        if (g->nshares == DESCRIPTION_SHARES)
            argp_error(state, "--share: at most %d of them", DESCRIPTION_SHARES);
        g->share[g->nshares++] = arg;
        break;
    case O_INPUT:
        if (g->input)
            argp_error(state, "--input: one file");
        g->input = arg;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* What the host keeps of it and does with it. */
static error_t parse_host(int key, char *arg, struct argp_state *state, struct record_args *a)
{
    switch (key) {
    case 'o': a->output = arg; break;
    case 'v': a->verbose = true; break;
    case O_FORCE: a->force = true; break;
    case O_FROM: a->from = arg; break;
    case O_AGAIN: a->guest.again = true; break;
    case O_AT: {
        struct err err;
        a->at_given = true;
        if (point_parse(arg, &a->at, &err))
            argp_error(state, "--at: %s", err.text);
        break;
    }
    case O_CODE_CACHE: a->guest.code_cache = option_code_cache(state, arg); break;
    case O_NO_NOTES: a->no_notes = true; break;
    case O_GPU_LOG:
        a->gpu_log = !strcmp(arg, "on");
        if (!a->gpu_log && strcmp(arg, "off"))
            argp_error(state, "--gpu-log: '%s' is neither on nor off", arg);
        break;
    case O_GPU_LOG_LIMIT: a->gpu_log_limit = option_size(state, arg, "--gpu-log-limit"); break;
    case O_OVERLAY_LIMIT: a->overlay_limit = option_size(state, arg, "--overlay-limit"); break;
    case O_KEEP_FREE: a->keep_free = option_size(state, arg, "--keep-free"); break;
    case O_DISPLAY: option_display(state, arg, &a->display); break;
    case O_CHECKPOINT_END: a->checkpoint_end = true; break;
    case O_CHECKPOINT:
        a->checkpoint_every = option_seconds(state, arg, "--checkpoint-every");
        if (a->checkpoint_every <= 0)
            argp_error(state, "--checkpoint-every: must be more than 0");
        break;
    case O_GDB:
        a->gdb = true;
        a->endpoint = arg ? arg : option_endpoint(state);
        if (a->endpoint && !strcmp(a->endpoint, "-"))
            argp_error(state, "--gdb: standard input and output are the guest's console");
        break;
    case O_GDB_WAIT: a->gdb_wait = true; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The words of an option are not for the command line that it becomes. */
static void drop(const struct argp_state *state, const char *arg, struct record_args *a)
{
    unsigned words = arg && state->argv[state->next - 1] == arg ? 2 : 1;
    for (unsigned i = 0; i < words && a->ndropped < ARRAY_SIZE(a->dropped); i++)
        a->dropped[a->ndropped++] = state->next - 1 - (int)i;
}

/* A domain of libvirt's. */
static error_t parse_domain(int key, char *arg, struct argp_state *state, struct record_args *a)
{
    if (key != O_LIBVIRT && key != O_LIBVIRT_XML && key != O_DRY_RUN)
        return ARGP_ERR_UNKNOWN;
    drop(state, arg, a);
    if (key == O_DRY_RUN) {
        if (a->dry_run)
            argp_error(state, "--dry-run: once");
        a->dry_run = true;
        return 0;
    }
    if (a->domain)
        argp_error(state, "--libvirt, --libvirt-xml: one domain");
    if (!*arg)
        argp_error(state, "--%s: it has no name", key == O_LIBVIRT ? "libvirt" : "libvirt-xml");
    a->domain = arg;
    a->domain_file = key == O_LIBVIRT_XML;
    return 0;
}

/* How long it runs. */

static error_t parse_end(int key, char *arg, struct argp_state *state, struct record_args *a)
{
    switch (key) {
    case O_TIMEOUT: a->timeout = option_seconds(state, arg, "--timeout"); break;
    case O_MAX_TIME: a->max_time = option_seconds(state, arg, "--max-time"); break;
    case O_UNPACED: a->unpaced = true; break;
    case O_CHAOS:
        a->unruly = true;
        chaos_option(state, arg, &a->chaos);
        break;
    case O_TURNS: a->turns = arg; break;
    case O_TURNS_OUT: a->turns_out = arg; break;
    case O_MAX: a->max_position = option_number(state, arg, "--max-insns"); break;
    case O_STOP:
        a->stop_at = arg;
        if (!*arg)
            argp_error(state, "--stop-at: the text is empty");
        break;
    case O_IDLE:
        a->idle_limit = strcmp(arg, "0") ? option_seconds(state, arg, "--idle-limit") : 0;
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* --cpu help: the models, and which of them run here. */
static void list_models(void)
{
    printf("%-16s %-10s %s\n", "MODEL", "or", "is");
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        const char *lacks = cpu_model_host_lacks(m), *alias = cpu_model_alias(m);
        printf("%-16s %-10s %s%s%s\n", cpu_model_name(m), alias ? alias : "", cpu_model_brand(m),
               lacks ? "; not here: this CPU lacks " : "", lacks ? lacks : "");
    }
}

/* Other names become the model's own: a recording has that. */
static void check_model(struct argp_state *state, struct machine_description *is)
{
    enum cpu_model model = cpu_model_find(is->cpu_model);
    if (model == CPU_MODEL_NONE)
        argp_error(state, "--cpu: there is no model '%s' (--cpu help lists them)", is->cpu_model);
    snprintf(is->cpu_model, sizeof(is->cpu_model), "%s", cpu_model_name(model));
}

/* The machine is the other recording's, and so is what it has of the host. */
static void check_from(struct argp_state *state, struct record_args *a)
{
    const struct guest_config *g = &a->guest;
    const char *also = a->machine        ? a->machine
                       : g->kernel       ? "kernel"
                       : g->initrd       ? "initrd"
                       : g->append       ? "append"
                       : g->nadd         ? "add"
                       : g->boot_entry   ? "boot-entry"
                       : g->ndisks       ? "disk"
                       : g->input        ? "input"
                       : g->is.gpu.width ? "gpu"
                       : a->display.n    ? "display"
                       : a->unit         ? "counter"
                                         : NULL;
    if (also)
        argp_error(state, "--from: the machine is the one of %s; --%s cannot be said again",
                   a->from, also);
    if (a->engine > 0 && a->engine != ENGINE_DBT)
        argp_error(state, "--from goes with --engine=dbt only");
    if (a->gdb_wait && !a->gdb)
        argp_error(state, "--gdb-wait goes with --gdb");
    a->engine = ENGINE_DBT;
}

/* Do they go together? */
static void check(struct argp_state *state, struct record_args *a)
{
    struct guest_config *g = &a->guest;
    if (!strcmp(g->is.cpu_model, "help")) {
        list_models();
        exit(0);
    }
    if (a->domain && a->from)
        argp_error(state, "--from: the machine is the one of %s; a domain cannot be another one",
                   a->from);
    if (a->dry_run && !a->domain)
        argp_error(state, "--dry-run goes with --libvirt and --libvirt-xml");
    if (a->domain) /* all of it is looked at once the domain's options are there (domain.c) */
        return;
    if (g->boot_entry && (!g->kernel || strcmp(g->kernel, GUEST_KERNEL_AUTO)))
        argp_error(state, "--boot-entry goes with --kernel=auto");
    if (g->kernel && !strcmp(g->kernel, GUEST_KERNEL_AUTO) && !g->ndisks)
        argp_error(state, "--kernel=auto takes the kernel from a disk: --disk FILE is missing");
    if (g->boot_entry && !strcmp(g->boot_entry, "list"))
        return;
    if (!a->output || !*a->output)
        argp_error(state, "-o DIR is missing: where does the recording go?");
    if (g->again && !a->from)
        argp_error(state, "--again goes with --from");
    if (g->again && (g->nnets || g->nports > 1))
        argp_error(state, "--again: networks and ports get what they got there, and nobody else: "
                          "no --net, no --port");
    if (a->at_given && !a->from)
        argp_error(state, "--at goes with --from");
    if (a->from) {
        check_from(state, a);
        return;
    }
    if (a->display.n && !g->is.gpu.width)
        argp_error(state, "--display shows a screen, and there is none: --gpu is missing");
    if (a->gdb_wait && !a->gdb)
        argp_error(state, "--gdb-wait goes with --gdb");
    if (a->unit && a->engine == ENGINE_DBT)
        argp_error(state, "--counter is for --engine=kvm: dbt counts by itself");
    if (a->gdb && a->unit == UNIT_BRANCH)
        argp_error(state, "--gdb stops at each instruction, and --counter=pmu counts branches");
    if (a->gdb && g->paranoid.on)
        argp_error(state, "--gdb changes the machine, which paranoid takes for its own difference");
    if (g->is.guest_tsc && a->unit != UNIT_BRANCH)
        argp_error(state, "--guest-tsc goes with --counter=pmu");
    if (a->unit)
        a->engine = ENGINE_KVM; /* the only one that has counters */
    if (!g->kernel || !*g->kernel)
        argp_error(state, "--kernel FILE is missing");
    check_model(state, &g->is);
    if (!strcmp(g->is.pmu, "on") && !cpu_model_pmu(cpu_model_find(g->is.cpu_model))->kind)
        argp_error(state,
                   "--pmu: the model %s has no performance counters (nehalem, haswell, ... have)",
                   g->is.cpu_model);
    if (!strcmp(g->is.pmu, "on") && a->unit == UNIT_BRANCH)
        argp_error(
            state,
            "--pmu: with --counter=pmu the guest runs freely, and its counters would not be exact");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    static error_t (*const parts[])(int, char *, struct argp_state *, struct record_args *) = {
        parse_machine, parse_device, parse_host, parse_domain, parse_end};
    error_t code = ARGP_ERR_UNKNOWN;
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = &((struct record_args *)state->input)->profile;
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%s' belongs to no option", arg);
    if (key == ARGP_KEY_END)
        check(state, state->input);
    if (key == ARGP_KEY_END)
        return 0;
    for (size_t i = 0; key != ARGP_KEY_INIT && i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        if (r->option && !strchr(r->option, '.') && key == (r->key ? r->key : O_ROW + (int)i)) {
            struct record_args *a = state->input;
            /* Entropy is the one part of another recording's machine that can be made anew. */
            if (r->offset == offsetof(struct machine_description, seed))
                a->seeded = true;
            else
                a->machine = r->option;
            if (r->offset == offsetof(struct machine_description, cpus))
                parse_cpus(state, r, arg, &a->guest.is);
            else
                parse_row(state, r, arg, &a->guest.is);
            return 0;
        }
    }
    for (size_t i = 0; code == ARGP_ERR_UNKNOWN && i < ARRAY_SIZE(parts); i++)
        code = parts[i](key, arg, state, state->input);
    return code;
}

void record_options(int argc, char **argv, struct record_args *out)
{
    struct argp_option *all = all_options();
    static const struct argp_child children[] = {{&profile_argp, 0, NULL, 0}, {0}};
    const struct argp argp = {
        .options = all, .parser = parse, .doc = doc, .children = children, .help_filter = help};
    *out = (struct record_args){.guest.nports = 1,
                                .engine = -1,
                                .max_position = NEVER,
                                .idle_limit = -1,
                                .gpu_log = true,
                                .gpu_log_limit = 8ull << 30,
                                .keep_free = ROOM_DEFAULT,
                                .at = {.kind = POINT_END}};
    struct machine_description *d = &out->guest.is;
    description_init(d);
    d->wall_clock = (u64)time(NULL);
    if (getrandom(&d->seed, sizeof(d->seed), 0) != sizeof(d->seed))
        d->seed = d->wall_clock; /* no entropy so early after the host's boot */
    if (!all) {
        fputs("reprise: no memory for the options\n", stderr);
        exit(EX_ERROR);
    }
    option_parse(&argp, argc, argv, out);
    free(all);
    d->input = out->guest.input || display_options_input(&out->display);
}
