/* See agent.h. Tracing has nowhere to go: its bytecodes take their operands and do no more.
 * Floating point is not in what gdb generates for conditions. */
#include "replay/gdb/agent.h"

#include <stdlib.h>

#include "replay/gdb/regs.h"

#define STACK_SIZE 64
#define MAX_STEPS  10000

enum {
    OP_ADD = 0x02,
    OP_SUB,
    OP_MUL,
    OP_DIV_SIGNED,
    OP_DIV_UNSIGNED,
    OP_REM_SIGNED,
    OP_REM_UNSIGNED,
    OP_LSH,
    OP_RSH_SIGNED,
    OP_RSH_UNSIGNED,
    OP_TRACE,
    OP_TRACE_QUICK,
    OP_LOG_NOT,
    OP_BIT_AND,
    OP_BIT_OR,
    OP_BIT_XOR,
    OP_BIT_NOT,
    OP_EQUAL,
    OP_LESS_SIGNED,
    OP_LESS_UNSIGNED,
    OP_EXT,
    OP_REF8,
    OP_REF16,
    OP_REF32,
    OP_REF64,
    OP_IF_GOTO = 0x20,
    OP_GOTO,
    OP_CONST8,
    OP_CONST16,
    OP_CONST32,
    OP_CONST64,
    OP_REG,
    OP_END,
    OP_DUP,
    OP_POP,
    OP_ZERO_EXT,
    OP_SWAP,
    OP_TRACENZ = 0x2f,
    OP_TRACE16,
    OP_PICK = 0x32,
    OP_ROT,
    OP_COUNT
};

/* What each needs: items on the stack, bytes of operand; and how many items more it leaves. */
static const struct {
    u8 known, takes, operand;
    i8 grows;
} ops[OP_COUNT] = {
    [OP_ADD] = {1, 2, 0, -1},          [OP_SUB] = {1, 2, 0, -1},
    [OP_MUL] = {1, 2, 0, -1},          [OP_DIV_SIGNED] = {1, 2, 0, -1},
    [OP_DIV_UNSIGNED] = {1, 2, 0, -1}, [OP_REM_SIGNED] = {1, 2, 0, -1},
    [OP_REM_UNSIGNED] = {1, 2, 0, -1}, [OP_LSH] = {1, 2, 0, -1},
    [OP_RSH_SIGNED] = {1, 2, 0, -1},   [OP_RSH_UNSIGNED] = {1, 2, 0, -1},
    [OP_TRACE] = {1, 2, 0, -2},        [OP_TRACE_QUICK] = {1, 1, 1, 0},
    [OP_LOG_NOT] = {1, 1, 0, 0},       [OP_BIT_AND] = {1, 2, 0, -1},
    [OP_BIT_OR] = {1, 2, 0, -1},       [OP_BIT_XOR] = {1, 2, 0, -1},
    [OP_BIT_NOT] = {1, 1, 0, 0},       [OP_EQUAL] = {1, 2, 0, -1},
    [OP_LESS_SIGNED] = {1, 2, 0, -1},  [OP_LESS_UNSIGNED] = {1, 2, 0, -1},
    [OP_EXT] = {1, 1, 1, 0},           [OP_REF8] = {1, 1, 0, 0},
    [OP_REF16] = {1, 1, 0, 0},         [OP_REF32] = {1, 1, 0, 0},
    [OP_REF64] = {1, 1, 0, 0},         [OP_IF_GOTO] = {1, 1, 2, -1},
    [OP_GOTO] = {1, 0, 2, 0},          [OP_CONST8] = {1, 0, 1, 1},
    [OP_CONST16] = {1, 0, 2, 1},       [OP_CONST32] = {1, 0, 4, 1},
    [OP_CONST64] = {1, 0, 8, 1},       [OP_REG] = {1, 0, 2, 1},
    [OP_END] = {1, 0, 0, 0},           [OP_DUP] = {1, 1, 0, 1},
    [OP_POP] = {1, 1, 0, -1},          [OP_ZERO_EXT] = {1, 1, 1, 0},
    [OP_SWAP] = {1, 2, 0, 0},          [OP_TRACENZ] = {1, 2, 0, -2},
    [OP_TRACE16] = {1, 1, 2, 0},       [OP_PICK] = {1, 1, 1, 1},
    [OP_ROT] = {1, 3, 0, 0},
};

struct agent {
    const struct gdb_target *target;
    struct machine *m;
    const struct vcpu *cpu;
    u64 stack[STACK_SIZE];
    unsigned depth;
};

