/*
 * Code where there is no RAM: above all RAM, in the hole below 4 GiB, in a device's memory, and in
 * instructions of which one part is there. What is fetched is ones: FF FF is no instruction.
 */
#include "tiny.h"

#define VA 0x6100000000ull

static u8 ram[4096] __attribute__((aligned(4096))), other[4096] __attribute__((aligned(4096)));
static u64 out;

static const struct {
    u64 at;
    const char *name;
} places[] = {{0xd0000000, "the hole below 4 GiB"},
              {0xfd000000, "where no device is"},
              {LAPIC, "the local APIC"},
              {IOAPIC, "the IO-APIC"},
              {0x400000000, "above all RAM"}};

/* A whole page: #UD at the first byte and at the last but one. */
static void whole(u64 at, const char *name)
{
    map(VA, at, PT_P | PT_W);
    for (unsigned k = 0; k < 2; k++) {
        u64 to = VA + (k ? 4094 : 0x123);

        TRY("call *%%rcx", "c"(to));
        check(trap.vector == 6 && trap.f.rip == to, name);
    }
}

/* An instruction that goes on where no RAM is, in turns with one that does not; one that begins
 * there and goes on in RAM. */
static void parts(u64 at, const char *name)
{
    u64 bad = 0, got;

    for (unsigned k = 0; k < 200; k++) {
        bool there = k & 1;

        map(VA, (u64)ram, PT_P | PT_W);
        map(VA + PAGE, there ? (u64)other : at, PT_P | PT_W);
        ram[4094] = 0xb8, ram[4095] = 0x44; /* mov eax, imm32; ret */
        other[0] = 0x33, other[1] = 0x22, other[2] = 0x11, other[3] = 0xc3;
        TRY("call *%%rcx\n\tmov %%rax, (%%rdi)", "c"(VA + 4094), "D"(&out));
        bad += there ? trap.count || out != 0x11223344
                     : trap.vector != 6 || trap.f.rip != VA + PAGE + 3 || trap.f.rax != 0xffffff44;
        map(VA, at, PT_P | PT_W);
        map(VA + PAGE, (u64)other, PT_P | PT_W);
        other[0] = 0xc0, other[1] = 0xc3; /* after FF: inc eax; ret */
        __asm__ volatile("call *%%rcx" : "=a"(got) : "a"(k), "c"(VA + 4095) : "memory", "cc");
        bad += got != k + 1;
    }
    check_eq(bad, 0, name);
}

void guest_main(void)
{
    if (under_tcg()) { /* it reads zeros */
        print("tcg no RAM\n");
        exit_guest(0);
    }
    for (unsigned i = 0; i < COUNT(places); i++) {
        whole(places[i].at, places[i].name);
        parts(places[i].at, places[i].name);
    }
    exit_guest(0);
}
