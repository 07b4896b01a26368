/* The server: conversations about a machine. */
#define _GNU_SOURCE
#include "gdb_peer.h"

static void test_queries(void **state)
{
    static const char *const unknown[] = {"!",         "qOffsets",
                                          "qSymbol::", "vMustReplyEmpty",
                                          "",          "QThreadSuffixSupported",
                                          "qTStatus",  "vCtrlC",
                                          "R00",       "vFile:open:2f,0,0",
                                          "Z5,0,1",    "bx"};
    for (unsigned i = 0; i < ARRAY_SIZE(unknown); i++)
        expect(unknown[i], "");
    expect("qAttached", "1");
    expect("qC", "QC1");
    expect("qfThreadInfo", "m1");
    expect("qsThreadInfo", "l");
    expect("qThreadExtraInfo,1", "435055203020287"
                                 "2756e6e696e67292c2043504c2030");
    expect("qThreadExtraInfo,2", "E01");
    expect("Hg1", "OK");
    expect("Hg0", "OK");
    expect("Hc-1", "OK");
    expect("Hg2", "E01");
    expect("H", "E01");
    expect("T1", "OK");
    expect("T7", "E01");
    expect("vCont?", "vCont;c;C;s;S;r");
    expect("qqemu.PhyMemMode", "0");
    expect("Qqemu.PhyMemMode:1", "OK");
    expect("qqemu.PhyMemMode", "1");
    expect("Qqemu.PhyMemMode:2", "E01");
    expect("qXfer:features:read:other.xml:0,10", "E00");
    expect("qXfer:features:read:target.xml:0,8", "m<?xml ve");
    expect("qXfer:features:read:target.xml:ffffff,8", "E01");
    expect("qXfer:features:read:target.xml:0", "E01");
    expect("qXfer:threads:read::0,1000",
           "l<?xml version=\"1.0\"?><threads><thread id=\"1\" core=\"0\">CPU 0 (running), CPL 0"
           "</thread></threads>");
}

static void test_supported(void **state)
{
    struct gdb_resume resume;
    server->no_ack = false;
    say(peer, "qSupported:multiprocess+;swbreak+", 33);
    assert_int_equal(resumed("bc", &resume), GDB_REVERSE_CONTINUE);
    const char *text = hear(peer);
    assert_non_null(strstr(text, "PacketSize=4000"));
    assert_non_null(strstr(text, "ReverseContinue+"));
    assert_true(server->tells_break);
    server->running = false;
    server->target.can_reverse = false;
    say(peer, "qSupported", 10);
    say(peer, "bc", 2);
    assert_int_equal(resumed("c", &resume), GDB_CONTINUE);
    assert_null(strstr(hear(peer), "Reverse"));
    assert_string_equal(hear(peer), ""); /* bc is not known then */
}

static void test_registers(void **state)
{
    t.m->cpu.gpr[RBX] = 0x1122334455667788;
    expect("p1", "8877665544332211");
    expect("p39", "E01"); /* ymm0h: the model has no AVX */
    expect("p1000", "E01");
    expect("p", "E01");
    expect("P1=0100000000000000", "OK");
    assert_int_equal(t.m->cpu.gpr[RBX], 1);
    assert_int_equal(t.writes, 1);
    assert_int_equal(t.m->edits, 1);
    expect("P1=0100000000000000", "OK"); /* no change: no write */
    assert_int_equal(t.writes, 1);
    expect("P1=01", "E01");
    expect("P1=010000000000000g", "E01");
    expect("P4c=0000000000000000", "E.cr0 cannot be changed");
    assert_int_equal(t.writes, 1);
    t.refuse_writes = true;
    expect("P1=0200000000000000", "E.not in a recording");
    assert_int_equal(t.m->cpu.gpr[RBX], 1);
    t.m->model = CPU_X86_64_V3;
    server->looked = false;
    expect("p39", "00000000000000000000000000000000");
}

