/*
 * Two cascaded 8259A interrupt controllers (0x20, 0xa0) with the edge/level control registers of
 * PC chipsets (0x4d0). Specification: Intel 8259A data sheet (231468-003); ELCR: Intel 82371SB,
 * section 2.5.7. Not modelled: MCS-80 mode, buffered mode, LTIM (the ELCR replaces it).
 *
 * An edge-triggered request must stay asserted until it is acknowledged, as on the part; one that
 * does not gives the spurious vector IR7. No nondeterminism enters here.
 */
#include "dev/pic8259.h"
#include "dev/making.h"
#include "dev/util.h"

#define MASTER_PORT 0x20
#define SLAVE_PORT  0xa0
#define ELCR_PORT   0x4d0
#define CASCADE     2
#define SPURIOUS    7

#define ICW1_IC4  0x01
#define ICW1_SNGL 0x02
#define ICW1      0x10
#define ICW4_AEOI 0x02
#define ICW4_SFNM 0x10
#define OCW3      0x08
#define OCW3_RIS  0x01
#define OCW3_RR   0x02
#define OCW3_POLL 0x04
#define OCW3_SMM  0x20
#define OCW3_ESMM 0x40

enum { INIT_DONE, INIT_ICW2, INIT_ICW3, INIT_ICW4 };

/* Index 0 is the master, 1 the slave. */
#define PIC_STATE(F, A)                                                                            \
    A(u8, lines, 2) /* input levels */                                                             \
    A(u8, edges, 2) /* rising edges latched and not yet acknowledged or withdrawn */               \
    A(u8, elcr, 2)  /* 1: level-triggered */                                                       \
    A(u8, imr, 2)                                                                                  \
    A(u8, isr, 2)                                                                                  \
    A(u8, base, 2) /* ICW2 */                                                                      \
    A(u8, icw1, 2)                                                                                 \
    A(u8, icw3, 2)                                                                                 \
    A(u8, icw4, 2)                                                                                 \
    A(u8, init, 2)                                                                                 \
    A(u8, lowest, 2)  /* level that has the lowest priority */                                     \
    A(u8, rotate, 2)  /* rotate in automatic EOI mode */                                           \
    A(u8, special, 2) /* special mask mode */                                                      \
    A(u8, read_isr, 2)                                                                             \
    A(u8, poll, 2)

STATE(pic, "pic8259", PIC_STATE);

/* Chipsets wire these edge-triggered: timer, keyboard, cascade; RTC, FPU. */
static const u8 elcr_writable[2] = {0xf8, 0xde};

static void pic_reset(struct device *dev)
{
    struct pic_state *s = dev->state;
    *s = (struct pic_state){0};
    for (unsigned c = 0; c < 2; c++) {
        s->imr[c] = 0xff; /* undefined before ICW1: nothing may come out of an unprogrammed chip */
        s->lowest[c] = 7;
    }
    s->icw3[0] = 1u << CASCADE;
}

static u8 requests(const struct pic_state *s, unsigned c)
{
    return (s->lines[c] & s->elcr[c]) | (s->edges[c] & ~s->elcr[c]);
}

/* The set bit of highest priority, as its distance from the top (0..7); 8 if none. */
static unsigned top_priority(const struct pic_state *s, unsigned c, u8 set)
{
    for (unsigned p = 0; p < 8; p++)
        if (set >> ((s->lowest[c] + 1 + p) & 7) & 1)
            return p;
    return 8;
}

static unsigned level_of(const struct pic_state *s, unsigned c, unsigned priority)
{
    return (s->lowest[c] + 1 + priority) & 7;
}

/* The level that drives INT, or -1. */
static int chip_pending(const struct pic_state *s, unsigned c)
{
    unsigned want = top_priority(s, c, requests(s, c) & ~s->imr[c]);
    if (want == 8)
        return -1;
    u8 in_service = s->special[c] ? s->isr[c] & ~s->imr[c] : s->isr[c];
    unsigned have = top_priority(s, c, in_service);
    unsigned level = level_of(s, c, want);
    /* Special fully nested: a slave in service may interrupt again with something better. */
    if (want == have && (s->icw4[c] & ICW4_SFNM) && s->icw3[c] >> level & 1)
        return (int)level;
    return want < have ? (int)level : -1;
}

