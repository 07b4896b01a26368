/*
 * 16550A serial port at COM1 (ports 0x3f8 to 0x3ff, GSI 4): the console. Specification: National
 * Semiconductor PC16550D data sheet, section 8 (registers); PC wiring (OUT2 gates the interrupt)
 * from the IBM PC/AT Technical Reference.
 *
 * Transmission takes no time: the holding register is empty again at once. The divisor counts only
 * for the character timeout of the receive FIFO. Word length and parity do not change the bytes.
 *
 * Received bytes and BREAK are inputs; the machine hands them over at exact positions.
 */
#include "dev/uart16550.h"
#include "dev/making.h"
#include "dev/util.h"

#include <string.h>

#define UART_CLOCK 1843200u /* 16 times the highest baud rate */
#define FIFO       16

enum { REG_DATA, REG_IER, REG_IIR_FCR, REG_LCR, REG_MCR, REG_LSR, REG_MSR, REG_SCR };

#define IER_RDA 0x01
#define IER_THR 0x02
#define IER_RLS 0x04
#define IER_MS  0x08
#define IER_ALL 0x0f

#define IIR_NONE    0x01
#define IIR_MS      0x00
#define IIR_THR     0x02
#define IIR_RDA     0x04
#define IIR_RLS     0x06
#define IIR_TIMEOUT 0x0c
#define IIR_FIFO    0xc0

#define FCR_ENABLE   0x01
#define FCR_CLEAR_RX 0x02
#define FCR_KEPT     0xc9 /* trigger, DMA mode, enable */

#define LCR_WLS   0x03
#define LCR_STB   0x04
#define LCR_PEN   0x08
#define LCR_BREAK 0x40
#define LCR_DLAB  0x80

#define MCR_DTR  0x01
#define MCR_RTS  0x02
#define MCR_OUT1 0x04
#define MCR_OUT2 0x08
#define MCR_LOOP 0x10
#define MCR_ALL  0x1f

#define LSR_DR    0x01
#define LSR_OE    0x02
#define LSR_FE    0x08
#define LSR_BI    0x10
#define LSR_THRE  0x20
#define LSR_TEMT  0x40
#define LSR_FIFO  0x80
#define LSR_CHAR  0x1c /* errors that belong to a character */
#define LSR_ERROR 0x1e

#define MSR_TERI 0x04
#define MSR_CTS  0x10
#define MSR_DSR  0x20
#define MSR_RI   0x40
#define MSR_DCD  0x80

/* This many reads of LSR without sending: the guest polls for input. */
#define POLLS 32

#define UART_STATE(F, A)                                                                           \
    F(u8, ier)                                                                                     \
    F(u8, fcr)                                                                                     \
    F(u8, lcr)                                                                                     \
    F(u8, mcr)                                                                                     \
    F(u8, scr)                                                                                     \
    F(u8, dll)                                                                                     \
    F(u8, dlm)                                                                                     \
    F(u8, errors) /* LSR bits 1..4, kept until LSR is read */                                      \
    F(u8, msr)                                                                                     \
    F(u8, thr_int)                                                                                 \
    F(u8, timeout)                                                                                 \
    F(u8, line)  /* what we last told the interrupt controllers */                                 \
    F(u8, polls) /* reads of LSR since the last byte sent, up to POLLS */                          \
    F(u8, head)                                                                                    \
    F(u8, count)                                                                                   \
    A(u8, rx, FIFO)                                                                                \
    A(u8, rx_errors, FIFO)                                                                         \
    F(u64, timeout_at)

STATE(uart, "uart16550", UART_STATE);

static void uart_reset(struct device *dev)
{
    struct uart_state *s = dev->state;
    memset(s, 0, sizeof(*s));
    s->dll = 1; /* undefined after reset; firmware leaves 115200 */
    s->msr = MSR_CTS | MSR_DSR | MSR_DCD;
    s->timeout_at = NEVER;
}

