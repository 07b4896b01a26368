/*
 * A recording as it is made: the machine, what is connected to it, and who writes what it does.
 * session_start() puts it together, record.c runs it.
 */
#ifndef REPRISE_CMD_SESSION_H
#define REPRISE_CMD_SESSION_H

#include "cmd/again.h"
#include "cmd/agent_minder.h"
#include "cmd/attach.h"
#include "cmd/console.h"
#include "cmd/displays.h"
#include "cmd/guest.h"
#include "cmd/notes.h"
#include "cmd/record_options.h"
#include "cmd/way.h"
#include "live/live.h"
#include "live/net_feed.h"
#include "live/turns.h"
#include "replay/gpu_recorder.h"
#include "replay/keeper.h"
#include "replay/begin.h"
#include "replay/recorder.h"

struct session {
    struct recording rec;
    struct keeper *keeper;
    struct attach *attach;
    struct agent_minder minder;
    struct machine *m;
    struct live *live;
    struct way way;
    bool checkpoint_end;
    u32 shared;             /* checkpoint files of that recording */
    struct begin *begin;    /* on the way to where it begins in another recording */
    struct log_writer *log; /* until the recorder has it */
    u64 inputs, host_ns;    /* what its log has of before that */
    struct recorder *recorder;
    struct console console;
    struct guest *guest;
    struct turns *turns; /* --turns; NULL: none */
    FILE *turns_out;     /* --turns-out; NULL: none */
    struct again *again; /* --again; NULL: no */
    struct gpu_recorder *gpu_log;
    bool gpu_log_told; /* that it has ended */
    struct displays displays;
    struct lacking lacking;
    struct screen_source screen; /* with a renderer */
    struct net_feed net_feeds[DESCRIPTION_NETS];
    struct feed *feeds[LIVE_FEEDS];
    unsigned nfeeds;
};
#define SESSION_CLOSED ((struct session){.rec = RECORDING_CLOSED, .minder = AGENT_MINDER_NONE})

/* Everything up to the first instruction, of a machine of `g`, which has to stay for as long as the
 * session. Also after an error session_close() is due. */
int session_start(struct session *s, const struct record_args *a, struct guest *g, struct err *err);
/* From here on what the machine prints and sends goes where it is to go. */
void session_connect(struct session *s);
/* Frees it, and closes what of the host is connected to the machine. */
void session_close(struct session *s);

#endif
