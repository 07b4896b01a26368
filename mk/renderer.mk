# reprise-gpu, the renderer: a program of its own, so that reprise does not link with OpenGL.
GPU_SRC := $(wildcard virtio-gpu-log/renderer/*.c)
GPU_OBJ := $(GPU_SRC:%.c=$(B)/%.o)

all: build/reprise-gpu

CFLAGS_virtio-gpu-log/renderer/host := $(shell pkg-config --cflags virglrenderer 2>/dev/null)

build/reprise-gpu: $(B)/reprise-gpu
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise-gpu: $(GPU_OBJ)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ -lvirglrenderer -lepoxy -lseccomp -ldl

-include $(GPU_OBJ:.o=.d)

# Its tests: programs that drive it through the client.
GPU_TOOLS := $(addprefix $(B)/tests/tools/,renderer_draw renderer_fuzz)
$(GPU_TOOLS): $(B)/tests/tools/%: $(B)/tests/tools/%.o $(B)/virtio-gpu-log/renderer/format.o \
		$(B)/virtio-gpu-log/renderer/model.o $(B)/libreprise.a
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-build: build/reprise-gpu $(B)/reprise-gpu $(GPU_TOOLS)
-include $(GPU_TOOLS:=.d)
