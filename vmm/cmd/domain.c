/* See domain.h. */
#define _GNU_SOURCE /* pipe2 */
#include "cmd/domain.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/text.h"
#include "cmd/apart.h"
#include "host/companion.h"

#define PROGRAM "reprise-libvirt"
#define SHOWN   10u /* names of other domains */

/* ---- asking ---- */

/* With our terminal and signals: what asks for a password (ssh) asks here, and ^C ends both. */
static int start(pid_t *pid, const struct record_args *a, int out, struct err *err)
{
    char path[4096];
    posix_spawn_file_actions_t files;
    char *argv[] = {path, a->domain_file ? "file" : "domain", "--", (char *)(uintptr_t)a->domain,
                    NULL};
    int code = companion_path(PROGRAM, path, sizeof(path), err);
    if (code == -ENOENT)
        return err_set(
            err, code,
            "%s is not there, which reads domains of libvirt's: `make` builds it where the "
            "Debian packages libvirt-dev and libxml2-dev are (`make deps` installs them)",
            PROGRAM);
    if (code)
        return code;
    posix_spawn_file_actions_init(&files);
    if (!a->domain_file || strcmp(a->domain, "-"))
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    code = posix_spawn(pid, path, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return code ? err_set(err, -code, "cannot start '%s': %s", path, strerror(code)) : 0;
}

/* All that it prints, or -EPROTO. */
static int take(int in, char **out, size_t *size, struct err *err)
{
    char *bytes = malloc(DOMAIN_TABLE_MAX + 1);
    size_t n = 0;
    if (!bytes)
        return err_set(err, -ENOMEM, "no memory");
    for (;;) {
        ssize_t got = read(in, bytes + n, DOMAIN_TABLE_MAX + 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
        if (n > DOMAIN_TABLE_MAX) {
            free(bytes);
            return err_set(err, -EPROTO, "%s says too much", PROGRAM);
        }
    }
    *out = bytes;
    *size = n;
    return 0;
}

static int ask(const struct record_args *a, struct domain_table *t, struct err *err)
{
    int pair[2];
    pid_t pid;
    char *text = NULL;
    size_t size = 0;
    if (pipe2(pair, O_CLOEXEC))
        return err_errno(err, "cannot make a pipe");
    int code = start(&pid, a, pair[1], err);
    close(pair[1]);
    if (!code) {
        code = take(pair[0], &text, &size, err);
        close(pair[0]);
        int status = apart_wait(pid);
        if (!code && status != 0 && status != 1)
            code = err_set(err, -EIO, "%s ended with status %d", PROGRAM, status);
    } else {
        close(pair[0]);
    }
    if (!code) {
        code = domain_table_read(t, text, size, err);
        if (code)
            err_prefix(err, "what %s says is no table", PROGRAM);
    }
    free(text);
    return code;
}

/* ---- saying ---- */

static const char *clean(const char *text, char out[4096])
{
    return text_printable(text, out, 4096);
}

static void tell_rows(const struct domain_table *t, enum domain_row_kind kind, const char *title)
{
    char what[4096], why[4096], todo[4096];
    bool any = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct domain_row *r = &t->row[i];
        if (r->kind != kind)
            continue;
        if (!any)
            fprintf(stderr, "  %s:\n", title);
        any = true;
        fprintf(stderr, "    %s: %s\n        to do: %s\n", clean(r->field[0], what),
                clean(r->field[1], why), clean(r->field[2], todo));
    }
}

static void tell(const struct domain_table *t)
{
    char name[4096], place[4096];
    const char *is = domain_table_one(t, DOMAIN_NAME), *at = domain_table_one(t, DOMAIN_PLACE);
    bool whole = !domain_table_one(t, DOMAIN_LEFT) && !domain_table_one(t, DOMAIN_OTHERWISE);
    fprintf(stderr, "reprise: the domain '%s'%s%s%s\n", clean(is ? is : "", name),
            at && *at ? " at " : "", clean(at ? at : "", place),
            whole ? " is taken over whole" : "");
    tell_rows(t, DOMAIN_OTHERWISE, "taken over as something else");
    tell_rows(t, DOMAIN_LEFT, "left out");
}

/* Why there is nothing to be recorded; with domains that may have been meant. */
static int tell_error(const struct domain_table *t, const struct record_args *a)
{
    const char *names[DOMAIN_TABLE_ROWS], *asked = a->domain;
    char text[4096], file[4096];
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->row[i].kind == DOMAIN_OTHER)
            names[n++] = t->row[i].field[0];
    fprintf(stderr, "reprise: %s%s%s", a->domain_file ? clean(asked, file) : "",
            a->domain_file ? ": " : "", clean(domain_table_one(t, DOMAIN_ERROR), text));
    const char *meant = n ? text_nearest(text_base_name(asked), names, n, sizeof(*names)) : NULL;
    if (meant)
        fprintf(stderr, "; did you mean '%s'?", clean(meant, text));
    for (size_t i = 0; i < n && i < SHOWN; i++)
        fprintf(stderr, "%s'%s'",
                i       ? ", "
                : meant ? " There are "
                        : "; there are ",
                clean(names[i], text));
    if (n > SHOWN)
        fprintf(stderr, " and %zu more", n - SHOWN);
    fputc('\n', stderr);
    return EX_ERROR;
}

