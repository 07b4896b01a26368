/*
 * ACPI fixed hardware: PM1 event and control blocks, the 32-bit PM timer, GPE0, the SMI command
 * port with its ACPI enable and disable values, and the reset port. ACPI 6.4, section 4.8 (fixed
 * hardware) and 4.8.3.6 (reset register); port numbers in board/acpi.h, which dsdt.asl and the
 * FADT share.
 *
 * The timer is a function of virtual time. The power button is an input: the machine presses it
 * at an exact position. No other nondeterminism enters here.
 */
#include "dev/acpi_pm.h"
#include "board/acpi.h"
#include "dev/making.h"
#include "dev/util.h"

#define PM_TIMER_HZ 3579545u
#define APM_STATUS  (ACPI_SMI_CMD + 1)

#define STS_TMR    0x0001
#define STS_GBL    0x0020
#define STS_PWRBTN 0x0100
#define STS_SLPBTN 0x0200
#define STS_RTC    0x0400
#define STS_WAK    0x8000
#define STS_ALL    (STS_TMR | STS_GBL | STS_PWRBTN | STS_SLPBTN | STS_RTC | STS_WAK)
#define EN_ALL     (STS_TMR | STS_GBL | STS_PWRBTN | STS_SLPBTN | STS_RTC)

#define CNT_SCI_EN    0x0001
#define CNT_BM_RLD    0x0002
#define CNT_SLP_TYP   0x1c00
#define CNT_SLP_SHIFT 10
#define CNT_SLP_EN    0x2000

#define RST_CPU 0x04
#define RST_RW  0x0a /* full reset, system reset: plain bits */

#define ACPI_PM_STATE(F, A)                                                                        \
    F(u16, sts)                                                                                    \
    F(u16, en)                                                                                     \
    F(u16, cnt)                                                                                    \
    F(u16, gpe_sts)                                                                                \
    F(u16, gpe_en)                                                                                 \
    F(u8, apm_cnt)                                                                                 \
    F(u8, apm_sts)                                                                                 \
    F(u8, reset_ctl)                                                                               \
    F(u8, sci)                                                                                     \
    F(u64, half) /* halves of the timer's range seen: TMR_STS is set when bit 31 changes */

STATE(acpi_pm, "acpi_pm", ACPI_PM_STATE);

static void acpi_pm_reset(struct device *dev)
{
    struct acpi_pm_state *s = dev->state;
    *s = (struct acpi_pm_state){0};
    s->half = ticks_at(dev_now(dev), PM_TIMER_HZ) >> 31;
}

static void sync_timer(struct acpi_pm_state *s, vns_t now)
{
    u64 half = ticks_at(now, PM_TIMER_HZ) >> 31;
    if (half != s->half) {
        s->half = half;
        s->sts |= STS_TMR;
    }
}

static void update_sci(struct device *dev)
{
    struct acpi_pm_state *s = dev->state;
    u8 sci = (s->cnt & CNT_SCI_EN) && ((s->sts & s->en) || (s->gpe_sts & s->gpe_en));
    if (sci != s->sci) {
        s->sci = sci;
        dev_irq(dev, ACPI_SCI_GSI, sci);
    }
    dev_changed(dev);
}

/* One byte of a little-endian 16-bit register. */
static u8 byte_of(u16 reg, unsigned index)
{
    return (u8)(reg >> (8 * index));
}

static u16 with_byte(u16 reg, unsigned index, u8 v)
{
    return (u16)((reg & ~(0xff << (8 * index))) | v << (8 * index));
}

static u8 acpi_pm_read8(struct device *dev, u16 port)
{
    struct acpi_pm_state *s = dev->state;
    unsigned lane = port & 1;
    switch (port) {
    case ACPI_PM1_EVT:
    case ACPI_PM1_EVT + 1: return byte_of(s->sts, lane);
    case ACPI_PM1_EVT + 2:
    case ACPI_PM1_EVT + 3: return byte_of(s->en, lane);
    case ACPI_PM1_CNT:
    case ACPI_PM1_CNT + 1: return byte_of(s->cnt, lane);
    case ACPI_PM_TMR:
    case ACPI_PM_TMR + 1:
    case ACPI_PM_TMR + 2:
    case ACPI_PM_TMR + 3:
        return (u8)(ticks_at(dev_now(dev), PM_TIMER_HZ) >> (8 * (port - ACPI_PM_TMR)));
    case ACPI_GPE0:
    case ACPI_GPE0 + 1: return byte_of(s->gpe_sts, lane);
    case ACPI_GPE0 + 2:
    case ACPI_GPE0 + 3: return byte_of(s->gpe_en, lane);
    case ACPI_SMI_CMD: return s->apm_cnt;
    case APM_STATUS: return s->apm_sts;
    case ACPI_RESET: return s->reset_ctl;
    default: return 0xff;
    }
}

static void write_control(struct device *dev, unsigned lane, u8 v)
{
    struct acpi_pm_state *s = dev->state;
    u16 want = with_byte(s->cnt, lane, v);
    /* SCI_EN belongs to the SMI command port; GBL_RLS and SLP_EN read as zero. */
    s->cnt = (s->cnt & CNT_SCI_EN) | (want & (CNT_BM_RLD | CNT_SLP_TYP));
    if ((want & CNT_SLP_EN) && (want & CNT_SLP_TYP) >> CNT_SLP_SHIFT == ACPI_SLP_TYP_S5)
        dev_event(dev, DEV_POWEROFF, 0);
}

