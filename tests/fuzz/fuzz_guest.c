/*
 * The engine and the machine under random guest code, in ring 0 of 64-bit mode or, with --modes, in
 * all the others, or with --cpus N on two to N vCPUs (guest_cpus.c): whatever the guest does, the
 * host process must go on, and the same guest must end in the same state however the run is sliced.
 * With several vCPUs that is also so where it is stopped at random places, goes back to one, or
 * goes on in another machine.
 *
 *     fuzz_guest [--modes] [--cpus N] [--unit U] [--cases N] [--seed S] [--insns N] [--write FILE]
 *
 * U is insn, branch or both: what positions are (cpu/unit.h).
 * A failing case prints the command that repeats it; --write leaves the first case's kernel.
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/features.h"
#include "board/ram.h"
#include "cpu/vcpu.h"
#include "machine/machine.h"
#include "tests/fuzz/guest_cpus.h"

extern const u8 stub_start[], stub_end[], stub32_start[], stub32_end[];
static bool modes, features;
static unsigned cpus_most; /* 0: one vCPU */
static enum position_unit unit = UNIT_INSN;
static const char *const units[] = {
    [UNIT_INSN] = "insn", [UNIT_BRANCH] = "branch", [UNIT_BOTH] = "both"};

#define MEMORY      (16ull << 20)
#define RANDOM_SIZE (1u << 20)
#define ASLEEP      10000000000ull /* a timer may go on for ever without waking anybody */

static pos_t no_position(struct input_source *s, struct machine *m)
{
    return NEVER;
}

static int no_input(struct input_source *s, struct machine *m, struct input *in, struct err *err)
{
    return 0;
}

static int skip_idle(struct input_source *s, struct machine *m, vns_t deadline, vns_t *until,
                     struct err *err)
{
    *until = deadline;
    return deadline > ASLEEP;
}

/* The guest goes on for ever without anything that counts: where in its loop it is now nobody
 * knows. */
static int stuck(struct input_source *s, struct machine *m, struct input *in, struct err *err)
{
    return err_set(err, -EBUSY, "without a branch");
}

static const struct input_source_ops no_ops = {no_position, no_input, skip_idle, stuck, NULL};

u64 guest_random(u64 *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s * 0x2545f4914f6cdd1dull;
}

/* Bytes that look like code: prefixes, one- and two-byte opcodes, VEX, ModRM of all kinds. */
static void random_code(u8 *p, size_t n, u64 *s)
{
    static const u8 pre[] = {0x66, 0xf2, 0xf3, 0xf0, 0x64, 0x65, 0x67, 0x48, 0x41,
                             0x4c, 0x0f, 0x0f, 0x0f, 0xc5, 0xc4, 0x48, 0x48};
    static const u8 sys[][3] = {{0x0f, 0x01, 0xf8}, {0x0f, 0x22, 0xd8}, {0x0f, 0x22, 0xc0},
                                {0x0f, 0x30, 0x90}, {0x0f, 0x32, 0x90}, {0x48, 0xcf, 0x90},
                                {0x0f, 0x05, 0x90}, {0x48, 0x0f, 0x07}, {0x0f, 0xae, 0x00},
                                {0xf3, 0x48, 0xab}, {0xf3, 0xa4, 0x90}, {0x9d, 0x9c, 0x90},
                                {0xfb, 0x90, 0xfa}, {0xcd, 0x80, 0xcc}, {0x8e, 0xd0, 0x90}};
    for (size_t i = 0; i < n;) {
        u64 r = guest_random(s);
        if (r % 16 == 0 && i + 3 <= n) {
            memcpy(p + i, sys[(r >> 8) % (sizeof(sys) / 3)], 3);
            i += 3;
        } else if (r % 3 == 0) {
            p[i++] = pre[(r >> 8) % sizeof(pre)];
        } else {
            p[i++] = (u8)(r >> 16);
        }
    }
}

void *guest_elf(const u8 *stub, size_t stub_size, size_t code, u8 **at, size_t *size)
{
    size_t head = 4096;
    *size = head + 8192 + code;
    u8 *elf = calloc(1, *size);
    Elf64_Ehdr *eh = (void *)elf;
    memcpy(eh->e_ident, ELFMAG, SELFMAG);
    eh->e_ident[EI_CLASS] = ELFCLASS64;
    eh->e_ident[EI_DATA] = ELFDATA2LSB;
    eh->e_ident[EI_VERSION] = EV_CURRENT;
    eh->e_type = ET_EXEC;
    eh->e_machine = EM_X86_64;
    eh->e_version = EV_CURRENT;
    eh->e_entry = 0x100000;
    eh->e_phoff = sizeof(*eh);
    eh->e_ehsize = sizeof(*eh);
    eh->e_phentsize = sizeof(Elf64_Phdr);
    eh->e_phnum = 2;
    Elf64_Phdr *ph = (void *)(elf + eh->e_phoff);
    ph[0] = (Elf64_Phdr){PT_LOAD, PF_R | PF_X, head, 0x100000, 0x100000, stub_size, 0x4000, 4096};
    ph[1] = (Elf64_Phdr){PT_LOAD, PF_R | PF_X, head + 8192, 0x200000, 0x200000, code, code, 4096};
    memcpy(elf + head, stub, stub_size);
    *at = elf + head + 8192;
    return elf;
}

