/* See opened.h. */
#include "replay/opened.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "board/kernel.h"
#include "host/sandbox.h"
#include "replay/disk_search.h"
#include "replay/disk_sources.h"

char *text_quoted(const char *name)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    text_put_quoted(out, name);
    if (!fclose(out))
        return text;
    free(text);
    return NULL;
}

struct hash128 description_hash128(const u8 bytes[DESCRIPTION_HASH_SIZE])
{
    struct hash128 h = {0, 0};
    for (unsigned i = 0; i < 8; i++) {
        h.hi = h.hi << 8 | bytes[i];
        h.lo = h.lo << 8 | bytes[8 + i];
    }
    return h;
}

int find_recording(struct opened *o, const char *path, struct err *err)
{
    *o = (struct opened){.rec = RECORDING_CLOSED};
    sandbox_read(path);
    int code = recording_open(&o->rec, path, err);
    if (!code) {
        code = description_read(o->rec.machine, o->rec.machine_size, &o->desc, err);
        if (code)
            err_prefix(err, "%s/machine.dtb", path);
    }
    if (!code)
        code = recording_find_log(&o->rec, err);
    o->quoted = text_quoted(path);
    if (!code && !o->quoted)
        code = err_set(err, -ENOMEM, "no memory to open %s", path);
    if (code)
        close_recording(o);
    return code;
}

int open_recording(struct opened *o, const char *path, struct err *err)
{
    int code = find_recording(o, path, err);
    if (!code && (code = recording_open_log(&o->rec, &o->log, err)))
        close_recording(o);
    return code;
}

void close_recording(struct opened *o)
{
    log_reader_destroy(o->log);
    o->log = NULL;
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++) {
        disk_close(&o->disks[i]);
        disk_candidates_close(&o->candidates[i]);
        free(o->seen[i].changed);
        o->seen[i] = (struct player_disk){.same = false};
    }
    free(o->quoted);
    o->quoted = NULL;
    recording_close(&o->rec);
}

/* The instructions of some recordings have this maker's results in them (docs/determinism.md). */
static int check_maker(const struct machine_description *d, struct err *err)
{
    struct machine_description host;
    description_init(&host);
    /* For tests, of recordings that have none of these instructions. */
    const char *maker = getenv("REPRISE_TEST_MAKER");
    if (!description_canonical(d) && strcmp(maker ? maker : host.host_cpu, d->host_cpu))
        return err_set(
            err, -ENOTSUP,
            "recorded on a CPU by %s, this host's is by %s: some instructions give other "
            "results there, so that a replay would differ. (%s)",
            d->host_cpu, host.host_cpu,
            d->revision < 4 ? "Versions that make the same of them on every host record "
                              "what replays anywhere"
                            : "With --engine dbt, or --counter step, what is recorded "
                              "replays anywhere");
    return 0;
}

/* `partly`: what this host lacks is noted, and may be lacking. */
static int check_host(const struct opened *o, bool partly, char lacks[256], struct err *err)
{
    const struct machine_description *d = &o->desc;
    struct cpu_choice cpu;
    int code = check_maker(d, err);
    if (!code)
        code = description_cpu(d, &cpu, err);
    if (code)
        return code;
    cpu_host_lacks_all(cpu.words, lacks, 256);
    if (*lacks && !partly)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which the model %s%s%s has", lacks,
                       d->cpu_model, d->cpu_features[0] ? "," : "", d->cpu_features);
    return 0;
}

int opened_check_host(const struct opened *o, struct err *err)
{
    char lacks[256];
    return check_host(o, false, lacks, err);
}

int build_machine(struct opened *o, struct machine **m, struct err *err)
{
    struct disk *disks[DESCRIPTION_DISKS];
    unsigned ndisks = 0;
    const struct machine_description *d = &o->desc;
    struct machine_config config = {.is = d,
                                    .engine = o->engine,
                                    .code_cache = o->code_cache,
                                    .paranoid = o->paranoid,
                                    .disks = disks};
    void *kernel = NULL, *initrd = NULL;
    struct kernel_image image = {0};
    struct hash128 kernel_hash = description_hash128(d->kernel_hash);
    struct hash128 initrd_hash = description_hash128(d->initrd_hash);
    /* Only translated code is known to stop in front of what is not there. */
    config.partly = o->engine == ENGINE_DBT && !o->paranoid.on;
    int code = check_host(o, config.partly, o->lacks, err);
    if (!code)
        code = disk_sources_open(o, disks, &ndisks, err);
    for (unsigned i = 0; !code && i < ndisks; i++)
        disk_overlay_ready(disks[i]);
    if (o->engine == ENGINE_KVM)
        sandbox_plan_more(SANDBOX_KVM);
    if (o->paranoid.on)
        sandbox_plan_more(SANDBOX_COPIES);
    /* All that it names is open. What it holds is looked at behind the door only. */
    if (!code)
        code = sandbox_enter(err);
    if (!code)
        code = disk_search_settle(o, err);
    if (!code && !o->log)
        code = recording_open_log(&o->rec, &o->log, err);
    if (!code)
        code = recording_load(&o->rec, &kernel_hash, d->kernel_size, "kernel", &kernel, err);
    if (!code && kernel_extract(kernel, d->kernel_size, &image, err))
        code = err_prefix(err, "the recording's kernel");
    if (!code && d->initrd_size)
        code = recording_load(&o->rec, &initrd_hash, d->initrd_size, "initrd", &initrd, err);
    if (!code) {
        config.kernel = image.elf;
        config.kernel_size = image.elf_size;
        config.kernel_header = image.header;
        config.kernel_header_size = image.header_size;
        config.initrd = initrd;
        config.initrd_size = d->initrd_size;
        code = machine_create(m, &config, err);
    }
    if (!code)
        machine_set_recording(*m, o->rec.path);
    if (!code)
        sandbox_settle();
    kernel_image_free(&image);
    free(kernel);
    free(initrd);
    return code;
}
