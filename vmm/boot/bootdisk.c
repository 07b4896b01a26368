/* See bootdisk.h. */
#define _GNU_SOURCE /* asprintf */
#include "boot/bootdisk.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "boot/raw_copy.h"
#include "host/child.h"

#define MAX_DEVICES 128u
#define MAX_DISKS   16u
#define MAX_FILES   1024u /* of a folder that are looked at */
#define READ_TIME   60u   /* seconds, for one run of grub-fstest */

/* A disk, partition or volume, as grub-fstest names it: the disk N is "loopN". */
struct device {
    char name[128], fs[32], label[128], uuid[128];
};

struct bootdisk {
    const char *tool;
    char *image[MAX_DISKS]; /* raw */
    bool copied[MAX_DISKS];
    unsigned count;
    struct device device[MAX_DEVICES];
    unsigned ndevices;
    struct boot_menu menu;
    char *loader_default;
    char *config;     /* "(DEVICE)/PATH" of what the menu is from */
    char *subtree;    /* where /boot is on that device: "", "/@rootfs" */
    sigset_t signals; /* to be restored */
};

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "no memory to look at the disks");
}

/* Bytes below ' ' as '?'; returns text. */
static char *printable(char *text)
{
    for (char *p = text; p && *p; p++)
        if ((u8)*p < ' ' || *p == 127)
            *p = '?';
    return text;
}

/* grub-fstest IMAGES COMMAND [OPTION] [FILE] */
static int tool(struct bootdisk *b, const char *command, const char *option, const char *file,
                u64 max, char **out, size_t *size, struct err *err)
{
    const char *argv[MAX_DISKS + 8];
    struct landlock_path images[MAX_DISKS + 1];
    const struct child_limits limits = {.seconds = READ_TIME,
                                        .output = max,
                                        .memory = 2ull << 30,
                                        .confined = true,
                                        .reads = images,
                                        .nreads = b->count + 1};
    char count[16];
    unsigned n = 0;
    snprintf(count, sizeof(count), "%u", b->count);
    /* GRUB looks whether there is a file system at all, by what is in "/". */
    images[b->count] = (struct landlock_path){.path = "/", .may = LANDLOCK_LIST};
    argv[n++] = b->tool;
    argv[n++] = "-c";
    argv[n++] = count;
    for (unsigned i = 0; i < b->count; i++)
        images[i] = (struct landlock_path){.path = argv[n++] = b->image[i], .may = LANDLOCK_READ};
    argv[n++] = command;
    argv[n++] = "--";
    if (option)
        argv[n++] = option;
    if (file)
        argv[n++] = file;
    argv[n] = NULL;
    return child_run(argv, &limits, out, size, err);
}

static int read_file(struct bootdisk *b, const char *file, u64 max, char **out, size_t *size,
                     struct err *err)
{
    return tool(b, "cat", NULL, file, max, out, size, err);
}

/* Names in a folder; a folder's ends in '/'. A folder that is not there has none. */
struct names {
    char *text, *list[MAX_FILES];
    unsigned count;
};

static void read_folder(struct bootdisk *b, const char *device, const char *path, struct names *n)
{
    struct err ignored;
    size_t size;
    char *folder, *rest, *line;
    memset(n, 0, sizeof(*n));
    if (asprintf(&folder, "(%s)%s/", device, path) < 0)
        return;
    if (tool(b, "ls", "-l", folder, BOOT_TEXT_MAX, &n->text, &size, &ignored))
        n->text = NULL;
    free(folder);
    /* "SIZE-or-DIR  TIME  NAME" */
    for (rest = n->text; (line = strsep(&rest, "\n")) && n->count < MAX_FILES;) {
        for (unsigned field = 0; field < 2; field++) {
            line += strcspn(line, " ");
            line += strspn(line, " ");
        }
        if (*line)
            n->list[n->count++] = line;
    }
}

