/*
 * Several vCPUs (record --cpus): INIT and start-up IPIs, what a CPU is after INIT (SDM vol. 3, table
 * 10-1), NMIs to all, one that never halts while others wait. The command line "triple" has one of
 * them shut down; "long" has four of them measure turns by the TSC; in "pages" one changes what
 * another has looked up, and nobody flushes anything: a CPU may still see what was there, this one
 * (docs/determinism.md) never does. Checks nothing where there is one CPU.
 */
#include "tiny.h"

#define MOST    32
#define PLACE   0x8000 /* where start-up IPIs begin */
#define FOUND   0xf00  /* ... what was there then, behind that */
#define ALL     0xff
#define INIT    0x4500
#define STARTUP (0x4600 | PLACE >> 12)
#define OTHERS  0xc0000
#define VIEW    0x8000000000ull /* a page of data, and one of code */

extern const u8 startup_begin[], startup_end[];
extern u8 gdt_pointer[];
void on_cpu(u32 id);

u8 cpu_stacks[MOST][4096] __attribute__((aligned(16)));
u8 idt_pointer[10];
u64 found_segments[3];

enum job { WAIT, SPIN, DIRTY, INIT_SELF, SHUT_DOWN, HALT, SLEEP, WORK, ROOT, LOOK };
static volatile u32 started[MOST], nmis[MOST], passed[MOST], told[MOST];
static volatile u64 kept[MOST][32];
static u32 cpus;

/* How long others had the turn meanwhile: what a CPU that works found. */
static volatile struct {
    u64 least, most;
    u32 times;
} away[MOST];
static volatile u64 until, called_at; /* TSC */
static volatile u32 woken;
static volatile u64 look_root;
static volatile struct seen {
    u64 data, code;
} seen;

/* From real mode at PLACE to on_cpu(). What INIT left is stored behind it. */
__asm__(".pushsection .text\n"
        ".code16\n"
        "startup_begin:\n"
        "  cli\n"
        "  movl %edx, %cs:0xf00\n"
        "  movl %ebx, %cs:0xf04\n"
        "  movl %cr0, %ebx\n  movl %ebx, %cs:0xf08\n"
        "  movl %cr2, %ebx\n  movl %ebx, %cs:0xf0c\n"
        "  movl %cr3, %ebx\n  movl %ebx, %cs:0xf10\n"
        "  movl %cr4, %ebx\n  movl %ebx, %cs:0xf14\n"
        "  movl %dr0, %ebx\n  movl %ebx, %cs:0xf18\n"
        "  movl %dr7, %ebx\n  movl %ebx, %cs:0xf1c\n"
        "  movl %dr6, %ebx\n  movl %ebx, %cs:0xf20\n"
        "  movw %ds, %cs:0xf24\n"
        "  movw %cs, %cs:0xf26\n"
        "  sgdtl %cs:0xf28\n"
        "  movl $0xc0000080, %ecx\n  rdmsr\n  movl %eax, %cs:0xf30\n"
        "  orl $0x100, %eax\n  wrmsr\n"
        "  movl $0x6a8, %eax\n  movl %eax, %cr4\n"
        "  movl $pml4, %eax\n  movl %eax, %cr3\n"
        "  lgdtl %cs:(startup_gdt - startup_begin)\n"
        "  movl $0x80010033, %eax\n  movl %eax, %cr0\n"
        "  ljmpl $0x10, $startup_64\n"
        "startup_gdt:\n"
        "  .word 0\n  .long 0\n"
        "startup_end:\n"
        ".code64\n"
        "startup_64:\n"
        "  mov $0x18, %eax\n"
        "  mov %eax, %ss\n  mov %eax, %ds\n  mov %eax, %es\n"
        "  lidt idt_pointer\n"
        "  mov $1, %eax\n  cpuid\n  shr $24, %ebx\n"
        "  mov %ebx, %edi\n"
        "  shl $12, %ebx\n"
        "  lea cpu_stacks + 4096(%rbx), %rsp\n"
        "  call on_cpu\n"
        ".popsection\n");

