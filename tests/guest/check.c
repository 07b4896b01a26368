/*
 * Runs inside the guest (static, part of the workload test) and natively: checks x87, SSE and AVX
 * results against known answers, that signals keep the floating-point state, and page protection
 * under churn. Prints "OK NAME" or "BAD NAME: got, want" per check; exit status 1 after any BAD.
 *
 *     check v2|v3|v4
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define V2   __attribute__((target("sse4.2,popcnt"), noinline))
#define V3   __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,movbe,f16c"), noinline))
#define PAGE 4096

static int bad;

static void same(const char *name, uint64_t got, uint64_t want)
{
    if (got == want) {
        printf("OK %s\n", name);
        return;
    }
    printf("BAD %s: %llx, should be %llx\n", name, (unsigned long long)got,
           (unsigned long long)want);
    bad = 1;
}

static void same_bytes(const char *name, const void *got, const void *want, size_t size)
{
    const unsigned char *a = got, *b = want;
    size_t i = 0;
    while (i < size && a[i] == b[i])
        i++;
    same(name, i < size ? (uint64_t)i << 16 | a[i] << 8 | b[i] : 0, 0);
}

/* The compiler knows nothing about the value afterwards. */
#define HIDE(x) ({ __asm__ volatile("" : "+x"(x)); })

/* x87 */

static void same_ext(const char *name, long double got, unsigned exponent, uint64_t mantissa)
{
    char text[80];
    uint64_t m;
    uint16_t e;
    memcpy(&m, &got, 8);
    memcpy(&e, (char *)&got + 8, 2);
    snprintf(text, sizeof(text), "x87 %s", name);
    same(text, m, mantissa);
    if (e != exponent)
        same(text, e, exponent);
}

static void control(uint16_t word)
{
    __asm__ volatile("fldcw %0" : : "m"(word));
}

static uint16_t status(void)
{
    uint16_t word;
    __asm__ volatile("fnstsw %0" : "=a"(word));
    return word;
}

#define X87_LOAD(insn)                                                                             \
    ({                                                                                             \
        long double r_;                                                                            \
        __asm__ volatile(insn : "=t"(r_));                                                         \
        r_;                                                                                        \
    })

static void x87(void)
{
    long double one = 1, two = 2, three = 3, r;
    unsigned char bcd[10];
    static const unsigned char bcd_want[10] = {0x90, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0x80};
    int64_t integer;

    __asm__ volatile("fninit"
                     :
                     :
                     : "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)");
    __asm__ volatile("fsqrt" : "=t"(r) : "0"(two));
    same_ext("sqrt(2)", r, 0x3fff, 0xb504f333f9de6484);
    __asm__ volatile("fdivrp" : "=t"(r) : "0"(three), "u"(one) : "st(1)");
    same_ext("1/3", r, 0x3ffd, 0xaaaaaaaaaaaaaaab);
    control(0x0f7f); /* towards zero */
    __asm__ volatile("fdivrp" : "=t"(r) : "0"(three), "u"(one) : "st(1)");
    same_ext("1/3 towards zero", r, 0x3ffd, 0xaaaaaaaaaaaaaaaa);
    same_ext("pi towards zero", X87_LOAD("fldpi"), 0x4000, 0xc90fdaa22168c234);
    control(0x007f); /* 24 bits */
    __asm__ volatile("fdivrp" : "=t"(r) : "0"(three), "u"(one) : "st(1)");
    same_ext("1/3 in 24 bits", r, 0x3ffd, 0xaaaaab0000000000);
    control(0x037f);
    same_ext("pi", X87_LOAD("fldpi"), 0x4000, 0xc90fdaa22168c235);
    same_ext("log2(e)", X87_LOAD("fldl2e"), 0x3fff, 0xb8aa3b295c17f0bc);
    same_ext("log2(10)", X87_LOAD("fldl2t"), 0x4000, 0xd49a784bcd1b8afe);
    same_ext("ln(2)", X87_LOAD("fldln2"), 0x3ffe, 0xb17217f7d1cf79ac);
    same_ext("log10(2)", X87_LOAD("fldlg2"), 0x3ffd, 0x9a209a84fbcff799);
    __asm__ volatile("fprem" : "=t"(r) : "0"(5.25L), "u"(1.5L));
    same_ext("5.25 mod 1.5", r, 0x3ffe, 0xc000000000000000);
    __asm__ volatile("fprem1" : "=t"(r) : "0"(5.25L), "u"(1.5L));
    same_ext("5.25 rem 1.5", r, 0xbffe, 0xc000000000000000);
    __asm__ volatile("fscale" : "=t"(r) : "0"(three), "u"(10.0L));
    same_ext("3 * 2^10", r, 0x400a, 0xc000000000000000);
    __asm__ volatile("frndint" : "=t"(r) : "0"(2.5L));
    same_ext("2.5 rounds to even", r, 0x4000, 0x8000000000000000);
    __asm__ volatile("fbstp %0" : "=m"(bcd) : "t"(-1234567890.0L) : "st");
    same_bytes("x87 packed decimal", bcd, bcd_want, 10);
    __asm__ volatile("fnclex; fistpll %0" : "=m"(integer) : "t"(1e30L) : "st");
    same("x87 integer indefinite", (uint64_t)integer, 1ull << 63);
    same("x87 invalid flag", status() & 0x3f, 1);
    __asm__ volatile("fnclex; fdivrp" : "=t"(r) : "0"(0.0L), "u"(one) : "st(1)");
    same_ext("1/0", r, 0x7fff, 0x8000000000000000);
    same("x87 divide-by-zero flag", status() & 0x3f, 4);
    __asm__ volatile("fsin" : "=t"(r) : "0"(one));
    r -= 0.84147098480789650665L;
    same("x87 sin(1)", r > -1e-18L && r < 1e-18L, 1);
    __asm__ volatile("fyl2x" : "=t"(r) : "0"(1024.0L), "u"(three) : "st(1)");
    same_ext("3 * log2(1024)", r, 0x4003, 0xf000000000000000);
    __asm__ volatile("fninit");
}

