/*
 * A guest's kernel that lies about itself: at each place everything that can be seen of its
 * processes is looked at (inspect/, and the place as `replay --to --json` prints it), once as it
 * is, then again and again with some of the words that were read the first time changed: zero,
 * anything, another such word (a list that ends in another, or in itself), one bit. One run in 16
 * reads the kernel's own tables (names, types, unwind tables) anew instead, words of those changed.
 *
 *     fuzz_inspect [--runs N] [--seed S] [--run K] DIR POINT...
 *
 * N runs a place. What ends the program, or takes 20 s, is a failure: it has printed seed, place
 * and run, by which --run K does that one alone.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/travel.h"
#include "cpu/vcpu.h"
#include "inspect/backtrace.h"
#include "inspect/guest_file.h"
#include "inspect/guest_linux.h"
#include "inspect/program.h"
#include "inspect/program_file.h"
#include "inspect/program_maps.h"
#include "inspect/program_place.h"
#include "inspect/program_proc.h"
#include "tests/splitmix.h"

#define WORDS     (1u << 18)
#define SLOTS     (4 * WORDS)
#define CHANGES   4u
#define TABLES    64u  /* ... in what is large: names, types, rows of unwind tables */
#define STRUCTURE 512u /* of what is longer one word in so many bytes stands for the others */
#define ANEW      16u  /* so many runs, and one reads the kernel's tables again */
#define LIMIT_S   20u

/* Eight bytes that were read, by what they were asked for. */
struct word {
    u64 at, value;
    bool physical;
};

static struct word *words; /* each once, in the order in which they were asked for */
static u32 *slots;         /* of a hash table: one more than which of them; 0: free */
static u32 nwords, nplace, nprograms, nchanges; /* nplace: of the place itself; then programs */
static bool learning;
static struct word changed[TABLES];
static u64 random_state;
static FILE *nowhere;

static u64 draw(u64 n)
{
    u64 z = splitmix64(&random_state);
    return n ? z % n : z;
}

static void learn_word(struct word w)
{
    u32 i = (u32)((w.at + w.physical) * 0x9e3779b97f4a7c15ull >> 40) % SLOTS;
    for (; slots[i]; i = (i + 1) % SLOTS)
        if (words[slots[i] - 1].at == w.at && words[slots[i] - 1].physical == w.physical)
            return;
    if (nwords == WORDS)
        return;
    words[nwords++] = w;
    slots[i] = nwords;
}

static void learn(u64 at, bool physical, const u8 *bytes, size_t len)
{
    size_t step = len > STRUCTURE ? STRUCTURE : 8;
    for (size_t i = 0; i < len; i += step) {
        size_t from = i + (len - i < step ? 0 : draw(step / 8) * 8);
        struct word w = {.at = at + from, .physical = physical};
        memcpy(&w.value, bytes + from, MIN(len - from, (size_t)8));
        learn_word(w);
    }
}

static void lie(u64 at, bool physical, u8 *bytes, size_t len)
{
    for (u32 i = 0; i < nchanges; i++)
        for (u64 b = 0; changed[i].physical == physical && b < 8; b++)
            if (changed[i].at + b - at < len)
                bytes[changed[i].at + b - at] = (u8)(changed[i].value >> 8 * b);
}

bool __real_machine_peek(struct machine *m, gva_t va, void *out, size_t len);
bool __wrap_machine_peek(struct machine *m, gva_t va, void *out, size_t len);
bool __real_machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len);
bool __wrap_machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len);

static bool peeked(u64 at, bool physical, void *out, size_t len, bool good)
{
    if (good && learning)
        learn(at, physical, out, len);
    else if (good)
        lie(at, physical, out, len);
    return good;
}

bool __wrap_machine_peek(struct machine *m, gva_t va, void *out, size_t len)
{
    return peeked(va, false, out, len, __real_machine_peek(m, va, out, len));
}

bool __wrap_machine_peek_physical(struct machine *m, gpa_t gpa, void *out, size_t len)
{
    return peeked(gpa, true, out, len, __real_machine_peek_physical(m, gpa, out, len));
}

static void look_at_maps(struct travel *tr, const struct program *p, const struct program_layout *l)
{
    struct machine *m = timeline_machine(tr->t);
    const struct guest_file_more more = travel_files(tr);
    struct program_map *maps = NULL;
    u32 n = program_maps(p, l, m, &maps);
    for (u32 i = 0; i < n && i < 8; i++) {
        struct program_map at;
        char path[PROGRAM_PATH_MAX], place[PROGRAM_PLACE_MAX];
        u8 bytes[4096];
        struct guest_file f = {0};
        program_map_at(p, l, m, maps[i].start, &at);
        program_place(p, l, m, &more, maps[i].start + 0x123, 0, place);
        program_peek(p, l, m, maps[i].start & ~(u64)(PAGE_SIZE - 1), bytes, sizeof(bytes));
        if (!maps[i].file)
            continue;
        program_path(p, l, m, maps[i].file, path);
        if (!guest_file_open(&f, &more, l, m, maps[i].file)) {
            guest_file_read(&f, l, m, 0, bytes, sizeof(bytes));
            guest_file_read(&f, l, m, f.size - MIN(f.size, (u64)100), bytes, 100);
        }
        guest_file_close(&f);
    }
    free(maps);
}

