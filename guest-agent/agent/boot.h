/*
 * What the kernel must be told before a program can run, up to the moment at which the machine
 * waits for its host.
 */
#ifndef REPRISE_AGENT_BOOT_H
#define REPRISE_AGENT_BOOT_H

/* Directories of the initramfs: the host's files by virtio-fs, the tmpfs with what is written over
 * them (UPPER/data, UPPER/work), and where both become one. */
#define BOOT_HOST  "/host"
#define BOOT_UPPER "/upper"
#define BOOT_ROOT  "/root"

/* Mounts the kernel's file systems, loads modules, opens the console; the port, opened. */
int boot(void);

#endif
