/* A window, by SDL. Keys are told by where they are (SDL's scancodes), so the guest's own layout
 * decides what they mean. */
#include <SDL.h>
#include <linux/input-event-codes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "viewer/viewer.h"

#define LOOK_MS 10 /* SDL cannot be waited for together with a socket */

struct sdl {
    SDL_Window *window;
    SDL_Renderer *renderer;
    SDL_Texture *texture;
    bool dirty;
};

/* USB usage of a key (SDL's scancode) to Linux's. */
static const u8 keys[SDL_NUM_SCANCODES] = {
    [SDL_SCANCODE_A] = KEY_A,
    [SDL_SCANCODE_B] = KEY_B,
    [SDL_SCANCODE_C] = KEY_C,
    [SDL_SCANCODE_D] = KEY_D,
    [SDL_SCANCODE_E] = KEY_E,
    [SDL_SCANCODE_F] = KEY_F,
    [SDL_SCANCODE_G] = KEY_G,
    [SDL_SCANCODE_H] = KEY_H,
    [SDL_SCANCODE_I] = KEY_I,
    [SDL_SCANCODE_J] = KEY_J,
    [SDL_SCANCODE_K] = KEY_K,
    [SDL_SCANCODE_L] = KEY_L,
    [SDL_SCANCODE_M] = KEY_M,
    [SDL_SCANCODE_N] = KEY_N,
    [SDL_SCANCODE_O] = KEY_O,
    [SDL_SCANCODE_P] = KEY_P,
    [SDL_SCANCODE_Q] = KEY_Q,
    [SDL_SCANCODE_R] = KEY_R,
    [SDL_SCANCODE_S] = KEY_S,
    [SDL_SCANCODE_T] = KEY_T,
    [SDL_SCANCODE_U] = KEY_U,
    [SDL_SCANCODE_V] = KEY_V,
    [SDL_SCANCODE_W] = KEY_W,
    [SDL_SCANCODE_X] = KEY_X,
    [SDL_SCANCODE_Y] = KEY_Y,
    [SDL_SCANCODE_Z] = KEY_Z,
    [SDL_SCANCODE_1] = KEY_1,
    [SDL_SCANCODE_2] = KEY_2,
    [SDL_SCANCODE_3] = KEY_3,
    [SDL_SCANCODE_4] = KEY_4,
    [SDL_SCANCODE_5] = KEY_5,
    [SDL_SCANCODE_6] = KEY_6,
    [SDL_SCANCODE_7] = KEY_7,
    [SDL_SCANCODE_8] = KEY_8,
    [SDL_SCANCODE_9] = KEY_9,
    [SDL_SCANCODE_0] = KEY_0,
    [SDL_SCANCODE_RETURN] = KEY_ENTER,
    [SDL_SCANCODE_ESCAPE] = KEY_ESC,
    [SDL_SCANCODE_BACKSPACE] = KEY_BACKSPACE,
    [SDL_SCANCODE_TAB] = KEY_TAB,
    [SDL_SCANCODE_SPACE] = KEY_SPACE,
    [SDL_SCANCODE_MINUS] = KEY_MINUS,
    [SDL_SCANCODE_EQUALS] = KEY_EQUAL,
    [SDL_SCANCODE_LEFTBRACKET] = KEY_LEFTBRACE,
    [SDL_SCANCODE_RIGHTBRACKET] = KEY_RIGHTBRACE,
    [SDL_SCANCODE_BACKSLASH] = KEY_BACKSLASH,
    [SDL_SCANCODE_NONUSHASH] = KEY_BACKSLASH,
    [SDL_SCANCODE_SEMICOLON] = KEY_SEMICOLON,
    [SDL_SCANCODE_APOSTROPHE] = KEY_APOSTROPHE,
    [SDL_SCANCODE_GRAVE] = KEY_GRAVE,
    [SDL_SCANCODE_COMMA] = KEY_COMMA,
    [SDL_SCANCODE_PERIOD] = KEY_DOT,
    [SDL_SCANCODE_SLASH] = KEY_SLASH,
    [SDL_SCANCODE_CAPSLOCK] = KEY_CAPSLOCK,
    [SDL_SCANCODE_F1] = KEY_F1,
    [SDL_SCANCODE_F2] = KEY_F2,
    [SDL_SCANCODE_F3] = KEY_F3,
    [SDL_SCANCODE_F4] = KEY_F4,
    [SDL_SCANCODE_F5] = KEY_F5,
    [SDL_SCANCODE_F6] = KEY_F6,
    [SDL_SCANCODE_F7] = KEY_F7,
    [SDL_SCANCODE_F8] = KEY_F8,
    [SDL_SCANCODE_F9] = KEY_F9,
    [SDL_SCANCODE_F10] = KEY_F10,
    [SDL_SCANCODE_F11] = KEY_F11,
    [SDL_SCANCODE_F12] = KEY_F12,
    [SDL_SCANCODE_F13] = KEY_F13,
    [SDL_SCANCODE_F14] = KEY_F14,
    [SDL_SCANCODE_F15] = KEY_F15,
    [SDL_SCANCODE_F16] = KEY_F16,
    [SDL_SCANCODE_F17] = KEY_F17,
    [SDL_SCANCODE_F18] = KEY_F18,
    [SDL_SCANCODE_F19] = KEY_F19,
    [SDL_SCANCODE_F20] = KEY_F20,
    [SDL_SCANCODE_F21] = KEY_F21,
    [SDL_SCANCODE_F22] = KEY_F22,
    [SDL_SCANCODE_F23] = KEY_F23,
    [SDL_SCANCODE_F24] = KEY_F24,
    [SDL_SCANCODE_PRINTSCREEN] = KEY_SYSRQ,
    [SDL_SCANCODE_SCROLLLOCK] = KEY_SCROLLLOCK,
    [SDL_SCANCODE_PAUSE] = KEY_PAUSE,
    [SDL_SCANCODE_INSERT] = KEY_INSERT,
    [SDL_SCANCODE_HOME] = KEY_HOME,
    [SDL_SCANCODE_PAGEUP] = KEY_PAGEUP,
    [SDL_SCANCODE_DELETE] = KEY_DELETE,
    [SDL_SCANCODE_END] = KEY_END,
    [SDL_SCANCODE_PAGEDOWN] = KEY_PAGEDOWN,
    [SDL_SCANCODE_RIGHT] = KEY_RIGHT,
    [SDL_SCANCODE_LEFT] = KEY_LEFT,
    [SDL_SCANCODE_DOWN] = KEY_DOWN,
    [SDL_SCANCODE_UP] = KEY_UP,
    [SDL_SCANCODE_NUMLOCKCLEAR] = KEY_NUMLOCK,
    [SDL_SCANCODE_KP_DIVIDE] = KEY_KPSLASH,
    [SDL_SCANCODE_KP_MULTIPLY] = KEY_KPASTERISK,
    [SDL_SCANCODE_KP_MINUS] = KEY_KPMINUS,
    [SDL_SCANCODE_KP_PLUS] = KEY_KPPLUS,
    [SDL_SCANCODE_KP_ENTER] = KEY_KPENTER,
    [SDL_SCANCODE_KP_1] = KEY_KP1,
    [SDL_SCANCODE_KP_2] = KEY_KP2,
    [SDL_SCANCODE_KP_3] = KEY_KP3,
    [SDL_SCANCODE_KP_4] = KEY_KP4,
    [SDL_SCANCODE_KP_5] = KEY_KP5,
    [SDL_SCANCODE_KP_6] = KEY_KP6,
    [SDL_SCANCODE_KP_7] = KEY_KP7,
    [SDL_SCANCODE_KP_8] = KEY_KP8,
    [SDL_SCANCODE_KP_9] = KEY_KP9,
    [SDL_SCANCODE_KP_0] = KEY_KP0,
    [SDL_SCANCODE_KP_PERIOD] = KEY_KPDOT,
    [SDL_SCANCODE_KP_EQUALS] = KEY_KPEQUAL,
    [SDL_SCANCODE_KP_COMMA] = KEY_KPCOMMA,
    [SDL_SCANCODE_NONUSBACKSLASH] = KEY_102ND,
    [SDL_SCANCODE_APPLICATION] = KEY_COMPOSE,
    [SDL_SCANCODE_POWER] = KEY_POWER,
    [SDL_SCANCODE_EXECUTE] = KEY_OPEN,
    [SDL_SCANCODE_HELP] = KEY_HELP,
    [SDL_SCANCODE_MENU] = KEY_MENU,
    [SDL_SCANCODE_SELECT] = KEY_FRONT,
    [SDL_SCANCODE_STOP] = KEY_STOP,
    [SDL_SCANCODE_AGAIN] = KEY_AGAIN,
    [SDL_SCANCODE_UNDO] = KEY_UNDO,
    [SDL_SCANCODE_CUT] = KEY_CUT,
    [SDL_SCANCODE_COPY] = KEY_COPY,
    [SDL_SCANCODE_PASTE] = KEY_PASTE,
    [SDL_SCANCODE_FIND] = KEY_FIND,
    [SDL_SCANCODE_MUTE] = KEY_MUTE,
    [SDL_SCANCODE_VOLUMEUP] = KEY_VOLUMEUP,
    [SDL_SCANCODE_VOLUMEDOWN] = KEY_VOLUMEDOWN,
    [SDL_SCANCODE_INTERNATIONAL1] = KEY_RO,
    [SDL_SCANCODE_INTERNATIONAL2] = KEY_KATAKANAHIRAGANA,
    [SDL_SCANCODE_INTERNATIONAL3] = KEY_YEN,
    [SDL_SCANCODE_INTERNATIONAL4] = KEY_HENKAN,
    [SDL_SCANCODE_INTERNATIONAL5] = KEY_MUHENKAN,
    [SDL_SCANCODE_LANG1] = KEY_HANGEUL,
    [SDL_SCANCODE_LANG2] = KEY_HANJA,
    [SDL_SCANCODE_LCTRL] = KEY_LEFTCTRL,
    [SDL_SCANCODE_LSHIFT] = KEY_LEFTSHIFT,
    [SDL_SCANCODE_LALT] = KEY_LEFTALT,
    [SDL_SCANCODE_LGUI] = KEY_LEFTMETA,
    [SDL_SCANCODE_RCTRL] = KEY_RIGHTCTRL,
    [SDL_SCANCODE_RSHIFT] = KEY_RIGHTSHIFT,
    [SDL_SCANCODE_RALT] = KEY_RIGHTALT,
    [SDL_SCANCODE_RGUI] = KEY_RIGHTMETA,
};

