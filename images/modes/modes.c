/*
 * Every mode but long mode's own: protected mode with its gates, tasks and page tables,
 * virtual-8086 and real-address mode, and the ways between them. What happens is printed and not
 * judged: another machine must print the same (tests/suite/modes.py), and the lines that were
 * looked at are kept beside it (expected.txt). On the command line, "seed=N": other random
 * descriptors; "tcg": without what QEMU's translator does not survive; "brief": without what is
 * random, and without an instruction whose flags CPUs disagree on (IMUL and DIV, which draw).
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef _Bool bool;

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define LOW      0x8000u
#define BASE     0x200000u

enum {
    CODE32 = 0x08,
    DATA32 = 0x10,
    CODE16 = 0x18,
    DATA16 = 0x20,
    TSS = 0x28,
    USER_CODE = 0x33,
    USER_DATA = 0x3b,
    CODE64 = 0x40,
    TSS_2 = 0x48,
    TSS_16 = 0x50,
    GATE = 0x58,
    GATE_TASK = 0x68,
    CONFORMING = 0x70,
    LDT = 0x78,
    PROT16 = 0x80,
    CODE_BASED = 0x88, /* from BASE on */
    USER_BASED = 0x90,
    TSS_3 = 0x98,
    ANY = 0x100, /* random */
};

struct frame {
    u32 edi, esi, ebp, esp_, ebx, edx, ecx, eax, ds, es, fs, gs, vector, error, eip, cs, eflags;
    u32 esp, ss, v86_es, v86_ds, v86_fs, v86_gs; /* of an outer ring */
};

struct far_pointer {
    u32 offset;
    u16 sel;
} __attribute__((packed));

u64 gdt[1024] __attribute__((aligned(4096)));
u64 idt[48];
u32 tss[26], tss_2[26], tss_3[26], task_error;
u16 tss_16[22];
static u32 pd[1024] __attribute__((aligned(4096))), pt[1024] __attribute__((aligned(4096)));
static u64 pae_pd[4][512] __attribute__((aligned(4096))),
    pae_pt[512] __attribute__((aligned(4096)));
static u64 pdpt[512] __attribute__((aligned(4096))), pml4[512] __attribute__((aligned(4096)));
static u8 page[8192] __attribute__((aligned(4096)));
static u8 ring0_stack[4096] __attribute__((aligned(16)));
static u8 user_stack[4096] __attribute__((aligned(16))),
    inner_stack[4096] __attribute__((aligned(16)));
static u8 task_stack[4096] __attribute__((aligned(16)));

extern u32 boot_magic, boot_info, task_count, task_ebx, task_flags, task_cr0, task_tr, gate_esp;
extern u32 gate_ss, gate_cs, long_efer[2], stack_top[];
extern u64 long_value;
extern char vectors[], give_up[], ring3_done[], low_start[], low_end[], task_code[], gate_code[];
extern char conforming_code[], idt_pointer[], gdt_pointer[], probe[];
extern char real_basic[], real_int[], real_limits[], real_unreal[], ivt_int40[], ivt_skip2[];
extern char ivt_count[], v86_ints[], v86_free[], v86_bad[], prot16[];
extern bool attempt(void (*fn)(u32 a, u32 b), u32 a, u32 b);
extern void ring3(u32 eip, u32 esp, u32 eflags), to_v86(u32 ip, u32 sp, u32 eflags);
extern void to_real(u32 entry);
extern void long_and_back(u32 cr3);
void guest_main(void);
void handle(struct frame *f);

static struct frame last; /* the exception that ended an attempt */
static u32 last_cr2;
static char *back = give_up;
static bool in_v86, tcg;
static u32 seed = 1;

static void outb(u16 port, u8 v)
{
    __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port));
}

static u8 inb(u16 port)
{
    u8 v;
    __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
    return v;
}

static void put(char c)
{
    while (!(inb(0x3fd) & 0x20))
        ;
    outb(0x3f8, (u8)c);
}

static void text(const char *s)
{
    while (*s)
        put(*s++);
}

static void hex(u32 v)
{
    int n = 28;
    while (n && !(v >> n))
        n -= 4;
    for (; n >= 0; n -= 4)
        put("0123456789abcdef"[v >> n & 15]);
}

