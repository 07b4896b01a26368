/* Last-branch records of Intel's models that have them (IA32_PERF_CAPABILITIES); of others nothing
 * but that there are none. SDM vol. 3, 18.4.8, 18.9 to 18.12. */
#include "tiny.h"

#define SELECT      0x1c8
#define TOS         0x1c9
#define DEBUGCTL    0x1d9
#define CAPABLE     0x345
#define FROM        0x680
#define TO          0x6c0
#define INFO        0xdc0
#define EVTSEL      0x186
#define FULL_PMC    0x4c1
#define STATUS      0x38e
#define GLOBAL_CTRL 0x38f
#define RESET       0x390

#define LBR        1u
#define FREEZE     0x800u
#define LBR_FROZEN (1ull << 58)
#define CALLS_ONLY 0x1e4u /* of near branches, and far ones not either */
#define CALL_STACK 0x3c4u
#define NOT_RING0  1u
#define MISSED     (1ull << 63)

static unsigned format, depth;
static u64 hash;

static u64 at(unsigned base, unsigned back)
{
    return rdmsr(base + ((rdmsr(TOS) - back) & (depth - 1)));
}

static u64 address(u64 v)
{
    return (u64)((i64)(v << 16) >> 16);
}

static bool missed(unsigned back)
{
    return at(format == 5 ? INFO : FROM, back) & MISSED;
}

/* The record so far back is of that branch. */
static void check_branch(unsigned back, const void *from, const void *to, const char *name)
{
    check_eq(address(at(FROM, back)), (u64)from, name);
    check_eq(at(TO, back), (u64)to, name);
    hash = hash * 31 + at(FROM, back) + 7 * at(TO, back) + 13 * (format == 5 ? at(INFO, back) : 0);
}

static void forget(u64 select)
{
    wrmsr(DEBUGCTL, 0);
    wrmsr(SELECT, select);
    wrmsr(TOS, 3);
    for (unsigned i = 0; i < depth; i++) {
        wrmsr(FROM + i, 0);
        wrmsr(TO + i, 0);
        if (format == 5)
            wrmsr(INFO + i, 0);
    }
}

/* DEBUGCTL is written in front of BODY and behind it, by instructions of its own. */
#define WITH(bits, body)                                                                           \
    do {                                                                                           \
        u32 c_ = DEBUGCTL, a_ = (bits), d_ = 0;                                                    \
        __asm__ volatile("wrmsr\n" body "\nmov $0x1d9, %%ecx; xor %%eax, %%eax; xor %%edx, "       \
                         "%%edx\nwrmsr"                                                            \
                         : "+c"(c_), "+a"(a_), "+d"(d_)                                            \
                         :                                                                         \
                         : "memory", "cc", "rsi", "rdi");                                          \
    } while (0)

extern const char b_jmp[], b_call[], b_func[], b_ret[], b_jz[], b_jz_to[], b_loop[], b_loop_to[],
    b_after[], b_ijmp[], b_ijmp_to[], b_end[];

static void kinds(u64 select)
{
    forget(select);
    WITH(LBR,
         ".globl b_jmp, b_call, b_func, b_ret, b_jz, b_jz_to, b_loop, b_loop_to, b_after, b_ijmp, "
         "b_ijmp_to, b_end\n"
         "b_jmp: jmp 1f; b_func: nop; b_ret: ret; 1:\n"
         "b_call: call b_func; b_after: xor %%esi, %%esi\n"
         "jnz 2f; b_jz: jz 2f; nop; 2: b_jz_to:\n"
         "mov $2, %%edi; b_loop_to: dec %%edi; b_loop: jnz b_loop_to\n"
         "lea b_ijmp_to(%%rip), %%rsi; b_ijmp: jmp *%%rsi; nop; b_ijmp_to: b_end:");
}

static void all(void)
{
    kinds(0);
    check_eq(rdmsr(TOS), (3 + 6) & (depth - 1), "six branches");
    check_branch(0, b_ijmp, b_ijmp_to, "an indirect jump");
    check_branch(1, b_loop, b_loop_to, "a loop's branch");
    check_branch(2, b_jz, b_jz_to, "a conditional branch");
    check_branch(3, b_ret, b_after, "a return");
    check_branch(4, b_call, b_func, "a call");
    check_branch(5, b_jmp, b_call, "a jump");
    check(missed(2) && !missed(1) && !missed(3), "which one was missed");
    if (format == 5) {
        check_eq(at(INFO, 3) & 0xffff, 2, "instructions since the call");
        check_eq(at(INFO, 2) & 0xffff, 3, "and since the return");
    }
    kinds(CALLS_ONLY);
    check_eq(rdmsr(TOS), 4, "one call");
    check_branch(0, b_call, b_func, "the call");
    kinds(NOT_RING0);
    check_eq(rdmsr(TOS), 3, "nothing of ring 0");
}

extern const char d_call[], d_deep[], d_end[];

/* Calls that have returned are not there. */
static void stack(void)
{
    if (format == 3)
        return; /* Nehalem has none */
    forget(CALL_STACK);
    u64 tos, top;
    u32 c = DEBUGCTL, a = LBR, d = 0;
    __asm__ volatile(".globl d_call, d_deep, d_end\n"
                     "wrmsr; call 4f; jmp 9f\n"
                     "4: call 5f; call 5f; d_call: call d_deep; ret\n"
                     "5: call 6f; 6: pop %%rsi; ret\n" /* whose first call is to what follows it */
                     "d_deep: mov $0x1c9, %%ecx; rdmsr; mov %%rax, %%rsi; lea 0x680(%%rax), %%ecx\n"
                     "rdmsr; shl $32, %%rdx; or %%rdx, %%rax; mov %%rax, %%rdi; d_end: ret\n"
                     "9: mov $0x1d9, %%ecx; xor %%eax, %%eax; xor %%edx, %%edx; wrmsr"
                     : "=S"(tos), "=D"(top), "+c"(c), "+a"(a), "+d"(d)
                     :
                     : "memory", "cc");
    check_eq(tos, 5, "two calls deep");
    check_eq(address(top), (u64)d_call, "the last one");
    check_eq(rdmsr(TOS), 3, "and none at the end");
    check_eq(rdmsr(FROM + 4) | rdmsr(FROM + 5) | rdmsr(TO + 5), 0, "not even their records");
}

