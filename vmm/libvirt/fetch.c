/* See fetch.h. */
#define _GNU_SOURCE
#include "libvirt/fetch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_io.h"
#include "libvirt/xml.h"

#define LIBRARY  "libvirt.so.0"
#define NETWORKS 64
#define TEXT_MAX 4096u

struct api {
#define API(name) __typeof__(name) *name;
#include "libvirt/libvirt_api.def"
};

/* What comes through the pipe: a head, and so many bytes. */
enum fetch_kind {
    FETCH_XML,
    FETCH_NETWORKS,
    FETCH_URI,
    FETCH_RUNNING,
    FETCH_REFUSED,
    FETCH_NAME,
    FETCH_KINDS
};
struct fetch_head {
    u32 kind, size;
};
static const u32 most[FETCH_KINDS] = {
    [FETCH_XML] = XML_SIZE_MAX, [FETCH_NETWORKS] = XML_SIZE_MAX, [FETCH_URI] = TEXT_MAX,
    [FETCH_RUNNING] = 0,        [FETCH_REFUSED] = TEXT_MAX,      [FETCH_NAME] = TEXT_MAX};

/* ---- the process that asks ---- */

/* More than can be taken is told as such. */
static void say(int out, enum fetch_kind kind, const char *text)
{
    struct fetch_head head = {kind, (u32)MIN(strlen(text), (size_t)UINT32_MAX)};
    if (head.size > most[kind])
        head = (struct fetch_head){FETCH_REFUSED, 0};
    if (!file_write_on(out, &head, sizeof(head)) || !file_write_on(out, text, head.size))
        _exit(1);
}

static void refuse(int out, const char *format, ...) PRINTF(2, 3);
static void refuse(int out, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    say(out, FETCH_REFUSED, text);
    _exit(0);
}

static void say_nothing(void *opaque, virErrorPtr error)
{
    (void)opaque;
    (void)error;
}

static void load(struct api *api, int out)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        refuse(out,
               "libvirt is not installed here (%s): the Debian package libvirt0 has it, and what "
               "runs the domains, libvirt-daemon-system",
               dlerror());