static bool has_folder(const struct names *n, const char *name)
{
    size_t len = strlen(name);
    for (unsigned i = 0; i < n->count; i++)
        if (!strncasecmp(n->list[i], name, len) && !strcmp(n->list[i] + len, "/"))
            return true;
    return false;
}

/* Devices */

/* The text between `before` and `after` in a line. */
static void between(const char *line, const char *before, const char *after, char *out, size_t size)
{
    const char *p = strstr(line, before);
    size_t len = 0;
    if (p) {
        p += strlen(before);
        const char *end = strstr(p, after);
        len = MIN(end ? (size_t)(end - p) : strlen(p), size - 1);
        memcpy(out, p, len);
    }
    out[len] = 0;
    printable(out);
}

static bool name_is_safe(const char *name)
{
    return (!strncmp(name, "loop", 4) || !strncmp(name, "lvm", 3) || !strncmp(name, "md", 2)) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,/_.+-") ==
               strlen(name);
}

static int order(const void *x, const void *y)
{
    const struct device *a = x, *b = y;
    return strverscmp(a->name, b->name);
}

/*
 * Device loop0: No known filesystem detected - Sector size 512B - ...
 *     Partition loop0,msdos1: Filesystem type ext* - Label `root' - Last ..., UUID X - Partition
 * ...
 */
static int find_devices(struct bootdisk *b, struct err *err)
{
    char *text, *rest, *line;
    size_t size;
    int code = tool(b, "ls", "-l", NULL, BOOT_TEXT_MAX, &text, &size, err);
    if (code)
        return code;
    for (rest = text; (line = strsep(&rest, "\n")) && b->ndevices < MAX_DEVICES;) {
        struct device *d = &b->device[b->ndevices];
        line += strspn(line, " \t");
        const char *key = !strncmp(line, "Device ", 7) ? "Device " : "Partition ";
        if (strncmp(line, key, strlen(key)))
            continue;
        between(line, key, ":", d->name, sizeof(d->name));
        between(line, "Filesystem type ", " ", d->fs, sizeof(d->fs));
        between(line, "Label `", "' ", d->label, sizeof(d->label));
        between(line, ", UUID ", " - ", d->uuid, sizeof(d->uuid));
        if (name_is_safe(d->name))
            b->ndevices++;
    }
    free(text);
    qsort(b->device, b->ndevices, sizeof(b->device[0]), order);
    return 0;
}

/* "disk 0 partition 1" */
static void device_text(const char *name, char *out, size_t size)
{
    unsigned disk;
    int used = 0, partition = 0;
    if (sscanf(name, "loop%u%n,%*[a-z]%n", &disk, &used, &partition) != 1) {
        snprintf(out, size, "volume %s", name);
        return;
    }
    if (!name[used])
        snprintf(out, size, "disk %u", disk);
    else if (partition && !strchr(name + used + 1, ','))
        snprintf(out, size, "disk %u partition %s", disk, name + partition);
    else
        snprintf(out, size, "disk %u partition %s", disk, name + used + 1);
}

static bool device_has_file(struct bootdisk *b, const char *device, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash ? (size_t)(slash - path) : 0);
    struct names n;
    bool found = false;
    if (!slash || !folder) {
        free(folder);
        return false;
    }
    read_folder(b, device, folder, &n);
    for (unsigned i = 0; i < n.count; i++)
        found = found || !strcmp(n.list[i], slash + 1);
    free(n.text);
    free(folder);
    return found;
}

