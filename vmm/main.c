/* `reprise`: finds the sub-command and runs it. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cmd/cmd.h"
#include "version.h"

/* The last column is all that each still may, once it knows what its recording is:
 * docs/security.md. */
static const struct verb commands[] = {
    {"record", cmd_record, SANDBOX_CODE | SANDBOX_LISTEN | SANDBOX_TERMINAL},
    {"run", cmd_run, 0},
    {"exec", cmd_exec, 0},
    {"cp", cmd_cp, 0},
    {"shutdown", cmd_shutdown, 0},
    {"hunt", cmd_hunt, 0},
    {"simplify", cmd_simplify, 0},
    {"ls", cmd_ls, 0},
    {"rm", cmd_rm, 0},
    {"replay", cmd_replay, SANDBOX_READ | SANDBOX_CODE},
    {"info", cmd_info, SANDBOX_READ},
    {"events", cmd_events, SANDBOX_READ},
    {"trace", cmd_trace, SANDBOX_READ | SANDBOX_CODE},
    {"diff", cmd_diff, SANDBOX_READ},
    {"symbols", cmd_symbols, SANDBOX_READ | SANDBOX_CODE},
    {"ps", cmd_ps, SANDBOX_READ | SANDBOX_CODE},
    {"marks", cmd_marks, SANDBOX_READ | SANDBOX_CODE},
    {"core", cmd_core, SANDBOX_READ | SANDBOX_CODE},
    {"gdb", cmd_gdb, SANDBOX_READ | SANDBOX_CODE},
    {"debug", cmd_debug, SANDBOX_READ | SANDBOX_CODE},
    {"checkpoint", cmd_checkpoint, SANDBOX_READ | SANDBOX_CODE},
    {"disk", cmd_disk, SANDBOX_READ | SANDBOX_CODE},
    {"pcap", cmd_pcap, SANDBOX_READ | SANDBOX_CODE},
    {"gpu", cmd_gpu, 0},
    {"doctor", cmd_doctor, 0},
    {"pack", cmd_pack, SANDBOX_READ | SANDBOX_CODE},
    {"unpack", cmd_unpack, SANDBOX_READ},
    {"verify", cmd_verify, SANDBOX_READ | SANDBOX_CODE},
    {"sign", cmd_sign, SANDBOX_READ},
};

const char *argp_program_version = "reprise " REPRISE_VERSION;

static const char doc[] =
    "Records a whole virtual machine and replays it, instruction for instruction.\n\n"
    "Commands:\n"
    "  record      run a machine and record it\n"
    "  run         run a program of this host and record it\n"
    "  exec        run a program in a guest that is being recorded\n"
    "  cp          copy files into such a guest, and out of it\n"
    "  shutdown    power it off\n"
    "  hunt        record it with one seed after the other, until it fails\n"
    "  simplify    which turns of CPUs a failure needs, of one with --chaos\n"
    "  ls          the recordings of run\n"
    "  rm          remove recordings\n"
    "  replay      run a recording again, exactly; or to a point, or for gdb\n"
    "  gdb         gdb at any point of it, forwards and backwards\n"
    "  debug       gdb on the process that crashed, or that run recorded\n"
    "  checkpoint  write checkpoints into it, so that it opens anywhere at once\n"
    "  info        what a recording holds\n"
    "  events      its log, as text or JSON\n"
    "  trace       instructions executed between two points\n"
    "  diff        where two recordings part\n"
    "  symbols     the guest kernel's symbols, as a list or an ELF file\n"
    "  ps          every process that the guest had\n"
    "  marks       instants that have names: the guest's marks, crashes, a panic\n"
    "  core        a core dump of the guest, for crash, drgn and gdb\n"
    "  disk        its disks as they were at any point\n"
    "  pcap        what its networks carried, for Wireshark\n"
    "  gpu         its stream of GPU commands\n"
    "  pack        a recording as one file, to carry anywhere\n"
    "  unpack      a directory of it again\n"
    "  verify      is it what was recorded, and signed? hashes, signature, replay\n"
    "  sign        put a signature into it\n"
    "  doctor      what this host can do for it\n\n"
    "Where a command takes the DIR of a recording it takes a packed one, FILE.reprise, too.\n"
    "`reprise help COMMAND` or `reprise COMMAND --help` says more about each." EXIT_HELP;

/* A file of ours must not become descriptor 0, 1 or 2: what is printed would end up in it. */
static void open_standard_files(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static FILE *unguarded;

static void end_guard(void)
{
    FILE *guard = stdout;
    stdout = unguarded;
    fclose(guard);
}

/* Most of what commands print are names and texts from recordings. Consoles go to the descriptor,
 * as they are. */
static void guard_standard_output(void)
{
    bool terminal = isatty(STDOUT_FILENO);
    FILE *out = text_guard(stdout);
    if (!out)
        return;
    setvbuf(out, NULL, terminal ? _IOLBF : _IOFBF, 1 << 16);
    unguarded = stdout;
    stdout = out;
    atexit(end_guard);
}

/* `reprise help [COMMAND...]` and -h, as argp knows them. Returns argc. */
static int ask_for_help(int argc, char **argv)
{
    static char help[] = "--help";
    if (argc >= 2 && !strcmp(argv[1], "-h"))
        argv[1] = help;
    if (argc < 2 || strcmp(argv[1], "help"))
        return argc;
    for (int i = 1; i + 1 < argc; i++)
        argv[i] = argv[i + 1];
    argv[argc - 1] = help;
    return argc;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = verb_parse, .args_doc = "COMMAND [OPTION...]", .doc = doc};
    struct verb_choice c = {.verbs = commands, .n = ARRAY_SIZE(commands), .what = "command"};
    argp_err_exit_status = EX_BAD_USAGE;
    /* A reader that goes away or a size limit must not end a recording: both are errors of write.
     * Commands that only print end with their reader, as usual. */
    signal(SIGXFSZ, SIG_IGN);
    open_standard_files();
    guard_standard_output();
    argc = ask_for_help(argc, argv);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
    if (c.chosen->run == cmd_record || c.chosen->run == cmd_replay || c.chosen->run == cmd_gdb ||
        c.chosen->run == cmd_debug)
        signal(SIGPIPE, SIG_IGN);
    int code = verb_run(&c, "reprise");
    bool earlier = ferror(stdout);
    if (fflush(stdout) || earlier) {
        fprintf(stderr, "reprise: cannot write to standard output%s%s\n", earlier ? "" : ": ",
                earlier ? "" : strerror(errno));
        code = code == EX_FINE ? EX_ERROR : code;
    }
    return code;
}