static void test_all_registers(void **state)
{
    struct gdb_resume resume;
    char packet[GDB_PACKET_SIZE + 8], all[GDB_PACKET_SIZE];
    size_t digits = 0;
    for (unsigned n = 0; n < GDB_REGISTERS; n++)
        digits += gdb_reg_find(n, 0) ? gdb_reg_find(n, 0)->bits / 4u : 0;
    say(peer, "g", 1);
    resumed("c", &resume);
    server->running = false;
    strcpy(all, hear(peer));
    assert_int_equal(strlen(all), digits);
    /* With another RAX, the same otherwise; sent in pieces, as a long one may arrive. */
    snprintf(packet, sizeof(packet), "G%s", all);
    packet[1] = '7';
    u8 sum = 0;
    for (const char *p = packet; *p; p++)
        sum = (u8)(sum + (u8)*p);
    assert_int_equal(send(peer, "$", 1, 0), 1);
    assert_int_equal(send(peer, packet, 100, 0), 100);
    server->running = true;
    assert_false(gdb_server_poll(server));
    server->running = false;
    assert_int_equal(send(peer, packet + 100, strlen(packet) - 100, 0), strlen(packet) - 100);
    snprintf(packet, sizeof(packet), "#%02x", sum);
    assert_int_equal(send(peer, packet, 3, 0), 3);
    resumed("c", &resume);
    server->running = false;
    assert_string_equal(hear(peer), "OK");
    assert_int_equal(t.m->cpu.gpr[RAX], 0x70);
    expect("G00", "E01");
}

static void test_memory(void **state)
{
    char text[64];
    snprintf(text, sizeof(text), "%02x%02x", t.m->ram[0], t.m->ram[1]);
    expect("m1000,2", text);
    expect("m0,2", "E01");
    expect("m1000", "E01");
    expect("m1000,", "E01");
    expect("mffffffffffffffff1,1", "E01");
    expect("m4fff,10", "38"); /* the last byte there is */
    expect("mffffffffffffffff,ffffffffffffffff", "E01");
    expect("x1000,1", "b\0");
    expect("M1000,2:1234", "OK");
    assert_int_equal(t.m->ram[1], 0x34);
    assert_int_equal(t.writes, 1);
    expect("M1000,2:1234", "OK");
    assert_int_equal(t.writes, 1);
    expect("M1000,3:1234", "E01");
    expect("M4fff,2:1234", "E01"); /* not even the first byte */
    expect("m4fff,1", "38");
    expect("Mffffffff,ffffffffffffffff:00", "E01");
    expect_bytes("X1000,3:a}\x03z", 12, "OK");
    assert_memory_equal(t.m->ram, "a#z", 3);
    expect("X1000,0:", "OK");
    expect("X1000,2:a", "E01");
    expect("Qqemu.PhyMemMode:1", "OK");
    expect("m0,3", "61237a");
    expect("m3fff,8", "38");
    expect("M0,1:62", "OK");
    assert_int_equal(t.m->ram[0], 'b');
    expect("M4000,1:62", "E01");
    t.refuse_writes = true;
    expect("M0,1:63", "E.not in a recording");
    assert_int_equal(t.m->ram[0], 'b');
}

/* More than fits: as much as does. */
static void test_long_read(void **state)
{
    struct gdb_resume resume;
    say(peer, "m1000,ffffffff", 14);
    resumed("c", &resume);
    const char *text = hear(peer);
    assert_int_equal(strlen(text), GDB_PACKET_SIZE);
}

static void test_points(void **state)
{
    expect("Z0,1000,1", "OK");
    assert_int_equal(t.npoints, 1);
    assert_null(t.points[0].conditions);
    expect("Z0,1000,1;X3,220027X3,220127", "OK"); /* again, with conditions */
    assert_int_equal(t.npoints, 1);
    assert_true(gdb_condition_holds(t.points[0].conditions, &target));
    expect("Z0,1000,1;X3,220027", "OK");
    assert_false(gdb_condition_holds(t.points[0].conditions, &target));
    expect("Z1,ffffffff81000000,1", "OK");
    expect("Z2,ffffffffffffffff,1", "OK");
    expect("Z2,ffffffffffffffff,2", "E.a watchpoint of that length does not exist");
    expect("Z3,0,0", "E.a watchpoint of that length does not exist");
    expect("Qqemu.PhyMemMode:1", "OK");
    expect("Z4,2000,30", "OK");
    expect("Z0,2000,1", "OK");
    assert_int_equal(t.npoints, 5);
    assert_true(t.points[3].physical && t.points[3].length == 0x30);
    assert_false(t.points[4].physical); /* breakpoints are linear */
    expect("Qqemu.PhyMemMode:0", "OK");
    expect("z4,2000,30", "OK"); /* inserted in the other mode */
    expect("z4,2000,30", "OK"); /* not there any more */
    assert_int_equal(t.npoints, 4);
    t.refuse_points = true;
    expect("Z0,3000,1;X3,220027", "E.no room");
    t.refuse_points = false;
    expect("z0,1000,1", "OK");
    assert_int_equal(t.npoints, 3);
    assert_int_equal(t.points[0].kind, GDB_BREAK_HARD);
    expect("Z0", "E01");
    expect("Z0,1,1;X", "E.malformed condition");
    expect("Z0,1,1;X5,2200", "E.malformed condition");
    expect("Z0,1,1;Xffffffffffffffff,22", "E.malformed condition");
    expect("Z0,1,1;X1,zz", "E.malformed condition");
    expect("Z0,1,1;cmds:0,X1,27", "E.malformed condition");
    close(peer);
    struct gdb_resume resume;
    struct err err;
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_GONE);
    assert_int_equal(t.npoints, 0);
}