static bool make_texture(struct viewer *v)
{
    struct sdl *s = v->own;
    if (s->texture)
        SDL_DestroyTexture(s->texture);
    /* Bytes R, G, B, nothing. */
    s->texture = SDL_CreateTexture(s->renderer, SDL_PIXELFORMAT_XBGR8888,
                                   SDL_TEXTUREACCESS_STREAMING, (int)v->width, (int)v->height);
    /* The window may have any size: the pointer is told in the picture's pixels. */
    SDL_RenderSetLogicalSize(s->renderer, (int)v->width, (int)v->height);
    s->dirty = true;
    return s->texture && !SDL_UpdateTexture(s->texture, NULL, v->picture, (int)v->width * 4);
}

static void sdl_close(struct viewer *v)
{
    struct sdl *s = v->own;
    if (s->texture)
        SDL_DestroyTexture(s->texture);
    if (s->renderer)
        SDL_DestroyRenderer(s->renderer);
    if (s->window)
        SDL_DestroyWindow(s->window);
    SDL_Quit();
    free(s);
}

static bool sdl_open(struct viewer *v, char *text, size_t size)
{
    struct sdl *s = v->own = calloc(1, sizeof(*s));
    SDL_SetHint(SDL_HINT_NO_SIGNAL_HANDLERS, "1");
    SDL_SetHint(SDL_HINT_VIDEO_ALLOW_SCREENSAVER, "1");
    if (!s) {
        snprintf(text, size, "no memory");
        return false;
    }
    if (!SDL_Init(SDL_INIT_VIDEO) &&
        (s->window =
             SDL_CreateWindow(v->start.title, SDL_WINDOWPOS_UNDEFINED, SDL_WINDOWPOS_UNDEFINED,
                              (int)v->width, (int)v->height, SDL_WINDOW_RESIZABLE)) &&
        (s->renderer = SDL_CreateRenderer(s->window, -1, SDL_RENDERER_SOFTWARE)) &&
        make_texture(v)) {
        SDL_StopTextInput();
        viewer_say(v, VIEWER_WATCHERS, 0, 1);
        return true;
    }
    snprintf(text, size, "SDL cannot open a window: %s", SDL_GetError());
    sdl_close(v);
    return false;
}

