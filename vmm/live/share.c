/* See share.h. Contents of files of a page and more become inputs of their own, cut at the same
 * places of the file however it is read, so that a recording has them once. */
#include "live/share.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "dev/virtio/fs_limits.h"
#include "host/share_protocol.h"

#define CONTENT_LEAST PAGE_SIZE

static_assert(SHARE_UNDER_WAY <= FSD_SLOTS && SHARE_REQUEST_MAX <= FSD_REQUEST_MAX &&
                  SHARE_REPLY_MAX <= FSD_SLOT_SIZE,
              "the server takes what the device has");

#define PROGRAMS_MAX 1024u

struct pending {
    u64 number;
    int slot;   /* -1: there is no server */
    bool reads; /* the reply is a file's contents, */
    u64 offset; /* ... from here on */
    u64 node;
};

struct share_host {
    struct share *share;
    struct pending list[SHARE_UNDER_WAY];
    u32 first, count;
    u64 known;                 /* requests from this one on were heard of; 0: none was */
    u64 program[PROGRAMS_MAX]; /* nodes */
    u32 programs;
    /* The reply that is being handed out, of the first one: a copy, as the server could still write
     * to its own. */
    u32 size, at; /* size 0: none */
    u8 reply[SHARE_REPLY_MAX];
};

int share_host_create(struct share_host **out, const char *text, unsigned unit, u32 epoch,
                      struct share_identity *id, struct err *err)
{
    struct share_host *h = calloc(1, sizeof(*h));
    if (!h)
        return err_set(err, -ENOMEM, "no memory for a share");
    int code = text ? share_create(&h->share, text, unit, epoch, id, err) : 0;
    if (code) {
        free(h);
        return code;
    }
    *out = h;
    return 0;
}

void share_host_destroy(struct share_host *h)
{
    if (!h)
        return;
    share_destroy(h->share);
    free(h);
}

void share_host_hide(struct share_host *h, int dir)
{
    if (h->share)
        share_hide(h->share, dir);
}

static void next(struct share_host *h)
{
    h->first = (h->first + 1) % SHARE_UNDER_WAY;
    h->count--;
    h->size = h->at = 0;
}

void share_host_emit(struct share_host *h, const struct dev_share *what)
{
    if (what->what == DEV_SHARE_RESET) {
        if (h->share)
            share_reset(h->share);
        h->first = h->count = h->size = h->at = h->programs = 0;
        return;
    }
    int slot = !h->share ? -1
                         : share_request(h->share, what->request, what->size, what->total,
                                         what->room, what->awaited);
    if (!what->awaited)
        return;
    struct fuse_in_header in;
    struct fuse_read_in read;
    memcpy(&in, what->request, sizeof(in));
    struct pending p = {.number = what->number, .slot = slot, .node = in.nodeid};
    p.reads = in.opcode == FUSE_READ && what->size >= sizeof(in) + sizeof(read);
    if (p.reads) {
        memcpy(&read, what->request + sizeof(in), sizeof(read));
        p.offset = read.offset;
    }
    h->known = h->known ? h->known : what->number;
    CHECK(h->count < SHARE_UNDER_WAY, "more requests of a share under way than there are");
    h->list[(h->first + h->count++) % SHARE_UNDER_WAY] = p;
}

/* Of a file's beginning: is it an ELF file that is executed or loaded? */
static void note_program(struct share_host *h, const struct pending *p, const u8 *data, u32 size)
{
    Elf64_Half type;
    if (p->offset || size < sizeof(Elf64_Ehdr) || memcmp(data, ELFMAG, SELFMAG))
        return;
    memcpy(&type, data + offsetof(Elf64_Ehdr, e_type), sizeof(type)); /* of 32 bits, too */
    for (u32 i = 0; i < h->programs; i++)
        if (h->program[i] == p->node)
            return;
    if ((type == ET_EXEC || type == ET_DYN) && h->programs < PROGRAMS_MAX)
        h->program[h->programs++] = p->node;
}

static void put_error(struct share_host *h, i32 error)
{
    const struct fuse_out_header out = {.len = sizeof(out), .error = error};
    memcpy(h->reply, &out, sizeof(out));
    h->size = sizeof(out);
}

