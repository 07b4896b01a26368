/* Lists that grow by one. */
#ifndef REPRISE_GPU_GROW_H
#define REPRISE_GPU_GROW_H

#include <stdlib.h>

/* The list of `count` with room for one more, moved if need be. NULL: there is no memory, and the
 * list is as it was. */
static inline void *list_grow(void *list, size_t count, size_t *room, size_t each)
{
    if (count < *room)
        return list;
    size_t more = *room ? *room * 2 : 8;
    void *p = realloc(list, more * each);
    if (p)
        *room = more;
    return p;
}

#endif
