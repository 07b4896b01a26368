/* See guest.h. */
#define _GNU_SOURCE /* memmem */
#include "cmd/guest.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/bootdisk.h"
#include "host/net_options.h"
#include "version.h"

static int read_user_file(const char *path, const char *what, u64 max, void **out, size_t *size,
                          struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, "cannot open the %s %s", what, path);
    struct stat st;
    int code = 0;
    u8 *buf = NULL;
    size_t at = 0;
    if (fstat(fd, &st))
        code = err_errno(err, "cannot stat the %s %s", what, path);
    else if (!S_ISREG(st.st_mode))
        code = err_set(err, -EINVAL, "the %s %s is not a regular file", what, path);
    else if ((u64)st.st_size > max)
        code = err_set(err, -EFBIG, "the %s %s is larger than %llu MiB", what, path,
                       (unsigned long long)(max >> 20));
    else if (!(buf = malloc((size_t)st.st_size + 1)))
        code = err_set(err, -ENOMEM, "no memory for the %s %s", what, path);
    while (!code && at < (size_t)st.st_size) {
        ssize_t n = read(fd, buf + at, (size_t)st.st_size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            code = err_errno(err, "cannot read the %s %s", what, path);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    close(fd);
    if (code) {
        free(buf);
        return code;
    }
    *out = buf;
    *size = at;
    return 0;
}

/* Is there a word that starts so? */
static bool has_option(const char *line, const char *name)
{
    for (const char *p = line; (p = strstr(p, name)); p++)
        if (p == line || p[-1] == ' ')
            return true;
    return false;
}

static bool is_linux(const struct kernel_image *image)
{
    static const char text[] = "Linux version ";
    return image->header || memmem(image->elf, image->elf_size, text, sizeof(text) - 1);
}

static int make_append(struct guest *g, const char *user, struct err *err)
{
    user = user ? user : "";
    const char *console = "", *panic = "";
    if (is_linux(&g->image)) {
        console = has_option(user, "console=") ? ""
                  : g->desc.hvc0               ? "console=hvc0 "
                                               : "console=ttyS0 ";
        panic = has_option(user, "panic=") ? "" : "panic=-1 ";
    }
    int n = snprintf(g->desc.append, sizeof(g->desc.append), "%s%s%s", console, panic, user);
    if (n < 0 || (size_t)n >= sizeof(g->desc.append))
        return err_set(err, -EINVAL, "--append is longer than %zu bytes", sizeof(g->desc.append));
    if (n && g->desc.append[n - 1] == ' ')
        g->desc.append[n - 1] = 0;
    return 0;
}

/* g->kernel_file holds `size` bytes of the kernel `path`. */
static int take_kernel(struct guest *g, const char *path, size_t size, struct err *err)
{
    int code = kernel_extract(g->kernel_file, size, &g->image, err);
    if (code) {
        char text[sizeof(err->text)];
        memcpy(text, err->text, sizeof(text));
        return err_set(err, code, "the kernel %s %.900s", path, text);
    }
    struct machine_description *d = &g->desc;
    const char *base = strrchr(path, '/');
    snprintf(d->kernel_name, sizeof(d->kernel_name), "%s", base ? base + 1 : path);
    /* The packed file is kept, not the ELF in it: a seventh of the size, and unpacked in no time.
     */
    g->kernel_size = d->kernel_size = size;
    description_hash(g->kernel_file, size, d->kernel_hash);
    return 0;
}

static int load_kernel(struct guest *g, const char *path, struct err *err)
{
    size_t size;
    int code = read_user_file(path, "kernel", KERNEL_MAX_SIZE, &g->kernel_file, &size, err);
    return code ? code : take_kernel(g, path, size, err);
}

/* `file`, of a boot entry, or NULL: becomes ours. */
static int load_initrd(struct guest *g, const struct guest_config *c, void *file, size_t size,
                       struct err *err)
{
    const char *name = c->initrd ? c->initrd : "of the boot entry";
    int code = 0;
    if (c->initrd)
        code = read_user_file(c->initrd, "initrd", INITRD_MAX_SIZE, &file, &size, err);
    /* What guests other than Linux want is theirs to say. */
    if (!code && file && is_linux(&g->image)) {
        struct err why;
        code = initrd_check(file, size, &why);
        if (code)
            err_set(err, code, "the initrd %s %.900s", name, why.text);
    }
    if (!code)
        code = initrd_init(&g->builder, file, size, err);
    free(file);
    for (size_t i = 0; i < c->nadd && !code; i++)
        code = initrd_add(&g->builder, c->add[i], err);
    if (!code)
        code = initrd_finish(&g->builder, &g->initrd, &g->initrd_size, err);
    if (!code && g->initrd_size) {
        g->desc.initrd_size = g->initrd_size;
        description_hash(g->initrd, g->initrd_size, g->desc.initrd_hash);
    }
    return code;
}

/* FILE[,OPTION]...; a comma in FILE is doubled. Cut at the comma; what follows it is returned. */
static const char *cut_file(const char *spec, char *file)
{
    for (; *spec && (*spec != ',' || spec[1] == ','); spec++) {
        spec += *spec == ',';
        *file++ = *spec;
    }
    *file = 0;
    return spec;
}

/* The value of an option NAME=VALUE of `n` bytes, if it has that name and 1 to room - 1 bytes. */
static bool option_value(const char *option, size_t n, const char *name, char *out, size_t room)
{
    size_t len = strlen(name);
    if (n <= len || strncmp(option, name, len) || n - len >= room)
        return false;
    snprintf(out, room, "%.*s", (int)(n - len), option + len);
    return true;
}

static int disk_option(struct description_disk *k, unsigned *timeout, const char *spec,
                       const char *option, size_t n, struct err *err)
{
    char number[8];
    if (n == 8 && !strncmp(option, "readonly", n)) {
        k->readonly = 1;
        return 0;
    }
    if (option_value(option, n, "serial=", k->serial, sizeof(k->serial)) ||
        option_value(option, n, "format=", k->format, sizeof(k->format)))
        return 0;
    if (option_value(option, n, "timeout=", number, sizeof(number)) &&
        strspn(number, "0123456789") == strlen(number) && strtoul(number, NULL, 10)) {
        *timeout = (unsigned)strtoul(number, NULL, 10);
        return 0;
    }
    return err_set(err, -EINVAL,
                   "--disk %s: '%.*s' is none of format=NAME, readonly, serial=TEXT of at most 20 "
                   "bytes and timeout=SECONDS",
                   spec, (int)n, option);
}

/* What the recording calls it: an absolute path, or the URI as it is. */
static int name_disk(struct description_disk *k, const struct disk *d, const char *file,
                     struct err *err)
{
    char *real = strcmp(d->format, "nbd") ? realpath(file, NULL) : strdup(file);
    int code = 0;
    if (!real || strlen(real) >= sizeof(k->path))
        code = err_set(err, -ENAMETOOLONG, "--disk %s: its path is too long", file);
    else
        strcpy(k->path, real);
    free(real);
    strcpy(k->format, d->format);
    k->size = d->size;
    return code;
}

static int load_disk(struct guest *g, const char *spec, struct err *err)
{
    struct description_disk *k = &g->desc.disk[g->ndisks];
    struct disk *d = &g->disks[g->ndisks];
    unsigned timeout = 0;
    char *file = malloc(strlen(spec) + 1);
    if (!file)
        return err_set(err, -ENOMEM, "out of memory");
    const char *from = cut_file(spec, file);
    int code = 0;
    while (*from == ',' && !code) {
        size_t n = strcspn(++from, ",");
        code = disk_option(k, &timeout, spec, from, n, err);
        from += n;
    }
    struct disk_config config = {.file = file,
                                 .format = k->format[0] ? k->format : NULL,
                                 .serial = k->serial,
                                 .readonly = k->readonly,
                                 .timeout = timeout};
    if (!code)
        code = disk_open(d, &config, err);
    if (!code)
        code = name_disk(k, d, file, err);
    if (!code)
        g->ndisks++;
    free(file);
    return code;
}

static int open_bootdisk(struct bootdisk **b, const struct guest *g, struct err *err)
{
    struct bootdisk_image images[DESCRIPTION_DISKS];
    for (unsigned i = 0; i < g->ndisks; i++)
        images[i] = (struct bootdisk_image){g->disks[i].path, g->disks[i].format};
    return bootdisk_open(b, images, g->ndisks, err);
}

/*
 * The entry's command line, then the user's. An entry that has consoles, but not the one that there
 * is, gets it as its last, so that something is seen; the user's console= has the last word.
 */
static char *entry_append(const struct boot_entry *e, bool hvc0, const char *user)
{
    const char *options = e->options ? e->options : "", *blank = "", *console = "";
    const char *ours = hvc0 ? "console=hvc0" : "console=ttyS0";
    char *out;
    user = user ? user : "";
    if (has_option(options, "console=") && !has_option(options, ours) &&
        !has_option(user, "console=")) {
        blank = " ";
        console = ours;
    }
    return asprintf(&out, "%s%s%s%s%s", options, blank, console, *user ? " " : "", user) < 0 ? NULL
                                                                                             : out;
}

/* --kernel auto: kernel, command line, and the initrd unless the user names one. */
static int load_entry(struct guest *g, const struct guest_config *c, u8 **initrd,
                      size_t *initrd_size, struct err *err)
{
    struct bootdisk *b;
    const struct boot_entry *e = NULL;
    size_t size;
    int code = open_bootdisk(&b, g, err);
    if (!code && !(e = bootdisk_choose(b, c->boot_entry, err)))
        code = err->code;
    if (!code)
        code = bootdisk_kernel(b, e, KERNEL_MAX_SIZE, (u8 **)&g->kernel_file, &size, err);
    if (!code && !c->initrd)
        code = bootdisk_initrd(b, e, INITRD_MAX_SIZE, initrd, initrd_size, err);
    if (!code) {
        char *text = bootdisk_describe(b, e), *append = entry_append(e, c->hvc0, c->append);
        if (!text || !append)
            code = err_set(err, -ENOMEM, "no memory for the boot entry");
        else
            fprintf(stderr, "reprise: booting %s\n", text);
        if (!code)
            code = take_kernel(g, strchr(e->kernel, ')') + 1, size, err);
        if (!code)
            code = make_append(g, append, err);
        free(text);
        free(append);
    }
    bootdisk_close(b);
    return code;
}

int guest_list_entries(const struct guest_config *c, struct err *err)
{
    struct guest g = {0};
    struct bootdisk *b = NULL;
    int code = 0;
    for (unsigned i = 0; i < c->ndisks && !code; i++)
        code = load_disk(&g, c->disk[i], err);
    if (!code)
        code = open_bootdisk(&b, &g, err);
    if (!code)
        bootdisk_list(b, stdout);
    bootdisk_close(b);
    guest_close_host(&g);
    return code;
}

void guest_close_host(struct guest *g)
{
    for (unsigned i = 0; i < g->nnets; i++)
        net_destroy(g->nets[i]);
    g->nnets = 0;
    for (unsigned i = 0; i < DESCRIPTION_PORTS; i++) {
        port_destroy(g->ports[i]);
        g->ports[i] = NULL;
    }
    input_file_destroy(g->input);
    g->input = NULL;
    gpu_host_destroy(g->gpu);
    g->gpu = NULL;
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++)
        disk_close(&g->disks[i]);
}

