/* See last.h. */
#include "machine/last.h"

#include <ctype.h>
#include <inttypes.h>

#include "base/text.h"

static void print_input(u32 kind, FILE *out)
{
    static const char *const names[INPUT_KINDS] = {
#define INPUT(NAME, ...) [INPUT_##NAME] = #NAME,
#include "dev/inputs.def"
#undef INPUT
    };
    for (const char *c = kind < INPUT_KINDS && names[kind] ? names[kind] : "?"; *c; c++)
        fputc(*c == '_' ? ' ' : tolower(*c), out);
}

static const char *exit_name(u32 why)
{
    static const char *const names[] = {
        [ENGINE_STOP] = "stop",         [ENGINE_ATTENTION] = "attention",
        [ENGINE_WINDOW] = "window",     [ENGINE_HALT] = "halt",
        [ENGINE_SHUTDOWN] = "shutdown", [ENGINE_UNSUPPORTED] = "unsupported",
        [ENGINE_FAILED] = "failed",     [ENGINE_DEBUG] = "debug",
        [ENGINE_LOST] = "lost",         [ENGINE_BETWEEN] = "between",
    };
    return why < ARRAY_SIZE(names) && names[why] ? names[why] : "?";
}

void last_print(const struct last_events *l, const char *dir, enum position_unit unit,
                pos_t position, FILE *out)
{
    u64 n = MIN(l->n, (u64)LAST_EVENTS);
    if (n)
        fprintf(out, "reprise: the last %" PRIu64 " events before it:\n", n);
    for (u64 i = l->n - n; i < l->n; i++) {
        const struct last_event *e = &l->ring[i % LAST_EVENTS];
        if (e->input) {
            fprintf(out, "  %" PRIu64 " input ", e->position);
            print_input(e->input, out);
            fprintf(out, ", %u bytes\n", e->code);
        } else {
            fprintf(out, "  %" PRIu64 " engine: %s\n", e->position, exit_name(e->code));
        }
    }
    if (!dir)
        return;
    /* gdb wants positions that are instructions. */
    fprintf(out, "reprise: to go there: reprise %s --to insn:%" PRIu64 " ",
            unit == UNIT_BRANCH ? "replay" : "gdb", position);
    text_put_quoted(out, dir);
    fputs(" (or --to end, if its log ends before)\n", out);
}
