# reprise-display, the viewer: a program of its own, so that reprise links neither with SDL nor with
# libvncserver.
VIEWER_SRC := $(wildcard vmm/viewer/*.c)
VIEWER_OBJ := $(VIEWER_SRC:%.c=$(B)/%.o)
VIEWER_LIBS := -lvncserver -lSDL2 -lseccomp
$(VIEWER_OBJ): | $(B)/needs/display

all: build/reprise-display

CFLAGS_vmm/viewer/sdl := $(shell pkg-config --cflags sdl2 2>/dev/null)

build/reprise-display: $(B)/reprise-display
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise-display: $(VIEWER_OBJ) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(VIEWER_LIBS)

test-build: build/reprise-display $(B)/reprise-display
-include $(VIEWER_OBJ:.o=.d)