static bool fifo_on(const struct uart_state *s)
{
    return s->fcr & FCR_ENABLE;
}

static unsigned trigger_level(const struct uart_state *s)
{
    static const u8 level[4] = {1, 4, 8, 14};
    return fifo_on(s) ? level[s->fcr >> 6] : 1;
}

static u8 interrupt_id(const struct uart_state *s)
{
    if ((s->ier & IER_RLS) && s->errors)
        return IIR_RLS;
    if ((s->ier & IER_RDA) && s->count >= trigger_level(s))
        return IIR_RDA;
    if ((s->ier & IER_RDA) && s->timeout)
        return IIR_TIMEOUT;
    if ((s->ier & IER_THR) && s->thr_int)
        return IIR_THR;
    if ((s->ier & IER_MS) && (s->msr & 0x0f))
        return IIR_MS;
    return IIR_NONE;
}

static void update(struct device *dev)
{
    struct uart_state *s = dev->state;
    /* Loopback forces the OUT2 pin inactive, which is what enables the PC's interrupt driver. */
    bool gate = (s->mcr & (MCR_OUT2 | MCR_LOOP)) == MCR_OUT2;
    u8 line = gate && interrupt_id(s) != IIR_NONE;
    if (line != s->line) {
        s->line = line;
        dev_irq(dev, UART_GSI, line);
    }
    dev_changed(dev);
}

/* Four character times after the last arrival or read (data sheet, "FIFO interrupt mode"). */
static void restart_timeout(struct device *dev)
{
    struct uart_state *s = dev->state;
    u32 divisor = MAX((u32)s->dlm << 8 | s->dll, 1u);
    u32 bits = 1u + 5 + (s->lcr & LCR_WLS) + !!(s->lcr & LCR_PEN) + 1 + !!(s->lcr & LCR_STB);
    s->timeout = 0;
    s->timeout_at = NEVER;
    if (fifo_on(s) && s->count)
        s->timeout_at =
            add_sat(dev_now(dev), mul_div_ceil((u64)divisor * 16 * bits * 4, NS_PER_S, UART_CLOCK));
}

/* A character's errors show in LSR once it is the one to be read next. */
static void reveal_errors(struct uart_state *s)
{
    if (s->count) {
        s->errors |= s->rx_errors[s->head];
        s->rx_errors[s->head] = 0;
    }
}

static void clear_rx(struct uart_state *s)
{
    s->head = 0;
    s->count = 0;
    s->timeout = 0;
    s->timeout_at = NEVER;
    s->errors &= LSR_OE;
    memset(s->rx_errors, 0, sizeof(s->rx_errors));
}

static void push(struct device *dev, u8 c, u8 errors)
{
    struct uart_state *s = dev->state;
    unsigned size = fifo_on(s) ? FIFO : 1;
    if (s->count >= size) {
        s->errors |= LSR_OE;
        if (fifo_on(s))
            return; /* the shift register is lost, the FIFO is not */
        s->count = 0;
    }
    unsigned tail = (s->head + s->count) % FIFO;
    s->rx[tail] = c;
    s->rx_errors[tail] = errors;
    s->count++;
    reveal_errors(s);
    restart_timeout(dev);
}

static u8 pop(struct device *dev)
{
    struct uart_state *s = dev->state;
    u8 c = s->rx[s->head];
    if (s->count) {
        s->head = (u8)((s->head + 1) % FIFO);
        s->count--;
        reveal_errors(s);
    }
    restart_timeout(dev);
    return c;
}

static void transmit(struct device *dev, u8 c)
{
    struct uart_state *s = dev->state;
    /* The line drops while the byte is on its way, so that edge-triggered controllers see the
     * next "empty" as a new interrupt. */
    s->thr_int = 0;
    update(dev);
    if (s->mcr & MCR_LOOP)
        push(dev, c, 0);
    else
        dev->env->output(dev->env->machine, OUT_CONSOLE, &c, 1);
    s->thr_int = 1;
}

