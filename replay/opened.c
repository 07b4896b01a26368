/* See opened.h. */
#include "replay/opened.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "board/kernel.h"

char *text_quoted(const char *name)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,"
        ":@%/";
    char *out = malloc(4 * strlen(name) + 5), *p = out;
    CHECK(out, "no memory");
    if (*name == '-') /* not an option */
        p = stpcpy(p, "./");
    if (*name && strspn(name, plain) == strlen(name)) {
        strcpy(p, name);
        return out;
    }
    *p++ = '\'';
    for (; *name; name++)
        if (*name == '\'')
            p = stpcpy(p, "'\\''");
        else
            *p++ = *name;
    strcpy(p, "'");
    return out;
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

int open_recording(struct opened *o, const char *path, struct err *err)
{
    *o = (struct opened){.rec = RECORDING_CLOSED};
    int code = recording_open(&o->rec, path, err);
    if (!code) {
        code = description_read(o->rec.machine, o->rec.machine_size, &o->desc, err);
        if (code)
            err_prefix(err, "%s/machine.dtb", path);
    }
    if (!code)
        code = recording_open_log(&o->rec, &o->log, err);
    o->quoted = text_quoted(path);
    if (code)
        close_recording(o);
    return code;
}

void close_recording(struct opened *o)
{
    log_reader_destroy(o->log);
    o->log = NULL;
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++)
        disk_close(&o->disks[i]);
    free(o->quoted);
    o->quoted = NULL;
    recording_close(&o->rec);
}

/* A recording's instructions have this maker's results in them (DESIGN.md, canonical results). */
static int check_host(const struct machine_description *d, enum cpu_model model, struct err *err)
{
    struct machine_description host;
    description_init(&host);
    if (strcmp(host.host_cpu, d->host_cpu))
        return err_set(err, -ENOTSUP,
                       "recorded on a CPU by %s, this host's is by %s: some floating-point "
                       "instructions give other results there, so that a replay would differ",
                       d->host_cpu, host.host_cpu);
    if (model == CPU_MODEL_NONE)
        return err_set(err, -ENOTSUP, "the CPU model %s is unknown to this program", d->cpu_model);
    const char *lacks = cpu_model_host_lacks(model);
    if (lacks)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which the model %s has", lacks,
                       d->cpu_model);
    return 0;
}

/* The base images must be where they were, as large as they were; that their contents are, their
 * digests tell while replaying. */
static int open_disks(struct opened *o, struct disk **disks, unsigned *n, struct err *err)
{
    for (*n = 0; *n < DESCRIPTION_DISKS && o->desc.disk[*n].size; ++*n) {
        const struct description_disk *k = &o->desc.disk[*n];
        struct disk *d = &o->disks[*n];
        struct disk_config config = {.file = k->path,
                                     .format = k->format,
                                     .serial = k->serial,
                                     .readonly = k->readonly,
                                     .again = true};
        int code = disk_open(d, &config, err);
        if (code)
            return err_prefix(err, "disk %u of the recording", *n);
        if (d->size != k->size)
            return err_set(err, -EINVAL,
                           "disk %u of the recording: %s has %llu bytes, it had %llu when recorded",
                           *n, k->path, (unsigned long long)d->size, (unsigned long long)k->size);
        disk_overlay_in(d, o->rec.path);
        disks[*n] = d;
    }
    return 0;
}

unsigned machine_nets(const struct machine_description *d, struct machine_net *nets)
{
    unsigned n = 0;
    for (; n < DESCRIPTION_NETS && d->net[n].mtu; n++) {
        nets[n].mtu = (u16)d->net[n].mtu;
        memcpy(nets[n].mac, d->net[n].mac, sizeof(nets[n].mac));
    }
    return n;
}

void machine_peripherals(const struct machine_description *d, struct machine_config *config)
{
    static_assert(DESCRIPTION_REVISION == MACHINE_REVISION, "the same");
    config->revision = d->revision;
    config->branch_ns = d->branch_ns;
    config->event_ns = d->event_ns;
    config->tsc_step = d->tsc_step;
    config->guest_tsc = d->guest_tsc;
    config->by_insn = d->branch_ns && !strcmp(d->position_unit, "insn");
    config->hvc0 = d->hvc0;
    config->gpu = (struct machine_gpu){.width = d->gpu_width,
                                       .height = d->gpu_height,
                                       .hz = d->gpu_hz,
                                       .capset_id = d->capset_id,
                                       .capset_version = d->capset_version,
                                       .capset_size = d->capset_size,
                                       .capset = d->capset};
    config->input = d->input;
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++)
        config->port[i] = d->port[i].name;
}

int build_machine(struct opened *o, struct machine **m, struct err *err)
{
    struct disk *disks[DESCRIPTION_DISKS];
    struct machine_net nets[DESCRIPTION_NETS];
    const struct machine_description *d = &o->desc;
    struct machine_config config = {
        .memory = d->memory,
        .model = cpu_model_find(d->cpu_model),
        .engine = o->engine,
        .seed = d->seed,
        .wall_clock = d->wall_clock,
        .append = d->append,
        .disks = disks,
        .nets = nets,
    };
    void *kernel = NULL, *initrd = NULL;
    size_t kernel_size = 0;
    struct kernel_image image = {0};
    struct hash128 kernel_hash = description_hash128(d->kernel_hash);
    struct hash128 initrd_hash = description_hash128(d->initrd_hash);
    int code = check_host(d, config.model, err);
    if (!code)
        code = recording_load(&o->rec, &kernel_hash, "kernel", &kernel, &kernel_size, err);
    if (!code && kernel_extract(kernel, kernel_size, &image, err))
        code = err_prefix(err, "the recording's kernel");
    if (!code && d->initrd_size)
        code = recording_load(&o->rec, &initrd_hash, "initrd", &initrd, &config.initrd_size, err);
    if (!code)
        code = open_disks(o, disks, &config.ndisks, err);
    config.nnets = machine_nets(d, nets);
    machine_peripherals(d, &config);
    if (!code) {
        config.kernel = image.elf;
        config.kernel_size = image.elf_size;
        config.kernel_header = image.header;
        config.kernel_header_size = image.header_size;
        config.initrd = initrd;
        code = machine_create(m, &config, err);
    }
    kernel_image_free(&image);
    free(kernel);
    free(initrd);
    return code;
}
