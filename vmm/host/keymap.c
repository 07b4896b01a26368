/* See keymap.h. */
#include "host/keymap.h"

#include <linux/input-event-codes.h>
#include <rfb/keysym.h>
#include <string.h>

#include "host/input_report.h"

/* The US layout: the keys of rows of characters, without and with shift. */
static const struct {
    const char *plain, *shifted;
    u16 first; /* the keys' codes are in a row */
} layout[] = {
    {"1234567890-=", "!@#$%^&*()_+", KEY_1},
    {"qwertyuiop[]\n", "QWERTYUIOP{}", KEY_Q},
    {"asdfghjkl;'`", "ASDFGHJKL:\"~", KEY_A},
    {"\\zxcvbnm,./", "|ZXCVBNM<>?", KEY_BACKSLASH},
    {" ", "", KEY_SPACE},
    {"\t", "", KEY_TAB},
};

bool keymap_char(char c, u16 *key, bool *shift)
{
    for (size_t i = 0; c && i < ARRAY_SIZE(layout); i++) {
        const char *plain = strchr(layout[i].plain, c), *shifted = strchr(layout[i].shifted, c);
        if (!plain && !shifted)
            continue;
        *shift = !plain;
        *key = (u16)(layout[i].first +
                     (plain ? plain - layout[i].plain : shifted - layout[i].shifted));
        return true;
    }
    return false;
}

static const struct {
    u32 keysym;
    u16 key;
} others[] = {
    {XK_BackSpace, KEY_BACKSPACE},
    {XK_Tab, KEY_TAB},
    {XK_ISO_Left_Tab, KEY_TAB},
    {XK_Linefeed, KEY_LINEFEED},
    {XK_Return, KEY_ENTER},
    {XK_Pause, KEY_PAUSE},
    {XK_Break, KEY_PAUSE},
    {XK_Scroll_Lock, KEY_SCROLLLOCK},
    {XK_Sys_Req, KEY_SYSRQ},
    {XK_Print, KEY_SYSRQ},
    {XK_Escape, KEY_ESC},
    {XK_Delete, KEY_DELETE},
    {XK_Home, KEY_HOME},
    {XK_Left, KEY_LEFT},
    {XK_Up, KEY_UP},
    {XK_Right, KEY_RIGHT},
    {XK_Down, KEY_DOWN},
    {XK_Page_Up, KEY_PAGEUP},
    {XK_Page_Down, KEY_PAGEDOWN},
    {XK_End, KEY_END},
    {XK_Insert, KEY_INSERT},
    {XK_Menu, KEY_COMPOSE},
    {XK_Help, KEY_HELP},
    {XK_Undo, KEY_UNDO},
    {XK_Redo, KEY_REDO},
    {XK_Find, KEY_FIND},
    {XK_Cancel, KEY_STOP},
    {XK_Num_Lock, KEY_NUMLOCK},
    {XK_Caps_Lock, KEY_CAPSLOCK},
    {XK_Shift_L, KEY_LEFTSHIFT},
    {XK_Shift_R, KEY_RIGHTSHIFT},
    {XK_Control_L, KEY_LEFTCTRL},
    {XK_Control_R, KEY_RIGHTCTRL},
    {XK_Alt_L, KEY_LEFTALT},
    {XK_Alt_R, KEY_RIGHTALT},
    {XK_ISO_Level3_Shift, KEY_RIGHTALT},
    {XK_Mode_switch, KEY_RIGHTALT},
    /* Where viewers have Meta, PCs have Alt. */
    {XK_Meta_L, KEY_LEFTALT},
    {XK_Meta_R, KEY_RIGHTALT},
    {XK_Super_L, KEY_LEFTMETA},
    {XK_Super_R, KEY_RIGHTMETA},
    {XK_Hyper_L, KEY_LEFTMETA},
    {XK_Hyper_R, KEY_RIGHTMETA},
    {XK_F1, KEY_F1},
    {XK_F2, KEY_F2},
    {XK_F3, KEY_F3},
    {XK_F4, KEY_F4},
    {XK_F5, KEY_F5},
    {XK_F6, KEY_F6},
    {XK_F7, KEY_F7},
    {XK_F8, KEY_F8},
    {XK_F9, KEY_F9},
    {XK_F10, KEY_F10},
    {XK_F11, KEY_F11},
    {XK_F12, KEY_F12},
    {XK_F13, KEY_F13},
    {XK_F14, KEY_F14},
    {XK_F15, KEY_F15},
    {XK_F16, KEY_F16},
    {XK_F17, KEY_F17},
    {XK_F18, KEY_F18},
    {XK_F19, KEY_F19},
    {XK_F20, KEY_F20},
    {XK_F21, KEY_F21},
    {XK_F22, KEY_F22},
    {XK_F23, KEY_F23},
    {XK_F24, KEY_F24},
    {XK_KP_Space, KEY_SPACE},
    {XK_KP_Tab, KEY_TAB},
    {XK_KP_Enter, KEY_KPENTER},
    {XK_KP_Home, KEY_KP7},
    {XK_KP_Up, KEY_KP8},
    {XK_KP_Page_Up, KEY_KP9},
    {XK_KP_Left, KEY_KP4},
    {XK_KP_Begin, KEY_KP5},
    {XK_KP_Right, KEY_KP6},
    {XK_KP_End, KEY_KP1},
    {XK_KP_Down, KEY_KP2},
    {XK_KP_Page_Down, KEY_KP3},
    {XK_KP_Insert, KEY_KP0},
    {XK_KP_Delete, KEY_KPDOT},
    {XK_KP_0, KEY_KP0},
    {XK_KP_1, KEY_KP1},
    {XK_KP_2, KEY_KP2},
    {XK_KP_3, KEY_KP3},
    {XK_KP_4, KEY_KP4},
    {XK_KP_5, KEY_KP5},
    {XK_KP_6, KEY_KP6},
    {XK_KP_7, KEY_KP7},
    {XK_KP_8, KEY_KP8},
    {XK_KP_9, KEY_KP9},
    {XK_KP_Equal, KEY_KPEQUAL},
    {XK_KP_Multiply, KEY_KPASTERISK},
    {XK_KP_Add, KEY_KPPLUS},
    {XK_KP_Separator, KEY_KPCOMMA},
    {XK_KP_Subtract, KEY_KPMINUS},
    {XK_KP_Decimal, KEY_KPDOT},
    {XK_KP_Divide, KEY_KPSLASH},
};

u16 keymap_keysym(u32 keysym)
{
    u16 key;
    bool shift;
    /* Printable ASCII is its own keysym. */
    if (keysym >= ' ' && keysym < 127)
        return keymap_char((char)keysym, &key, &shift) ? key : 0;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (others[i].keysym == keysym)
            return others[i].key;
    return 0;
}
