/*
 * Linux' boot protocol of 16 bits: the file's setup code is put below 640 KiB, the rest of it at 1
 * MiB, and the setup code entered in real-address mode, from the firmware that it asks (bios.h). It
 * unpacks the kernel by itself. The file is hostile.
 */
#ifndef REPRISE_LINUX16_H
#define REPRISE_LINUX16_H

#include "board/boot.h"

/* Is `file` one that is entered so? If not, the text's subject is the file. */
int linux16_check(const void *file, size_t size, struct err *err);

/* boot_load() of config->header. */
int linux16_load(struct ram *ram, const struct boot_config *config, struct boot_state *out,
                 struct err *err);

#endif
