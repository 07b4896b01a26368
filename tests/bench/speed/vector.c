/* AVX2 on 32 MiB; only for a CPU that has it. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>

#include "speed.h"

__attribute__((target("avx2"))) static uint64_t avx2(uint64_t n)
{
    enum { VECTORS = (32 << 20) / 32 };
    __m256i *data = aligned_alloc(32, 32 << 20);
    __m256i sum = _mm256_setzero_si256(), step = _mm256_set1_epi32(0x01234567);
    uint64_t parts[4];
    must(data != NULL, "aligned_alloc");
    for (int i = 0; i < VECTORS; i++)
        _mm256_store_si256(&data[i], _mm256_set1_epi32((int)(i * 0x1003u)));
    while (n--)
        for (int i = 0; i < VECTORS; i++) {
            __m256i x = _mm256_load_si256(&data[i]);
            __m256i y = _mm256_shuffle_epi8(x, _mm256_set1_epi64x(0x0607040502030001));
            y = _mm256_add_epi32(_mm256_mullo_epi32(y, step), _mm256_srli_epi32(x, 7));
            y = _mm256_blendv_epi8(y, _mm256_permute4x64_epi64(x, 0x1b), _mm256_cmpgt_epi32(x, y));
            sum = _mm256_xor_si256(_mm256_add_epi64(sum, y), _mm256_slli_epi64(sum, 1));
            _mm256_store_si256(&data[i], y);
        }
    _mm256_storeu_si256((__m256i *)parts, sum);
    free(data);
    return mix(mix(mix(mix(0, parts[0]), parts[1]), parts[2]), parts[3]);
}

static uint64_t avx2_if_there(uint64_t n)
{
    if (__builtin_cpu_supports("avx2"))
        return avx2(n);
    fputs("speed: this CPU has no AVX2\n", stderr);
    exit(3);
}

const struct work vector_works[] = {{"avx2", 250, avx2_if_there}, {0}};
