/*
 * Machine description <-> flattened device tree (description.h). Devicetree Specification 0.4,
 * chapter 5, by libfdt. The file comes from a recording and is hostile: libfdt checks the
 * structure, description.def every property's size, check_values() what the values mean. Unknown
 * nodes and properties are refused: they would say something about the machine that this version
 * does not do.
 */
#include "board/description.h"

#include <cpuid.h>
#include <errno.h>
#include <libfdt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LINE(ID, label) [LINE_##ID] = label,
const char *const description_line_label[LINE_COUNT] = {
#include "board/description.def"
};

#define NODE_IF(id, name, there)                                                                   \
    static bool there_##id(const struct machine_description *d)                                    \
    {                                                                                              \
        return there;                                                                              \
    }
#include "board/description.def"

enum {
#define NODE(id, name)           NODE_##id,
#define NODE_IF(id, name, there) NODE_##id,
#include "board/description.def"
};

static const struct {
    const char *name;
    bool (*there)(const struct machine_description *d); /* NULL: always */
} nodes[] = {
#define NODE(id, name)                {name, NULL},
#define NODE_IF(id, name, expression) {name, there_##id},
#include "board/description.def"
};

const struct description_row description_rows[] = {
#define ROW(id, name, what, field, ...)                                                            \
    {.node = NODE_##id,                                                                            \
     .property = name,                                                                             \
     .kind = DESCRIPTION_##what,                                                                   \
     .offset = (u32)offsetof(struct machine_description, field),                                   \
     .size = (u32)sizeof(((struct machine_description *)0)->field),                                \
     __VA_ARGS__},
#include "board/description.def"
};
const size_t description_row_count = ARRAY_SIZE(description_rows);

const char *description_node(const struct description_row *r)
{
    return nodes[r->node].name;
}

bool description_there(const struct machine_description *d, const struct description_row *r)
{
    return !nodes[r->node].there || nodes[r->node].there(d);
}

u64 description_number(const struct machine_description *d, const struct description_row *r)
{
    const void *field = (const u8 *)d + r->offset;
    u32 v32;
    u64 v64;
    if (r->size == sizeof(v32)) {
        memcpy(&v32, field, sizeof(v32));
        return v32;
    }
    memcpy(&v64, field, sizeof(v64));
    return v64;
}

static void put_number(struct machine_description *d, const struct description_row *r, u64 value)
{
    void *field = (u8 *)d + r->offset;
    u32 v32 = (u32)value;
    memcpy(field, r->size == sizeof(v32) ? (const void *)&v32 : (const void *)&value, r->size);
}

static bool is_number(const struct description_row *r)
{
    return r->kind == DESCRIPTION_NUMBER || r->kind == DESCRIPTION_FLAG;
}

/* What a number may be at most. */
static u64 most(const struct description_row *r)
{
    return r->kind == DESCRIPTION_FLAG ? 1
           : r->most                   ? r->most
           : r->size == 4              ? UINT32_MAX
                                       : UINT64_MAX;
}

static bool in_range(const struct description_row *r, u64 value)
{
    return value >= r->least && value <= most(r) && !(r->step && value % r->step);
}

bool description_set(struct machine_description *d, const struct description_row *r, u64 value)
{
    if (!in_range(r, value))
        return false;
    put_number(d, r, value);
    return true;
}

void description_refusal(const struct description_row *r, char *out, size_t size)
{
    const char *says = r->says ? r->says : "may be %", *at = strchr(says, '%');
    char multiple[64] = "";
    if (r->step && !r->says)
        snprintf(multiple, sizeof(multiple), ", multiples of %llu", (unsigned long long)r->step);
    if (at)
        snprintf(out, size, "%.*s%llu to %llu%s%s", (int)(at - says), says,
                 (unsigned long long)r->least, (unsigned long long)most(r), at + 1, multiple);
    else
        snprintf(out, size, "%s", says);
}

