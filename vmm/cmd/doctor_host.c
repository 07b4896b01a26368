/* Facts of the host that the engine dbt and the devices need: see doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "board/ram.h"
#include "cmd/doctor.h"
#include "cpu/features.h"
#include "cpu/engine.h"
#include "host/child.h"
#include "host/clock.h"
#include "host/companion.h"
#include "host/sandbox.h"

/* The guest of dbt: flat 64-bit code that reaches nothing outside of the CPU. */

static u32 no_pio_read(void *m, u16 port, unsigned size)
{
    return UINT32_MAX;
}

static void no_pio_write(void *m, u16 port, unsigned size, u32 value)
{
}

static u64 no_mmio_read(void *m, gpa_t gpa, unsigned size)
{
    return UINT64_MAX;
}

static void no_mmio_write(void *m, gpa_t gpa, unsigned size, u64 value)
{
}

static bool no_rdmsr(void *m, u32 msr, u64 *value)
{
    return false;
}

static bool no_wrmsr(void *m, u32 msr, u64 value)
{
    return false;
}

static u64 no_cr8(void *m)
{
    return 0;
}

static void no_set_cr8(void *m, u64 value)
{
}

static vns_t no_time(void *m)
{
    return 0;
}

enum { DBT_RAM = 16 << 20, DBT_CODE = 0x100000, DBT_LOOPS = 20000000 };

static void prepare(struct engine *e, struct ram *ram)
{
    /* 1: add rax, rdx; dec rcx; jnz 1; hlt */
    static const u8 code[] = {0x48, 0x01, 0xd0, 0x48, 0xff, 0xc9, 0x75, 0xf8, 0xf4};
    struct vcpu *v = engine_vcpu(e);
    u64 *tables = ram_ptr(ram, 0x1000, 3 * PAGE_SIZE);
    tables[0] = 0x2003;
    tables[512] = 0x3003;
    tables[1024] = 0x83;
    memcpy(ram_ptr(ram, DBT_CODE, sizeof(code)), code, sizeof(code));
    vcpu_reset(v);
    v->cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
    v->cr3 = 0x1000;
    v->cr4 = CR4_PAE;
    v->efer = EFER_LME | EFER_LMA;
    v->seg_sel[SEG_CS] = 8;
    v->seg_attr[SEG_CS] = 0xa09b;
    v->seg_limit[SEG_CS] = ~0u;
    v->seg_sel[SEG_SS] = 16;
    v->seg_attr[SEG_SS] = 0xc093;
    v->seg_limit[SEG_SS] = ~0u;
    v->rip = DBT_CODE;
    v->gpr[RCX] = DBT_LOOPS;
    v->gpr[RDX] = 3;
    engine_changed(e);
}

void doctor_dbt(struct facts *f)
{
    static const struct engine_env env = {.pio_read = no_pio_read,
                                          .pio_write = no_pio_write,
                                          .mmio_read = no_mmio_read,
                                          .mmio_write = no_mmio_write,
                                          .rdmsr = no_rdmsr,
                                          .wrmsr = no_wrmsr,
                                          .get_cr8 = no_cr8,
                                          .set_cr8 = no_set_cr8,
                                          .now = no_time};
    struct ram ram;
    struct engine *e;
    struct err err = {0};
    struct engine_config config = {.kind = ENGINE_DBT,
                                   .revision = ENGINE_REVISION,
                                   .model = CPU_X86_64_V2,
                                   .ram = &ram,
                                   .env = &env};
    for (enum cpu_model m = CPU_MODEL_FIRST; m <= CPU_MODEL_LAST; m++) {
        const char *lacks = cpu_host_lacks(cpu_model_words(m));
        char key[48];
        snprintf(key, sizeof(key), "dbt.model.%s", cpu_model_name(m));
        if (m <= CPU_X86_64_V3)
            snprintf(key, sizeof(key), "dbt.v%d", m == CPU_X86_64_V2 ? 2 : 3);
        fact_note(fact_add(f, key, lacks ? FACT_NO : FACT_YES, "%s", lacks ? "no" : "yes"), "%s%s",
                  lacks ? "this CPU lacks " : "", lacks ? lacks : "");
    }
    if (ram_create(&ram, DBT_RAM, &err) || engine_create(&e, &config, &err)) {
        fact_note(fact_add(f, "dbt.engine", FACT_NO, "no"), "%s", err.text);
        return;
    }
    prepare(e, &ram);
    u64 began = host_ns();
    enum engine_exit exit = engine_run(e, engine_count(e) + 4ull * DBT_LOOPS, &err);
    double rate = 3.0 * DBT_LOOPS / (double)(host_ns() - began) * 1e3;
    engine_sync(e);
    bool good = exit == ENGINE_HALT && engine_vcpu(e)->gpr[RAX] == 3ull * DBT_LOOPS &&
                engine_count(e) == 3ull * DBT_LOOPS + 1;
    struct fact *fact = fact_add(f, "dbt.engine", good ? FACT_YES : FACT_NO, "%s",
                                 good ? "yes" : "it computes wrong");
    if (good) {
        fact_note(fact, "%.0f M instructions/s in a loop", rate);
        fact_number(fact, rate * 1e6);
    }
    engine_destroy(e);
    ram_destroy(&ram);
}