static void sdl_resized(struct viewer *v)
{
    struct sdl *s = v->own;
    make_texture(v);
    SDL_SetWindowSize(s->window, (int)v->width, (int)v->height);
}

static void sdl_changed(struct viewer *v, u32 x, u32 y, u32 width, u32 height)
{
    struct sdl *s = v->own;
    SDL_Rect rect = {(int)x, (int)y, (int)width, (int)height};
    SDL_UpdateTexture(s->texture, &rect, v->picture + ((size_t)y * v->width + x) * 4,
                      (int)v->width * 4);
    s->dirty = true;
}

static void sdl_updated(struct viewer *v)
{
}

static void on_button(struct viewer *v, const SDL_MouseButtonEvent *b)
{
    static const u16 buttons[] = {[SDL_BUTTON_LEFT] = BTN_LEFT,
                                  [SDL_BUTTON_MIDDLE] = BTN_MIDDLE,
                                  [SDL_BUTTON_RIGHT] = BTN_RIGHT,
                                  [SDL_BUTTON_X1] = BTN_SIDE,
                                  [SDL_BUTTON_X2] = BTN_EXTRA};
    if (b->button >= ARRAY_SIZE(buttons) || !buttons[b->button])
        return;
    viewer_say_move(v, b->x, b->y);
    viewer_say(v, VIEWER_KEY, buttons[b->button], b->state == SDL_PRESSED);
}

