/* See calls.h. Numbers that the kernel takes as 32 bits: what allows compares all 64, what forbids
 * only those, or a caller's upper bits would lead around it. */
#define _GNU_SOURCE /* F_SETSIG */
#include "base/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/types.h"

#define LOW       0xffffffffull
#define OF_SOCKET (~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK))

int calls_allow_fcntl(scmp_filter_ctx f)
{
    static const scmp_datum_t commands[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(commands) && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
                             SCMP_A1(SCMP_CMP_EQ, commands[i]));
    /* O_ASYNC on a terminal makes its foreground processes the owner: SIGIO ends them. */
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 2, SCMP_A1(SCMP_CMP_EQ, F_SETFL),
                             SCMP_A2(SCMP_CMP_MASKED_EQ, O_ASYNC, 0));
    return r;
}

int calls_allow_own_signals(scmp_filter_ctx f)
{
    int r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 2, SCMP_A1(SCMP_CMP_EQ, F_SETOWN),
                             SCMP_A2(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_EQ, F_SETSIG));
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 2, SCMP_A1(SCMP_CMP_EQ, F_SETFL),
                             SCMP_A2(SCMP_CMP_MASKED_EQ, O_ASYNC, O_ASYNC));
    return r;
}

int calls_allow_send(scmp_filter_ctx f)
{
    int r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sendto), 2, SCMP_A4(SCMP_CMP_EQ, 0),
                             SCMP_A3(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    /* A listening socket that is shut down connects by MSG_FASTOPEN. */
    if (!r)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(sendmsg), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, 0));
    return r;
}

int calls_allow_pairs(scmp_filter_ctx f)
{
    static const scmp_datum_t types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(types) && !r; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 2,
                             SCMP_A0(SCMP_CMP_EQ, AF_UNIX),
                             SCMP_A1(SCMP_CMP_MASKED_EQ, OF_SOCKET, types[i]));
    return r;
}

int calls_forbid_addresses(scmp_filter_ctx f)
{
    const u32 no = SCMP_ACT_ERRNO(EACCES);
    int r = seccomp_rule_add(f, no, SCMP_SYS(socketpair), 0);
    if (!r)
        r = seccomp_rule_add(f, no, SCMP_SYS(sendto), 1, SCMP_A4(SCMP_CMP_NE, 0));
    if (!r)
        r = seccomp_rule_add(f, no, SCMP_SYS(sendmsg), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, MSG_FASTOPEN));
    if (!r)
        r = seccomp_rule_add(f, no, SCMP_SYS(sendmmsg), 1,
                             SCMP_A3(SCMP_CMP_MASKED_EQ, MSG_FASTOPEN, MSG_FASTOPEN));
    return r;
}

int calls_forbid_signals(scmp_filter_ctx f)
{
    static const scmp_datum_t commands[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG};
    static const scmp_datum_t requests[] = {FIOSETOWN, SIOCSPGRP, FIOASYNC, TIOCSTI, TIOCLINUX};
    const u32 no = SCMP_ACT_ERRNO(EACCES);
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(commands) && !r; i++)
        r = seccomp_rule_add(f, no, SCMP_SYS(fcntl), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, commands[i]));
    if (!r)
        r = seccomp_rule_add(f, no, SCMP_SYS(fcntl), 2, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, F_SETFL),
                             SCMP_A2(SCMP_CMP_MASKED_EQ, O_ASYNC, O_ASYNC));
    for (size_t i = 0; i < ARRAY_SIZE(requests) && !r; i++)
        r = seccomp_rule_add(f, no, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, requests[i]));
    return r;
}
