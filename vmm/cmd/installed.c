#define _GNU_SOURCE /* asprintf */
/* See installed.h. */
#include "cmd/installed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "cmd/run_place.h"
#include "host/companion.h"

/* From the program's directory: installed, in build/, in build/MODE/. */
static const char *const roots[] = {"../share/reprise/", "../", "../../"};

/* A file of ours, by its name in the source tree; malloc'ed. NULL with a text that says where it
 * was looked for, and what to do. */
static char *find(const char *name, struct err *err)
{
    char program[4096], *path = NULL;
    if (companion_beside("", program, sizeof(program), err))
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        if (asprintf(&path, "%s%s%s", program, roots[i], name) < 0) {
            err_set(err, -ENOMEM, "no memory");
            return NULL;
        }
        if (!access(path, R_OK))
            return path;
        free(path);
    }
    err_set(err, -ENOENT,
            "%s is missing, a part of reprise: it is not in %s%s, and this is no source tree. "
            "Install reprise anew",
            name, program, roots[0]);
    return NULL;
}

char *installed_images(struct err *err)
{
    const char *named = getenv("REPRISE_IMAGES");
    char program[4096], *path = NULL;
    if (named && *named) {
        path = strdup(named);
        if (!path)
            err_set(err, -ENOMEM, "no memory");
        return path;
    }
    if (companion_beside("", program, sizeof(program), err))
        return NULL;
    /* The makefile tells a source tree from the places where a program is installed. */
    int n = -1;
    for (int deep = 0; deep < 2 && n < 0; deep++) {
        if (asprintf(&path, "%s%smk/images.mk", program, deep ? "../../" : "../") < 0)
            break;
        bool tree = !access(path, R_OK);
        free(path);
        path = NULL;
        if (tree)
            n = asprintf(&path, "%s%simages", program, deep ? "../" : "");
    }
    if (n >= 0)
        return path;
    char *home = run_home("XDG_CACHE_HOME", ".cache", " ($REPRISE_IMAGES could)", false, err);
    if (home && asprintf(&path, "%s/images", home) < 0) {
        path = NULL;
        err_set(err, -ENOMEM, "no memory");
    }
    free(home);
    return path;
}

char *installed_image(const char *name, struct err *err)
{
    char *dir = installed_images(err), *path = NULL, *whole = NULL;
    if (!dir)
        return NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0 || asprintf(&whole, "%s/version", path) < 0) {
        err_set(err, -ENOMEM, "no memory");
    } else if (access(whole, R_OK)) {
        err_set(err, -ENOENT,
                "the image '%s' is not there (%s): `reprise image %s` makes it, of packages that "
                "are downloaded ($REPRISE_IMAGES names another directory of images)",
                name, path, name);
        free(path);
        path = NULL;
    }
    free(whole);
    free(dir);
    return path;
}

#define ARGS_MAX 32u

int installed_become(const char *name, const char *const *args, struct err *err)
{
    const char *argv[ARGS_MAX + 3] = {"sh"};
    char *script = find(name, err), program[4096];
    if (!script)
        return err->code;
    int code = companion_beside("reprise", program, sizeof(program), err);
    argv[1] = script;
    for (size_t i = 0; args[i]; i++) {
        CHECK(i < ARGS_MAX, "%s has more arguments than there is room for", name);
        argv[i + 2] = args[i];
    }
    if (!code && setenv("REPRISE", program, 1))
        code = err_set(err, -ENOMEM, "no memory");
    if (!code) {
        fflush(NULL);
        execv("/bin/sh", (char **)(uintptr_t)argv);
        code = err_errno(err, "cannot start /bin/sh for %s", script);
    }
    free(script);
    return code;
}
