#define _GNU_SOURCE /* asprintf */
/* `reprise verify`: is this recording what it was when it was made, and what somebody signed?
 * `reprise sign` is in sign.c; what both look at is replay/statement.h. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "host/outside.h"
#include "replay/checkpoint.h"
#include "replay/pack.h"
#include "replay/statement.h"

enum { O_KEY = 256, O_NO_REPLAY, O_JSON, O_DISK, O_PATH, O_ENGINE };

/* clang-format off */
static const struct argp_option options[] = {
    {"key", O_KEY, "FILE", 0, "The recording must be signed by the owner of this Ed25519 key (PEM)", 0},
    {"no-replay", O_NO_REPLAY, NULL, 0, "Only what can be checked without replaying: hashes, seals, signature; no checkpoint is compared", 0},
    {"disk", O_DISK, "N=FILE[,OPTION]...", 0, "As with `reprise replay`", 0},
    {"disk-path", O_PATH, "DIR", 0, "The same", 0},
    {"engine", O_ENGINE, "dbt|kvm", 0, "As with `reprise replay`", 0},
    {"json", O_JSON, NULL, 0, "As JSON: a line about the parts, and one about the replay", 0},
    {0},
};
/* clang-format on */

static const char doc[] =
    "Checks a recording: each part against its hash, the log's chain of seals, the signature if "
    "there is one; then replays it and compares every digest, and each checkpoint with what the "
    "replay comes to: those that are right are noted, and used from then on. Prints its identity, "
    "a "
    "SHA-256 that stands for all but the checkpoints.\vWithout --key a signature only says that "
    "nothing was changed since the "
    "owner of the key that it names signed: compare the key's fingerprint with one that you "
    "know.\n\n"
    "Exit codes: 0 all is right; 1 error, or a part, a seal or the signature is not right, or a "
    "checkpoint cannot be read; 2 wrong usage; 3 replay and recording, or a checkpoint, differ; 4 "
    "all is right up to the damage: the log is cut off or "
    "damaged, as a killed recorder leaves it.";

#define PASSED 16 /* options for the replay */

struct verify_args {
    const char *dir, *key;
    bool no_replay, json;
    char *passed[PASSED];
    int npassed;
};

