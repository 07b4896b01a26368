/* Saying where a machine stands: see travel.h. */
#define _GNU_SOURCE
#include "cmd/travel.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "inspect/backtrace.h"
#include "inspect/program_place.h"
#include "replay/record.h"

#define MEMORY_MAX (1u << 20) /* bytes of one --mem */

static unsigned cpl(const struct vcpu *c)
{
    return c->seg_sel[SEG_CS] & 3;
}

/* Guests that are no Linux have no symbols that are worth reading. */
static const struct symbols *kernel_symbols(struct travel *tr, u64 rip)
{
    const struct vcpu *c = machine_vcpu(timeline_machine(tr->t));
    bool narrow = !(c->efer & EFER_LMA) && rip >= SYMBOLS_FLOOR_32;
    const struct symbols *s = rip >= SYMBOLS_FLOOR || narrow ? travel_symbols_at(tr, rip) : NULL;
    return s && symbols_in_kernel(s, rip) ? s : NULL;
}

/* Of the program that runs; "" where its kernel does not say what that is, or is just changing from
 * one to another: the stack is then another's than the process that is named as the current one. */
static const char *in_program(struct travel *tr, u64 rip, char *out, size_t size)
{
    struct machine *m = timeline_machine(tr->t);
    const struct symbols *s = travel_symbols(tr);
    const struct guest_file_more more = travel_files(tr);
    struct program_layout layout;
    struct program program = {0};
    struct process runs;
    struct err ignored;
    char place[PROGRAM_PLACE_MAX];
    travel_process(tr, &runs);
    bool found = s && runs.task && !program_learn(&layout, m, s, &ignored) &&
                 !program_find(&program, &layout, m, runs.tgid, NULL, 0, &ignored) &&
                 program.root == runs.root &&
                 program_place(&program, &layout, m, &more, rip, 0, place);
    program_free(&program);
    snprintf(out, size, "%s", found ? place : "");
    return out;
}

static const char *symbol(struct travel *tr, u64 rip, bool user, char *out, size_t size)
{
    const struct symbols *s = user ? NULL : kernel_symbols(tr, rip);
    u64 offset;
    if (user)
        return in_program(tr, rip, out, size);
    if (!s || !symbols_find(s, rip, &offset))
        return "";
    return symbols_format(s, rip, out, size);
}

/* The start of the last `lines` lines of text[0, len). */
static size_t last_lines(const char *text, size_t len, unsigned lines)
{
    size_t at = len;
    if (at && text[at - 1] == '\n')
        at--;
    for (; at; at--)
        if (text[at - 1] == '\n' && --lines == 0)
            break;
    return at;
}

static void print_console_tail(FILE *out, const struct timeline *t, unsigned lines)
{
    size_t known, now;
    const char *text = timeline_output(t, OUT_CONSOLE, &known, &now);
    size_t at = lines ? last_lines(text, now, lines) : now;
    bool first = true;
    while (at < now) {
        const char *end = memchr(text + at, '\n', now - at);
        size_t len = end ? (size_t)(end - text) - at : now - at;
        char line[512], shown[1024];
        snprintf(line, sizeof(line), "%.*s", (int)MIN(len, sizeof(line) - 1), text + at);
        size_t n = strlen(line);
        while (n && line[n - 1] == '\r')
            line[--n] = 0;
        fprintf(out, "%-14s%s\n", first ? "console" : "",
                text_printable(line, shown, sizeof(shown)));
        first = false;
        at += len + 1;
    }
}

void print_place(FILE *out, struct travel *tr, unsigned lines)
{
    struct machine *m = timeline_machine(tr->t);
    const struct vcpu *c = machine_vcpu(m);
    struct instant now = timeline_now(tr->t);
    struct process runs;
    struct run_end end;
    char name[256];
    fprintf(out, "position      %" PRIu64 "\n", now.position);
    fprintf(out, "virtual time  %" PRIu64 ".%09" PRIu64 " s\n", now.time / 1000000000,
            now.time % 1000000000);
    fprintf(out, "RIP           %016" PRIx64 "  %s\n", c->rip,
            symbol(tr, c->rip, cpl(c) == 3, name, sizeof(name)));
    fprintf(out, "CPL           %u%s%s\n", cpl(c), cpl(c) == 3 ? " (user)" : "",
            c->halted ? ", halted" : "");
    travel_process(tr, &runs);
    if (runs.task)
        fprintf(out, "process       %s (pid %d)\n", runs.comm, runs.pid);
    if (timeline_branched(tr->t))
        fputs("branch        what-if: not what was recorded (`monitor back` returns)\n", out);
    if (timeline_at_end(tr->t, &end)) {
        char how[256];
        run_end_sentence(&end, false, how, sizeof(how));
        fprintf(out, "end           %s\n",
                *timeline_end_text(tr->t) ? timeline_end_text(tr->t) : how);
    }
    print_console_tail(out, tr->t, lines);
}

