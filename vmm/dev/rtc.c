/*
 * MC146818 real-time clock with 128 bytes of CMOS memory (ports 0x70, 0x71; GSI 8), century at
 * 0x32. Specification: Motorola MC146818 data sheet (registers A to D, update cycle, periodic
 * rates); Maxim DS12887 for the larger memory.
 *
 * The calendar is kept as seconds since 1970 and the virtual time from which they count; registers
 * are computed when they are read. While the guest holds updates (SET, or the divider in reset)
 * the bytes in memory are the truth, exactly as written. Interrupt flags are brought up to date
 * when somebody looks; deadlines exist only for enabled interrupts.
 *
 * The wall clock at power-on is an input, given at creation; all else follows from virtual time.
 */
#include "dev/rtc.h"
#include "dev/making.h"
#include "dev/util.h"

#include <string.h>

#define PORT_INDEX 0x70
#define PORT_DATA  0x71
#define INDEX_NMI  0x80

#define CRYSTAL_HZ 32768u
#define DAY_S      86400
#define LAST_WALL  253402300799ull /* 9999-12-31 23:59:59 */

enum {
    REG_SEC,
    REG_SEC_ALARM,
    REG_MIN,
    REG_MIN_ALARM,
    REG_HOUR,
    REG_HOUR_ALARM,
    REG_WDAY,
    REG_MDAY,
    REG_MONTH,
    REG_YEAR,
    REG_A,
    REG_B,
    REG_C,
    REG_D,
    REG_CENTURY = 0x32,
    CMOS_SIZE = 128
};

#define A_UIP    0x80
#define A_DV     0x70
#define A_DV_RUN 0x20 /* divider chain runs from a 32.768 kHz crystal */
#define A_RS     0x0f

#define B_SET 0x80
#define B_PIE 0x40
#define B_AIE 0x20
#define B_UIE 0x10
#define B_DM  0x04 /* binary */
#define B_24  0x02

#define C_IRQF 0x80
#define C_ALL  0x70 /* the same bits as their enables in B */
#define D_VRT  0x80

/* From UIP's rise to the end of the update: 244 us of warning, 1984 us of update. */
#define UPDATE_NS (244000u + 1984000u)

#define RTC_STATE(F, A)                                                                            \
    A(u8, cmos, CMOS_SIZE)                                                                         \
    F(u8, index)                                                                                   \
    F(u8, line)                                                                                    \
    F(u8, wday)    /* day of the week, 0 to 6, minus that of the calendar */                       \
    F(i64, secs)   /* calendar at `since`, in seconds since 1970 */                                \
    F(u64, since)  /* virtual time of an update */                                                 \
    F(u64, phase)  /* updates happen at virtual times congruent to it modulo one second */         \
    F(u64, synced) /* flags in register C are right up to here */

STATE(rtc, "rtc", RTC_STATE);

/* dev->state points at the first member. */
struct rtc {
    struct rtc_state s;
    u64 wall_clock;
};

static void rtc_reset(struct device *dev)
{
    struct rtc_state *s = dev->state;
    memset(s, 0, sizeof(*s));
    s->cmos[REG_A] = A_DV_RUN | 6; /* what firmware leaves: 1024 Hz selected, not enabled */
    s->cmos[REG_B] = B_24;
    s->secs = (i64)((const struct rtc *)dev->state)->wall_clock;
}

static bool divider_runs(const struct rtc_state *s)
{
    return (s->cmos[REG_A] & A_DV) == A_DV_RUN;
}

static bool updating(const struct rtc_state *s)
{
    return divider_runs(s) && !(s->cmos[REG_B] & B_SET);
}

/* ---- calendar ---- */

static i64 floor_div(i64 a, i64 b)
{
    return a / b - (a % b < 0);
}

/* Days since 1970-01-01 of a date of the proleptic Gregorian calendar; month 1 is January, and
 * months and days beyond their range run on into the next. */
static i64 days_of_date(i64 year, i64 month, i64 mday)
{
    static const u16 before[12] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    year += floor_div(month - 1, 12);
    month = month - 1 - floor_div(month - 1, 12) * 12;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    i64 y = year - 1;
    i64 days = y * 365 + floor_div(y, 4) - floor_div(y, 100) + floor_div(y, 400) - 719162;
    return days + before[month] + (leap && month > 1) + mday - 1;
}

