/*
 * The debug-exit port (0xf4): a write of 1, 2 or 4 bytes ends the run with that value
 * (DEV_EXIT). Our own device, in the place where other virtual machines have theirs, so that
 * existing test guests work. Reads give all ones. No nondeterminism enters here.
 */
#include "dev/debugexit.h"
#include "board/acpi.h"
#include "dev/making.h"
#include "dev/util.h"

#define DEBUGEXIT_STATE(F, A)                                                                      \
    F(u32, value)                                                                                  \
    F(u32, writes)

STATE(debugexit, "debugexit", DEBUGEXIT_STATE);

static void debugexit_reset(struct device *dev)
{
    struct debugexit_state *s = dev->state;
    s->value = 0;
    s->writes = 0;
}

static u32 debugexit_read(struct device *dev, u16 port, unsigned size)
{
    return size >= 4 ? 0xffffffffu : (1u << (8 * size)) - 1;
}

static void debugexit_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    struct debugexit_state *s = dev->state;
    if (port != DEBUG_EXIT)
        return;
    s->value = size >= 4 ? value : value & ((1u << (8 * size)) - 1);
    s->writes++;
    dev_event(dev, DEV_EXIT, s->value);
}

static const struct io_range debugexit_ranges[] = {{DEBUG_EXIT, 1, false}};

static const struct device_ops debugexit_ops = {
    .name = "debugexit",
    .state = &debugexit_desc,
    .ranges = debugexit_ranges,
    .nranges = ARRAY_SIZE(debugexit_ranges),
    .reset = debugexit_reset,
    .pio_read = debugexit_read,
    .pio_write = debugexit_write,
};

int debugexit_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &debugexit_ops, env, sizeof(struct debugexit_state), err);
}

MAKER(debugexit, debugexit_create)
