/*
 * What `reprise record` notes in a recording for people: when, where and by what command it was
 * made, what the guest's kernel panicked of, which instruction its CPU model lacked. None of it
 * reaches the guest; `reprise info` shows it.
 */
#ifndef REPRISE_CMD_NOTES_H
#define REPRISE_CMD_NOTES_H

#include "machine/machine.h"
#include "replay/recorder.h"

/* Names of notes, as they are in the log and in `info --json`. */
#define NOTE_BEGAN   "began"
#define NOTE_HOST    "host"
#define NOTE_COMMAND "command"
#define NOTE_FROM    "from" /* the recording that this one begins in, at the note's instant */
#define NOTE_PANIC   "panic"
#define NOTE_LACKING "lacking"

/* At power-on: date, host and command. */
int notes_origin(struct recorder *r, struct machine *m, int argc, char **argv, struct err *err);

/* The first instruction of a guest's program that its CPU model lacks and another one has. */
struct lacking {
    char text[512]; /* a sentence; "": none */
};
/* Watches for it, and says it on stderr when it comes. */
void lacking_watch(struct lacking *l, struct machine *m);

#endif
