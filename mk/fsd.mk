# reprise-fs, the file server of a `--share`: a program of its own.
FSD_SRC := $(wildcard vmm/fsd/*.c)
FSD_OBJ := $(FSD_SRC:%.c=$(B)/%.o)
FSD_LIBS := -lseccomp -lxxhash

all: build/reprise-fs

build/reprise-fs: $(B)/reprise-fs
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise-fs: $(FSD_OBJ) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(FSD_LIBS)

# What reads requests of guests is tested by itself.
$(B)/tests/fuzz/fuzz_share: $(filter-out %/main.o %/sandbox.o,$(FSD_OBJ))

test-build: build/reprise-fs $(B)/reprise-fs
-include $(FSD_OBJ:.o=.d)
