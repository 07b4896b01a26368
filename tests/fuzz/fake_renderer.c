/* See fake_renderer.h. */
#include "fake_renderer.h"

#include <stdlib.h>
#include <string.h>

#include "virtio-gpu-log/play/renderer.h"
#include "tests/splitmix.h"

#define OWED_MAX 4096u

struct owed {
    u64 seq;
    u32 type;
};

/* There is one at a time. */
struct renderer {
    u64 seq;
    struct owed owed[OWED_MAX];
    u32 count;
    bool dead;
    struct renderer_about about;
};

static u64 state = 1;
static u32 late, death;

void fake_renderer_mood(u64 seed, u32 one_in_late, u32 one_in_death)
{
    state = seed;
    late = one_in_late;
    death = one_in_death;
}

u32 fake_random(u32 below)
{
    u64 z = splitmix64(&state);
    return below ? (u32)(z % below) : 0;
}

static bool one_in(u32 n)
{
    return n && !fake_random(n);
}

int renderer_create(struct renderer **out, const struct renderer_config *c, struct err *err)
{
    struct renderer *r = one_in(death * 4) ? NULL : calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, -1, "it does not start");
    *out = r;
    return 0;
}

void renderer_destroy(struct renderer *r)
{
    free(r);
}

const struct renderer_about *renderer_about(const struct renderer *r)
{
    return &r->about;
}

const char *renderer_death(const struct renderer *r)
{
    return r->dead ? "killed by signal 11 (\x1b[31mSegmentation fault)" : NULL;
}

void renderer_poll(struct renderer *r)
{
    r->dead |= one_in(death * 8);
}

/* ---- requests ---- */

static u64 request(struct renderer *r, u32 type)
{
    r->dead |= one_in(death * 8);
    r->seq++;
    if (type) {
        if (r->count == OWED_MAX)
            abort(); /* replies that nobody takes */
        r->owed[r->count++] = (struct owed){r->seq, type};
    }
    return r->seq;
}

/* Whoever has bytes to give has them. */
static u64 reads(struct renderer *r, const void *bytes, size_t size)
{
    volatile u8 sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = (u8)(sum + ((const u8 *)bytes)[i]);
    return request(r, 0);
}

u64 renderer_context_create(struct renderer *r, u32 context, const char *name, size_t length)
{
    return reads(r, name, length);
}
u64 renderer_context_destroy(struct renderer *r, u32 context)
{
    return request(r, 0);
}
u64 renderer_context_attach(struct renderer *r, u32 context, u32 resource)
{
    return request(r, 0);
}
u64 renderer_context_detach(struct renderer *r, u32 context, u32 resource)
{
    return request(r, 0);
}
u64 renderer_resource_create(struct renderer *r, const struct wire_resource_create *args)
{
    return reads(r, args, sizeof(*args));
}
u64 renderer_resource_unref(struct renderer *r, u32 resource)
{
    return request(r, 0);
}
u64 renderer_attach_backing(struct renderer *r, u32 resource, u64 size)
{
    return request(r, 0);
}
u64 renderer_detach_backing(struct renderer *r, u32 resource)
{
    return request(r, 0);
}
u64 renderer_write_backing(struct renderer *r, u32 resource, u64 offset, const void *bytes,
                           size_t size)
{
    return reads(r, bytes, size);
}
u64 renderer_transfer_to_host(struct renderer *r, const struct wire_transfer *t)
{
    return reads(r, t, sizeof(*t));
}
u64 renderer_transfer_from_host(struct renderer *r, const struct wire_transfer *t)
{
    return request(r, WIRE_TRANSFER_FROM_HOST);
}
u64 renderer_submit(struct renderer *r, u32 context, const u32 *words, size_t count)
{
    return reads(r, words, count * sizeof(*words));
}
u64 renderer_fence(struct renderer *r)
{
    return request(r, WIRE_FENCE);
}
u64 renderer_read(struct renderer *r, u32 resource, u32 level, const struct wire_box *box,
                  enum wire_layout layout)
{
    return request(r, WIRE_READ);
}
u64 renderer_reset(struct renderer *r)
{
    return request(r, 0);
}

/* ---- replies ---- */

