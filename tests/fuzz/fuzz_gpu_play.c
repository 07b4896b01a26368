/*
 * Fuzz target: the player of GPU logs over the real renderer, on any log. FUZZ_RENDERER is the
 * program (default build/rel/reprise-gpu). The renderer may die of what it is given; the player has
 * to say so, and to end.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu_repair.h"
#include "mutate.h"
#include "virtio-gpu-log/play/who.h"

/* Budgets, so that a forged resource is not what it spends its time on. */
#define TEXTURES (64u << 20)
#define BACKINGS (64u << 20)

static void look(struct gpu_player *p)
{
    struct gpu_shot shot;
    struct err err;
    if (!gpu_player_shot(p, 0, &shot, &err) && shot.width && !shot.rgb)
        abort();
    gpu_shot_free(&shot);
}

static int play(struct gpu_player *p, struct gpu_log_reader *log)
{
    struct err err = {0};
    int code;
    while ((code = gpu_player_step(p, &err)) == 1)
        look(p);
    if (code < 0 && !err.text[0])
        abort(); /* an error without a word */
    if (!code && gpu_log_damage(log)->state == CHUNKS_READING)
        abort();
    return code;
}

static void move(struct gpu_player *p, struct gpu_log_reader *log)
{
    struct err err;
    u64 commands = gpu_player_place(p)->commands, frames = gpu_player_place(p)->frames;
    const u64 to[] = {commands / 2, commands / 3, commands, 0};
    for (size_t i = 0; i < ARRAY_SIZE(to); i++) {
        if (gpu_player_seek_command(p, to[i], &err))
            return;
        if (gpu_player_place(p)->commands != to[i])
            abort();
        const struct gpu_command *c = gpu_player_peek(p, &err);
        if (c && c->type == VIRTIO_GPU_CMD_SUBMIT_3D && !c->response &&
            gpu_player_part(p, c->payload_size / 8, &err))
            return;
        look(p);
    }
    if (!gpu_player_seek_frame(p, frames / 2, &err))
        play(p, log);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    const char *program = getenv("FUZZ_RENDERER");
    struct gpu_player_config config = {
        .renderer = {.program = program ? program : "build/rel/reprise-gpu",
                     .lenient = true,
                     .texture_bytes = TEXTURES,
                     .backing_bytes = BACKINGS,
                     .hang_timeout = 5000},
        .keyframes = size % 3 ? 64u << 20 : 0,
        .keyframe_spacing = 1,
        .compare = true};
    struct gpu_log_reader *log;
    struct gpu_player *p;
    struct gpu_who who;
    struct err err;
    u8 *copy = malloc(size + 1);
    memcpy(copy, data, size);
    gpu_log_repair(copy, size);
    int fd = memfd_create("gpu.log", 0);
    if (write(fd, copy, size) != (ssize_t)size)
        abort();
    free(copy);
    if (gpu_log_open(&log, fd, &err))
        return 0;
    if (gpu_player_create(&p, log, &config, &err)) {
        fprintf(stderr, "fuzz_gpu_play: %s\n", err.text);
        exit(1);
    }
    if (!play(p, log)) {
        if (config.keyframes)
            move(p, log);
        else
            gpu_who_drew(p, 0, 3, 3, &who, &err);
    }
    gpu_player_destroy(p);
    gpu_log_reader_destroy(log);
    return 0;
}
