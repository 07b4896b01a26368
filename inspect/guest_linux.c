/* VMCOREINFO and what else is known of a Linux guest at once (guest_linux.h). */
#define _GNU_SOURCE /* memmem */
#include "inspect/guest_linux.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "board/ram.h"
#include "machine/machine.h"
#include "inspect/btf.h"
#include "inspect/frames.h"
#include "inspect/kallsyms.h"
#include "inspect/orc.h"

#define NARROW_RESERVE (128u << 20) /* of a kernel of 32 bits, above its direct map */

/* ---- memory ---- */

static bool peek_machine(void *opaque, gva_t va, void *out, size_t len)
{
    return machine_peek(opaque, va, out, len);
}

void guest_memory_init(struct guest_memory *mem, struct machine *m)
{
    *mem = (struct guest_memory){.ram = machine_ram(m), .peek = peek_machine, .opaque = m};
}

/* Within one page. */
static bool read_page(const struct guest_linux *g, gva_t va, void *out, size_t len)
{
    if (g->narrow && va >> 32)
        return false;
    if (g->memory.peek(g->memory.opaque, va, out, len))
        return true;
    if (!g->has_phys_base || va < g->map || (g->narrow && va >= (1ull << 32) - NARROW_RESERVE))
        return false;
    const void *p = ram_ptr(g->memory.ram, va - g->map + g->phys_base, len);
    if (p)
        memcpy(out, p, len);
    return p;
}

bool guest_linux_read(const struct guest_linux *g, gva_t va, void *out, size_t len)
{
    u8 *to = out;
    if (va + len < va)
        return false;
    while (len) {
        size_t n = MIN(len, PAGE_SIZE - (va & (PAGE_SIZE - 1)));
        if (!read_page(g, va, to, n))
            return false;
        to += n;
        va += n;
        len -= n;
    }
    return true;
}

bool guest_linux_word(const struct guest_linux *g, gva_t va, u64 *out)
{
    *out = 0;
    return guest_linux_read(g, va, out, g->narrow ? 4 : 8);
}

/* ---- VMCOREINFO ---- */

/* The value of a line KEY=VALUE of VMCOREINFO, copied with a NUL; false if missing or too long. */
static bool guest_linux_value(const struct guest_linux *g, const char *key, char *out, size_t size)
{
    size_t len = strlen(key);
    for (const char *line = g->vmcoreinfo; line && *line;) {
        size_t n = strcspn(line, "\n");
        if (n > len && !memcmp(line, key, len) && line[len] == '=') {
            size_t value = n - len - 1;
            if (value >= size)
                return false;
            memcpy(out, line + len + 1, value);
            out[value] = 0;
            return true;
        }
        line += n + (line[n] == '\n');
    }
    return false;
}

bool guest_linux_number(const struct guest_linux *g, const char *key, int base, u64 *out)
{
    char text[32], *end;
    if (!guest_linux_value(g, key, text, sizeof(text)))
        return false;
    errno = 0;
    *out = text[0] == '-' ? (u64)strtoll(text, &end, base) : strtoull(text, &end, base);
    return !errno && end != text && !*end;
}

/* Lines of text up to a NUL or the page's end, in a page of its own. */
static size_t vmcoreinfo_length(const char *page)
{
    size_t n = strnlen(page, PAGE_SIZE);
    for (size_t i = 0; i < n; i++)
        if (page[i] != '\n' && (page[i] < ' ' || page[i] > '~'))
            return 0;
    return n;
}

/* Where the direct map of a kernel of 32 bits may begin (CONFIG_PAGE_OFFSET). */
static const u32 page_offsets[] = {0xc0000000, 0xb0000000, 0x80000000, 0x78000000, 0x40000000};

/* The one by which these bytes of the kernel's image are at `va`. */
static void find_page_offset(struct guest_linux *g, gva_t va, const void *bytes, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(page_offsets) && !g->has_phys_base; i++) {
        const void *p =
            va < page_offsets[i] ? NULL : ram_ptr(g->memory.ram, va - page_offsets[i], len);
        g->has_phys_base = p && !memcmp(p, bytes, len);
        g->map = page_offsets[i];
    }
}