static void *make_elf(u64 seed, size_t *size)
{
    u8 *code,
        *elf = guest_elf(stub_start, (size_t)(stub_end - stub_start), RANDOM_SIZE, &code, size);
    random_code(code, RANDOM_SIZE, &seed);
    return elf;
}

/* The same of 32 bits, entered by PVH. */
static void *make_elf32(u64 seed, size_t *size)
{
    static const struct {
        u32 name_size, size, type;
        char name[4];
        u32 entry;
    } note = {4, 4, 18, "Xen", 0x100000};
    const u32 head = 4096, code = head + 8192;
    u32 stub = (u32)(stub32_end - stub32_start);
    *size = code + RANDOM_SIZE;
    u8 *elf = calloc(1, *size);
    Elf32_Ehdr *eh = (void *)elf;
    memcpy(eh->e_ident, ELFMAG, SELFMAG);
    eh->e_ident[EI_CLASS] = ELFCLASS32;
    eh->e_ident[EI_DATA] = ELFDATA2LSB;
    eh->e_ident[EI_VERSION] = EV_CURRENT;
    eh->e_type = ET_EXEC;
    eh->e_machine = EM_386;
    eh->e_entry = 0x100000;
    eh->e_phoff = sizeof(*eh);
    eh->e_phentsize = sizeof(Elf32_Phdr);
    eh->e_phnum = 3;
    Elf32_Phdr *ph = (void *)(elf + eh->e_phoff);
    ph[0] = (Elf32_Phdr){PT_LOAD, head, 0x100000, 0x100000, stub, 0x10000, PF_R | PF_X, 4096};
    ph[1] = (Elf32_Phdr){PT_LOAD,     code,        0x200000,    0x200000,
                         RANDOM_SIZE, RANDOM_SIZE, PF_R | PF_X, 4096};
    ph[2] = (Elf32_Phdr){PT_NOTE, 1024, 0, 0, sizeof(note), sizeof(note), PF_R, 4};
    memcpy(elf + 1024, &note, sizeof(note));
    memcpy(elf + head, stub32_start, stub);
    random_code(elf + code, RANDOM_SIZE, &seed);
    return elf;
}

/* For a failure: every field of every component, to be compared with diff(1). */
static void dump(struct machine *m, u64 slice)
{
    for (unsigned i = 0; i < machine_components(m); i++) {
        struct machine_component c;
        machine_component(m, i, &c);
        for (size_t f = 0; f < c.desc->nfields; f++) {
            const struct state_field *sf = &c.desc->fields[f];
            printf("%llu %s.%s", (unsigned long long)slice, c.name, sf->name);
            for (unsigned k = 0; k < sf->count; k++) {
                u64 v = 0;
                memcpy(&v, (const u8 *)c.state + sf->offset + sf->elem * k, sf->elem);
                printf(" %llx", (unsigned long long)v);
            }
            putchar('\n');
        }
    }
}

struct outcome {
    int ret;
    struct run_end end;
    u64 position, digest;
};

struct guest {
    const void *elf;
    size_t size;
    struct cpu_choice cpu;
    u32 cpus;
    u64 seed, insns;
};

static struct machine *create(const struct guest *g)
{
    struct err err = {0};
    struct machine_description is;
    description_init(&is);
    is.memory = MEMORY;
    is.cpus = g->cpus;
    snprintf(is.cpu_model, sizeof(is.cpu_model), "%s", cpu_model_name(g->cpu.model));
    cpu_changes_text(&g->cpu, is.cpu_features);
    is.seed = 1;
    is.wall_clock = 1700000000;
    if (unit != UNIT_INSN) {
        if (unit == UNIT_BRANCH)
            snprintf(is.position_unit, sizeof(is.position_unit), "branch");
        is.branch_ns = MACHINE_BRANCH_NS;
        is.event_ns = MACHINE_EVENT_NS;
        is.tsc_step = MACHINE_TSC_STEP;
    }
    struct machine_config mc = {.is = &is, .kernel = g->elf, .kernel_size = g->size};
    struct machine *m;
    if (!machine_create(&m, &mc, &err))
        return m;
    fprintf(stderr, "fuzz_guest: %s\n", err.text);
    exit(1);
}