/* SSE */

static uint64_t low(__m128i v)
{
    return (uint64_t)_mm_cvtsi128_si64(v);
}

static uint64_t bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
}

V2 static void sse(void)
{
    __m128d two = _mm_set1_pd(2), three = _mm_set1_pd(3), one = _mm_set1_pd(1), huge;
    __m128 f = _mm_set_ps(4, 3, 2, 1);
    __m128i a = _mm_set_epi64x(0x0f0e0d0c0b0a0908, 0x0706050403020100), b;
    HIDE(two), HIDE(three), HIDE(one), HIDE(f), HIDE(a);
    same("sse2 sqrtpd", low(_mm_castpd_si128(_mm_sqrt_pd(two))), 0x3ff6a09e667f3bcd);
    same("sse2 divpd", low(_mm_castpd_si128(_mm_div_pd(one, three))), 0x3fd5555555555555);
    _mm_setcsr(0x5f80); /* upwards; volatile, so that the division stays between the two */
    __asm__ volatile("divpd %1, %0" : "+x"(one) : "x"(three));
    same("sse2 inexact flag", _mm_getcsr(), 0x5fa0);
    _mm_setcsr(0x1f80);
    same("sse2 divpd upwards", low(_mm_castpd_si128(one)), 0x3fd5555555555556);
    huge = _mm_set1_pd(1e300);
    HIDE(huge);
    same("sse2 cvttsd2si too large", (uint64_t)_mm_cvttsd_si64(huge), 1ull << 63);
    same("sse addps", low(_mm_castps_si128(_mm_add_ps(f, f))), 0x4080000040000000);
    same("sse shufps", low(_mm_castps_si128(_mm_shuffle_ps(f, f, 0x1b))), 0x4040000040800000);
    b = _mm_set_epi64x(0x8080808080808080, 0x000102030405060f);
    HIDE(b);
    same("ssse3 pshufb", low(_mm_shuffle_epi8(a, b)), 0x000102030405060f);
    same("ssse3 pmaddubsw", low(_mm_maddubs_epi16(a, a)), 0x00550029000d0001);
    same("sse2 psadbw", low(_mm_sad_epu8(a, _mm_setzero_si128())), 28);
    same("sse4.1 pmuldq", low(_mm_mul_epi32(_mm_set1_epi32(-5), _mm_set1_epi32(7))), (uint64_t)-35);
    same("sse4.1 roundsd down", low(_mm_castpd_si128(_mm_floor_pd(_mm_set1_pd(-1.5)))),
         0xc000000000000000);
    same("sse4.1 dpps", low(_mm_castps_si128(_mm_dp_ps(f, f, 0xf1))), 0x41f00000);
    same("sse4.2 crc32", _mm_crc32_u64(0, 0x0123456789abcdef), 0xe9986aa9);
    same("sse4.2 pcmpistri",
         (uint64_t)_mm_cmpistri(
             _mm_setr_epi8('x', 'y', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
             _mm_setr_epi8('a', 'b', 'c', 'y', 'z', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0),
         3);
    same("popcnt", (uint64_t)_mm_popcnt_u64(0xf0f0f0f012345678), 29);
    unsigned char lock[16] __attribute__((aligned(16))) = {1};
    unsigned char done;
    uint64_t lo = 1, hi = 0;
    __asm__ volatile("lock cmpxchg16b %1; sete %0"
                     : "=q"(done), "+m"(lock), "+a"(lo), "+d"(hi)
                     : "b"(7ull), "c"(9ull)
                     : "cc");
    same("cmpxchg16b", done * 100u + lock[0] * 10u + lock[8], 179);
}

/* AVX and the rest of v3 */

V3 static void avx(void)
{
    __m256d two = _mm256_set1_pd(2), three = _mm256_set1_pd(3), v;
    __m256i n = _mm256_set_epi64x(4, 3, 2, 1), g;
    static const int table[16] = {0,  10, 20,  30,  40,  50,  60,  70,
                                  80, 90, 100, 110, 120, 130, 140, 150};
    uint64_t out[4], x = 0x0123456789abcdef;
    __asm__ volatile("" : "+x"(two), "+x"(three), "+x"(n), "+r"(x));
    v = _mm256_sqrt_pd(two);
    memcpy(out, &v, 32);
    same("avx vsqrtpd", out[3], 0x3ff6a09e667f3bcd);
    v = _mm256_fmsub_pd(v, v, two); /* exact product: the rounding error of sqrt(2) squared */
    memcpy(out, &v, 32);
    same("fma vfmsub", out[2], bits(0x1.3b3efbf5e2229p-52));
    g = _mm256_permute4x64_epi64(n, 0x1b);
    memcpy(out, &g, 32);
    same("avx2 vpermq", out[0] << 12 | out[1] << 8 | out[2] << 4 | out[3], 0x4321);
    g = _mm256_i32gather_epi32(table, _mm256_set_epi32(15, 14, 3, 2, 1, 7, 8, 9), 4);
    memcpy(out, &g, 32);
    same("avx2 vpgatherdd", out[3], 150ull << 32 | 140);
    g = _mm256_sllv_epi64(n, n);
    memcpy(out, &g, 32);
    same("avx2 vpsllvq", out[3], 64);
    g = _mm256_maskload_epi64((const long long *)out, _mm256_set_epi64x(-1, 0, -1, 0));
    memcpy(out, &g, 32);
    same("avx2 vpmaskmovq", out[0] + out[1] + out[2] + out[3], 72);
    _mm256_zeroupper();
    same("bmi2 pext", _pext_u64(x, 0xff00ff00ff00ff00), 0x014589cd);
    same("bmi2 pdep", _pdep_u64(0xabcd, 0xf0f0f0f0), 0xa0b0c0d0);
    same("bmi1 andn", __andn_u64(0xff, x), 0x0123456789abcd00);
    same("bmi1 tzcnt of 0", _tzcnt_u64(x - x), 64);
    same("lzcnt", _lzcnt_u64(x), 7);
    unsigned long long high;
    same("bmi2 mulx", _mulx_u64(x, x, &high) ^ high, 0xdca5e20890f2a521 ^ 0x14b66dc33f6acull);
    same("f16c", (uint64_t)_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set1_ps(0.1f), 0)), 0x2e662e66);
}