static void test_monitor(void **state)
{
    struct gdb_resume resume;
    unsigned packets = 0;
    size_t text = 0;
    say(peer, "qRcmd,68", 8);
    resumed("c", &resume);
    server->running = false;
    assert_int_equal(strncmp(hear(peer), "O5468657265206973206e6f", 23), 0); /* "There is no" */
    assert_string_equal(hear(peer), "OK");
    expect("qRcmd,6", "E01");
    expect("qRcmd,zz", "E01");
    say(peer, "qRcmd,6c6f6e67", 14);
    resumed("c", &resume);
    for (const char *p; (p = hear(peer)) != NULL; packets++)
        text += *p == 'O' && p[1] != 'K' ? strlen(p) / 2 : 0;
    assert_int_equal(text, 10 * 7 + 90 * 8 + 900 * 9 + 5);
    assert_true(packets > 3);
    /* The hook behind gdb's `monitor` asks whether to look again: once after each move. */
    server->running = false;
    expect("qreprise.Moved", "0");
    say(peer, "qRcmd,676f", 10);
    resumed("c", &resume);
    server->running = false;
    while (hear(peer))
        ;
    expect("qreprise.Moved", "1");
    expect("qreprise.Moved", "0");
}

/* Conditions of watchpoints come before the watchpoints, and by place. */
static void test_watch_conditions(void **state)
{
    expect("Qreprise.Conditions:2,1000,4;X3,220027/3,2000,8;X3,220027;X3,220127", "OK");
    expect("Z2,1000,4", "OK");
    expect("Z3,2000,8", "OK");
    expect("Z2,2000,8", "OK"); /* another kind, and another length */
    expect("Z2,1000,2", "OK");
    assert_int_equal(t.npoints, 4);
    assert_false(gdb_condition_holds(t.points[0].conditions, &target));
    assert_true(gdb_condition_holds(t.points[1].conditions, &target));
    assert_null(t.points[2].conditions);
    assert_null(t.points[3].conditions);
    expect("Qreprise.Conditions:", "OK");
    expect("Z2,1000,4", "OK");
    assert_null(t.points[0].conditions);
    static const char *const wrong[] = {"0,1000,1;X3,220027", "2,1000,4", "2,1000,4;X3,2200",
                                        "2,1000;X3,220027",   "zz",       "2"};
    for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
        char packet[80];
        snprintf(packet, sizeof(packet), "Qreprise.Conditions:%s", wrong[i]);
        expect(packet, "E.malformed condition");
    }
    expect("Qreprise.Seen", "OK");
    assert_int_equal(t.seen, 1);
}

