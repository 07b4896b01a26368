/* See packet.h. */
#include "replay/gdb/packet.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define INTERRUPT_BYTE 0x03
#define ESCAPE_XOR     0x20

/* A run: the character, '*', and one that says how often it is repeated. */
#define RUN_BIAS 29
#define RUN_MIN  3
#define RUN_MAX  97

/* The value of a hex digit, -1 for none. */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static void start(struct packet_reader *r)
{
    r->state = PACKET_DATA;
    r->sum = 0;
    r->bad_sum = r->refused = false;
    r->len = 0;
}

static void add(struct packet_reader *r, char c)
{
    if (r->len < GDB_PACKET_SIZE)
        r->data[r->len++] = c;
    else
        r->refused = true;
}

static void add_run(struct packet_reader *r, u8 byte)
{
    unsigned n = byte - RUN_BIAS;
    if (!r->len || byte < RUN_BIAS + RUN_MIN || n > RUN_MAX) {
        r->refused = true;
        return;
    }
    for (char c = r->data[r->len - 1]; n > 0; n--)
        add(r, c);
}

static enum packet_event idle(struct packet_reader *r, u8 byte)
{
    switch (byte) {
    case '$': start(r); return PACKET_NONE;
    case '+': return PACKET_ACK;
    case '-': return PACKET_NAK;
    case INTERRUPT_BYTE: return PACKET_INTERRUPT;
    default: return PACKET_GARBAGE;
    }
}

static void data_byte(struct packet_reader *r, u8 byte)
{
    if (byte == '$') { /* never part of one: the rest of the last was lost */
        start(r);
        return;
    }
    if (byte == '#') {
        r->refused |= r->state != PACKET_DATA;
        r->state = PACKET_SUM1;
        return;
    }
    r->sum = (u8)(r->sum + byte);
    if (r->state == PACKET_ESCAPE) {
        add(r, (char)(byte ^ ESCAPE_XOR));
        r->state = PACKET_DATA;
    } else if (r->state == PACKET_RUN) {
        add_run(r, byte);
        r->state = PACKET_DATA;
    } else if (byte == '}') {
        r->state = PACKET_ESCAPE;
    } else if (byte == '*') {
        r->state = PACKET_RUN;
    } else {
        add(r, (char)byte);
    }
}

enum packet_event packet_read(struct packet_reader *r, u8 byte)
{
    int digit = hex_digit((char)byte);
    switch (r->state) {
    case PACKET_IDLE: return idle(r, byte);
    case PACKET_SUM1:
        r->bad_sum = digit < 0;
        r->told = (u8)((unsigned)digit << 4);
        r->state = PACKET_SUM2;
        return PACKET_NONE;
    case PACKET_SUM2:
        r->bad_sum |= digit < 0;
        r->told |= (u8)digit;
        r->state = PACKET_IDLE;
        r->data[r->len] = 0;
        if (r->bad_sum || r->told != r->sum)
            return PACKET_BAD;
        return r->refused ? PACKET_REFUSED : PACKET_READY;
    default: data_byte(r, byte); return PACKET_NONE;
    }
}

/* Characters that would be taken for framing or an acknowledgement by a simple-minded reader. */
static bool bad_count(size_t n)
{
    u8 c = (u8)(n + RUN_BIAS);
    return c == '#' || c == '$' || c == '+' || c == '-';
}

size_t packet_write(const char *data, size_t len, u8 *out)
{
    u8 *p = out, sum = 0;
    *p++ = '$';
    for (size_t i = 0; i < len;) {
        if (data[i] == '}' && i + 1 < len) { /* a run is expanded before escapes are read */
            *p++ = (u8)data[i++];
            *p++ = (u8)data[i++];
            continue;
        }
        size_t n = 0; /* repetitions */
        while (i + n + 1 < len && n < RUN_MAX && data[i + n + 1] == data[i])
            n++;
        while (n >= RUN_MIN && bad_count(n))
            n--;
        *p++ = (u8)data[i];
        if (n >= RUN_MIN) {
            *p++ = '*';
            *p++ = (u8)(n + RUN_BIAS);
        } else {
            n = 0;
        }
        i += n + 1;
    }
    for (const u8 *q = out + 1; q < p; q++)
        sum = (u8)(sum + *q);
    *p++ = '#';
    *p++ = (u8) "0123456789abcdef"[sum >> 4];
    *p++ = (u8) "0123456789abcdef"[sum & 15];
    return (size_t)(p - out);
}

void reply_clear(struct reply *r)
{
    r->len = 0;
    r->full = false;
}

static void put(struct reply *r, const char *text, size_t len)
{
    if (len > sizeof(r->data) - r->len) {
        r->full = true;
        return;
    }
    memcpy(r->data + r->len, text, len);
    r->len += len;
}

void reply_text(struct reply *r, const char *text)
{
    put(r, text, strlen(text));
}

void reply_format(struct reply *r, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    reply_text(r, text);
}

void reply_hex(struct reply *r, const void *bytes, size_t len)
{
    const u8 *p = bytes;
    for (size_t i = 0; i < len; i++) {
        char digits[2] = {"0123456789abcdef"[p[i] >> 4], "0123456789abcdef"[p[i] & 15]};
        put(r, digits, 2);
    }
}

size_t reply_binary(struct reply *r, const void *bytes, size_t len)
{
    const u8 *p = bytes;
    for (size_t i = 0; i < len; i++) {
        bool special = p[i] == '}' || p[i] == '#' || p[i] == '$' || p[i] == '*';
        char pair[2] = {'}', (char)(p[i] ^ ESCAPE_XOR)};
        put(r, special ? pair : (const char *)p + i, special ? 2 : 1);
        if (r->full)
            return i;
    }
    return len;
}

void reply_error(struct reply *r, const char *text)
{
    reply_text(r, "E.");
    for (; *text; text++) {
        char c = strchr("}#$*", *text) || *text < ' ' ? ' ' : *text;
        put(r, &c, 1);
    }
}

bool parse_hex(const char **at, u64 *value)
{
    const char *p = *at;
    u64 v = 0;
    for (int digit; (digit = hex_digit(*p)) >= 0; p++) {
        if (v >> 60)
            return false;
        v = v << 4 | (u64)digit;
    }
    if (p == *at)
        return false;
    *at = p;
    *value = v;
    return true;
}

bool parse_char(const char **at, char c)
{
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

bool parse_bytes(const char *digits, u8 *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(digits[2 * i]);
        int low = high < 0 ? -1 : hex_digit(digits[2 * i + 1]);
        if (low < 0)
            return false;
        out[i] = (u8)(high << 4 | low);
    }
    return true;
}
