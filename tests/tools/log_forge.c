/*
 * log_forge FROM TO SEED: copies a log, its checksums right, with some of the renderer's replies
 * (gpu records) and the file server's (share) changed: bytes flipped, cut, repeated, another's; and
 * of each place (of a guest that was stopped between two positions) a byte. With a fourth argument,
 * `console`, also a bit of the first bytes typed. Prints how many there are and how many were
 * changed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/log.h"

static u64 state;

/* splitmix64 */
static u32 below(u32 n)
{
    u64 z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (u32)((z ^ z >> 31) % n);
}

static u32 forge(u8 *bytes, u32 len, const u8 *last, u32 last_len)
{
    for (u32 n = 1 + below(3); n; n--) {
        u32 at = below(len);
        switch (below(6)) {
        case 0: bytes[at] ^= (u8)(1u << below(8)); break;
        case 1: bytes[at] = (u8)below(256); break;
        case 2: bytes[at] = (u8)below(7); break; /* an operation, or none */
        case 3: len = at + 1; break;
        case 4: memset(bytes + at, 0xff, MIN(len - at, 9u)); break;
        default: memcpy(bytes, last, len = MIN(last_len, (u32)INPUT_MAX));
        }
    }
    return len;
}

int main(int argc, char **argv)
{
    static u8 bytes[INPUT_MAX], last[INPUT_MAX] = {5, 0};
    struct log_reader *from;
    struct log_writer *to;
    struct record rec;
    struct err err;
    u32 last_len = 2;
    unsigned replies = 0, forged = 0;
    bool typed = argc == 5 && !strcmp(argv[4], "console");
    int code, in = argc == 4 || typed ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    int out = in < 0 ? -1 : open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0)
        return 2;
    state = strtoull(argv[3], NULL, 0);
    code = log_reader_create(&from, in, &err);
    if (!code)
        code = log_writer_create(&to, out, &err);
    while (!code && log_next(from, &rec)) {
        struct log_bytes *b = record_input_bytes(&rec);
        if (b && typed && rec.type == REC_CONSOLE && !forged) {
            replies++;
            forged++;
            memcpy(bytes, b->data, b->len);
            bytes[0] ^= 1;
            *b = (struct log_bytes){b->len, bytes};
        } else if (b && rec.type == REC_PLACE) {
            replies++;
            forged++;
            memcpy(bytes, b->data, b->len);
            bytes[below(b->len)] ^= (u8)(1 + below(255));
            *b = (struct log_bytes){b->len, bytes};
        } else if (b && (rec.type == REC_GPU || rec.type == REC_SHARE)) {
            replies++;
            memcpy(bytes, b->data, b->len);
            if (!below(40)) {
                forged++;
                u32 len = forge(bytes, b->len, last, last_len);
                *b = (struct log_bytes){len, bytes};
            }
            memcpy(last, bytes, last_len = b->len);
        }
        code = log_add(to, &rec, &err);
        if (!code && rec.type == REC_END)
            code = log_flush(to, true, &err);
    }
    if (!code)
        code = log_writer_close(to, &err);
    if (code) {
        fprintf(stderr, "log_forge: %s\n", err.text);
        return 1;
    }
    log_reader_destroy(from);
    printf("%u replies, %u forged\n", replies, forged);
    return 0;
}