static volatile u64 handled;
extern const char s_int[], s_next[], f_ud[], f_next[];

static bool on_int(struct frame *f)
{
    wrmsr(DEBUGCTL, 0);
    handled = at(FROM, 1) ? 2 : 1;
    if (f->vector == 6)
        f->rip += 2;
    return true;
}

static void deliveries(void)
{
    set_handler(0x42, on_int);
    set_handler(6, on_int);
    forget(0xfc); /* far ones only */
    WITH(LBR, ".globl s_int, s_next; s_int: int $0x42; s_next:");
    check_branch(0, s_int, (void *)gate_target(0x42), "a software interrupt");
    forget(0xfc);
    WITH(LBR, ".globl f_ud, f_next; f_ud: ud2; f_next:");
    check_branch(0, f_ud, (void *)gate_target(6), "an exception");
    check_eq(handled, 1, "and nothing before it");
    set_handler(6, NULL);
}

extern const char u_jmp[], u_to[];

static void user_work(void)
{
    __asm__ volatile(".globl u_jmp, u_to; u_jmp: jmp u_to; nop; u_to: nop");
}

static void user(void)
{
    forget(NOT_RING0 | 0x100); /* no far ones */
    wrmsr(DEBUGCTL, LBR);
    user_run(user_work, 2);
    wrmsr(DEBUGCTL, 0);
    bool found = false;
    for (unsigned i = 0; i < depth; i++)
        found = found || (address(rdmsr(FROM + i)) == USER(u_jmp) && rdmsr(TO + i) == USER(u_to));
    check(found, "a jump in ring 3");
    for (unsigned i = 0; i < depth; i++)
        check(!rdmsr(FROM + i) || rdmsr(FROM + i) >= USER_ALIAS, "and nothing of ring 0");
}

static volatile u64 tos_then, control_then;

static bool on_overflow(struct frame *f)
{
    (void)f;
    tos_then = rdmsr(TOS);
    control_then = rdmsr(DEBUGCTL);
    wrmsr(DEBUGCTL, 0);
    wrmsr(EVTSEL, 0);
    lapic_write(0x340, 0x41);
    lapic_eoi();
    return true;
}

/* An overflow keeps what there was before its interrupt. */
static void freeze(void)
{
    lapic_write(0xf0, 0x1ff);
    lapic_write(0x340, 0x41);
    set_handler(0x41, on_overflow);
    wrmsr(GLOBAL_CTRL, 1);
    wrmsr(FULL_PMC, (1ull << 48) - 4);
    forget(0);
    wrmsr(EVTSEL, 0xc4 | 1u << 17 | 1u << 20 | 1u << 22); /* branches in ring 0 */
    sti();
    WITH(LBR | FREEZE, "mov $10, %%edi; 7: dec %%edi; jnz 7b");
    cli();
    check_eq(tos_then, 7, "four branches");
    check(format == 5 ? control_then & LBR : !(control_then & LBR), "how it is frozen");
    if (format == 5) {
        check(rdmsr(STATUS) & LBR_FROZEN, "and its status");
        wrmsr(RESET, LBR_FROZEN | 1);
        check(!(rdmsr(STATUS) & LBR_FROZEN), "which is reset");
    }
}

static volatile u64 steps;

static bool on_step(struct frame *f)
{
    control_then = rdmsr(DEBUGCTL);
    tos_then = rdmsr(TOS);
    f->rflags &= ~0x100ull;
    return ++steps;
}

/* #DB ends it, and is not recorded. */
static void debug(void)
{
    set_handler(1, on_step);
    forget(0);
    wrmsr(DEBUGCTL, LBR);
    u64 tos = rdmsr(TOS);
    __asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq; nop; nop" ::: "memory", "cc");
    check_eq(steps, 1, "a single step");
    check_eq(control_then & LBR, 0, "LBR after #DB");
    check_eq(tos_then, tos, "which is no record");
    wrmsr(DEBUGCTL, 0);
}

void guest_main(void)
{
    u32 r[4];
    cpuid(1, 0, r);
    unsigned model = (r[0] >> 12 & 0xf0) | (r[0] >> 4 & 15);
    if (!(r[2] >> 15 & 1) || !(format = rdmsr(CAPABLE) & 0x3f)) {
        TRY("rdmsr", "c"(TOS));
        check_trap(13, 0, 0, "no last-branch records");
        return;
    }
    depth = format == 5 ? 32 : 16;
    check_eq(format, model == 0x1a ? 3 : model == 0x3f ? 4 : 5, "the format");
    TRY("rdmsr", "c"(FROM + depth));
    check_trap(13, 0, 0, "no more than that");
    TRY("wrmsr", "c"(TO), "a"(0), "d"(0x8000));
    check_trap(13, 0, 0, "an address that is not canonical");
    TRY("wrmsr", "c"(TOS), "a"(depth), "d"(0));
    check_trap(13, 0, 0, "a top that is none");
    all();
    stack();
    deliveries();
    user();
    freeze();
    debug();
    print("%lx\n", hash);
}