static void date_of_days(i64 days, i64 *year, i64 *month, i64 *mday)
{
    /* The estimate is at most one year off either way. */
    i64 y = 1970 + floor_div(days * 400, 146097);
    for (int i = 0; i < 3 && days < days_of_date(y, 1, 1); i++)
        y--;
    for (int i = 0; i < 3 && days >= days_of_date(y + 1, 1, 1); i++)
        y++;
    i64 m = 1;
    while (m < 12 && days >= days_of_date(y, m + 1, 1))
        m++;
    *year = y;
    *month = m;
    *mday = days - days_of_date(y, m, 1) + 1;
}

static u8 encode(const struct rtc_state *s, unsigned v)
{
    return (u8)(s->cmos[REG_B] & B_DM ? v : v / 10 % 10 << 4 | v % 10);
}

static unsigned decode(const struct rtc_state *s, u8 v)
{
    return s->cmos[REG_B] & B_DM ? v : (v >> 4) * 10u + (v & 15);
}

static unsigned decode_hour(const struct rtc_state *s, u8 v)
{
    if (s->cmos[REG_B] & B_24)
        return decode(s, v);
    return decode(s, v & 0x7f) % 12 + (v & 0x80 ? 12 : 0);
}

static u8 encode_hour(const struct rtc_state *s, unsigned h)
{
    if (s->cmos[REG_B] & B_24)
        return encode(s, h);
    return encode(s, h % 12 ? h % 12 : 12) | (h >= 12 ? 0x80 : 0);
}

/* Seconds since 1970 that the clock shows at `now`. */
static i64 seconds_at(const struct rtc_state *s, vns_t now)
{
    return now < s->since ? s->secs - 1 : s->secs + (i64)((now - s->since) / NS_PER_S);
}

/* Puts the calendar into its bytes. */
static void store_calendar(struct rtc_state *s, vns_t now)
{
    i64 t = seconds_at(s, now), days = floor_div(t, DAY_S), year, month, mday;
    unsigned sec = (unsigned)(t - days * DAY_S);
    unsigned wday = (unsigned)(((days + 4) % 7 + 7 + s->wday) % 7);
    date_of_days(days, &year, &month, &mday);
    year = (year % 10000 + 10000) % 10000;
    s->cmos[REG_SEC] = encode(s, sec % 60);
    s->cmos[REG_MIN] = encode(s, sec / 60 % 60);
    s->cmos[REG_HOUR] = encode_hour(s, sec / 3600);
    s->cmos[REG_WDAY] = encode(s, wday + 1);
    s->cmos[REG_MDAY] = encode(s, (unsigned)mday);
    s->cmos[REG_MONTH] = encode(s, (unsigned)month);
    s->cmos[REG_YEAR] = encode(s, (unsigned)(year % 100));
    s->cmos[REG_CENTURY] = encode(s, (unsigned)(year / 100));
}

/* Takes the calendar from its bytes; what is no date or time runs over into the next unit. */
static void take_calendar(struct rtc_state *s, vns_t now)
{
    i64 year = decode(s, s->cmos[REG_CENTURY]) * 100 + decode(s, s->cmos[REG_YEAR]);
    i64 days = days_of_date(year, decode(s, s->cmos[REG_MONTH]), decode(s, s->cmos[REG_MDAY]));
    i64 wday = decode(s, s->cmos[REG_WDAY]) + 6;
    s->wday = (u8)((wday - ((days + 4) % 7 + 7) % 7 + 7) % 7);
    s->secs = days * DAY_S + decode_hour(s, s->cmos[REG_HOUR]) * 3600 +
              decode(s, s->cmos[REG_MIN]) * 60 + decode(s, s->cmos[REG_SEC]);
    /* The divider chain runs on: the next update comes when it would have come anyway. */
    u64 into = (now % NS_PER_S + NS_PER_S - s->phase) % NS_PER_S;
    s->since = now - into;
    if (into > now) { /* that would be before power-on: count from the next update instead */
        s->since += NS_PER_S;
        s->secs++;
    }
}

/* ---- alarm ---- */

