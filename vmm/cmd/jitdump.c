/* See jitdump.h. */
#include "cmd/jitdump.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file_io.h"
#include "host/clock.h"

#define MAGIC      0x4a695444u /* "JiTD" */
#define VERSION    1u
#define NAME       "jit-%d.dump"
#define CODE_LOAD  0u
#define CODE_CLOSE 3u

struct file_header {
    u32 magic, version, total_size, elf_mach, pad, pid;
    u64 time, flags;
};
struct record_header {
    u32 id, total_size;
    u64 time;
};
/* The name with its NUL and the bytes follow. */
struct code_load {
    struct record_header head;
    u32 pid, tid;
    u64 vma, address, size, index;
};

int jitdump_open(struct jitdump *j, const char *dir, struct err *err)
{
    char name[32];
    const struct file_header h = {.magic = MAGIC,
                                  .version = VERSION,
                                  .total_size = sizeof(h),
                                  .elf_mach = EM_X86_64,
                                  .pid = (u32)getpid(),
                                  .time = host_ns()};
    snprintf(name, sizeof(name), NAME, getpid());
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return err_errno(err, "--jitdump %s", dir);
    int fd = file_create_at(at, name);
    close(at);
    j->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!j->file) {
        int code = err_errno(err, "cannot create %s/%s", dir, name);
        if (fd >= 0)
            close(fd);
        return code;
    }
    fwrite(&h, sizeof(h), 1, j->file);
    /* perf records which files are mapped as code. */
    j->mark = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (j->mark == MAP_FAILED) {
        j->mark = NULL;
        return err_errno(err,
                         "cannot map %s/%s executable, by which perf would find it (is the file "
                         "system mounted noexec?)",
                         dir, name);
    }
    return 0;
}

void jitdump_add(struct jitdump *j, const char *name, const void *code, u64 size, u64 time)
{
    size_t chars = strlen(name) + 1;
    const struct code_load r = {
        .head = {.id = CODE_LOAD, .total_size = (u32)(sizeof(r) + chars + size), .time = time},
        .pid = (u32)getpid(),
        .tid = (u32)getpid(),
        .vma = (u64)(uintptr_t)code,
        .address = (u64)(uintptr_t)code,
        .size = size,
        .index = j->index++};
    fwrite(&r, sizeof(r), 1, j->file);
    fwrite(name, chars, 1, j->file);
    fwrite(code, size, 1, j->file);
}

void jitdump_discard(const struct jitdump *j, const char *dir)
{
    char name[32];
    int at = j->file ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (at < 0)
        return;
    snprintf(name, sizeof(name), NAME, getpid());
    unlinkat(at, name, 0);
    close(at);
}

int jitdump_close(struct jitdump *j, struct err *err)
{
    if (!j->file)
        return 0;
    const struct record_header end = {CODE_CLOSE, sizeof(end), host_ns()};
    fwrite(&end, sizeof(end), 1, j->file);
    bool bad = fflush(j->file) || ferror(j->file);
    int code = bad ? err_errno(err, "cannot write the file of --jitdump") : 0;
    fclose(j->file);
    if (j->mark)
        munmap(j->mark, PAGE_SIZE);
    *j = (struct jitdump){0};
    return code;
}
