/*
 * triangle [WORD...]: draws the picture of gpu-raw (../gpu-raw/picture.h) with OpenGL ES 2 on EGL
 * and GBM, shows it with KMS, and checks what it drew. Words and status are gpu-raw's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EGL_NO_X11
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GLES2/gl2.h>
#include <gbm.h>

#include "images/gpu-raw/card.h"
#include "images/gpu-raw/options.h"
#include "images/gpu-raw/picture.h"

enum { POSITION, VALUE };
enum { SCREENS = 8 /* a swap chain has at most 4 */ };

struct gl {
    struct card card;
    struct picture picture;
    struct gbm_device *gbm;
    struct gbm_surface *surface;
    EGLDisplay display;
    EGLSurface window;
    GLuint coloured, textured, planted;
    struct buffer screen[SCREENS];
    struct gbm_bo *shown;
    u8 *pixels;
};

static const char vertex_text[] = "attribute vec4 position, value;\n"
                                  "varying vec4 v;\n"
                                  "void main()\n"
                                  "{\n"
                                  "    v = value;\n"
                                  "    gl_Position = vec4(position.x, -position.y, 0, 1);\n"
                                  "}\n";
static const char coloured_text[] = "precision highp float;\n"
                                    "varying vec4 v;\n"
                                    "void main() { gl_FragColor = v; }\n";
static const char planted_text[] = "precision highp float;\n"
                                   "varying vec4 v;\n"
                                   "void main() { gl_FragColor = v.bgra; }\n";
static const char textured_text[] = "precision highp float;\n"
                                    "varying vec4 v;\n"
                                    "uniform sampler2D t;\n"
                                    "void main() { gl_FragColor = texture2D(t, v.xy); }\n";

static enum status refused(const char *what)
{
    printf("triangle: %s (EGL error %#x)\n", what, (unsigned)eglGetError());
    return REFUSED;
}

static GLuint compile(GLenum type, const char *text)
{
    GLint good = 0;
    GLuint s = glCreateShader(type);
    glShaderSource(s, 1, &text, NULL);
    glCompileShader(s);
    glGetShaderiv(s, GL_COMPILE_STATUS, &good);
    if (!good) {
        char log[512] = "";
        glGetShaderInfoLog(s, sizeof(log), NULL, log);
        printf("triangle: a shader: %s\n", log);
    }
    return s;
}

static GLuint program(const char *fragment_text)
{
    GLint good = 0;
    GLuint p = glCreateProgram();
    glAttachShader(p, compile(GL_VERTEX_SHADER, vertex_text));
    glAttachShader(p, compile(GL_FRAGMENT_SHADER, fragment_text));
    glBindAttribLocation(p, POSITION, "position");
    glBindAttribLocation(p, VALUE, "value");
    glLinkProgram(p);
    glGetProgramiv(p, GL_LINK_STATUS, &good);
    return good ? p : 0;
}

static EGLConfig config_of(EGLDisplay display, EGLint visual)
{
    static const EGLint wanted[] = {EGL_SURFACE_TYPE, EGL_WINDOW_BIT, EGL_RENDERABLE_TYPE,
                                    EGL_OPENGL_ES2_BIT, EGL_NONE};
    EGLConfig all[128];
    EGLint count = 0, id;
    eglChooseConfig(display, wanted, all, 128, &count);
    for (EGLint i = 0; i < count; i++)
        if (eglGetConfigAttrib(display, all[i], EGL_NATIVE_VISUAL_ID, &id) && id == visual)
            return all[i];
    return NULL;
}