/* What "(NAME)" in an entry stands for: one of ours. */
static int resolve(struct bootdisk *b, const char *name, char out[128], struct err *err)
{
    const char *value = strchr(name, ':');
    bool uuid = !strncmp(name, "uuid:", 5), label = !strncmp(name, "label:", 6),
         file = !strncmp(name, "file:", 5);
    for (unsigned i = 0; i < b->ndevices; i++) {
        const struct device *d = &b->device[i];
        if (uuid    ? !strcasecmp(d->uuid, value + 1)
            : label ? !strcmp(d->label, value + 1)
            : file  ? *d->fs && device_has_file(b, d->name, value + 1)
                    : !strcmp(d->name, name)) {
            strcpy(out, d->name);
            return 0;
        }
    }
    /* GRUB counts the firmware's disks; so do we. */
    if (!uuid && !label && !file) {
        int n = !strncmp(name, "hd", 2) ? snprintf(out, 128, "loop%s", name + 2)
                                        : snprintf(out, 128, "%s", name);
        if (n > 0 && n < 128 && name_is_safe(out))
            return 0;
    }
    char *copy = printable(strdup(name));
    err_set(err, -ENOENT, "which is on a disk that is not there: %.200s", copy ? copy : "");
    free(copy);
    return -ENOENT;
}

/* The menu */

static bool bootable(const struct boot_menu *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->entry[i].kernel)
            return true;
    return false;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

/* Entries of the Boot Loader Specification in DEVICE PATH/loader/entries. */
static int add_bls(struct bootdisk *b, const char *device, const char *path, struct boot_menu *m,
                   struct err *err)
{
    char *folder, *file, *text;
    struct err ignored;
    struct names n;
    size_t size;
    int code = 0;
    if (asprintf(&folder, "%s/loader/entries", path) < 0)
        return no_memory(err);
    read_folder(b, device, folder, &n);
    qsort(n.list, n.count, sizeof(n.list[0]), by_name);
    for (unsigned i = 0; i < n.count && !code; i++) {
        size_t len = strlen(n.list[i]);
        if (len < 6 || strcmp(n.list[i] + len - 5, ".conf"))
            continue;
        if (asprintf(&file, "(%s)%s/%s", device, folder, n.list[i]) < 0) {
            code = no_memory(err);
            break;
        }
        if (!read_file(b, file, BOOT_TEXT_MAX, &text, &size, &ignored)) {
            code = boot_menu_bls(m, n.list[i], text, size, device, err);
            if (code)
                err_prefix(err, "%s", printable(file));
            free(text);
        }
        free(file);
    }
    free(n.text);
    if (!code && bootable(m)) {
        if (asprintf(&file, "(%s)%s/loader/loader.conf", device, path) < 0) {
            code = no_memory(err);
        } else if (!read_file(b, file, BOOT_TEXT_MAX, &text, &size, &ignored)) {
            free(b->loader_default);
            b->loader_default = boot_loader_default(text, size);
            free(text);
        }
        if (!code)
            free(file);
        boot_menu_sort(m);
    }
    free(folder);
    return code;
}

/* The grub.cfg in DEVICE FOLDER, if it is there: its menu becomes b->menu. */
static int run_grub(struct bootdisk *b, const char *device, const char *folder, struct err *err)
{
    char *prefix, *file = NULL, *text = NULL, *env = NULL;
    size_t size = 0, env_size = 0;
    struct err ignored;
    int code = 0;
    if (asprintf(&prefix, "(%s)%s", device, folder) < 0)
        return no_memory(err);
    if (asprintf(&file, "%s/grub.cfg", prefix) < 0) {
        file = NULL;
        code = no_memory(err);
    } else if (!read_file(b, file, BOOT_TEXT_MAX, &text, &size, &ignored)) {
        char *name;
        if (asprintf(&name, "%s/grubenv", prefix) >= 0) {
            if (read_file(b, name, BOOT_TEXT_MAX, &env, &env_size, &ignored))
                env = NULL;
            free(name);
        }
        boot_menu_free(&b->menu);
        code = boot_menu_grub(&b->menu, text, size, device, prefix, env, env_size, err);
        if (code) {
            err_prefix(err, "%s", printable(file));
            boot_menu_free(&b->menu);
        }
    }
    free(env);
    free(text);
    free(file);
    free(prefix);
    return code;
}