/* The first second of the day after `from` (up to a day later) that the alarm matches; -1: none. */
static i64 next_alarm(const struct rtc_state *s, i64 from)
{
    bool any_s = s->cmos[REG_SEC_ALARM] >= 0xc0;
    bool any_m = s->cmos[REG_MIN_ALARM] >= 0xc0;
    bool any_h = s->cmos[REG_HOUR_ALARM] >= 0xc0;
    i64 sec = decode(s, s->cmos[REG_SEC_ALARM]);
    i64 min = decode(s, s->cmos[REG_MIN_ALARM]);
    i64 hour = decode_hour(s, s->cmos[REG_HOUR_ALARM]);
    if ((!any_s && sec > 59) || (!any_m && min > 59) || (!any_h && hour > 23))
        return -1;
    for (i64 h = (from + 1) / 3600; h < 48; h++) {
        if (!any_h && h % 24 != hour)
            continue;
        i64 first = MAX(from + 1 - h * 3600, 0);
        for (i64 m = first / 60; m < 60; m++) {
            if (!any_m && m != min)
                continue;
            i64 at = MAX(first - m * 60, 0);
            if (any_s)
                return h * 3600 + m * 60 + at;
            if (at <= sec)
                return h * 3600 + m * 60 + sec;
        }
    }
    return -1;
}

/* Virtual time of the first alarm after `after`. */
static vns_t alarm_time(const struct rtc_state *s, vns_t after)
{
    if (!updating(s))
        return NEVER;
    i64 t = seconds_at(s, after), day = floor_div(t, DAY_S) * DAY_S;
    i64 match = next_alarm(s, t - day);
    if (match < 0)
        return NEVER;
    i64 ahead = day + match - s->secs; /* seconds after `since` */
    return ahead < 0 ? NEVER : add_sat(s->since, (u64)ahead * NS_PER_S);
}

static vns_t update_time(const struct rtc_state *s, vns_t after)
{
    if (!updating(s))
        return NEVER;
    u64 into = (after % NS_PER_S + NS_PER_S - s->phase) % NS_PER_S;
    return add_sat(after, NS_PER_S - into);
}

/* Crystal ticks of one periodic interrupt, 0 when there is none. */
static u64 periodic_ticks(const struct rtc_state *s)
{
    unsigned rs = s->cmos[REG_A] & A_RS;
    if (!divider_runs(s) || rs == 0)
        return 0;
    return 1u << (rs <= 2 ? rs + 6 : rs - 1);
}

static vns_t periodic_time(const struct rtc_state *s, vns_t after)
{
    u64 period = periodic_ticks(s);
    if (!period)
        return NEVER;
    /* The chain's ticks, counted from an update at or before power-on. */
    u64 ticks = ticks_at(add_sat(after, NS_PER_S - s->phase), CRYSTAL_HZ);
    vns_t t = time_of_tick((ticks / period + 1) * period, CRYSTAL_HZ);
    return t == NEVER ? NEVER : t - (NS_PER_S - s->phase);
}

/* ---- flags and interrupt ---- */

static void sync(struct rtc_state *s, vns_t now)
{
    if (now <= s->synced)
        return;
    if (update_time(s, s->synced) <= now)
        s->cmos[REG_C] |= B_UIE;
    if (periodic_time(s, s->synced) <= now)
        s->cmos[REG_C] |= B_PIE;
    if (alarm_time(s, s->synced) <= now)
        s->cmos[REG_C] |= B_AIE;
    s->synced = now;
}

static void update_line(struct device *dev)
{
    struct rtc_state *s = dev->state;
    u8 line = !!(s->cmos[REG_C] & s->cmos[REG_B] & C_ALL);
    if (line != s->line) {
        s->line = line;
        dev_irq(dev, RTC_GSI, line);
    }
    dev_changed(dev);
}

static vns_t rtc_deadline(const struct device *dev)
{
    const struct rtc_state *s = dev->state;
    u8 wanted = s->cmos[REG_B] & ~s->cmos[REG_C];
    vns_t t = NEVER;
    if (wanted & B_PIE)
        t = MIN(t, periodic_time(s, s->synced));
    if (wanted & B_UIE)
        t = MIN(t, update_time(s, s->synced));
    if (wanted & B_AIE)
        t = MIN(t, alarm_time(s, s->synced));
    return t;
}

static void rtc_expire(struct device *dev, vns_t now)
{
    sync(dev->state, now);
    update_line(dev);
}

/* ---- registers ---- */

static bool is_calendar(unsigned reg)
{
    return reg == REG_SEC || reg == REG_MIN || reg == REG_HOUR ||
           (reg >= REG_WDAY && reg <= REG_YEAR) || reg == REG_CENTURY;
}

