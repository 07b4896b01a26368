/*
 * 8254 programmable interval timer (ports 0x40 to 0x43) and the port 0x61 that gates channel 2 and
 * shows its output and the refresh toggle. Specification: Intel 8254 data sheet (231164-005);
 * port 0x61: Intel 82371SB, NMI status and control register.
 *
 * Each channel is kept as it was at some tick of its 1.193182 MHz clock and brought forward when
 * somebody looks (advance(); arithmetic, so that a minute costs as much as a tick). As on the part,
 * a count takes effect on the clock after it was written. Channel 0's output is GSI 0; of modes 2
 * to 4 only the rising edge matters to an edge-triggered input, so that the line shows a pulse of
 * no width there and stays high. Everything follows from virtual time: no nondeterminism.
 */
#include "dev/pit8254.h"
#include "dev/making.h"
#include "dev/util.h"

#define PORT_COUNTER 0x40
#define PORT_CONTROL 0x43
#define PORT_SPEAKER 0x61
#define CHANNELS     3

/* Ticks per refresh request: what firmware programs into channel 1, and port 0x61 shows halved. */
#define REFRESH_TICKS 18

#define SPKR_GATE    0x01
#define SPKR_RW      0x0f
#define SPKR_REFRESH 0x10
#define SPKR_OUT     0x20

#define READ_BACK_NO_COUNT  0x20
#define READ_BACK_NO_STATUS 0x10

enum { RW_LSB = 1, RW_MSB, RW_BOTH };

#define PIT_STATE(F, A)                                                                            \
    A(u8, mode, CHANNELS)                                                                          \
    A(u8, rw, CHANNELS)                                                                            \
    A(u8, bcd, CHANNELS)                                                                           \
    A(u8, gate, CHANNELS)                                                                          \
    A(u8, out, CHANNELS)                                                                           \
    A(u8, null, CHANNELS)    /* the written count is not in the counter yet */                     \
    A(u8, valid, CHANNELS)   /* a whole count was written since the control word */                \
    A(u8, load, CHANNELS)    /* the next clock loads the counter */                                \
    A(u8, running, CHANNELS) /* it has been loaded: clocks count (if the gate lets them) */        \
    A(u8, armed, CHANNELS)   /* modes 0, 1, 4, 5: the terminal count still has an effect */        \
    A(u8, second, CHANNELS)  /* the next write is the high byte */                                 \
    A(u8, low, CHANNELS)     /* low byte written first */                                          \
    A(u8, read_second, CHANNELS)                                                                   \
    A(u8, latched, CHANNELS) /* bytes of `latch` still to be read */                               \
    A(u8, status_latched, CHANNELS)                                                                \
    A(u8, status, CHANNELS)                                                                        \
    A(u16, latch, CHANNELS)                                                                        \
    A(u32, reload, CHANNELS) /* count register: 1 to 65536 (BCD: 10000); 0: none yet */            \
    A(u32, count, CHANNELS)  /* counting element; mode 3: clocks left in this half */              \
    A(u32, period, CHANNELS) /* mode 3: the count this half was loaded from */                     \
    A(u64, tick, CHANNELS)   /* when all this was so */                                            \
    F(u8, speaker)                                                                                 \
    F(u8, line)

STATE(pit, "pit8254", PIT_STATE);

/* No count is pending (`null`): firmware leaves the part programmed, and a Linux that may not use
 * the TSC waits, very early, for the count to be there. */
static void pit_reset(struct device *dev)
{
    struct pit_state *s = dev->state;
    *s = (struct pit_state){0};
    for (unsigned c = 0; c < CHANNELS; c++) {
        s->rw[c] = RW_BOTH;
        s->gate[c] = c != 2;
    }
}

static u32 modulus(const struct pit_state *s, unsigned c)
{
    return s->bcd[c] ? 10000 : 65536;
}

/* Mode 3: clocks of the half period in which the output is `out`. */
static u32 half_period(u32 count, u8 out)
{
    return out ? (count + 1) / 2 : count / 2;
}

static void load_counter(struct pit_state *s, unsigned c)
{
    s->load[c] = 0;
    s->null[c] = 0;
    s->running[c] = 1;
    s->armed[c] = 1;
    s->count[c] = s->reload[c];
    if (s->mode[c] == 1)
        s->out[c] = 0;
    if (s->mode[c] == 2)
        s->out[c] = s->reload[c] != 1;
    if (s->mode[c] == 3) {
        s->out[c] = 1;
        s->period[c] = s->reload[c];
        s->count[c] = half_period(s->reload[c], 1);
    }
    if (s->mode[c] >= 4)
        s->out[c] = 1; /* a strobe in progress ends with this clock */
}

