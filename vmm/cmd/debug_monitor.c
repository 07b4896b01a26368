/* See debug_monitor.h. */
#include "cmd/debug_monitor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cmd/debug_process.h"
#include "cmd/gpu_play.h"
#include "cmd/gpu_scene.h"
#include "cmd/replay_screen.h"
#include "virtio-gpu-log/print.h"

static int monitor_fail(FILE *out, const struct err *err)
{
    fprintf(out, "error: %s\n", err->text);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_goto(struct debug_session *s, const char *arg, FILE *out)
{
    struct point p;
    struct err err;
    enum timeline_stop stop;
    if (point_parse(arg, &p, &err))
        return monitor_fail(out, &err);
    int code = travel_to(s->tr, &p, &stop, &err);
    if (code)
        monitor_fail(out, &err);
    print_place(out, s->tr, 1);
    return GDB_MONITOR_MOVED;
}

static enum gdb_monitor monitor_back(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    (void)arg;
    if (timeline_back(s->tr->t, &err))
        return monitor_fail(out, &err);
    print_place(out, s->tr, 1);
    return GDB_MONITOR_MOVED;
}

static enum gdb_monitor monitor_when(struct debug_session *s, const char *arg, FILE *out)
{
    (void)arg;
    print_place(out, s->tr, 1);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_checkpoint(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    struct timeline_stats st;
    (void)arg;
    if (timeline_checkpoint(s->tr->t, &err))
        return monitor_fail(out, &err);
    timeline_stats(s->tr->t, &st);
    fprintf(out, "a checkpoint at position %" PRIu64 "; %u in memory\n",
            timeline_now(s->tr->t).position, st.checkpoints);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_info(struct debug_session *s, const char *arg, FILE *out)
{
    struct timeline_stats st;
    char memory[32], budget[32], disk[32], count[32], time[32];
    struct instant end = timeline_end(s->tr->t);
    (void)arg;
    timeline_stats(s->tr->t, &st);
    fprintf(out, "recording     %s\n", timeline_recording(s->tr->t)->rec.path);
    fprintf(out, "length        %" PRIu64 " positions (%s), %s of virtual time\n", end.position,
            text_count(end.position, count), text_seconds(end.time, time));
    fprintf(out, "checkpoints   %u in memory (%s of %s), %u on disk (%s)\n", st.checkpoints,
            text_bytes(st.memory, memory), text_bytes(st.budget, budget), st.files,
            text_bytes(st.disk, disk));
    print_place(out, s->tr, 1);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_mark(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    if (!s->child) {
        fprintf(out,
                "error: only the gdb that `reprise gdb` started may write to the recording; this "
                "place is point %" PRIu64 "\n",
                timeline_now(s->tr->t).position);
        return GDB_MONITOR_OK;
    }
    if (timeline_branched(s->tr->t)) {
        fputs("error: a what-if branch has no place in the recording; go back first\n", out);
        return GDB_MONITOR_OK;
    }
    if (mark_add(&timeline_recording(s->tr->t)->rec, timeline_now(s->tr->t), arg, &err))
        return monitor_fail(out, &err);
    fprintf(out, "mark:%s is position %" PRIu64 "\n", arg, timeline_now(s->tr->t).position);
    return GDB_MONITOR_OK;
}

struct marks_print {
    FILE *out;
    unsigned n;
};

static void print_mark(void *opaque, struct instant at, const char *name, size_t len)
{
    struct marks_print *p = opaque;
    char text[256], shown[512];
    p->n++;
    snprintf(text, sizeof(text), "%.*s", (int)MIN(len, sizeof(text) - 1), name);
    fprintf(p->out, "%16" PRIu64 "  %14.9f s  mark:%s\n", at.position, (double)at.time * 1e-9,
            text_printable(text, shown, sizeof(shown)));
}

static enum gdb_monitor monitor_marks(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    struct marks_print p = {out, 0};
    (void)arg;
    if (marks_each(timeline_recording(s->tr->t)->rec.path, print_mark, &p, &err))
        return monitor_fail(out, &err);
    if (!p.n)
        fputs("there are no marks yet; `monitor mark NAME` makes one\n", out);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_phys(struct debug_session *s, const char *arg, FILE *out)
{
    char spec[300], address[200], length[64] = "16";
    struct err err;
    if (sscanf(arg, "%199s %63s", address, length) < 1) {
        fputs("usage: monitor phys ADDRESS [LENGTH]\n", out);
        return GDB_MONITOR_OK;
    }
    snprintf(spec, sizeof(spec), "phys:%s,%s", address, length);
    if (print_memory(out, s->tr, spec, &err))
        return monitor_fail(out, &err);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_console(struct debug_session *s, const char *arg, FILE *out)
{
    unsigned lines = (unsigned)strtoul(arg, NULL, 10);
    print_console(out, s->tr->t, lines ? lines : 20);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_screen(struct debug_session *s, const char *arg, FILE *out)
{
    struct err err;
    struct stat there;
    if (!*arg) {
        fputs("usage: monitor screen FILE\n", out);
        return GDB_MONITOR_OK;
    }
    if (!s->child) {
        fprintf(
            out,
            "error: only the gdb that `reprise gdb` started may write files of yours; elsewhere: "
            "reprise replay %s --to %" PRIu64 " --screenshot FILE\n",
            timeline_recording(s->tr->t)->quoted, timeline_now(s->tr->t).position);
        return GDB_MONITOR_OK;
    }
    if (!lstat(arg, &there)) {
        fprintf(out, "error: %s is there already; choose another name\n", arg);
        return GDB_MONITOR_OK;
    }
    if (write_screenshot(s->tr, arg, false, &err))
        return monitor_fail(out, &err);
    if (*replay_screen_note(s->tr->screen))
        fprintf(out, "%s\n", replay_screen_note(s->tr->screen));
    fprintf(out, "%s shows the screen\n", arg);
    return GDB_MONITOR_OK;
}

/* Who drew that pixel of the screen as it is here. */
static int gpu_who_here(struct debug_session *s, u32 x, u32 y, FILE *out, struct err *err)
{
    const char *path = timeline_recording(s->tr->t)->rec.path;
    struct dev_screen screen;
    struct gpu_log_reader *log;
    struct gpu_player *p;
    struct gpu_who w = {0};
    if (!machine_screen(timeline_machine(s->tr->t), &screen) || !screen.width)
        return err_set(err, -ENODATA, "the screen is off here");
    int code = gpu_play_open(path, NULL, 0, false, &log, &p, err);
    if (code)
        return code;
    code = gpu_player_seek_command(p, screen.commands, err);
    if (!code)
        code = gpu_who_drew(p, 0, x, y, &w, err);
    if (!code)
        code = gpu_who_report(out, path, &w, log, false, err);
    if (!code)
        fprintf(out, "`monitor goto gpu:%" PRIu64 "` goes to where the guest hands it over\n",
                w.number);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return code;
}

static enum gdb_monitor monitor_gpu(struct debug_session *s, const char *arg, FILE *out)
{
    unsigned x, y;
    int used = 0;
    if (sscanf(arg, "who %u %u %n", &x, &y, &used) == 2 && used && !arg[used]) {
        struct err failed;
        return gpu_who_here(s, x, y, out, &failed) ? monitor_fail(out, &failed) : GDB_MONITOR_OK;
    }
    struct err err;
    struct gpu_scene place;
    char *end;
    unsigned long context = strtoul(arg, &end, 10);
    if (*arg && (*end || end == arg)) {
        fputs("usage: monitor gpu [CONTEXT | who X Y]\n", out);
        return GDB_MONITOR_OK;
    }
    if (gpu_scene_find(&place, timeline_recording(s->tr->t)->rec.path, timeline_machine(s->tr->t),
                       &err))
        return monitor_fail(out, &err);
    if (*arg)
        gpu_print_bound(out, place.state, (u32)context);
    else
        gpu_scene_print(out, &place);
    gpu_scene_free(&place);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_scope(struct debug_session *s, const char *arg, FILE *out)
{
    if (!scope_command(&s->scope, arg, out))
        fputs("usage: monitor scope [process|machine]\n", out);
    return GDB_MONITOR_OK;
}

/* gdb learns what it debugs where it attaches: gdb_session.py has it do so again. */
static enum gdb_monitor show(struct debug_session *s, const char *spec, FILE *out)
{
    struct err err;
    if (!s->child)
        fputs("error: only the gdb that `reprise gdb` started attaches again by itself\n", out);
    else if (debug_process_next(s, spec, &err))
        monitor_fail(out, &err);
    else
        fputs(*spec ? "gdb is shown the process\n" : "gdb is shown the machine\n", out);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_kernel(struct debug_session *s, const char *arg, FILE *out)
{
    if (!debug_process_on(s)) {
        fputs("gdb is shown the machine already; `monitor process PID` shows a process\n", out);
        return GDB_MONITOR_OK;
    }
    (void)arg;
    return show(s, "", out);
}

static enum gdb_monitor monitor_process(struct debug_session *s, const char *arg, FILE *out)
{
    if (*arg)
        return show(s, arg, out);
    fputs("usage: monitor process PID|NAME[#K]\n", out);
    return GDB_MONITOR_OK;
}

static enum gdb_monitor monitor_help(struct debug_session *s, const char *arg, FILE *out);

static const struct monitor_command {
    const char *name, *args, *what;
    enum gdb_monitor (*run)(struct debug_session *s, const char *arg, FILE *out);
} commands[] = {
    {"help", "", "this list", monitor_help},
    {"when", "", "position, virtual time and place of the machine", monitor_when},
    {"goto", "POINT", "go there: " POINT_FORMS, monitor_goto},
    {"back", "", "drop the what-if branch that a write began", monitor_back},
    {"mark", "NAME", "call this place mark:NAME from now on", monitor_mark},
    {"marks", "", "the recording's marks", monitor_marks},
    {"scope", "[process|machine]",
     "whether points at user addresses and steps in ring 3 are the process's that is current, or "
     "the whole machine's",
     monitor_scope},
    {"process", "PID|NAME[#K]", "show gdb that process only, as --process does", monitor_process},
    {"kernel", "", "show gdb the machine again, with the kernel's symbols", monitor_kernel},
    {"checkpoint", "", "keep a checkpoint of this place in memory", monitor_checkpoint},
    {"info", "", "the recording and its checkpoints", monitor_info},
    {"console", "[LINES]", "what the guest's console shows here", monitor_console},
    {"screen", "FILE", "what the screen shows here, as a PNG file", monitor_screen},
    {"gpu", "[CONTEXT]",
     "what the GPU has here, and its last commands; what is bound in a context; who X Y: the "
     "last draw that changed a pixel of the screen",
     monitor_gpu},
    {"phys", "ADDR [LEN]", "guest-physical memory", monitor_phys},
};

static enum gdb_monitor monitor_help(struct debug_session *s, const char *arg, FILE *out)
{
    (void)s;
    (void)arg;
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(out, "monitor %-10s %-17s  %s\n", commands[i].name, commands[i].args,
                commands[i].what);
    return GDB_MONITOR_OK;
}

/* Names of the guest's and of the recording's are in what it prints, and gdb prints that. */
static enum gdb_monitor run_command(const struct monitor_command *c, struct debug_session *s,
                                    const char *arg, FILE *out)
{
    FILE *guard = text_guard(out);
    enum gdb_monitor result = c->run(s, arg, guard ? guard : out);
    if (guard)
        fclose(guard);
    return result;
}

enum gdb_monitor debug_monitor(struct debug_session *s, const char *command, FILE *out)
{
    size_t n = strcspn(command, " \t");
    const char *arg = command + n + strspn(command + n, " \t");
    enum gdb_monitor result = GDB_MONITOR_UNKNOWN;
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strlen(commands[i].name) == n && !strncmp(commands[i].name, command, n))
            result = run_command(&commands[i], s, arg, out);
    return result;
}