/* Signals while the registers are full */

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
    long double a = 1.0L / 3;
    __m128 f = _mm_set1_ps(-7);
    HIDE(f);
    __asm__ volatile("fld1; fldpi; fmulp; fstp %%st(0)" : : "t"(a) : "st(1)", "st(2)");
    __asm__ volatile("" : : "x"(f));
    _mm_setcsr(0x7f80);
    ticks++;
}

static void start_ticks(long us)
{
    struct itimerval t = {{0, us}, {0, us}};
    signal(SIGALRM, on_tick);
    setitimer(ITIMER_REAL, &t, NULL);
}

static void signals(void)
{
    double sum = 0;
    long double ext = 0;
    start_ticks(500);
    for (int i = 1; i <= 300000 || ticks < 20; i++) {
        if (i <= 300000) {
            sum += 1.0 / i;
            ext += 1.0L / i;
        }
    }
    start_ticks(0);
    same("signals came", ticks >= 20, 1);
    same("sse sum under signals", bits(sum), bits(0x1.a60a481abd2f4p+3));
    same_ext("sum under signals", ext, 0x4002, 0xd305240d5e96b6b9);
}

V3 static void avx_signals(void)
{
    int lost = 0;
    __m256i v = _mm256_set_epi64x(0x4444, 0x3333, 0x2222, 0x1111), w = v;
    ticks = 0;
    start_ticks(300);
    while (ticks < 20 && !lost) {
        __asm__ volatile("" : "+x"(v), "+x"(w));
        lost = _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, w)) != -1;
        v = _mm256_add_epi64(v, w);
        v = _mm256_sub_epi64(v, w);
    }
    start_ticks(0);
    uint64_t out[4];
    memcpy(out, &v, 32);
    _mm256_zeroupper();
    same("avx registers under signals", out[3] << 16 | out[0], 0x44441111);
    same("avx never lost", (uint64_t)lost, 0);
}

