/* gpu-raw as process 1 of a machine. */
#ifndef GPU_RAW_BOOT_H
#define GPU_RAW_BOOT_H

/* Console, device files, modules. Does not fail: what is not there is missed later. */
void boot_start(void);

/* Ends the machine: status 0 powers it off, another one goes to the debug-exit port first. */
void boot_end(int status);

#endif
