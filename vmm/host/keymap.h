/*
 * Which key of a US keyboard gives a character, or an X keysym (X11 protocol, appendix A), as VNC
 * clients send them (RFC 6143, 7.5.4). Keys are those of linux/input-event-codes.h.
 */
#ifndef REPRISE_HOST_KEYMAP_H
#define REPRISE_HOST_KEYMAP_H

#include "base/types.h"

/* *shift: only together with it. false: no key gives it. */
bool keymap_char(char c, u16 *key, bool *shift);
/* Shift is a key of its own, which the client presses itself. 0: there is no such key. */
u16 keymap_keysym(u32 keysym);

#endif
