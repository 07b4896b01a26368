/*
 * Registers and memory. A write is first checked completely, so that one that is refused leaves no
 * trace and forks no branch; and one that changes nothing is no write.
 */
#include <string.h>

#include "cpu/vcpu.h"
#include "replay/gdb/regs.h"
#include "replay/gdb/server.h"

static void fail(struct gdb_server *s)
{
    reply_text(&s->reply, "E01");
}

static bool of_process(struct gdb_server *s, const struct gdb_thread **list, size_t *count,
                       i32 *now)
{
    return s->target.threads && s->target.threads(s->target.opaque, list, count, now);
}

const struct gdb_thread *access_threads(struct gdb_server *s, size_t *count, i32 *now)
{
    const struct gdb_thread *list;
    if (of_process(s, &list, count, now))
        return list;
    struct machine *m = s->target.machine(s->target.opaque);
    *count = machine_cpus(m);
    *now = THREAD + (i32)machine_turn(m);
    for (size_t i = 0; i < *count; i++)
        s->cpus[i] = (struct gdb_thread){.id = THREAD + (i32)i, .process = THREAD};
    return s->cpus;
}

static bool shows_process(struct gdb_server *s)
{
    const struct gdb_thread *list;
    size_t count;
    i32 now;
    return of_process(s, &list, &count, &now);
}

/* As the vCPU sees it that gdb has selected. */
static struct machine *machine(struct gdb_server *s)
{
    struct machine *m = s->target.machine(s->target.opaque);
    bool selected = machine_cpus(m) > 1 && s->thread && !shows_process(s);
    machine_look_at(m, selected ? (unsigned)(s->thread - THREAD) : machine_turn(m));
    return m;
}

bool access_thread(struct gdb_server *s, i32 id, struct vcpu *out, bool *fpu, u64 *call)
{
    const struct gdb_thread *list;
    size_t count;
    i32 now;
    *fpu = true;
    *call = ~0ull;
    if (of_process(s, &list, &count, &now))
        return s->target.thread(s->target.opaque, id > 0 ? id : now, out, fpu, call);
    struct machine *m = machine(s);
    if (id > 0)
        machine_look_at(m, (unsigned)(id - THREAD));
    memcpy(out, machine_vcpu(m), sizeof(*out));
    return true;
}

/* Nothing of a process is written; the reply says so. */
static bool only_looked_at(struct gdb_server *s)
{
    bool process = shows_process(s);
    if (process)
        reply_error(&s->reply, "a process that is shown by itself is only looked at; without "
                               "--process a write begins a what-if branch");
    return process;
}

/* The machine that a write goes to; NULL: refused, the reply says why. */
static struct machine *machine_to_write(struct gdb_server *s)
{
    struct err err = {0};
    if (only_looked_at(s))
        return NULL;
    if (s->target.before_write && s->target.before_write(s->target.opaque, &err) < 0) {
        reply_error(&s->reply, err.text);
        return NULL;
    }
    return machine(s);
}

unsigned access_view(struct gdb_server *s)
{
    struct vcpu c;
    u64 call;
    bool fpu;
    unsigned vectors = (machine_cpu_has(machine(s), FEAT_AVX) ? GDB_VIEW_AVX : 0) |
                       (machine_cpu_has(machine(s), FEAT_AVX512F) ? GDB_VIEW_AVX512 : 0);
    if (!shows_process(s))
        return gdb_view(machine_vcpu(machine(s)), vectors);
    if (!access_thread(s, s->thread, &c, &fpu, &call))
        return s->view ? s->view : GDB_VIEW_PROCESS | vectors;
    return (gdb_view(&c, vectors) & ~GDB_VIEW_LONG) | GDB_VIEW_PROCESS;
}

void access_look(struct gdb_server *s)
{
    s->view = access_view(s);
}

/* ---- registers ---- */

