/*
 * Fuzz target: the text of a file of events. What is accepted has reports in order of time, each
 * whole, for a device that exists, of codes that it has; what is refused names its line.
 */
#include <linux/input-event-codes.h>
#include <stdlib.h>
#include <string.h>

#include "dev/virtio/input.h"
#include "live/input_file.h"
#include "mutate.h"

static bool known(u32 unit, u16 type, u16 code, i32 value)
{
    if (unit == INPUT_UNIT_KEYBOARD)
        return type == EV_KEY && code >= 1 && code <= INPUT_LAST_KEY && (value == 0 || value == 1);
    switch (type) {
    case EV_KEY: return code >= BTN_LEFT && code <= BTN_EXTRA && (value == 0 || value == 1);
    case EV_REL: return (code == REL_WHEEL || code == REL_HWHEEL) && value;
    case EV_ABS: return code <= ABS_Y && value >= 0 && value <= (i32)INPUT_AXIS_MAX;
    default: return false;
    }
}

static void check(const struct input_report *r)
{
    static const u8 syn[8];
    if (r->unit >= INPUT_UNITS || r->len % 8 || r->len < 16 || r->len > sizeof(r->events) ||
        memcmp(r->events + r->len - 8, syn, 8))
        abort();
    for (u32 i = 0; i + 8 < r->len; i += 8) {
        u16 type, code;
        i32 value;
        memcpy(&type, r->events + i, 2);
        memcpy(&code, r->events + i + 2, 2);
        memcpy(&value, r->events + i + 4, 4);
        if (!known(r->unit, type, code, value))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct input_file *f = NULL;
    struct err err = {0};
    size_t n;
    char *exact = malloc(size); /* so that one byte too far is seen */
    if (size)
        memcpy(exact, data, size);
    int code = input_file_parse(&f, "events", exact, size, &err);
    free(exact);
    if (code) {
        if (code != err.code || strncmp(err.text, "events:", 7) || !strstr(err.text, ": "))
            abort();
        return 0;
    }
    const struct input_report *r = input_file_reports(f, &n);
    for (size_t i = 0; i < n; i++) {
        check(&r[i]);
        if (i && r[i].at < r[i - 1].at)
            abort();
    }
    input_file_destroy(f);
    return 0;
}

u8 *fuzz_sample(size_t *size)
{
    static const char text[] =
        "# all of it\n1.250s key a\n+20ms key down leftshift\nkey up leftshift\n"
        "text \"Hello, \\\"you\\\"\\n\\t\\\\\"\n3s move 100 32767\nclick left\n"
        "click down right\nwheel -1\nhwheel 2 # so\n\n4000000us key up\n";
    u8 *data = malloc(sizeof(text) - 1);
    memcpy(data, text, sizeof(text) - 1);
    *size = sizeof(text) - 1;
    return data;
}
