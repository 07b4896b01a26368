/* See frames.h. */
#include "virtio-gpu-log/frames.h"

#include <string.h>

u64 gpu_frames_step(struct gpu_frames *f, const struct gpu_command *c)
{
    if (c->response)
        return 0;
    if (c->type == VIRTIO_GPU_CMD_SET_SCANOUT) {
        struct virtio_gpu_set_scanout s;
        memcpy(&s, c->bytes, sizeof(s));
        if (s.scanout_id < ARRAY_SIZE(f->shown))
            f->shown[s.scanout_id] = s.resource_id;
    } else if (c->type == VIRTIO_GPU_CMD_RESOURCE_UNREF) {
        struct virtio_gpu_resource_unref u;
        memcpy(&u, c->bytes, sizeof(u));
        for (u32 i = 0; i < ARRAY_SIZE(f->shown); i++)
            if (f->shown[i] == u.resource_id)
                f->shown[i] = 0;
    } else if (c->type == VIRTIO_GPU_CMD_RESOURCE_FLUSH) {
        struct virtio_gpu_resource_flush r;
        memcpy(&r, c->bytes, sizeof(r));
        for (u32 i = 0; r.resource_id && i < ARRAY_SIZE(f->shown); i++)
            if (f->shown[i] == r.resource_id)
                return ++f->count;
    }
    return 0;
}

void gpu_frames_reset(struct gpu_frames *f)
{
    memset(f->shown, 0, sizeof(f->shown));
}