/* `c`: NULL: of a thread whose registers are not known. */
static void put_register(struct gdb_server *s, const struct vcpu *c, bool fpu,
                         const struct gdb_beside *beside, unsigned number)
{
    u8 bytes[GDB_REG_SIZE];
    unsigned size = gdb_reg_find(number, s->view)->bits / 8;
    if (c && (fpu || !gdb_reg_is_fpu(number)) && gdb_reg_read(c, beside, number, bytes))
        reply_hex(&s->reply, bytes, size);
    else
        for (unsigned i = 0; i < size; i++)
            reply_format(&s->reply, "xx");
}

void access_read_registers(struct gdb_server *s)
{
    struct vcpu c;
    struct gdb_beside beside;
    gdb_beside_read(&beside, &s->target, GDB_REGISTERS);
    bool fpu, known = access_thread(s, s->thread, &c, &fpu, &beside.call);
    for (unsigned n = 0; n < GDB_REGISTERS; n++)
        if (gdb_reg_find(n, s->view))
            put_register(s, known ? &c : NULL, fpu, &beside, n);
}

void access_read_register(struct gdb_server *s, const char *text)
{
    struct gdb_beside beside;
    struct vcpu c;
    bool fpu;
    u64 number;
    if (!parse_hex(&text, &number) || *text || !gdb_reg_find(number, s->view)) {
        fail(s);
        return;
    }
    gdb_beside_read(&beside, &s->target, (unsigned)number);
    bool known = access_thread(s, s->thread, &c, &fpu, &beside.call);
    put_register(s, known ? &c : NULL, fpu, &beside, (unsigned)number);
}

/* Makes `to` the vCPU's state; `from` is what it was copied from. */
static bool commit(struct gdb_server *s, const struct vcpu *to)
{
    if (!memcmp(machine_vcpu(machine(s)), to, sizeof(*to)))
        return true;
    struct machine *m = machine_to_write(s);
    if (!m)
        return false;
    memcpy(machine_vcpu_edit(m), to, sizeof(*to));
    machine_vcpu_edited(m);
    return true;
}

/* Changes the copy `c` to the register's value in hex. */
static bool set_register(struct gdb_server *s, struct vcpu *c, unsigned number, const char *digits)
{
    u8 bytes[GDB_REG_SIZE];
    struct gdb_beside beside;
    struct err err;
    if (!parse_bytes(digits, bytes, gdb_reg_find(number, s->view)->bits / 8)) {
        fail(s);
        return false;
    }
    gdb_beside_read(&beside, &s->target, number);
    if (gdb_reg_write_view(c, &beside, number, s->view, bytes, &err) < 0) {
        reply_error(&s->reply, err.text);
        return false;
    }
    return true;
}

void access_write_registers(struct gdb_server *s, const char *text, size_t len)
{
    struct vcpu c;
    size_t expected = 0;
    for (unsigned n = 0; n < GDB_REGISTERS; n++)
        expected += gdb_reg_find(n, s->view) ? gdb_reg_find(n, s->view)->bits / 4u : 0;
    if (len != expected) {
        fail(s);
        return;
    }
    if (only_looked_at(s))
        return;
    memcpy(&c, machine_vcpu(machine(s)), sizeof(c));
    for (unsigned n = 0; n < GDB_REGISTERS; n++) {
        const struct gdb_reg *r = gdb_reg_find(n, s->view);
        if (!r)
            continue;
        if (*text != 'x' && !set_register(s, &c, n, text)) /* x: what was not known stays so */
            return;
        text += r->bits / 4;
    }
    if (commit(s, &c))
        reply_text(&s->reply, "OK");
}