static u32 id_here(void)
{
    return lapic_read(0x20) >> 24;
}

static void send(u32 to, u32 command)
{
    lapic_write(0x310, to << 24);
    lapic_write(0x300, command);
}

static void pause(u32 times)
{
    while (times--)
        __asm__ volatile("pause" : : : "memory");
}

/* Until *what is `is`; false: it never was. */
static bool becomes(volatile u32 *what, u32 is)
{
    for (u32 i = 0; i < 1000000 && *what != is; i++)
        pause(1);
    return *what == is;
}

static bool on_nmi(struct frame *f)
{
    nmis[id_here()]++;
    return true;
}

/* MSRs that INIT leaves as they are, and what can be put there. */
static const struct {
    u32 msr;
    u64 value;
} msrs[] = {{0xc0000081, 0x0023001000000000},
            {0xc0000082, 0xffffffff81000000},
            {0xc0000083, 0x1234},
            {0xc0000084, 0x47700},
            {0xc0000102, 0x7000},
            {0x174, 0x10},
            {0x175, 0x9000},
            {0x176, 0xa000},
            {0x3b, 0x1000},
            {0xc0000103, 77},
            {0x277, 0x0007010600070106},
            {0x2ff, 0xc00},
            {0x250, 0x0606060606060606},
            {0x200, 0x6},
            {0x201, 0x800}};
#define MSRS COUNT(msrs)

static bool on_call(struct frame *f)
{
    woken = (u32)(rdtsc() - called_at);
    lapic_eoi();
    return true;
}

/* Until the TSC says so; `call`: CPU 3, at half the time. */
static void work(u32 id, bool call)
{
    u64 last = rdtsc(), half = (last + until) / 2;
    away[id].least = ~0ull;
    away[id].most = away[id].times = 0;
    while (last < until) {
        u64 now = rdtsc(), gap = now - last;
        last = now;
        if (gap > 10000) {
            away[id].times++;
            away[id].least = gap < away[id].least ? gap : away[id].least;
            away[id].most = gap > away[id].most ? gap : away[id].most;
        }
        if (call && now >= half) {
            call = false;
            called_at = rdtsc();
            send(3, 0x4040);
        }
    }
}

/* With AVX-512: exchanges k5, for which CR4 and XCR0 have to have what INIT took away, or left. */
static u64 exchange_mask(u64 new)
{
    u64 cr4 = READ_REG(cr4), old;
    if (!cpu_has(7, 1, 16))
        return 0;
    WRITE_REG(cr4, cr4 | 1 << 18);
    __asm__ volatile("xsetbv" : : "c"(0), "a"(0xe7), "d"(0));
    __asm__ volatile("kmovq %%k5, %0; kmovq %1, %%k5" : "=&r"(old) : "r"(new));
    WRITE_REG(cr4, cr4);
    return old;
}

static void look_at_msrs(u32 id)
{
    for (u32 i = 0; i < MSRS; i++)
        kept[id][i] = rdmsr(msrs[i].msr);
    u64 xmm;
    u16 fcw;
    __asm__ volatile("movq %%xmm5, %0" : "=r"(xmm));
    __asm__ volatile("fnstcw %0" : "=m"(fcw));
    kept[id][MSRS] = xmm;
    kept[id][MSRS + 1] = fcw;
    kept[id][MSRS + 3] = exchange_mask(0);
    kept[id][MSRS + 2] = lapic_read(0xf0) | (u64)lapic_read(0x80) << 32;
}

static void dirty(void)
{
    const u16 fcw = 0x27f;
    for (u32 i = 0; i < MSRS; i++)
        wrmsr(msrs[i].msr, msrs[i].value);
    __asm__ volatile("mov %0, %%dr0" : : "r"(0x1234ull));
    __asm__ volatile("mov %0, %%dr7" : : "r"(0x402ull));
    __asm__ volatile("mov %0, %%cr2" : : "r"(0x5678ull));
    __asm__ volatile("movq %0, %%xmm5" : : "r"(0x1122334455667788ull));
    __asm__ volatile("fldcw %0" : : "m"(fcw));
    exchange_mask(0x1234567812345678);
    lapic_write(0x80, 0x30);
    u64 cr0;
    __asm__ volatile("mov %%cr0, %0" : "=r"(cr0));
    __asm__ volatile("mov %0, %%cr0" : : "r"(cr0 | 1u << 30));
}

