/* `reprise trace`: replays, and prints each instruction executed between two positions. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <Zydis/Zydis.h>

#include "cmd/travel.h"
#include "cpu/vcpu.h"

enum { O_FROM = 256, O_TO, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"from", O_FROM, "POINT", 0, "Where to begin (default 0)", 0},
    {"to", O_TO, "POINT", 0, "Last position (required)", 0},
    {"json", O_JSON, NULL, 0, "One JSON object a line", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording up to a point and then prints every instruction executed: position "
    "(first and last, of REP iterations), "
    "privilege level, RIP, bytes, disassembly, and the registers it changed. " POINT_HELP EXIT_HELP;

struct trace_args {
    const char *dir;
    struct point from, to;
    bool has_from, has_to, json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct trace_args *a = state->input;
    switch (key) {
    case O_FROM:
        option_point(state, arg, "--from", &a->from);
        a->has_from = true;
        break;
    case O_TO:
        option_point(state, arg, "--to", &a->to);
        a->has_to = true;
        break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, a->dir);
        if (!a->has_to)
            argp_error(state, "--to POINT is missing: up to where?");
        if (a->has_from && a->has_to && a->from.kind == POINT_INSN && a->to.kind == POINT_INSN &&
            a->to.n < a->from.n)
            argp_error(state, "--to lies before --from");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct tracer {
    bool json;
    bool open; /* there is an instruction whose changes are not known yet */
    bool rep, by_branch;
    pos_t position;
    char text[160], hex[31];
    struct vcpu before;
    ZydisFormatter formatter;
};

/* What every instruction changes, or only the machine sees, is left out. */
static bool hidden(const char *field)
{
    static const char *const names[] = {"position", "rip", "shadow", "rep_resume"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcmp(field, names[i]))
            return true;
    return false;
}

static const char *const gpr_names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                          "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

static void print_change(struct tracer *t, const char *name, u64 value, bool first)
{
    if (t->json)
        printf("%s\"%s\":\"%" PRIx64 "\"", first ? "" : ",", name, value);
    else
        printf(" %s=%" PRIx64, name, value);
}

/* Every element that differs; state_diff names only a field's first. */
static void print_changes(struct tracer *t, const struct vcpu *now)
{
    const struct state_desc *desc = &vcpu_state_desc;
    bool first = true;
    for (size_t i = 0; i < desc->nfields; i++) {
        const struct state_field *f = &desc->fields[i];
        const u8 *a = (const u8 *)&t->before + f->offset, *b = (const u8 *)now + f->offset;
        bool bytes =
            f->elem == 1 && f->count > 1; /* the XSAVE image: only where it begins to differ */
        for (unsigned k = 0; k < f->count && !hidden(f->name); k++) {
            char name[64];
            u64 v = 0;
            if (!memcmp(a + (size_t)k * f->elem, b + (size_t)k * f->elem, f->elem))
                continue;
            memcpy(&v, b + (size_t)k * f->elem, f->elem);
            if (!strcmp(f->name, "gpr"))
                snprintf(name, sizeof(name), "%s", gpr_names[k]);
            else if (f->count > 1)
                snprintf(name, sizeof(name), "%s[%u]", f->name, k);
            else
                snprintf(name, sizeof(name), "%s", f->name);
            print_change(t, name, v, first);
            first = false;
            if (bytes)
                break;
        }
    }
}

/* REP instructions count one position an iteration, and one if there is none. */
static pos_t last_position(const struct tracer *t, const struct vcpu *now)
{
    u64 iterations = t->rep && !t->by_branch ? t->before.gpr[1] - now->gpr[1] : 1;
    return t->position + (iterations ? iterations - 1 : 0);
}

static void finish_line(struct tracer *t, const struct vcpu *now)
{
    if (!t->open)
        return;
    t->open = false;
    unsigned cpl = t->before.seg_sel[SEG_CS] & 3;
    pos_t last = last_position(t, now);
    if (t->json) {
        printf("{\"position\":%" PRIu64 ",\"last\":%" PRIu64 ",\"cpl\":%u,\"rip\":\"%" PRIx64
               "\",\"bytes\":\"%s\",\"text\":\"%s\",\"changed\":{",
               t->position, last, cpl, t->before.rip, t->hex, t->text);
    } else {
        printf("%" PRIu64, t->position);
        if (last != t->position)
            printf("-%" PRIu64, last);
        printf(" %u %016" PRIx64 " %-20s %-36s  ;", cpl, t->before.rip, t->hex, t->text);
    }
    print_changes(t, now);
    puts(t->json ? "}}" : "");
}