void access_write_register(struct gdb_server *s, const char *text)
{
    struct vcpu c;
    u64 number;
    const struct gdb_reg *r;
    if (!parse_hex(&text, &number) || !parse_char(&text, '=') ||
        !(r = gdb_reg_find(number, s->view)) || strlen(text) != r->bits / 4u) {
        fail(s);
        return;
    }
    if (only_looked_at(s))
        return;
    memcpy(&c, machine_vcpu(machine(s)), sizeof(c));
    if (set_register(s, &c, (unsigned)number, text) && commit(s, &c))
        reply_text(&s->reply, "OK");
}

bool access_jump(struct gdb_server *s, u64 address)
{
    struct vcpu c;
    struct gdb_beside beside = {0};
    struct err err;
    if (only_looked_at(s))
        return false;
    memcpy(&c, machine_vcpu(machine(s)), sizeof(c));
    if (gdb_reg_write(&c, &beside, GDB_RIP, (const u8 *)&address, &err) < 0) {
        reply_error(&s->reply, err.text);
        return false;
    }
    return commit(s, &c);
}

/* ---- memory ---- */

static bool peek(struct gdb_server *s, u64 address, u8 *out, size_t len)
{
    if (s->physical)
        return machine_peek_physical(machine(s), address, out, len);
    return shows_process(s) ? s->target.peek(s->target.opaque, s->thread, address, out, len)
                            : machine_peek(machine(s), address, out, len);
}

/* Up to the end of the page that `address` is in. */
static size_t page_rest(u64 address, size_t len)
{
    return MIN(len, PAGE_SIZE - (size_t)(address & (PAGE_SIZE - 1)));
}

/* Reads up to the first page that cannot be read, or the end of the address space. */
static size_t read_some(struct gdb_server *s, u64 address, u8 *out, size_t len)
{
    size_t done = 0;
    while (done < len && address + done >= address) {
        size_t part = page_rest(address + done, len - done);
        if (!peek(s, address + done, out + done, part))
            break;
        done += part;
    }
    return done;
}

void access_read_memory(struct gdb_server *s, const char *text, bool binary)
{
    u64 address, len;
    if (!parse_hex(&text, &address) || !parse_char(&text, ',') || !parse_hex(&text, &len) ||
        *text) {
        fail(s);
        return;
    }
    size_t some = read_some(s, address, s->bytes, MIN(len, sizeof(s->bytes) / 2));
    if (len && !some) {
        fail(s);
    } else if (binary) {
        reply_text(&s->reply, "b");
        reply_binary(&s->reply, s->bytes, some);
    } else {
        reply_hex(&s->reply, s->bytes, some);
    }
}

static void write_memory(struct gdb_server *s, u64 address, const u8 *data, size_t len)
{
    u8 now[PAGE_SIZE];
    bool same = true;
    for (size_t done = 0; done < len;) {
        size_t part = page_rest(address + done, len - done);
        if (address + done < address || !peek(s, address + done, now, part)) {
            fail(s);
            return;
        }
        same = same && !memcmp(now, data + done, part);
        done += part;
    }
    struct machine *m = same ? NULL : machine_to_write(s);
    if (!same && !m)
        return;
    for (size_t done = 0; !same && done < len;) {
        size_t part = page_rest(address + done, len - done);
        if (!(s->physical ? machine_poke_physical(m, address + done, data + done, part)
                          : machine_poke(m, address + done, data + done, part))) {
            fail(s);
            return;
        }
        done += part;
    }
    reply_text(&s->reply, "OK");
}

void access_write_memory(struct gdb_server *s, const char *text, size_t len, bool binary)
{
    const char *end = text + len;
    u64 address, size;
    if (!parse_hex(&text, &address) || !parse_char(&text, ',') || !parse_hex(&text, &size) ||
        !parse_char(&text, ':') || size > sizeof(s->bytes) ||
        (size_t)(end - text) != (binary ? size : 2 * size)) {
        fail(s);
        return;
    }
    if (binary)
        memcpy(s->bytes, text, size);
    else if (!parse_bytes(text, s->bytes, size)) {
        fail(s);
        return;
    }
    write_memory(s, address, s->bytes, size);
}
