/*
 * Ports of a PC that have no device behind them here: the keyboard controller (0x60, 0x64), which
 * is absent but for its reset line, and the POST code port 0x80, which guests write as a delay.
 * Specification: IBM PC/AT Technical Reference, keyboard controller command 0xfe (pulse output
 * port bit 0). Reads give all ones: a status of 0xff never becomes "input buffer empty", which is
 * how drivers conclude that there is no controller. No nondeterminism enters here.
 */
#include "dev/misc.h"
#include "dev/making.h"
#include "dev/util.h"

#define KBD_DATA    0x60
#define KBD_COMMAND 0x64
#define KBD_RESET   0xfe
#define POST_CODE   0x80

#define MISC_STATE(F, A) F(u8, post)

STATE(misc, "misc", MISC_STATE);

static void misc_reset(struct device *dev)
{
    struct misc_state *s = dev->state;
    s->post = 0;
}

static u8 misc_read8(struct device *dev, u16 port)
{
    return 0xff;
}

static void misc_write8(struct device *dev, u16 port, u8 v)
{
    struct misc_state *s = dev->state;
    if (port == KBD_COMMAND && v == KBD_RESET)
        dev_event(dev, DEV_RESET, 0);
    else if (port == POST_CODE)
        s->post = v; /* read by nobody; a reader of a state dump sees the last code */
}

static u32 misc_read(struct device *dev, u16 port, unsigned size)
{
    return pio_read_bytes(dev, port, size, misc_read8);
}

static void misc_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    pio_write_bytes(dev, port, size, value, misc_write8);
}

static const struct io_range misc_ranges[] = {
    {KBD_DATA, 1, false}, {KBD_COMMAND, 1, false}, {POST_CODE, 1, false}};

static const struct device_ops misc_ops = {
    .name = "misc",
    .state = &misc_desc,
    .ranges = misc_ranges,
    .nranges = ARRAY_SIZE(misc_ranges),
    .reset = misc_reset,
    .pio_read = misc_read,
    .pio_write = misc_write,
};

int misc_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &misc_ops, env, sizeof(struct misc_state), err);
}

MAKER(misc, misc_create)