/* Is there a menu now? Then it is from here. */
static bool found(struct bootdisk *b, const char *device, const char *subtree)
{
    if (!bootable(&b->menu))
        return false;
    b->config = strdup(device);
    b->subtree = strdup(subtree);
    return true;
}

/* A device's menu, in the places where distributions have it: 1 when there is one. */
static int look_at(struct bootdisk *b, const struct device *d, struct err *err)
{
    static const char *const trees[] = {"", "/@", "/@rootfs", "/root"};
    static const char *const folders[] = {"/boot/grub", "/boot/grub2", "/grub", "/grub2"};
    struct names top, systems;
    char folder[512];
    int code = 0;
    read_folder(b, d->name, "", &top);
    for (unsigned t = 0; t < 4 && !code; t++) {
        if (*trees[t] && !has_folder(&top, trees[t] + 1))
            continue;
        for (unsigned f = 0; f < (t ? 2 : 4) && !code; f++) {
            if (!t && !has_folder(&top, f < 2 ? "boot" : folders[f] + 1))
                continue;
            snprintf(folder, sizeof(folder), "%s%s", trees[t], folders[f]);
            code = run_grub(b, d->name, folder, err);
            if (!code && !b->menu.blscfg)
                code = found(b, d->name, trees[t]);
        }
        for (unsigned f = 0; f < 2 && !code; f++) {
            snprintf(folder, sizeof(folder), "%s%s", trees[t], f ? "" : "/boot");
            if (!t && !has_folder(&top, f ? "loader" : "boot"))
                continue;
            code = add_bls(b, d->name, folder, &b->menu, err);
            if (!code)
                code = found(b, d->name, trees[t]);
        }
    }
    if (!code && has_folder(&top, "efi")) {
        read_folder(b, d->name, "/EFI", &systems);
        for (unsigned i = 0; i < systems.count && !code; i++) {
            size_t len = strlen(systems.list[i]);
            if (systems.list[i][len - 1] != '/' ||
                snprintf(folder, sizeof(folder), "/EFI/%.*s", (int)len - 1, systems.list[i]) >=
                    (int)sizeof(folder))
                continue;
            code = run_grub(b, d->name, folder, err);
            if (!code && !b->menu.blscfg)
                code = found(b, d->name, "");
        }
        free(systems.text);
    }
    free(top.text);
    return code;
}

static int find_menu(struct bootdisk *b, struct err *err)
{
    char seen[700] = "", where[160], reason[sizeof(err->text)] = "";
    size_t used = 0;
    for (unsigned i = 0; i < b->ndevices; i++) {
        const struct device *d = &b->device[i];
        bool whole = !strchr(d->name, ',') && i + 1 < b->ndevices &&
                     !strncmp(b->device[i + 1].name, d->name, strlen(d->name)) &&
                     b->device[i + 1].name[strlen(d->name)] == ',';
        if (!*d->fs && whole) /* its partitions follow */
            continue;
        struct err why;
        int code = *d->fs ? look_at(b, d, &why) : 0;
        if (code == -ENOMEM || code == -EINTR) {
            *err = why;
            return code;
        }
        if (code > 0)
            return b->config && b->subtree ? 0 : no_memory(err);
        if (code < 0)
            snprintf(reason, sizeof(reason), "; %.300s", why.text);
        device_text(d->name, where, sizeof(where));
        int n = snprintf(seen + used, sizeof(seen) - used, "%s%s (%s)", used ? ", " : "", where,
                         *d->fs ? d->fs : "no file system that GRUB knows");
        used = MIN(used + (size_t)n, sizeof(seen) - 1);
    }
    return err_set(err, -ENOENT,
                   "no boot entry for Linux was found: %.600s; looked for grub.cfg in boot/grub, "
                   "boot/grub2, grub, grub2 and EFI/*, and for loader/entries%.330s",
                   *seen ? seen : "nothing on the disks", reason);
}

/* Images */

