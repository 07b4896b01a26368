/*
 * Address spaces that are left and come back to: many top-level tables with code at the same
 * addresses. While one of them is left its tables are changed, in every way that there is, and what
 * runs in it next is what they say then.
 */
#include "tiny.h"

#define SPACES  20
#define AT      0x8000000000ull             /* what a space has of its own */
#define SHARED  0xffffff8000000000ull       /* the same in all: ring 3 in the upper half */
#define USER_PT (PT_P | PT_W | PT_U)
#define CALLED  1000

static struct space {
    u64 *root, *pdpt, *pd, *pt;
    u8 *code; /* two frames: the second one adds CALLED */
} spaces[SPACES], other;
static u64 vector, error;
static volatile u64 result;
static u32 *frames[6];

/* In the first frame of a space, up to its last bytes; it calls the second frame. */
extern const u8 code[], code_end[], called[], called_end[], across[], across_end[], timed[], timed_end[],
    placed[], placed_end[], data[], data_end[], counted[], counted_end[];
__asm__(".text\n"
        "code: mov $0x11111111, %eax\n"
        "  lea 1f(%rip), %rdx; jmp *%rdx\n"
        "  nop\n"
        "1: call code + 4096\n"
        "  movabs %rax, result + 0x4000000000\n"
        "  int $0x81\n"
        "code_end:\n"
        "called: add $1000, %eax; ret\n"
        "called_end:\n"
        /* Its MOV lies in both frames. */
        "across: mov $0x22222222, %eax; movabs %rax, result + 0x4000000000; int $0x81\n"
        "across_end:\n"
        "timed: rdtsc; int $0x81\n"
        "timed_end:\n"
        /* What depends on where it is: it adds up addresses and what is at them. Its data are in the
         * second frame, and a function. */
        "placed: lea placed(%rip), %rax\n"
        "  mov placed + 4096 + 0x200(%rip), %rcx; add %rcx, %rax\n"
        "  xor placed + 4096 + 0x208(%rip), %rax; xor placed + 4096 + 0x210(%rip), %rax\n"
        "  addl $1, placed + 4096 + 0x218(%rip)\n"
        "  mov placed + 4096 + 0xffc(%rip), %rdx; add %rdx, %rax\n" /* in two pages */
        "  call placed + 4096\n"
        "  lea placed + 4096 + 0x200(%rip), %rsi; mov $9, %ecx\n"
        "1: add (%rsi), %rax; rol $7, %rax; add 8(%rsi), %rax; dec %ecx; jnz 1b\n"
        "  call 2f\n"
        "2: pop %rdx; add %rdx, %rax\n"
        "  lea 3f(%rip), %rdx; jmp *%rdx; ud2\n"
        "3: lea 3b(%rip), %edx; add %rdx, %rax\n"
        "  jmp 7f; ud2\n"
        "7: add placed + 4096 + 0x200(%rip), %rax\n"
        "  jmp 4f; ud2\n"
        "4: fld1; fnstenv -64(%rsp); fstp %st(0); mov -52(%rsp), %edx; add %rdx, %rax\n"
        "  mov $6, %r10d\n"
        "5: lea 5b(%rip), %r11; add %r10, %rax; test $1, %r10b; jz 6f\n"
        "  add $3, %r11; add %r10, %rax\n"
        "6: add %r11, %rax; lea (%r11, %r10), %rdx; add %rdx, %rax; dec %r10; jnz 5b\n"
        "  push $77; pop %rdx; add %rdx, %rax\n"
        "  movabs %rax, result + 0x4000000000; int $0x81\n"
        "placed_end:\n"
        /* Loads the first word of a page, and adds one to the second. */
        "data: movabs $0x8000003000, %rcx; mov (%rcx), %eax; incl 4(%rcx)\n"
        "  movabs %rax, result + 0x4000000000; int $0x81\n"
        "data_end:\n"
        /* ... which is the immediate of a MOV, from the third byte on. */
        "counted: mov $0, %eax; movabs %rax, result + 0x4000000000; int $0x81\n"
        "counted_end:\n");