static struct renderer_reply *reply(u64 seq, u32 type, u32 result, u64 data_size)
{
    enum { RUNS = 2, FAULTS = 3, RANGES = 4 };
    struct parts {
        struct renderer_reply reply;
        struct wire_run runs[RUNS];
        struct wire_fault faults[FAULTS];
        struct wire_range ranges[RANGES];
        u8 data[];
    } *p = calloc(1, sizeof(*p) + data_size);
    if (!p)
        abort();
    p->reply = (struct renderer_reply){.seq = seq,
                                       .type = type,
                                       .result = result,
                                       .runs = p->runs,
                                       .faults = p->faults,
                                       .ranges = p->ranges,
                                       .data = p->data,
                                       .data_size = data_size};
    return &p->reply;
}

static u32 some_result(void)
{
    return fake_random(4) ? WIRE_R_OK : fake_random(WIRE_R_LOST);
}

/* Ranges, as a fence or a transfer has them: anywhere, and not only in what is attached. */
static struct renderer_reply *ranges(u64 seq, u32 type)
{
    static const u32 sizes[] = {0, 1, 16, 24, 300, 4096, 4096, 8192, 5000, 70000};
    struct wire_range list[4];
    u32 n = fake_random(5);
    u64 sum = 0;
    for (u32 i = 0; i < n; i++) {
        list[i] = (struct wire_range){fake_random(14), sizes[fake_random(ARRAY_SIZE(sizes))],
                                      fake_random(3) ? fake_random(3) * 4096 : fake_random(1000)};
        if (!fake_random(40))
            list[i].offset = UINT64_MAX - fake_random(5000);
        if (!fake_random(40))
            list[i].resource = fake_random(~0u);
        sum += list[i].size;
    }
    struct renderer_reply *r = reply(seq, type, some_result(), sum);
    memcpy((void *)(uintptr_t)r->ranges, list, n * sizeof(*list));
    r->range_count = n;
    memset((void *)(uintptr_t)r->data, (int)fake_random(3), sum);
    return r;
}

static struct renderer_reply *fence(u64 seq)
{
    struct renderer_reply *r = ranges(seq, WIRE_FENCE);
    struct wire_run *runs = (void *)(uintptr_t)r->runs;
    struct wire_fault *faults = (void *)(uintptr_t)r->faults;
    runs[0] =
        (struct wire_run){1, fake_random(8) ? (u32)seq : fake_random((u32)seq), some_result()};
    runs[1] = (struct wire_run){fake_random((u32)seq), fake_random(~0u), some_result()};
    r->run_count = fake_random(3);
    r->fault_count = fake_random(4) ? 0 : fake_random(4);
    for (u32 i = 0; i < r->fault_count; i++) {
        faults[i].context = fake_random(5);
        memset(faults[i].text, ' ' - 1 + (int)fake_random(100), fake_random(WIRE_FAULT_TEXT));
    }
    return r;
}

static struct renderer_reply *picture(u64 seq)
{
    u32 w = 1 + fake_random(20), h = 1 + fake_random(20), result = some_result();
    struct renderer_reply *r = reply(seq, WIRE_READ, result, result ? 0 : (u64)w * h * 4);
    r->width = w;
    r->height = h;
    r->depth = 1;
    r->row_bytes = fake_random(10) ? w * 4 : fake_random(200);
    return r;
}

struct renderer_reply *renderer_wait(struct renderer *r, u64 seq, u32 milliseconds)
{
    for (u32 i = 0; i < r->count; i++) {
        struct owed o = r->owed[i];
        if (o.seq != seq)
            continue;
        if (milliseconds && !r->dead && one_in(late))
            return NULL;
        r->dead |= one_in(death);
        r->owed[i] = r->owed[--r->count];
        if (r->dead)
            return reply(seq, o.type, WIRE_R_LOST, 0);
        return o.type == WIRE_FENCE  ? fence(seq)
               : o.type == WIRE_READ ? picture(seq)
                                     : ranges(seq, o.type);
    }
    return NULL;
}

void renderer_forget(struct renderer *r, u64 seq)
{
    for (u32 i = 0; i < r->count; i++)
        if (r->owed[i].seq == seq)
            r->owed[i--] = r->owed[--r->count];
}

u32 renderer_result(const struct renderer_reply *f, u64 seq)
{
    for (u32 i = 0; f->result != WIRE_R_LOST && i < f->run_count; i++)
        if (seq >= f->runs[i].seq && seq - f->runs[i].seq < f->runs[i].count)
            return f->runs[i].result;
    return f->result == WIRE_R_LOST ? WIRE_R_LOST : WIRE_R_NOT_KEPT;
}
