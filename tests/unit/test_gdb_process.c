/* The server, of a process: threads, events, files. */
#define _GNU_SOURCE
#include "gdb_peer.h"

static void begin_process(const char *features)
{
    struct gdb_resume resume;
    server->target.opaque = t.m;
    fake_process(&server->target);
    say(peer, features, strlen(features));
    assert_int_equal(resumed("c", &resume), GDB_CONTINUE);
    server->running = false;
    assert_non_null(hear(peer));
}

static void test_process_threads(void **state)
{
    begin_process("qSupported:multiprocess+;fork-events+;exec-events+");
    assert_true(server->tells_fork && server->tells_exec && !server->tells_vfork);
    expect("qC", "QCp5.6");
    expect("qfThreadInfo", "mp5.5,p5.6,p7.7");
    expect("Tp5.6", "OK");
    expect("Tp7.6", "E01");
    expect("Tp5", "OK");
    expect("Tp8.-1", "E01");
    expect("Hgp7.0", "OK");
    assert_int_equal(server->thread, 7);
    expect("Hgp5.6", "OK");
    assert_int_equal(server->thread, 6);
    expect("Hgp5.", "E01");
    expect("Hgq", "E01");
    expect("D;7", "OK");
    expect("D;7;", "E01");
    expect("D;x", "E01");
    server->multi = false;
    expect("qC", "QC6");
}

static void test_process_resume(void **state)
{
    struct gdb_resume resume;
    begin_process("qSupported:multiprocess+;vfork-events+");
    expect("QPassSignals:e;4a", "OK");
    resumed("vCont;s:p5.6;c:p7.-1", &resume);
    assert_int_equal(resume.action, GDB_STEP);
    assert_int_equal(resume.thread, 6);
    assert_int_equal(resume.process, 5);
    assert_int_equal(resume.tells, GDB_TELLS_VFORK);
    assert_true(gdb_signal_passes(&resume, 14) && gdb_signal_passes(&resume, 62));
    assert_false(gdb_signal_passes(&resume, 11));
    server->running = false;
    resumed("vCont;c:p7.-1", &resume);
    assert_int_equal(resume.process, 7);
    assert_int_equal(resume.thread, 0);
}

static void test_process_stops(void **state)
{
    static const struct {
        struct gdb_stop stop;
        const char *text;
    } cases[] = {
        {{.reason = GDB_STOP_CALL, .status = 59}, "T05thread:p5.6;syscall_entry:3b;"},
        {{.reason = GDB_STOP_RETURN, .status = 1}, "T05thread:p5.6;syscall_return:1;"},
        {{.reason = GDB_STOP_FORK, .status = 7}, "T05thread:p5.6;fork:p7.7;"},
        {{.reason = GDB_STOP_VFORK, .status = 7}, "T05thread:p5.6;vfork:p7.7;"},
        {{.reason = GDB_STOP_VFORK_DONE}, "T05thread:p5.6;vforkdone:;"},
        {{.reason = GDB_STOP_EXEC, .path = "/x"}, "T05thread:p5.6;exec:2f78;"},
        {{.reason = GDB_STOP_SIGNAL, .status = 11}, "T0bthread:p5.6;"},
        {{.reason = GDB_STOP_SIGNAL, .status = 10}, "T1ethread:p5.6;"},
        {{.reason = GDB_STOP_SIGNAL, .status = 64}, "T4ethread:p5.6;"},
    };
    struct gdb_resume resume;
    begin_process("qSupported:multiprocess+");
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        resumed("c", &resume);
        gdb_server_stopped(server, &cases[i].stop);
        assert_string_equal(hear(peer), cases[i].text);
    }
    gdb_server_stands(server, &cases[6].stop);
    expect("?", cases[6].text);
}

static void test_process_packets(void **state)
{
    begin_process("qSupported:multiprocess+");
    expect("QCatchSyscalls:1", "OK");
    expect("QCatchSyscalls:1;1;3b", "OK");
    expect("QCatchSyscalls:1;63", "E.no");
    expect("QCatchSyscalls:0", "OK");
    expect("QCatchSyscalls:0;1", "E01");
    expect("QCatchSyscalls:1;", "E01");
    expect("QCatchSyscalls:2", "E01");
    expect("QPassSignals:c0", "E01");
    expect("QPassSignals:1;;", "E01");
    expect("qXfer:siginfo:read::7e,80", "l\x0b\x0b");
    expect("qXfer:siginfo:read::81,80", "E01");
    expect("qreprise.Shows", "0");
    expect("Qreprise.Forks:1", "E01"); /* of a target without */
}

static void test_process_files(void **state)
{
    begin_process("qSupported:multiprocess+");
    expect("vFile:setfs:0", "F0");
    expect("vFile:open:61,0,0", "F-1,2");
    expect("vFile:open:2f61,1,0", "F-1,1e");   /* O_WRONLY */
    expect("vFile:open:2f61,200,0", "F-1,1e"); /* O_CREAT */
    expect("vFile:open:2f6,0,0", "F-1,16");
    expect("vFile:open:2f6100,0,0", "F-1,16");
    expect("vFile:open:2f61,0", "F-1,16");
    for (unsigned i = 0; i < GDB_FILES; i++) {
        char number[8];
        snprintf(number, sizeof(number), "F%x", i);
        expect("vFile:open:2f61,0,1ff", number);
    }
    expect("vFile:open:2f61,0,0", "F-1,18");
    expect("vFile:pread:3,4,0", "F4;aaaa");
    expect("vFile:pread:3,4,65", "F0;");
    expect("vFile:pread:3,4,c9", "F-1,270f");
    expect("vFile:pread:3,4", "F-1,16");
    expect("vFile:pread:10,4,0", "F-1,9");
    expect("vFile:close:3", "F0");
    expect("vFile:close:3", "F-1,9");
    expect("vFile:fstat:3", "F-1,9");
    expect("vFile:readlink:2f62", "F2;/b");
    expect("vFile:readlink:62", "F-1,2");
    expect("vFile:unlink:2f62", "");
    expect("vFile:pwrite:0,0,x", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_process_threads), CASE(test_process_resume), CASE(test_process_stops),
        CASE(test_process_packets), CASE(test_process_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
