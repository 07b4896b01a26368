/*
 * Machine description <-> flattened device tree (description.h). Devicetree Specification 0.4,
 * chapter 5, by libfdt. The file comes from a recording and is hostile: libfdt checks the
 * structure, the table below every property's size, check_values() what the values mean. Unknown
 * nodes and properties are refused: they would say something about the machine that this version
 * does not do.
 */
#include "board/description.h"

#include <cpuid.h>
#include <errno.h>
#include <libfdt.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum kind {
    KIND_U32,
    KIND_U64,
    KIND_TEXT,  /* NUL-terminated, shorter than `size` */
    KIND_BYTES, /* exactly `size` */
};

struct row {
    const char *node; /* "" is the root */
    const char *name;
    enum kind kind;
    u32 offset, size;
};

#define FIELD(node, name, kind, field)                                                             \
    {                                                                                              \
        node, name, kind, (u32)offsetof(struct machine_description, field),                        \
            (u32)sizeof(((struct machine_description *)0)->field)                                  \
    }

#define DISK(n)                                                                                    \
    FIELD("disk" #n, "path", KIND_TEXT, disk[n].path),                                             \
        FIELD("disk" #n, "size", KIND_U64, disk[n].size),                                          \
        FIELD("disk" #n, "readonly", KIND_U32, disk[n].readonly),                                  \
        FIELD("disk" #n, "serial", KIND_TEXT, disk[n].serial),                                     \
        FIELD("disk" #n, "format", KIND_TEXT, disk[n].format)

#define NET(n)                                                                                     \
    FIELD("net" #n, "mac", KIND_BYTES, net[n].mac), FIELD("net" #n, "mtu", KIND_U32, net[n].mtu),  \
        FIELD("net" #n, "backend", KIND_TEXT, net[n].backend)

#define PORT(n)                                                                                    \
    FIELD("port" #n, "name", KIND_TEXT, port[n].name),                                             \
        FIELD("port" #n, "backend", KIND_TEXT, port[n].backend)

/* Rows of one node stand together; nodes are written in this order. "format" is first, so that a
 * recording of another version is told from a damaged one. Rows are only ever appended to a node.
 */
static const struct row rows[] = {
    FIELD("", "format", KIND_U32, format),
    FIELD("", "creator", KIND_TEXT, creator),
    FIELD("", "position-unit", KIND_TEXT, position_unit),
    FIELD("", "flags-rule", KIND_U32, flags_rule),
    FIELD("memory", "size", KIND_U64, memory),
    FIELD("cpu", "model", KIND_TEXT, cpu_model),
    FIELD("chosen", "bootargs", KIND_TEXT, append),
    FIELD("chosen", "seed", KIND_U64, seed),
    FIELD("chosen", "wall-clock", KIND_U64, wall_clock),
    FIELD("kernel", "name", KIND_TEXT, kernel_name),
    FIELD("kernel", "size", KIND_U64, kernel_size),
    FIELD("kernel", "hash", KIND_BYTES, kernel_hash),
    FIELD("initrd", "size", KIND_U64, initrd_size),
    FIELD("initrd", "hash", KIND_BYTES, initrd_hash),
    FIELD("host", "cpu-maker", KIND_TEXT, host_cpu),
    FIELD("options", "realtime", KIND_U32, realtime),
    DISK(0),
    DISK(1),
    DISK(2),
    DISK(3),
    NET(0),
    NET(1),
    NET(2),
    NET(3),
    FIELD("gpu", "width", KIND_U32, gpu_width),
    FIELD("gpu", "height", KIND_U32, gpu_height),
    FIELD("refresh", "hz", KIND_U32, gpu_hz),
    FIELD("virgl", "capset-id", KIND_U32, capset_id),
    FIELD("virgl", "capset-version", KIND_U32, capset_version),
    FIELD("virgl", "capset-size", KIND_U32, capset_size),
    FIELD("virgl", "capset", KIND_BYTES, capset),
    FIELD("console", "hvc0", KIND_U32, hvc0),
    PORT(1),
    PORT(2),
    PORT(3),
    PORT(4),
    PORT(5),
    PORT(6),
    PORT(7),
    FIELD("input", "devices", KIND_U32, input),
    FIELD("engine", "name", KIND_TEXT, engine),
    FIELD("engine", "counter", KIND_TEXT, counter),
    FIELD("machine", "revision", KIND_U32, revision),
    FIELD("clock", "branch-ns", KIND_U32, branch_ns),
    FIELD("clock", "event-ns", KIND_U32, event_ns),
    FIELD("clock", "tsc-step", KIND_U32, tsc_step),
    FIELD("clock", "guest-tsc", KIND_U32, guest_tsc),
};

/* Nodes that are there only if the machine has what they describe. */
static bool optional(const char *node)
{
    return !strncmp(node, "disk", 4) || !strncmp(node, "net", 3) || !strcmp(node, "gpu") ||
           !strncmp(node, "port", 4) || !strcmp(node, "console") || !strcmp(node, "input") ||
           !strcmp(node, "refresh") || !strcmp(node, "virgl") || !strcmp(node, "engine") ||
           !strcmp(node, "clock") || !strcmp(node, "machine");
}

static bool absent(const struct machine_description *d, const char *node)
{
    if (!strncmp(node, "disk", 4))
        return !d->disk[node[4] - '0'].size;
    if (!strcmp(node, "gpu"))
        return !d->gpu_width;
    if (!strcmp(node, "refresh"))
        return !d->gpu_hz;
    if (!strcmp(node, "virgl"))
        return !d->capset_size;
    if (!strcmp(node, "engine"))
        return !d->engine[0];
    if (!strcmp(node, "machine"))
        return !d->revision;
    if (!strcmp(node, "clock"))
        return !d->branch_ns;
    if (!strncmp(node, "port", 4))
        return !d->port[node[4] - '0'].name[0];
    if (!strcmp(node, "console"))
        return !d->hvc0;
    if (!strcmp(node, "input"))
        return !d->input;
    return !strncmp(node, "net", 3) && !d->net[node[3] - '0'].mtu;
}

#define COMPATIBLE "reprise,machine"
#define CHECKSUM   "checksum" /* u64 in the root */

/* Bytes of the field as the property holds them; integers are big-endian in a device tree. */
static const void *encode(const struct machine_description *d, const struct row *r, u64 *scratch,
                          u32 *len)
{
    const void *field = (const u8 *)d + r->offset;
    u32 v32;
    u64 v64;
    fdt32_t be32;
    fdt64_t be64;
    switch (r->kind) {
    case KIND_U32:
        memcpy(&v32, field, sizeof(v32));
        be32 = cpu_to_fdt32(v32);
        memcpy(scratch, &be32, *len = sizeof(be32));
        return scratch;
    case KIND_U64:
        memcpy(&v64, field, sizeof(v64));
        be64 = cpu_to_fdt64(v64);
        memcpy(scratch, &be64, *len = sizeof(be64));
        return scratch;
    case KIND_TEXT: *len = (u32)strnlen(field, r->size - 1) + 1; return field;
    case KIND_BYTES: break;
    }
    *len = r->size;
    return field;
}

/* Over the whole file with the checksum itself as zero, so that no bit of it is without meaning. */
static int set_checksum(void *dtb, u64 value)
{
    return fdt_setprop_inplace_u64(dtb, 0, CHECKSUM, value);
}

static bool checksum_matches(void *dtb, size_t size)
{
    int len;
    const void *prop = fdt_getprop(dtb, 0, CHECKSUM, &len);
    if (!prop || len != 8)
        return false;
    u64 sum = fdt64_ld(prop);
    return !set_checksum(dtb, 0) && XXH3_64bits(dtb, size) == sum;
}

void description_init(struct machine_description *d)
{
    u32 max, maker[3] = {0};
    memset(d, 0, sizeof(*d));
    d->format = DESCRIPTION_FORMAT;
    d->flags_rule = DESCRIPTION_FLAGS_RULE;
    d->revision = DESCRIPTION_REVISION;
    strcpy(d->position_unit, "insn");
    if (__get_cpuid(0, &max, &maker[0], &maker[2],
                    &maker[1])) /* ebx, ecx, edx: the text is b, d, c */
        memcpy(d->host_cpu, maker, sizeof(maker));
}

void description_hash(const void *bytes, size_t size, u8 out[DESCRIPTION_HASH_SIZE])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(bytes, size));
    memcpy(out, c.digest, DESCRIPTION_HASH_SIZE);
}

void description_hash_text(const u8 hash[DESCRIPTION_HASH_SIZE],
                           char out[2 * DESCRIPTION_HASH_SIZE + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < DESCRIPTION_HASH_SIZE; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * DESCRIPTION_HASH_SIZE] = 0;
}

static int check_values(const struct machine_description *d, struct err *err)
{
    if (d->format != DESCRIPTION_FORMAT)
        return err_set(err, -EPROTONOSUPPORT,
                       "the recording has format %u, this version reads format %u", d->format,
                       DESCRIPTION_FORMAT);
    if (d->flags_rule != DESCRIPTION_FLAGS_RULE)
        return err_set(err, -EPROTONOSUPPORT,
                       "the recording follows flags rule %u, this version knows rule %u",
                       d->flags_rule, DESCRIPTION_FLAGS_RULE);
    if (d->revision > DESCRIPTION_REVISION)
        return err_set(err, -EPROTONOSUPPORT,
                       "the recording is of machine revision %u, this version knows revision %u",
                       d->revision, DESCRIPTION_REVISION);
    bool branches = !strcmp(d->position_unit, "branch");
    if (!branches && strcmp(d->position_unit, "insn"))
        return err_set(err, -EPROTONOSUPPORT,
                       "the recording counts positions in \"%s\", this version in \"insn\" or "
                       "\"branch\"",
                       d->position_unit);
    /* Instructions may be counted in a machine that has the clock of the other unit. */
    if (branches && !d->branch_ns)
        return err_set(err, -EINVAL, "positions are branches, and there is no clock");
    if (d->guest_tsc > 1 || d->event_ns > DESCRIPTION_EVENT_NS_MAX ||
        d->branch_ns > DESCRIPTION_BRANCH_NS_MAX || !d->branch_ns != !d->tsc_step)
        return err_set(err, -EINVAL, "a clock of %u ns and %u positions makes no sense",
                       d->branch_ns, d->tsc_step);
    if (cpu_model_find(d->cpu_model) == CPU_MODEL_NONE)
        return err_set(err, -EINVAL, "unknown CPU model \"%s\"", d->cpu_model);
    if (d->memory % (2u << 20) || !d->memory)
        return err_set(err, -EINVAL, "the memory size, %llu bytes, is not a multiple of 2 MiB",
                       (unsigned long long)d->memory);
    if (!d->kernel_size)
        return err_set(err, -EINVAL, "there is no kernel");
    if (d->realtime > 1)
        return err_set(err, -EINVAL, "option realtime is %u", d->realtime);
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++) {
        const struct description_disk *k = &d->disk[i];
        if (!k->size && i + 1 < DESCRIPTION_DISKS && d->disk[i + 1].size)
            return err_set(err, -EINVAL, "disk %u is missing", i);
        if (k->size && (k->readonly > 1 || k->size % 512 || !k->path[0] || !k->format[0]))
            return err_set(err, -EINVAL, "disk %u makes no sense", i);
    }
    if (d->gpu_width &&
        (d->gpu_width < DESCRIPTION_GPU_MIN || d->gpu_width > DESCRIPTION_GPU_MAX ||
         d->gpu_height < DESCRIPTION_GPU_MIN || d->gpu_height > DESCRIPTION_GPU_MAX))
        return err_set(err, -EINVAL, "the display of %u by %u makes no sense", d->gpu_width,
                       d->gpu_height);
    if (d->gpu_hz > DESCRIPTION_HZ_MAX || d->capset_size > DESCRIPTION_CAPSET_MAX ||
        ((d->gpu_hz || d->capset_size) && !d->gpu_width))
        return err_set(err, -EINVAL, "the GPU makes no sense");
    for (unsigned i = 0; i < DESCRIPTION_NETS; i++) {
        const struct description_net *n = &d->net[i];
        if (!n->mtu && i + 1 < DESCRIPTION_NETS && d->net[i + 1].mtu)
            return err_set(err, -EINVAL, "network %u is missing", i);
        if (n->mtu &&
            (n->mtu < DESCRIPTION_MTU_MIN || n->mtu > DESCRIPTION_MTU_MAX || (n->mac[0] & 1)))
            return err_set(err, -EINVAL, "network %u makes no sense", i);
    }
    for (unsigned i = 1; i + 1 < DESCRIPTION_PORTS; i++)
        if (!d->port[i].name[0] && d->port[i + 1].name[0])
            return err_set(err, -EINVAL, "port %u is missing", i);
    if (d->hvc0 > 1 || d->input > 1)
        return err_set(err, -EINVAL, "the console or the input devices make no sense");
    if (d->engine[0] &&
        (strcmp(d->engine, "kvm") || (strcmp(d->counter, "step") && strcmp(d->counter, "pmu"))))
        return err_set(err, -EINVAL, "there is no engine \"%s\" with counter \"%s\"", d->engine,
                       d->counter);
    return 0;
}

static int put_rows(const struct machine_description *d, void *out)
{
    const char *node = "";
    int rc = fdt_property_string(out, "compatible", COMPATIBLE);
    if (!rc)
        rc = fdt_property_u64(out, CHECKSUM, 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows) && !rc; i++) {
        const struct row *r = &rows[i];
        u64 scratch;
        u32 len;
        const void *bytes = encode(d, r, &scratch, &len);
        if (absent(d, r->node))
            continue;
        if (strcmp(r->node, node)) {
            if (*node)
                rc = fdt_end_node(out);
            if (!rc)
                rc = fdt_begin_node(out, r->node);
            node = r->node;
        }
        if (!rc)
            rc = fdt_property(out, r->name, bytes, (int)len);
    }
    return rc ? rc : fdt_end_node(out);
}

int description_write(const struct machine_description *d, void *out, size_t *size, struct err *err)
{
    int rc = check_values(d, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].kind == KIND_TEXT && !memchr((const u8 *)d + rows[i].offset, 0, rows[i].size))
            return err_set(err, -EINVAL, "the text of %s is too long", rows[i].name);
    memset(out, 0, DESCRIPTION_MAX_SIZE); /* padding included, the bytes are a function of *d */
    rc = fdt_create(out, DESCRIPTION_MAX_SIZE);
    if (!rc)
        rc = fdt_finish_reservemap(out);
    if (!rc)
        rc = fdt_begin_node(out, "");
    if (!rc)
        rc = put_rows(d, out);
    if (!rc)
        rc = fdt_end_node(out);
    if (!rc)
        rc = fdt_finish(out);
    if (!rc)
        rc = set_checksum(out, XXH3_64bits(out, fdt_totalsize(out)));
    if (rc)
        return err_set(err, -EINVAL, "cannot write the machine description: %s", fdt_strerror(rc));
    *size = fdt_totalsize(out);
    return 0;
}

static bool known_property(const char *node, const char *name)
{
    if (!*node && (!strcmp(name, "compatible") || !strcmp(name, CHECKSUM)))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (!strcmp(rows[i].node, node) && !strcmp(rows[i].name, name))
            return true;
    return false;
}

static int check_properties(const void *dtb, int node, const char *node_name, struct err *err)
{
    unsigned n = 0, expected = *node_name ? 0 : 2;
    int prop;
    fdt_for_each_property_offset(prop, dtb, node)
    {
        const char *name;
        if (!fdt_getprop_by_offset(dtb, prop, &name, NULL) || !known_property(node_name, name))
            return err_set(err, -EINVAL, "unknown property in node /%s", node_name);
        n++;
    }
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expected += !strcmp(rows[i].node, node_name);
    if (!expected)
        return err_set(err, -EINVAL, "unknown node /%s", node_name);
    if (n != expected) /* none twice: each that is missing is found later */
        return err_set(err, -EINVAL, "node /%s has %u properties, not %u", node_name, n, expected);
    return 0;
}

/* Nothing in the tree that the table does not know. */
static int check_unknown(const void *dtb, struct err *err)
{
    int node, rc = check_properties(dtb, 0, "", err);
    fdt_for_each_subnode(node, dtb, 0)
    {
        const char *name = fdt_get_name(dtb, node, NULL);
        if (!rc)
            rc = check_properties(dtb, node, name ? name : "", err);
        if (!rc && fdt_first_subnode(dtb, node) >= 0)
            rc = err_set(err, -EINVAL, "unknown node below /%s", name);
    }
    return rc;
}

static int decode(struct machine_description *d, const struct row *r, const void *bytes, u32 len,
                  struct err *err)
{
    u8 *field = (u8 *)d + r->offset;
    bool fits = len == r->size;
    if (r->kind == KIND_TEXT) /* exactly one NUL, at the end */
        fits = len && len <= r->size && memchr(bytes, 0, len) == (const u8 *)bytes + len - 1;
    if (!fits)
        return err_set(err, -EINVAL, "property %s of node /%s has a bad length (%u bytes)", r->name,
                       r->node, len);
    if (r->kind == KIND_U32) {
        u32 v = fdt32_ld(bytes);
        memcpy(field, &v, sizeof(v));
    } else if (r->kind == KIND_U64) {
        u64 v = fdt64_ld(bytes);
        memcpy(field, &v, sizeof(v));
    } else {
        memcpy(field, bytes, len);
    }
    return 0;
}

static int read_rows(const void *dtb, struct machine_description *d, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *r = &rows[i];
        int len, node = *r->node ? fdt_subnode_offset(dtb, 0, r->node) : 0;
        if (node < 0 && optional(r->node))
            continue;
        const void *bytes = node < 0 ? NULL : fdt_getprop(dtb, node, r->name, &len);
        if (!bytes || len < 0)
            return err_set(err, -EINVAL, "property %s of node /%s is missing", r->name, r->node);
        int rc = decode(d, r, bytes, (u32)len, err);
        if (rc)
            return rc;
        if (i == 0 && d->format != DESCRIPTION_FORMAT) /* the rest may mean something else */
            return check_values(d, err);
    }
    return 0;
}

static int read_tree(void *dtb, size_t size, struct machine_description *d, struct err *err)
{
    int rc = fdt_check_full(dtb, size);
    if (rc)
        return err_set(err, -EINVAL, "it is damaged (%s)", fdt_strerror(rc));
    if (fdt_totalsize(dtb) != size)
        return err_set(err, -EINVAL, "it has %zu bytes and says it has %u", size,
                       fdt_totalsize(dtb));
    if (fdt_node_check_compatible(dtb, 0, COMPATIBLE))
        return err_set(err, -EINVAL, "the device tree is not one of reprise");
    rc = read_rows(dtb, d, err);
    if (!rc)
        rc = check_unknown(dtb, err);
    if (rc)
        return rc;
    if (!checksum_matches(dtb, size))
        return err_set(err, -EINVAL, "it was changed: its checksum does not match");
    return check_values(d, err);
}

int description_read(const void *dtb, size_t size, struct machine_description *d, struct err *err)
{
    memset(d, 0, sizeof(*d));
    int rc;
    if (!size)
        rc = err_set(err, -EINVAL, "it is empty");
    else if (size > DESCRIPTION_MAX_SIZE)
        rc = err_set(err, -EINVAL, "it is too large (%zu bytes)", size);
    else {
        /* libfdt loads words: the copy is aligned whatever the caller's buffer is. */
        void *copy = malloc(DESCRIPTION_MAX_SIZE);
        if (!copy)
            return err_set(err, -ENOMEM, "no memory for the machine description");
        memcpy(copy, dtb, size);
        memset((u8 *)copy + size, 0, DESCRIPTION_MAX_SIZE - size);
        rc = read_tree(copy, size, d, err);
        free(copy);
    }
    if (rc) {
        memset(d, 0, sizeof(*d));
        err_prefix(err, "machine description");
    }
    return rc;
}
