/* Short integer names and the few macros every file needs. */
#ifndef REPRISE_TYPES_H
#define REPRISE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

typedef u64 gpa_t; /* guest-physical address */
typedef u64 gva_t; /* guest linear address */
typedef u64 pos_t; /* position: see docs/determinism.md */
typedef u64 vns_t; /* virtual nanoseconds since power-on */

#define NEVER    UINT64_MAX   /* a position or virtual time that does not come */
#define TIME_END (1ull << 62) /* no machine gets there: 146 years of virtual time, or positions */

#define ARRAY_SIZE(a)     (sizeof(a) / sizeof((a)[0]))
#define PAGE_SIZE         4096u
#define MIN(a, b)         ((a) < (b) ? (a) : (b))
#define MAX(a, b)         ((a) > (b) ? (a) : (b))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define LIKELY(x)         __builtin_expect(!!(x), 1)
#define UNLIKELY(x)       __builtin_expect(!!(x), 0)
#define NOINLINE          __attribute__((noinline)) /* what seldom runs, out of what often does */

#endif
