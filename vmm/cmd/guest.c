/* See guest.h. */
#define _GNU_SOURCE /* memmem */
#include "cmd/guest.h"
#include "base/text.h"
#include "board/interp.h"
#include "cmd/cmd.h"
#include "cmd/travel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "boot/bootdisk.h"
#include "host/disk_spec.h"
#include "host/net_options.h"
#include "replay/disk_search.h"
#include "replay/disk_sources.h"
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
    return image->elf &&
           (image->header || memmem(image->elf, image->elf_size, text, sizeof(text) - 1));
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
    snprintf(d->kernel_name, sizeof(d->kernel_name), "%s", text_base_name(path));
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

/* In the guest its shell would say "not found", of the program. */
static void warn_loader(void *opaque, const char *program, const char *loader)
{
    char a[512], b[512];
    fprintf(stderr,
            "reprise: /%s is linked dynamically, and its loader %s is not in the initrd: link it "
            "statically, or --add loader and libraries\n",
            text_printable(program, a, sizeof(a)), text_printable(loader, b, sizeof(b)));
}

/* A guest that fills its memory takes as much of the host's. */
static void warn_memory(u64 memory)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    u64 host = pages > 0 && page > 0 ? (u64)pages * (u64)page : 0;
    char a[32], b[32];
    if (host && memory > host)
        fprintf(stderr,
                "reprise: --memory: the guest has %s and this host %s; when the guest uses more "
                "than there is, the recording is killed\n",
                text_bytes(memory, a), text_bytes(host, b));
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
    size_t own = g->builder.size;
    for (size_t i = 0; i < c->nadd && !code; i++)
        code = initrd_add(&g->builder, c->add[i], err);
    if (!code)
        code = initrd_finish(&g->builder, &g->initrd, &g->initrd_size, err);
    if (!code && c->nadd)
        interp_missing(g->initrd, g->initrd_size, own, warn_loader, NULL);
    if (!code && g->initrd_size) {
        g->desc.initrd_size = g->initrd_size;
        description_hash(g->initrd, g->initrd_size, g->desc.initrd_hash);
    }
    return code;
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