static bool on_fault(struct frame *f)
{
    if (!(f->cs & 3))
        return false;
    vector = f->vector;
    error = f->err;
    __asm__ volatile("jmp user_back");
    return true;
}

static void fill(struct space *s, u32 value)
{
    s->code = (u8 *)pt_alloc();
    u8 *second = (u8 *)pt_alloc();
    memcpy(s->code, code, (size_t)(code_end - code));
    memcpy(s->code + 1, &value, 4);
    memcpy(second, called, (size_t)(called_end - called));
}

static void make(struct space *s, u32 value)
{
    s->root = pt_alloc();
    s->pdpt = pt_alloc();
    s->pd = pt_alloc();
    s->pt = pt_alloc();
    fill(s, value);
    memcpy(s->root, pml4, PAGE);
    s->root[1] = (u64)s->pdpt | USER_PT;
    s->pdpt[0] = (u64)s->pd | USER_PT;
    s->pd[0] = (u64)s->pt | USER_PT;
    s->pt[0] = (u64)s->code | USER_PT;
    s->pt[1] = (u64)(s->code + PAGE) | USER_PT;
}

static u64 enter(unsigned i, u64 at)
{
    WRITE_REG(cr3, spaces[i].root);
    result = 0;
    vector = error = ~0ull;
    user_enter(at, USER(user_stack + sizeof user_stack - 64), 2);
    return result;
}

static u64 go(unsigned i)
{
    return enter(i, AT);
}

/* All of them are entered, and left. */
static u64 around(u64 at)
{
    u64 sum = 0;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < 4; i++)
            sum += enter(i, at);
    return sum;
}

static void runs(u64 want, const char *name)
{
    check_eq(go(0), want, name);
    check_eq(vector, ~0ull, "... without a fault");
}

static void faults(u64 want, const char *name)
{
    go(0);
    check_eq(vector << 16 | error, 14 << 16 | want, name);
}

/* As it was at first, and entered. */
static void again(void)
{
    struct space *s = &spaces[0];
    WRITE_REG(cr3, spaces[1].root);
    s->root[1] = (u64)s->pdpt | USER_PT;
    s->pdpt[0] = (u64)s->pd | USER_PT;
    s->pd[0] = (u64)s->pt | USER_PT;
    s->pt[0] = (u64)s->code | USER_PT;
    s->pt[1] = (u64)(s->code + PAGE) | USER_PT;
    around(AT);
    if (go(0) != 1 + CALLED)
        check(false, "the space is as it was");
    go(1);
}

static void own_code(void)
{
    bool good = true;
    for (unsigned round = 0; round < 5; round++)
        for (unsigned i = 0; i < SPACES; i++)
            good = go(i) == i + 1 + CALLED && good;
    check(good, "each space has code of its own");
}

static void entries(void)
{
    struct space *s = &spaces[0];
    u64 *tables[] = {s->root + 1, s->pdpt, s->pd, s->pt};
    u64 with[] = {(u64)other.pdpt, (u64)other.pd, (u64)other.pt, (u64)other.code};
    for (unsigned k = 0; k < COUNT(tables); k++) {
        again();
        *tables[k] = with[k] | USER_PT;
        runs(501 + CALLED, "another table or page");
        again();
        *tables[k] = 0;
        faults(0x14, "none");
        again();
        *tables[k] |= PT_NX;
        faults(0x15, "one that is not executable");
        again();
        *tables[k] &= ~PT_U;
        faults(0x15, "one that is not the user's");
        again();
        *tables[k] &= ~PT_A;
        runs(1 + CALLED, "one that was not accessed");
        check_eq(*tables[k] & PT_A, PT_A, "... is accessed again");
    }
    again();
    s->pt[1] = (u64)(other.code + PAGE) | USER_PT;
    other.code[PAGE + 1] ^= 1; /* of ADD's immediate */
    runs(1 + (CALLED ^ 1), "another page of the code that is called");
    other.code[PAGE + 1] ^= 1;
}

