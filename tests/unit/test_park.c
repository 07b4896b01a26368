/*
 * The guest's vector state goes into the host's registers and out of them, as park.c does it in
 * one way or another: by what is in use, of the guest and of C, which uses the registers between.
 * Two vCPUs in turns; what is in the state at the end is what was put there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "board/ram.h"
#include "cpu/features.h"
#include "cpu/x86/core.h"
#include "cpu/x86/park.h"
#include "cpu/x86/xsave_image.h"
#include "tests/splitmix.h"

#define ROUNDS 200000

static u64 seed;

static u64 any(u64 below)
{
    return splitmix64(&seed) % below;
}

static void fill(u8 *p, unsigned n)
{
    for (unsigned i = 0; i < n; i += 8)
        put64(p + i, any(4) ? splitmix64(&seed) : 0);
}

/* Some components are in use, others as INIT has them. */
static void draw(struct core *d)
{
    struct vcpu *c = &d->cpu;
    u8 *x = c->xsave;

    park_init_image(d);
    if (any(3) == 0) {
        u16 fcw = (u16)(0x40 | (splitmix64(&seed) & 0xf3f)), fsw = (u16)splitmix64(&seed) & 0x7f7f;
        if (fsw & ~fcw & 0x3f)
            fsw |= 0x8080;
        put16(x, fcw);
        put16(x + 2, fsw);
        x[4] = (u8)splitmix64(&seed);
        fill(x + 32, 128);
        for (unsigned r = 0; r < 8; r++)
            put64(x + 40 + 16 * r, get64(x + 40 + 16 * r) & 0xffff);
        put16(x + 6, (u16)any(0x800));
        put64(x + 8, splitmix64(&seed));
        put64(x + 16, splitmix64(&seed));
    }
    if (any(2))
        fill(x + 160, 256);
    if (any(2))
        put32(x + 24, (u32)any(0x10000));
    if (d->xmask & XF_AVX && any(2))
        fill(x + 576, 256);
    for (unsigned i = 5; i < 8; i++)
        if (d->xmask & XF_512 && any(4) == 0)
            fill(avx512_part(c, i), cpu_xsave_part(i).size);
    park_changed(d);
    core_changed(&d->base);
}

/* Between these two nothing but what is asked for is done with vector registers. */
static void __attribute__((noinline)) in_and_out(struct core *d, unsigned doing, bool aside)
{
    core_unpark(d);
    switch (doing) {
    case 1: __asm__ volatile("pcmpeqd %xmm3, %xmm3"); break;
    case 2: __asm__ volatile("vpcmpeqd %xmm5, %xmm5, %xmm5"); break;
    case 3: __asm__ volatile("fnclex"); break;
    case 4: __asm__ volatile("vzeroupper"); break;
    default: break;
    }
    if (aside)
        core_set_aside(d);
    else
        core_park(d);
}

/* The same to what is expected. */
static void expect(struct core *d, struct vcpu *c, unsigned doing)
{
    u8 *x = c->xsave;
    unsigned last = d->xmask & XF_512 ? 16 : 0;
    switch (doing) {
    case 1: memset(x + 160 + 48, 0xff, 16); break;
    case 2:
        memset(x + 160 + 80, 0xff, 16);
        memset(x + 576 + 80, 0, 16);
        if (last)
            memset(avx512_part(c, 6) + 5 * 32, 0, 32);
        break;
    case 3: put16(x + 2, (u16)(get64(x) >> 16 & 0x7f00)); break;
    case 4:
        memset(x + 576, 0, 256);
        if (last)
            memset(avx512_part(c, 6), 0, cpu_xsave_part(6).size);
        break;
    default: break;
    }
}

