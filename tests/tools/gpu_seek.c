/*
 * Moves about in a gpu.log with keyframes, as often as there can be any, and compares every picture
 * with that of playing straight: gpu_seek PROGRAM FILE SEED COUNT [KEYFRAME-BYTES
 * [SPACING]] (nanoseconds of playing between keyframes; 0: the player's own choice). Prints how
 * many keyframes there were to go to; status 1 and a line on stderr when a picture differs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/clock.h"
#include "virtio-gpu-log/play/player.h"

static struct err err;
static u64 *hashes; /* by number of the command that comes next */
static u64 *frame_end, *positions;
static u64 commands, frames;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "gpu_seek: %s: %s\n", what, err.text);
    exit(1);
}

static u64 shot(struct gpu_player *p)
{
    struct gpu_shot s;
    if (gpu_player_shot(p, 0, &s, &err))
        fail("no picture");
    u64 hash = s.hash;
    gpu_shot_free(&s);
    return hash;
}

static struct gpu_log_reader *open_log(const char *path)
{
    struct gpu_log_reader *log;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || gpu_log_open(&log, fd, &err))
        fail(path);
    return log;
}

static void straight(const char *path, const struct gpu_player_config *config)
{
    struct gpu_log_reader *log = open_log(path);
    struct gpu_player *p;
    if (gpu_player_create(&p, log, config, &err))
        fail("no player");
    hashes = calloc(1 << 20, sizeof(*hashes));
    frame_end = calloc(1 << 20, sizeof(*frame_end));
    positions = calloc(1 << 20, sizeof(*positions));
    do {
        const struct gpu_place *at = gpu_player_place(p);
        commands = at->commands;
        if (commands >= (1 << 20) - 1)
            fail("too long");
        if (at->frames != frames)
            frame_end[frames = at->frames] = commands;
        positions[commands] = at->position;
        hashes[commands] = shot(p);
    } while (gpu_player_step(p, &err) == 1);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
}

static void check(struct gpu_player *p, u64 command, const char *what, u64 n)
{
    const struct gpu_place *at = gpu_player_place(p);
    if (at->commands != command) {
        fprintf(stderr, "gpu_seek: %s %llu is at command %llu, not %llu\n", what,
                (unsigned long long)n, (unsigned long long)at->commands,
                (unsigned long long)command);
        exit(1);
    }
    if (shot(p) != hashes[command]) {
        fprintf(stderr, "gpu_seek: %s %llu: another picture in front of command %llu\n", what,
                (unsigned long long)n, (unsigned long long)command);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    struct gpu_player_config config = {.renderer = {.program = argv[1]}};
    unsigned seed = (unsigned)atoi(argv[3]), count = (unsigned)atoi(argv[4]);
    struct gpu_player *p;
    printf("SEED=%u\n", seed);
    srand(seed);
    straight(argv[2], &config);
    config.keyframes = argc > 5 ? strtoull(argv[5], NULL, 0) : 1u << 30;
    config.keyframe_spacing = argc > 6 ? strtoull(argv[6], NULL, 0) : 1;
    struct gpu_log_reader *log = open_log(argv[2]);
    if (gpu_player_create(&p, log, &config, &err))
        fail("no player");
    u64 began = 0, slowest = 0;
    for (unsigned i = 0; i < count; i++) {
        u64 n = (u64)rand() % (commands + 1), f = (u64)rand() % (frames + 1), to = n;
        /* At first to the end, so that all keyframes are there. */
        to = n = i ? n : commands;
        began = host_ns();
        switch (i ? rand() % 4 : 3) {
        case 0:
            if (gpu_player_seek_frame(p, f, &err))
                fail("frame");
            check(p, f ? frame_end[f] : 0, "frame", f);
            break;
        case 1:
            while (to < commands && positions[to + 1] <= positions[n])
                to++;
            if (gpu_player_seek_instant(p, positions[n], NEVER, &err))
                fail("position");
            check(p, to, "position", positions[n]);
            break;
        default:
            if (gpu_player_seek_command(p, n, &err))
                fail("command");
            check(p, n, "command", n);
            break;
        }
        if (i) /* the first plays from the start */
            slowest = MAX(slowest, host_ns() - began);
        /* On from there: the pictures that follow are the same too. */
        const struct gpu_command *c = gpu_player_peek(p, &err);
        if (c && c->type == VIRTIO_GPU_CMD_SUBMIT_3D && rand() % 2 &&
            gpu_player_part(p, (u32)rand() % (c->payload_size / 4 + 1), &err))
            fail("part");
        for (int steps = rand() % 12; steps > 0; steps--) {
            int code = gpu_player_step(p, &err);
            if (code < 0)
                fail("step");
            check(p, gpu_player_place(p)->commands, "step", i);
        }
    }
    struct gpu_player_keyframes k;
    gpu_player_keyframes(p, &k);
    printf("%llu frames, %u keyframes, %u of them no longer good, %llu bytes, used %llu times; "
           "slowest seek but the first %.1f ms\n",
           (unsigned long long)frames, k.count, k.broken, (unsigned long long)k.bytes,
           (unsigned long long)k.used, (double)slowest / 1e6);
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return 0;
}