static void bulk(void)
{
    struct space *s = &spaces[0];
    again();
    for (unsigned i = 1; i < 100; i++)
        s->pt[100 + i] = (u64)other.code | USER_PT;
    s->pt[0] = (u64)other.code | USER_PT;
    runs(501 + CALLED, "a table after many writes");
    again();
    memcpy(s->pt, other.pt, PAGE);
    runs(501 + CALLED, "a table that is another one's copy");
    again();
    memcpy(s->root, other.root, PAGE);
    runs(501 + CALLED, "a top-level table that is another one's copy");
    again();
    s->root[1] = 0;
    for (unsigned i = 2; i < 10; i++)
        s->root[i] = (u64)other.pdpt | USER_PT;
    s->root[1] = (u64)other.pdpt | USER_PT;
    runs(501 + CALLED, "... after many writes");
    for (unsigned i = 2; i < 10; i++)
        s->root[i] = 0;
}

/* Tables that are used more than once. */
static void shared(void)
{
    struct space *s = &spaces[0];
    u64 high = AT + (2ull << 20);
    again();
    spaces[2].pd[0] = (u64)s->pt | USER_PT;
    check_eq(go(2), 1 + CALLED, "a table of two spaces");
    go(0);
    go(1);
    s->pt[0] = (u64)other.code | USER_PT;
    check_eq(go(2), 501 + CALLED, "... with another page, in one");
    go(1);
    runs(501 + CALLED, "... in the other");
    spaces[2].pd[0] = (u64)spaces[2].pt | USER_PT;
    again();
    s->pd[1] = (u64)s->pt | USER_PT;
    check_eq(enter(0, high), 1 + CALLED, "a table at two addresses");
    go(0);
    go(1);
    s->pt[0] = (u64)other.code | USER_PT;
    check_eq(enter(0, high), 501 + CALLED, "... with another page, at one");
    go(1);
    runs(501 + CALLED, "... at the other");
    s->pd[1] = 0;
}

static void written(void)
{
    struct space *s = &spaces[0];
    again();
    s->code[1] = 77;
    runs(77 + CALLED, "code that was written");
    s->code[1] = 1;
    again();
    /* By two spaces that have the page. */
    spaces[2].pt[0] = (u64)s->code | USER_PT;
    check_eq(go(2), 1 + CALLED, "code of two spaces");
    go(0);
    go(1);
    s->code[1] = 78;
    check_eq(go(2), 78 + CALLED, "... written, in one");
    runs(78 + CALLED, "... in the other");
    s->code[1] = 1;
    spaces[2].pt[0] = (u64)spaces[2].code | USER_PT;
}

static void two_pages(void)
{
    struct space *s = &spaces[0];
    u64 at = AT + PAGE - 3;
    again();
    for (unsigned i = 0; i < 4; i++) {
        memcpy(spaces[i].code + PAGE - 3, across, (size_t)(across_end - across));
        WRITE_REG(cr3, spaces[i].root);
    }
    around(at);
    check_eq(enter(0, at), 0x22222222, "an instruction in two pages");
    enter(1, at);
    memcpy(other.code + PAGE - 3, across, (size_t)(across_end - across));
    other.code[PAGE] = 0x33;
    s->pt[1] = (u64)(other.code + PAGE) | USER_PT;
    check_eq(enter(0, at), 0x22332222, "... with another second one");
    enter(1, at);
    s->pt[0] = (u64)other.code | USER_PT;
    other.code[PAGE - 1] = 0x44;
    check_eq(enter(0, at), 0x22334422, "... and another first one");
}

