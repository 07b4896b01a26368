/* See port.h. */
#include "port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "guest-agent/agent/protocol.h"
#include "word.h"

/* The port's device, named as the kernel does; false: there is none (yet). */
static bool find(char device[static 300])
{
    DIR *d = opendir("/sys/class/virtio-ports");
    bool found = false;
    for (struct dirent *e; !found && d && (e = readdir(d));) {
        char path[300], name[64] = "";
        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
        read_word(path, name, sizeof(name));
        found = !strcmp(name, AGENT_PORT);
        snprintf(device, 300, "/dev/%s", e->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

int port_open(void)
{
    char device[300];
    if (find(device))
        return open(device, O_RDWR | O_CLOEXEC);
    errno = ENODEV;
    return -1;
}