static void look_at_program(struct travel *tr, const struct program_layout *l, i32 pid,
                            const char *name)
{
    static const char *const files[] = {"maps", "status", "comm", "cmdline"};
    struct machine *m = timeline_machine(tr->t);
    struct program p = {0};
    struct err err;
    u8 auxv[PROGRAM_AUXV_MAX];
    char path[PROGRAM_PATH_MAX];
    struct elf_id id;
    struct vcpu cpu;
    bool narrow;
    u64 value;
    if (!program_find(&p, l, m, pid, name, 0, &err)) {
        for (u32 i = 0; i < p.count && i < 8; i++) {
            bool fpu;
            program_registers(l, m, &p.threads[i], &cpu, &fpu, &value);
            program_last(l, m, p.threads[i].task);
            program_call(l, m, p.threads[i].task);
            program_is_ending(l, m, p.threads[i].task);
        }
        size_t size = program_auxv(&p, l, m, auxv, &narrow);
        if (size)
            program_auxv_value(auxv, size, narrow, 3, &value);
        program_file_path(&p, l, m, path);
        program_directory(&p, l, m, path);
        program_file_id(&p, l, m, &id);
        program_library(&p, l, m, "libc.so.6", &value);
        for (size_t i = 0; i < ARRAY_SIZE(files); i++)
            program_proc(nowhere, &p, l, m, files[i]);
        look_at_maps(tr, &p, l);
        program_look(&p, l, m);
    }
    program_free(&p);
}

static void look(struct travel *tr, const struct program_layout *l)
{
    struct process now;
    travel_process(tr, &now);
    print_place_json(nowhere, tr, true, false, NULL, 0);
    if (learning)
        nplace = nwords;
    if (!l)
        return;
    look_at_program(tr, l, 0, NULL);
    look_at_program(tr, l, 1, NULL);
    look_at_program(tr, l, now.tgid, NULL);
    look_at_program(tr, l, 0, "sh");
}

/* The kernel's tables, read from the beginning. */
static void look_anew(struct travel *tr)
{
    struct machine *m = timeline_machine(tr->t);
    struct symbols s;
    struct process_layout current = {0};
    struct program_layout l;
    struct backtrace_frame frame[BACKTRACE_MAX];
    struct err err;
    if (guest_symbols_read(&s, m, &err))
        return;
    process_learn(&current, m, &s);
    program_learn(&l, m, &s, &err);
    backtrace_read(m, &s, frame);
    symbols_free(&s);
}

static void draw_changes(bool anew)
{
    nchanges = (u32)(1 + draw(anew ? TABLES : CHANGES));
    for (u32 i = 0; i < nchanges; i++) {
        u32 which = anew ? nprograms + (u32)draw(nwords - nprograms)
                         : (u32)draw(draw(2) ? nplace : nprograms);
        struct word w = words[which];
        switch (draw(8)) {
        case 0: w.value = 0; break;
        case 1: w.value = draw(0); break;
        case 2: w.value ^= 1ull << draw(64); break;
        case 3: w.value = w.at - draw(3) * 8; break; /* to itself, or nearly */
        case 4: w.value = draw(4096); break;
        case 5: w.value += draw(2) ? 8 : -8ull; break;
        default: w.value = words[draw(nwords)].value; break;
        }
        changed[i] = w;
    }
}

/* Returns how many runs were made. */
static u32 at_place(const char *dir, const char *point, u64 seed, u32 runs, i64 only)
{
    struct travel tr;
    struct travel_with with = {.told = true};
    struct point p;
    struct err err;
    enum timeline_stop stop;
    struct program_layout layout;
    int code = point_parse(point, &p, &err);
    if (!code)
        code = travel_open(&tr, dir, &with, &err);
    if (!code)
        code = travel_to(&tr, &p, &stop, &err);
    if (code) {
        fprintf(stderr, "fuzz_inspect: %s: %s\n", point, err.text);
        exit(2);
    }
    struct machine *m = timeline_machine(tr.t);
    const struct symbols *s = travel_symbols(&tr);
    struct process now;
    travel_process(&tr, &now);
    bool known = s && !program_learn(&layout, m, s, &err);
    nwords = 0;
    random_state = seed;
    memset(slots, 0, SLOTS * sizeof(*slots));
    learning = true;
    look(&tr, known ? &layout : NULL);
    nprograms = nwords;
    look_anew(&tr);
    learning = false;
    u32 made = 0;
    for (u32 k = 0; nplace && k < runs; k++) {
        if (only >= 0 && k != (u64)only)
            continue;
        random_state = seed * 1000003 + k;
        bool anew = k % ANEW == ANEW - 1 && nwords > nprograms;
        draw_changes(anew);
        fprintf(stderr, "\rfuzz_inspect --seed %" PRIu64 " --run %u %s %s", seed, k, dir, point);
        alarm(LIMIT_S);
        if (anew)
            look_anew(&tr);
        else
            look(&tr, known ? &layout : NULL);
        alarm(0);
        nchanges = 0;
        made++;
    }
    printf("%s: %s, %s, %u words, %u runs\n", point, now.comm[0] ? now.comm : "no process",
           known ? "processes known" : "processes not known", nwords, made);
    travel_close(&tr);
    return made;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"runs", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"run", required_argument, NULL, 'k'},
                                            {0}};
    u32 runs = 100, all = 0;
    u64 seed = 1;
    i64 only = -1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'n': runs = (u32)strtoul(optarg, NULL, 0); break;
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 'k': only = strtoll(optarg, NULL, 0); break;
        default: return 2;
        }
    if (argc - optind < 2)
        return 2;
    words = malloc(WORDS * sizeof(*words));
    slots = malloc(SLOTS * sizeof(*slots));
    nowhere = fopen("/dev/null", "w");
    if (!words || !slots || !nowhere)
        return 2;
    for (int i = optind + 1; i < argc; i++)
        all += at_place(argv[optind], argv[i], seed, runs, only);
    fprintf(stderr, "\n");
    printf("%u runs of %d places\n", all, argc - optind - 1);
    free(words);
    free(slots);
    fclose(nowhere);
    return 0;
}