static void look(volatile struct seen *to)
{
    to->data = *(const volatile u64 *)VIEW;
    to->code = ((u64(*)(void))(VIEW + PAGE))();
}

void on_cpu(u32 id)
{
    look_at_msrs(id);
    lapic_enable();
    started[id]++;
    for (;;) {
        u32 job = told[id];
        if (job != WAIT)
            told[id] = WAIT;
        switch (job) {
        case SPIN:
            passed[id]++;
            for (;;)
                __asm__ volatile("");
        case DIRTY:
            dirty();
            passed[id]++;
            break;
        case INIT_SELF:
            passed[id]++;
            send(id, INIT);
            passed[id] += 100; /* never */
            break;
        case SHUT_DOWN:
            __asm__ volatile("lidt %0\n\tud2" : : "m"(*(const u8(*)[10])found_segments));
            break;
        case HALT: __asm__ volatile("hlt"); break;
        case SLEEP: sti_hlt_cli(); break;
        case WORK:
            work(id, false);
            passed[id]++;
            break;
        case ROOT:
            WRITE_REG(cr3, look_root);
            passed[id]++;
            break;
        case LOOK:
            look(&seen);
            passed[id]++;
            break;
        default: pause(1); break;
        }
    }
}

static u32 at_start(u32 offset)
{
    return *(volatile u32 *)(u64)(PLACE + FOUND + offset);
}

static bool all_started(u32 times)
{
    bool good = true;
    for (u32 i = 1; i < cpus; i++)
        good = becomes(&started[i], times) && good;
    return good;
}

static void restart(u32 id)
{
    u32 before = started[id];
    send(id, INIT);
    send(id, STARTUP);
    check(becomes(&started[id], before + 1), "INIT and a start-up IPI start it anew");
}

static void check_init(void)
{
    u32 r[4];
    const u32 me = 1;
    told[me] = DIRTY;
    check(becomes(&passed[me], 1), "a CPU sets what INIT resets and what it does not");
    u64 before = rdtsc();
    restart(me);
    cpuid(1, 0, r);
    check_eq(at_start(0x00), r[0], "INIT: EDX says what the CPU is");
    check_eq(at_start(0x04), 0, "INIT: EBX");
    check_eq(at_start(0x08) & ~0x20000000u, 0x40000010, "INIT: CR0, of which CD stays");
    check_eq(at_start(0x0c) | at_start(0x10) | at_start(0x14), 0, "INIT: CR2, CR3, CR4");
    check_eq(at_start(0x18), 0, "INIT: DR0");
    check_eq(at_start(0x1c), 0x400, "INIT: DR7");
    check_eq(at_start(0x20), 0xffff0ff0, "INIT: DR6");
    check_eq(at_start(0x24), PLACE >> 4 << 16, "start-up: DS, CS");
    check_eq(at_start(0x28) & 0xffff, 0xffff, "INIT: GDTR's limit");
    check_eq(at_start(0x30), 0, "INIT: EFER");
    for (u32 i = 0; i < MSRS; i++) {
        if (kept[me][i] != msrs[i].value)
            print("MSR %x ", msrs[i].msr);
        check_eq(kept[me][i], msrs[i].value, "INIT: an MSR stays");
    }
    check_eq(kept[me][MSRS], 0x1122334455667788, "INIT: XMM5 stays");
    check_eq(kept[me][MSRS + 3], cpu_has(7, 1, 16) ? 0x1234567812345678 : 0, "INIT: k5 stays");
    check_eq(kept[me][MSRS + 1], 0x27f, "INIT: FCW stays");
    check_eq(kept[me][MSRS + 2], 0xff, "INIT: the local APIC is off, its TPR 0");
    check(rdtsc() > before, "the TSC goes on");
    wrmsr(0x3b, 0);
}

