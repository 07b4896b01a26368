/* See kernel_code.h. BPF's helpers are small functions whose results are these members, in all
 * kernels that have them (Linux from 4.2 on). */
#include "inspect/kernel_code.h"

#include <string.h>

#include <Zydis/Zydis.h>

#define CODE_MAX 128u /* bytes that are looked at */

struct looker {
    const struct guest_linux *g;
    ZydisDecoder decoder;
    u8 code[CODE_MAX];
    size_t size, at;
    ZydisDecodedInstruction in;
    ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
};

static bool begin(struct looker *l, const struct symbols *s, const char *name)
{
    u64 start;
    l->at = l->size = 0;
    if (!symbols_address(s, name, &start))
        return false;
    for (l->size = CODE_MAX; l->size && !guest_linux_read(l->g, start, l->code, l->size);)
        l->size /= 2;
    return l->size;
}

static bool next(struct looker *l)
{
    if (l->at >= l->size || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&l->decoder, l->code + l->at,
                                                                 l->size - l->at, &l->in, l->op)))
        return false;
    l->at += l->in.length;
    return true;
}

static bool is_register(const ZydisDecodedOperand *op)
{
    return op->type == ZYDIS_OPERAND_TYPE_REGISTER;
}

/* MOV of a word in memory to a register, from base + displacement. */
static bool loads(const struct looker *l, ZydisRegister segment, ZydisRegister base)
{
    const ZydisDecodedOperand *from = &l->op[1];
    return l->in.mnemonic == ZYDIS_MNEMONIC_MOV && is_register(&l->op[0]) && from->size == 32 &&
           from->type == ZYDIS_OPERAND_TYPE_MEMORY && from->mem.segment == segment &&
           from->mem.base == base && from->mem.index == ZYDIS_REGISTER_NONE;
}

/* Up to where the task is in a register, which it returns; ZYDIS_REGISTER_NONE: it never is. */
static ZydisRegister load_task(struct looker *l, u64 *variable)
{
    while (next(l))
        if (loads(l, ZYDIS_REGISTER_FS, ZYDIS_REGISTER_NONE)) {
            *variable = (u32)l->op[1].mem.disp.value;
            return l->op[0].reg.value;
        }
    return ZYDIS_REGISTER_NONE;
}

/* tgid is behind pid. */
static bool find_numbers(struct looker *l, const struct symbols *s, u64 variable, u32 *pid,
                         u32 *tgid)
{
    i64 found[2];
    unsigned n = 0;
    u64 there = 0;
    if (!begin(l, s, "bpf_get_current_pid_tgid"))
        return false;
    ZydisRegister task = load_task(l, &there);
    while (n < 2 && there == variable && task != ZYDIS_REGISTER_NONE && next(l)) {
        if (!loads(l, ZYDIS_REGISTER_DS, task))
            continue;
        found[n++] = l->op[1].mem.disp.value;
        if (l->op[0].reg.value == task)
            task = ZYDIS_REGISTER_NONE;
    }
    if (n < 2)
        return false;
    *pid = (u32)MIN(found[0], found[1]);
    *tgid = (u32)MAX(found[0], found[1]);
    return *pid && *tgid == *pid + 4;
}

