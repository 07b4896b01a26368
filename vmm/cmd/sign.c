/* `reprise sign`: puts a signature over all parts of a recording into it. */
#include <stdlib.h>

#include "cmd/cmd.h"
#include "replay/statement.h"

enum { O_KEY = 256, O_JSON };

static const struct argp_option options[] = {
    {"key", O_KEY, "FILE", 0, "The private Ed25519 key (PEM; required)", 0},
    {"json", O_JSON, NULL, 0, "Print the result as JSON", 0},
    {0},
};

static const char doc[] =
    "Signs a recording, in the file " SIGNATURE_NAME
    " in it: machine, kernel, initrd, log, GPU log and "
    "contents of shares, so that `reprise verify --key` tells whether anything that a replay comes "
    "from was "
    "changed "
    "since. Contents of disks are not part of a recording; what was read of them the replay "
    "compares. "
    "What is made from the recording (checkpoints, marks) is not signed.\vKeys are made with "
    "`openssl "
    "genpkey -algorithm ed25519 -out KEY.pem` and `openssl pkey -in KEY.pem -pubout -out "
    "PUB.pem`.\n\n"
    "Exit codes: 0 signed; 1 error; 2 wrong usage.";

struct sign_args {
    const char *dir, *key;
    bool json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct sign_args *a = state->input;
    switch (key) {
    case O_KEY: a->key = arg; break;
    case O_JSON: a->json = true; break;
    case ARGP_KEY_ARG: option_recording(state, arg, &a->dir); break;
    case ARGP_KEY_END:
        option_need_recording(state, &a->dir);
        if (!a->key)
            argp_error(state, "--key FILE is missing");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int cmd_sign(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[DIR]", .doc = doc};
    struct sign_args a = {0};
    struct statement s = {0};
    struct signing_key *key = NULL;
    struct err err = {0};
    struct opened o;
    option_parse(&argp, argc, argv, &a);
    int code = signing_key_read(&key, a.key, true, &err);
    sandbox_write(a.dir); /* the signature */
    if (!code)
        code = sandbox_enter(&err);
    if (!code && !(code = open_recording(&o, a.dir, &err))) {
        code = statement_make(&s, &o, &err);
        if (!code)
            code = signature_write(&s, &o.rec, key, &err);
        close_recording(&o);
    }
    struct sha256 print;
    if (!code)
        code = signing_key_fingerprint(key, &print, &err);
    if (!code) {
        char who[SHA256_TEXT], identity[SHA256_TEXT];
        sha256_text(&print, who);
        sha256_text(&s.hash, identity);
        printf(a.json ? "{\"identity\":\"%s\",\"key\":\"%s\"}\n" : "signed %s by the key %s\n",
               identity, who);
    }
    statement_free(&s);
    signing_key_destroy(key);
    return code ? cmd_fail(&err) : EX_FINE;
}
