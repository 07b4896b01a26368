/*
 * Fuzz target: what a gdb peer may send. Each input once as it is and once with its packets'
 * checksums repaired, so that what lies beyond them is reached too; after every run the owner
 * stops, for a reason the input's size decides. The machine is a toy.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/gdb_fake.h"
#include "mutate.h"
#include "replay/gdb/server.h"

#define MAX_TURNS 1000

static struct machine *machine(void *opaque)
{
    return opaque;
}

static void process(void *opaque, struct gdb_process *out)
{
    *out = (struct gdb_process){0x1000, true, 1, "init"};
}

static int set_points(void *opaque, const struct gdb_point *points, size_t count, struct err *err)
{
    const struct gdb_target target = {.opaque = opaque, .machine = machine, .process = process};
    for (size_t i = 0; i < count; i++)
        gdb_condition_holds(points[i].conditions, &target);
    return count > 30 ? err_set(err, -1, "too many") : 0;
}

static enum gdb_monitor monitor(void *opaque, const char *command, FILE *out)
{
    fprintf(out, "%s", command);
    return (enum gdb_monitor)(strlen(command) % 4);
}

/* Leaves out what lies between packets, and hangs up, and makes the checksum of every packet right.
 * Returns what is left. */
static size_t repair(u8 *data, size_t size)
{
    bool inside = false;
    size_t left = 0, tail = 0;
    for (size_t at = 0; at < size; at++) {
        u8 c = data[at];
        inside = inside || c == '$';
        if (inside || tail || c == '+' || c == '-' || c == 3)
            data[left++] = c;
        if (tail)
            tail--;
        if (inside && c == '#') {
            inside = false;
            tail = 2;
        }
    }
    size = left;
    for (size_t at = 0; at < size; at++) {
        if (data[at] != '$')
            continue;
        u8 sum = 0;
        for (at++; at < size && data[at] != '#' && data[at] != '$'; at++)
            sum = (u8)(sum + data[at]);
        if (at + 2 < size && data[at] == '#') {
            data[at + 1] = (u8) "0123456789abcdef"[sum >> 4];
            data[at + 2] = (u8) "0123456789abcdef"[sum & 15];
            at += 2;
        } else {
            at--;
        }
    }
    return size;
}

static void check(const struct machine *m)
{
    u32 mxcsr;
    memcpy(&mxcsr, m->cpu.xsave + 24, sizeof(mxcsr));
    if ((m->cpu.rflags & ~0x3f7fd5ull) != 2 || mxcsr >> 16)
        abort();
}

static void serve(const u8 *data, size_t size)
{
    struct machine *m = fake_machine(size % 2 ? CPU_X86_64_V2 : CPU_X86_64_V3);
    struct gdb_target target = {.opaque = m,
                                .process = process,
                                .can_reverse = size % 3,
                                .machine = machine,
                                .set_points = set_points,
                                .monitor = monitor};
    if (size % 5 < 2)
        fake_process(&target);
    struct gdb_server *s;
    struct gdb_resume resume;
    struct err err;
    int in = memfd_create("rsp", MFD_CLOEXEC), out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (in < 0 || out < 0 || write(in, data, size) != (ssize_t)size || lseek(in, 0, SEEK_SET) ||
        server_create_bare(&s, &target, &err))
        abort();
    server_attach(s, in, out);
    for (unsigned turn = 0; turn < MAX_TURNS; turn++) {
        if (gdb_server_wait(s, &resume, &err))
            abort();
        check(m);
        if (resume.action == GDB_GONE)
            break;
        struct gdb_stop stop = {.reason =
                                    (enum gdb_stop_reason)((size + turn) % (GDB_STOP_SIGNAL + 1)),
                                .watch = GDB_WATCH_READ,
                                .status = (int)turn,
                                .path = "/bin/x"};
        gdb_server_poll(s);
        gdb_server_print(s, "running");
        gdb_server_stopped(s, &stop);
    }
    gdb_server_destroy(s);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    u8 *copy = malloc(size + 1);
    memcpy(copy, data, size);
    serve(copy, size);
    size = repair(copy, size);
    serve(copy, size);
    free(copy);
    return 0;
}

/* A conversation with a packet of every kind. */
u8 *fuzz_sample(size_t *size)
{
    static const char text[] =
        "+$qSupported:swbreak+;hwbreak+;multiprocess+;fork-events+;vfork-events+;exec-events+#00+$"
        "QStartNoAckMode#00$?#00$g#00$p10#00$pffffffff#00"
        "$P0=1122334455667788#00$P11=02000000#00$P20=7f030000#00$P38=801f0000#00"
        "$P18=0000000000000080ff3f#00$P49=0000000000000000#00$P10=0000100000000000#00$G00#00"
        "$m1000,10#00$m4ff0,ffffffff#00$M1000,2:1122#00$X1000,3:a}\x03*\"#00$x1000,20#00"
        "$Qqemu.PhyMemMode:1#00$m0,10#00$M3fff,1:00#00$Z2,100,8#00$z2,100,8#00"
        "$Qqemu.PhyMemMode:0#00$qqemu.PhyMemMode#00"
        "$Z0,1000,1;Xc,260000164024001060001327#00$Z1,1000,1#00$Z4,2000,1000#00$Z3,2,2#00"
        "$Z0,2000,1;X1f,260000164016082211132000"
        "1d26004e16402205132000"
        "1d220021001f220127#00"
        "$Qreprise.Conditions:2,2100,4;X3,220127;X3,220027/3,2200,8;X3,220127#00$Z2,2100,4#00"
        "$Qreprise.Seen#00$Qreprise.Conditions:#00$Z2,2100,4#00"
        "$Qreprise.Back:1000;0,3;1,352;-,10;2,1f/1,0;0,7#00$bs#00$Qreprise.Back:#00"
        "$c#00\x03$s#00$vCont?#00$vCont;s:1;c#00$vCont;r1000,1010:1#00$C05;1000#00$bc#00$bs#00"
        "$z0,1000,1#00$z1,1000,1#00$H"
        "g1#00$Hc-1#00$T1#00$qC#00$qfThreadInfo#00$qsThreadInfo#00"
        "$qThreadExtraInfo,1#00$qAttached#00$qRcmd,68656c70#00$qreprise.Moved#00$qOffsets#00$"
        "qSymbol::#00"
        "$Hgp5.6#00$Tp7.-1#00$vCont;c:p7.-1#00$QCatchSyscalls:1;1;3b#00$QCatchSyscalls:0#00"
        "$QPassSignals:e;10;4a#00$qXfer:siginfo:read::0,80#00$qXfer:auxv:read::0,100#00$D;7#00"
        "$qreprise.Shows#00$Qreprise.Forks:1#00$vFile:setfs:0#00$vFile:open:2f61,0,0#00"
        "$vFile:fstat:0#00$vFile:pread:0,40,3#00$vFile:readlink:2f61#00$vFile:close:0#00"
        "$qXfer:features:read:target.xml:0,400#00$qXfer:threads:read::0,1000#00-$vKill;1#00";
    u8 *data = malloc(sizeof(text) - 1);
    *size = sizeof(text) - 1;
    memcpy(data, text, *size);
    return data;
}
