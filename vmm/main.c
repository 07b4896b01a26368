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
#include "cmd/command_table.h"
#include "version.h"

const char *argp_program_version = "reprise " REPRISE_VERSION;

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
    struct verb_choice c = {
        .verbs = reprise_commands, .n = reprise_command_count, .what = "command"};
    argp_err_exit_status = EX_BAD_USAGE;
    /* A reader that goes away or a size limit must not end a recording: both are errors of write.
     * Commands that only print end with their reader, as usual. */
    signal(SIGXFSZ, SIG_IGN);
    open_standard_files();
    guard_standard_output();
    argc = ask_for_help(argc, argv);
    verb_choose(&c, "Records a whole virtual machine and replays it, instruction for instruction.",
                "Where a command takes the DIR of a recording it takes a packed one, "
                "FILE.reprise, too.\n"
                "`reprise help COMMAND` or `reprise COMMAND --help` says more about "
                "each." EXIT_HELP,
                argc, argv);
    if (c.chosen->run == cmd_record || c.chosen->run == cmd_import_libvirt ||
        c.chosen->run == cmd_replay || c.chosen->run == cmd_gdb || c.chosen->run == cmd_debug)
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