_Static_assert(NET_MTU_MIN == DESCRIPTION_MTU_MIN && NET_MTU_MAX == DESCRIPTION_MTU_MAX,
               "what is recorded must be readable");

static int load_ports(struct guest *g, const struct guest_config *c, struct err *err)
{
    int code = 0;
    for (unsigned i = 1; i < c->nports && !code; i++) {
        struct port_identity id;
        struct description_port *p = &g->desc.port[i];
        code = port_create(&g->ports[i], c->port[i], i, &id, err);
        for (unsigned k = 1; k < i && !code; k++)
            if (!strcmp(g->desc.port[k].name, id.name))
                code = err_set(err, -EINVAL, "--port %s: there are two of that name", id.name);
        if (code)
            break;
        static_assert(sizeof(p->name) == sizeof(id.name) &&
                          sizeof(p->backend) == sizeof(id.backend),
                      "the same limits");
        memcpy(p->name, id.name, sizeof(p->name));
        memcpy(p->backend, id.backend, sizeof(p->backend));
    }
    return code;
}

/* Seconds for which the renderer may do nothing while it is waited for. */
#define GPU_TIMEOUT 20u

/* Starts the renderer: what guests are told of it is the same on every host, and kept. */
static int open_gpu(struct guest *g, const struct guest_config *c, struct err *err)
{
    struct machine_description *d = &g->desc;
    /* softpipe lacks some of the model: to be seen in what is drawn, not in what guests are told.
     */
    struct renderer_config config = {
        .driver = c->gpu_driver,
        .hang_timeout = 1000 * (c->gpu_timeout ? c->gpu_timeout : GPU_TIMEOUT),
        .lenient = c->gpu_driver && !strcmp(c->gpu_driver, "softpipe")};
    if (!c->virgl)
        return 0;
    int code = gpu_host_create(&g->gpu, &config, err);
    if (code)
        return err_prefix(err, "--gpu=virgl");
    const struct renderer_about *about = gpu_host_about(g->gpu);
    static_assert(sizeof(d->capset) >= sizeof(about->capset), "room for it");
    d->capset_id = about->capset_id;
    d->capset_version = about->capset_version;
    d->capset_size = about->capset_size;
    memcpy(d->capset, about->capset, about->capset_size);
    return 0;
}