static int take_images(struct bootdisk *b, struct disk *disks, unsigned count, struct err *err)
{
    int code = 0;
    if (!count || count > MAX_DISKS)
        return err_set(err, -EINVAL, "there is no disk to boot from: --disk IMAGE");
    for (unsigned i = 0; i < count && !code; i++) {
        b->count = i + 1;
        if (strcmp(disks[i].format, "raw")) {
            b->copied[i] = true;
            code = raw_copy(&disks[i], &b->image[i], err);
        } else if (!(b->image[i] = realpath(disks[i].path, NULL))) {
            code = err_errno(err, "cannot open the disk image %s", disks[i].path);
        }
    }
    return code;
}

int bootdisk_open(struct bootdisk **out, struct disk *disks, unsigned count, struct err *err)
{
    static const char *const tools[] = {"grub-fstest", "grub2-fstest"};
    struct bootdisk *b = calloc(1, sizeof(*b));
    sigset_t wait;
    *out = b;
    if (!b)
        return no_memory(err);
    /* Temporary files do not stay behind: a Ctrl-C is seen by child_run(). */
    sigemptyset(&wait);
    sigaddset(&wait, SIGINT);
    sigaddset(&wait, SIGTERM);
    sigaddset(&wait, SIGHUP);
    sigprocmask(SIG_BLOCK, &wait, &b->signals);
    int code = take_images(b, disks, count, err);
    for (unsigned i = 0; i < 2 && (i ? code == -ENOENT : !code); i++) {
        b->tool = tools[i];
        code = find_devices(b, err);
    }
    if (code == -ENOENT && b->tool)
        err_set(err, code,
                "to boot from a disk takes the program grub-fstest (Debian's package grub-common); "
                "or name --kernel FILE and --initrd FILE");
    if (!code)
        code = find_menu(b, err);
    if (code) {
        bootdisk_close(b);
        *out = NULL;
    }
    return code;
}

void bootdisk_close(struct bootdisk *b)
{
    if (!b)
        return;
    for (unsigned i = 0; i < b->count; i++) {
        if (b->copied[i] && b->image[i])
            unlink(b->image[i]);
        free(b->image[i]);
    }
    boot_menu_free(&b->menu);
    free(b->loader_default);
    free(b->config);
    free(b->subtree);
    sigprocmask(SIG_SETMASK, &b->signals, NULL);
    free(b);
}

/* Entries */

void bootdisk_list(struct bootdisk *b, FILE *to)
{
    char place[64];
    for (size_t i = 0; i < b->menu.count; i++) {
        if (!b->menu.entry[i].kernel)
            continue;
        boot_menu_place(&b->menu, (int)i, place, sizeof(place));
        char *title = printable(strdup(b->menu.entry[i].title));
        fprintf(to, "%s\t%s\n", place, title ? title : "");
        free(title);
    }
}

/* Puts what there is to choose from after the text. */
static void add_list(struct bootdisk *b, struct err *err)
{
    char *list = NULL, *rest, *line;
    size_t size, used = strlen(err->text);
    FILE *f = open_memstream(&list, &size);
    if (!f)
        return;
    bootdisk_list(b, f);
    if (!fclose(f)) {
        for (rest = list; (line = strsep(&rest, "\n")) && *line;) {
            line[strcspn(line, "\t")] = ' ';
            int n = snprintf(err->text + used, sizeof(err->text) - used, "\n  %s", line);
            if ((size_t)n >= sizeof(err->text) - used) {
                strcpy(err->text + MIN(used, sizeof(err->text) - 7), "\n  ...");
                break;
            }
            used += (size_t)n;
        }
    }
    free(list);
}

