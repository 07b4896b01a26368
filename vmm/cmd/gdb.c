/* `reprise gdb`: starts gdb on a recording, attached and with the guest kernel's symbols. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/text.h"
#include "cmd/debug_process.h"
#include "cmd/debug_target.h"
#include "cmd/interrupt.h"
#include "cmd/visit.h"
#include "gdb_session.h"
#include "inspect/elf_id.h"
#include "replay/gdb/gdb.h"

enum { O_TO = 256, O_SYMBOLS, O_BUDGET, O_GDB, O_CODE_CACHE, O_PROCESS };

#define EXTRA_MAX 64

/* clang-format off */
static const struct argp_option options[] = {
    {"to", O_TO, "POINT", 0, "Start there (default: the recording's end)", 0},
    {"symbols", O_SYMBOLS, "FILE", 0, "A vmlinux with debug information instead of the symbols that the guest's kernel has of itself", 0},
    {"process", O_PROCESS, "PID|NAME[#K]", 0, "Show gdb this process of the guest only, as it is at the point of --to: its threads, its memory; K counts those of that name there. Without --to, one that does not live at the end is shown from where its program begins, and K counts executions", 0},
    {"program", O_GDB, "FILE", 0, "The gdb to start (default: gdb)", 0},
    {"checkpoint-memory", O_BUDGET, "SIZE", 0, "Memory for checkpoints (default: a quarter of what is free)", 0},
    {"code-cache", O_CODE_CACHE, "SIZE", 0, CODE_CACHE_HELP, 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Starts gdb at a point of a recording. Running backwards works: reverse-continue, "
    "reverse-step, reverse-finish; `monitor help` shows what else there is. Arguments after -- "
    "go to gdb. " POINT_HELP EXIT_HELP;

static const char debug_doc[] = "Starts gdb on the process of a recording that crashed, where it "
                                "did; if none did, on the program "
                                "that `reprise run` recorded, where it ended. Its file and "
                                "libraries are this machine's, if they are "
                                "the builds that it ran. reverse-continue, reverse-step and so on "
                                "work from there; --process and --to "
                                "are as of `reprise gdb`. " POINT_HELP EXIT_HELP;

struct gdb_args {
    const char *dir, *symbols, *program, *process;
    struct point to;
    bool has_to, finds; /* finds: which process is shown is to be found */
    u64 budget, code_cache;
    char **extra; /* gdb's own */
    unsigned nextra;
    struct disk_names disks;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct gdb_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case O_TO:
        option_point(state, arg, "--to", &a->to);
        a->has_to = true;
        break;
    case O_SYMBOLS: a->symbols = arg; break;
    case O_PROCESS: a->process = arg; break;
    case O_GDB: a->program = arg; break;
    case O_BUDGET:
        a->budget = option_size(state, arg, "--checkpoint-memory");
        if (!a->budget)
            argp_error(state, "--checkpoint-memory: cannot be 0");
        break;
    case O_CODE_CACHE: a->code_cache = option_code_cache(state, arg); break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        if (a->nextra > EXTRA_MAX)
            argp_error(state, "too many arguments for gdb");
        option_need_recording(state, &a->dir);
        if (a->process && a->symbols)
            argp_error(state, "--symbols is the kernel's, and gdb is shown a process");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct files {
    char dir[PATH_MAX], symbols[PATH_MAX + 32], init[PATH_MAX + 32];
};

/* What gdb reads first. `monitor goto` moves the machine behind gdb's back: a hook makes gdb forget
 * what it knows; that of gdb_session.py does so only then. */
static const char init_text[] = "set confirm off\n"
                                /* The machine may be long at work, or the host busy. */
                                "set remotetimeout 600\n"
                                /* Nothing but gdb changes memory while the machine stands. */
                                "mem 0 0 rw cache\n"
                                "define hookpost-monitor\n"
                                "maintenance flush dcache\n"
                                "maintenance flush register-cache\n"
                                "end\n"
                                "python\n";
static const char init_end[] = "\nend\n"
                               "define hookpost-monitor\n"
                               "python reprise_flush()\n"
                               "end\n"
                               "define hook-reverse-step\n"
                               "python reprise_back.begin('step')\n"
                               "end\n"
                               "define hook-reverse-next\n"
                               "python reprise_back.begin('next')\n"
                               "end\n"
                               "define hook-reverse-finish\n"
                               "python reprise_back.begin('finish')\n"
                               "end\n"
                               "define hook-reverse-stepi\n"
                               "python reprise_back.end()\n"
                               "end\n"
                               "define hook-reverse-nexti\n"
                               "python reprise_back.end()\n"
                               "end\n";

/* All that is made there is known before we lock ourselves in; then it is removed outside. */
static int make_files(struct files *f, struct err *err)
{
    struct output_file symbols;
    const char *tmp = getenv("TMPDIR");
    snprintf(f->dir, sizeof(f->dir), "%s/reprise-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(f->dir))
        return err_errno(err, "cannot create a directory %s", f->dir);
    snprintf(f->symbols, sizeof(f->symbols), "%s/guest.elf", f->dir);
    snprintf(f->init, sizeof(f->init), "%s/init", f->dir);
    int fd = file_create_at(AT_FDCWD, f->init);
    FILE *init = fd < 0 ? NULL : fdopen(fd, "w");
    bool good = init && fputs(init_text, init) >= 0 &&
                fwrite(gdb_session_py, sizeof(gdb_session_py), 1, init) == 1 &&
                fputs(init_end, init) >= 0;
    if (!init || fclose(init) || !good)
        return err_errno(err, "cannot write %s", f->init);
    int code = output_open(&symbols, f->symbols, true, err);
    output_discard(&symbols);
    outside_remove(f->init);
    outside_remove(f->symbols);
    outside_remove(f->dir);
    return code;
}

static void remove_files(const struct files *f)
{
    if (outside_runs())
        return;
    unlink(f->symbols);
    unlink(f->init);
    rmdir(f->dir);
}

/* The kernel's own symbols as a file; without any gdb works too. */
static bool write_symbols(struct travel *tr, const struct files *f)
{
    const struct symbols *s = travel_symbols(tr);
    struct output_file out;
    struct err err;
    if (!s || output_open(&out, f->symbols, true, &err))
        return false;
    if (symbols_write_elf(s, out.file, &err)) {
        output_discard(&out);
        return false;
    }
    return output_commit(&out, &err) == 0;
}

static void hex(char *out, size_t room, const u8 *bytes, size_t n)
{
    *out = 0;
    for (size_t i = 0; i < n && 2 * i + 2 < room; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

/* --symbols: of the kernel that runs here, as far as both say who they are. Another's would name
 * every address wrongly, and nobody would notice. */
static int check_symbols(struct travel *tr, const char *path, struct err *err)
{
    char theirs[80], ours[80];
    struct elf_id id;
    const struct symbols *s = travel_symbols(tr);
    int code = elf_id_read(&id, path, err);
    if (code)
        return err_prefix(err, "--symbols");
    if (!id.kernel)
        return err_set(err, -EINVAL,
                       "--symbols %s: that is no kernel but a program; leave --symbols out and add "
                       "it in gdb: add-symbol-file %s",
                       path, path);
    if (!s || !s->build_id_size || !id.size) {
        fprintf(stderr,
                "reprise: --symbols %s: whether it belongs to the guest's kernel cannot be checked "
                "(%s)\n",
                path, id.size ? "no kernel is to be seen at this position" : "it has no build ID");
        return 0;
    }
    if (id.size == s->build_id_size && !memcmp(id.build_id, s->build_id, id.size))
        return 0;
    hex(theirs, sizeof(theirs), id.build_id, id.size);
    hex(ours, sizeof(ours), s->build_id, s->build_id_size);
    return err_set(err, -EINVAL,
                   "--symbols %s is another kernel's: its build ID is %s, that of the guest's "
                   "(Linux %s) %s; without --symbols the guest's own are used",
                   path, theirs, s->release, ours);
}

/* The kernel's symbols are there; the CPU executes 32-bit code, 16-bit code; the kernel has 64
 * bits. */
enum { GO_SYMBOLS = 1, GO_32 = 2, GO_16 = 4, GO_LONG = 8 };

/* What gdb is to be started with. */
struct gdb_go {
    u8 own;                      /* of these */
    struct elf_id id;            /* of the program that the guest runs */
    char path[PROGRAM_PATH_MAX]; /* its file; "": not known */
};

/* gdb, forked before we lock ourselves in, and started when there is something to look at. */
struct waiting_gdb {
    pid_t pid;
    int go; /* takes a struct gdb_go */
};

static void put_hex(const char *what, const struct elf_id *id)
{
    char text[80];
    hex(text, sizeof(text), id->build_id, id->size);
    fprintf(stderr, "%s %s", what, id->size ? text : "none");
}

/* Is the file of that name here the one that the guest runs? The name is the recording's maker's:
 * only a regular file is opened, and gdb gets it only where its build ID says so. */
static bool is_program_here(const struct gdb_go *go)
{
    struct stat st;
    struct elf_id id;
    struct err err = {0};
    char shown[PROGRAM_PATH_MAX];
    memcpy(shown, go->path, sizeof(shown));
    text_ascii(shown);
    if (*go->path != '/')
        fprintf(stderr, "reprise: which file the process runs is not known here; `file` gives gdb "
                        "its symbols\n");
    else if (!go->id.size)
        fprintf(stderr,
                "reprise: the process runs %s, which has no build ID in the guest: whether a file "
                "here is the same cannot be known, and gdb is given none\n",
                shown);
    else if (stat(go->path, &st) || !S_ISREG(st.st_mode) || elf_id_read(&id, go->path, &err))
        fprintf(stderr, "reprise: the process runs %s; here that is no program's file\n", shown);
    else if (id.size != go->id.size || memcmp(id.build_id, go->id.build_id, id.size)) {
        fprintf(stderr, "reprise: the process runs %s; the file of that name here is another build",
                shown);
        put_hex(" (its build ID:", &id);
        put_hex("; in the guest:", &go->id);
        fprintf(stderr, "), and gdb is not given it\n");
    } else {
        fprintf(stderr, "reprise: gdb reads %s, the build that the guest runs\n", shown);
        return true;
    }
    return false;
}

static _Noreturn void become_gdb(const struct gdb_args *a, const struct files *f,
                                 const char *address, int go)
{
    const char *argv[EXTRA_MAX + 32];
    char file[PATH_MAX + 64], target[PATH_MAX + 64], kernel[2 * PATH_MAX + 128];
    struct gdb_go with;
    unsigned n = 0;
    signal(SIGINT, SIG_IGN); /* until then it is for us */
    if (!file_read_on(go, &with, sizeof(with)))
        _exit(0);
    u8 own = with.own;
    /* The file that gdb runs says what the CPU is: a kernel of 64 bits is none of an i386. (Nor may
     * gdb be told by `set architecture`: it would take files of other CPUs for that one's.) */
    const char *how = own & GO_LONG && own & (GO_32 | GO_16) ? "add-symbol-file" : "file";
    const char *symbols = own & GO_SYMBOLS ? f->symbols : a->process ? NULL : a->symbols;
    snprintf(file, sizeof(file), "%s %s", how, symbols ? symbols : "");
    snprintf(target, sizeof(target), "target remote %s", address);
    argv[n++] = a->program;
    argv[n++] = "-q";
    argv[n++] = "-x";
    argv[n++] = f->init;
    if (own & GO_LONG) { /* also while gdb is shown an i386 */
        argv[n++] = "-ex";
        argv[n++] = "set remoteaddresssize 64";
    }
    int len = snprintf(kernel, sizeof(kernel), "python reprise_kernel = bytes.fromhex('");
    hex(kernel + len, 2 * PATH_MAX + 64, (const u8 *)f->symbols, strlen(f->symbols));
    strcat(kernel, "').decode()");
    argv[n++] = "-ex";
    argv[n++] = kernel;
    bool program = a->process && is_program_here(&with);
    if (a->process) {
        argv[n++] = "-ex";
        argv[n++] = "python reprise_program()";
    }
    if (program) { /* one that the user names comes later, and counts */
        argv[n++] = "-se";
        argv[n++] = with.path;
        argv[n++] = "-ex";
        argv[n++] = "set trust-readonly-sections on";
    }
    if (symbols) {
        argv[n++] = "-ex";
        argv[n++] = file;
    }
    argv[n++] = "-ex";
    argv[n++] = target;
    if (a->process) {
        argv[n++] = "-ex";
        argv[n++] = "python reprise_drop()";
        argv[n++] = "-ex";
        argv[n++] = program ? "python reprise_libraries()" : "python reprise_file()";
    }
    /* From here on the CPU is what the target says: gdb_session.py asks again. */
    if (!a->process) {
        argv[n++] = "-ex";
        argv[n++] = "exec-file";
    }
    for (unsigned i = 0; i < a->nextra; i++)
        argv[n++] = a->extra[i];
    argv[n] = NULL;
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    execvp(a->program, (char *const *)argv);
    fprintf(stderr, "reprise: cannot start %s: %s%s\n", a->program, strerror(errno),
            errno == ENOENT ? " (is gdb installed?)" : "");
    _exit(127);
}

static u8 what_gdb_gets(struct travel *tr, const struct gdb_args *a, const struct files *f,
                        unsigned view)
{
    const struct vcpu *c = machine_vcpu(timeline_machine(tr->t));
    if (a->process) { /* its symbols are no kernel's; those are for `monitor kernel` */
        write_symbols(tr, f);
        return 0;
    }
    int own = !a->symbols && write_symbols(tr, f) ? GO_SYMBOLS : 0;
    own |= view & GDB_VIEW_16 ? GO_16 : view & GDB_VIEW_32 ? GO_32 : 0;
    return (u8)(own | (c->efer & EFER_LMA ? GO_LONG : 0));
}

static void say_what_is_shown(unsigned view, bool symbols)
{
    if (view & GDB_VIEW_16)
        fputs("reprise: the CPU executes 16-bit code here, so gdb is shown an i8086: $eip is the "
              "linear address, $ip the offset in CS, $ss_base + $esp the stack\n",
              stderr);
    else if (view & GDB_VIEW_32)
        fputs("reprise: the CPU executes 32-bit code here, so gdb is shown an i386\n", stderr);
    if (!symbols)
        fputs("reprise: the guest's kernel has no symbols here; --symbols FILE gives some\n",
              stderr);
}

static int prepare_gdb(const struct gdb_args *a, const struct files *f, const char *address,
                       struct waiting_gdb *g, struct err *err)
{
    int go[2];
    if (pipe2(go, O_CLOEXEC))
        return err_errno(err, "cannot make a pipe");
    fflush(NULL);
    g->go = go[1];
    g->pid = fork();
    if (g->pid == 0) {
        close(go[1]);
        become_gdb(a, f, address, go[0]);
    }
    close(go[0]);
    return g->pid < 0 ? err_errno(err, "cannot start %s", a->program) : 0;
}

/* What comes after "--" is gdb's. */
static void split(struct gdb_args *a, int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--"))
            continue;
        a->extra = argv + i + 1;
        a->nextra = (unsigned)(*argc - i - 1);
        *argc = i;
    }
}

static int session(struct gdb_args args, const char *what, int argc, char **argv)
{
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "[DIR] [-- GDB-ARGUMENT...]",
                              .doc = what,
                              .children = travel_option_children};
    struct gdb_args a = args;
    split(&a, &argc, argv);
    option_parse(&argp, argc, argv, &a);
    a.finds = a.finds && !a.has_to && !a.process;
    if (a.finds)
        a.process = "";
    struct err err = {0};
    struct travel tr;
    struct files f = {0};
    struct waiting_gdb g = {.go = -1};
    struct gdb_go go = {0};
    const struct travel_with with = {.named = &a.disks.where,
                                     .trust = a.disks.trust,
                                     .memory = a.budget,
                                     .history = true,
                                     .code_cache = a.code_cache};
    enum timeline_stop stop;
    char process[16] = "";
    if (a.symbols && access(a.symbols, R_OK)) {
        err_errno(&err, "--symbols %s", a.symbols);
        return cmd_fail(&err);
    }
    interrupt_catch();
    struct debug_session *s = debug_listen(NULL, &err);
    int code = s ? make_files(&f, &err) : err.code;
    if (!code)
        code = prepare_gdb(&a, &f, debug_address(s), &g, &err);
    sandbox_write(a.dir); /* marks */
    if (a.symbols)
        sandbox_read(a.symbols);
    sandbox_outside()->renderer = true;
    sandbox_outside()->pictures = true;
    if (!code)
        code = travel_open(&tr, a.dir, &with, &err);
    if (code) {
        debug_drop(s);
        remove_files(&f);
        return cmd_fail(&err);
    }
    if (a.finds) {
        i32 pid;
        code = debug_target_find(&tr, &a.to, &pid, &err);
        if (!code)
            snprintf(process, sizeof(process), "%d", pid);
    }
    if (!code)
        code = travel_to(&tr, &a.to, &stop, &err);
    if (!code && a.symbols)
        code = check_symbols(&tr, a.symbols, &err);
    if (!code && a.process && !a.has_to && !a.finds)
        code = debug_process_seek(&tr, a.process, process, &err);
    if (!code && a.process && a.has_to)
        debug_process_begun(&tr, &a.to, a.process, process);
    if (!code)
        code = debug_start(&tr, s, *process ? process : a.process, &err);
    else
        debug_drop(s);
    if (!code && a.process)
        code = debug_process_file(s, go.path, &go.id, &err);
    if (!code) {
        unsigned view = gdb_view(machine_vcpu(timeline_machine(tr.t)), 0);
        u8 own = what_gdb_gets(&tr, &a, &f, view);
        if (!a.process)
            say_what_is_shown(view, own & GO_SYMBOLS || a.symbols);
        interrupt_ignore();   /* Ctrl-C is gdb's, which tells us */
        tr.way.shown = false; /* the terminal is gdb's too */
        go.own = own;
        if (file_write_on(g.go, &go, sizeof(go)))
            code = debug_serve(&tr, g.pid, &err);
        else
            code = cmd_fail((err_errno(&err, "cannot start %s", a.program), &err));
    } else {
        code = cmd_fail(&err);
    }
    debug_end(&tr);
    remove_files(&f);
    travel_close(&tr);
    return code;
}

int cmd_gdb(int argc, char **argv)
{
    const struct gdb_args a = {.program = "gdb", .to = {.kind = POINT_END}};
    return session(a, doc, argc, argv);
}

int cmd_debug(int argc, char **argv)
{
    const struct gdb_args a = {.program = "gdb", .to = {.kind = POINT_END}, .finds = true};
    return session(a, debug_doc, argc, argv);
}