/* a op b; false: no such value. Shifts by more than there is shift everything out. */
static bool binary(u8 op, u64 a, u64 b, u64 *out)
{
    bool division = op >= OP_DIV_SIGNED && op <= OP_REM_UNSIGNED;
    if (division && !b)
        return false;
    switch (op) {
    case OP_ADD: *out = a + b; break;
    case OP_SUB: *out = a - b; break;
    case OP_MUL: *out = a * b; break;
    case OP_DIV_SIGNED: *out = b + 1 == 0 ? 0 - a : (u64)((i64)a / (i64)b); break;
    case OP_DIV_UNSIGNED: *out = a / b; break;
    case OP_REM_SIGNED: *out = b + 1 == 0 ? 0 : (u64)((i64)a % (i64)b); break;
    case OP_REM_UNSIGNED: *out = a % b; break;
    case OP_LSH: *out = b > 63 ? 0 : a << b; break;
    case OP_RSH_SIGNED: *out = (u64)((i64)a >> MIN(b, 63u)); break;
    case OP_RSH_UNSIGNED: *out = b > 63 ? 0 : a >> b; break;
    case OP_BIT_AND: *out = a & b; break;
    case OP_BIT_OR: *out = a | b; break;
    case OP_BIT_XOR: *out = a ^ b; break;
    case OP_EQUAL: *out = a == b; break;
    case OP_LESS_SIGNED: *out = (i64)a < (i64)b; break;
    case OP_LESS_UNSIGNED: *out = a < b; break;
    default: return false;
    }
    return true;
}

static bool read_register(const struct agent *a, u64 number, u64 *out)
{
    u8 bytes[GDB_REG_SIZE];
    struct gdb_beside beside;
    const struct gdb_reg *r = gdb_reg_find(number, 0);
    if (!r || r->bits > 64)
        return false;
    gdb_beside_read(&beside, a->target, (unsigned)number);
    if (!gdb_reg_read(a->cpu, &beside, (unsigned)number, bytes))
        return false;
    *out = 0;
    for (unsigned i = 0; i < r->bits / 8u; i++)
        *out |= (u64)bytes[i] << 8 * i;
    return true;
}

/* One bytecode that goes on to the next; `operand` is its operand. The stack is deep enough. */
static bool step(struct agent *a, u8 op, u64 operand)
{
    u64 *end = a->stack + a->depth; /* end[-1] is the top */
    u64 v = 0;
    switch (op) {
    case OP_TRACE:
    case OP_TRACENZ:
    case OP_TRACE_QUICK:
    case OP_TRACE16:
    case OP_POP: break;
    case OP_LOG_NOT: end[-1] = !end[-1]; break;
    case OP_BIT_NOT: end[-1] = ~end[-1]; break;
    case OP_EXT:
    case OP_ZERO_EXT:
        if (!operand)
            return false;
        if (operand < 64)
            end[-1] <<= 64 - operand;
        if (operand < 64)
            end[-1] =
                op == OP_EXT ? (u64)((i64)end[-1] >> (64 - operand)) : end[-1] >> (64 - operand);
        break;
    case OP_REF8:
    case OP_REF16:
    case OP_REF32:
    case OP_REF64:
        if (!machine_peek(a->m, end[-1], &v, (size_t)1 << (op - OP_REF8)))
            return false;
        end[-1] = v;
        break;
    case OP_CONST8:
    case OP_CONST16:
    case OP_CONST32:
    case OP_CONST64: end[0] = operand; break;
    case OP_REG:
        if (!read_register(a, operand, end))
            return false;
        break;
    case OP_DUP: end[0] = end[-1]; break;
    case OP_SWAP:
        v = end[-1];
        end[-1] = end[-2];
        end[-2] = v;
        break;
    case OP_PICK:
        if (operand >= a->depth)
            return false;
        end[0] = *(end - 1 - operand);
        break;
    case OP_ROT: /* a b c => c a b, c on top before */
        v = end[-1];
        end[-1] = end[-2];
        end[-2] = end[-3];
        end[-3] = v;
        break;
    default:
        if (!binary(op, end[-2], end[-1], &end[-2]))
            return false;
    }
    a->depth = (unsigned)((int)a->depth + ops[op].grows);
    return true;
}

bool agent_evaluate(const u8 *code, size_t len, const struct gdb_target *target, u64 *value)
{
    struct machine *m = target->machine(target->opaque);
    struct agent a = {.target = target, .m = m, .cpu = machine_vcpu(m)};
    size_t at = 0;
    for (unsigned steps = 0; steps < MAX_STEPS; steps++) {
        if (at >= len)
            return false;
        u8 op = code[at++];
        if (op >= OP_COUNT || !ops[op].known || a.depth < ops[op].takes ||
            (ops[op].grows > 0 && a.depth >= STACK_SIZE) || len - at < ops[op].operand)
            return false;
        u64 operand = 0; /* big-endian */
        for (unsigned i = 0; i < ops[op].operand; i++)
            operand = operand << 8 | code[at++];
        if (op == OP_END) {
            if (!a.depth)
                return false;
            *value = a.stack[a.depth - 1];
            return true;
        }
        if (op == OP_GOTO || (op == OP_IF_GOTO && a.stack[--a.depth]))
            at = operand;
        else if (op != OP_IF_GOTO && !step(&a, op, operand))
            return false;
    }
    return false;
}

bool gdb_condition_holds(const struct gdb_condition *c, const struct gdb_target *target)
{
    if (!c)
        return true;
    for (; c; c = c->next) {
        u64 value;
        if (!agent_evaluate(c->code, c->len, target, &value) || value)
            return true;
    }
    return false;
}

void gdb_conditions_free(struct gdb_condition *list)
{
    while (list) {
        struct gdb_condition *next = list->next;
        free(list);
        list = next;
    }
}