static unsigned callers(struct travel *tr, struct backtrace_frame frame[BACKTRACE_MAX])
{
    struct machine *m = timeline_machine(tr->t);
    const struct vcpu *c = machine_vcpu(m);
    if (cpl(c) || !kernel_symbols(tr, c->rip))
        return backtrace_read(m, NULL, frame);
    return travel_backtrace(tr, frame);
}

void print_backtrace(FILE *out, struct travel *tr)
{
    struct backtrace_frame frame[BACKTRACE_MAX];
    unsigned n = callers(tr, frame);
    for (unsigned i = 0; n > 1 && i < n; i++) {
        char name[256];
        fprintf(out, "%-14s#%-2u %016" PRIx64 "  %s%s\n", i ? "" : "backtrace", i, frame[i].address,
                frame[i].user ? "(user) " : "",
                symbol(tr, frame[i].address, frame[i].user, name, sizeof(name)));
    }
}

static void json_backtrace(FILE *out, struct travel *tr)
{
    struct backtrace_frame frame[BACKTRACE_MAX];
    unsigned n = callers(tr, frame);
    fputs(",\"backtrace\":[", out);
    for (unsigned i = 0; i < n; i++) {
        char name[256];
        fprintf(out, "%s{\"address\":\"%" PRIx64 "\",\"user\":%s,\"symbol\":", i ? "," : "",
                frame[i].address, frame[i].user ? "true" : "false");
        json_text(out, symbol(tr, frame[i].address, frame[i].user, name, sizeof(name)));
        fputc('}', out);
    }
    fputc(']', out);
}

static const char *const gpr_names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                          "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

struct named {
    const char *name;
    u64 value;
};

static unsigned system_registers(struct machine *m, const struct vcpu *c, struct named out[24])
{
    const struct named all[] = {{"rip", c->rip},
                                {"rflags", c->rflags},
                                {"cr0", c->cr0},
                                {"cr2", c->cr2},
                                {"cr3", c->cr3},
                                {"cr4", c->cr4},
                                {"cr8", machine_cr8(m)},
                                {"efer", c->efer},
                                {"fs_base", c->seg_base[SEG_FS]},
                                {"gs_base", c->seg_base[SEG_GS]},
                                {"k_gs_base", c->kernel_gs_base},
                                {"gdtr", c->gdt_base},
                                {"idtr", c->idt_base},
                                {"cs", c->seg_sel[SEG_CS]},
                                {"ss", c->seg_sel[SEG_SS]},
                                {"tr", c->seg_sel[SEG_TR]}};
    memcpy(out, all, sizeof(all));
    return ARRAY_SIZE(all);
}

void print_registers(FILE *out, struct machine *m)
{
    const struct vcpu *c = machine_vcpu(m);
    struct named sys[24];
    unsigned n = system_registers(m, c, sys);
    for (unsigned i = 0; i < 16; i++)
        fprintf(out, "%-9s %016" PRIx64 "%s", gpr_names[i], c->gpr[i], i % 4 == 3 ? "\n" : "  ");
    for (unsigned i = 0; i < n; i++)
        fprintf(out, "%-9s %016" PRIx64 "%s", sys[i].name, sys[i].value,
                i % 4 == 3 || i + 1 == n ? "\n" : "  ");
}

void print_console(FILE *out, const struct timeline *t, unsigned lines)
{
    size_t known, now;
    const char *text = timeline_output(t, OUT_CONSOLE, &known, &now);
    size_t at = lines ? last_lines(text, now, lines) : 0;
    /* A terminal's line ends are two characters, a file's one. */
    for (; at < now; at++)
        if (text[at] != '\r' || at + 1 == now || text[at + 1] != '\n')
            fputc(text[at], out);
    if (now && text[now - 1] != '\n')
        fputc('\n', out);
}

/* ---- memory ---- */

#define MEMORY_LENGTH 64 /* bytes, unless it says how many */

struct memory_spec {
    bool physical;
    char name[256]; /* of a register or symbol; "": none */
    u64 address;    /* from it */
    u64 len;
};