static void set_line(struct pic_state *s, unsigned c, unsigned level, bool on)
{
    u8 bit = (u8)(1u << level);
    if (!on) {
        s->lines[c] &= ~bit;
        s->edges[c] &= ~bit;
    } else {
        if (!(s->lines[c] & bit))
            s->edges[c] |= bit;
        s->lines[c] |= bit;
    }
}

/* The slave's INT output is the master's IR2. */
static void cascade(struct device *dev)
{
    struct pic_state *s = dev->state;
    set_line(s, 0, CASCADE, chip_pending(s, 1) >= 0);
    dev_changed(dev);
}

static void acknowledge(struct pic_state *s, unsigned c, unsigned level)
{
    u8 bit = (u8)(1u << level);
    s->edges[c] &= ~bit;
    if (!(s->icw4[c] & ICW4_AEOI))
        s->isr[c] |= bit;
    else if (s->rotate[c])
        s->lowest[c] = (u8)level;
    /* INT falls with each acknowledge: what remains is a new edge for the master. */
    if (c == 1)
        set_line(s, 0, CASCADE, false);
}

void pic_set_irq(struct device *dev, unsigned line, bool level)
{
    if (line >= 16 || line == CASCADE)
        return;
    set_line(dev->state, line >> 3, line & 7, level);
    cascade(dev);
}

bool pic_pending(const struct device *dev)
{
    return chip_pending(dev->state, 0) >= 0;
}

u8 pic_ack(struct device *dev)
{
    struct pic_state *s = dev->state;
    int level = chip_pending(s, 0);
    u8 vector;
    if (level < 0) {
        vector = s->base[0] | SPURIOUS;
    } else if (level == CASCADE && !(s->icw1[0] & ICW1_SNGL) && s->icw3[0] >> CASCADE & 1) {
        acknowledge(s, 0, CASCADE);
        int slave = chip_pending(s, 1);
        if (slave >= 0)
            acknowledge(s, 1, (unsigned)slave);
        vector = s->base[1] | (slave >= 0 ? (u8)slave : SPURIOUS);
    } else {
        acknowledge(s, 0, (unsigned)level);
        vector = s->base[0] | (u8)level;
    }
    cascade(dev);
    return vector;
}

/* OCW2: end of interrupt and rotation; the three top bits are R, SL, EOI. */
static void write_ocw2(struct pic_state *s, unsigned c, u8 v)
{
    unsigned level = v & 7, top;
    switch (v >> 5) {
    case 0: s->rotate[c] = 0; break;
    case 4: s->rotate[c] = 1; break;
    case 6: s->lowest[c] = (u8)level; break;
    case 1: /* non-specific EOI; with 5 also rotate */
    case 5:
        /* In special mask mode it does not touch what IMR masks. */
        top = top_priority(s, c, s->special[c] ? s->isr[c] & ~s->imr[c] : s->isr[c]);
        if (top < 8) {
            level = level_of(s, c, top);
            s->isr[c] &= (u8) ~(1u << level);
            if (v >> 5 == 5)
                s->lowest[c] = (u8)level;
        }
        break;
    case 3: /* specific EOI; with 7 also rotate */
    case 7:
        s->isr[c] &= (u8) ~(1u << level);
        if (v >> 5 == 7)
            s->lowest[c] = (u8)level;
        break;
    default: break;
    }
}

static void write_ocw3(struct pic_state *s, unsigned c, u8 v)
{
    if (v & OCW3_RR)
        s->read_isr[c] = v & OCW3_RIS;
    if (v & OCW3_ESMM)
        s->special[c] = !!(v & OCW3_SMM);
    s->poll[c] = !!(v & OCW3_POLL);
}

static void write_icw1(struct pic_state *s, unsigned c, u8 v)
{
    s->icw1[c] = v & 0x1f;
    s->icw4[c] = 0;
    s->init[c] = INIT_ICW2;
    s->edges[c] = 0;
    s->imr[c] = 0;
    s->isr[c] = 0;
    s->lowest[c] = 7;
    s->rotate[c] = 0;
    s->special[c] = 0;
    s->read_isr[c] = 0;
    s->poll[c] = 0;
}