/* "name=value" */
static void say(const char *name, u32 v)
{
    put(' ');
    text(name);
    put('=');
    hex(v);
}

static void line(const char *name)
{
    text("\n");
    text(name);
}

static u32 draw(u32 below)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 8) % below;
}

#define REGISTER(name)                                                                             \
    static inline u32 get_##name(void)                                                             \
    {                                                                                              \
        u32 v;                                                                                     \
        __asm__ volatile("mov %%" #name ", %0" : "=r"(v));                                         \
        return v;                                                                                  \
    }                                                                                              \
    static inline void set_##name(u32 v)                                                           \
    {                                                                                              \
        __asm__ volatile("mov %0, %%" #name : : "r"(v) : "memory");                                \
    }
REGISTER(cr0)
REGISTER(cr2)
REGISTER(cr3)
REGISTER(cr4)

static void descriptor(u32 sel, u32 base, u32 limit, u32 type, u32 flags)
{
    gdt[sel / 8] = (limit & 0xffff) | (u64)(base & 0xffffff) << 16 | (u64)type << 40 |
                   (u64)(limit >> 16 & 15) << 48 | (u64)flags << 52 | (u64)(base >> 24) << 56;
}

static u64 gate(u32 sel, u32 offset, u32 type, u32 count)
{
    return (offset & 0xffff) | (u64)sel << 16 | (u64)count << 32 | (u64)type << 40 |
           (u64)(offset >> 16) << 48;
}

static void say_fault(void)
{
    say("v", last.vector);
    say("e", last.error);
    if (last.vector == 14)
        say("cr2", last_cr2);
}

static void v86_step(struct frame *f)
{
    static const struct {
        u8 op, len;
    } ops[] = {{0xcd, 2}, {0x9c, 1}, {0x9d, 1}, {0xfa, 1}, {0xfb, 1}, {0xec, 1}, {0xee, 1}};
    const u8 *at = (const u8 *)((f->cs << 4) + (u16)f->eip);
    line(" v86");
    say("v", f->vector);
    say("e", f->error);
    say("ip", f->eip);
    say("op", *at);
    say("fl", f->eflags & ~0x10000u);
    say("ss", f->ss);
    say("sp", f->esp);
    for (unsigned i = 0; i < COUNT(ops); i++)
        if (f->vector == 13 && ops[i].op == *at) {
            f->eip += ops[i].len;
            return;
        }
    say("ds", f->v86_ds);
    say("gs", f->v86_gs);
    say("ax", f->eax);
    f->eip = (u32)ring3_done;
    f->cs = CODE32;
    f->eflags = 2;
}

void handle(struct frame *f)
{
    if (f->vector == 0x2f) {
        f->eip = (u32)ring3_done;
        f->cs = CODE32;
        f->eflags = 2;
        last = *f;
        return;
    }
    last_cr2 = get_cr2();
    if (in_v86) {
        last = *f;
        v86_step(f);
        return;
    }
    last = *f;
    f->eip = (u32)back;
    f->cs = CODE32;
    f->eflags = 2;
}

/* Where random gates lead: what they have pushed, and back. */
__asm__(".globl probe\nprobe:\n"
        "  mov %esp, gate_esp\n  mov %ss, %eax\n  mov %eax, gate_ss\n  mov %cs, %eax\n"
        "  mov %eax, gate_cs\n  pushf\n  popl task_flags\n  mov $0x10, %eax\n  mov %eax, %ss\n"
        "  mov $stack_top - 4096, %esp\n  mov %eax, %ds\n  mov %eax, %es\n"
        "  ljmp $8, $probed\n");
void probed(void);
void probed(void)
{
    last = (struct frame){.vector = 0xff};
    void (*to)(void) = (void (*)(void))back;
    to();
}

/* ---- segment loads ---- */

static void load_ds(u32 sel, u32 b)
{
    (void)b;
    __asm__ volatile("mov %0, %%fs" : : "r"(sel));
}
static void load_ss(u32 sel, u32 b)
{
    (void)b;
    __asm__ volatile("mov %%ss, %%edx; mov %0, %%ss; mov %%edx, %%ss" : : "r"(sel) : "edx");
}
static void load_ldt(u32 sel, u32 b)
{
    (void)b;
    __asm__ volatile("lldt %w0" : : "r"(sel));
}
static void load_tr(u32 sel, u32 b)
{
    (void)b;
    __asm__ volatile("ltr %w0" : : "r"(sel));
}
static void far_jump(u32 sel, u32 b)
{
    (void)b;
    __asm__ volatile(
        "push %0; push $1f; lret; 1: mov %%cs, %%eax; mov %%eax, gate_cs; ljmp $8, $2f; 2:"
        :
        : "r"(sel)
        : "eax", "memory");
}
static void far_call(u32 sel, u32 offset)
{
    struct far_pointer to = {offset, (u16)sel};
    __asm__ volatile("push $0x1234; push $0x5678; lcall *%0; add $8, %%esp"
                     :
                     : "m"(to)
                     : "eax", "memory");
}
static void far_jump_to(u32 sel, u32 offset)
{
    struct far_pointer to = {offset, (u16)sel};
    __asm__ volatile("ljmp *%0" : : "m"(to) : "eax", "memory");
}
static void int_2e(u32 a, u32 b)
{
    (void)a, (void)b;
    __asm__ volatile("int $0x2e" : : : "eax", "memory");
}

static void look(u32 sel)
{
    u32 lar = 0, lsl = 0, r = 0, w = 0, zl = 0, zs = 0;
    __asm__ volatile("lar %2, %0; setz %b1" : "+r"(lar), "+q"(zl) : "r"(sel));
    __asm__ volatile("lsl %2, %0; setz %b1" : "+r"(lsl), "+q"(zs) : "r"(sel));
    __asm__ volatile("verr %w1; setz %b0" : "+q"(r) : "r"(sel));
    __asm__ volatile("verw %w1; setz %b0" : "+q"(w) : "r"(sel));
    say("lar", zl ? lar & 0xf0ff00 : 0); /* the rest is undefined */
    say("lsl", zs ? lsl : 0);
    say("rw", r << 1 | w);
}

static void outcome(const char *name, bool ok)
{
    put(' ');
    text(name);
    if (ok) {
        put('+');
        return;
    }
    put('-');
    hex(last.vector);
    put('/');
    hex(last.error);
}

static void reset_tr(void)
{
    descriptor(TSS, (u32)tss, 103, 0x89, 0);
    load_tr(TSS, 0);
}

static void segments(void)
{
    for (unsigned i = 0; i < 400; i++) {
        u32 sel = ANY + 8 * (i & 15) + draw(4), type = draw(256);
        descriptor(sel, 0, draw(2) ? 0xfffff : draw(0x10000), type,
                   draw(16) | ((type & 8) ? 4 : 0));
        line("seg");
        say("type", type);
        say("sel", sel);
        look(sel);
        outcome("fs", attempt(load_ds, sel, 0));
        outcome("ss", attempt(load_ss, sel, 0));
        if ((gdt[sel / 8] >> 40 & 0x18) == 0x18) { /* of all of memory, and of 32 bits */
            descriptor(sel, 0, 0xfffff, type, 12);
            bool ok = attempt(far_jump, sel, 0);
            outcome("lret", ok);
            if (ok)
                say("cs", gate_cs);
        }
        bool ok = attempt(load_ldt, sel, 0);
        outcome("lldt", ok);
        if (ok)
            load_ldt(0, 0);
        ok = attempt(load_tr, sel, 0);
        outcome("ltr", ok);
        if (ok)
            say("now", (u32)(gdt[sel / 8] >> 32));
        reset_tr();
    }
    line("null");
    outcome("fs", attempt(load_ds, 3, 0));
    outcome("ss", attempt(load_ss, 0, 0));
    outcome("lret", attempt(far_jump, 2, 0));
    outcome("beyond", attempt(load_ds, 0x2000, 0));
    outcome("ldt", attempt(load_ds, 0xc, 0));
}

/* ---- gates ---- */

static const u16 targets[] = {CODE_BASED, USER_BASED | 3, CODE_BASED, CODE_BASED | 3, ANY,
                              0,          DATA32,         TSS,        CODE_BASED,     CONFORMING,
                              0x3f8};

static u32 r3_sel;
static void user_far_call(void)
{
    struct far_pointer to = {0, (u16)r3_sel};
    __asm__ volatile("push $0x1234; push $0x5678; lcall *%0; add $8, %%esp; int $0x2f"
                     :
                     : "m"(to)
                     : "eax", "memory");
}
static void user_int(void)
{
    __asm__ volatile("int $0x2e; int $0x2f");
}

static void in_user(void (*fn)(void))
{
    back = ring3_done;
    last.vector = 0xfe;
    ring3((u32)fn, (u32)user_stack + sizeof user_stack - 64, 2);
    back = give_up;
}

/* What a gate has pushed on the stack that ends at `from`, but for what says where we are. */
static void say_gate(u32 from, bool wide)
{
    if (last.vector != 0xff) {
        say_fault();
        return;
    }
    say("cs", gate_cs);
    say("ss", gate_ss);
    say("fl", task_flags & 0x4300);
    if (!from)
        return;
    say("pushed", from - gate_esp);
    for (u32 at = gate_esp; at < from && at < gate_esp + 32; at += wide ? 4 : 2) {
        u32 v = wide ? *(u32 *)at : *(u16 *)at;
        if (at != gate_esp && (v < (wide ? 0x1000 : 0x100) || v == 0x1234 || v == 0x5678))
            say("w", v);
    }
}

static void gates(void)
{
    for (unsigned i = 0; i < 300; i++) {
        u32 type = draw(4) ? 0x80 | draw(4) << 5 | ((u32[]){4, 12, 5, 12})[draw(4)] : draw(256);
        u32 sel = targets[draw(COUNT(targets))], at = ANY + 8 * (i & 15), rpl = draw(4);
        type &= ~0x10u;
        if ((type & 0xf) == 9 || (type & 0xf) == 1 || (type & 0xf) == 5)
            type ^= 3; /* tasks have tests of their own */
        gdt[at / 8] = gate(sel, (u32)probe - BASE, type, draw(3));
        line("callgate");
        say("type", type);
        say("to", sel);
        say("sel", at | rpl);
        u32 esp = 0;
        last.vector = 0xfe;
        if (draw(2)) {
            text(" r0");
            if (draw(4))
                attempt(far_call, at | rpl, 0);
            else
                attempt(far_jump_to, at | rpl, 0);
        } else {
            text(" r3");
            r3_sel = at | rpl;
            in_user(user_far_call);
            esp = tss[1];
        }
        say_gate(last.vector == 0xff && !(gate_ss & 3) ? esp : 0, type & 8);
    }
    for (unsigned i = 0; i < 300; i++) {
        u32 type = draw(4) ? 0x80 | draw(4) << 5 | ((u32[]){6, 7, 14, 15})[draw(4)] : draw(256);
        u32 sel = targets[draw(COUNT(targets))];
        if ((type & 0x1f) == 5)
            type ^= 3;
        idt[0x2e] = gate(sel, (u32)probe - BASE, type, 0);
        line("intgate");
        say("type", type);
        say("to", sel);
        u32 esp = 0;
        last.vector = 0xfe;
        if (draw(2)) {
            text(" r0");
            attempt(int_2e, 0, 0);
        } else {
            text(" r3");
            in_user(user_int);
            esp = tss[1];
        }
        say_gate(last.vector == 0xff && !(gate_ss & 3) ? esp : 0, type & 8);
    }
}

/* A call gate that is taken whole, with two parameters. */
static void parameters(void)
{
    gdt[GATE / 8] = gate(CODE32, (u32)gate_code, 0xec, 2);
    r3_sel = GATE | 3;
    in_user(user_far_call);
    line("parameters");
    say("v", last.vector);
    say("cs", gate_cs);
    say("ss", gate_ss);
    u32 *p = (u32 *)gate_esp;
    say("a", p[2]);
    say("b", p[3]);
    say("user_ss", p[5]);
}

/* ---- tasks ---- */

/* A task for the exceptions of tasks: it takes the error code, and goes to the first one. */
__asm__(".globl task_handler\ntask_handler:\n"
        "  pop task_error\n  andb $0xfd, gdt + 0x28 + 5\n  ljmp $0x28, $0\n  jmp task_handler\n");
extern char task_handler[];

static void fill_task(void)
{
    for (unsigned i = 0; i < COUNT(tss_2); i++)
        tss_2[i] = 0;
    tss_2[7] = get_cr3();
    tss_2[8] = (u32)task_code;
    tss_2[9] = 2;
    tss_2[13] = 0x1000; /* EBX */
    tss_2[14] = (u32)task_stack + sizeof task_stack;
    tss_2[18] = tss_2[20] = tss_2[21] = tss_2[22] = tss_2[23] = DATA32;
    tss_2[19] = CODE32;
    tss_2[25] = 104 << 16;
    descriptor(TSS_2, (u32)tss_2, 103, 0x89, 0);
    for (unsigned i = 0; i < COUNT(tss_16); i++)
        tss_16[i] = 0;
    tss_16[7] = (u16)((u32)task_code - BASE);
    tss_16[8] = 2;
    tss_16[12] = 0x2000;
    tss_16[13] = 0x7f00; /* SP */
    tss_16[17] = DATA32; /* ES */
    tss_16[18] = CODE_BASED;
    tss_16[19] = DATA16;
    tss_16[20] = DATA32;
    descriptor(TSS_16, (u32)tss_16, 43, 0x81, 0);
    gdt[GATE_TASK / 8] = gate(TSS_2, 0, 0xe5, 0);
    reset_tr();
    task_count = 0;
}

static void say_task(bool ok)
{
    outcome("", ok);
    say("count", task_count);
    say("bx", task_ebx & 0xffff);
    say("fl", task_flags & 0x7fd6);
    say("cr0", task_cr0 & 9);
    say("tr", task_tr);
    say("busy", (u32)(gdt[TSS_2 / 8] >> 40 & 0xff) | (u32)(gdt[TSS / 8] >> 40 & 0xff) << 8);
    say("link", tss_2[0]);
    u32 tr;
    __asm__ volatile("str %0" : "=r"(tr));
    say("back", tr);
    say("ts", get_cr0() & 8);
    __asm__ volatile("clts");
}

static void tasks(void)
{
    fill_task();
    line("task call");
    say_task(attempt(far_call, TSS_2, 0));
    line("again");
    say_task(attempt(far_call, TSS_2, 0));
    line("task gate");
    say_task(attempt(far_call, GATE_TASK, 0));
    idt[0x2e] = gate(TSS_2, 0, 0xe5, 0);
    line("int");
    say_task(attempt(int_2e, 0, 0));
    line("int of ring 3");
    in_user(user_int);
    say_task(1);
    line("16 bits");
    fill_task();
    say_task(attempt(far_call, TSS_16, 0));
    say("ip", tss_16[7] - (u16)((u32)task_code - BASE));
    say("bx", tss_16[12]);
    line("busy");
    fill_task();
    descriptor(TSS_2, (u32)tss_2, 103, 0x8b, 0);
    say_task(attempt(far_call, TSS_2, 0));
    line("absent");
    descriptor(TSS_2, (u32)tss_2, 103, 0x09, 0);
    say_task(attempt(far_call, TSS_2, 0));
    line("short");
    descriptor(TSS_2, (u32)tss_2, 102, 0x89, 0);
    say_task(attempt(far_call, TSS_2, 0));
    /* A task whose selectors are wrong: the exception is its own. */
    static const struct {
        const char *name;
        u8 field;
        u16 value;
    } bad[] = {{"cs null", 19, 0},     {"cs data", 19, DATA32},   {"cs dpl", 19, USER_CODE & ~3},
               {"ss null", 20, 0},     {"ss code", 20, CODE32},   {"ss dpl", 20, USER_DATA},
               {"ds system", 21, TSS}, {"es beyond", 18, 0x3ff8}, {"ldt data", 24, DATA32},
               {"ldt null", 24, 0}};
    for (unsigned i = 0; i < COUNT(bad); i++) {
        for (unsigned v = 10; v < 14; v++)
            idt[v] = gate(TSS_3, 0, 0x85, 0);
        for (unsigned k = 0; k < COUNT(tss_3); k++)
            tss_3[k] = 0;
        tss_3[7] = get_cr3();
        tss_3[8] = (u32)task_handler;
        tss_3[9] = 2;
        tss_3[14] = (u32)task_stack + 2048;
        tss_3[18] = tss_3[20] = tss_3[21] = tss_3[22] = tss_3[23] = DATA32;
        tss_3[19] = CODE32;
        tss_3[25] = 104 << 16;
        descriptor(TSS_3, (u32)tss_3, 103, 0x89, 0);
        fill_task();
        tss_2[bad[i].field] = bad[i].value;
        task_error = ~0u;
        line(bad[i].name);
        say_task(attempt(far_call, TSS_2, 0));
        say("error", task_error);
        say("link3", tss_3[0]);
    }
    for (unsigned v = 10; v < 14; v++)
        idt[v] = gate(CODE32, (u32)vectors + 16 * v, 0x8e, 0);
    fill_task();
    idt[0x2e] = gate(CODE32, (u32)vectors + 16 * 0x2e, 0xee, 0);
}

/* ---- virtual-8086 mode ---- */

static void v86(void)
{
    in_v86 = 1;
    for (u32 *p = (u32 *)0x9000; p < (u32 *)0xd000; p++)
        *p = 0;
    static u8 bitmap_end;
    (void)bitmap_end;
    line("v86 iopl 0");
    to_v86((u32)v86_ints, 0xff0, 0x20002);
    line("v86 iopl 3");
    to_v86((u32)v86_ints, 0xff0, 0x23202);
    line("v86 free");
    to_v86((u32)v86_free, 0xff0, 0x23002);
    say("bx", last.ebx);
    say("cx", last.ecx);
    say("dx", last.edx);
    say("si", last.esi);
    say("di", last.edi);
    say("bp", last.ebp);
    line("v86 bad");
    to_v86((u32)v86_bad, 0xff0, 0x23002);
    in_v86 = 0;
}

/* ---- real-address mode ---- */

static void real_result(const char *name, unsigned n)
{
    const u32 *r = (const u32 *)(LOW - 0x100);
    line(name);
    for (unsigned i = 0; i < n; i++)
        say("r", r[i]);
}

static void real(void)
{
    u32 *ivt = (u32 *)0, *r = (u32 *)(LOW - 0x100);
    for (unsigned i = 0; i < 256; i++)
        ivt[i] = (u32)ivt_skip2 + LOW;
    ivt[0x40] = (u32)ivt_int40 + LOW;
    ivt[4] = (u32)ivt_count + LOW;
    for (unsigned i = 0; i < 16; i++)
        r[i] = 0;
    *(u16 *)0x12350 = 0;
    to_real((u32)real_basic);
    real_result("real", 10);
    say("es", *(u16 *)0x12350);
    to_real((u32)real_int);
    real_result("real int", 8);
    to_real((u32)real_limits);
    real_result("real limits", 2);
    *(u32 *)0x100000 = 0xcafe;
    to_real((u32)real_unreal);
    real_result("unreal", 2);
    line("prot16");
    u32 a, b, c, d, s;
    struct far_pointer to = {(u32)prot16, PROT16};
    __asm__ volatile("lcall *%5"
                     : "=a"(a), "=b"(b), "=c"(c), "=d"(d), "=S"(s)
                     : "m"(to)
                     : "memory");
    say("ax", a);
    say("cx", c);
    say("dx", d & 0xffff);
    say("fl", s & 0x8d5);
}

/* ---- paging ---- */

static void touch_read(u32 a, u32 b)
{
    (void)b;
    (void)*(volatile u32 *)a;
}
static void touch_write(u32 a, u32 b)
{
    *(volatile u32 *)a = b;
}
static void touch_run(u32 a, u32 b)
{
    (void)b;
    ((void (*)(void))a)();
}
static u32 user_at, user_how;
static void user_touch(void)
{
    if (user_how == 0)
        (void)*(volatile u32 *)user_at;
    else if (user_how == 1)
        *(volatile u32 *)user_at = 5;
    else
        ((void (*)(void))user_at)();
    __asm__ volatile("int $0x2f");
}

#define AT 0x400000u

/* All ways to one page, whose entry `entry` shows what the walks have set. */
static void ways(const volatile u32 *entry)
{
    static void (*const kernel[])(u32, u32) = {touch_read, touch_write, touch_run};
    page[0] = 0xc3;
    for (unsigned how = 0; how < 3; how++) {
        page[0] = 0xc3;
        outcome("k", attempt(kernel[how], AT, 0xc3));
        say("a", *entry & 0xfff);
    }
    for (unsigned how = 0; how < 3; how++) {
        user_at = AT;
        user_how = how;
        page[0] = 0xc3;
        in_user(user_touch);
        put(' ');
        put('u');
        say("v", last.vector);
        if (last.vector == 14)
            say("e", last.error), say("cr2", last_cr2 - AT);
    }
}

static void paging_32(void)
{
    for (unsigned i = 0; i < 1024; i++)
        pd[i] = (i << 22) | 0x87;
    set_cr4(get_cr4() | 0x10);
    set_cr3((u32)pd);
    set_cr0(get_cr0() | 0x80000000);
    line("paging");
    say("pg", get_cr0() >> 31);
    for (unsigned wp = 0; wp < 2; wp++)
        for (unsigned bits = 0; bits < 16; bits++) {
            set_cr0((get_cr0() & ~0x10000u) | wp << 16);
            pd[AT >> 22] = (u32)pt | 1 | (bits & 3) << 1;
            pt[0] = (u32)page | 1 | (bits >> 2) << 1;
            set_cr3((u32)pd);
            line("p32");
            say("wp", wp);
            say("bits", bits);
            ways(&pt[0]);
            say("pde", pd[AT >> 22] & 0xfff);
        }
    line("p32 absent");
    pt[0] = 0;
    set_cr3((u32)pd);
    ways(&pt[0]);
    line("p32 large");
    *(u32 *)0x800000 = 0xc3c3c3c3;
    pd[AT >> 22] = 0x800000 | 0x81;
    set_cr3((u32)pd);
    ways(&pd[AT >> 22]);
    line("p32 reserved");
    pd[AT >> 22] = 0x800000 | 0x81 | 1 << 21;
    set_cr3((u32)pd);
    ways(&pd[AT >> 22]);
    set_cr0(get_cr0() & 0x7fffffff);
    set_cr4(get_cr4() & ~0x10u);
}

static void load_cr3(u32 a, u32 b)
{
    (void)b;
    set_cr3(a);
}
static void load_cr0(u32 a, u32 b)
{
    (void)b;
    set_cr0(a);
}
static void load_cr4(u32 a, u32 b)
{
    (void)b;
    set_cr4(a);
}

static void efer(u32 clear, u32 set)
{
    __asm__ volatile("rdmsr; and %1, %%eax; or %2, %%eax; wrmsr"
                     :
                     : "c"(0xc0000080), "r"(~clear), "r"(set)
                     : "eax", "edx");
}

static void paging_pae(void)
{
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned k = 0; k < 512; k++)
            pae_pd[i][k] = (u64)(i << 30 | k << 21) | 0x87;
        pdpt[4 + i] = (u32)pae_pd[i] | 1;
    }
    u32 root = (u32)&pdpt[4]; /* somewhere in a page */
    efer(0, 1 << 11);
    set_cr4(get_cr4() | 0x20);
    set_cr3(root);
    set_cr0(get_cr0() | 0x80000000);
    for (unsigned bits = 0; bits < 32; bits++) {
        pae_pd[0][AT >> 21] = (u32)pae_pt | 1 | (bits & 3) << 1;
        pae_pt[0] = ((u32)page | 1 | (bits >> 2 & 3) << 1) | (u64)(bits >> 4) << 63;
        set_cr3(root);
        line("pae");
        say("bits", bits);
        ways((const volatile u32 *)&pae_pt[0]);
        say("pde", (u32)pae_pd[0][AT >> 21] & 0xfff);
    }
    line("pae reserved");
    pae_pt[0] = (u32)page | 7 | 1ull << 51;
    set_cr3(root);
    ways((const volatile u32 *)&pae_pt[0]);
    line("pae pdpte");
    say("read", (u32)pdpt[4] & 0xfff);
    pdpt[7] |= 2;
    outcome("cr3", attempt(load_cr3, root, 0));
    pdpt[7] &= ~2ull;
    outcome("cr3", attempt(load_cr3, root, 0));
    efer(1 << 11, 0);
    pae_pt[0] = (u32)page | 7 | 1ull << 63;
    set_cr3(root);
    line("pae without NXE");
    ways((const volatile u32 *)&pae_pt[0]);
    set_cr0(get_cr0() & 0x7fffffff);
    set_cr4(get_cr4() & ~0x20u);
}