/* Of the second page nothing is known but the end of a branch that begins in the first. */
static void end_of_branch(void)
{
    struct space *s = &spaces[0];
    const unsigned page = 40, distance = 16, offset = 0x802;
    u64 at = AT + page * PAGE + PAGE - 3;
    u8 *first = (u8 *)pt_alloc(), *second[2] = {(u8 *)pt_alloc(), (u8 *)pt_alloc()}, *far = (u8 *)pt_alloc();
    again();
    memcpy(first + PAGE - 3, "\xe9\x00\xf8", 3); /* JMP, 2 KiB less or 62 KiB more */
    memset(second[0], 0xff, 2);
    for (unsigned i = 0; i < 2; i++) {
        u8 *to = (i ? far : first) + offset;
        memcpy(to, counted, (size_t)(counted_end - counted));
        to[1] = (u8)(1 + i);
    }
    s->pt[page] = (u64)first | USER_PT;
    s->pt[page + 1] = (u64)second[0] | USER_PT;
    s->pt[page + distance] = (u64)far | USER_PT;
    for (unsigned i = 0; i < 3; i++) {
        check_eq(enter(0, at), 1, "a branch in two pages");
        go(1);
    }
    s->pt[page + 1] = (u64)second[1] | USER_PT;
    check_eq(enter(0, at), 2, "... with another second one");
}

/* As all were at first, and entered; how often so far. */
static u32 again_data(void)
{
    struct space *s = &spaces[0];
    WRITE_REG(cr3, spaces[1].root);
    s->pt[3] = (u64)frames[0] | USER_PT;
    around(AT + 0x800);
    enter(0, AT + 0x800);
    enter(1, AT + 0x800);
    return frames[0][1];
}

static void loads(u64 want, u64 fault, const char *name)
{
    u64 got = enter(0, AT + 0x800);
    check_eq(fault ? vector << 16 | error : got, fault ? 14 << 16 | fault : want, name);
}