static u8 read_register(struct device *dev, unsigned reg, vns_t now)
{
    struct rtc_state *s = dev->state;
    u8 v;
    switch (reg) {
    case REG_A:
        v = s->cmos[REG_A];
        if (updating(s) && update_time(s, now) - now <= UPDATE_NS)
            v |= A_UIP;
        return v;
    case REG_C:
        v = s->cmos[REG_C];
        if (v & s->cmos[REG_B] & C_ALL)
            v |= C_IRQF;
        s->cmos[REG_C] = 0;
        return v;
    case REG_D: return D_VRT;
    default:
        if (is_calendar(reg) && updating(s))
            store_calendar(s, now);
        return s->cmos[reg];
    }
}

static void write_register(struct rtc_state *s, unsigned reg, u8 v, vns_t now)
{
    bool was_updating = updating(s), was_divider = divider_runs(s);
    /* The bytes become the truth before anything changes what they mean or whether they move. */
    if (was_updating && (is_calendar(reg) || reg == REG_A || reg == REG_B))
        store_calendar(s, now);
    switch (reg) {
    case REG_A:
        s->cmos[REG_A] = v & (u8)~A_UIP;
        /* The first update comes half a second after the divider leaves reset. */
        if (!was_divider && divider_runs(s))
            s->phase = (now + NS_PER_S / 2) % NS_PER_S;
        break;
    case REG_B: s->cmos[REG_B] = v & B_SET ? v & (u8)~B_UIE : v; break;
    case REG_C:
    case REG_D: return;
    default: s->cmos[reg] = v; break;
    }
    /* A change of the data mode of a running clock only changes how it is read. */
    if (updating(s) && (is_calendar(reg) || reg == REG_A || (reg == REG_B && !was_updating)))
        take_calendar(s, now);
}

static u8 rtc_read8(struct device *dev, u16 port)
{
    const struct rtc_state *s = dev->state;
    if (port != PORT_DATA)
        return 0xff; /* the index is write-only */
    return read_register(dev, s->index & (u8)~INDEX_NMI, dev_now(dev));
}

static void rtc_write8(struct device *dev, u16 port, u8 v)
{
    struct rtc_state *s = dev->state;
    if (port == PORT_INDEX)
        s->index = v;
    else if (port == PORT_DATA)
        write_register(s, s->index & (u8)~INDEX_NMI, v, dev_now(dev));
}

static u32 rtc_read(struct device *dev, u16 port, unsigned size)
{
    sync(dev->state, dev_now(dev));
    u32 v = pio_read_bytes(dev, port, size, rtc_read8);
    update_line(dev);
    return v;
}

static void rtc_write(struct device *dev, u16 port, unsigned size, u32 value)
{
    sync(dev->state, dev_now(dev));
    pio_write_bytes(dev, port, size, value, rtc_write8);
    update_line(dev);
}

static int rtc_loaded(struct device *dev, struct err *err)
{
    const struct rtc_state *s = dev->state;
    if (s->line > 1 || s->wday > 6 || s->cmos[REG_A] & A_UIP || s->cmos[REG_C] & ~C_ALL)
        return dev_bad_state(dev, err, "register");
    if (s->phase >= NS_PER_S)
        return dev_bad_state(dev, err, "phase");
    /* A guest can write years up to 25755: 8e11 seconds. */
    if (s->secs < -(1ll << 40) || s->secs > 1ll << 40)
        return dev_bad_state(dev, err, "secs");
    return 0;
}

bool rtc_nmi_masked(const struct device *dev)
{
    const struct rtc_state *s = dev->state;
    return s->index & INDEX_NMI;
}

static const struct io_range rtc_ranges[] = {{PORT_INDEX, 2, false}};

static const struct device_ops rtc_ops = {
    .name = "rtc",
    .state = &rtc_desc,
    .ranges = rtc_ranges,
    .nranges = ARRAY_SIZE(rtc_ranges),
    .reset = rtc_reset,
    .pio_read = rtc_read,
    .pio_write = rtc_write,
    .deadline = rtc_deadline,
    .expire = rtc_expire,
    .loaded = rtc_loaded,
};

int rtc_create(struct device *dev, const struct dev_env *env, u64 wall_clock, struct err *err)
{
    if (wall_clock > LAST_WALL)
        return err_set(err, -EINVAL, "wall clock %llu is beyond the year 9999",
                       (unsigned long long)wall_clock);
    struct rtc *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(err, -ENOMEM, "no memory for device %s", rtc_ops.name);
    r->wall_clock = wall_clock;
    *dev = (struct device){.ops = &rtc_ops, .env = env, .state = &r->s};
    rtc_reset(dev);
    return 0;
}

int make_rtc(struct device *dev, const struct making *w, struct err *err)
{
    return rtc_create(dev, w->env, w->is->wall_clock, err);
}