static void refused(void)
{
    u32 cr0 = get_cr0(), cr4 = get_cr4();
    outcome("pg without pe", attempt(load_cr0, (cr0 | 0x80000000) & ~1u, 0));
    outcome("nw without cd", attempt(load_cr0, (cr0 | 0x20000000) & ~0x40000000u, 0));
    outcome("cr4", attempt(load_cr4, cr4 | 1u << 31, 0));
    efer(0, 1 << 8);
    outcome("lme without pae", attempt(load_cr0, cr0 | 0x80000000, 0));
    outcome("pcide", attempt(load_cr4, cr4 | 1 << 17, 0));
    efer(1 << 8, 0);
    set_cr0(cr0);
}

static void control(void)
{
    line("control");
    if (!tcg)
        refused();
    for (unsigned i = 0; i < 512; i++)
        pae_pd[0][i] = (u64)(i << 21) | 0x87;
    pml4[0] = (u32)pdpt | 7;
    pdpt[0] = (u32)pae_pd[0] | 7;
    long_and_back((u32)pml4);
    line("long mode");
    say("efer", long_efer[0] & 0xd00);
    say("after", long_efer[1] & 0xd00);
    say("low", (u32)long_value);
    say("high", (u32)(long_value >> 32));
}

/* What follows `name`; NULL: it is not there. */
static const char *find(const char *s, const char *name)
{
    for (; *s; s++) {
        unsigned i = 0;
        while (name[i] && s[i] == name[i])
            i++;
        if (!name[i])
            return s + i;
    }
    return 0;
}