bool description_one_of(const char *text, const char *values)
{
    for (size_t n; *values; values += n + (values[n] == '|')) {
        n = strcspn(values, "|");
        if (strlen(text) == n && !memcmp(text, values, n))
            return true;
    }
    return false;
}

static void set_std(struct machine_description *d)
{
    memset(d, 0, sizeof(*d));
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        if (is_number(r))
            put_number(d, r, r->std);
        else if (r->text)
            memcpy((u8 *)d + r->offset, r->text, strlen(r->text) + 1);
    }
}

unsigned description_disks(const struct machine_description *d)
{
    unsigned n = 0;
    while (n < DESCRIPTION_DISKS && d->disk[n].size)
        n++;
    return n;
}

unsigned description_nets(const struct machine_description *d)
{
    unsigned n = 0;
    while (n < DESCRIPTION_NETS && d->net[n].mtu)
        n++;
    return n;
}

unsigned description_shares(const struct machine_description *d)
{
    unsigned n = 0;
    while (n < DESCRIPTION_SHARES && d->share[n].tag[0])
        n++;
    return n;
}

unsigned description_share_room(const struct machine_description *d)
{
    unsigned used = 1 + description_disks(d) + description_nets(d) + (d->gpu.width != 0) +
                    (d->hvc0 || d->port[1].name[0]) + (d->input ? 2 : 0);
    return MIN(15 - used, (unsigned)DESCRIPTION_SHARES);
}

int description_cpu(const struct machine_description *d, struct cpu_choice *out, struct err *err)
{
    char text[CPU_CHANGES];
    enum cpu_model model = cpu_model_find(d->cpu_model);
    if (model == CPU_MODEL_NONE)
        return err_set(err, -EINVAL, "unknown CPU model \"%s\"", d->cpu_model);
    int code = cpu_change(model, d->cpu_features, out, err);
    if (code)
        return err_prefix(err, "CPU features \"%s\"", d->cpu_features);
    cpu_changes_text(out, text);
    return !strcmp(text, d->cpu_features)
               ? 0
               : err_set(err, -EINVAL, "CPU features \"%s\" are said as \"%s\"", d->cpu_features,
                         text);
}

bool description_by_insn(const struct machine_description *d)
{
    return d->branch_ns && !strcmp(d->position_unit, "insn");
}

struct cpu_parts description_cpu_parts(const struct machine_description *d)
{
    return (struct cpu_parts){.cpus = d->cpus, .cores = d->cores, .threads = d->threads};
}

bool description_has_id(const struct machine_description *d)
{
    static const u8 none[DESCRIPTION_ID_SIZE];
    return memcmp(d->recording_id, none, sizeof(none));
}

#define COMPATIBLE "reprise,machine"
#define CHECKSUM   "checksum" /* u64 in the root */

/* Bytes of the field as the property holds them; integers are big-endian in a device tree. */
static const void *encode(const struct machine_description *d, const struct description_row *r,
                          u64 *scratch, u32 *len)
{
    const void *field = (const u8 *)d + r->offset;
    *len = r->kind == DESCRIPTION_TEXT ? (u32)strnlen(field, r->size - 1) + 1 : r->size;
    if (!is_number(r))
        return field;
    fdt32_t be32 = cpu_to_fdt32((u32)description_number(d, r));
    fdt64_t be64 = cpu_to_fdt64(description_number(d, r));
    memcpy(scratch, r->size == sizeof(be32) ? (const void *)&be32 : (const void *)&be64, r->size);
    return scratch;
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
    set_std(d);
    d->revision = DESCRIPTION_REVISION;
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

bool description_canonical(const struct machine_description *d)
{
    return d->revision >= 4 && !d->branch_ns;
}

/* What this version does not know, before what a later one may have made of the rest. */
static int check_version(const struct machine_description *d, struct err *err)
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
    if (strcmp(d->position_unit, "branch") && strcmp(d->position_unit, "insn"))
        return err_set(err, -EPROTONOSUPPORT,
                       "the recording counts positions in \"%s\", this version in \"insn\" or "
                       "\"branch\"",
                       d->position_unit);
    return 0;
}

