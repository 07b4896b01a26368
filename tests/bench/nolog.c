/*
 * The machine without a log, for tests/bench: what recording costs is measured against this. Its
 * input source gives nothing and never waits.
 *
 *     nolog [--disk FILE] CPU MEMORY_MIB[,CODE_CACHE_MIB] KERNEL [INITRD APPEND [ADD...]]
 *
 * Prints one line of JSON: positions, CPU time, peak memory, the engine's statistics.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/guest.h"
#include "machine/machine.h"

static pos_t next_position(struct input_source *src, struct machine *m)
{
    return NEVER;
}

static int take(struct input_source *src, struct machine *m, struct input *in, struct err *err)
{
    return 0;
}

static int idle(struct input_source *src, struct machine *m, vns_t deadline, vns_t *until,
                struct err *err)
{
    *until = deadline;
    return deadline == NEVER;
}

static const struct input_source_ops ops = {next_position, take, idle, NULL, NULL};

static void on_output(void *opaque, enum dev_output channel, const void *data, size_t len)
{
    if (channel == OUT_CONSOLE && write(STDERR_FILENO, data, len) < 0)
        _exit(1);
}

static int run(struct machine *m, struct err *err)
{
    struct input_source src = {&ops};
    struct run_limits limits = {.stop_at = NEVER};
    struct run_end end = {0};
    struct rusage usage;
    struct machine_stats s;
    machine_set_output(m, on_output, NULL);
    if (machine_run(m, &src, &limits, &end, err))
        return 1;
    getrusage(RUSAGE_SELF, &usage);
    machine_stats(m, &s);
    printf("{\"position\":%" PRIu64 ",\"time\":%" PRIu64 ",\"end\":%d,\"arg\":%u,\"cpu_s\":%.3f"
           ",\"maxrss_kib\":%ld",
           machine_position(m), machine_now(m), (int)end.reason, end.arg,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
           usage.ru_maxrss);
    printf(",\"blocks\":%" PRIu64 ",\"exceptions\":%" PRIu64 ",\"interrupts\":%" PRIu64
           ",\"tlb_fills\":%" PRIu64 ",\"tlb_flushes\":%" PRIu64 ",\"pt_writes\":%" PRIu64
           ",\"exits\":%" PRIu64 ",\"careful\":%" PRIu64 ",\"evictions\":%" PRIu64 "}\n",
           s.blocks, s.exceptions, s.interrupts, s.tlb_fills, s.tlb_flushes, s.pt_writes, s.exits,
           s.careful, s.code_evictions);
    return 0;
}

int main(int argc, char **argv)
{
    struct guest g = {0};
    struct machine *m = NULL;
    struct err err = {0};
    const char *disk = argc > 2 && !strcmp(argv[1], "--disk") ? argv[2] : NULL;
    if (disk) {
        argc -= 2;
        argv += 2;
    }
    if (argc < 4) {
        fputs("nolog [--disk FILE] CPU MEMORY_MIB[,CODE_CACHE_MIB] KERNEL [INITRD|'' APPEND "
              "[ADD...]]\n",
              stderr);
        return 2;
    }
    struct guest_config config = {.kernel = argv[3],
                                  .initrd = argc > 4 && *argv[4] ? argv[4] : NULL,
                                  .append = argc > 5 ? argv[5] : NULL,
                                  .add = (const char **)argv + 6,
                                  .nadd = argc > 6 ? (size_t)argc - 6 : 0,
                                  .disk = {disk},
                                  .ndisks = disk != NULL};
    description_init(&config.is);
    snprintf(config.is.cpu_model, sizeof(config.is.cpu_model), "%s", argv[1]);
    char *end;
    config.is.memory = strtoull(argv[2], &end, 10) << 20;
    config.code_cache = *end == ',' ? strtoull(end + 1, NULL, 10) << 20 : 0;
    config.is.seed = 1;
    int code = guest_load(&g, &config, &err);
    if (!code)
        code = guest_create_machine(&g, &m, &err);
    guest_fini(&g);
    if (!code)
        code = run(m, &err);
    if (code)
        fprintf(stderr, "nolog: %s\n", err.text);
    if (m)
        machine_destroy(m);
    guest_close_host(&g);
    return code != 0;
}