static void on_event(struct viewer *v, const SDL_Event *e)
{
    struct sdl *s = v->own;
    if (e->type == SDL_WINDOWEVENT || e->type == SDL_RENDER_TARGETS_RESET)
        s->dirty = true;
    if (!v->start.input)
        return;
    switch (e->type) {
    case SDL_KEYDOWN:
    case SDL_KEYUP:
        if (e->key.keysym.scancode < SDL_NUM_SCANCODES && keys[e->key.keysym.scancode])
            viewer_say(v, VIEWER_KEY, keys[e->key.keysym.scancode], e->type == SDL_KEYDOWN);
        break;
    case SDL_MOUSEMOTION: viewer_say_move(v, e->motion.x, e->motion.y); break;
    case SDL_MOUSEBUTTONDOWN:
    case SDL_MOUSEBUTTONUP: on_button(v, &e->button); break;
    case SDL_MOUSEWHEEL:
        if (e->wheel.y)
            viewer_say(v, VIEWER_WHEEL, REL_WHEEL, e->wheel.y);
        if (e->wheel.x)
            viewer_say(v, VIEWER_WHEEL, REL_HWHEEL, e->wheel.x);
        break;
    default: break;
    }
}

static bool sdl_serve(struct viewer *v)
{
    struct sdl *s = v->own;
    struct pollfd fd = {.fd = VIEWER_SOCKET, .events = POLLIN};
    SDL_Event e;
    poll(&fd, 1, LOOK_MS);
    while (SDL_PollEvent(&e)) {
        if (e.type == SDL_QUIT)
            return false;
        on_event(v, &e);
    }
    if (s->dirty) {
        SDL_RenderClear(s->renderer);
        SDL_RenderCopy(s->renderer, s->texture, NULL, NULL);
        SDL_RenderPresent(s->renderer);
        s->dirty = false;
    }
    return true;
}

const struct viewer_kind_ops viewer_sdl = {.open = sdl_open,
                                           .resized = sdl_resized,
                                           .changed = sdl_changed,
                                           .updated = sdl_updated,
                                           .serve = sdl_serve,
                                           .close = sdl_close};