int guest_load(struct guest *g, const struct guest_config *c, struct err *err)
{
    struct machine_description *d = &g->desc;
    description_init(d);
    snprintf(d->creator, sizeof(d->creator), "reprise %s", REPRISE_VERSION);
    snprintf(d->cpu_model, sizeof(d->cpu_model), "%s", c->cpu);
    d->memory = c->memory;
    d->seed = c->seed;
    d->wall_clock = (u64)time(NULL);
    d->realtime = c->realtime;
    g->engine = c->engine;
    if (c->engine != ENGINE_DBT) {
        snprintf(d->engine, sizeof(d->engine), "%s", engine_kind_name(c->engine));
        snprintf(d->counter, sizeof(d->counter), c->unit == UNIT_BRANCH ? "pmu" : "step");
    }
    if (c->unit == UNIT_BRANCH) {
        snprintf(d->position_unit, sizeof(d->position_unit), "branch");
        d->branch_ns = MACHINE_BRANCH_NS;
        d->event_ns = MACHINE_EVENT_NS;
        d->guest_tsc = c->guest_tsc;
        d->tsc_step = MACHINE_TSC_STEP;
    }
    d->gpu_width = c->gpu_width;
    d->gpu_height = c->gpu_height;
    d->gpu_hz = c->gpu_hz;
    d->hvc0 = c->hvc0;
    d->input = c->input || c->keyboard;
    const char *lacks = cpu_model_host_lacks(cpu_model_find(c->cpu));
    if (lacks)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which the model %s has", lacks,
                       c->cpu);
    bool from_disk = !strcmp(c->kernel, GUEST_KERNEL_AUTO);
    u8 *initrd = NULL;
    size_t initrd_size = 0;
    int code = from_disk ? 0 : load_kernel(g, c->kernel, err);
    if (!code && !from_disk)
        code = make_append(g, c->append, err);
    for (unsigned i = 0; i < c->ndisks && !code; i++)
        code = load_disk(g, c->disk[i], err);
    if (!code && from_disk)
        code = load_entry(g, c, &initrd, &initrd_size, err);
    for (unsigned i = 0; i < c->nnets && !code; i++) {
        struct net_identity id;
        code = net_create(&g->nets[i], c->net[i], i, &id, err);
        if (code)
            break;
        g->nnets++;
        memcpy(d->net[i].mac, id.mac, sizeof(id.mac));
        memcpy(d->net[i].backend, id.backend, sizeof(id.backend));
        d->net[i].mtu = id.mtu;
    }
    if (!code && c->input)
        code = input_file_load(&g->input, c->input, err);
    if (!code)
        code = load_ports(g, c, err);
    if (!code)
        code = open_gpu(g, c, err);
    if (code) {
        free(initrd);
        return code;
    }
    return load_initrd(g, c, initrd, initrd_size, err);
}

