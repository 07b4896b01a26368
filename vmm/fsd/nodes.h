/*
 * What a guest knows of a share: nodes, each a name in its parent, as FUSE's node ids stand for
 * them. A node has no descriptor; it remembers which file of the host it was (device, inode), so
 * that another one of its name is never taken for it.
 */
#ifndef REPRISE_FSD_NODES_H
#define REPRISE_FSD_NODES_H

#include <sys/stat.h>

#include "base/types.h"

#define NODES_MAX   (4u << 20)
#define NODE_ROOT   0u
#define NODE_NONE   UINT32_MAX
#define NAME_LENGTH 1024u /* FUSE_NAME_MAX; most file systems have 255 */

struct node {
    char *name;  /* NULL: the node is free; root: "" */
    u64 lookups; /* that the guest has not forgotten */
    u64 dev, ino;
    u64 version;      /* of the contents when it was opened last; 0: never */
    u64 told;         /* ... that its attributes had which the guest was told last */
    bool asked_again; /* it was to look anew before it opens it */
    u32 parent;
    u32 next;    /* of its hash chain, or free node */
    u32 users;   /* children and handles, */
    u32 handles; /* ... and these alone */
    u32 generation;
    u32 type; /* S_IFMT */
    u16 len;
    u16 cached;  /* its place among the open directories, from 1; 0: none */
    bool hashed; /* it is what its name stands for */
    bool closed; /* of a file system that is not shown (serve.c) */
};

struct nodes {
    struct node *at;
    u32 *chains;
    u32 n, room, free, mask, used;
    u32 generation;
    u32 epoch;
};

/* The share's own directory becomes NODE_ROOT. Ids of one epoch are none of another. false: no
 * memory. */
bool nodes_init(struct nodes *t, u32 epoch, const struct stat *root);
void nodes_fini(struct nodes *t);
/* FUSE's id; NODE_NONE: the guest has no such node. */
u32 node_of(const struct nodes *t, u64 id);
static inline u64 node_id(const struct nodes *t, u32 node)
{
    return (node == NODE_ROOT ? 0 : (u64)t->epoch << 32) | (node + 1);
}
/*
 * The node of a name in a directory, which is that file; made if there is none. NODE_NONE: no
 * memory, or too many. Pointers to nodes are void after that.
 *
 * Where another file has the name by now and the guest has the old one not open, the node goes on
 * as the new one (*other says so): a file or directory under a name that was replaced stays what
 * the name stands for. Linux' overlayfs, which does not ask for a name twice, would have ESTALE for
 * ever. One that is open has contents in the guest's cache, which must not become another's: it
 * stays what it was, and the name has a new node.
 */
u32 node_child(struct nodes *t, u32 parent, const char *name, u32 len, const struct stat *st,
               bool *other);
/* The guest forgets so many lookups; `gone` hears of each node that is freed. */
void node_forget(struct nodes *t, u32 node, u64 lookups, void (*gone)(void *opaque, u32 node),
                 void *opaque);
/* Is it still the file that the node stands for? */
bool node_is(const struct node *n, const struct stat *st);

#endif