/* All that can be said of it before the machine is there. */
static int split_memory(const char *spec, struct memory_spec *out, struct err *err)
{
    char *end;
    const char *comma = strrchr(spec, ',');
    const char *at = spec;
    *out = (struct memory_spec){.physical = strncmp(spec, "phys:", 5) == 0, .len = MEMORY_LENGTH};
    if (out->physical)
        at += 5;
    size_t n = comma && comma >= at ? (size_t)(comma - at) : strlen(at);
    char text[sizeof(out->name)];
    if (!n || n >= sizeof(text))
        return err_set(err, -EINVAL, "'%s': memory is given as ADDR[,LEN]", spec);
    snprintf(text, sizeof(text), "%.*s", (int)n, at);
    errno = 0;
    if (comma && comma >= at) {
        out->len = isdigit((unsigned char)comma[1]) ? strtoull(comma + 1, &end, 0) : 0;
        if (!out->len || errno || *end)
            return err_set(err, -EINVAL, "'%s': the length is a number of bytes from 1 on", spec);
        if (out->len > MEMORY_MAX)
            return err_set(err, -EINVAL, "'%s': at most %u bytes at a time", spec, MEMORY_MAX);
    }
    if (isdigit((unsigned char)*text)) {
        out->address = strtoull(text, &end, 0);
        return errno || *end ? err_set(err, -EINVAL, "'%s' is no address", text) : 0;
    }
    size_t name = strcspn(text, "+-");
    char sign = text[name];
    if (sign) {
        const char *digits = text + name + 1;
        u64 offset = isdigit((unsigned char)*digits) ? strtoull(digits, &end, 0) : 0;
        if (!isdigit((unsigned char)*digits) || errno || *end)
            return err_set(err, -EINVAL, "'%s': the offset is a number", spec);
        out->address = sign == '-' ? 0 - offset : offset;
    }
    if (!name)
        return err_set(err, -EINVAL, "'%s': memory is given as ADDR[,LEN]", spec);
    snprintf(out->name, sizeof(out->name), "%.*s", (int)name, text);
    return 0;
}

int check_memory(const char *spec, struct err *err)
{
    struct memory_spec ignored;
    return split_memory(spec, &ignored, err);
}

static bool register_value(struct machine *m, const char *name, u64 *out)
{
    const struct vcpu *c = machine_vcpu(m);
    struct named sys[24];
    unsigned n = system_registers(m, c, sys);
    for (unsigned i = 0; i < 16; i++)
        if (!strcmp(name, gpr_names[i])) {
            *out = c->gpr[i];
            return true;
        }
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(name, sys[i].name)) {
            *out = sys[i].value;
            return true;
        }
    return false;
}

/* NAME, or MODULE:NAME, which lies in what that module has. */
static bool find_symbol(const struct symbols *s, const char *name, u64 *out)
{
    const char *colon = strchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : 0;
    if (!symbols_address(s, colon ? colon + 1 : name, out))
        return false;
    for (u32 i = 0; colon && i < s->nranges; i++)
        if (*out >= s->ranges[i].start && *out < s->ranges[i].end &&
            !strncmp(s->ranges[i].name, name, n) && strchr(".", s->ranges[i].name[n]))
            return true;
    return !colon;
}

static int no_symbol(const char *name, struct err *err)
{
    return err_set(err, -ENOENT,
                   "the guest's kernel has no symbol '%s', and the CPU no such register%s", name,
                   strchr(name, ':') ? "" : " (a module's is given as MODULE:NAME)");
}

int check_memory_name(const char *spec, struct machine *m, const struct symbols *s, struct err *err)
{
    struct memory_spec is;
    u64 ignored;
    if (split_memory(spec, &is, err) || !is.name[0] || strchr(is.name, ':') ||
        register_value(m, is.name, &ignored) || find_symbol(s, is.name, &ignored))
        return 0;
    return no_symbol(is.name, err);
}

static int parse_memory(struct travel *tr, const char *spec, struct memory_spec *out,
                        struct err *err)
{
    u64 base = 0;
    int code = split_memory(spec, out, err);
    if (code || !out->name[0])
        return code;
    if (!register_value(timeline_machine(tr->t), out->name, &base)) {
        const struct symbols *s = travel_symbols(tr);
        if (!s)
            return err_set(err, -ENOENT,
                           "'%s' is no number and no register, and the guest's kernel has no "
                           "symbols here",
                           out->name);
        if (!find_symbol(s, out->name, &base) &&
            !find_symbol(travel_symbols_here(tr), out->name, &base))
            return no_symbol(out->name, err);
    }
    out->address += base;
    return 0;
}

static int read_memory(struct machine *m, const struct memory_spec *spec, u8 *to, struct err *err)
{
    for (u64 i = 0; i < spec->len; i++) {
        u64 a = spec->address + i;
        if (!(spec->physical ? machine_peek_physical(m, a, to + i, 1)
                             : machine_peek(m, a, to + i, 1)))
            return err_set(err, -EFAULT, "there is no memory at %s address %#" PRIx64 " here",
                           spec->physical ? "physical" : "virtual", a);
    }
    return 0;
}

