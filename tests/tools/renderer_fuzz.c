/*
 * Sends the renderer what no client sends: renderer_fuzz -p PROGRAM [-c] SEED COUNT.
 *
 * Without -c: well-formed messages with wrong contents, and wrong messages, past the client
 * straight to the socket. The renderer must answer or drop every one, and live; on a size that
 * cannot be right it must end with status 2. With -c: valid command buffers, mutated, through the
 * client. The library that runs them may die of them; the client must say so and a new renderer
 * must draw. How often it dies is printed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "virtio-gpu-log/play/renderer.h"
#include "tests/tools/virgl_fuzz.h"

static struct renderer_config config;
static struct renderer *r;
static unsigned number;

static _Noreturn void PRINTF(1, 2) fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "renderer_fuzz: number %u: ", number);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    renderer_destroy(r);
    exit(1);
}

static void start(void)
{
    struct err err;
    if (renderer_create(&r, &config, &err))
        fail("%s", err.text);
}

static void drain(int fd)
{
    static u8 buffer[1 << 20];
    while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0)
        ;
}

/* False: the renderer is gone. */
static bool put(int fd, const u8 *data, size_t size)
{
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {fd, POLLIN | POLLOUT, 0};
            if (poll(&p, 1, 60000) == 0)
                fail("the renderer hangs");
            drain(fd);
            continue;
        }
        if (n < 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* Waits for the reply to a fence of ours: everything before was taken. */
static bool alive(int fd)
{
    struct {
        struct wire_header head;
        struct wire_nothing body;
    } q = {{sizeof(q), WIRE_FENCE, 0xfeedfacecafef00dull}, {0}};
    static u8 seen[1 << 20];
    size_t have = 0;
    if (!put(fd, (const u8 *)&q, sizeof(q)))
        return false;
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 60000) == 0)
            fail("the renderer hangs");
        ssize_t n = recv(fd, seen + have, sizeof(seen) - have, 0);
        if (n <= 0)
            return false;
        have += (size_t)n;
        /* put() has thrown away the beginning of what came, so the mark is looked for. */
        if (memmem(seen, have, &q.head.seq, sizeof(q.head.seq)))
            return true;
        if (have > 64) {
            memmove(seen, seen + have - 64, 64);
            have = 64;
        }
    }
}

static size_t wrong_message(u8 *out, size_t room)
{
    static const u32 bodies[] = {0,
#define X(name, num, body, tail, reply) sizeof(body),
                                 WIRE_REQUESTS(X)
#undef X
    };
    struct wire_header head = {0, below(20) ? 2 + below(15) : field(), bits()};
    u32 body = head.type < ARRAY_SIZE(bodies) ? bodies[head.type] : field() % 64;
    if (!below(8))
        body = below(80);
    u32 tail = below(3) ? 0 : below(4) ? below(64) : below(100000);
    u32 words[24];
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        words[i] = field();
    head.size = (u32)sizeof(head) + body + tail;
    memcpy(out, &head, sizeof(head));
    memcpy(out + sizeof(head), words, MIN(body, (u32)sizeof(words)));
    for (u32 i = 0; i < tail; i++)
        out[sizeof(head) + body + i] = (u8)bits();
    return head.size;
}

static void fuzz_protocol(u32 count)
{
    static u8 message[200000];
    unsigned ends = 0;
    int fd = dup(renderer_fd(r));
    for (number = 0; number < count; number++) {
        size_t size = wrong_message(message, sizeof(message));
        drain(fd);
        if (!put(fd, message, size) || (number % 64 == 63 && !alive(fd))) {
            renderer_poll(r);
            fail("the renderer died: %s", renderer_death(r) ? renderer_death(r) : "no reason");
        }
        if (number % 2000 == 1999) {
            /* No way to go on from a wrong size. */
            struct wire_header head = {below(2) ? below(16) : WIRE_REQUEST_MAX + 1 + below(1000),
                                       field(), 0};
            put(fd, (const u8 *)&head, sizeof(head));
            while (recv(fd, message, sizeof(message), 0) > 0)
                ;
            renderer_poll(r);
            if (!renderer_death(r) || !strstr(renderer_death(r), "status 2: a request of"))
                fail("after a wrong size: %s",
                     renderer_death(r) ? renderer_death(r) : "the renderer lives");
            ends++;
            close(fd);
            renderer_destroy(r);
            r = NULL;
            start();
            fd = dup(renderer_fd(r));
        }
    }
    close(fd);
    printf("%u messages, %u ends\n", count, ends);
}

