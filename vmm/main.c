/* `reprise`: finds the sub-command and runs it. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "version.h"

static const struct verb commands[] = {
    {"record", cmd_record},   {"replay", cmd_replay},
    {"info", cmd_info},       {"events", cmd_events},
    {"trace", cmd_trace},     {"diff", cmd_diff},
    {"symbols", cmd_symbols}, {"core", cmd_core},
    {"gdb", cmd_gdb},         {"checkpoint", cmd_checkpoint},
    {"disk", cmd_disk},       {"pcap", cmd_pcap},
    {"gpu", cmd_gpu},         {"doctor", cmd_doctor},
};

const char *argp_program_version = "reprise " REPRISE_VERSION;

static const char doc[] =
    "Records a whole virtual machine and replays it, instruction for instruction.\n\n"
    "Commands:\n"
    "  record      run a machine and record it\n"
    "  replay      run a recording again, exactly; or to a point, or for gdb\n"
    "  gdb         gdb at any point of it, forwards and backwards\n"
    "  checkpoint  write checkpoints into it, so that it opens anywhere at once\n"
    "  info        what a recording holds\n"
    "  events      its log, as text or JSON\n"
    "  trace       instructions executed between two points\n"
    "  diff        where two recordings part\n"
    "  symbols     the guest kernel's symbols, as a list or an ELF file\n"
    "  core        a core dump of the guest, for crash, drgn and gdb\n"
    "  disk        its disks as they were at any point\n"
    "  pcap        what its networks carried, for Wireshark\n"
    "  gpu         its stream of GPU commands\n"
    "  doctor      what this host can do for it\n\n"
    "`reprise COMMAND --help` says more about each." EXIT_HELP;

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
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
    if (c.chosen->run == cmd_record || c.chosen->run == cmd_replay || c.chosen->run == cmd_gdb)
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