static void test_back(void **state)
{
    static const struct gdb_insn insns[] = {
        {0x1000, 0}, {0x1003, 1}, {0x1006, 1}, {0x101b, 2}, {0x101c, 2}};
    static const struct gdb_insn entries[] = {{0x1000, 1}, {0x101c, 0}};
    static const char *const wrong[] = {"zz",
                                        "1000;",
                                        "1000;1",
                                        "1000;1,0",
                                        "1000;1,v",
                                        "1000;-,",
                                        "1000x1,1",
                                        "1000;100000000,1",
                                        "fffffffffffffffe;1,22;1,22",
                                        "/",
                                        "1000/1",
                                        "1000/1,1;",
                                        "1000;1,3/2,0/2,0"};
    expect("Qreprise.Back:1000;0,3;1,35;-,10;2,1f/1,0;0,1c", "OK");
    assert_int_equal(t.code.ninsns, ARRAY_SIZE(insns));
    assert_int_equal(t.code.nentries, ARRAY_SIZE(entries));
    for (unsigned i = 0; i < ARRAY_SIZE(insns); i++) {
        assert_int_equal(t.code.insns[i].address, insns[i].address);
        assert_int_equal(t.code.insns[i].group, insns[i].group);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(entries); i++) {
        assert_int_equal(t.code.entries[i].address, entries[i].address);
        assert_int_equal(t.code.entries[i].group, entries[i].group);
    }
    expect("Qreprise.Back:1000;1,1/", "OK");
    for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
        char packet[80];
        snprintf(packet, sizeof(packet), "Qreprise.Back:%s", wrong[i]);
        expect("Qreprise.Back:1000;0,3", "OK");
        expect(packet, "E.malformed list of instructions");
        assert_int_equal(t.code.ninsns, 0);
    }
    expect("Qreprise.Back:", "OK");
    assert_int_equal(t.code.ninsns, 0);
}

static void test_resume(void **state)
{
    static const struct {
        const char *packet;
        enum gdb_action action;
        u64 start, end;
    } cases[] = {
        {"c", GDB_CONTINUE, 0, 0},
        {"C05", GDB_CONTINUE, 0, 0},
        {"s", GDB_STEP, 0, 0},
        {"S05", GDB_STEP, 0, 0},
        {"vCont;c", GDB_CONTINUE, 0, 0},
        {"vCont;C02:1;c", GDB_CONTINUE, 0, 0},
        {"vCont;s:1;c", GDB_STEP, 0, 0},
        {"vCont;s:2;c", GDB_CONTINUE, 0, 0},
        {"vCont;c;s:1", GDB_CONTINUE, 0, 0},
        {"vCont;r1000,1010:1;c", GDB_RANGE_STEP, 0x1000, 0x1010},
        {"bc", GDB_REVERSE_CONTINUE, 0, 0},
        {"bs", GDB_REVERSE_STEP, 0, 0},
    };
    struct gdb_resume resume;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(resumed(cases[i].packet, &resume), cases[i].action);
        assert_int_equal(resume.start, cases[i].start);
        assert_int_equal(resume.end, cases[i].end);
        assert_true(server->running);
        struct gdb_stop stop = {.reason = GDB_STOP_TRAP};
        gdb_server_stopped(server, &stop);
        assert_int_equal(strncmp(hear(peer), "T05", 3), 0);
    }
    expect("vCont;t", "E01");
    expect("vCont;c:2", "E01");
    expect("vCont;r1", "E01");
    expect("vCont;", "E01");
    expect("Cx", "E01");
    expect("c1zz", "E01");
    expect("c800000000000", "E.rip takes canonical addresses only");
    assert_int_equal(resumed("c1234", &resume), GDB_CONTINUE);
    assert_int_equal(t.m->cpu.rip, 0x1234);
    assert_int_equal(t.writes, 1);
}