static int tell_busy(const struct domain_table *t)
{
    char text[4096];
    const char *between = "";
    fprintf(stderr, "reprise: the domain runs, and writes to ");
    for (size_t i = 0; i < t->n; i++)
        if (t->row[i].kind == DOMAIN_BUSY) {
            fprintf(stderr, "%s%s", between, clean(t->row[i].field[0], text));
            between = ", ";
        }
    fputs(": what is read there would be half of it. Shut it down (`virsh shutdown`); or copy its "
          "disks, and "
          "record with the line that --dry-run prints, with the copies' names in it\n",
          stderr);
    return EX_ERROR;
}

/* ---- the command line ---- */

/* A name for the directory that anybody can type. */
static void name_it(struct domain_command *d)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.";
    const char *name = domain_table_one(&d->table, DOMAIN_NAME);
    bool good = name && *name && *name != '-' && *name != '.' && strlen(name) < sizeof(d->name) &&
                name[strspn(name, plain)] == 0;
    snprintf(d->name, sizeof(d->name), "%s", good ? name : "recording");
}

static bool dropped(const struct record_args *a, int word)
{
    for (unsigned i = 0; i < a->ndropped; i++)
        if (a->dropped[i] == word)
            return true;
    return false;
}

/* "--NAME" of an option's row. */
static char *option_word(const struct domain_row *r)
{
    char *word = NULL;
    return asprintf(&word, "--%s", r->field[0]) < 0 ? NULL : word;
}

static bool build(struct domain_command *d, int argc, char **argv, const struct record_args *a)
{
    d->argv = calloc((size_t)argc + 2 * d->table.n + 4, sizeof(*d->argv));
    if (!d->argv)
        return false;
    d->argv[d->argc++] = argv[0];
    if (!a->output) {
        d->argv[d->argc++] = "-o";
        d->argv[d->argc++] = d->name;
    }
    for (size_t i = 0; i < d->table.n; i++) {
        const struct domain_row *r = &d->table.row[i];
        if (r->kind != DOMAIN_OPTION)
            continue;
        char *word = option_word(r);
        if (!word)
            return false;
        d->argv[d->argc++] = word;
        d->argv[d->argc++] = (char *)(uintptr_t)r->field[1];
    }
    for (int i = 1; i < argc; i++)
        if (!dropped(a, i))
            d->argv[d->argc++] = argv[i];
    return true;
}

bool domain_command(struct domain_command *d, int argc, char **argv, const struct record_args *a,
                    int *code)
{
    struct err err = {0};
    *d = (struct domain_command){0};
    *code = EX_ERROR;
    if (ask(a, &d->table, &err)) {
        cmd_fail(&err);
        return false;
    }
    if (domain_table_one(&d->table, DOMAIN_ERROR)) {
        *code = tell_error(&d->table, a);
        return false;
    }
    tell(&d->table);
    if (domain_table_one(&d->table, DOMAIN_BUSY) && !a->dry_run) {
        *code = tell_busy(&d->table);
        return false;
    }
    if (!a->output && !a->dry_run) {
        fputs("reprise record: -o DIR is missing: where does the recording go?\n", stderr);
        *code = EX_BAD_USAGE;
        return false;
    }
    name_it(d);
    if (!build(d, argc, argv, a)) {
        err_set(&err, -ENOMEM, "no memory");
        cmd_fail(&err);
        return false;
    }
    *code = EX_FINE;
    return true;
}

void domain_print(const struct domain_command *d)
{
    fputs("reprise record", stdout);
    for (int i = 1; i < d->argc; i++) {
        fputc(' ', stdout);
        text_put_word(stdout, d->argv[i]);
    }
    fputc('\n', stdout);
}

void domain_command_free(struct domain_command *d)
{
    for (int i = 0; d->argv && i < d->argc; i++)
        for (size_t r = 0; r < d->table.n; r++)
            if (d->table.row[r].kind == DOMAIN_OPTION && d->argv[i] == d->table.row[r].field[1])
                free(d->argv[i - 1]);
    free(d->argv);
    domain_table_free(&d->table);
    *d = (struct domain_command){0};
}
