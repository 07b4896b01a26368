# reprise-libvirt, which reads domains of libvirt's: a program of its own, where libvirt's headers and
# libxml2 are. libvirt's library is not linked with: it is loaded when somebody asks.
LIBVIRT_SRC := $(wildcard vmm/libvirt/*.c)
LIBVIRT_OBJ := $(LIBVIRT_SRC:%.c=$(B)/%.o)
LIBVIRT_LIBS := -lxml2 -lseccomp
HAVE_LIBVIRT := $(shell pkg-config --exists libvirt libxml-2.0 2>/dev/null && echo yes)

LIBVIRT_CFLAGS := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags libvirt libxml-2.0 2>/dev/null))
$(foreach f,$(LIBVIRT_SRC:%.c=%) tests/fuzz/fuzz_libvirt_xml,$(eval CFLAGS_$f := $(LIBVIRT_CFLAGS)))

ifeq ($(HAVE_LIBVIRT),yes)
all: build/reprise-libvirt
test-build: build/reprise-libvirt $(B)/reprise-libvirt
endif

build/reprise-libvirt: $(B)/reprise-libvirt
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise-libvirt: $(LIBVIRT_OBJ) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBVIRT_LIBS)

# What reads XML is tested by itself.
$(B)/tests/fuzz/fuzz_libvirt_xml: $(filter-out %/main.o %/fetch.o %/sandbox.o,$(LIBVIRT_OBJ))
$(B)/tests/fuzz/fuzz_libvirt_xml: LDLIBS += -lxml2

-include $(LIBVIRT_OBJ:.o=.d)
