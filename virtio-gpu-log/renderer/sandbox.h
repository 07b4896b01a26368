/*
 * What the renderer may still do once it has initialised: compute, talk on the sockets that it has,
 * map anonymous memory (the software rasterizers generate code), start threads. No files, no new
 * sockets, no other processes, no programs. What it tries all the same ends it, but for the few
 * things that libraries try and can do without (sandbox.c has them with the reasons): EPERM.
 */
#ifndef REPRISE_GPU_SANDBOX_H
#define REPRISE_GPU_SANDBOX_H

#include "base/types.h"

/* device: a render node is open; its driver talks by ioctl. memory: bytes that may be mapped from
 * now on. False: the text says why. There is no way back. */
bool sandbox_enter(bool device, u64 memory, char *text, size_t size);

/* Tries what must be refused, each in a child that enters first; returns how many were not, and
 * says so on stderr. For --check. */
unsigned sandbox_probe(bool device, u64 memory);

#endif