/* Modes 0, 1, 4, 5: counts down through zero for ever; only the first zero has an effect. */
static bool run_once(struct pit_state *s, unsigned c, u64 d)
{
    u32 m = modulus(s, c);
    bool strobe = s->mode[c] == 4 || s->mode[c] == 5;
    bool rose = false;
    u32 left = s->count[c] ? s->count[c] : m;

    if (strobe && !s->out[c]) { /* the strobe lasts one clock */
        s->out[c] = 1;
        rose = true;
    }
    if (s->armed[c] && d >= left) {
        s->armed[c] = 0;
        rose |= !strobe || d > left;
        s->out[c] = !strobe || d > left;
    }
    s->count[c] = (u32)((left + m - d % m) % m);
    return rose;
}

static bool run_rate(struct pit_state *s, unsigned c, u64 d)
{
    bool rose = false;
    if (d < s->count[c]) {
        s->count[c] -= (u32)d;
    } else {
        d -= s->count[c];
        s->null[c] = 0;
        s->count[c] = s->reload[c] - (u32)(d % s->reload[c]);
        rose = s->reload[c] != 1; /* a count of one is illegal: the output stays low */
    }
    s->out[c] = s->count[c] != 1;
    return rose;
}

static bool run_square(struct pit_state *s, unsigned c, u64 d)
{
    if (d < s->count[c]) {
        s->count[c] -= (u32)d;
        return false;
    }
    d -= s->count[c];
    u32 n = s->reload[c];
    s->null[c] = 0;
    s->period[c] = n;
    s->out[c] = !s->out[c];
    bool rose = s->out[c];
    rose |= d >= half_period(n, s->out[c]) + (s->out[c] ? half_period(n, 0) : 0) && n > 1;
    d %= n;
    /* At most two steps: a count of one (illegal) has a low half of no length. */
    for (int i = 0; i < 2 && d >= half_period(n, s->out[c]); i++) {
        d -= half_period(n, s->out[c]);
        s->out[c] = !s->out[c];
    }
    s->count[c] = half_period(n, s->out[c]) - (u32)d;
    return rose;
}

/* Brings channel c to tick `t`; true if its output rose on the way. */
static bool advance(struct pit_state *s, unsigned c, u64 t)
{
    bool rose = false;
    if (t <= s->tick[c])
        return false;
    u64 d = t - s->tick[c];
    s->tick[c] = t;
    if (s->load[c]) {
        u8 before = s->out[c];
        load_counter(s, c);
        rose = s->out[c] > before;
        d--;
    }
    bool gated = s->mode[c] != 1 && s->mode[c] != 5 && !s->gate[c];
    if (!s->running[c] || gated || !d)
        return rose;
    switch (s->mode[c]) {
    case 2: return run_rate(s, c, d) || rose;
    case 3: return run_square(s, c, d) || rose;
    default: return run_once(s, c, d) || rose;
    }
}

/* Tells the interrupt controllers about channel 0; see the file's head for modes 2 to 4. */
static void update_line(struct device *dev, bool rose)
{
    struct pit_state *s = dev->state;
    u8 level = s->out[0] || (s->line && s->mode[0] >= 2) || rose;
    if (rose && s->line)
        dev_irq(dev, PIT_GSI, false);
    if (level != s->line || rose)
        dev_irq(dev, PIT_GSI, level);
    s->line = level;
}

static void sync_all(struct device *dev, vns_t now)
{
    struct pit_state *s = dev->state;
    u64 t = ticks_at(now, PIT_HZ);
    bool rose = advance(s, 0, t);
    advance(s, 1, t);
    advance(s, 2, t);
    update_line(dev, rose);
}

/* What a read of the counting element gives. */
static u16 counter_value(const struct pit_state *s, unsigned c)
{
    u32 v = s->count[c] % modulus(s, c);
    if (s->mode[c] == 3 && s->running[c]) {
        /* Counts by two; an odd count is one less and waits a clock at zero while high. */
        bool wait = s->period[c] % 2 && s->out[c];
        v = 2 * (s->count[c] - (wait && s->count[c] ? 1 : 0)) % modulus(s, c);
    }
    if (s->bcd[c])
        v = v / 1000 % 10 << 12 | v / 100 % 10 << 8 | v / 10 % 10 << 4 | v % 10;
    return (u16)v;
}

static void latch_count(struct pit_state *s, unsigned c)
{
    if (s->latched[c])
        return; /* the first latch holds until it is read */
    s->latch[c] = counter_value(s, c);
    s->latched[c] = s->rw[c] == RW_BOTH ? 2 : 1;
}

