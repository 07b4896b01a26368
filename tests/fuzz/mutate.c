/* See mutate.h. */
#define _GNU_SOURCE
#include "mutate.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUTS 256
#define MAX_SIZE   (1u << 20)

struct input_file {
    u8 *data;
    size_t size;
};

static struct input_file corpus[MAX_INPUTS];
static size_t inputs;
static unsigned seed = 1, now;
static const char *file_now;

__attribute__((weak)) u8 *fuzz_sample(size_t *size)
{
    return NULL;
}

static void say_where(int number)
{
    char text[256];
    int n = file_now
                ? snprintf(text, sizeof(text), "fuzz: failed at the file %s\n", file_now)
                : snprintf(text, sizeof(text),
                           "fuzz: failed at FUZZ_SEED=%u FUZZ_FIRST=%u FUZZ_RUNS=1\n", seed, now);
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(1);
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
}

static void add(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || inputs == MAX_INPUTS) {
        perror(path);
        exit(1);
    }
    struct input_file *in = &corpus[inputs++];
    in->data = malloc(MAX_SIZE);
    in->size = fread(in->data, 1, MAX_SIZE, f);
    fclose(f);
    file_now = path;
    LLVMFuzzerTestOneInput(in->data, in->size);
    file_now = NULL;
}

static void add_all(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);
    if (n < 0) {
        add(path);
        return;
    }
    for (int i = 0; i < n; i++) {
        char *file;
        if (names[i]->d_name[0] != '.' && asprintf(&file, "%s/%s", path, names[i]->d_name) > 0) {
            add(file);
            free(file);
        }
        free(names[i]);
    }
    free(names);
}

static u32 random_bits(u64 *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    u64 z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (u32)(z >> 32);
}

static size_t mutate(u8 *data, size_t size, u64 *r)
{
    static const u64 odd[] = {0,
                              1,
                              0x7f,
                              0x80,
                              0xff,
                              0xffff,
                              0x7fffffff,
                              0x80000000,
                              0xffffffff,
                              INT64_MAX,
                              1ull << 63,
                              UINT64_MAX,
                              0xfffffffffffff000};
    for (unsigned n = 1 + random_bits(r) % 4; n > 0 && size; n--) {
        size_t at = random_bits(r) % size, from = random_bits(r) % size;
        size_t len = 1 + random_bits(r) % 16;
        const struct input_file *other = &corpus[random_bits(r) % inputs];
        len = MIN(len, size - at);
        switch (random_bits(r) % 7) {
        case 0: data[at] ^= (u8)(1u << random_bits(r) % 8); break;
        case 1: data[at] = (u8)random_bits(r); break;
        case 2: size = at; break;
        case 3: memset(data + at, random_bits(r) % 2 ? 0xff : 0, len); break;
        case 4: memmove(data + at, data + from, MIN(len, size - MAX(at, from))); break;
        case 5: memcpy(data + at, &odd[random_bits(r) % ARRAY_SIZE(odd)], MIN(len, 8u)); break;
        case 6:
            if (at < other->size)
                memcpy(data + at, other->data + at, MIN(len, other->size - at));
            break;
        }
    }
    return size;
}

static unsigned number(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    unsigned first = number("FUZZ_FIRST", 0), runs = number("FUZZ_RUNS", 2000);
    seed = number("FUZZ_SEED", 1);
    signal(SIGABRT, say_where); /* ASan's reports end so too: ASAN_OPTIONS=abort_on_error=1 */
    for (int i = 1; i < argc; i++)
        add_all(argv[i]);
    struct input_file sample = {.data = fuzz_sample(&sample.size)};
    if (sample.data && inputs < MAX_INPUTS)
        corpus[inputs++] = sample;
    if (!inputs) {
        fprintf(stderr, "%s: no input\n", argv[0]);
        return 1;
    }
    for (now = first; now < first + runs; now++) {
        u64 state = (u64)seed << 32 | now;
        const struct input_file *in = &corpus[random_bits(&state) % inputs];
        /* Of exactly that size, so that a read beyond it is seen. */
        u8 *copy = malloc(in->size + 1);
        memcpy(copy, in->data, in->size);
        size_t size = mutate(copy, in->size, &state);
        u8 *exact = realloc(copy, size ? size : 1);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    for (size_t i = 0; i < inputs; i++)
        free(corpus[i].data);
    printf("%zu inputs, %u mutations, seed %u\n", inputs, runs, seed);
    return 0;
}
