/* What a machine's screen shows, as a file: see travel.h. */
#include <errno.h>

#include "cmd/replay_screen.h"
#include "cmd/travel.h"
#include "host/picture.h"

static void screen_row(void *opaque, u32 y, u8 *rgb)
{
    replay_screen_row(opaque, y, rgb);
}

int write_screenshot(struct travel *tr, const char *path, bool force, struct err *err)
{
    struct output_file out;
    struct dev_screen screen;
    if (!tr->screen)
        tr->screen = replay_screen_create(timeline_recording(tr->t)->rec.path);
    if (!tr->screen)
        return err_set(err, -ENOMEM, "no memory for the screen");
    int code = replay_screen_take(tr->screen, timeline_machine(tr->t), &screen, err);
    if (code)
        return code;
    if (screen.drawn && timeline_branched(tr->t))
        return err_set(err, -ENOTSUP,
                       "what a renderer drew is known for the recording, not for a what-if branch");
    code = output_open(&out, path, force, err);
    if (!code)
        code = picture_write(out.file, screen.width, screen.height, screen_row, tr->screen, err);
    if (!code)
        code = output_commit(&out, err);
    output_discard(&out);
    return code;
}
