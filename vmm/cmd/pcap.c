/*
 * `reprise pcap`: replays, and writes what the networks carried. Frames that the guest sent are
 * nowhere in the recording: the replay sends them again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/interrupt.h"
#include "cmd/travel.h"
#include "replay/pcapng.h"
#include "version.h"

enum { O_FROM = 256, O_TO, O_NET, O_FORCE, O_JSON };

/* clang-format off */
static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "The pcapng file; - for standard output (required)", 0},
    {"from", O_FROM, "POINT", 0, "From there on", 0},
    {"to", O_TO, "POINT", 0, "Up to there (default: the recording's end)", 0},
    {"net", O_NET, "N", 0, "Only network N (from 0)", 0},
    {"force", O_FORCE, NULL, 0, "Replace FILE", 0},
    {"json", O_JSON, NULL, 0, "What was written, as JSON", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Replays a recording and writes all that its networks carried as pcapng, for Wireshark, tshark "
    "and tcpdump: an interface a network, in and out as the guest sees it. Times are the guest's "
    "wall clock at power-on plus virtual time; each packet's comment is the POINT at which it "
    "passed. " POINT_HELP EXIT_HELP;

struct pcap_args {
    const char *dir, *output;
    struct point from, to;
    bool has_from, has_net, force, json;
    unsigned net;
    struct disk_names disks;
};

/* Does the machine have to go there to find it? */
static bool is_found(const struct point *p)
{
    return point_is_found(p) || (p->kind == POINT_END && p->n);
}

static bool finds(const struct pcap_args *a)
{
    return is_found(&a->to) || (a->has_from && is_found(&a->from));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct pcap_args *a = state->input;
    u64 n;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &a->disks; break;
    case 'o': a->output = arg; break;
    case O_FROM:
        option_point(state, arg, "--from", &a->from);
        a->has_from = true;
        break;
    case O_TO: option_point(state, arg, "--to", &a->to); break;
    case O_NET:
        n = option_number(state, arg, "--net");
        a->net = (unsigned)MIN(n, (u64)DESCRIPTION_NETS);
        a->has_net = true;
        break;
    case O_FORCE: a->force = true; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (!a->output || !*a->output)
            argp_error(state, "-o FILE is missing: where to?");
        if (a->disks.trust && !finds(a))
            argp_error(state, "--trust-checkpoints is for points that a replay finds: console:, "
                              "time:, end-N");
        if (!strcmp(a->output, "-") && a->json)
            argp_error(state, "-o - and --json: both would go to standard output");
        if (!strcmp(a->output, "-") && isatty(STDOUT_FILENO))
            argp_error(state,
                       "-o -: packets are not for a terminal; pipe them, as to `tshark -r -`");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct direction {
    u64 frames, bytes;
};

struct capture {
    FILE *out;
    struct machine *m;
    u64 power_on;                     /* ns of Unix time */
    struct instant from, first, last; /* from where; of the packets written */
    bool has[DESCRIPTION_NETS];
    u32 interface[DESCRIPTION_NETS];
    struct direction in, sent;
};

static void put(struct capture *c, unsigned unit, bool inbound, const void *frame, size_t len)
{
    struct instant now = {machine_position(c->m), machine_now(c->m)};
    char comment[40];
    if (unit >= DESCRIPTION_NETS || !c->has[unit] || now.position < c->from.position ||
        now.time < c->from.time)
        return;
    snprintf(comment, sizeof(comment), "insn:%" PRIu64, now.position);
    struct pcapng_packet p = {.interface = c->interface[unit],
                              .time = c->power_on + now.time,
                              .inbound = inbound,
                              .frame = frame,
                              .len = (u32)len,
                              .comment = comment};
    pcapng_packet(c->out, &p);
    struct direction *d = inbound ? &c->in : &c->sent;
    if (!c->in.frames && !c->sent.frames)
        c->first = now;
    c->last = now;
    d->frames++;
    d->bytes += len;
}

static void on_emit(void *opaque, enum dev_emit kind, unsigned unit, const void *data, size_t len)
{
    if (kind == EMIT_PACKET)
        put(opaque, unit, false, data, len);
}

static void on_taken(void *opaque, const struct input *in)
{
    if (in->kind == INPUT_PACKET)
        put(opaque, in->unit, true, in->data, in->len);
}

static int begin(struct capture *c, const struct pcap_args *a, struct travel *tr, struct err *err)
{
    const struct machine_description *d = &timeline_recording(tr->t)->desc;
    unsigned n = 0, interfaces = 0;
    while (n < DESCRIPTION_NETS && d->net[n].mtu)
        n++;
    if (!n)
        return err_set(err, -ENOENT, "%s has no network (it was recorded without --net)", a->dir);
    if (a->has_net && a->net >= n)
        return err_set(err, -ENOENT, "%s has %u network%s, numbered from 0; there is no %u", a->dir,
                       n, n == 1 ? "" : "s", a->net);
    c->m = timeline_machine(tr->t);
    c->power_on = d->wall_clock * 1000000000u;
    pcapng_begin(c->out, "reprise " REPRISE_VERSION);
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        if (a->has_net && i != a->net)
            continue;
        snprintf(name, sizeof(name), "net%u", i);
        c->has[i] = true;
        c->interface[i] = interfaces++;
        pcapng_interface(c->out, name, d->net[i].backend, d->net[i].mac);
    }
    return 0;
}

/* The instant of a point, for which the machine may have to go there. */
static int find(struct travel *tr, const struct point *p, struct instant *at, struct err *err)
{
    enum timeline_stop stop;
    if (p->kind == POINT_END && !p->n) {
        *at = (struct instant){NEVER, 0};
        return 0;
    }
    if (!is_found(p))
        return point_in_log(p, timeline_recording(tr->t)->rec.path, at, err);
    int code = travel_to(tr, p, &stop, err);
    *at = timeline_now(tr->t);
    return code;
}

static int capture(struct capture *c, const struct pcap_args *a, struct travel *tr, struct err *err)
{
    struct instant to = {NEVER, 0};
    enum timeline_stop stop;
    int code = find(tr, &a->to, &to, err);
    if (!code && a->has_from)
        code = find(tr, &a->from, &c->from, err);
    if (!code && (to.position < c->from.position || to.time < c->from.time) && to.position != NEVER)
        code = err_set(err, -EINVAL,
                       "--to, position %" PRIu64 ", lies before --from, position %" PRIu64,
                       to.position, c->from.position);
    /* One position ahead: what happens exactly at --from is part of it. */
    u64 ahead = c->from.position == NEVER || !c->from.position ? 0 : c->from.position - 1;
    if (!code)
        code = timeline_seek(tr->t, (struct instant){ahead, 0}, &stop, err);
    if (code)
        return code;
    machine_set_emit(c->m, on_emit, c);
    machine_set_taken(c->m, on_taken, c);
    code = timeline_forward(tr->t, to, false, &stop, err);
    machine_set_emit(c->m, NULL, NULL);
    machine_set_taken(c->m, NULL, NULL);
    travel_quiet(tr);
    if (!code && stop == TIMELINE_INTERRUPTED)
        code = err_set(err, -EINTR, "interrupted; nothing was written");
    return code;
}

static void print_json(const struct pcap_args *a, const struct capture *c)
{
    fputs("{\"file\":", stdout);
    json_text(stdout, a->output);
    printf(",\"frames_in\":%" PRIu64 ",\"bytes_in\":%" PRIu64 ",\"frames_out\":%" PRIu64
           ",\"bytes_out\":%" PRIu64 ",\"first\":%" PRIu64 ",\"last\":%" PRIu64 "}\n",
           c->in.frames, c->in.bytes, c->sent.frames, c->sent.bytes, c->first.position,
           c->last.position);
}

static void print_text(FILE *to, const struct pcap_args *a, const struct capture *c)
{
    char in[32], out[32];
    fprintf(to, "%s: %" PRIu64 " frames in, %s; %" PRIu64 " frames out, %s\n",
            strcmp(a->output, "-") ? a->output : "reprise", c->in.frames,
            text_bytes(c->in.bytes, in), c->sent.frames, text_bytes(c->sent.bytes, out));
}

/* Exit code. */
static int run(const struct pcap_args *a, struct output_file *file)
{
    bool pipe = !file->file;
    /* Packets are no text: past the guard of standard output. */
    struct capture c = {.out = pipe ? fdopen(dup(STDOUT_FILENO), "w") : file->file};
    struct travel tr;
    struct err err = {0};
    if (!c.out) {
        err_errno(&err, "cannot write standard output");
        return cmd_fail(&err);
    }
    interrupt_catch();
    const struct travel_with with = {.named = &a->disks.where,
                                     .trust = a->disks.trust,
                                     .from_start = !finds(a),
                                     .history = point_is_life(&a->to) ||
                                                (a->has_from && point_is_life(&a->from))};
    int code = travel_open(&tr, a->dir, &with, &err);
    if (!code)
        code = begin(&c, a, &tr, &err);
    if (!code)
        code = capture(&c, a, &tr, &err);
    int result = code ? EX_ERROR : travel_end_code(&tr);
    if (!code && result)
        fprintf(stderr, "reprise: %s\n", timeline_end_text(tr.t));
    travel_close(&tr);
    if (pipe)
        fflush(c.out);
    if (!code && ferror(c.out))
        code = err_set(&err, -EIO, "cannot write %s", pipe ? "standard output" : a->output);
    if (!code && !pipe)
        code = output_commit(file, &err);
    if (code)
        return cmd_fail(&err);
    if (a->json)
        print_json(a, &c);
    else
        print_text(pipe ? stderr : stdout, a, &c);
    return result;
}

int cmd_pcap(int argc, char **argv)
{
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[DIR]",
                                     .doc = doc,
                                     .children = travel_option_children};
    struct pcap_args a = {.to = {.kind = POINT_END}};
    struct output_file file = OUTPUT_CLOSED;
    struct err err = {0};
    option_parse(&argp, argc, argv, &a);
    if (strcmp(a.output, "-") && output_open(&file, a.output, a.force, &err))
        return cmd_fail(&err);
    int code = run(&a, &file);
    output_discard(&file);
    return code;
}