static const struct child_limits limits = {
    .seconds = 10, .output = 1 << 16, .memory = 64ull << 30, .file = 1ull << 30};

/* The first line, without what would control a terminal. */
static void first_line(char *text)
{
    for (char *p = text; *p; p++) {
        if (*p == '\n')
            *p = 0;
        else if ((u8)*p < ' ' || *p == 127)
            *p = '?';
        if (!*p)
            return;
    }
}

/* A companion that tries itself: its --check begins with a line "`what`: ..." */
static void checked(struct facts *f, const char *key, const char *program, const char *what)
{
    char path[4096], *out = NULL, *rest;
    size_t size, n = strlen(what);
    struct err err = {0};
    const char *argv[] = {path, "--check", NULL};
    if (companion_path(program, path, sizeof(path), &err) ||
        child_run(argv, &limits, &out, &size, &err)) {
        fact_note(fact_add(f, key, FACT_NO, "no"), "%s", err.text);
        return;
    }
    rest = strchr(out, '\n');
    first_line(out);
    bool named = !strncmp(out, what, n) && out[n] == ':' && out[n + 1] == ' ';
    struct fact *fact = fact_add(f, key, FACT_YES, "%s", named ? out + n + 2 : out);
    if (rest && *++rest) {
        char *second = strchr(rest, '\n');
        if (second)
            *second++ = 0;
        first_line(rest);
        if (second)
            first_line(second);
        fact_note(fact, "%s%s%s", rest, second && *second ? "; " : "", second ? second : "");
    }
    free(out);
}

/* It only speaks with reprise; that it says so shows that its libraries are there. */
static void viewer(struct facts *f)
{
    char path[4096], *out = NULL;
    size_t size;
    struct err err = {0};
    const char *argv[] = {path, NULL};
    int code = companion_path("reprise-display", path, sizeof(path), &err);
    if (!code)
        code = child_run(argv, &limits, &out, &size, &err);
    bool loads = !code || !strncmp(err.text, "reprise-display: ", 17);
    fact_note(fact_add(f, "display.viewer", loads ? FACT_YES : FACT_NO, "%s", loads ? "yes" : "no"),
              "%s", loads ? "" : err.text);
    free(out);
    const char *x = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
    bool screen = (x && *x) || (wayland && *wayland);
    fact_note(fact_add(f, "display.screen", FACT_INFO, "%s", screen ? "yes" : "no"), "%s",
              screen ? ""
                     : "neither DISPLAY nor WAYLAND_DISPLAY is set: a VNC server works without");
}

static void programs(struct facts *f)
{
    static const struct {
        const char *key, *program, *package, *what;
    } list[] = {
        {"disk.qemu_nbd", "qemu-nbd", "qemu-utils", "disk images in other formats than raw"},
        {"boot.grub_fstest", "grub-fstest", "grub-common", "--kernel auto"},
        {"debug.gdb", "gdb", "gdb", "reprise gdb"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
        const char *argv[] = {list[i].program, "--version", NULL};
        char *out = NULL;
        size_t size;
        struct err err = {0};
        if (child_run(argv, &limits, &out, &size, &err)) {
            fact_note(fact_add(f, list[i].key, FACT_NO, "no"), "%s (for %s; Debian package %s)",
                      err.text, list[i].what, list[i].package);
            continue;
        }
        first_line(out);
        fact_note(fact_add(f, list[i].key, FACT_YES, "%s", out), "%s", list[i].what);
        free(out);
    }
}

static void tap(struct facts *f)
{
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK), why = errno;
    struct fact *fact =
        fact_add(f, "net.tap", fd >= 0 ? FACT_YES : FACT_NO, "%s", fd >= 0 ? "yes" : "no");
    fact_note(fact, "%s%s", fd >= 0 ? "" : "/dev/net/tun: ",
              fd >= 0         ? "devices that root made for your user (ip tuntap add ... user)"
              : why == ENOENT ? "absent: modprobe tun; --net user works without"
                              : strerror(why));
    if (fd >= 0)
        close(fd);
}

static void sandbox(struct facts *f)
{
    char text[200];
    bool good = sandbox_check(text, sizeof(text));
    fact_note(fact_add(f, "sandbox", good ? FACT_YES : FACT_NO, "%s", good ? "yes" : "no"),
              "%s (docs/security.md)", text);
}

void doctor_programs(struct facts *f)
{
    checked(f, "gpu.renderer", "reprise-gpu", "driver");
    viewer(f);
    programs(f);
    checked(f, "net.user", "reprise-net", "network");
    tap(f);
    checked(f, "share", "reprise-fs", "files");
    sandbox(f);
}