static void latch_status(struct pit_state *s, unsigned c)
{
    if (s->status_latched[c])
        return;
    s->status_latched[c] = 1;
    s->status[c] =
        (u8)(s->out[c] << 7 | s->null[c] << 6 | s->rw[c] << 4 | s->mode[c] << 1 | s->bcd[c]);
}

static void write_control(struct pit_state *s, u8 v)
{
    unsigned c = v >> 6, rw = v >> 4 & 3;
    if (c == 3) {
        for (c = 0; c < CHANNELS; c++) {
            if (!(v >> (c + 1) & 1))
                continue;
            if (!(v & READ_BACK_NO_COUNT))
                latch_count(s, c);
            if (!(v & READ_BACK_NO_STATUS))
                latch_status(s, c);
        }
        return;
    }
    if (!rw) {
        latch_count(s, c);
        return;
    }
    s->rw[c] = (u8)rw;
    s->mode[c] = v >> 1 & 7;
    if (s->mode[c] > 5)
        s->mode[c] -= 4; /* the top bit is "don't care" for modes 2 and 3 */
    s->bcd[c] = v & 1;
    s->out[c] = s->mode[c] != 0;
    s->count[c] %= modulus(s, c);
    s->reload[c] = 0;
    s->null[c] = 1;
    s->valid[c] = s->load[c] = s->running[c] = s->armed[c] = 0;
    s->second[c] = s->read_second[c] = s->latched[c] = s->status_latched[c] = 0;
}

/* A whole count was written. */
static void new_count(struct pit_state *s, unsigned c, u16 raw)
{
    u32 v = raw;
    if (s->bcd[c]) /* digits above 9 count what they are worth, modulo the counter's range */
        v = ((raw >> 12) * 1000u + (raw >> 8 & 15) * 100u + (raw >> 4 & 15) * 10u + (raw & 15)) %
            10000;
    s->reload[c] = v ? v : modulus(s, c);
    s->null[c] = 1;
    s->valid[c] = 1;
    switch (s->mode[c]) {
    case 0:
        s->out[c] = 0;
        s->load[c] = 1;
        break;
    case 4: s->load[c] = 1; break;
    case 2:
    case 3:
        /* While it counts, the new count waits for the end of the (half) period. */
        if (!s->running[c])
            s->load[c] = 1;
        break;
    default: break; /* modes 1 and 5 wait for the gate */
    }
}

static void write_counter(struct pit_state *s, unsigned c, u8 v)
{
    if (s->rw[c] == RW_LSB) {
        new_count(s, c, v);
    } else if (s->rw[c] == RW_MSB) {
        new_count(s, c, (u16)(v << 8));
    } else if (!s->second[c]) {
        s->low[c] = v;
        s->second[c] = 1;
        if (s->mode[c] == 0) { /* the first byte stops the counter */
            s->out[c] = 0;
            s->running[c] = s->load[c] = s->armed[c] = 0;
        }
    } else {
        s->second[c] = 0;
        new_count(s, c, (u16)(v << 8 | s->low[c]));
    }
}

static u8 read_counter(struct pit_state *s, unsigned c)
{
    if (s->status_latched[c]) {
        s->status_latched[c] = 0;
        return s->status[c];
    }
    u16 v = s->latched[c] ? s->latch[c] : counter_value(s, c);
    bool high = s->rw[c] == RW_MSB || (s->rw[c] == RW_BOTH && s->read_second[c]);
    if (s->rw[c] == RW_BOTH)
        s->read_second[c] = !s->read_second[c];
    if (s->latched[c])
        s->latched[c]--;
    return (u8)(high ? v >> 8 : v);
}

static void set_gate(struct pit_state *s, unsigned c, bool gate)
{
    bool rising = gate && !s->gate[c];
    bool falling = !gate && s->gate[c];
    s->gate[c] = gate;
    switch (s->mode[c]) {
    case 1:
    case 5:
        if (rising && s->valid[c])
            s->load[c] = 1;
        break;
    case 2:
    case 3:
        if (rising && s->valid[c])
            s->load[c] = 1;
        if (falling)
            s->out[c] = 1;
        break;
    default: break;
    }
}

static u8 pit_read8(struct device *dev, u16 port)
{
    struct pit_state *s = dev->state;
    if (port >= PORT_COUNTER && port < PORT_CONTROL)
        return read_counter(s, port - PORT_COUNTER);
    if (port != PORT_SPEAKER)
        return 0xff; /* the control word cannot be read */
    bool refresh = ticks_at(dev_now(dev), PIT_HZ) / REFRESH_TICKS & 1;
    return s->speaker | (refresh ? SPKR_REFRESH : 0) | (s->out[2] ? SPKR_OUT : 0);
}