static enum status open_window(struct gl *g)
{
    static const EGLint version[] = {EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE};
    PFNEGLGETPLATFORMDISPLAYEXTPROC get_display = (PFNEGLGETPLATFORMDISPLAYEXTPROC)(void (*)(
        void))eglGetProcAddress("eglGetPlatformDisplayEXT");
    g->gbm = gbm_create_device(g->card.fd);
    if (!g->gbm || !get_display)
        return refused("no GBM");
    g->surface = gbm_surface_create(g->gbm, g->picture.width, g->picture.height,
                                    GBM_FORMAT_XRGB8888, GBM_BO_USE_RENDERING | GBM_BO_USE_SCANOUT);
    g->display = get_display(EGL_PLATFORM_GBM_KHR, g->gbm, NULL);
    if (!g->surface || !eglInitialize(g->display, NULL, NULL))
        return refused("no EGL");
    eglBindAPI(EGL_OPENGL_ES_API);
    EGLConfig config = config_of(g->display, GBM_FORMAT_XRGB8888);
    EGLContext context =
        config ? eglCreateContext(g->display, config, EGL_NO_CONTEXT, version) : EGL_NO_CONTEXT;
    if (context == EGL_NO_CONTEXT)
        return refused("no context");
    g->window = eglCreateWindowSurface(g->display, config, (EGLNativeWindowType)g->surface, NULL);
    if (!eglMakeCurrent(g->display, g->window, g->window, context))
        return refused("no window");
    const char *renderer = (const char *)glGetString(GL_RENDERER);
    printf("triangle: %s, %s\n", renderer, (const char *)glGetString(GL_VERSION));
    if (strncmp(renderer, "virgl", 5)) {
        printf("triangle: the display has no 3D: the machine needs a virtio-gpu with virgl\n");
        return NO_3D;
    }
    return RIGHT;
}

static enum status set_up(struct gl *g)
{
    GLuint buffer, texture;
    g->coloured = program(coloured_text);
    g->textured = program(textured_text);
    g->planted = program(planted_text);
    if (!g->coloured || !g->textured || !g->planted)
        return refused("no program");
    glGenBuffers(1, &buffer);
    glBindBuffer(GL_ARRAY_BUFFER, buffer);
    glBufferData(GL_ARRAY_BUFFER, VERTICES * sizeof(struct vertex), NULL, GL_DYNAMIC_DRAW);
    glEnableVertexAttribArray(POSITION);
    glEnableVertexAttribArray(VALUE);
    glVertexAttribPointer(POSITION, 4, GL_FLOAT, 0, sizeof(struct vertex),
                          (void *)offsetof(struct vertex, position));
    glVertexAttribPointer(VALUE, 4, GL_FLOAT, 0, sizeof(struct vertex),
                          (void *)offsetof(struct vertex, value));
    glGenTextures(1, &texture);
    glBindTexture(GL_TEXTURE_2D, texture);
    glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA, SQUARE, SQUARE, 0, GL_RGBA, GL_UNSIGNED_BYTE, NULL);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
    glDisable(GL_DITHER);
    glViewport(0, 0, (GLsizei)g->picture.width, (GLsizei)g->picture.height);
    glClearColor((BACKGROUND >> 16) / 255.f, (BACKGROUND >> 8 & 255) / 255.f,
                 (BACKGROUND & 255) / 255.f, 1);
    g->pixels = malloc((size_t)g->picture.width * g->picture.height * 8);
    return g->pixels ? RIGHT : refused("no memory");
}

static void draw_frame(struct gl *g, u32 frame, bool planted)
{
    struct vertex v[VERTICES];
    u8 texture[SQUARE * SQUARE * 4];
    picture_vertices(&g->picture, frame, v);
    picture_texture(frame, texture);
    glBufferSubData(GL_ARRAY_BUFFER, 0, sizeof(v), v);
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, SQUARE, SQUARE, GL_RGBA, GL_UNSIGNED_BYTE, texture);
    glClear(GL_COLOR_BUFFER_BIT);
    glUseProgram(planted ? g->planted : g->coloured);
    glDrawArrays(GL_TRIANGLES, TRIANGLE, 3);
    glUseProgram(g->coloured);
    glDrawArrays(GL_TRIANGLES, COLOURED, 6);
    glUseProgram(g->textured);
    glDrawArrays(GL_TRIANGLES, TEXTURED, 6);
}

