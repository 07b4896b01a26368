/* See boot.h. */
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEBUG_EXIT = 0xf4 };

static void load(const char *name, const char *parameters)
{
    char path[64];
    snprintf(path, sizeof(path), "/modules/%s.ko", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return; /* built into this kernel: build.sh has looked */
    if (fd < 0 || syscall(SYS_finit_module, fd, parameters, 0))
        printf("gpu-raw: module %s: %s\n", name, strerror(errno));
    if (fd >= 0)
        close(fd);
}

void boot_start(void)
{
    static const char *const modules[] = {
        "virtio_ring",    "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
        "virtio_dma_buf", "drm",    "drm_kms_helper",        "drm_shmem_helper",      "virtio-gpu"};
    mkdir("/dev", 0755);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3 && console >= 0; fd++)
        dup2(console, fd);
    if (console > 2)
        close(console);
    /* The screen is ours: no console on it, so that its first frame is our first frame. */
    for (unsigned i = 0; i < sizeof(modules) / sizeof(*modules); i++)
        load(modules[i], strcmp(modules[i], "drm_kms_helper") ? "" : "fbdev_emulation=0");
}

void boot_end(int status)
{
    fflush(stdout);
    sync();
    if (status && !ioperm(DEBUG_EXIT, 1, 1))
        outb((unsigned char)status, DEBUG_EXIT);
    reboot(RB_POWER_OFF);
}