static void pit_write8(struct device *dev, u16 port, u8 v)
{
    struct pit_state *s = dev->state;
    u8 before = s->out[0];
    if (port == PORT_SPEAKER) {
        s->speaker = v & SPKR_RW;
        set_gate(s, 2, v & SPKR_GATE);
    } else if (port == PORT_CONTROL) {
        write_control(s, v);
    } else if (port >= PORT_COUNTER && port < PORT_CONTROL) {
        write_counter(s, port - PORT_COUNTER, v);
    }
    update_line(dev, s->out[0] > before);
}

static u32 pit_read(struct device *dev, u16 port, unsigned size)
{
    sync_all(dev, dev_now(dev));
    return pio_read_bytes(dev, port, size, pit_read8);
}

static void pit_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    sync_all(dev, dev_now(dev));
    pio_write_bytes(dev, port, size, value, pit_write8);
    dev_changed(dev);
}

/* The next rising edge of channel 0's output; its gate is always high. */
static u64 next_edge(const struct pit_state *s)
{
    u64 t = s->tick[0] + s->load[0];
    u32 n = s->reload[0];
    if (s->load[0]) {
        switch (s->mode[0]) {
        case 0: return t + n;
        case 2:
        case 3: return n > 1 ? t + n : NEVER;
        case 4: return s->out[0] ? t + n + 1 : t;
        default: return NEVER;
        }
    }
    if (!s->running[0])
        return NEVER;
    u32 left = s->count[0] ? s->count[0] : modulus(s, 0);
    switch (s->mode[0]) {
    case 0: return s->armed[0] ? t + left : NEVER;
    case 2: return n > 1 ? t + left : NEVER;
    case 3:
        if (!s->out[0])
            return t + left;
        return n > 1 ? t + left + half_period(n, 0) : NEVER;
    case 4:
        if (!s->out[0])
            return t + 1;
        return s->armed[0] ? t + left + 1 : NEVER;
    default: return NEVER;
    }
}

static vns_t pit_deadline(const struct device *dev)
{
    u64 t = next_edge(dev->state);
    return t == NEVER ? NEVER : time_of_tick(t, PIT_HZ);
}

static void pit_expire(struct device *dev, vns_t now)
{
    sync_all(dev, now);
    dev_changed(dev);
}

static int pit_loaded(struct device *dev, struct err *err)
{
    const struct pit_state *s = dev->state;
    for (unsigned c = 0; c < CHANNELS; c++) {
        bool flags = s->bcd[c] > 1 || s->gate[c] > 1 || s->out[c] > 1 || s->null[c] > 1 ||
                     s->valid[c] > 1 || s->load[c] > 1 || s->running[c] > 1 || s->armed[c] > 1 ||
                     s->second[c] > 1 || s->read_second[c] > 1 || s->status_latched[c] > 1;
        if (flags || s->mode[c] > 5 || s->rw[c] < RW_LSB || s->rw[c] > RW_BOTH || s->latched[c] > 2)
            return dev_bad_state(dev, err, "register");
        if (s->count[c] > 65536 || s->period[c] > 65536 || s->reload[c] > modulus(s, c))
            return dev_bad_state(dev, err, "count");
        if ((s->valid[c] || s->load[c] || s->running[c]) && !s->reload[c])
            return dev_bad_state(dev, err, "reload");
        if (s->tick[c] >> 56)
            return dev_bad_state(dev, err, "tick");
        /* These two count to one, not to zero: only the others may stand at zero. */
        if (s->running[c] && (s->mode[c] == 2 || s->mode[c] == 3) && !s->count[c])
            return dev_bad_state(dev, err, "count");
    }
    if (s->speaker & ~SPKR_RW || s->line > 1)
        return dev_bad_state(dev, err, "line");
    return 0;
}

static const struct io_range pit_ranges[] = {{PORT_COUNTER, 4, false}, {PORT_SPEAKER, 1, false}};

static const struct device_ops pit_ops = {
    .name = "pit8254",
    .state = &pit_desc,
    .ranges = pit_ranges,
    .nranges = ARRAY_SIZE(pit_ranges),
    .reset = pit_reset,
    .pio_read = pit_read,
    .pio_write = pit_write,
    .deadline = pit_deadline,
    .expire = pit_expire,
    .loaded = pit_loaded,
};

/* At power-on of machine revision 0 (machine.h): counts are pending for ever. */
static void unready(struct device *dev)
{
    struct pit_state *s = dev->state;
    for (unsigned c = 0; c < CHANNELS; c++)
        s->null[c] = 1;
}

int pit8254_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &pit_ops, env, sizeof(struct pit_state), err);
}

int make_pit(struct device *dev, const struct making *w, struct err *err)
{
    int r = pit8254_create(dev, w->env, err);
    if (!r && w->is->revision < 1)
        unready(dev);
    return r;
}
