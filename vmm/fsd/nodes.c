/* See nodes.h. Names are hashed with their parent; free nodes are a list. */
#include "fsd/nodes.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FIRST 256u

static u32 chain_of(const struct nodes *t, u32 parent, const char *name, u32 len)
{
    return (u32)XXH3_64bits_withSeed(name, len, parent) & t->mask;
}

bool node_is(const struct node *n, const struct stat *st)
{
    return n->dev == st->st_dev && n->ino == st->st_ino && n->type == (st->st_mode & S_IFMT);
}

static void become(struct node *n, const struct stat *st)
{
    n->dev = st->st_dev;
    n->ino = st->st_ino;
    n->type = st->st_mode & S_IFMT;
}

bool nodes_init(struct nodes *t, u32 epoch, const struct stat *root)
{
    *t = (struct nodes){
        .epoch = epoch, .n = 1, .room = FIRST, .free = NODE_NONE, .mask = FIRST - 1, .used = 1};
    t->at = calloc(t->room, sizeof(*t->at));
    t->chains = malloc(FIRST * sizeof(*t->chains));
    if (!t->at || !t->chains || !(t->at[NODE_ROOT].name = strdup(""))) {
        nodes_fini(t);
        return false;
    }
    memset(t->chains, 0xff, FIRST * sizeof(*t->chains));
    become(&t->at[NODE_ROOT], root);
    t->at[NODE_ROOT].lookups = 1;
    t->at[NODE_ROOT].parent = NODE_NONE;
    return true;
}

void nodes_fini(struct nodes *t)
{
    for (u32 i = 0; t->at && i < t->n; i++)
        free(t->at[i].name);
    free(t->at);
    free(t->chains);
    t->at = NULL;
    t->chains = NULL;
}

u32 node_of(const struct nodes *t, u64 id)
{
    u32 node = (u32)id - 1;
    return node < t->n && node_id(t, node) == id && t->at[node].name && t->at[node].lookups
               ? node
               : NODE_NONE;
}

static u32 *link_to(struct nodes *t, u32 node)
{
    const struct node *n = &t->at[node];
    u32 *link = &t->chains[chain_of(t, n->parent, n->name, n->len)];
    while (*link != node)
        link = &t->at[*link].next;
    return link;
}

static void unhash(struct nodes *t, u32 node)
{
    if (!t->at[node].hashed)
        return;
    *link_to(t, node) = t->at[node].next;
    t->at[node].hashed = false;
}

static void hash(struct nodes *t, u32 node)
{
    struct node *n = &t->at[node];
    u32 *chain = &t->chains[chain_of(t, n->parent, n->name, n->len)];
    n->next = *chain;
    n->hashed = true;
    *chain = node;
}

/* As many chains as nodes, about. A host without memory keeps longer ones. */
static void rehash(struct nodes *t)
{
    u32 count = (t->mask + 1) * 2;
    u32 *chains = malloc(count * sizeof(*chains));
    if (!chains)
        return;
    memset(chains, 0xff, count * sizeof(*chains));
    free(t->chains);
    t->chains = chains;
    t->mask = count - 1;
    for (u32 i = 0; i < t->n; i++)
        if (t->at[i].name && t->at[i].hashed)
            hash(t, i);
}

static u32 take_free(struct nodes *t)
{
    u32 node = t->free;
    if (node != NODE_NONE) {
        t->free = t->at[node].next;
        return node;
    }
    if (t->n == NODES_MAX)
        return NODE_NONE;
    if (t->n == t->room) {
        struct node *more = realloc(t->at, 2 * (size_t)t->room * sizeof(*more));
        if (!more)
            return NODE_NONE;
        t->at = more;
        t->room *= 2;
    }
    return t->n++;
}

/* A link's text is in the guest's cache for good, and a device's number. */
static bool may_go_on(const struct node *n, const struct stat *st)
{
    return !n->handles && n->type == (st->st_mode & S_IFMT) &&
           (n->type == S_IFREG || n->type == S_IFDIR);
}

u32 node_child(struct nodes *t, u32 parent, const char *name, u32 len, const struct stat *st,
               bool *other)
{
    *other = false;
    u32 node = t->chains[chain_of(t, parent, name, len)];
    while (node != NODE_NONE) {
        const struct node *n = &t->at[node];
        if (n->parent == parent && n->len == len && !memcmp(n->name, name, len))
            break;
        node = n->next;
    }
    if (node != NODE_NONE && node_is(&t->at[node], st))
        return node;
    if (node != NODE_NONE && may_go_on(&t->at[node], st)) {
        struct node *n = &t->at[node];
        become(n, st);
        n->version = n->told = 0;
        n->asked_again = false;
        *other = true;
        return node;
    }
    if (node != NODE_NONE)
        unhash(t, node); /* another file has the name by now */
    char *copy = strndup(name, len);
    node = copy ? take_free(t) : NODE_NONE;
    if (node == NODE_NONE) {
        free(copy);
        return NODE_NONE;
    }
    t->at[node] = (struct node){
        .name = copy, .len = (u16)len, .parent = parent, .generation = ++t->generation};
    become(&t->at[node], st);
    t->at[parent].users++;
    t->used++;
    if (t->used > t->mask)
        rehash(t);
    hash(t, node);
    return node;
}

void node_forget(struct nodes *t, u32 node, u64 lookups, void (*gone)(void *opaque, u32 node),
                 void *opaque)
{
    struct node *n = &t->at[node];
    n->lookups -= MIN(lookups, n->lookups);
    while (node != NODE_ROOT && !t->at[node].lookups && !t->at[node].users) {
        u32 parent = t->at[node].parent;
        gone(opaque, node);
        unhash(t, node);
        free(t->at[node].name);
        t->at[node] = (struct node){.next = t->free};
        t->free = node;
        t->used--;
        t->at[parent].users--;
        node = parent;
    }
    if (!t->at[NODE_ROOT].lookups)
        t->at[NODE_ROOT].lookups = 1; /* it is nobody's to forget */
}
