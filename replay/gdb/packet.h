/*
 * Packets of the remote protocol: framing, escapes, run lengths (gdb manual, E.1 "Overview"), and
 * what replies are built with. No I/O here.
 */
#ifndef REPRISE_GDB_PACKET_H
#define REPRISE_GDB_PACKET_H

#include "base/types.h"

/* Bytes between '$' and '#', in both directions; what qSupported tells gdb. */
#define GDB_PACKET_SIZE 0x4000

enum packet_event {
    PACKET_NONE,
    PACKET_READY,     /* data, len; valid until the next byte is read */
    PACKET_BAD,       /* the checksum is wrong */
    PACKET_REFUSED,   /* longer than GDB_PACKET_SIZE, or a run length without sense */
    PACKET_ACK,       /* '+' between packets */
    PACKET_NAK,       /* '-' */
    PACKET_INTERRUPT, /* 0x03 */
    PACKET_GARBAGE,   /* what no gdb says between packets; the streams here lose nothing */
};

/* All zero to begin with. */
struct packet_reader {
    enum { PACKET_IDLE, PACKET_DATA, PACKET_ESCAPE, PACKET_RUN, PACKET_SUM1, PACKET_SUM2 } state;
    u8 sum, told;
    bool bad_sum, refused;
    size_t len;
    char data[GDB_PACKET_SIZE + 1]; /* decoded; a NUL follows when READY */
};

enum packet_event packet_read(struct packet_reader *r, u8 byte);

/* Frames `data` (escaped already where it is binary), with run lengths. Returns the bytes written,
 * at most len + 4. */
size_t packet_write(const char *data, size_t len, u8 *out);

/* A reply under construction. What does not fit is left out and `full` is set. */
struct reply {
    size_t len;
    bool full;
    char data[GDB_PACKET_SIZE];
};

void reply_clear(struct reply *r);
void reply_text(struct reply *r, const char *text);
void reply_format(struct reply *r, const char *format, ...) PRINTF(2, 3);
/* Two digits a byte. */
void reply_hex(struct reply *r, const void *bytes, size_t len);
/* With escapes; returns how many bytes fitted. */
size_t reply_binary(struct reply *r, const void *bytes, size_t len);
/* "E.text", without characters that the framing knows. */
void reply_error(struct reply *r, const char *text);

/* Reads hex digits at *at (1 to 16, or more if the first are zeros) and moves it past them. */
bool parse_hex(const char **at, u64 *value);
/* `len` bytes from 2 * len digits. */
bool parse_bytes(const char *digits, u8 *out, size_t len);
/* Moves *at past `c` if it is there. */
bool parse_char(const char **at, char c);

#endif