static void check_nmis(void)
{
    bool good = true;
    send(0, 0x4400 | OTHERS);
    for (u32 i = 1; i < cpus; i++)
        good = becomes(&nmis[i], 1) && good;
    check(good && !nmis[0], "an NMI to all others");
    send(ALL, 0x4400);
    for (u32 i = 0; i < cpus; i++)
        good = becomes(&nmis[i], 1 + (i > 0)) && good;
    check(good, "an NMI to all");
    told[1] = HALT;
    pause(1000);
    send(1, 0x4400);
    check(becomes(&nmis[1], 3), "an NMI to one that is halted with interrupts off");
}

static void check_spinner(void)
{
    told[1] = SPIN;
    check(becomes(&passed[1], 2), "one goes round for ever");
    for (u32 i = 2; i < cpus; i++) {
        told[i] = DIRTY;
        check(becomes(&passed[i], 1), "others have their turns");
    }
    restart(1);
}

static void check_self(void)
{
    told[1] = INIT_SELF;
    check(becomes(&passed[1], 3), "one sends INIT to itself");
    pause(1000);
    check_eq(passed[1], 3, "and comes no further");
    u32 before = started[1];
    send(1, STARTUP);
    check(becomes(&started[1], before + 1), "until it is started");
    send(0, INIT);
    send(0, STARTUP);
    pause(100);
    check(true, "the first CPU goes on: there is no firmware that it would begin in");
    for (u32 i = 0; i < cpus; i++)
        started[i] = 0;
    send(ALL, INIT); /* the first one included */
    send(ALL, STARTUP);
    check(all_started(1) && !started[0], "INIT to all");
    send(0, STARTUP | OTHERS);
    pause(1000);
    check(all_started(1), "a start-up IPI to those that run is ignored");
}

static void check_storm(void)
{
    for (u32 i = 0; i < 2000; i++) {
        send(1 + i % (cpus - 1), i & 8 ? STARTUP : INIT);
        if (i % 3 == 0)
            send(0, INIT | OTHERS);
        if (i % 7 == 0)
            pause(i % 11);
    }
    send(0, INIT | OTHERS);
    pause(100);
    for (u32 i = 0; i < cpus; i++)
        started[i] = 0;
    pause(1000);
    check(all_started(0), "after a storm all wait");
    send(0, STARTUP | OTHERS);
    check(all_started(1), "and start");
}

/* CPUs 0, 1 and 2 work for so long, with CPU 3 at that. */
static void all_work(u64 positions, enum job third, bool call)
{
    for (u32 i = 1; i < 4; i++)
        passed[i] = 0;
    until = rdtsc() + positions;
    told[3] = third;
    told[1] = told[2] = WORK;
    work(0, call);
    check(becomes(&passed[1], 1) && becomes(&passed[2], 1), "all have worked");
    print("others had %lu to %lu, %u times\n", away[1].least, away[1].most, away[1].times);
}

static bool is_about(u64 x, u64 positions)
{
    return x + 5000 > positions && x < positions + 5000;
}

/* Machine revision 8 (docs/determinism.md). */
static void check_turns(void)
{
    set_handler(0x40, on_call);
    all_work(30000000, WORK, false);
    check(is_about(away[1].most, 6000000), "turns of those that work are long");
    check(becomes(&passed[3], 1), "the last one has worked, too");
    all_work(5000000, WAIT, false);
    check(away[1].most < 310000, "and short while one waits");
    all_work(20000000, SLEEP, true);
    print("woken after %u\n", woken);
    check(is_about(away[1].most, 4000000), "but not while one sleeps");
    check(woken && woken < 1600000, "which has its turn soon when it is woken");
}

/* Two of each, which differ in what they say. */
static u64 data_frame[2], code_frame[2];

static void make_frames(void)
{
    for (u32 k = 0; k < 2; k++) {
        u64 *data = pt_alloc();
        u8 *code = (u8 *)pt_alloc();
        const u8 mov_ret[] = {0xb8, (u8)(200 + k), 0, 0, 0, 0xc3};
        *data = 100 + k;
        memcpy(code, mov_ret, sizeof(mov_ret));
        data_frame[k] = (u64)data | PT_P;
        code_frame[k] = (u64)code | PT_P;
    }
}