static u8 modem_lines(const struct uart_state *s)
{
    if (!(s->mcr & MCR_LOOP))
        return MSR_CTS | MSR_DSR | MSR_DCD;
    return (s->mcr & MCR_RTS ? MSR_CTS : 0) | (s->mcr & MCR_DTR ? MSR_DSR : 0) |
           (s->mcr & MCR_OUT1 ? MSR_RI : 0) | (s->mcr & MCR_OUT2 ? MSR_DCD : 0);
}

static void update_modem(struct uart_state *s)
{
    u8 lines = modem_lines(s);
    u8 delta = ((s->msr ^ lines) >> 4) & 0x0f;
    if (lines & MSR_RI)
        delta &= (u8)~MSR_TERI; /* only the trailing edge of RI counts */
    s->msr = lines | (s->msr & 0x0f) | delta;
}

static void write_fcr(struct device *dev, u8 v)
{
    struct uart_state *s = dev->state;
    bool on = v & FCR_ENABLE && !fifo_on(s);
    if ((!(v & FCR_ENABLE) && fifo_on(s)) || v & FCR_CLEAR_RX)
        clear_rx(s);
    /* The other bits are programmed only together with the enable bit. */
    s->fcr = v & FCR_ENABLE ? v & FCR_KEPT : 0;
    /* The data sheet empties the FIFOs here too, but is silent on the holding register. Its byte
     * is kept: Linux enables the interrupt first and the FIFO a moment later. */
    if (on)
        restart_timeout(dev);
}

static u8 read_lsr(struct uart_state *s)
{
    u8 v = LSR_THRE | LSR_TEMT | s->errors | (s->count ? LSR_DR : 0);
    if (fifo_on(s)) {
        u8 any = s->errors & LSR_CHAR;
        for (unsigned i = 0; i < FIFO; i++)
            any |= s->rx_errors[i];
        v |= any ? LSR_FIFO : 0;
    }
    s->errors = 0;
    return v;
}

static u8 uart_read8(struct device *dev, u16 port)
{
    struct uart_state *s = dev->state;
    bool dlab = s->lcr & LCR_DLAB;
    u8 v;
    switch ((unsigned)port - UART_BASE) {
    case REG_DATA: return dlab ? s->dll : pop(dev);
    case REG_IER: return dlab ? s->dlm : s->ier;
    case REG_IIR_FCR:
        v = interrupt_id(s);
        if (v == IIR_THR)
            s->thr_int = 0;
        return v | (fifo_on(s) ? IIR_FIFO : 0);
    case REG_LCR: return s->lcr;
    case REG_MCR: return s->mcr;
    case REG_LSR:
        if (s->polls < POLLS)
            s->polls++;
        return read_lsr(s);
    case REG_MSR:
        v = s->msr;
        s->msr &= 0xf0;
        return v;
    case REG_SCR: return s->scr;
    default: return 0xff;
    }
}

static void uart_write8(struct device *dev, u16 port, u8 v)
{
    struct uart_state *s = dev->state;
    bool dlab = s->lcr & LCR_DLAB;
    switch ((unsigned)port - UART_BASE) {
    case REG_DATA:
        if (dlab)
            s->dll = v;
        else {
            s->polls = 0;
            transmit(dev, v);
        }
        break;
    case REG_IER:
        if (dlab) {
            s->dlm = v;
            break;
        }
        /* Enabling it while the holding register is empty interrupts at once. */
        if (v & ~s->ier & IER_THR)
            s->thr_int = 1;
        s->ier = v & IER_ALL;
        break;
    case REG_IIR_FCR: write_fcr(dev, v); break;
    case REG_LCR:
        if (v & ~s->lcr & LCR_BREAK && s->mcr & MCR_LOOP)
            push(dev, 0, LSR_BI | LSR_FE);
        s->lcr = v;
        break;
    case REG_MCR:
        s->mcr = v & MCR_ALL;
        update_modem(s);
        break;
    case REG_SCR: s->scr = v; break;
    default: break; /* LSR and MSR: factory test only */
    }
}

