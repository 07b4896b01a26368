# The agent of guests (guest-agent/agent), static, so that it runs in any: build/reprise-agent, and process 1 of the
# image `run`.
build/reprise-agent: $(wildcard guest-agent/agent/*.[ch] guest-agent/agent/*.def) guest-agent/reprise-mark.h mk/agent.mk | $(B)/needs/reprise
	@mkdir -p $(@D)
	@echo "  CC $@"
	@gcc -std=gnu11 -D_GNU_SOURCE -Os -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wvla \
		$(if $(filter 1,$(WERROR)),-Werror) -static -s -I. -o $@.tmp guest-agent/agent/*.c && mv -f $@.tmp $@
all: build/reprise-agent