static void test_stops(void **state)
{
    static const struct {
        struct gdb_stop stop;
        const char *text;
    } cases[] = {
        {{.reason = GDB_STOP_TRAP}, "T05"},
        {{.reason = GDB_STOP_INTERRUPT}, "T02"},
        {{.reason = GDB_STOP_BREAK_SOFT}, "swbreak:;"},
        {{.reason = GDB_STOP_BREAK_HARD}, "hwbreak:;"},
        {{.reason = GDB_STOP_WATCH, .watch = GDB_WATCH_WRITE, .address = ~0ull},
         ";watch:ffffffffffffffff;"},
        {{.reason = GDB_STOP_WATCH, .watch = GDB_WATCH_READ, .address = 1}, "rwatch:1;"},
        {{.reason = GDB_STOP_WATCH, .watch = GDB_WATCH_ACCESS, .address = 1}, "awatch:1;"},
        {{.reason = GDB_STOP_HISTORY_BEGIN}, "replaylog:begin;"},
        {{.reason = GDB_STOP_HISTORY_END}, "replaylog:end;"},
        {{.reason = GDB_STOP_EXITED, .status = 0x103}, "W03"},
        {{.reason = GDB_STOP_EXITED, .status = -6}, "X06"},
    };
    struct gdb_resume resume;
    char first[256];
    server->tells_break = true;
    t.m->cpu.rip = 0x11223344;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        resumed("c", &resume);
        gdb_server_print(server, "hi");
        assert_string_equal(hear(peer), "O6869");
        gdb_server_stopped(server, &cases[i].stop);
        gdb_server_stopped(server, &cases[i].stop); /* ends nothing */
        gdb_server_print(server, "not now");
        snprintf(first, sizeof(first), "%.255s", hear(peer));
        assert_non_null(strstr(first, cases[i].text));
        if (cases[i].stop.reason != GDB_STOP_EXITED)
            assert_non_null(strstr(first, "10:4433221100000000;thread:1;"));
        expect("?", first);
    }
    struct gdb_stop stop = {.reason = GDB_STOP_TRAP, .text = "why"};
    resumed("c", &resume);
    gdb_server_stopped(server, &stop);
    assert_string_equal(hear(peer), "O776879");
    assert_string_equal(hear(peer), "O0a");
}

static void test_interrupt(void **state)
{
    struct gdb_resume resume;
    struct err err;
    assert_int_equal(send(peer, "\x03", 1, 0), 1); /* nothing runs: ignored */
    resumed("c", &resume);
    assert_false(gdb_server_poll(server));
    assert_int_equal(send(peer, "\x03", 1, 0), 1);
    assert_true(gdb_server_poll(server));
    assert_true(gdb_server_poll(server));
    /* The owner forgot to say why it stopped: gdb is not left waiting. */
    gdb_server_wake(server);
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_INTERRUPTED);
    assert_int_equal(strncmp(hear(peer), "T05", 3), 0);
    /* A packet during a run stops it, and is served after the stop reply. */
    resumed("c", &resume);
    say(peer, "qC", 2);
    assert_true(gdb_server_poll(server));
    resumed("c", &resume);
    assert_int_equal(strncmp(hear(peer), "T05", 3), 0);
    assert_string_equal(hear(peer), "QC1");
}

static void test_ends(void **state)
{
    struct gdb_resume resume;
    struct err err;
    assert_int_equal(resumed("vKill;1", &resume), GDB_KILL);
    assert_string_equal(hear(peer), "OK");
    assert_false(gdb_server_connected(server));
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_GONE); /* without an endpoint nobody comes */
}

static void test_vanished(void **state)
{
    struct gdb_resume resume;
    struct err err;
    resumed("c", &resume);
    close(peer);
    peer = -1;
    assert_true(gdb_server_poll(server));
    struct gdb_stop stop = {.reason = GDB_STOP_INTERRUPT};
    gdb_server_print(server, "to nobody");
    gdb_server_stopped(server, &stop);
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_GONE);
}

/* Acknowledgements: one for each packet, '-' for a wrong one, and a packet again when asked. */
static void test_acknowledged(void **state)
{
    static const char sent[] = "$qC#b4$qC#00-$QStartNoAckMode#b0+$qC#00$c#63";
    char heard[256];
    struct gdb_resume resume;
    struct err err;
    server->no_ack = false;
    assert_int_equal(send(peer, sent, sizeof(sent) - 1, 0), sizeof(sent) - 1);
    assert_int_equal(gdb_server_wait(server, &resume, &err), 0);
    assert_int_equal(resume.action, GDB_CONTINUE);
    ssize_t n = recv(peer, heard, sizeof(heard) - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    heard[n] = 0;
    assert_string_equal(heard, "+$QC1#c5-$QC1#c5+$OK#9a$E.wrong checksum#13");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_queries),       CASE(test_supported), CASE(test_registers),
        CASE(test_all_registers), CASE(test_memory),    CASE(test_long_read),
        CASE(test_points),        CASE(test_monitor),   CASE(test_watch_conditions),
        CASE(test_back),          CASE(test_resume),    CASE(test_stops),
        CASE(test_interrupt),     CASE(test_ends),      CASE(test_vanished),
        CASE(test_acknowledged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
