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

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
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

struct choice {
    int argc;
    char **argv;
    int (*run)(int argc, char **argv);
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct choice *c = state->input;
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "which command?");
    if (key != ARGP_KEY_ARG)
        return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (!strcmp(arg, commands[i].name))
            c->run = commands[i].run;
    if (!c->run)
        argp_error(state, "there is no command '%s'", arg);
    /* The rest of the line belongs to the command. */
    c->argv = state->argv + state->next - 1;
    c->argc = state->argc - state->next + 1;
    state->next = state->argc;
    return 0;
}

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
        .parser = parse, .args_doc = "COMMAND [OPTION...]", .doc = doc};
    struct choice c = {0};
    argp_err_exit_status = EX_BAD_USAGE;
    /* A reader that goes away or a size limit must not end a recording: both are errors of write.
     * Commands that only print end with their reader, as usual. */
    signal(SIGXFSZ, SIG_IGN);
    open_standard_files();
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
    if (c.run == cmd_record || c.run == cmd_replay || c.run == cmd_gdb)
        signal(SIGPIPE, SIG_IGN);
    char name[64];
    snprintf(name, sizeof(name), "reprise %s", c.argv[0]);
    c.argv[0] = name;
    int code = c.run(c.argc, c.argv);
    bool earlier = ferror(stdout);
    if (fflush(stdout) || earlier) {
        fprintf(stderr, "reprise: cannot write to standard output%s%s\n", earlier ? "" : ": ",
                earlier ? "" : strerror(errno));
        code = code == EX_FINE ? EX_ERROR : code;
    }
    return code;
}