static void go(struct machine *m, const struct run_limits *limits, struct outcome *o)
{
    struct err err = {0};
    struct input_source src = {&no_ops};
    o->ret = machine_run(m, &src, limits, &o->end, &err);
    if (o->end.reason == RUN_UNSUPPORTED)
        printf("note: %s\n", err.text);
}

static void look(struct machine *m, u64 slice, struct outcome *o)
{
    o->position = machine_position(m);
    u64 d = 0;
    if (o->end.reason == RUN_ERROR)
        return;
    for (unsigned i = 0; i < machine_components(m); i++)
        d = d * 31 + machine_component_digest(m, i);
    gpa_t gpa;
    for (unsigned i = 0; i < machine_ram_regions(m); i++)
        d = d * 31 + machine_ram_region_digest(m, i, &gpa);
    o->digest = d;
    if (getenv("FUZZ_DUMP"))
        dump(m, slice);
}

static void run(const struct guest *g, u64 slice, struct outcome *o)
{
    struct machine *m = create(g);
    struct run_limits limits = {.stop_at = g->insns, .slice = slice};
    memset(o, 0, sizeof(*o));
    go(m, &limits, o);
    look(m, slice, o);
    machine_destroy(m);
}

/* ---- stopped, back, and on elsewhere ---- */

struct kept {
    u8 *state, *ram;
};

static void keep(struct machine *m, struct kept *k)
{
    const struct ram *ram = machine_ram(m);
    k->state = malloc(machine_state_size(m));
    k->ram = malloc(ram->size);
    machine_state_save(m, k->state);
    memcpy(k->ram, ram->host, ram->size);
}

static void give_back(struct machine *m, const struct kept *k)
{
    const struct ram *ram = machine_ram(m);
    struct err err = {0};
    for (u64 i = 0; i < ram->size / PAGE_SIZE; i++)
        if (memcmp(ram->host + i * PAGE_SIZE, k->ram + i * PAGE_SIZE, PAGE_SIZE) != 0) {
            memcpy(ram->host + i * PAGE_SIZE, k->ram + i * PAGE_SIZE, PAGE_SIZE);
            machine_page_changed(m, i);
        }
    if (machine_state_load(m, k->state, machine_state_size(m), &err)) {
        fprintf(stderr, "fuzz_guest: what was saved does not load: %s\n", err.text);
        exit(1);
    }
    free(k->state);
    free(k->ram);
}

/* Single steps, short runs and long ones. */
static pos_t some_way(u64 *s)
{
    static const u32 most[] = {2, 20, 300, 5000, 60000};
    return 1 + guest_random(s) % most[guest_random(s) % ARRAY_SIZE(most)];
}

static void wander(const struct guest *g, struct outcome *o)
{
    u64 s = g->seed * 0x9e3779b97f4a7c15ull | 1;
    struct machine *m = create(g);
    memset(o, 0, sizeof(*o));
    do {
        static const u64 slices[] = {0, 1, 7, 997};
        u64 what = guest_random(&s) % 64;
        struct kept k = {0};
        if (what < 2)
            keep(m, &k);
        if (what == 0) { /* ahead, and back */
            struct outcome ahead;
            struct run_limits limits = {.stop_at = machine_position(m) + 10 * some_way(&s)};
            go(m, &limits, &ahead);
        } else if (what == 1) {
            machine_destroy(m);
            m = create(g);
        }
        if (what < 2)
            give_back(m, &k);
        u64 slice = slices[guest_random(&s) % ARRAY_SIZE(slices)];
        pos_t to = machine_position(m) + some_way(&s);
        struct run_limits limits = {.stop_at = MIN(to, g->insns), .slice = slice};
        go(m, &limits, o);
    } while (o->end.reason == RUN_STOP && machine_position(m) < g->insns);
    look(m, 1, o);
    machine_destroy(m);
}

static bool same(const struct guest *g, const struct outcome *a, const struct outcome *b,
                 const char *what)
{
    if (!memcmp(a, b, sizeof(*a)))
        return true;
    printf("FAIL seed %llu: slices of 1000000 end (%d) at %llu, digest %llx; %s (%d) at %llu, "
           "digest %llx\n",
           (unsigned long long)g->seed, a->end.reason, (unsigned long long)a->position,
           (unsigned long long)a->digest, what, b->end.reason, (unsigned long long)b->position,
           (unsigned long long)b->digest);
    return false;
}

