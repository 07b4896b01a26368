# reprise-gpu, the renderer: a program of its own, so that reprise does not link with OpenGL.
RENDERER_SRC := $(wildcard virtio-gpu-log/renderer/*.c)
RENDERER_OBJ := $(RENDERER_SRC:%.c=$(B)/%.o)
RENDERER_LIBS := -lvirglrenderer -lepoxy -lseccomp -ldl
$(RENDERER_OBJ): | $(B)/needs/gpu

all: build/reprise-gpu

CFLAGS_virtio-gpu-log/renderer/host := $(shell pkg-config --cflags virglrenderer 2>/dev/null)

build/reprise-gpu: $(B)/reprise-gpu
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise-gpu: $(RENDERER_OBJ) $(addprefix $(B)/vmm/base/,calls.o limits.o)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(RENDERER_LIBS)

-include $(RENDERER_OBJ:.o=.d)

# Its tests: programs that drive it through the client.
RENDERER_TOOLS := $(addprefix $(B)/tests/tools/,renderer_draw renderer_fuzz gpu_drive gpu_scene gpu_seek \
	gpu_hostile)
$(B)/tests/tools/gpu_scene: $(B)/tests/unit/gpu_stream.o $(B)/tests/fuzz/gpu_repair.o
$(B)/tests/tools/gpu_hostile: $(B)/tests/fuzz/gpu_commands.o
$(RENDERER_TOOLS): $(B)/tests/tools/%: $(B)/tests/tools/%.o $(B)/virtio-gpu-log/renderer/format.o \
		$(B)/virtio-gpu-log/renderer/model.o $(B)/libreprise.a
	@$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libreprise.a $(LDLIBS)
test-build: build/reprise-gpu $(B)/reprise-gpu $(RENDERER_TOOLS)
-include $(RENDERER_TOOLS:=.d)