static const char *command_line(void)
{
    const u32 *info = (const u32 *)boot_info;
    if (boot_magic == 0x2badb002)
        return info[0] & 4 ? (const char *)info[4] : "";
    if (boot_magic != 0x36d76289)
        return (const char *)info[6]; /* PVH */
    for (const u32 *tag = info + 2; tag[0]; tag += ((tag[1] + 7) & ~7u) / 4)
        if (tag[0] == 1)
            return (const char *)(tag + 2);
    return "";
}

static void descriptors(void)
{
    descriptor(CODE32, 0, 0xfffff, 0x9b, 12);
    descriptor(DATA32, 0, 0xfffff, 0x93, 12);
    descriptor(CODE16, 0, 0xffff, 0x9b, 0);
    descriptor(DATA16, 0, 0xffff, 0x93, 0);
    descriptor(USER_CODE, 0, 0xfffff, 0xfb, 12);
    descriptor(USER_DATA, 0, 0xfffff, 0xf3, 12);
    descriptor(CODE64, 0, 0xfffff, 0x9b, 10);
    descriptor(CONFORMING, BASE, 0xfffff, 0x9f, 12);
    descriptor(PROT16, LOW, 0xffff, 0x9b, 0);
    descriptor(CODE_BASED, BASE, 0xfffff, 0x9b, 12);
    descriptor(USER_BASED, BASE, 0xfffff, 0xfb, 12);
    for (unsigned i = 0; i < 48; i++)
        idt[i] = gate(CODE32, (u32)vectors + 16 * i, 0x8e, 0);
    for (unsigned i = 0x2e; i < 48; i++)
        idt[i] = gate(CODE32, (u32)vectors + 16 * i, 0xee, 0);
    tss[2] = tss[4] = tss[6] = DATA32;
    tss[1] = (u32)ring0_stack + sizeof ring0_stack;
    tss[3] = (u32)inner_stack + sizeof inner_stack;
    tss[25] = 104 << 16; /* no I/O bitmap */
    __asm__ volatile("lgdt %0; lidt %1" : : "m"(gdt_pointer[0]), "m"(idt_pointer[0]));
    reset_tr();
    for (const char *p = low_start; p < low_end; p++)
        ((u8 *)LOW)[p - low_start] = (u8)*p;
}

void guest_main(void)
{
    outb(0x3fb, 3);
    outb(0x21, 0xff);
    outb(0xa1, 0xff);
    const char *given = find(command_line(), "seed=");
    for (seed = given ? 0 : 1; given && *given >= '0' && *given <= '9'; given++)
        seed = 10 * seed + (u32)(*given - '0');
    tcg = find(command_line(), "tcg");
    descriptors();
    text("modes");
    if (!find(command_line(), "brief")) {
        segments();
        gates();
    }
    parameters();
    tasks();
    v86();
    real();
    paging_32();
    paging_pae();
    control();
    line("end\n");
    outb(0x501, 0x20); /* where there is a device for it */
    outb(0x64, 0xfe);
    for (;;)
        __asm__ volatile("hlt");
}