static int check_row(const struct machine_description *d, const struct description_row *r,
                     struct err *err)
{
    const char *node = description_node(r);
    char why[128];
    if (!description_there(d, r))
        return 0;
    if (is_number(r) && !in_range(r, description_number(d, r))) {
        description_refusal(r, why, sizeof(why));
        return err_set(err, -EINVAL, "%s of node /%s is %llu: %s", r->property, node,
                       (unsigned long long)description_number(d, r), why);
    }
    if (r->kind == DESCRIPTION_TEXT && r->values &&
        !description_one_of((const char *)d + r->offset, r->values))
        return err_set(err, -EINVAL, "%s of node /%s is \"%s\", none of %s", r->property, node,
                       (const char *)d + r->offset, r->values);
    return 0;
}

/* What concerns more than one row, or a list of another file. */
static int check_sense(const struct machine_description *d, struct err *err)
{
    /* Instructions may be counted in a machine that has the clock of the other unit. */
    if (!strcmp(d->position_unit, "branch") && !d->branch_ns)
        return err_set(err, -EINVAL, "positions are branches, and there is no clock");
    if (!d->branch_ns != !d->tsc_step)
        return err_set(err, -EINVAL, "a clock of %u ns and %u positions makes no sense",
                       d->branch_ns, d->tsc_step);
    struct cpu_choice cpu;
    int code = description_cpu(d, &cpu, err);
    if (code)
        return code;
    if (d->branch_ns && cpu_not_free(&cpu))
        return err_set(err, -EINVAL, "CPU features \"%s\" where branches are counted: %s",
                       d->cpu_features, cpu_not_free(&cpu));
    for (unsigned i = 0; i < DESCRIPTION_DISKS; i++) {
        const struct description_disk *k = &d->disk[i];
        if (k->size && i > description_disks(d))
            return err_set(err, -EINVAL, "disk %u is missing", description_disks(d));
        if (k->size && (!k->path[0] || !k->format[0]))
            return err_set(err, -EINVAL, "disk %u makes no sense", i);
    }
    for (unsigned i = 0; i < DESCRIPTION_NETS; i++) {
        if (d->net[i].mtu && i > description_nets(d))
            return err_set(err, -EINVAL, "network %u is missing", description_nets(d));
        if (d->net[i].mtu && (d->net[i].mac[0] & 1))
            return err_set(err, -EINVAL, "network %u makes no sense", i);
    }
    for (unsigned i = 0; i < DESCRIPTION_SHARES; i++)
        if (d->share[i].tag[0] && i > description_shares(d))
            return err_set(err, -EINVAL, "share %u is missing", description_shares(d));
    if (description_shares(d) > description_share_room(d))
        return err_set(err, -EINVAL, "beside the other devices there is room for %u shares, not %u",
                       description_share_room(d), description_shares(d));
    for (unsigned i = 1; i + 1 < DESCRIPTION_PORTS; i++)
        if (!d->port[i].name[0] && d->port[i + 1].name[0])
            return err_set(err, -EINVAL, "port %u is missing", i);
    if ((d->gpu.capset_size || d->gpu.hz != DESCRIPTION_HZ) && !d->gpu.width)
        return err_set(err, -EINVAL, "there is something of a GPU, and no GPU");
    if (!strcmp(d->pmu, "on") &&
        (d->branch_ns || !cpu_model_pmu(cpu_model_find(d->cpu_model))->kind))
        return err_set(err, -EINVAL, "the counters of CPU model \"%s\" make no sense",
                       d->cpu_model);
    const u32 package = d->cores * d->threads;
    if (d->cores && (d->cpus == 1 || package > d->cpus || d->cpus % package))
        return err_set(
            err, -EINVAL,
            "%u CPUs do not make whole packages of %u cores with %u threads: %u, %u and so on do",
            d->cpus, d->cores, d->threads, package, 2 * package);
    if (d->cpus > 1 && d->branch_ns && d->revision < 7)
        return err_set(err, -EINVAL,
                       "several CPUs whose branches are counted are there from revision 7 of the "
                       "machine on, and this is %u",
                       d->revision);
    if (d->counter[0] && !strcmp(d->engine, "dbt"))
        return err_set(err, -EINVAL, "there is no engine \"dbt\" with counter \"%s\"", d->counter);
    return 0;
}