static int load_disk(struct guest *g, const char *text, struct err *err)
{
    struct description_disk *k = &g->desc.disk[g->ndisks];
    struct disk *d = &g->disks[g->ndisks];
    struct disk_spec spec;
    int code = disk_spec_parse(&spec, text, true, err);
    if (code)
        return code;
    struct disk_config config = {.file = spec.file,
                                 .format = spec.format[0] ? spec.format : NULL,
                                 .serial = spec.serial,
                                 .readonly = spec.readonly,
                                 .backing = spec.backing,
                                 .timeout = spec.timeout};
    code = disk_open(d, &config, err);
    if (!code)
        code = name_disk(k, d, spec.file, err);
    if (!code) {
        k->readonly = spec.readonly;
        strcpy(k->serial, spec.serial);
        g->ndisks++;
    }
    disk_spec_free(&spec);
    return code;
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
    int code = bootdisk_open(&b, g->disks, g->ndisks, err);
    if (!code && !(e = bootdisk_choose(b, c->boot_entry, err)))
        code = err->code;
    if (!code)
        code = bootdisk_kernel(b, e, KERNEL_MAX_SIZE, (u8 **)&g->kernel_file, &size, err);
    if (!code && !c->initrd)
        code = bootdisk_initrd(b, e, INITRD_MAX_SIZE, initrd, initrd_size, err);
    if (!code) {
        char *text = bootdisk_describe(b, e), *append = entry_append(e, c->is.hvc0, c->append);
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
    g.disks = g.own;
    for (unsigned i = 0; i < c->ndisks && !code; i++)
        code = load_disk(&g, c->disk[i], err);
    if (!code)
        code = bootdisk_open(&b, g.disks, g.ndisks, err);
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
    for (unsigned i = 0; i < DESCRIPTION_SHARES; i++) {
        share_host_destroy(g->shares[i]);
        g->shares[i] = NULL;
    }
    input_file_destroy(g->input);
    g->input = NULL;
    gpu_host_destroy(g->gpu);
    g->gpu = NULL;
    for (unsigned i = 0; g->disks && i < DESCRIPTION_DISKS; i++)
        disk_close(&g->disks[i]);
    if (g->from)
        close_recording(g->from);
    free(g->from);
    free(g->from_name);
    g->from = NULL;
    g->from_name = NULL;
}

_Static_assert(NET_MTU_MIN == DESCRIPTION_MTU_MIN && NET_MTU_MAX == DESCRIPTION_MTU_MAX,
               "what is recorded must be readable");

/* Is the --port `spec` of that name? */
static bool names_port(const char *spec, const char *name)
{
    size_t len = strlen(name);
    return len && !strncmp(spec, name, len) && spec[len] == '=';
}

/* Networks of a machine that begins in a recording. */
static int plug_again(struct guest *g, const struct guest_config *c, struct err *err)
{
    const struct machine_description *d = &g->desc;
    const unsigned all = description_nets(d);
    int code = 0;
    if (c->nnets > all)
        return err_set(err, -EINVAL, "--net: the machine has %u network card%s, not %u", all,
                       all == 1 ? "" : "s", c->nnets);
    for (unsigned i = 0; i < all && !code; i++) {
        struct net_identity id = {.mtu = (u16)d->net[i].mtu};
        memcpy(id.mac, d->net[i].mac, sizeof(id.mac));
        code = net_create(&g->nets[i], i < c->nnets ? c->net[i] : "unplugged", i, &id, err);
        g->nnets += !code;
    }
    return code;
}

/* Of a machine that begins in a recording: whom its networks, ports and shares are connected to
 * now. */
static int connect_again(struct guest *g, const struct guest_config *c, struct err *err)
{
    /* A function of the instant: the same run makes the same log. */
    u32 epoch = (u32)XXH3_64bits(&g->from_at, sizeof(g->from_at)) | 1;
    struct machine_description *d = &g->desc;
    int code = c->again ? 0 : plug_again(g, c, err);
    for (unsigned i = 1; i < DESCRIPTION_PORTS && d->port[i].name[0] && !code; i++) {
        struct port_identity id;
        char nobody[sizeof(d->port[i].name) + 8];
        const char *spec = nobody;
        snprintf(nobody, sizeof(nobody), "%s=none", d->port[i].name);
        for (unsigned k = 1; k < c->nports; k++)
            if (names_port(c->port[k], d->port[i].name))
                spec = c->port[k];
        if (c->again) /* the same are still there, as far as the guest sees */
            continue;
        code = port_create(&g->ports[i], spec, i, &id, err);
        if (!code)
            port_lost(g->ports[i]);
    }
    for (unsigned k = 1; k < c->nports && !code; k++) {
        bool known = false;
        for (unsigned i = 1; i < DESCRIPTION_PORTS; i++)
            known = known || names_port(c->port[k], d->port[i].name);
        if (!known)
            code = err_set(err, -EINVAL, "--port %s: the machine has no port of that name",
                           c->port[k]);
    }
    if (!code && c->nshares > description_shares(d))
        code = err_set(err, -EINVAL, "--share: the machine has %u, not %u", description_shares(d),
                       c->nshares);
    for (unsigned i = 0; i < description_shares(d) && !code; i++) {
        struct share_identity id;
        const char *text = i < c->nshares ? c->share[i] : NULL;
        code = share_host_create(&g->shares[i], text, i, epoch, &id, err);
    }
    return code;
}

int guest_connect(struct guest *g, const char *port, int socket, struct err *err)
{
    for (unsigned i = 1; i < DESCRIPTION_PORTS; i++)
        if (g->ports[i] && !strcmp(g->desc.port[i].name, port)) {
            port_connect(g->ports[i], socket);
            return 0;
        }
    close(socket);
    return err_set(err, -EINVAL, "the machine has no port %s", port);
}

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

static int load_shares(struct guest *g, const struct guest_config *c, struct err *err)
{
    int code = 0;
    if (c->nshares > description_share_room(&g->desc))
        return err_set(err, -EINVAL,
                       "--share: beside the other devices there is room for %u shares, not %u",
                       description_share_room(&g->desc), c->nshares);
    for (unsigned i = 0; i < c->nshares && !code; i++) {
        struct share_identity id;
        struct description_share *s = &g->desc.share[i];
        code = share_host_create(&g->shares[i], c->share[i], i, 0, &id, err);
        for (unsigned k = 0; k < i && !code; k++)
            if (!strcmp(g->desc.share[k].tag, id.tag))
                code = err_set(err, -EINVAL, "--share: two have the tag %s", id.tag);
        if (code)
            break;
        static_assert(sizeof(s->tag) == sizeof(id.tag) && sizeof(s->path) == sizeof(id.path),
                      "the same limits");
        memcpy(s->tag, id.tag, sizeof(s->tag));
        memcpy(s->path, id.path, sizeof(s->path));
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
    struct renderer_config config = {.driver = c->gpu_driver[0] ? c->gpu_driver : NULL,
                                     .hang_timeout =
                                         1000 * (c->gpu_timeout ? c->gpu_timeout : GPU_TIMEOUT),
                                     .lenient = !strcmp(c->gpu_driver, "softpipe")};
    if (!c->virgl)
        return 0;
    int code = gpu_host_create(&g->gpu, &config, err);
    if (code)
        return err_prefix(err, "--gpu=virgl");
    const struct renderer_about *about = gpu_host_about(g->gpu);
    static_assert(sizeof(d->gpu.capset) >= sizeof(about->capset), "room for it");
    d->gpu.capset_id = about->capset_id;
    d->gpu.capset_version = about->capset_version;
    d->gpu.capset_size = about->capset_size;
    memcpy(d->gpu.capset, about->capset, about->capset_size);
    return 0;
}

/* The renderer of a machine that begins in a recording: what the guest was told of it must hold. */
static int open_gpu_again(struct guest *g, const char *dir, struct err *err)
{
    const struct machine_description *d = &g->desc;
    const struct renderer_config config = {.hang_timeout = 1000 * GPU_TIMEOUT};
    int code = d->gpu.capset_size ? gpu_host_create(&g->gpu, &config, err) : 0;
    if (code || !g->gpu)
        return code;
    const struct renderer_about *about = gpu_host_about(g->gpu);
    if (about->capset_id == d->gpu.capset_id && about->capset_version == d->gpu.capset_version &&
        about->capset_size == d->gpu.capset_size &&
        !memcmp(about->capset, d->gpu.capset, about->capset_size))
        return 0;
    return err_set(err, -ENOTSUP,
                   "the guest of %s was told of a GPU that can do other things than reprise-gpu of "
                   "this version",
                   dir);
}

int guest_load(struct guest *g, const struct guest_config *c, struct err *err)
{
    struct machine_description *d = &g->desc;
    *d = c->is;
    g->disks = g->own;
    snprintf(d->creator, sizeof(d->creator), "reprise %s", REPRISE_VERSION);
    warn_memory(d->memory);
    g->engine = c->engine;
    g->code_cache = c->code_cache;
    g->paranoid = c->paranoid;
    snprintf(d->engine, sizeof(d->engine), "%s", engine_kind_name(c->engine));
    if (c->engine != ENGINE_DBT)
        snprintf(d->counter, sizeof(d->counter), c->unit == UNIT_BRANCH ? "pmu" : "step");
    if (c->unit == UNIT_BRANCH) {
        snprintf(d->position_unit, sizeof(d->position_unit), "branch");
        d->branch_ns = MACHINE_BRANCH_NS;
        d->event_ns = MACHINE_EVENT_NS;
        d->tsc_step = MACHINE_TSC_STEP;
    }
    struct cpu_choice cpu;
    int bad = description_cpu(d, &cpu, err);
    if (bad)
        return bad;
    const char *lacks = cpu_host_lacks(cpu.words);
    if (lacks)
        return err_set(err, -ENOTSUP, "this host's CPU lacks %s, which the model %s%s%s has", lacks,
                       d->cpu_model, d->cpu_features[0] ? "," : "", d->cpu_features);
    if (!d->pmu[0] && cpu_model_pmu(cpu_model_find(d->cpu_model))->kind)
        snprintf(d->pmu, sizeof(d->pmu), c->unit == UNIT_BRANCH ? "off" : "on");
    bool from_disk = !strcmp(c->kernel, GUEST_KERNEL_AUTO);
    u8 *initrd = NULL;
    size_t initrd_size = 0;
    int code = from_disk ? 0 : load_kernel(g, c->kernel, err);
    if (!code && !from_disk)
        code = make_append(g, c->append, err);
    for (unsigned i = 0; i < c->ndisks && !code; i++)
        code = load_disk(g, c->disk[i], err);
    if (g->ndisks)
        disk_sources_identify(&g->desc);
    if (!code && from_disk)
        code = load_entry(g, c, &initrd, &initrd_size, err);
    for (unsigned i = 0; i < c->nnets && !code; i++) {
        struct net_identity id = {.mtu = 0};
        code = net_create(&g->nets[i], c->net[i], i, &id, err);
        if (code)
            break;
        g->nnets++;
        memcpy(d->net[i].mac, id.mac, sizeof(id.mac));
        memcpy(d->net[i].backend, id.backend, sizeof(id.backend));
        d->net[i].mtu = id.mtu;
    }
    if (!code && c->input && strcmp(c->input, GUEST_INPUT_NONE))
        code = input_file_load(&g->input, c->input, err);
    if (!code)
        code = load_ports(g, c, err);
    if (!code)
        code = open_gpu(g, c, err);
    if (!code)
        code = load_shares(g, c, err);
    if (code) {
        free(initrd);
        return code;
    }
    return load_initrd(g, c, initrd, initrd_size, err);
}

/* What a machine that begins in a recording cannot have. */
static int check_from(const struct opened *o, const char *dir, struct err *err)
{
    const struct machine_description *d = &o->desc;
    if (!strcmp(d->position_unit, "branch"))
        return err_set(
            err, -ENOTSUP,
            "positions of %s are branches; to make one that counts instructions: reprise "
            "replay --instructions -o DIR2 %s",
            dir, o->quoted);
    return 0;
}

static int load_from(struct guest *g, const char *dir, struct err *err)
{
    struct opened *o = g->from;
    struct disk *disks[DESCRIPTION_DISKS];
    struct machine_description *d = &g->desc;
    struct hash128 kernel = description_hash128(o->desc.kernel_hash);
    struct hash128 initrd = description_hash128(o->desc.initrd_hash);
    int code = check_from(o, dir, err);
    if (!code)
        code = opened_check_host(o, err);
    if (!code)
        code = disk_sources_open(o, disks, &g->ndisks, err);
    if (code)
        return code;
    *d = o->desc;
    g->disks = o->disks;
    snprintf(d->engine, sizeof(d->engine), "%s", engine_kind_name(g->engine));
    d->counter[0] = 0;
    g->kernel_size = d->kernel_size;
    code = recording_load(&o->rec, &kernel, d->kernel_size, "kernel", &g->kernel_file, err);
    if (!code && d->initrd_size)
        code = recording_load(&o->rec, &initrd, d->initrd_size, "initrd", &g->initrd_file, err);
    g->initrd = g->initrd_file;
    g->initrd_size = d->initrd_size;
    return code;
}

int guest_open_from(struct guest *g, struct err *err)
{
    int code = disk_search_settle(g->from, err);
    if (!code)
        code = recording_open_log(&g->from->rec, &g->from->log, err);
    if (!code && kernel_extract(g->kernel_file, g->kernel_size, &g->image, err))
        code = err_prefix(err, "the recording's kernel");
    return code;
}

int guest_load_from(struct guest *g, const struct guest_config *c, const char *dir,
                    const struct point *at, struct err *err)
{
    g->engine = c->engine;
    g->code_cache = c->code_cache;
    g->paranoid = c->paranoid;
    g->disks = g->own;
    static const struct travel_with with;
    struct instant when = {0, 0};
    int code = point_instant(dir, &with, at, &when, err);
    if (code)
        return err_prefix(err, "--at");
    g->from = calloc(1, sizeof(*g->from));
    if (!g->from)
        return err_set(err, -ENOMEM, "no memory");
    code = find_recording(g->from, dir, err);
    if (code) {
        free(g->from);
        g->from = NULL;
        return code;
    }
    code = load_from(g, dir, err);
    g->from_at = when;
    if (!code)
        code = connect_again(g, c, err);
    if (!code)
        code = open_gpu_again(g, dir, err);
    if (code)
        return code;
    g->from_name = realpath(dir, NULL);
    return 0;
}

int guest_create_machine(struct guest *g, struct machine **m, struct err *err)
{
    struct disk *disks[DESCRIPTION_DISKS];
    for (unsigned i = 0; i < g->ndisks; i++)
        disks[i] = &g->disks[i];
    struct machine_config config = {.is = &g->desc,
                                    .engine = g->engine,
                                    .code_cache = g->code_cache,
                                    .paranoid = g->paranoid,
                                    .kernel = g->image.elf,
                                    .kernel_size = g->image.elf_size,
                                    .kernel_header = g->image.header,
                                    .kernel_header_size = g->image.header_size,
                                    .initrd = g->initrd_size ? g->initrd : NULL,
                                    .initrd_size = g->initrd_size,
                                    .disks = disks};
    return machine_create(m, &config, err);
}

/* Byte for byte what the other one has, so that what was made of that holds for this one too. */
static int keep_from(const struct guest *g, struct recording *r, struct err *err)
{
    const struct recording *from = &g->from->rec;
    struct hash128 kernel = description_hash128(g->desc.kernel_hash);
    struct hash128 initrd = description_hash128(g->desc.initrd_hash);
    int code = recording_share(r, from, &kernel, err);
    if (!code && g->initrd_size)
        code = recording_share(r, from, &initrd, err);
    if (!code)
        code = recording_share_disks(r, from, err);
    return code ? code : recording_write_machine(r, from->machine, from->machine_size, err);
}

int guest_keep(struct guest *g, struct recording *r, struct err *err)
{
    struct hash128 hash;
    if (g->from)
        return keep_from(g, r, err);
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
    free(g->initrd_file);
    g->kernel_file = g->initrd_file = NULL;
}
