/* See visit.h. */
#include "cmd/visit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd/interrupt.h"
#include "cmd/replay_screen.h"
#include "inspect/guest_linux.h"

/* Positions that take about as long as reading the symbols of a kernel. */
#define NAMES_AGAIN 16000000u

/* Names of memory are looked up on the way, once the guest has symbols: a wrong one is refused
 * there, and not after hours. */
struct names {
    const struct visit *v;
    struct travel *tr;
    pos_t next;
    struct err refused;
};

static bool look_up(void *opaque)
{
    struct names *n = opaque;
    struct machine *m = timeline_machine(n->tr->t);
    struct symbols symbols;
    struct err none;
    pos_t now = machine_position(m);
    if (now < n->next)
        return false;
    n->next = now + MAX(now, (pos_t)NAMES_AGAIN);
    if (guest_symbols_read(&symbols, m, &none))
        return false;
    n->next = NEVER;
    for (size_t i = 0; !n->refused.code && i < n->v->nmemory; i++)
        check_memory_name(n->v->memory[i], m, &symbols, &n->refused);
    symbols_free(&symbols);
    return n->refused.code;
}

static int visit_to(const struct visit *v, struct travel *tr, struct err *err)
{
    struct names n = {.v = v, .tr = tr, .next = v->nmemory && !v->json ? 0 : NEVER};
    enum timeline_stop stop;
    tr->also = look_up;
    tr->opaque = &n;
    int code = travel_to(tr, &v->to, &stop, err);
    tr->also = NULL;
    tr->opaque = NULL;
    if (code == -EINTR && n.refused.code)
        *err = n.refused;
    return code;
}

int visit(const struct visit *v)
{
    struct travel tr;
    struct err err = {0};
    bool piped = v->gdb && v->endpoint && !strcmp(v->endpoint, "-");
    if (piped) /* gdb interrupts through its packets; a Ctrl-C of its terminal is not ours */
        interrupt_ignore();
    else
        interrupt_catch();
    /* What the user named is opened before anything of the recording is. */
    struct debug_session *session = NULL;
    int code = 0;
    if (v->gdb) {
        session = debug_listen(v->endpoint, &err);
        code = session ? 0 : err.code;
    }
    if (!code && v->screenshot) {
        struct output_file probe;
        code = output_open(&probe, v->screenshot, v->force, &err);
        output_discard(&probe);
    }
    if (v->screenshot || v->gdb)
        sandbox_outside()->renderer = true;
    struct travel_with with = v->with;
    with.history = v->gdb || (v->have_to && point_takes_lives(&v->to));
    if (!code)
        code = travel_open(&tr, v->dir, &with, &err);
    if (code) {
        debug_drop(session);
        return cmd_fail(&err);
    }
    if (piped)
        tr.way.shown = false;
    if (v->have_to)
        code = visit_to(v, &tr, &err);
    if (code) {
        travel_quiet(&tr);
        debug_drop(session);
        cmd_fail(&err);
    } else if (v->gdb) {
        code = debug_start(&tr, session, NULL, &err);
        code = code ? cmd_fail(&err) : debug_serve(&tr, 0, &err);
        debug_end(&tr);
    } else if (v->json) {
        print_place_json(stdout, &tr, v->registers, v->console, v->memory, v->nmemory);
    } else {
        if (v->console)
            print_console(stdout, tr.t, 0);
        print_place(v->console ? stderr : stdout, &tr, v->console ? 0 : 4);
        print_backtrace(v->console ? stderr : stdout, &tr);
        if (v->registers)
            print_registers(stdout, timeline_machine(tr.t));
        for (size_t i = 0; !code && i < v->nmemory; i++)
            if (print_memory(stdout, &tr, v->memory[i], &err))
                code = cmd_fail(&err);
    }
    if (!code && v->screenshot) {
        if (write_screenshot(&tr, v->screenshot, v->force, &err))
            code = cmd_fail(&err);
        else if (*replay_screen_note(tr.screen))
            fprintf(stderr, "reprise: %s\n", replay_screen_note(tr.screen));
    }
    if (code < 0)
        code = EX_ERROR;
    else if (!code && !v->gdb)
        code = travel_end_code(&tr);
    travel_close(&tr);
    return code;
}
