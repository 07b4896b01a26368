/* Workloads of `bench.py --part speed`: static programs' worth of work, the same in a guest and
 * natively. */
#ifndef SPEED_H
#define SPEED_H

#include <stdint.h>

/* `run` does n units and returns a checksum of what came out. */
struct work {
    const char *name;
    uint64_t n;
    uint64_t (*run)(uint64_t n);
};

/* Each ends with a row without a name. */
extern const struct work compute_works[];
extern const struct work control_works[];
extern const struct work system_works[];
extern const struct work vector_works[];
extern const struct work part_works[];

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * 0x9e3779b97f4a7c15u;
}

/* Memory, from malloc or mmap; the program ends if there is none. */
void *memory(uint64_t bytes);
void *pages(uint64_t bytes, int protection);
/* Ends the program unless `good`, with what errno says. */
void must(int good, const char *what);

uint64_t sha256_sum(const uint8_t *data, uint64_t size);
/* Round trips of a byte between this process and a child, by two pipes. */
uint64_t pipe_round_trips(uint64_t n);

#endif