static void draw_setup(void)
{
    static const float v[3][8] = {
        {-1, -1, 0, 1, 0, 1, 1, 1}, {1, -1, 0, 1, 0, 1, 1, 1}, {-1, 1, 0, 1, 0, 1, 1, 1}};
    struct wire_transfer t = {.resource = 2, .box = {0, 0, 0, sizeof(v), 1, 1}};
    struct wire_resource_create c = {.resource = 1,
                                     .target = VT_2D,
                                     .format = VF_BGRA8,
                                     .bind = VB_TARGET | VB_SAMPLER,
                                     .width = 64,
                                     .height = 64,
                                     .depth = 1,
                                     .array_size = 1};
    renderer_reset(r);
    renderer_resource_create(r, &c);
    c = (struct wire_resource_create){.resource = 2,
                                      .format = VF_R8,
                                      .bind = VB_VERTEX,
                                      .width = 4096,
                                      .height = 1,
                                      .depth = 1,
                                      .array_size = 1};
    renderer_resource_create(r, &c);
    c.resource = 3;
    c.bind = VB_CUSTOM;
    c.width = 16;
    renderer_resource_create(r, &c);
    renderer_attach_backing(r, 1, 64 * 64 * 4);
    renderer_attach_backing(r, 2, 4096);
    renderer_attach_backing(r, 3, 16);
    renderer_context_create(r, 7, "fuzz", 4);
    for (u32 i = 1; i <= 3; i++)
        renderer_context_attach(r, 7, i);
    renderer_write_backing(r, 2, 0, v, sizeof(v));
    renderer_transfer_to_host(r, &t);
}

static void fuzz_commands(u32 count)
{
    static struct words b;
    unsigned deaths = 0, latched = 0, refused = 0;
    u64 expect = 0;
    for (number = 0; number <= count; number++) {
        struct renderer_reply *f, *p;
        draw_setup();
        full_buffer(&b);
        if (number)
            mutate(&b);
        u64 seq = renderer_submit(r, 7, b.w, b.n);
        f = renderer_wait(r, renderer_fence(r), 0);
        if (!f)
            fail("no reply");
        u32 result = renderer_result(f, seq);
        latched += f->fault_count;
        refused += result == WIRE_R_REFUSED;
        free(f);
        if (renderer_death(r)) {
            fprintf(stderr, "renderer_fuzz: number %u: %s\n", number, renderer_death(r));
            deaths++;
            renderer_destroy(r);
            r = NULL;
            start();
        }
        if (number % 50)
            continue;
        /* Whatever it was told before: afterwards the same as ever. */
        draw_setup();
        full_buffer(&b);
        renderer_submit(r, 7, b.w, b.n);
        p = renderer_wait(r, renderer_read(r, 1, 0, NULL, WIRE_RAW), 0);
        u64 hash = 0;
        for (u64 i = 0; p && i < p->data_size; i++)
            hash = (hash ^ p->data[i]) * 0x100000001b3ull;
        if (!p || p->result)
            fail("drawing afterwards: %s", p ? wire_result_text(p->result) : "no reply");
        free(p);
        expect = expect ? expect : hash;
        if (hash != expect)
            fail("the picture is not the same any more");
    }
    printf("%u buffers: %u latched, %u refused, %u deaths\n", count, latched, refused, deaths);
}

/* The part of a renderer that lies. */