const struct boot_entry *bootdisk_choose(struct bootdisk *b, const char *wanted, struct err *err)
{
    int at =
        wanted ? boot_menu_find(&b->menu, wanted) : boot_menu_default(&b->menu, b->loader_default);
    if (at >= 0 && b->menu.entry[at].kernel)
        return &b->menu.entry[at];
    if (at >= 0) {
        char *title = printable(strdup(b->menu.entry[at].title));
        err_set(err, -ENOENT,
                "the boot entry '%.200s'%s starts no Linux kernel; these do:", title ? title : "",
                wanted ? "" : ", the default,");
        free(title);
    } else {
        err_set(err, -ENOENT, "there is no boot entry '%.200s'; there are:", wanted ? wanted : "0");
    }
    add_list(b, err);
    return NULL;
}

/* "(DEVICE)/PATH" taken apart: what grub-fstest takes, without the path. */
static int locate(struct bootdisk *b, const char *file, char device[128], const char **path,
                  struct err *err)
{
    const char *close = *file == '(' ? strchr(file, ')') : NULL;
    if (!close || close[1] != '/')
        return err_set(err, -EINVAL, "which is no path");
    char *name = strndup(file + 1, (size_t)(close - file - 1));
    int code = name ? resolve(b, *name ? name : b->config, device, err) : no_memory(err);
    free(name);
    *path = close + 1;
    return code;
}

char *bootdisk_describe(struct bootdisk *b, const struct boot_entry *e)
{
    char device[128], where[160], *out;
    const char *path;
    struct err ignored;
    if (locate(b, e->kernel, device, &path, &ignored))
        return strdup("");
    device_text(device, where, sizeof(where));
    return asprintf(&out, "'%.200s' from %s: %.500s", e->title, where, path) < 0 ? NULL
                                                                                 : printable(out);
}

static int load(struct bootdisk *b, const struct boot_entry *e, const char *what, const char *file,
                u64 max, char **out, size_t *size, struct err *err)
{
    char device[128] = "", where[160] = "", *full = NULL, *title = printable(strdup(e->title)),
         *shown = printable(strdup(file));
    const char *path;
    struct err why;
    *out = NULL;
    int code = locate(b, file, device, &path, &why);
    /* As it stands there; or from where the system has its root on a file system with subvolumes.
     */
    for (unsigned i = 0; !*out && (!code || i) && i < 2 && *device; i++) {
        struct err again;
        if (i && (!*b->subtree || code == -EFBIG || code == -EINTR))
            break;
        if (asprintf(&full, "(%s)%s%s", device, i ? b->subtree : "", path) < 0) {
            code = no_memory(&why);
            break;
        }
        code = read_file(b, full, max, out, size, i ? &again : &why);
        free(full);
    }
    if (*device)
        device_text(device, where, sizeof(where));
    if (code)
        err_set(err, code, "the boot entry '%.150s' names the %s %.300s%s%s%s: %.300s",
                title ? title : "", what, shown ? shown : "", *where ? " (" : "", where,
                *where ? ")" : "", why.text);
    free(title);
    free(shown);
    return code;
}

int bootdisk_kernel(struct bootdisk *b, const struct boot_entry *e, u64 max, u8 **bytes,
                    size_t *size, struct err *err)
{
    return load(b, e, "kernel", e->kernel, max, (char **)bytes, size, err);
}

int bootdisk_initrd(struct bootdisk *b, const struct boot_entry *e, u64 max, u8 **bytes,
                    size_t *size, struct err *err)
{
    u8 *all = NULL;
    size_t used = 0;
    int code = 0;
    for (size_t i = 0; i < e->ninitrd && !code; i++) {
        char *one;
        size_t n;
        size_t at = (used + 3) & ~(size_t)3; /* GRUB's padding between them */
        code = load(b, e, "initrd", e->initrd[i], at < max ? max - at : 0, &one, &n, err);
        if (code)
            break;
        u8 *more = realloc(all, at + n + 1);
        if (more) {
            memset(more + used, 0, at - used);
            memcpy(more + at, one, n);
            all = more;
            used = at + n;
        } else {
            code = no_memory(err);
        }
        free(one);
    }
    if (code) {
        free(all);
        all = NULL;
    }
    *bytes = all;
    *size = used;
    return code;
}