/* The release stands in init_uts_ns. */
static bool has_release(const struct guest_linux *g, u64 uts, const char *release)
{
    char name[1024];
    return guest_linux_read(g, uts, name, sizeof(name)) &&
           memmem(name, sizeof(name), release, strlen(release) + 1);
}

/* The text is about the kernel that is in memory. */
static bool vmcoreinfo_is_true(struct guest_linux *g)
{
    char release[128], name[1024];
    u64 uts, page, list;
    g->narrow = guest_linux_number(g, "OFFSET(list_head.prev)", 10, &list) && list == 4;
    g->has_phys_base = !g->narrow && guest_linux_number(g, "NUMBER(phys_base)", 10, &g->phys_base);
    g->map = KERNEL_MAP;
    if (!guest_linux_number(g, "PAGESIZE", 10, &page) || page != PAGE_SIZE ||
        !guest_linux_value(g, "OSRELEASE", release, sizeof(release)) || !release[0] ||
        !guest_linux_number(g, "SYMBOL(init_uts_ns)", 16, &uts))
        return false;
    g->phys_base = g->has_phys_base ? g->phys_base : 0;
    if (!g->narrow)
        return has_release(g, uts, release);
    if (guest_linux_read(g, uts, name, sizeof(name)))
        find_page_offset(g, uts, name, sizeof(name));
    for (size_t i = 0; i < ARRAY_SIZE(page_offsets) && !g->has_phys_base; i++) {
        g->map = page_offsets[i];
        g->has_phys_base = true;
        g->has_phys_base = has_release(g, uts, release);
    }
    return has_release(g, uts, release);
}

/* Takes the page if it is VMCOREINFO. */
static int try_page(struct guest_linux *g, const char *page, bool *found, struct err *err)
{
    size_t len = vmcoreinfo_length(page);
    if (!len)
        return 0;
    char *text = malloc(len + 1);
    if (!text)
        return err_set(err, -ENOMEM, "no memory for the guest's VMCOREINFO");
    memcpy(text, page, len);
    text[len] = 0;
    free(g->vmcoreinfo);
    g->vmcoreinfo = text;
    g->vmcoreinfo_size = len;
    *found = vmcoreinfo_is_true(g);
    return 0;
}

int guest_linux_open(struct guest_linux *g, const struct guest_memory *mem, struct err *err)
{
    static const char first[] = "OSRELEASE=";
    const struct ram *ram = mem->ram;
    unsigned candidates = 0;
    bool found = false;
    int code = 0;
    *g = (struct guest_linux){.memory = *mem};
    for (u64 at = 0; !code && !found && at < ram->size; at += GUEST_REGION) {
        u64 end = MIN(at + GUEST_REGION, ram->size);
        if (ram_untouched(ram, at, end - at))
            continue;
        for (u64 page = at; !code && !found && page + PAGE_SIZE <= end; page += PAGE_SIZE)
            if (!memcmp(ram->host + page, first, sizeof(first) - 1) &&
                candidates++ < GUEST_CANDIDATES)
                code = try_page(g, (const char *)ram->host + page, &found, err);
    }
    if (!code && !found) {
        free(g->vmcoreinfo);
        g->vmcoreinfo = strdup("");
        g->vmcoreinfo_size = 0;
        g->has_phys_base = g->narrow = false;
        g->map = KERNEL_MAP;
        if (!g->vmcoreinfo)
            code = err_set(err, -ENOMEM, "no memory for the guest's VMCOREINFO");
    }
    if (code)
        guest_linux_close(g);
    return code;
}

void guest_linux_close(struct guest_linux *g)
{
    free(g->vmcoreinfo);
    *g = (struct guest_linux){0};
}
/* ---- all of it ---- */