static bool get(int fd, void *to, size_t size)
{
    for (u8 *at = to; size;) {
        ssize_t n = read(fd, at, size);
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static void scramble(u8 *bytes, size_t size, unsigned one_in)
{
    while (!below(one_in)) {
        u32 v = field();
        size_t at = below((u32)size);
        memcpy(bytes + at / 4 * 4, &v, MIN(sizeof(v), size - at / 4 * 4));
    }
}

static int lie(const char *seed)
{
    static u8 body[WIRE_REQUEST_MAX], out[1 << 16];
    struct wire_header head;
    fuzz_state = strtoull(seed, NULL, 0);
    while (get(3, &head, sizeof(head)) && head.size >= sizeof(head) &&
           head.size <= WIRE_REQUEST_MAX && get(3, body, head.size - sizeof(head))) {
        size_t n = sizeof(head);
        for (size_t i = 0; i < sizeof(out); i++)
            out[i] = below(3) ? 0 : (u8)bits();
        if (head.type == WIRE_HELLO) {
            struct wire_hello_reply b = {.magic = WIRE_MAGIC,
                                         .version = WIRE_VERSION,
                                         .capset_size = 308,
                                         .driver_size = 5,
                                         .text_size = below(100)};
            memcpy(out + n, &b, sizeof(b));
            n += sizeof(b) + 308 + 5 + b.text_size;
        } else if (head.type == WIRE_FENCE || head.type == WIRE_READ) {
            struct wire_reply b = {.runs = below(4), .faults = below(2), .ranges = below(5)};
            struct wire_range g = {1, 16, 0};
            bool fence = head.type == WIRE_FENCE;
            if (!fence)
                b = (struct wire_reply){.width = 4, .height = 4, .row_bytes = 16, .data_size = 64};
            else
                b.data_size = b.ranges * 16;
            size_t at = n + sizeof(b);
            for (u32 i = 0; i < b.runs; i++, at += sizeof(struct wire_run))
                memset(out + at, 0, sizeof(struct wire_run));
            for (u32 i = 0; i < b.faults; i++, at += sizeof(struct wire_fault))
                memset(out + at, 0, sizeof(struct wire_fault));
            for (u32 i = 0; i < b.ranges; i++, at += sizeof(g))
                memcpy(out + at, &g, sizeof(g));
            memcpy(out + n, &b, sizeof(b));
            n = at + b.data_size;
        } else {
            continue;
        }
        struct wire_header h = {(u32)n, head.type | WIRE_REPLY, head.seq};
        memcpy(out, &h, sizeof(h));
        scramble(out, head.type == WIRE_HELLO ? 64 : n, 3);
        if (!below(20))
            n = below((u32)n); /* cut, and the end */
        if (!put(3, out, n) || n < sizeof(h))
            break;
    }
    return 0;
}

static void fuzz_replies(u32 count)
{
    unsigned started = 0, taken = 0, deaths = 0;
    char driver[64];
    config.program = "/proc/self/exe";
    config.driver = driver;
    config.start_timeout = config.hang_timeout = 300;
    for (number = 0; number < count; number++) {
        struct err err;
        snprintf(driver, sizeof(driver), "nonsense:%llu", (unsigned long long)bits());
        if (renderer_create(&r, &config, &err)) {
            if (!*err.text)
                fail("no error text");
            continue;
        }
        started++;
        for (int i = 0; i < 20; i++) {
            u64 a = renderer_read(r, 1, 0, NULL, WIRE_RAW), b = renderer_fence(r);
            for (int k = 0; k < 2; k++) {
                struct renderer_reply *p = renderer_wait(r, k ? b : a, 0);
                u64 sum = 0;
                if (!p || p->seq != (k ? b : a) || p->type != (k ? WIRE_FENCE : WIRE_READ))
                    fail("not the reply that was asked for");
                /* Every byte of it is looked at, for the address sanitizer. */
                for (u64 n = 0; n < p->data_size; n++)
                    sum += p->data[n];
                for (u32 n = 0; n < p->fault_count; n++)
                    sum += strlen(p->faults[n].text);
                u64 ranges = 0;
                for (u32 n = 0; n < p->range_count; n++)
                    ranges += p->ranges[n].size;
                if (p->range_count && ranges != p->data_size)
                    fail("ranges of %llu bytes, data of %llu", (unsigned long long)ranges,
                         (unsigned long long)p->data_size);
                sum += renderer_result(p, a);
                taken += p->result != WIRE_R_LOST && sum + 1;
                free(p);
            }
        }
        deaths += renderer_death(r) != NULL;
        renderer_destroy(r);
        r = NULL;
    }
    printf("%u renderers: %u started, %u replies taken, %u ends\n", count, started, taken, deaths);
    if (!started || !taken || !deaths)
        fail("that tests nothing");
}

int main(int argc, char **argv)
{
    bool commands = false, replies = false;
    int o;
    if (argc == 3 && !strcmp(argv[1], "--driver") && !strncmp(argv[2], "nonsense:", 9))
        return lie(argv[2] + 9);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while ((o = getopt(argc, argv, "p:d:cr")) > 0)
        switch (o) {
        case 'p': config.program = optarg; break;
        case 'd': config.driver = optarg; break;
        case 'c': commands = true; break;
        case 'r': replies = true; break;
        default: return 2;
        }
    if (argc - optind != 2)
        return 2;
    fuzz_state = strtoull(argv[optind], NULL, 0);
    config.lenient = true;
    printf("seed %s\n", argv[optind]);
    if (replies) {
        fuzz_replies((u32)atoi(argv[optind + 1]));
        return 0;
    }
    start();
    if (commands)
        fuzz_commands((u32)atoi(argv[optind + 1]));
    else
        fuzz_protocol((u32)atoi(argv[optind + 1]));
    renderer_destroy(r);
    return 0;
}