/* Memory */

static char *area;
static volatile unsigned faults;
static volatile uintptr_t fault_address;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    faults++;
    fault_address = (uintptr_t)info->si_addr;
    mprotect((void *)((uintptr_t)info->si_addr & -(uintptr_t)PAGE), PAGE, PROT_READ | PROT_WRITE);
}

static void memory(void)
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    uint64_t sum = 0, wrong = 0;
    sigaction(SIGSEGV, &act, NULL);
    for (unsigned round = 0; round < 1000; round++) {
        area = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (unsigned i = 0; i < 16; i++)
            area[i * PAGE + round % PAGE] = (char)(i + 1);
        unsigned page = round % 16;
        mprotect(area + page * PAGE, PAGE, round & 1 ? PROT_READ : PROT_NONE);
        volatile char *p = area + page * PAGE + (round * 7) % PAGE;
        *p = 99;
        wrong += fault_address != (uintptr_t)p;
        for (unsigned i = 0; i < 16; i++)
            sum += (unsigned char)area[i * PAGE + round % PAGE];
        munmap(area, 16 * PAGE);
    }
    same("mprotect faults", faults, 1000);
    same("fault addresses", wrong, 0);
    same("memory sum", sum, 136000 + 99 - 1); /* round 0 writes page 0 twice */

    char *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sum = 0;
    for (unsigned i = 0; i < 1000; i++) {
        unsigned char text[] = {0xb8, (unsigned char)i, (unsigned char)(i >> 8), 0, 0, 0xc3};
        mprotect(code, PAGE, PROT_READ | PROT_WRITE);
        memcpy(code, text, sizeof(text)); /* mov eax, i; ret */
        mprotect(code, PAGE, PROT_READ | PROT_EXEC);
        sum += ((unsigned (*)(void))(void *)code)();
    }
    same("code made at run time", sum, 999 * 1000 / 2);

    int pipes[2], children = 0;
    unsigned char byte;
    sum = 0;
    area = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(area, 1, 64 * PAGE);
    if (pipe(pipes))
        same("pipe", 0, 1);
    for (int i = 0; i < 20; i++) {
        if (fork() == 0) {
            for (int k = 0; k < 64; k++)
                area[k * PAGE] = (char)i; /* copies: the parent keeps its own */
            byte = (unsigned char)(area[63 * PAGE] + area[17]);
            _exit(write(pipes[1], &byte, 1) != 1);
        }
    }
    for (int i = 0, code_; i < 20; i++) {
        if (wait(&code_) > 0 && code_ == 0 && read(pipes[0], &byte, 1) == 1)
            children++, sum += byte;
    }
    same("forked children", (uint64_t)children, 20);
    same("what they wrote", sum, 190 + 20);
    same("copy on write", (uint64_t)area[0] + (uint64_t)area[63 * PAGE], 2);
}

int main(int argc, char **argv)
{
    int v3 = argc > 1 && (!strcmp(argv[1], "v3") || !strcmp(argv[1], "v4"));
    setvbuf(stdout, NULL, _IOLBF, 0);
    same("AVX2 is there if the model has it", (uint64_t)(__builtin_cpu_supports("avx2") != 0),
         (uint64_t)v3);
    x87();
    sse();
    signals();
    if (v3) {
        avx();
        avx_signals();
    }
    memory();
    return bad;
}