/* Data: what the TLB remembers. */
static void memory(void)
{
    u64 *e = &spaces[0].pt[3];
    again();
    for (unsigned i = 0; i < COUNT(frames); i++) {
        frames[i] = (u32 *)pt_alloc();
        frames[i][0] = 100 + i;
    }
    for (unsigned i = 0; i < 4; i++) {
        spaces[i].pt[3] = (u64)frames[i] | USER_PT;
        memcpy(spaces[i].code + 0x800, data, (size_t)(data_end - data));
    }
    u32 before = again_data();
    loads(100, 0, "a page of data");
    check_eq(frames[0][1], before + 1, "... is written");
    before = again_data();
    *e = (u64)frames[4] | USER_PT;
    loads(104, 0, "another page of data");
    check_eq(frames[0][1], before, "... and not the one before");
    again_data();
    *e = 0;
    loads(0, 4, "none");
    again_data();
    *e &= ~PT_U;
    loads(0, 5, "one that is not the user's");
    before = again_data();
    *e &= ~PT_W;
    loads(0, 7, "one that is not to be written");
    go(1);
    loads(0, 7, "... nor later");
    check_eq(frames[0][1], before, "... is not");
    again_data();
    *e &= ~(PT_A | PT_D);
    loads(100, 0, "one that was not accessed");
    check_eq(*e & (PT_A | PT_D), PT_A | PT_D, "... is accessed and written again");
    again_data();
    *e &= ~PT_D;
    loads(100, 0, "one that was not written");
    check_eq(*e & PT_D, PT_D, "... is written again");
    again_data();
    for (unsigned i = 0; i < 20; i++)
        spaces[0].pt[100 + i] = *e;
    *e = (u64)frames[4] | USER_PT;
    loads(104, 0, "another page, after many writes to the table");
    again_data();
    u64 *pd = spaces[0].pd;
    pd[1] = pd[0];
    spaces[0].pt[0x13] = *e;
    memcpy(frames[4], data, (size_t)(data_end - data));
    spaces[0].pt[0x14] = (u64)frames[4] | USER_PT;
    enter(0, AT + 0x14 * PAGE);
    enter(0, AT + (2ull << 20) + 0x14 * PAGE);
    go(1);
    *e = (u64)frames[5] | USER_PT;
    loads(105, 0, "another page, of a table at two addresses");
    pd[1] = 0;
    again_data();
    pd[0] = (u64)other.pt | USER_PT;
    other.pt[3] = (u64)frames[5] | USER_PT;
    memcpy(other.code + 0x800, data, (size_t)(data_end - data));
    loads(105, 0, "another page, by another table");
    pd[0] = (u64)spaces[0].pt | USER_PT;
    again_data();
    u64 first = spaces[0].root[1];
    for (unsigned i = 2; i < 10; i++)
        spaces[0].root[i] = first;
    spaces[0].root[1] = other.root[1];
    loads(105, 0, "... by another top-level entry, after many writes");
    spaces[0].root[1] = first;
    for (unsigned i = 2; i < 10; i++)
        spaces[0].root[i] = 0;
    /* The page becomes code in another space, while this one, which writes it, is left. */
    again_data();
    memcpy((u8 *)frames[0] + 3, counted, (size_t)(counted_end - counted));
    spaces[1].pt[5] = (u64)frames[0] | USER_PT;
    bool good = true;
    for (u32 i = 0; i < 5; i++) {
        good = enter(1, AT + 5 * PAGE + 3) == i && good;
        enter(0, AT + 0x800);
        good = vector == ~0ull && good;
    }
    check(good, "a page that is data in one and code in another");
    spaces[1].pt[5] = 0;
    spaces[0].pt[5] = (u64)frames[0] | USER_PT;
    for (u32 i = 5; i < 10; i++) {
        enter(1, AT + 0x800);
        enter(0, AT + 0x800);
        good = enter(0, AT + 5 * PAGE + 3) == i + 1 && good;
        frames[0][1]--;
        enter(0, AT + 0x800);
        good = enter(0, AT + 5 * PAGE + 3) == i + 1 && good;
    }
    check(good, "a page that is both in one");
    /* It was code while the space was left, and is not when that comes back. */
    spaces[1].pt[5] = (u64)frames[0] | USER_PT;
    for (u32 i = 0; i < 5; i++) {
        enter(0, AT + 0x800);
        enter(0, AT + 0x800);
        enter(1, AT + 5 * PAGE + 3);
        u32 count = *(volatile u32 *)&frames[0][1] += 1;
        good = enter(0, AT + 5 * PAGE + 3) == count && good;
        enter(0, AT + 0x800);
        good = enter(0, AT + 5 * PAGE + 3) == count + 1 && good;
    }
    check(good, "a page that was code meanwhile");
    spaces[1].pt[5] = 0;
    spaces[0].pt[5] = 0;
}

/* CR4.TSD makes another mode of ring 3. */
static void modes(void)
{
    u64 tsd = 1 << 2, cr4 = READ_REG(cr4);
    struct space *s = &spaces[0];
    again();
    WRITE_REG(cr4, cr4 | tsd);
    around(AT);
    s->pt[0] = (u64)other.code | USER_PT;
    runs(501 + CALLED, "another page, in another mode");
    go(1);
    WRITE_REG(cr4, cr4);
    runs(501 + CALLED, "... in the mode before");
    again();
    for (unsigned upper = 0; upper < 2; upper++) {
        u64 at = upper ? SHARED : AT + 0x800;
        memcpy(s->code + 0x800, timed, (size_t)(timed_end - timed));
        for (unsigned round = 0; round < 3; round++) {
            WRITE_REG(cr4, cr4);
            enter(0, at);
            check_eq(vector, ~0ull, "RDTSC in ring 3");
            go(1);
            WRITE_REG(cr4, cr4 | tsd);
            go(1);
            enter(0, at);
            check_eq(vector << 16 | error, 13 << 16, "... is refused");
        }
    }
    WRITE_REG(cr4, cr4);
}

/* Where in `placed` these bytes are. */
static u64 find(const u8 *bytes, size_t n)
{
    u64 at = 0;
    while (memcmp(placed + at, bytes, n))
        at++;
    return at;
}