/* false: not there yet. */
static bool collect(struct share_host *h, struct pending *p, u32 milliseconds)
{
    const u8 *data;
    struct fuse_out_header out;
    u32 size;
    int r = p->slot < 0 ? -1 : share_reply(h->share, p->slot, milliseconds, &data, &size);
    if (!r)
        return false;
    if (r < 0) {
        put_error(h, -ENOTCONN);
        return true;
    }
    if (size >= sizeof(out) && size <= sizeof(h->reply)) {
        memcpy(h->reply, data, size);
        memcpy(&out, h->reply, sizeof(out));
        h->size = out.len == size ? size : 0;
        if (p->reads && h->size)
            note_program(h, p, h->reply + sizeof(out), h->size - (u32)sizeof(out));
    }
    share_free(h->share, p->slot);
    p->slot = -1; /* another request's from now on */
    if (!h->size)
        put_error(h, -EIO);
    return true;
}

/* Of what is left of the reply. */
static void give(struct share_host *h, const struct pending *p, struct input *in)
{
    u32 left = h->size - h->at, head = sizeof(struct fuse_out_header);
    bool contents = p->reads && h->size - head >= CONTENT_LEAST;
    u64 offset = p->offset + h->at - head;
    u32 piece = MIN(left, INPUT_CONTENT_MAX - (u32)(offset % INPUT_CONTENT_MAX));
    if (contents && h->at && piece >= CONTENT_LEAST) {
        *in = (struct input){.kind = INPUT_CONTENT, .arg = piece, .data = h->reply + h->at};
    } else {
        piece = MIN(left, !contents ? INPUT_MAX : !h->at ? head : piece);
        *in = (struct input){.kind = INPUT_SHARE, .len = piece, .data = h->reply + h->at};
    }
    h->at += piece;
}

bool share_host_reply(struct share_host *h, u64 number, u32 milliseconds, struct input *in)
{
    /* A driver that took its buffers away has no use for the rest of a reply. */
    while (h->count && h->list[h->first].number < number) {
        if (h->list[h->first].slot >= 0)
            share_free(h->share, h->list[h->first].slot);
        next(h);
    }
    /* Asked before the machine was brought here (--from): whom it was asked is gone. */
    struct pending lost = {.slot = -1};
    bool ours = h->count && h->list[h->first].number == number;
    struct pending *p = ours ? &h->list[h->first] : &lost;
    CHECK(ours || !h->known || number < h->known, "request %llu waits for a reply that is not owed",
          (unsigned long long)number);
    if (!h->size && !collect(h, p, milliseconds))
        return false;
    give(h, p, in);
    if (h->at == h->size && ours)
        next(h);
    else if (h->at == h->size)
        h->size = h->at = 0;
    return true;
}

/* ---- when the machine has ended ---- */

u32 share_host_programs(const struct share_host *h, const u64 **nodes)
{
    *nodes = h->program;
    return h->programs;
}

int share_host_ask(struct share_host *h, u32 opcode, u64 node, const void *body, u32 size,
                   void *out, u32 room, u32 milliseconds)
{
    u8 request[sizeof(struct fuse_in_header) + 64];
    struct fuse_in_header in = {
        .len = (u32)sizeof(in) + size, .opcode = opcode, .unique = 1, .nodeid = node};
    struct fuse_out_header head;
    const u8 *data;
    u32 got, need = room + (u32)sizeof(head);
    CHECK(in.len <= sizeof(request), "a question of %u bytes", in.len);
    for (; h->count; next(h))
        share_free(h->share, h->list[h->first].slot);
    memcpy(request, &in, sizeof(in));
    memcpy(request + sizeof(in), body, size);
    int slot = h->share ? share_request(h->share, request, in.len, in.len, need, true) : -1;
    if (slot < 0 || share_reply(h->share, slot, milliseconds, &data, &got) <= 0)
        return -ENOTCONN;
    int code = -EIO;
    if (got >= sizeof(head) && got <= need) {
        memcpy(&head, data, sizeof(head));
        code = head.error ? -EIO : (int)(got - sizeof(head));
        memcpy(out, data + sizeof(head), got - sizeof(head));
    }
    share_free(h->share, slot);
    return code;
}