static u32 uart_read(struct device *dev, u16 port, unsigned size)
{
    u32 v = pio_read_bytes(dev, port, size, uart_read8);
    update(dev);
    return v;
}

static void uart_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    pio_write_bytes(dev, port, size, value, uart_write8);
    update(dev);
}

static vns_t uart_deadline(const struct device *dev)
{
    const struct uart_state *s = dev->state;
    return s->timeout_at;
}

static void uart_expire(struct device *dev, vns_t now)
{
    struct uart_state *s = dev->state;
    if (now >= s->timeout_at) {
        s->timeout_at = NEVER;
        s->timeout = 1;
        update(dev);
    }
}

static int uart_loaded(struct device *dev, struct err *err)
{
    const struct uart_state *s = dev->state;
    if (s->head >= FIFO || s->count > (fifo_on(s) ? FIFO : 1))
        return dev_bad_state(dev, err, "rx");
    if (s->ier & ~IER_ALL || s->mcr & ~MCR_ALL || s->fcr & ~FCR_KEPT || s->errors & ~LSR_ERROR)
        return dev_bad_state(dev, err, "register");
    for (unsigned i = 0; i < FIFO; i++)
        if (s->rx_errors[i] & ~LSR_CHAR)
            return dev_bad_state(dev, err, "rx_errors");
    if (s->thr_int > 1 || s->timeout > 1 || s->line > 1)
        return dev_bad_state(dev, err, "flag");
    return 0;
}

unsigned uart_room(const struct device *dev)
{
    const struct uart_state *s = dev->state;
    if (s->mcr & MCR_LOOP)
        return 0;
    /* A guest that does not listen yet (a driver probing, firmware) would lose what it is sent.
     * Linux's probe enables every interrupt for a moment, but with OUT2 off. */
    bool listens = s->ier & IER_RDA && s->mcr & MCR_OUT2;
    if (!listens && s->polls < POLLS)
        return 0;
    return (fifo_on(s) ? FIFO : 1u) - s->count;
}

void uart_receive(struct device *dev, const u8 *data, unsigned n)
{
    const struct uart_state *s = dev->state;
    if (s->mcr & MCR_LOOP)
        return; /* the pin is disconnected */
    for (unsigned i = 0; i < n; i++)
        push(dev, data[i], 0);
    update(dev);
}

void uart_break(struct device *dev)
{
    const struct uart_state *s = dev->state;
    if (s->mcr & MCR_LOOP)
        return;
    push(dev, 0, LSR_BI | LSR_FE);
    update(dev);
}

static const struct io_range uart_ranges[] = {{UART_BASE, 8, false}};

static u32 uart_input_room(const struct device *dev, enum input_kind kind, u32 unit)
{
    return unit ? 0 : kind == INPUT_CONSOLE ? uart_room(dev) : 1;
}

static void uart_input(struct device *dev, const struct input *in)
{
    if (in->kind == INPUT_CONSOLE)
        uart_receive(dev, in->data, in->len);
    else
        uart_break(dev);
}

static const struct device_ops uart_ops = {
    .name = "uart16550",
    .state = &uart_desc,
    .ranges = uart_ranges,
    .nranges = ARRAY_SIZE(uart_ranges),
    .reset = uart_reset,
    .pio_read = uart_read,
    .pio_write = uart_write,
    .deadline = uart_deadline,
    .expire = uart_expire,
    .loaded = uart_loaded,
    .room = uart_input_room,
    .input = uart_input,
};

int uart16550_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &uart_ops, env, sizeof(struct uart_state), err);
}

int make_uart(struct device *dev, const struct making *w, struct err *err)
{
    return uart16550_create(dev, w->is->hvc0 ? w->serial_env : w->env, err);
}