int print_memory(FILE *out, struct travel *tr, const char *text, struct err *err)
{
    struct memory_spec spec;
    int code = parse_memory(tr, text, &spec, err);
    if (code)
        return code;
    u8 *bytes = malloc(spec.len);
    if (!bytes)
        return err_set(err, -ENOMEM, "out of memory");
    code = read_memory(timeline_machine(tr->t), &spec, bytes, err);
    for (u64 i = 0; !code && i < spec.len; i += 16) {
        u64 n = MIN(spec.len - i, 16);
        fprintf(out, "%016" PRIx64 " ", spec.address + i);
        for (u64 k = 0; k < 16; k++)
            if (k < n)
                fprintf(out, "%s%02x", k == 8 ? "  " : " ", bytes[i + k]);
            else
                fputs(k == 8 ? "    " : "   ", out);
        fputs("  ", out);
        for (u64 k = 0; k < n; k++)
            fputc(isprint(bytes[i + k]) ? bytes[i + k] : '.', out);
        fputc('\n', out);
    }
    free(bytes);
    return code;
}

static void json_memory(FILE *out, struct travel *tr, const char *text)
{
    struct memory_spec spec;
    struct err err;
    u8 *bytes = NULL;
    int code = parse_memory(tr, text, &spec, &err);
    if (!code) {
        bytes = malloc(spec.len);
        code = bytes ? read_memory(timeline_machine(tr->t), &spec, bytes, &err)
                     : err_set(&err, -ENOMEM, "out of memory");
    }
    fputs("{\"what\":", out);
    json_text(out, text);
    if (code) {
        fputs(",\"error\":", out);
        json_text(out, err.text);
    } else {
        fprintf(out, ",\"address\":\"%" PRIx64 "\",\"bytes\":\"", spec.address);
        for (u64 i = 0; i < spec.len; i++)
            fprintf(out, "%02x", bytes[i]);
        fputc('"', out);
    }
    fputc('}', out);
    free(bytes);
}

void print_place_json(FILE *out, struct travel *tr, bool registers, bool console,
                      const char *const *memory, size_t nmemory)
{
    struct machine *m = timeline_machine(tr->t);
    const struct vcpu *c = machine_vcpu(m);
    struct instant now = timeline_now(tr->t);
    struct process runs;
    struct run_end end;
    char name[256];
    size_t known, printed;
    const char *text = timeline_output(tr->t, OUT_CONSOLE, &known, &printed);
    bool ended = timeline_at_end(tr->t, &end);
    fprintf(out,
            "{\"position\":%" PRIu64 ",\"time\":%" PRIu64 ",\"rip\":\"%" PRIx64 "\",\"symbol\":",
            now.position, now.time, c->rip);
    json_text(out, symbol(tr, c->rip, cpl(c) == 3, name, sizeof(name)));
    fprintf(out, ",\"cpl\":%u,\"halted\":%s", cpl(c), c->halted ? "true" : "false");
    travel_process(tr, &runs);
    if (runs.task) {
        fprintf(out, ",\"process\":{\"pid\":%d,\"tgid\":%d,\"comm\":", runs.pid, runs.tgid);
        json_text(out, runs.comm);
        fputc('}', out);
    }
    fputs(",\"ended\":", out);
    json_text(out, ended ? run_reason_name(end.reason) : "");
    fputs(",\"end_text\":", out);
    json_text(out, ended ? timeline_end_text(tr->t) : "");
    json_backtrace(out, tr);
    size_t at = console ? 0 : last_lines(text, printed, 1);
    fprintf(out, ",\"console_bytes\":%zu,\"%s\":", printed, console ? "console" : "console_last");
    json_string(out, text + at, printed - at);
    if (registers) {
        struct named sys[24];
        unsigned n = system_registers(m, c, sys);
        fputs(",\"registers\":{", out);
        for (unsigned i = 0; i < 16; i++)
            fprintf(out, "%s\"%s\":\"%" PRIx64 "\"", i ? "," : "", gpr_names[i], c->gpr[i]);
        for (unsigned i = 0; i < n; i++)
            fprintf(out, ",\"%s\":\"%" PRIx64 "\"", sys[i].name, sys[i].value);
        fputc('}', out);
    }
    if (nmemory) {
        fputs(",\"memory\":[", out);
        for (size_t i = 0; i < nmemory; i++) {
            fputs(i ? "," : "", out);
            json_memory(out, tr, memory[i]);
        }
        fputc(']', out);
    }
    fputs("}\n", out);
}