static void put_frames(u64 *pt, u32 k)
{
    *(volatile u64 *)&pt[0] = data_frame[k];
    *(volatile u64 *)&pt[1] = code_frame[k];
}

static void tell(u32 id, enum job job)
{
    u32 before = passed[id];
    told[id] = job;
    check(becomes(&passed[id], before + 1), "the other one has done it");
}

static void other_sees(u32 k, const char *what)
{
    tell(1, LOOK);
    check_eq(seen.data, 100 + k, what);
    check_eq(seen.code, 200 + k, what);
}

static void i_see(u32 k, const char *what)
{
    volatile struct seen own;
    look(&own);
    check_eq(own.data, 100 + k, what);
    check_eq(own.code, 200 + k, what);
}

/* CPU 1 looks through `root`, below which `pd` is. */
static void change_tables(u64 *root, u64 *pd, bool mine, const char *what)
{
    u64 *pt = (u64 *)(*pd & PT_ADDR), *crossed = pt_alloc();
    look_root = (u64)root;
    put_frames(pt, 0);
    put_frames(crossed, 1);
    tell(1, ROOT);
    for (u32 i = 0; i < 6; i++) {
        other_sees(i % 2, what);
        i_see(mine ? i % 2 : 0, what);
        put_frames(pt, (i + 1) % 2);
    }
    other_sees(0, what);
    i_see(0, what);
    *(volatile u64 *)pd = (u64)crossed | PT_P | PT_W;
    other_sees(1, "another table");
    i_see(mine, "another table");
    *(volatile u64 *)pd = (u64)pt | PT_P | PT_W;
    other_sees(0, "the table from before");
    i_see(0, "the table from before");
    for (u32 i = 0; i < 9; i++)
        put_frames(pt, (i + 1) % 2);
    other_sees(1, "many changes");
    i_see(mine, "many changes");
    put_frames(pt, 0);
    other_sees(0, what);
}

static void check_pages(void)
{
    u64 *mine = (u64 *)(READ_REG(cr3) & PT_ADDR), *other = pt_alloc(), *pd = pt_alloc(), *pdpt = pt_alloc();
    make_frames();
    put_frames(pt_entry(VIEW, 1), 0);
    change_tables(mine, pt_entry(VIEW, 2), true, "the same address space");
    memcpy(other, mine, PAGE);
    change_tables(other, pt_entry(VIEW, 2), true, "another one, and a table of both");
    other = pt_alloc();
    memcpy(other, mine, PAGE);
    *pd = (u64)pt_alloc() | PT_P | PT_W;
    *pdpt = (u64)pd | PT_P | PT_W;
    other[VIEW >> 39 & 511] = (u64)pdpt | PT_P | PT_W;
    change_tables(other, pd, false, "another one with tables of its own");
}

void guest_main(void)
{
    const char *line = command_line();
    u32 r[4];
    lapic_enable();
    cpuid(1, 0, r);
    cpus = r[1] >> 16 & 0xff;
    if (cpus < 2)
        exit_guest(0);
    memcpy((void *)PLACE, startup_begin, (size_t)(startup_end - startup_begin));
    memcpy((void *)(PLACE + (startup_end - startup_begin) - 6), gdt_pointer, 6);
    __asm__ volatile("sidt %0" : "=m"(idt_pointer));
    set_handler(2, on_nmi);
    send(0, INIT | OTHERS);
    send(0, STARTUP | OTHERS);
    check(all_started(1), "all start");
    if (line && line[0] == 't') {
        told[1] = SHUT_DOWN;
        for (;;)
            pause(1);
    }
    if (line && line[0] == 'l') {
        check_turns();
        exit_guest(0);
    }
    if (line && line[0] == 'p') {
        check_pages();
        exit_guest(0);
    }
    check_init();
    check_nmis();
    check_spinner();
    check_self();
    check_storm();
    exit_guest(0);
}
