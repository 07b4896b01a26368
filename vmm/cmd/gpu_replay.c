/* `reprise gpu replay`: draws a stream without a machine, as fast as it goes. */
#include "cmd/gpu_play.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"

enum { O_DRIVER = 256, O_FRAMES, O_JSON, O_FORCE, O_SCANOUT };

/* clang-format off */
static const struct argp_option options[] = {
    {"driver", O_DRIVER, GPU_DRIVER_ARG, 0, "llvmpipe (default), softpipe, or device:PATH, a render node such as device:/dev/dri/renderD128", 0},
    {"output", 'o', "DIR", 0, "Write the frames there, as frame-000001.png ...", 0},
    {"frames", O_FRAMES, "A..B", 0, "Only these frames (default: all)", 0},
    {"scanout", O_SCANOUT, "N", 0, "What is looked at (default: 0)", 0},
    {"force", O_FORCE, NULL, 0, "Replace pictures that are there", 0},
    {"json", O_JSON, NULL, 0, "One JSON object a frame, and one at the end", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Draws the stream of a recording (or a " GPU_LOG_NAME
    ") without its machine, as fast as it goes. For each frame: its number, position, the hash "
    "of its picture, the time it took. What guests had read back (pixels, results of queries) is "
    "compared with what this driver gives; if anything differs the exit code is 3. A log that is "
    "damaged is drawn up to there." EXIT_HELP;

struct replay_args {
    const char *path, *driver, *output;
    struct frame_range frames;
    u32 scanout;
    bool json, force;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct replay_args *a = state->input;
    switch (key) {
    case O_DRIVER: a->driver = arg; break;
    case 'o': a->output = arg; break;
    case O_FRAMES: option_frames(state, arg, &a->frames); break;
    case O_SCANOUT: a->scanout = gpu_option_scanout(state, arg); break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->path); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->path);
        if (a->force && !a->output)
            argp_error(state, "--force is for --output");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct drawn {
    u64 frame;
    pos_t position;
};
struct replay {
    const struct replay_args *a;
    struct gpu_player *p;
    struct gpu_progress progress;
    struct drawn under_way[GPU_SHOTS];
    u32 count;
    u64 last; /* host_ns at the last picture */
    u64 frames, slowest, slowest_ns;
};

static int show_frame(struct replay *r, struct err *err)
{
    struct gpu_shot shot;
    struct drawn d = r->under_way[0];
    char path[4096];
    int code = gpu_player_take_shot(r->p, &shot, err);
    memmove(r->under_way, r->under_way + 1, --r->count * sizeof(d));
    if (code)
        return err_prefix(err, "frame %" PRIu64, d.frame);
    u64 now = host_ns(), took = now - r->last;
    r->last = now;
    if (took > r->slowest_ns) {
        r->slowest_ns = took;
        r->slowest = d.frame;
    }
    r->frames++;
    if (r->a->json)
        printf("{\"frame\":%" PRIu64 ",\"position\":%" PRIu64
               ",\"width\":%u,\"height\":%u,\"hash\":\"%016" PRIx64 "\",\"ms\":%.3f}\n",
               d.frame, d.position, shot.width, shot.height, shot.hash, (double)took / 1e6);
    else
        printf("frame %-6" PRIu64 " %14" PRIu64 "  %ux%u  %016" PRIx64 "  %8.2f ms\n", d.frame,
               d.position, shot.width, shot.height, shot.hash, (double)took / 1e6);
    if (r->a->output && shot.width) {
        snprintf(path, sizeof(path), "%s/frame-%06" PRIu64 ".png", r->a->output, d.frame);
        code = gpu_shot_write(&shot, path, r->a->force, err);
    }
    gpu_shot_free(&shot);
    return code;
}

static int play(struct replay *r, struct err *err)
{
    const struct frame_range *f = &r->a->frames;
    u64 frame = 0;
    int code = 1;
    while (code == 1 && frame < f->last) {
        code = gpu_player_step(r->p, err);
        const struct gpu_place *at = gpu_player_place(r->p);
        bool complete = code == 1 && at->frames != frame;
        frame = at->frames;
        if (!complete || frame < f->first) {
            r->last = complete ? host_ns() : r->last;
            continue;
        }
        gpu_progress(&r->progress, "frame", frame);
        /* The picture of a frame is made ready while the next one is drawn. */
        int asked = gpu_player_ask_shot(r->p, r->a->scanout, err);
        if (asked)
            return err_prefix(err, "frame %" PRIu64, frame);
        r->under_way[r->count++] = (struct drawn){frame, at->position};
        if (r->count == 2 && show_frame(r, err))
            return err->code;
    }
    while (code >= 0 && r->count)
        if (show_frame(r, err))
            return err->code;
    return code < 0 ? code : gpu_player_sync(r->p, err);
}

static void summary(const struct replay *r, u64 took)
{
    struct gpu_tally t;
    double s = (double)took / 1e9, rate = s > 0 ? (double)r->frames / s : 0;
    gpu_player_tally(r->p, &t);
    const char *driver = gpu_player_about(r->p)->driver;
    if (r->a->json) {
        printf("{\"frames\":%" PRIu64 ",\"seconds\":%.6f,\"fps\":%.2f,\"slowest\":%" PRIu64
               ",\"driver\":",
               r->frames, s, rate, r->slowest);
        json_text(stdout, driver);
        printf(",\"refused\":%" PRIu64 ",\"readbacks\":%" PRIu64 ",\"different\":%" PRIu64,
               t.refused, t.compared, t.different);
        if (t.refused) {
            printf(",\"first_refused\":%" PRIu64 ",\"refusal\":", t.first_refused);
            json_text(stdout, t.refusal);
        }
        if (t.different)
            printf(",\"first_different\":%" PRIu64, t.first_different);
        puts("}");
        return;
    }
    printf("%" PRIu64 " frames in %.3f s: %.1f frames/s on %s\n", r->frames, s, rate, driver);
    if (r->frames)
        printf("slowest: frame %" PRIu64 ", %.2f ms\n", r->slowest, (double)r->slowest_ns / 1e6);
    if (t.compared)
        printf("%" PRIu64 " of %" PRIu64 " read-backs differ from the recording's", t.different,
               t.compared);
    if (t.different)
        printf(", first that of command %" PRIu64, t.first_different);
    if (t.compared)
        putchar('\n');
    if (t.refused)
        printf("%" PRIu64 " commands had no effect, first command %" PRIu64 ": %s\n", t.refused,
               t.first_refused, t.refusal);
}

static int run(const struct replay_args *a, struct gpu_log_reader *log, struct gpu_player *p)
{
    struct replay r = {.a = a, .p = p};
    struct gpu_tally t;
    struct err err;
    u64 began = r.last = host_ns();
    gpu_progress_start(&r.progress);
    int code = play(&r, &err);
    gpu_progress_end(&r.progress);
    if (code)
        return cmd_fail(&err);
    if (a->frames.given && !r.frames) {
        err_set(&err, -ENOENT, "there is no frame %" PRIu64 ": the log has %" PRIu64,
                a->frames.first, gpu_player_place(p)->frames);
        return cmd_fail(&err);
    }
    summary(&r, host_ns() - began);
    gpu_player_tally(p, &t);
    int ended = gpu_log_damage(log)->state == CHUNKS_READING ? EX_FINE : gpu_end(log);
    return ended ? ended : t.different ? EX_DIVERGED : EX_FINE;
}

int gpu_replay(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR|FILE]", .doc = doc};
    struct replay_args a = {.frames = {1, UINT64_MAX, false}};
    struct gpu_log_reader *log;
    struct gpu_player *p;
    struct err err;
    option_parse(&argp, argc, argv, &a);
    sandbox_outside()->directory = a.output;
    if ((a.output && gpu_pictures_directory(a.output, &err)) ||
        gpu_play_open(a.path, a.driver, 0, true, &log, &p, &err))
        return cmd_fail(&err);
    int code = run(&a, log, p);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return code;
}
