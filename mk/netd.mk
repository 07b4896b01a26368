# reprise-net, the companion of a `--net user`: a program of its own, so that reprise does not link
# with libslirp.
NETD_SRC := $(wildcard vmm/netd/*.c)
NETD_OBJ := $(NETD_SRC:%.c=$(B)/%.o)
NETD_LIBS := -lslirp -lseccomp
$(NETD_OBJ): | $(B)/needs/net

all: build/reprise-net

CFLAGS_vmm/netd/nat := -isystem /usr/include/slirp

build/reprise-net: $(B)/reprise-net
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise-net: $(NETD_OBJ) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(NETD_LIBS)

# What reads bytes of guests is tested by itself.
$(B)/tests/unit/test_net_fragments $(B)/tests/fuzz/fuzz_net: $(B)/vmm/netd/fragments.o

test-build: build/reprise-net $(B)/reprise-net
-include $(NETD_OBJ:.o=.d)