static void pass(struct verify_args *a, struct argp_state *state, const char *name, const char *arg)
{
    if (a->npassed == PASSED - 6)
        argp_error(state, "too many options");
    if (asprintf(&a->passed[a->npassed], "%s=%s", name, arg) > 0)
        a->npassed++;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct verify_args *a = state->input;
    switch (key) {
    case O_KEY: a->key = arg; break;
    case O_NO_REPLAY: a->no_replay = true; break;
    case O_JSON: a->json = true; break;
    case O_DISK: pass(a, state, "--disk", arg); break;
    case O_PATH: pass(a, state, "--disk-path", arg); break;
    case O_ENGINE: pass(a, state, "--engine", arg); break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END: option_need_recording(state, &a->dir); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

struct findings {
    struct statement s;
    enum signature_state signature;
    bool ours;                     /* by --key */
    char fingerprint[SHA256_TEXT]; /* of the key that signed; "" */
    u32 packed;                    /* files of a pack, whose hashes are right; 0: a directory */
    u32 checkpoints;
    bool old;         /* they are of an older version */
    struct err wrong; /* code 0: nothing */
};

/* `named`: the key that it has to be; NULL: any, or why there is none is in f->wrong. */
static void look_at_signature(struct findings *f, const struct signing_key *named, struct opened *o)
{
    struct signing_key *by = NULL;
    struct err err = {0};
    if (f->wrong.code)
        return;
    f->signature = signature_check(&f->s, &o->rec, &by, &err);
    struct sha256 print, mine;
    int code = by ? signing_key_fingerprint(by, &print, &err) : 0;
    if (by && !code) {
        sha256_text(&print, f->fingerprint);
        code = named ? signing_key_fingerprint(named, &mine, &err) : 0;
        f->ours = named && !code && sha256_equal(&mine, &print);
    }
    if (code || f->signature == SIGNATURE_WRONG)
        f->wrong = err;
    else if (named && f->signature == SIGNATURE_NONE)
        err_set(&f->wrong, -EINVAL, "%s is not signed", o->quoted);
    else if (named && !f->ours)
        err_set(&f->wrong, -EINVAL, "%s is signed by another key, %s", o->quoted, f->fingerprint);
    signing_key_destroy(by);
}

static const char *signature_name(const struct findings *f)
{
    return f->signature == SIGNATURE_NONE    ? "none"
           : f->signature == SIGNATURE_WRONG ? "wrong"
           : f->ours                         ? "right"
                                             : "unchecked";
}

static void print_json(const struct findings *f, const char *identity)
{
    printf("{\"identity\":\"%s\",\"sealed\":%s,\"complete\":%s,\"position\":%" PRIu64
           ",\"packed\":%u,\"checkpoints\":%u,\"signature\":\"%s\",\"key\":\"%s\",\"statement\":",
           identity, f->s.sealed ? "true" : "false",
           f->s.log.damage.state == CHUNKS_COMPLETE ? "true" : "false", f->s.log.last_position,
           f->packed, f->checkpoints, signature_name(f), f->fingerprint);
    json_text(stdout, f->s.text);
    fputs(",\"damage\":", stdout);
    json_text(stdout, f->s.log.damage.text);
    fputs(",\"message\":", stdout);
    json_text(stdout, f->wrong.code ? f->wrong.text : "");
    fputs("}\n", stdout);
}

static void print_text(const struct findings *f, const struct verify_args *a, const char *identity)
{
    if (f->packed)
        printf("pack         %u files, hashes right\n", f->packed);
    printf("identity     %s\n", identity);
    for (const char *at = strchr(f->s.text, '\n') + 1; *at; at += strcspn(at, "\n") + 1)
        printf("%-12.*s right\n", (int)strcspn(at, " "), at);
    printf("seals        %s\n", f->s.sealed               ? "right"
                                : f->s.log.damage.text[0] ? "none for all of it"
                                                          : "none: made by an older version");
    if (f->checkpoints)
        printf("checkpoints  %u, of this recording%s\n", f->checkpoints,
               a->no_replay ? "; not compared with a replay" : "");
    else if (f->old)
        puts("checkpoints  of an older version: not used");
    if (f->signature == SIGNATURE_RIGHT)
        printf("signature    right, by the key %s%s\n", f->fingerprint,
               f->ours || f->wrong.code ? "" : " (not checked whose that is: --key)");
    else
        printf("signature    %s\n", signature_name(f));
}

/* Behind the door. What is found is said; an exit code. */
static int look(const struct verify_args *a, const struct signing_key *named, struct findings *f)
{
    struct opened o;
    struct err err = {0};
    sandbox_plan(SANDBOX_READ);
    sandbox_read(a->dir);
    int code = sandbox_enter(&err);
    if (code || (code = open_recording(&o, a->dir, &err)))
        return cmd_fail(&err);
    code = o.rec.pack ? pack_check(o.rec.pack, &err) : 0;
    if (!code && o.rec.pack)
        f->packed = pack_manifest(o.rec.pack, &err)->n;
    if (!code)
        code = statement_make(&f->s, &o, &err);
    if (code) {
        close_recording(&o);
        return cmd_fail(&err);
    }
    look_at_signature(f, named, &o);
    if (!f->wrong.code)
        checkpoints_bound(&o.rec, o.log, &f->checkpoints, &f->old, &f->wrong);
    close_recording(&o);
    char identity[SHA256_TEXT];
    sha256_text(&f->s.hash, identity);
    if (a->json)
        print_json(f, identity);
    else
        print_text(f, a, identity);
    code = f->s.log.damage.state == CHUNKS_COMPLETE ? EX_FINE : EX_DAMAGE;
    if (code == EX_DAMAGE && a->no_replay && !f->wrong.code)
        fprintf(stderr, "reprise: right up to position %" PRIu64 ", where the log ends early: %s\n",
                f->s.log.last_position, f->s.log.damage.text);
    statement_free(&f->s);
    return f->wrong.code ? cmd_fail(&f->wrong) : code;
}

/* In a child: the replay after it has disks to open first, and a door of its own. */
static int look_apart(const struct verify_args *a, const struct signing_key *named,
                      struct findings *f)
{
    struct err err;
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        int code = look(a, named, f);
        if (fflush(stdout) || ferror(stdout))
            code = cmd_fail((err_errno(&err, "cannot write to standard output"), &err));
        outside_end();
        _exit(code);
    }
    pid_t ended = -1;
    while (child > 0 && (ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        ;
    if (child < 0)
        return cmd_fail((err_errno(&err, "cannot start a process"), &err));
    if (ended == child && WIFEXITED(status))
        return WEXITSTATUS(status);
    if (ended == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
        raise(SIGPIPE); /* nobody reads: as without a child */
    err_set(&err, -EIO, "the look at the parts ended too early");
    return cmd_fail(&err);
}

/* The replay says by itself what it finds. */
static int replay(const struct verify_args *a)
{
    char *argv[PASSED + 8];
    int n = 0;
    argv[n++] = (char *)"reprise verify";
    argv[n++] = (char *)"--verify";
    argv[n++] = (char *)(a->json ? "--json" : "--quiet");
    for (int i = 0; i < a->npassed; i++)
        argv[n++] = a->passed[i];
    argv[n++] = (char *)"--";
    argv[n++] = (char *)a->dir;
    argv[n] = NULL;
    return cmd_replay_checking(n, argv);
}

int cmd_verify(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR]", .doc = doc};
    struct verify_args a = {0};
    struct findings f = {0};
    struct signing_key *named = NULL;
    option_parse(&argp, argc, argv, &a);
    if (a.key)
        signing_key_read(&named, a.key, false, &f.wrong);
    int code = a.no_replay ? look(&a, named, &f) : look_apart(&a, named, &f);
    signing_key_destroy(named);
    if (!a.no_replay && (code == EX_FINE || code == EX_DAMAGE))
        code = replay(&a);
    for (int i = 0; i < a.npassed; i++)
        free(a.passed[i]);
    return code;
}