static void acpi_pm_write8(struct device *dev, u16 port, u8 v)
{
    struct acpi_pm_state *s = dev->state;
    unsigned lane = port & 1;
    switch (port) {
    case ACPI_PM1_EVT:
    case ACPI_PM1_EVT + 1: s->sts &= ~with_byte(0, lane, v); break;
    case ACPI_PM1_EVT + 2:
    case ACPI_PM1_EVT + 3: s->en = with_byte(s->en, lane, v) & EN_ALL; break;
    case ACPI_PM1_CNT:
    case ACPI_PM1_CNT + 1: write_control(dev, lane, v); break;
    case ACPI_GPE0:
    case ACPI_GPE0 + 1: s->gpe_sts &= ~with_byte(0, lane, v); break;
    case ACPI_GPE0 + 2:
    case ACPI_GPE0 + 3: s->gpe_en = with_byte(s->gpe_en, lane, v); break;
    case ACPI_SMI_CMD:
        s->apm_cnt = v;
        if (v == ACPI_ENABLE_CMD)
            s->cnt |= CNT_SCI_EN;
        else if (v == ACPI_DISABLE_CMD)
            s->cnt &= (u16)~CNT_SCI_EN;
        break;
    case APM_STATUS: s->apm_sts = v; break;
    case ACPI_RESET:
        s->reset_ctl = v & RST_RW;
        /* Without SYS_RST it would only INIT the CPU, whose next step is firmware: the same. */
        if (v & RST_CPU)
            dev_event(dev, DEV_RESET, 0);
        break;
    default: break;
    }
}

static u32 acpi_pm_read(struct device *dev, u16 port, unsigned size)
{
    sync_timer(dev->state, dev_now(dev));
    return pio_read_bytes(dev, port, size, acpi_pm_read8);
}

static void acpi_pm_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    sync_timer(dev->state, dev_now(dev));
    pio_write_bytes(dev, port, size, value, acpi_pm_write8);
    update_sci(dev);
}

static vns_t acpi_pm_deadline(const struct device *dev)
{
    const struct acpi_pm_state *s = dev->state;
    if (!(s->cnt & CNT_SCI_EN) || !(s->en & STS_TMR) || (s->sts & STS_TMR))
        return NEVER;
    return time_of_tick((s->half + 1) << 31, PM_TIMER_HZ);
}

static void acpi_pm_expire(struct device *dev, vns_t now)
{
    sync_timer(dev->state, now);
    update_sci(dev);
}

static int acpi_pm_loaded(struct device *dev, struct err *err)
{
    const struct acpi_pm_state *s = dev->state;
    if (s->sts & ~STS_ALL)
        return dev_bad_state(dev, err, "sts");
    if (s->en & ~EN_ALL)
        return dev_bad_state(dev, err, "en");
    if (s->cnt & ~(CNT_SCI_EN | CNT_BM_RLD | CNT_SLP_TYP))
        return dev_bad_state(dev, err, "cnt");
    if (s->sci > 1)
        return dev_bad_state(dev, err, "sci");
    if (s->half >> 33)
        return dev_bad_state(dev, err, "half");
    return 0;
}

void acpi_power_button(struct device *dev)
{
    struct acpi_pm_state *s = dev->state;
    sync_timer(s, dev_now(dev));
    s->sts |= STS_PWRBTN;
    update_sci(dev);
}

void acpi_gpe(struct device *dev, unsigned bit)
{
    struct acpi_pm_state *s = dev->state;
    sync_timer(s, dev_now(dev));
    s->gpe_sts |= (u16)(1u << (bit & 15));
    update_sci(dev);
}

static const struct io_range acpi_pm_ranges[] = {
    {ACPI_PM1_EVT, 4, false}, {ACPI_PM1_CNT, 2, false}, {ACPI_PM_TMR, 4, false},
    {ACPI_GPE0, 4, false},    {ACPI_SMI_CMD, 2, false}, {ACPI_RESET, 1, false},
};

static void acpi_pm_input(struct device *dev, const struct input *in)
{
    acpi_power_button(dev);
}

static const struct device_ops acpi_pm_ops = {
    .name = "acpi_pm",
    .state = &acpi_pm_desc,
    .ranges = acpi_pm_ranges,
    .nranges = ARRAY_SIZE(acpi_pm_ranges),
    .reset = acpi_pm_reset,
    .pio_read = acpi_pm_read,
    .pio_write = acpi_pm_write,
    .deadline = acpi_pm_deadline,
    .expire = acpi_pm_expire,
    .loaded = acpi_pm_loaded,
    .input = acpi_pm_input,
};

int acpi_pm_create(struct device *dev, const struct dev_env *env, struct err *err)
{
    return dev_alloc(dev, &acpi_pm_ops, env, sizeof(struct acpi_pm_state), err);
}

MAKER(acpi_pm, acpi_pm_create)