/* The one that the kernel's code is not far above. */
static u64 likely_page_offset(const struct symbols *s)
{
    u64 text = 0;
    if (!symbols_address(s, "_text", &text))
        symbols_address(s, "_stext", &text);
    for (size_t i = 0; i < ARRAY_SIZE(page_offsets); i++)
        if (text >= page_offsets[i])
            return page_offsets[i];
    return SYMBOLS_FLOOR_32;
}

/* Release and build ID; where VMCOREINFO does not say it, phys_base, if it is what it is without
 * address randomisation. */
static void describe(struct guest_linux *g, struct symbols *s)
{
    static const char begins[] = "Linux version ";
    char id[2 * sizeof(s->build_id) + 1], banner[sizeof(begins) + 64] = "";
    u64 address;
    unsigned byte;
    if (guest_linux_value(g, "BUILD-ID", id, sizeof(id)))
        for (const char *p = id;
             s->build_id_size < sizeof(s->build_id) && sscanf(p, "%2x", &byte) == 1 && p[1]; p += 2)
            s->build_id[s->build_id_size++] = (u8)byte;
    g->narrow = s->narrow;
    if (s->narrow && !g->has_phys_base && symbols_address(s, "_stext", &address) &&
        guest_linux_read(g, address, banner, sizeof(banner) - 1))
        find_page_offset(g, address, banner, sizeof(banner) - 1);
    if (s->narrow)
        s->floor = g->has_phys_base ? g->map : likely_page_offset(s);
    if (guest_linux_value(g, "OSRELEASE", s->release, sizeof(s->release)) ||
        !symbols_address(s, "linux_banner", &address))
        return;
    if (!g->has_phys_base && !g->narrow) {
        const void *p = address < KERNEL_MAP
                            ? NULL
                            : ram_ptr(g->memory.ram, address - KERNEL_MAP, sizeof(banner) - 1);
        g->has_phys_base = p && !memcmp(p, begins, sizeof(begins) - 1);
        g->phys_base = 0;
    }
    if (guest_linux_read(g, address, banner, sizeof(banner) - 1) &&
        !memcmp(banner, begins, sizeof(begins) - 1))
        snprintf(s->release, sizeof(s->release), "%.*s",
                 (int)strcspn(banner + sizeof(begins) - 1, " \n"), banner + sizeof(begins) - 1);
}

int guest_linux_kernel(struct guest_linux *g, struct symbols *out, struct err *err)
{
    struct kallsyms t;
    int code = 0;
    symbols_init(out);
    bool named = kallsyms_by_name(g, &t);
    if (named)
        code = kallsyms_decode(g, &t, out, err);
    if (!named || code == -EINVAL) { /* a forged VMCOREINFO may have come first */
        symbols_free(out);
        if (kallsyms_by_shape(g, &t))
            code = kallsyms_decode(g, &t, out, err);
        else if (!named)
            code = err_set(err, -ENOENT,
                           "no Linux kernel is to be seen in the guest's memory at this position: "
                           "neither VMCOREINFO (kernel not booted far enough?) nor its symbol "
                           "table; try a later point");
    }
    if (code)
        symbols_free(out);
    return code;
}

int guest_linux_symbols(struct guest_linux *g, struct symbols *out, struct err *err)
{
    int code = guest_linux_kernel(g, out, err);
    if (!code) {
        describe(g, out);
        code = out->narrow ? frames_read(out, g, err) : orc_read(out, g, err);
        if (!code)
            code = guest_modules_add(g, out, err);
        orc_finish(out);
    }
    if (code)
        symbols_free(out);
    return code;
}

int guest_symbols_read(struct symbols *out, struct machine *m, struct err *err)
{
    struct guest_memory mem;
    struct guest_linux g;
    symbols_init(out);
    guest_memory_init(&mem, m);
    int code = guest_linux_open(&g, &mem, err);
    if (!code)
        code = guest_linux_symbols(&g, out, err);
    guest_linux_close(&g);
    return code;
}
