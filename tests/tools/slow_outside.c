/*
 * Preloaded: the process that stays outside the sandbox (host/outside.h) takes a second before it
 * removes a directory, and then adds a line to the file that SLOW_OUTSIDE names.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int rmdir(const char *path)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (!strcmp(name, "reprise-outside")) {
        sleep(1);
        int fd = open(getenv("SLOW_OUTSIDE"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, "late\n", 5) != 5)
            _exit(1);
        close(fd);
    }
    return (int)syscall(SYS_rmdir, path);
}