/* The same code at many addresses, at one at a time: a library, in each process elsewhere. */
static void places(void)
{
    static const u8 call_2f[] = {0xe8, 0, 0, 0, 0}, lea_3b[] = {0x8d, 0x15, 0xfa, 0xff, 0xff, 0xff},
                    lea_5b[] = {0x4c, 0x8d, 0x1d, 0xf9, 0xff, 0xff, 0xff},
                    add[] = {0x48, 0x05, 0xe9, 0x03, 0, 0, 0xc3}; /* add rax, CALLED + 1; ret */
    struct space *s = &spaces[0];
    u64 offset_2 = find(call_2f, 5) + 5, offset_3 = find(lea_3b, 6), offset_5 = find(lea_5b, 7);
    again();
    memcpy(other.code, placed, (size_t)(placed_end - placed));
    memcpy(other.code + PAGE, add, sizeof add);
    u64 *data = (u64 *)(other.code + PAGE + 0x200);
    data[0] = 0x1234567890;
    data[1] = ~0ull;
    data[2] = 0x5555555555;
    bool good = true;
    for (unsigned k = 1; k < 40; k++) {
        unsigned page = k * 5 % 64;
        u64 *pt = pt_alloc(), at = AT + k * (2ull << 20) + page * PAGE, crossed = 0;
        s->pd[k] = (u64)pt | USER_PT;
        pt[page] = (u64)other.code | USER_PT;
        pt[page + 1] = (u64)(other.code + PAGE) | USER_PT;
        pt[page + 2] = (u64)spaces[k % 4].code | USER_PT; /* of whose first bytes it has four */
        memcpy((u8 *)&crossed + 4, spaces[k % 4].code, 4);
        u64 want = ((at + data[0]) ^ data[1] ^ data[2]) + crossed + CALLED + 1;
        for (unsigned i = 0; i < 9; i++) {
            want += data[0];
            want = (want << 7 | want >> 57) + data[1];
        }
        want += at + offset_2 + (u32)(at + offset_3) + (u32)(at + offset_3 + 9 + 15) + data[0] + 77;
        for (unsigned i = 6; i; i--) {
            u64 odd = i & 1 ? 3 : 0;
            want += 2 * (at + offset_5 + odd) + 2 * i + (i & 1 ? i : 0);
        }
        for (unsigned round = 0; round < 6; round++) {
            good = enter(0, at) == want && vector == ~0ull && good;
            if (k % 8 == round)
                go(1);
        }
        s->pd[k] = 0;
    }
    check(good, "the same code at other addresses");
    check_eq(data[3], 39 * 6, "... has run as often");
}

/* What is looked at for a walk, besides tables. */
static void registers(void)
{
    struct space *s = &spaces[0];
    again();
    u64 efer = rdmsr(0xc0000080);
    wrmsr(0xc0000080, efer & ~0x800ull);
    s->pt[0] |= PT_NX;
    INEXACT(faults(READ_REG(cr4) & 1 << 20 ? 0x1d : 0xd, "NX that is reserved"));
    wrmsr(0xc0000080, efer);
}

void guest_main(void)
{
    set_handler(13, on_fault);
    set_handler(14, on_fault);
    u64 *pdpt_up = pt_alloc(), *pd_up = pt_alloc(), *pt_up = pt_alloc(), *page = pt_alloc();
    memcpy(page, timed, (size_t)(timed_end - timed));
    pml4[511] = (u64)pdpt_up | USER_PT;
    pdpt_up[0] = (u64)pd_up | USER_PT;
    pd_up[0] = (u64)pt_up | USER_PT;
    pt_up[0] = (u64)page | USER_PT;
    for (unsigned i = 0; i < SPACES; i++)
        make(&spaces[i], i + 1);
    make(&other, 501);
    own_code();
    entries();
    bulk();
    shared();
    written();
    memory();
    modes();
    registers();
    places();
    end_of_branch();
    two_pages();
    exit_guest(0);
}
