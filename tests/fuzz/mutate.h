/*
 * The driver of the fuzz targets when they are not built with libFuzzer (mutate.c has main): runs
 * the files and directories given as arguments, then FUZZ_RUNS mutations of them from FUZZ_SEED.
 * Mutation N is a function of seed and N alone, so that a failure is repeated by
 * FUZZ_SEED=s FUZZ_FIRST=N FUZZ_RUNS=1.
 */
#ifndef REPRISE_MUTATE_H
#define REPRISE_MUTATE_H

#include "base/types.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

/* A target may have an input made by itself besides the corpus: malloc'ed. */
u8 *fuzz_sample(size_t *size);

#endif
