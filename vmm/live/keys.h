/*
 * What was typed and not yet handed to the guest: bytes and the events made by Ctrl-A keys, in
 * order. Used by live.c only.
 */
#ifndef REPRISE_LIVE_KEYS_H
#define REPRISE_LIVE_KEYS_H

#include <stdio.h>

#include "dev/input.h"

#define KEYS_ROOM 4096

/* Above all byte values; from KEY_INPUT on, an enum input_kind is added. */
enum key { KEY_QUIT = 256, KEY_INPUT };

struct keys {
    u16 queue[KEYS_ROOM];
    unsigned head, count;
    u8 taken[INPUT_CONSOLE_MAX]; /* bytes of the last keys_take */
    bool escape;                 /* Ctrl-A was the last byte */
    bool script; /* not typed by a person: Ctrl-A x waits for what stands before it */
};

enum keys_ask { KEYS_QUIT = 1, KEYS_HELP = 2 };

/* Adds typed bytes; returns keys_ask bits for what does not wait its turn. Bytes beyond the room
 * are dropped; keys_room() says how many fit. */
unsigned keys_typed(struct keys *k, const u8 *data, size_t len);
size_t keys_room(const struct keys *k);

/* Prints what Ctrl-A does. */
void keys_help(FILE *out);

/* With `script`: is Ctrl-A x what comes next? It is not taken; it ends everything. */
bool keys_quit_next(const struct keys *k);

/* Could keys_take give something, with room for `room` console bytes? */
bool keys_ready(const struct keys *k, unsigned room);
bool keys_take(struct keys *k, unsigned room, struct input *in);

#endif