static void write_data(struct pic_state *s, unsigned c, u8 v)
{
    u8 after_icw3 = s->icw1[c] & ICW1_IC4 ? INIT_ICW4 : INIT_DONE;
    switch (s->init[c]) {
    case INIT_ICW2:
        s->base[c] = v & 0xf8;
        s->init[c] = s->icw1[c] & ICW1_SNGL ? after_icw3 : INIT_ICW3;
        break;
    case INIT_ICW3:
        s->icw3[c] = v;
        s->init[c] = after_icw3;
        break;
    case INIT_ICW4:
        s->icw4[c] = v & 0x1f;
        s->init[c] = INIT_DONE;
        break;
    default: s->imr[c] = v; break;
    }
}

static void pic_write8(struct device *dev, u16 port, u8 v)
{
    struct pic_state *s = dev->state;
    if ((port & ~1) == ELCR_PORT) {
        s->elcr[port & 1] = v & elcr_writable[port & 1];
        return;
    }
    if ((port & ~1) != MASTER_PORT && (port & ~1) != SLAVE_PORT)
        return;
    unsigned c = (port & ~1) == SLAVE_PORT;
    if (port & 1)
        write_data(s, c, v);
    else if (v & ICW1)
        write_icw1(s, c, v);
    else if (v & OCW3)
        write_ocw3(s, c, v);
    else
        write_ocw2(s, c, v);
}

/* In poll mode a read acknowledges: bit 7 is set if there was a request, below it the level. */
static u8 poll(struct pic_state *s, unsigned c)
{
    int level = chip_pending(s, c);
    s->poll[c] = 0;
    if (level < 0)
        return 0;
    acknowledge(s, c, (unsigned)level);
    return 0x80 | (u8)level;
}

static u8 pic_read8(struct device *dev, u16 port)
{
    struct pic_state *s = dev->state;
    if ((port & ~1) == ELCR_PORT)
        return s->elcr[port & 1];
    if ((port & ~1) != MASTER_PORT && (port & ~1) != SLAVE_PORT)
        return 0xff;
    unsigned c = (port & ~1) == SLAVE_PORT;
    if (s->poll[c])
        return poll(s, c);
    if (port & 1)
        return s->imr[c];
    return s->read_isr[c] ? s->isr[c] : requests(s, c);
}

static u32 pic_read(struct device *dev, u16 port, unsigned size)
{
    u32 v = pio_read_bytes(dev, port, size, pic_read8);
    cascade(dev);
    return v;
}

static void pic_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    pio_write_bytes(dev, port, size, value, pic_write8);
    cascade(dev);
}

static int pic_loaded(struct device *dev, struct err *err)
{
    const struct pic_state *s = dev->state;
    for (unsigned c = 0; c < 2; c++) {
        if (s->lowest[c] > 7 || s->init[c] > INIT_ICW4)
            return dev_bad_state(dev, err, "lowest or init");
        if (s->base[c] & 7 || s->elcr[c] & ~elcr_writable[c])
            return dev_bad_state(dev, err, "base or elcr");
        if (s->rotate[c] > 1 || s->special[c] > 1 || s->read_isr[c] > 1 || s->poll[c] > 1)
            return dev_bad_state(dev, err, "flag");
    }
    return 0;
}

static const struct io_range pic_ranges[] = {
    {MASTER_PORT, 2, false}, {SLAVE_PORT, 2, false}, {ELCR_PORT, 2, false}};

static const struct device_ops pic_ops = {
    .name = "pic8259",
    .state = &pic_desc,
    .ranges = pic_ranges,
    .nranges = ARRAY_SIZE(pic_ranges),
    .reset = pic_reset,
    .pio_read = pic_read,
    .pio_write = pic_write,
    .loaded = pic_loaded,
};

int pic8259_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &pic_ops, env, sizeof(struct pic_state), err);
}

MAKER(pic, pic8259_create)