static bool passes(const struct guest *g, struct outcome *a)
{
    struct outcome b;
    run(g, 0, a);
    run(g, 997, &b);
    bool good = same(g, a, &b, "slices of 997");
    if (g->cpus > 1) {
        wander(g, &b);
        good &= same(g, a, &b, "stopped here and there");
    }
    return good;
}

/* Some more, some less; from the last on, so that what needs others goes first. */
static void draw_features(struct cpu_choice *cpu, u64 *s)
{
    for (size_t i = cpu_feature_count; i--;) {
        const struct cpu_feature_row *r = &cpu_feature_rows[i];
        struct cpu_choice changed = *cpu, again;
        struct err err;
        char text[CPU_CHANGES];
        if (!r->free || guest_random(s) % 4)
            continue;
        changed.words[r->feature / 32] ^= 1u << r->feature % 32;
        cpu_changes_text(&changed, text);
        if (!cpu_change(cpu->model, text, &again, &err) && !cpu_host_lacks(again.words))
            *cpu = again;
    }
}

static void draw_guest(struct guest *g)
{
    u64 s = g->seed * 0x9e3779b97f4a7c15ull | 1;
    g->cpus = cpus_most ? 2 + (u32)(s >> 8) % (cpus_most - 1) : 1;
    g->elf = (cpus_most ? guest_cpus_elf : modes ? make_elf32 : make_elf)(s, &g->size);
    struct err err;
    enum cpu_model model = g->seed & 1 && !cpu_host_lacks(cpu_model_words(CPU_X86_64_V3))
                               ? CPU_X86_64_V3
                               : CPU_X86_64_V2;
    if (cpu_change(model, "", &g->cpu, &err))
        exit(1);
    if (features)
        draw_features(&g->cpu, &s);
}

static int write_kernel(const struct guest *g, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f && fwrite(g->elf, g->size, 1, f) == 1 && !fclose(f)) {
        printf("%u vCPUs, %s\n", g->cpus, cpu_model_name(g->cpu.model));
        return 0;
    }
    perror(path);
    return 1;
}

static enum position_unit find_unit(const char *name)
{
    for (size_t i = 1; i < ARRAY_SIZE(units); i++)
        if (!strcmp(name, units[i]))
            return (enum position_unit)i;
    return 0;
}

int main(int argc, char **argv)
{
    u64 cases = 20, seed = 1, insns = 3000000;
    if (argc > 1 && !strcmp(argv[1], "--modes")) {
        modes = true;
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    const char *to = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        u64 v = strtoull(argv[i + 1], NULL, 0);
        if (!strcmp(argv[i], "--cases"))
            cases = v;
        else if (!strcmp(argv[i], "--seed"))
            seed = v;
        else if (!strcmp(argv[i], "--insns"))
            insns = v;
        else if (!strcmp(argv[i], "--cpus") && v >= 2 && v <= CPUS_MAX)
            cpus_most = (unsigned)v;
        else if (!strcmp(argv[i], "--features") && v <= 1)
            features = v;
        else if (!strcmp(argv[i], "--unit") && find_unit(argv[i + 1]))
            unit = find_unit(argv[i + 1]);
        else if (!strcmp(argv[i], "--write"))
            to = argv[i + 1];
        else
            return fprintf(stderr, "fuzz_guest: unknown option %s %s\n", argv[i], argv[i + 1]), 2;
    }
    u64 passed = 0, total = 0, ends[16] = {0};
    for (u64 c = 0; c < cases; c++) {
        struct guest g = {.seed = seed + c, .insns = insns};
        struct outcome a;
        draw_guest(&g);
        if (to)
            return write_kernel(&g, to);
        printf("seed %llu\r", (unsigned long long)g.seed);
        fflush(stdout);
        bool good = passes(&g, &a);
        free((void *)g.elf);
        total += a.position;
        ends[a.end.reason & 15]++;
        passed += good;
        if (!good)
            printf("repeat with: %s%s%s%.0u%s --unit %s --seed %llu --cases 1 --insns %llu\n",
                   argv[0], modes ? " --modes" : "", cpus_most ? " --cpus " : "", cpus_most,
                   features ? " --features 1" : "", units[unit], (unsigned long long)g.seed,
                   (unsigned long long)insns);
    }
    printf("fuzz_guest: %llu positions; ends:", (unsigned long long)total);
    for (unsigned i = 0; i < 16; i++)
        if (ends[i])
            printf(" %u:%llu", i, (unsigned long long)ends[i]);
    printf("\n%llu passed, %llu failed, 0 skipped\n", (unsigned long long)passed,
           (unsigned long long)(cases - passed));
    return passed != cases;
}