static int check_values(const struct machine_description *d, struct err *err)
{
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        if (r->kind == DESCRIPTION_TEXT && !memchr((const u8 *)d + r->offset, 0, r->size))
            return err_set(err, -EINVAL, "the text of %s is too long", r->property);
    }
    int rc = check_version(d, err);
    for (size_t i = 0; !rc && i < description_row_count; i++)
        rc = check_row(d, &description_rows[i], err);
    return rc ? rc : check_sense(d, err);
}

static int put_rows(const struct machine_description *d, void *out)
{
    const char *node = "";
    int rc = fdt_property_string(out, "compatible", COMPATIBLE);
    if (!rc)
        rc = fdt_property_u64(out, CHECKSUM, 0);
    for (size_t i = 0; i < description_row_count && !rc; i++) {
        const struct description_row *r = &description_rows[i];
        u64 scratch;
        u32 len;
        const void *bytes = encode(d, r, &scratch, &len);
        if (!description_there(d, r))
            continue;
        if (description_node(r) != node) {
            if (*node)
                rc = fdt_end_node(out);
            node = description_node(r);
            if (!rc && *node)
                rc = fdt_begin_node(out, node);
        }
        if (!rc)
            rc = fdt_property(out, r->property, bytes, (int)len);
    }
    return rc ? rc : fdt_end_node(out);
}

int description_write(const struct machine_description *d, void *out, size_t *size, struct err *err)
{
    int rc = check_values(d, err);
    if (rc)
        return rc;
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
    for (size_t i = 0; i < description_row_count; i++)
        if (!strcmp(description_node(&description_rows[i]), node) &&
            !strcmp(description_rows[i].property, name))
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
    for (size_t i = 0; i < description_row_count; i++)
        expected += !strcmp(description_node(&description_rows[i]), node_name);
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

static int decode(struct machine_description *d, const struct description_row *r, const void *bytes,
                  u32 len, struct err *err)
{
    bool fits = len == r->size;
    if (r->kind == DESCRIPTION_TEXT) /* exactly one NUL, at the end */
        fits = len && len <= r->size && memchr(bytes, 0, len) == (const u8 *)bytes + len - 1;
    if (!fits)
        return err_set(err, -EINVAL, "property %s of node /%s has a bad length (%u bytes)",
                       r->property, description_node(r), len);
    if (is_number(r)) {
        put_number(d, r, len == sizeof(u32) ? fdt32_ld(bytes) : fdt64_ld(bytes));
    } else {
        memset((u8 *)d + r->offset, 0, r->size);
        memcpy((u8 *)d + r->offset, bytes, len);
    }
    return 0;
}

static int read_rows(const void *dtb, struct machine_description *d, struct err *err)
{
    for (size_t i = 0; i < description_row_count; i++) {
        const struct description_row *r = &description_rows[i];
        const char *name = description_node(r);
        int len, node = *name ? fdt_subnode_offset(dtb, 0, name) : 0;
        if (node < 0 && nodes[r->node].there)
            continue;
        const void *bytes = node < 0 ? NULL : fdt_getprop(dtb, node, r->property, &len);
        if (!bytes || len < 0)
            return err_set(err, -EINVAL, "property %s of node /%s is missing", r->property, name);
        int rc = decode(d, r, bytes, (u32)len, err);
        if (rc)
            return rc;
        if (i == 0 && d->format != DESCRIPTION_FORMAT) /* the rest may mean something else */
            return check_version(d, err);
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
    int rc;
    set_std(d);
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
