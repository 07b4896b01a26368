/*
 * The engine and the machine under random guest code, in ring 0 of 64-bit mode or, with --modes, in
 * all the others: whatever the guest does, the host process must go on, and the same guest must end
 * in the same state however the run is sliced.
 *
 *     fuzz_guest [--modes] [--cases N] [--seed S] [--insns N]
 *
 * A failing case prints the command that repeats it.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/vcpu.h"
#include "machine/machine.h"

extern const u8 stub_start[], stub_end[], stub32_start[], stub32_end[];
static bool modes;

#define MEMORY      (16ull << 20)
#define RANDOM_SIZE (1u << 20)

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
    return deadline == NEVER;
}

static const struct input_source_ops no_ops = {no_position, no_input, skip_idle, NULL, NULL};

static u64 rnd(u64 *s)
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
        u64 r = rnd(s);
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

static void *make_elf(u64 seed, size_t *size)
{
    size_t stub = (size_t)(stub_end - stub_start), head = 4096;
    *size = head + 8192 + RANDOM_SIZE;
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
    ph[0] = (Elf64_Phdr){PT_LOAD, PF_R | PF_X, head, 0x100000, 0x100000, stub, 0x4000, 4096};
    ph[1] = (Elf64_Phdr){PT_LOAD,  PF_R | PF_X, head + 8192, 0x200000,
                         0x200000, RANDOM_SIZE, RANDOM_SIZE, 4096};
    memcpy(elf + head, stub_start, stub);
    random_code(elf + head + 8192, RANDOM_SIZE, &seed);
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

static int run(const void *elf, size_t size, u64 slice, u64 insns, enum cpu_model model,
               struct outcome *o)
{
    struct err err = {0};
    struct machine_description is;
    description_init(&is);
    is.memory = MEMORY;
    snprintf(is.cpu_model, sizeof(is.cpu_model), "%s", cpu_model_name(model));
    is.seed = 1;
    is.wall_clock = 1700000000;
    struct machine_config mc = {.is = &is, .kernel = elf, .kernel_size = size};
    struct machine *m;
    if (machine_create(&m, &mc, &err)) {
        fprintf(stderr, "fuzz_guest: %s\n", err.text);
        return -1;
    }
    struct input_source src = {&no_ops};
    struct run_limits limits = {.stop_at = insns, .slice = slice};
    memset(o, 0, sizeof(*o));
    o->ret = machine_run(m, &src, &limits, &o->end, &err);
    if (o->end.reason == RUN_UNSUPPORTED)
        printf("note: %s\n", err.text);
    o->position = machine_position(m);
    u64 d = 0;
    for (unsigned i = 0; i < machine_components(m); i++)
        d = d * 31 + machine_component_digest(m, i);
    gpa_t gpa;
    for (unsigned i = 0; i < machine_ram_regions(m); i++)
        d = d * 31 + machine_ram_region_digest(m, i, &gpa);
    o->digest = d;
    if (getenv("FUZZ_DUMP"))
        dump(m, slice);
    machine_destroy(m);
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
    for (int i = 1; i + 1 < argc; i += 2) {
        u64 v = strtoull(argv[i + 1], NULL, 0);
        if (!strcmp(argv[i], "--cases"))
            cases = v;
        else if (!strcmp(argv[i], "--seed"))
            seed = v;
        else if (!strcmp(argv[i], "--insns"))
            insns = v;
        else
            return fprintf(stderr, "fuzz_guest: unknown option %s\n", argv[i]), 2;
    }
    u64 passed = 0, total = 0, ends[16] = {0};
    for (u64 c = 0; c < cases; c++) {
        u64 s = seed + c;
        enum cpu_model model =
            s & 1 && !cpu_model_host_lacks(CPU_X86_64_V3) ? CPU_X86_64_V3 : CPU_X86_64_V2;
        size_t size;
        void *elf = (modes ? make_elf32 : make_elf)(s * 0x9e3779b97f4a7c15ull | 1, &size);
        struct outcome a, b;
        printf("seed %llu\r", (unsigned long long)s);
        fflush(stdout);
        if (run(elf, size, 0, insns, model, &a) || run(elf, size, 997, insns, model, &b))
            return 1;
        free(elf);
        total += a.position;
        ends[a.end.reason & 15]++;
        if (memcmp(&a, &b, sizeof(a)) == 0) {
            passed++;
            continue;
        }
        printf("FAIL seed %llu: slices of 1000000 end (%d) at %llu, digest %llx; slices of 997 "
               "(%d) at "
               "%llu, digest %llx\n"
               "repeat with: %s%s --seed %llu --cases 1 --insns %llu\n",
               (unsigned long long)s, a.end.reason, (unsigned long long)a.position,
               (unsigned long long)a.digest, b.end.reason, (unsigned long long)b.position,
               (unsigned long long)b.digest, argv[0], modes ? " --modes" : "",
               (unsigned long long)s, (unsigned long long)insns);
    }
    printf("fuzz_guest: %llu instructions; ends:", (unsigned long long)total);
    for (unsigned i = 0; i < 16; i++)
        if (ends[i])
            printf(" %u:%llu", i, (unsigned long long)ends[i]);
    printf("\n%llu passed, %llu failed, 0 skipped\n", (unsigned long long)passed,
           (unsigned long long)(cases - passed));
    return passed != cases;
}