#define API(name)                                                                                  \
    api->name = (__typeof__(name) *)dlsym(library, #name);                                         \
    if (!api->name)                                                                                \
        refuse(out, "libvirt's library is too old: it has no %s", #name);
#include "libvirt/libvirt_api.def"
    api->virInitialize();
    api->virSetErrorFunc(NULL, say_nothing);
}

static void say_names(const struct api *api, virConnectPtr at, int out)
{
    virDomainPtr *domain = NULL;
    int n = api->virConnectListAllDomains(at, &domain, 0);
    for (int i = 0; i < n && i < (int)FETCH_NAMES; i++)
        say(out, FETCH_NAME, api->virDomainGetName(domain[i]));
}

static void say_networks(const struct api *api, virConnectPtr at, int out)
{
    virNetworkPtr *network = NULL;
    char *all = NULL;
    size_t size;
    int n = api->virConnectListAllNetworks(at, &network, 0);
    FILE *text = open_memstream(&all, &size);
    if (n <= 0 || !text)
        return;
    fputs("<networks>", text);
    for (int i = 0; i < n && i < NETWORKS; i++) {
        char *xml = api->virNetworkGetXMLDesc(network[i], 0);
        fputs(xml ? xml : "", text);
    }
    fputs("</networks>", text);
    if (!fclose(text) && size <= XML_SIZE_MAX)
        say(out, FETCH_NETWORKS, all);
}

static void ask(const char *uri, const char *name, int out)
{
    struct api api;
    int state = VIR_DOMAIN_NOSTATE, reason;
    load(&api, out);
    virConnectPtr at = api.virConnectOpenReadOnly(uri);
    if (!at)
        refuse(out, "libvirt%s%s cannot be asked: %s. (`virsh -r%s%s list --all` asks the same)",
               uri ? " at " : "", uri ? uri : "", api.virGetLastErrorMessage(), uri ? " -c " : "",
               uri ? uri : "");
    char *is = api.virConnectGetURI(at);
    say(out, FETCH_URI, is ? is : uri ? uri : "");
    virDomainPtr domain = api.virDomainLookupByName(at, name);
    if (!domain && api.virGetLastErrorCode() != VIR_ERR_NO_DOMAIN)
        refuse(out, "libvirt does not say whether there is a domain '%s': %s", name,
               api.virGetLastErrorMessage());
    if (!domain)
        domain = api.virDomainLookupByUUIDString(at, name);
    if (!domain) {
        say_names(&api, at, out);
        refuse(out, "there is no domain '%s' at %s", name, is ? is : "libvirt");
    }
    char *xml = api.virDomainGetXMLDesc(domain, 0);
    if (!xml)
        refuse(out, "libvirt does not describe the domain: %s", api.virGetLastErrorMessage());
    if (api.virDomainGetState(domain, &state, &reason, 0))
        refuse(out, "libvirt does not say whether the domain runs: %s",
               api.virGetLastErrorMessage());
    if (state != VIR_DOMAIN_SHUTOFF && state != VIR_DOMAIN_CRASHED)
        say(out, FETCH_RUNNING, "");
    say_networks(&api, at, out);
    say(out, FETCH_XML, xml);
    /* What it holds goes with the process. */
    _exit(0);
}

/* ---- the one that is told ---- */

static bool take(struct fetched *f, enum fetch_kind kind, char *text, size_t size)
{
    char **to = kind == FETCH_XML                          ? &f->xml
                : kind == FETCH_NETWORKS                   ? &f->networks
                : kind == FETCH_URI                        ? &f->uri
                : kind == FETCH_REFUSED                    ? &f->refused
                : kind == FETCH_NAME && f->n < FETCH_NAMES ? &f->names[f->n++]
                                                           : NULL;
    if (kind == FETCH_RUNNING)
        f->running = true;
    if (kind == FETCH_XML)
        f->size = size;
    if (kind == FETCH_NETWORKS)
        f->networks_size = size;
    if (!to || *to) {
        free(text);
        return kind == FETCH_RUNNING;
    }
    *to = text;
    return true;
}

static bool collect(struct fetched *f, int in)
{
    struct fetch_head head;
    while (file_read_on(in, &head, sizeof(head))) {
        char *text = head.kind < FETCH_KINDS && head.size <= most[head.kind]
                         ? malloc((size_t)head.size + 1)
                         : NULL;
        if (!text)
            return false;
        if (!file_read_on(in, text, head.size)) {
            free(text);
            return false;
        }
        text[head.size] = 0;
        if (!take(f, (enum fetch_kind)head.kind, text, head.size))
            return false;
    }
    return f->xml || f->refused;
}

int fetch_domain(struct fetched *f, const char *where, struct err *err)
{
    const char *slash = strrchr(where, '/');
    char *uri = slash ? strndup(where, (size_t)(slash - where)) : NULL;
    const char *name = slash ? slash + 1 : where;
    int pair[2];
    *f = (struct fetched){0};
    if (!*name || (slash && !*uri))
        return err_set(
            err, -EINVAL,
            "'%s' is no [URI/]DOMAIN: as web, qemu:///system/web or test:///default/test", where);
    pid_t parent = getpid(), child = pipe2(pair, O_CLOEXEC) ? -1 : fork();
    if (!child) {
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
            _exit(1);
        close(pair[0]);
        ask(uri, name, pair[1]);
    }
    free(uri);
    if (child < 0)
        return err_errno(err, "cannot start a process");
    close(pair[1]);
    bool good = collect(f, pair[0]);
    close(pair[0]);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return good ? 0 : err_set(err, -EIO, "the process that asks libvirt ended too early");
}

void fetch_free(struct fetched *f)
{
    for (unsigned i = 0; i < f->n; i++)
        free(f->names[i]);
    free(f->xml);
    free(f->networks);
    free(f->uri);
    free(f->refused);
    *f = (struct fetched){0};
}
