/*
 * Firmware for programs that are entered by their code of 16 bits (boot.h): interrupt services in
 * the last 4 KiB below 1 MiB (bios_image.S), and what they know of the machine. It takes the CPU
 * from power-on to the program.
 */
#ifndef REPRISE_BIOS_H
#define REPRISE_BIOS_H

#include "board/boot.h"

#define BIOS_BASE    0xff000ull
#define BIOS_SIZE    0x1000u
#define BIOS_SEGMENT 0xf000u
#define BIOS_ENTRY   0xf080u /* in the segment */

/* Writes it. A program in `segment` is entered 512 bytes from its beginning, with the stack's top
 * at offset `stack`. */
void bios_write(struct ram *ram, u16 segment, u16 stack);

/* Without it: the two words of a BIOS' data area (at 40eh, 413h) by which a boot loader's programs
 * know what is theirs below 640 KiB. */
void bios_write_data(struct ram *ram);

#endif