static bool find_comm(struct looker *l, const struct symbols *s, u64 variable, u32 *comm)
{
    u64 there = 0;
    if (!begin(l, s, "bpf_get_current_comm"))
        return false;
    ZydisRegister task = load_task(l, &there);
    while (there == variable && next(l)) {
        const ZydisDecodedOperand *op = l->op;
        if (l->in.mnemonic == ZYDIS_MNEMONIC_ADD && is_register(op) && op->reg.value == task &&
            op[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
            *comm = (u32)op[1].imm.value.u;
        else if (l->in.mnemonic == ZYDIS_MNEMONIC_LEA && op[1].mem.base == task &&
                 op[1].mem.index == ZYDIS_REGISTER_NONE)
            *comm = (u32)op[1].mem.disp.value;
        else
            continue;
        return true;
    }
    return false;
}

bool task_code_find(struct guest_current *out, const struct guest_linux *g, const struct symbols *s)
{
    struct looker l = {.g = g};
    ZydisDecoderInit(&l.decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
    return begin(&l, s, "bpf_get_current_task") &&
           load_task(&l, &out->variable) != ZYDIS_REGISTER_NONE &&
           find_numbers(&l, s, out->variable, &out->pid, &out->tgid) &&
           find_comm(&l, s, out->variable, &out->comm) && out->comm > out->tgid;
}

u64 kernel_code_base(const u8 d[8])
{
    return d[2] | (u64)d[3] << 8 | (u64)d[4] << 16 | (u64)d[7] << 24;
}

/* ---- modules ---- */

#define MODULE_MAX   2048u /* bytes of a struct module that are looked at */
#define MODULE_LIST  4u    /* behind its state, in all kernels */
#define MODULE_NAME  12u
#define MODULE_PAGES 65536u /* of one module's code and data, at most */

/* The list's first word is loaded, and compared with its own address. */
static bool find_list(struct looker *l, const struct symbols *s, u64 *head)
{
    u64 at = 0;
    if (!begin(l, s, "module_get_kallsym"))
        return false;
    while (next(l)) {
        const ZydisDecodedOperand *op = l->op;
        if (loads(l, ZYDIS_REGISTER_DS, ZYDIS_REGISTER_NONE))
            at = (u32)op[1].mem.disp.value;
        else if (at && l->in.mnemonic == ZYDIS_MNEMONIC_CMP && is_register(op) &&
                 op[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && (u32)op[1].imm.value.u == at) {
            *head = at;
            return true;
        }
    }
    return false;
}

/* struct mod_kallsyms: symbols, the first of which is all zeros, their number, names, the first of
 * which is empty, and types. */
static bool is_kallsyms(const struct guest_linux *g, u64 at)
{
    static const u8 zeros[16];
    u32 words[4];
    u8 symbol[16], name = 1, type;
    return guest_linux_read(g, at, words, sizeof(words)) && words[1] && words[1] < SYMBOLS_MAX &&
           guest_linux_read(g, words[0], symbol, sizeof(symbol)) &&
           !memcmp(symbol, zeros, sizeof(symbol)) && guest_linux_read(g, words[2], &name, 1) &&
           !name && guest_linux_read(g, words[3] + words[1] - 1, &type, 1);
}

/* struct module_layout: base, size, and of that the sizes of code, what is read-only, and what is
 * so once it runs; the module's own struct is in it. */
static bool is_layout(const u32 words[5], u64 module)
{
    return words[0] % PAGE_SIZE == 0 && words[1] % PAGE_SIZE == 0 && words[2] &&
           words[1] <= MODULE_PAGES * PAGE_SIZE && words[0] <= module &&
           module - words[0] < words[1] && words[2] <= words[3] && words[3] <= words[4] &&
           words[4] <= words[1];
}

/* Behind the layout of what stays is that of what is given back, of the same form: from pointer to
 * the module to pointer to the module. 0: there is none. */
static u32 find_stride(const u32 *layout, size_t n, u64 module)
{
    u32 first = 0;
    for (u32 i = 5; i < MIN(n, 64u); i++) {
        if (layout[i] != module)
            continue;
        if (first)
            return 4 * (i - first);
        first = i;
    }
    return 0;
}

bool module_code_find(struct module_layout *out, u64 *head, const struct guest_linux *g,
                      const struct symbols *s)
{
    struct looker l = {.g = g};
    u32 words[MODULE_MAX / 4];
    u64 first;
    size_t size = sizeof(words);
    ZydisDecoderInit(&l.decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
    if (!find_list(&l, s, head) || !guest_linux_word(g, *head, &first) || first == *head)
        return false;
    while (size && !guest_linux_read(g, first - MODULE_LIST, words, size))
        size /= 2;
    *out = (struct module_layout){.list = MODULE_LIST,
                                  .name = MODULE_NAME,
                                  .num_symtab = 4,
                                  .strtab = 8,
                                  .typetab = 12,
                                  .parts = 1};
    for (u32 i = MODULE_NAME / 4; i + 5 <= size / 4 && !(out->base && out->kallsyms); i++)
        if (!out->base && is_layout(words + i, first - MODULE_LIST)) {
            out->base = 4 * i;
            out->size = out->base + 4;
            out->text = out->base + 8;
            out->stride = find_stride(words + i, size / 4 - i, first - MODULE_LIST);
            out->parts = out->stride ? OLD_PARTS : 1;
        } else if (!out->kallsyms && words[i] >= s->floor && is_kallsyms(g, words[i])) {
            out->kallsyms = 4 * i;
        }
    return out->base && out->kallsyms;
}