int guest_create_machine(struct guest *g, struct machine **m, struct err *err)
{
    struct disk *disks[DESCRIPTION_DISKS];
    struct machine_net nets[DESCRIPTION_NETS];
    for (unsigned i = 0; i < g->ndisks; i++)
        disks[i] = &g->disks[i];
    struct machine_config config = {
        .disks = disks,
        .ndisks = g->ndisks,
        .nets = nets,
        .nnets = machine_nets(&g->desc, nets),
        .memory = g->desc.memory,
        .model = cpu_model_find(g->desc.cpu_model),
        .engine = g->engine,
        .seed = g->desc.seed,
        .wall_clock = g->desc.wall_clock,
        .append = g->desc.append,
        .kernel = g->image.elf,
        .kernel_size = g->image.elf_size,
        .kernel_header = g->image.header,
        .kernel_header_size = g->image.header_size,
        .initrd = g->initrd_size ? g->initrd : NULL,
        .initrd_size = g->initrd_size,
    };
    machine_peripherals(&g->desc, &config);
    return machine_create(m, &config, err);
}

int guest_keep(struct guest *g, struct recording *r, struct err *err)
{
    struct hash128 hash;
    u8 *dtb = malloc(DESCRIPTION_MAX_SIZE);
    size_t size = 0;
    int code = dtb ? description_write(&g->desc, dtb, &size, err)
                   : err_set(err, -ENOMEM, "no memory for the machine description");
    if (!code)
        code = recording_keep(r, g->kernel_file, g->kernel_size, &hash, err);
    if (!code && g->initrd_size)
        code = recording_keep(r, g->initrd, g->initrd_size, &hash, err);
    if (!code)
        code = recording_write_machine(r, dtb, size, err);
    free(dtb);
    return code;
}

void guest_fini(struct guest *g)
{
    kernel_image_free(&g->image);
    initrd_fini(&g->builder);
    free(g->kernel_file);
    g->kernel_file = NULL;
}