/* What was drawn; OpenGL's rows come from the bottom. */
static void check_frame(struct gl *g, u32 frame, struct check *result)
{
    u32 width = g->picture.width, height = g->picture.height;
    u32 *rows = (u32 *)(void *)(g->pixels + (size_t)width * height * 4);
    glReadPixels(0, 0, (GLsizei)width, (GLsizei)height, GL_RGBA, GL_UNSIGNED_BYTE, g->pixels);
    for (u32 y = 0; y < height; y++) {
        const u8 *from = g->pixels + (size_t)(height - 1 - y) * width * 4;
        for (u32 x = 0; x < width; x++, from += 4)
            rows[y * width + x] = (u32)from[0] << 16 | (u32)from[1] << 8 | from[2];
    }
    picture_check(&g->picture, frame, rows, result);
}

/* The framebuffer of a buffer of the swap chain; made when it is seen first. */
static struct buffer *screen_of(struct gl *g, struct gbm_bo *bo)
{
    u32 handle = gbm_bo_get_handle(bo).u32;
    for (u32 i = 0; i < SCREENS; i++) {
        struct buffer *b = &g->screen[i];
        if (b->bo == handle)
            return b;
        if (!b->bo) {
            *b = (struct buffer){.bo = handle, .stride = gbm_bo_get_stride(bo)};
            return card_framebuffer(&g->card, b) ? NULL : b;
        }
    }
    return NULL;
}

static enum status show_frame(struct gl *g, bool first)
{
    if (!eglSwapBuffers(g->display, g->window))
        return refused("no swap");
    struct gbm_bo *bo = gbm_surface_lock_front_buffer(g->surface);
    struct buffer *b = bo ? screen_of(g, bo) : NULL;
    if (!b || card_show(&g->card, b, first))
        return refused("no screen");
    if (g->shown)
        gbm_surface_release_buffer(g->surface, g->shown);
    g->shown = bo;
    return RIGHT;
}

static enum status one_frame(struct gl *g, const struct options *o, u32 n)
{
    struct check r = {0};
    bool check = options_check(o, n);
    draw_frame(g, n - 1, n == o->planted);
    if (check)
        check_frame(g, n - 1, &r);
    enum status status = show_frame(g, n == 1);
    if (status == RIGHT && check) {
        picture_print(n, &r);
        printf("\n");
    } else if (status == RIGHT && !o->frames) {
        printf("frame %u\n", n);
    }
    return status == RIGHT && r.wrong ? WRONG_PIXELS : status;
}

static enum status frames(struct gl *g, const struct options *o)
{
    enum status worst = RIGHT, one;
    double began = options_now();
    for (u32 n = 1; worst != REFUSED && (!o->frames || n <= o->frames); n++) {
        one = one_frame(g, o, n);
        worst = one > worst ? one : worst;
        if (n == 1)
            printf("triangle: first frame at %.3f s\n", options_now());
    }
    double seconds = options_now() - began;
    printf("triangle: %u frames in %.3f s, %.1f a second\n", o->frames, seconds,
           o->frames / seconds);
    return worst;
}

int main(int argc, char **argv)
{
    static struct gl g;
    struct options o = {.frames = 300, .every = 30};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (options_parse(&o, "triangle", false, argc - 1, argv + 1))
        return BAD_WORD;
    int error = card_open(&g.card);
    if (error) {
        printf("triangle: no display: /dev/dri/card0: %s\n", strerror(-error));
        return NO_3D;
    }
    if (card_find_mode(&g.card, o.width, o.height) || g.card.mode.hdisplay < PICTURE_MIN ||
        g.card.mode.vdisplay < PICTURE_MIN) {
        printf("triangle: the display has no mode of %ux%u that is at least %ux%u\n", o.width,
               o.height, PICTURE_MIN, PICTURE_MIN);
        return BAD_WORD;
    }
    g.picture = (struct picture){g.card.mode.hdisplay, g.card.mode.vdisplay};
    enum status status = open_window(&g);
    if (!status)
        status = set_up(&g);
    return status ? status : frames(&g, &o);
}