/* The bytes at RIP: fewer than 15 when the next page is not there. */
static size_t fetch(struct machine *m, gva_t rip, u8 out[15])
{
    size_t in_page = PAGE_SIZE - (rip & (PAGE_SIZE - 1));
    if (machine_peek(m, rip, out, 15))
        return 15;
    if (in_page < 15 && machine_peek(m, rip, out, in_page))
        return in_page;
    return 0;
}

static void on_instruction(void *opaque, struct machine *m)
{
    struct tracer *t = opaque;
    const struct vcpu *cpu = machine_vcpu(m);
    t->by_branch = machine_by_branch(m);
    finish_line(t, cpu);
    u16 cs = cpu->seg_attr[SEG_CS];
    bool wide = cs & ATTR_L && cpu->efer & EFER_LMA;
    gva_t rip = wide ? cpu->rip : (u32)(cpu->rip + cpu->seg_base[SEG_CS]);
    u8 bytes[15];
    size_t len = fetch(m, rip, bytes);
    ZydisDecoder decoder;
    ZydisDecodedInstruction insn;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    strcpy(t->text, "(not in memory)");
    t->rep = false;
    ZydisDecoderInit(&decoder,
                     wide           ? ZYDIS_MACHINE_MODE_LONG_64
                     : cs & ATTR_DB ? ZYDIS_MACHINE_MODE_LEGACY_32
                                    : ZYDIS_MACHINE_MODE_LEGACY_16,
                     wide           ? ZYDIS_STACK_WIDTH_64
                     : cs & ATTR_DB ? ZYDIS_STACK_WIDTH_32
                                    : ZYDIS_STACK_WIDTH_16);
    if (len && ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, len, &insn, operands))) {
        len = insn.length;
        ZydisFormatterFormatInstruction(&t->formatter, &insn, operands, insn.operand_count_visible,
                                        t->text, sizeof(t->text), cpu->rip, NULL);
        t->rep = insn.attributes &
                 (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE);
    } else if (len) {
        strcpy(t->text, "(no instruction)");
    }
    t->hex[0] = 0;
    for (size_t i = 0; i < len; i++)
        snprintf(t->hex + 2 * i, 3, "%02x", bytes[i]);
    t->position = machine_position(m);
    t->before = *cpu;
    t->open = true;
}

static int run(const struct trace_args *a, struct travel *tr, struct err *err)
{
    struct tracer t = {.json = a->json};
    enum timeline_stop stop = TIMELINE_REACHED;
    struct machine *m = timeline_machine(tr->t);
    struct run_end end;
    pos_t to;
    ZydisFormatterInit(&t.formatter, ZYDIS_FORMATTER_STYLE_INTEL);
    int code = point_position(a->dir, &a->to, &to, err);
    if (!code && a->has_from)
        code = travel_to(tr, &a->from, &stop, err);
    if (!code && to < timeline_now(tr->t).position)
        code = err_set(err, -EINVAL, "--to, position %" PRIu64 ", lies before --from, %" PRIu64, to,
                       timeline_now(tr->t).position);
    if (!code) {
        struct instant last = {to + 1, 0};
        tr->progress = false;
        machine_set_trace(m, on_instruction, &t);
        code = timeline_forward(tr->t, last, false, &stop, err);
        machine_set_trace(m, NULL, NULL);
        finish_line(&t, machine_vcpu(m));
    }
    if (code)
        return cmd_fail(err);
    if (timeline_at_end(tr->t, &end)) {
        enum player_result result = timeline_result(tr->t);
        char how[256];
        run_end_sentence(&end, false, how, sizeof(how));
        fflush(stdout);
        if (result != PLAYER_SAME)
            fprintf(stderr, "reprise: %s\n%s", timeline_end_text(tr->t), timeline_report(tr->t));
        else
            fprintf(stderr, "reprise: %s at position %" PRIu64 "\n", how, machine_position(m));
        return result == PLAYER_SAME       ? EX_FINE
               : result == PLAYER_DIVERGED ? EX_DIVERGED
               : result == PLAYER_DAMAGE   ? EX_DAMAGE
                                           : EX_ERROR;
    }
    return EX_FINE;
}

int cmd_trace(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "DIR", .doc = doc};
    struct trace_args a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    struct err err = {0};
    struct travel tr;
    if (travel_open(&tr, a.dir, 0, &err))
        return cmd_fail(&err);
    int code = run(&a, &tr, &err);
    travel_close(&tr);
    return code;
}
