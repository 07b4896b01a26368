/* What kind of domain, its memory, CPUs and clock: see plan.h. */
#include "libvirt/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "board/description.h"

#define MEMORY_STEP (2ull << 20)
#define MEMORY_MOST (1ull << 40) /* more is no machine's that this runs on */

int take_kind(struct plan *p, struct err *err)
{
    char type[64], arch[64], os[64];
    xmlNodePtr what = xml_find(p->domain, "os/type");
    xml_attribute(p->domain, "type", type, sizeof(type));
    xml_attribute(what, "arch", arch, sizeof(arch));
    xml_text(what, os, sizeof(os));
    if (!*type)
        return err_set(err, -EINVAL, "the domain has no type (<domain type='kvm'>)");
    if (!xml_one_of(type, "kvm|qemu|test"))
        return err_set(
            err, -ENOTSUP,
            "it is a domain of type '%s': machines of the types kvm and qemu can be recorded "
            "(containers and those of other hypervisors not)",
            type);
    if (!what || !*os)
        return err_set(err, -EINVAL,
                       "the domain does not say what it runs (<os><type>hvm</type></os>)");
    if (strcmp(os, "hvm"))
        return err_set(err, -ENOTSUP, "it runs '%s', and not a whole machine (hvm)", os);
    if (*arch && !xml_one_of(arch, "x86_64|i686"))
        return err_set(
            err, -ENOTSUP,
            "it is a machine with the architecture '%s': only x86_64 and i686 can be recorded",
            arch);
    return 0;
}

static void take_memory(struct plan *p)
{
    char value[32];
    u64 bytes = 0, now = 0;
    xmlNodePtr memory = xml_find(p->domain, "memory"),
               current = xml_find(p->domain, "currentMemory");
    if (!memory)
        memory = current;
    if (!memory) {
        plan_left(p, "<memory>", "the domain does not say how much it has: it gets 512M",
                  "--memory SIZE");
        return;
    }
    if (!xml_size(memory, &bytes) || !bytes || bytes > MEMORY_MOST) {
        plan_left(p, "<memory>", "its size is no number of bytes from 1 to 1T: it gets 512M",
                  "--memory SIZE");
        return;
    }
    u64 size = (bytes + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP;
    snprintf(value, sizeof(value), "%" PRIu64 "M", size >> 20);
    plan_option(p, "memory", value, "<memory>");
    if (current && current != memory && xml_size(current, &now) && now < bytes)
        plan_otherwise(p, "<currentMemory>", "the guest has all of <memory> from the beginning",
                       "--memory SIZE, if it is to have less");
}

static u64 count(const xmlNode *node, const char *name)
{
    char text[32];
    u64 n;
    xml_attribute(node, name, text, sizeof(text));
    return *text && xml_number(text, &n) ? n : 1;
}

/* ",cores=N,threads=N" of --cpus, or why not. */
static void take_topology(struct plan *p, u64 cpus, u64 most, char *out, size_t size)
{
    xmlNodePtr t = xml_find(p->domain, "cpu/topology");
    u64 sockets = count(t, "sockets"), dies = count(t, "dies"), clusters = count(t, "clusters");
    u64 cores = count(t, "cores"), threads = count(t, "threads"), all = 1;
    const u64 parts[] = {sockets, dies, clusters, cores, threads};
    snprintf(out, size, ",cores=1"); /* as QEMU has it: a package each */
    if (!t)
        return;
    bool good = true;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (__builtin_mul_overflow(all, parts[i], &all))
            good = false;
    if (!good || all != most || cpus != most) {
        out[0] = 0;
        plan_otherwise(p, "<topology>", "all CPUs are cores of one package",
                       "--cpus N,cores=N,threads=N: whole packages");
        return;
    }
    if (dies > 1 || clusters > 1)
        plan_otherwise(p, "<topology>", "dies and clusters are one: their cores are the package's",
                       "nothing");
    snprintf(out, size, ",cores=%" PRIu64 ",threads=%" PRIu64, dies * clusters * cores, threads);
}

static void take_cpus(struct plan *p)
{
    char text[32], value[96], parts[64];
    u64 most = 1, now;
    xmlNodePtr vcpu = xml_find(p->domain, "vcpu");
    if (vcpu && (!xml_number(xml_text(vcpu, text, sizeof(text)), &most) || !most)) {
        plan_left(p, "<vcpu>", "it is no number from 1 on: there is one CPU", "--cpus N");
        most = 1;
    }
    now = most;
    if (xml_has(vcpu, "current")) {
        xml_attribute(vcpu, "current", text, sizeof(text));
        if (!xml_number(text, &now) || !now || now > most)
            now = most;
        if (now != most)
            plan_otherwise(p, "<vcpu>", "the guest has those that it begins with, and no more come",
                           "--cpus N for all of them");
    }
    if (now > DESCRIPTION_CPUS_MAX) {
        plan_otherwise(p, "<vcpu>", "a machine has 32 CPUs at most", "nothing");
        now = DESCRIPTION_CPUS_MAX;
    }
    if (now == 1 && most == 1)
        return;
    parts[0] = 0;
    if (now > 1)
        take_topology(p, now, most, parts, sizeof(parts));
    snprintf(value, sizeof(value), "%" PRIu64 "%s", now, parts);
    plan_option(p, "cpus", value, "<vcpu>");
}

static void take_timer(struct plan *p, xmlNodePtr timer)
{
    char what[160];
    bool there = !xml_is(timer, "present", "no");
    plan_what(timer, what, sizeof(what));
    if (there && xml_is(timer, "name", "hpet|platform"))
        plan_left(p, what, "the machine has no HPET", "nothing: it has better clocks");
    else if (there && xml_is(timer, "name", "hypervclock|kvmclock"))
        plan_left(p, what, "the machine has no clock of a hypervisor's",
                  "nothing: its TSC never drifts");
    else if (xml_has(timer, "frequency") || xml_is(timer, "mode", "emulate|paravirt|smpsafe"))
        plan_otherwise(p, what, "the TSC counts virtual nanoseconds: 1 GHz", "nothing");
    else if (!xml_is(timer, "name", "rtc|pit|tsc|hpet|platform|hypervclock|kvmclock|armvtimer"))
        plan_left(p, what, "this version knows no such clock", "nothing");
}

static void take_clock(struct plan *p)
{
    char start[32], value[40];
    u64 at;
    xmlNodePtr clock = xml_find(p->domain, "clock");
    if (!clock)
        return;
    if (xml_is(clock, "offset", "absolute") &&
        xml_number(xml_attribute(clock, "start", start, sizeof(start)), &at)) {
        snprintf(value, sizeof(value), "@%" PRIu64, at);
        plan_option(p, "wall-clock", value, "<clock>");
    } else if (!xml_is(clock, "offset", "utc") &&
               !(xml_is(clock, "offset", "variable") && !xml_is(clock, "basis", "localtime") &&
                 (!xml_has(clock, "adjustment") || xml_is(clock, "adjustment", "0")))) {
        plan_otherwise(p, "<clock>",
                       "the guest's hardware clock shows UTC, from when it was recorded",
                       "--wall-clock TIME for another time");
    }
    for (xmlNodePtr t = xml_find(clock, "timer"); t; t = xml_next(t))
        take_timer(p, t);
}

void take_machine(struct plan *p)
{
    take_memory(p);
    take_cpus(p);
    take_clock(p);
}
