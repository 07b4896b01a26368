/* See boot.h. */
#include "boot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "end.h"
#include "port.h"
#include "word.h"
#include "guest-agent/agent/protocol.h"

#define VIRTIO_GPU 16 /* virtio 1.2, 5.7.1 */

static const struct {
    const char *what, *type, *options;
    unsigned long flags;
    mode_t mode;
} mounts[] = {
    {"/dev", "devtmpfs", NULL, MS_NOSUID, 0755},
    {"/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
    {"/sys", "sysfs", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
    {"/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC, 0755},
    {"/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, 01777},
    {"/dev/mqueue", "mqueue", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 01777},
    {BOOT_UPPER, "tmpfs", "mode=755", 0, 0755},
};

/* Each after those that it needs. */
static const char *const modules[] = {
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "rng-core",
    "virtio-rng",
    "virtio_console",
    "failover",
    "net_failover",
    "virtio_net",
    "fuse",
    "virtiofs",
    "overlay",
};

static void file_systems(void)
{
    for (size_t i = 0; i < sizeof(mounts) / sizeof(*mounts); i++) {
        mkdir(mounts[i].what, mounts[i].mode);
        if (mount(mounts[i].type, mounts[i].what, mounts[i].type, mounts[i].flags,
                  mounts[i].options))
            give_up("cannot mount %s: %s", mounts[i].what, strerror(errno));
    }
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"}};
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (symlink(links[i][0], links[i][1]) && errno != EEXIST)
            give_up("cannot make %s: %s", links[i][1], strerror(errno));
    mkdir(BOOT_HOST, 0755);
    mkdir(BOOT_ROOT, 0755);
    if (mkdir(BOOT_UPPER "/data", 0755) || mkdir(BOOT_UPPER "/work", 0755))
        give_up("cannot make a directory in %s: %s", BOOT_UPPER, strerror(errno));
}

static void console(void)
{
    int fd = open("/dev/console", O_RDWR | O_NOCTTY);
    for (int i = 0; i < 3 && fd >= 0; i++)
        dup2(fd, i);
    if (fd > 2)
        close(fd);
}

static void load(const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/modules/%s.ko", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return; /* built into this kernel: build.sh has looked */
    if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
        give_up("module %s: %s", name, strerror(errno));
    close(fd);
}

static bool has_gpu(void)
{
    DIR *d = opendir("/sys/bus/virtio/devices");
    bool found = false;
    for (struct dirent *e; !found && d && (e = readdir(d));) {
        char path[300], type[16];
        snprintf(path, sizeof(path), "/sys/bus/virtio/devices/%s/device", e->d_name);
        read_word(path, type, sizeof(type));
        found = strtoul(type, NULL, 16) == VIRTIO_GPU;
    }
    if (d)
        closedir(d);
    return found;
}

/* A GPU, if the machine has one: its driver, and nodes for whoever the program is, as a login at a
 * desk has them. */
static void gpu(void)
{
    static const char *const drivers[] = {"drm", "drm_kms_helper", "drm_shmem_helper",
                                          "virtio_dma_buf", "virtio-gpu"};
    static const char *const nodes[] = {"/dev/dri/card0", "/dev/dri/renderD128"};
    if (!has_gpu())
        return;
    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++)
        load(drivers[i]);
    for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++)
        if (chmod(nodes[i], 0666))
            give_up("there is no %s: %s", nodes[i], strerror(errno));
}

static void loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
        give_up("cannot bring up lo: %s", strerror(errno));
    close(fd);
}

static int port(void)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    /* It is said to the driver, and the driver makes it, after its module is there. */
    for (unsigned i = 0; i < 2000; i++, nanosleep(&tick, NULL)) {
        int fd = port_open();
        if (fd >= 0)
            return fd;
    }
    give_up("there is no port %s of a virtio console", AGENT_PORT);
}

int boot(void)
{
    umask(0);
    file_systems();
    console();
    for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++)
        load(modules[i]);
    gpu();
    loopback();
    return port();
}
