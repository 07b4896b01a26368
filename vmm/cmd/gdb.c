/* `reprise gdb`: starts gdb on a recording, attached and with the guest kernel's symbols. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/visit.h"

enum { O_TO = 256, O_SYMBOLS, O_BUDGET, O_GDB };

#define EXTRA_MAX 64

/* clang-format off */
static const struct argp_option options[] = {
    {"to", O_TO, "POINT", 0, "Start there (default: the recording's end)", 0},
    {"symbols", O_SYMBOLS, "FILE", 0, "A vmlinux with debug information instead of the symbols that the guest's kernel has of itself", 0},
    {"program", O_GDB, "FILE", 0, "The gdb to start (default: gdb)", 0},
    {"checkpoint-memory", O_BUDGET, "SIZE", 0, "Memory for checkpoints (default: a quarter of what is free)", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Starts gdb at a point of a recording. Running backwards works: reverse-continue, "
    "reverse-step, reverse-finish; `monitor help` shows what else there is. Arguments behind -- "
    "go to gdb. " POINT_HELP EXIT_HELP;

struct gdb_args {
    const char *dir, *symbols, *program;
    struct point to;
    u64 budget;
    const char *extra[EXTRA_MAX];
    unsigned nextra;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct gdb_args *a = state->input;
    switch (key) {
    case O_TO: option_point(state, arg, "--to", &a->to); break;
    case O_SYMBOLS: a->symbols = arg; break;
    case O_GDB: a->program = arg; break;
    case O_BUDGET:
        a->budget = option_size(state, arg, "--checkpoint-memory");
        if (!a->budget)
            argp_error(state, "--checkpoint-memory: cannot be 0");
        break;
    case ARGP_KEY_ARG:
        if (!a->dir)
            a->dir = arg;
        else if (!state->quoted || state->next <= state->quoted)
            argp_error(state, "only one recording at a time");
        else if (a->nextra == EXTRA_MAX)
            argp_error(state, "too many arguments for gdb");
        else
            a->extra[a->nextra++] = arg;
        break;
    case ARGP_KEY_END: option_need_recording(state, a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct files {
    char dir[PATH_MAX], symbols[PATH_MAX + 32], socket[PATH_MAX + 32], init[PATH_MAX + 32];
};

/* What gdb reads first. `monitor goto` moves the machine behind gdb's back: a hook makes gdb forget
 * what it knows, without a word if it has Python. */
static const char init_text[] = "set confirm off\n"
                                "set architecture i386:x86-64\n"
                                "define hookpost-monitor\n"
                                "maintenance flush dcache\n"
                                "maintenance flush register-cache\n"
                                "end\n"
                                "python\n"
                                "def reprise_flush():\n"
                                "    for what in ('dcache', 'register-cache'):\n"
                                "        gdb.execute('maintenance flush ' + what, to_string=True)\n"
                                "end\n"
                                /* Entries of the kernel by their names, not as signal handlers. */
                                "python\n"
                                "from gdb.FrameDecorator import FrameDecorator\n"
                                "class Entry(FrameDecorator):\n"
                                "    def function(self):\n"
                                "        return self.inferior_frame().name() or 2 * '?'\n"
                                "class Entries:\n"
                                "    name, priority, enabled = 'reprise', 100, True\n"
                                "    def filter(self, frames):\n"
                                "        return map(Entry, frames)\n"
                                "gdb.frame_filters['reprise'] = Entries()\n"
                                "end\n"
                                "define hookpost-monitor\n"
                                "python reprise_flush()\n"
                                "end\n";

static int make_files(struct files *f, struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(f->dir, sizeof(f->dir), "%s/reprise-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(f->dir))
        return err_errno(err, "cannot create a directory %s", f->dir);
    snprintf(f->symbols, sizeof(f->symbols), "%s/guest.elf", f->dir);
    snprintf(f->socket, sizeof(f->socket), "unix:%s/gdb", f->dir);
    snprintf(f->init, sizeof(f->init), "%s/init", f->dir);
    FILE *init = fopen(f->init, "we");
    bool good = init && fputs(init_text, init) >= 0;
    if (!init || fclose(init) || !good)
        return err_errno(err, "cannot write %s", f->init);
    return 0;
}

static void remove_files(const struct files *f)
{
    unlink(f->symbols);
    unlink(f->init);
    unlink(f->socket + strlen("unix:"));
    rmdir(f->dir);
}

/* The kernel's own symbols as a file; without any gdb works too. */
static bool write_symbols(struct travel *tr, const struct files *f)
{
    const struct symbols *s = travel_symbols(tr);
    struct elf_output out;
    struct err err;
    if (!s || elf_output_open(&out, f->symbols, true, &err))
        return false;
    if (symbols_write_elf(s, out.file, &err)) {
        elf_output_discard(&out);
        return false;
    }
    return elf_output_commit(&out, &err) == 0;
}

static pid_t start_gdb(const struct gdb_args *a, const struct files *f, bool own, struct err *err)
{
    const char *argv[EXTRA_MAX + 24];
    char file[PATH_MAX + 64], target[PATH_MAX + 64];
    unsigned n = 0;
    snprintf(file, sizeof(file), "file %s", own ? f->symbols : a->symbols ? a->symbols : "");
    snprintf(target, sizeof(target), "target remote %s", f->socket + strlen("unix:"));
    argv[n++] = a->program;
    argv[n++] = "-q";
    argv[n++] = "-x";
    argv[n++] = f->init;
    if (own || a->symbols) {
        argv[n++] = "-ex";
        argv[n++] = file;
    }
    argv[n++] = "-ex";
    argv[n++] = target;
    for (unsigned i = 0; i < a->nextra; i++)
        argv[n++] = a->extra[i];
    argv[n] = NULL;
    pid_t child = fork();
    if (child < 0)
        return err_errno(err, "cannot start %s", a->program);
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        execvp(a->program, (char *const *)argv);
        fprintf(stderr, "reprise: cannot start %s: %s%s\n", a->program, strerror(errno),
                errno == ENOENT ? " (is gdb installed?)" : "");
        _exit(127);
    }
    return child;
}

static volatile bool interrupted;

int cmd_gdb(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "DIR [-- GDB-ARGUMENT...]", .doc = doc};
    struct gdb_args a = {.program = "gdb", .to = {.kind = POINT_END}};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    struct err err = {0};
    struct travel tr;
    struct files f;
    enum timeline_stop stop;
    if (a.symbols && access(a.symbols, R_OK)) {
        err_errno(&err, "--symbols %s", a.symbols);
        return cmd_fail(&err);
    }
    travel_catch_interrupt(&interrupted);
    if (travel_open(&tr, a.dir, a.budget, &err))
        return cmd_fail(&err);
    tr.interrupted = &interrupted;
    int code = travel_to(&tr, &a.to, &stop, &err);
    if (!code)
        code = make_files(&f, &err);
    if (code) {
        travel_close(&tr);
        return cmd_fail(&err);
    }
    bool own = !a.symbols && write_symbols(&tr, &f);
    if (!own && !a.symbols)
        fprintf(stderr, "reprise: the guest's kernel has no symbols here; --symbols FILE gives "
                        "some\n");
    signal(SIGINT, SIG_IGN); /* Ctrl-C is gdb's, which tells us */
    interrupted = false;
    tr.progress = false; /* the terminal is gdb's too */
    code = debug_start(&tr, f.socket, &err);
    if (!code) {
        pid_t child = start_gdb(&a, &f, own, &err);
        code = child < 0 ? cmd_fail(&err) : debug_serve(&tr, child, &err);
    } else {
        code = cmd_fail(&err);
    }
    debug_end(&tr);
    remove_files(&f);
    travel_close(&tr);
    return code;
}