/* What C does with the registers meanwhile; it leaves them as the ABI has it, or nearly. */
static void __attribute__((noinline)) disturb(const struct core *d, unsigned how)
{
    static u8 ones[64] __attribute__((aligned(64)));
    memset(ones, 0xa5, sizeof(ones));
    switch (how) {
    case 1: __asm__ volatile("fld1; fldpi; fdivrp; fstp %%st(0)" : : : "st"); break;
    case 2: __asm__ volatile("movaps %0, %%xmm3; movaps %0, %%xmm15" : : "m"(ones)); break;
    case 3:
        if (d->xmask & XF_AVX)
            __asm__ volatile("vmovaps %0, %%ymm2; vmovaps %0, %%ymm12" : : "m"(ones));
        break;
    case 4:
        if (d->xmask & XF_AVX)
            __asm__ volatile("vmovaps %0, %%ymm2; vzeroupper" : : "m"(ones));
        break;
    case 5:
        if (d->xmask & XF_512)
            __asm__ volatile(".byte 0x62, 0xe1, 0x7c, 0x48, 0x28, 0x09" : : "c"(ones)); /* zmm17 */
        break;
    case 6: {
        u32 v = 0x1fbf;
        __asm__ volatile("ldmxcsr %0" : : "m"(v)); /* exceptions that happened in C */
        break;
    }
    default: break;
    }
}

static void check_own(void)
{
    u32 mxcsr;
    u16 fcw;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(fcw));
    assert_int_equal(mxcsr, 0x1f80);
    assert_int_equal(fcw, 0x37f);
}

static void compare(struct core *d, struct vcpu *want, unsigned round)
{
    core_park(d);
    put64(want->xsave + 512, in_use(want, d->xmask));
    for (unsigned i = 0; i < XSAVE_SIZE; i++)
        if (d->cpu.xsave[i] != want->xsave[i])
            fail_msg("round %u of seed 1: byte %u is %02x, not %02x", round, i, d->cpu.xsave[i],
                     want->xsave[i]);
    for (unsigned i = 5; i < 8; i++)
        if (memcmp(avx512_part(&d->cpu, i), avx512_part(want, i), cpu_xsave_part(i).size))
            fail_msg("round %u of seed 1: component %u differs", round, i);
}

static void rounds(enum cpu_model model)
{
    static const struct engine_env env;
    static struct vcpu want[2];
    struct ram ram;
    struct engine *e[2] = {NULL};
    struct err err = {0};

    seed = 1;
    assert_int_equal(ram_create(&ram, 16 << 20, &err), 0);
    for (unsigned i = 0; i < 2; i++) {
        const struct engine_config config = {.model = model,
                                             .ram = &ram,
                                             .env = &env,
                                             .kind = ENGINE_DBT,
                                             .revision = ENGINE_REVISION,
                                             .id = i,
                                             .parts = {2, 1, 1},
                                             .sibling = i ? e[0] : NULL};
        assert_int_equal(engine_create(&e[i], &config, &err), 0);
        draw(core_of(e[i]));
        want[i] = *engine_vcpu(e[i]);
    }
    for (unsigned n = 0; n < ROUNDS; n++) {
        unsigned i = (unsigned)any(2);
        struct core *d = core_of(e[i]);
        unsigned doing = (unsigned)any(8);
        if (doing > (d->xmask & XF_AVX ? 4 : 1))
            doing = 0;
        if (any(8) == 0) {
            compare(d, &want[i], n);
            draw(d);
            want[i] = d->cpu;
        }
        if (any(8) == 0) { /* as instructions do that C executes */
            core_park(d);
            fill(d->cpu.xsave + 160, 32);
            memcpy(want[i].xsave + 160, d->cpu.xsave + 160, 32);
            park_changed(d);
        }
        in_and_out(d, doing, any(4));
        check_own();
        disturb(d, (unsigned)any(8));
        expect(d, &want[i], doing);
        if (any(4) == 0)
            compare(d, &want[i], n);
        u32 own = 0x1f80;
        __asm__ volatile("ldmxcsr %0" : : "m"(own));
    }
    for (unsigned i = 2; i--;)
        engine_destroy(e[i]);
    ram_destroy(&ram);
}

static void without_avx512(void **state)
{
    (void)state;
    rounds(CPU_X86_64_V2);
}

static void with_avx512(void **state)
{
    (void)state;
    if (cpu_host_lacks(cpu_model_words(CPU_X86_64_V4)))
        skip();
    rounds(CPU_X86_64_V4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_avx512),
        cmocka_unit_test(with_avx512),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
