/* See task_code.h. BPF's helpers are small functions whose results are these members, in all
 * kernels that have them (Linux from 4.2 on). */
#include "inspect/task_code.h"

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

u64 task_code_base(const u8 d[8])
{
    return d[2] | (u64)d[3] << 8 | (u64)d[4] << 16 | (u64)d[7] << 24;
}
