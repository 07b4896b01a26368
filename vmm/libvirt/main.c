/*
 * reprise-libvirt: what a domain of libvirt's, or a file of its XML, becomes as a machine that is
 * recorded, as a table (host/domain_table.h). Started by reprise; by hand it prints the same.
 *
 * What may reach out (libvirt's library, a file that the user named) is done first. Then the
 * process locks itself in, and only then it looks at XML.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <libxml/xmlversion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libvirt/fetch.h"
#include "libvirt/plan.h"
#include "libvirt/sandbox.h"

struct job {
    bool check;
    const char *kind, *what;
};

/* All of a file that is named: at most XML_SIZE_MAX bytes, and one more. */
static int read_file(const char *name, char **out, size_t *size, struct err *err)
{
    int fd = strcmp(name, "-") ? open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
    char *bytes = fd < 0 ? NULL : malloc(XML_SIZE_MAX + 1);
    size_t n = 0;
    ssize_t got = 0;
    if (fd < 0)
        return err_errno(err, "it cannot be opened");
    if (!bytes)
        return err_set(err, -ENOMEM, "no memory");
    while (n <= XML_SIZE_MAX &&
           ((got = read(fd, bytes + n, XML_SIZE_MAX + 1 - n)) > 0 || (got < 0 && errno == EINTR)))
        n += got > 0 ? (size_t)got : 0;
    if (got < 0) {
        free(bytes);
        return err_errno(err, "it cannot be read");
    }
    *out = bytes;
    *size = n;
    return 0;
}

/* A table that says why there is none. */
static int fail(const char *text, const struct fetched *f)
{
    domain_row_print(stdout, DOMAIN_BEGIN, DOMAIN_TABLE_VERSION, NULL, NULL);
    domain_row_print(stdout, DOMAIN_ERROR, text, NULL, NULL);
    for (unsigned i = 0; i < f->n; i++)
        domain_row_print(stdout, DOMAIN_OTHER, f->names[i], NULL, NULL);
    domain_row_print(stdout, DOMAIN_END, NULL, NULL, NULL);
    return 1;
}

static int run(const struct job *job)
{
    struct fetched f = {0};
    struct err err = {0};
    bool file = !strcmp(job->kind, "file");
    int code =
        file ? read_file(job->what, &f.xml, &f.size, &err) : fetch_domain(&f, job->what, &err);
    if (!code)
        code = sandbox_enter(&err);
    if (code)
        code = fail(err.text, &f);
    else if (f.refused)
        code = fail(f.refused, &f);
    else
        code = plan_print(f.xml, f.size, f.networks, f.networks_size,
                          &(struct plan_facts){.uri = file ? NULL : f.uri, .running = f.running},
                          stdout)
                   ? 1
                   : 0;
    fetch_free(&f);
    return fflush(stdout) ? 1 : code;
}

static int check(void)
{
    printf("XML: libxml2 %s\n", LIBXML_DOTTED_VERSION);
    fflush(stdout);
    unsigned holes = sandbox_probe();
    printf("sandbox: %s\n", holes ? "does not hold" : "holds");
    return holes ? 1 : 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct job *job = state->input;
    switch (key) {
    case 'c': job->check = true; return 0;
    case ARGP_KEY_ARG:
        if (!job->kind && strcmp(arg, "domain") && strcmp(arg, "file"))
            argp_error(state, "'%s' is neither domain nor file", arg);
        if (job->what)
            argp_error(state, "unexpected argument '%s'", arg);
        *(job->kind ? &job->what : &job->kind) = arg;
        return 0;
    case ARGP_KEY_END:
        if (!job->check && !job->what)
            argp_usage(state);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"check", 'c', NULL, 0, "say which libxml2 this is and what the sandbox refuses, and end",
         0},
        {0},
    };
    static const struct argp argp = {
        options,
        parse,
        "domain [URI/]DOMAIN\nfile FILE",
        "What a domain of libvirt's becomes as a machine that `reprise record --libvirt` records, "
        "as a table. Started by reprise.",
        NULL,
        NULL,
        NULL};
    struct job job = {0};
    if (argp_parse(&argp, argc, argv, 0, NULL, &job))
        return 2;
    return job.check ? check() : run(&job);
}
