# The agent of guests: build/reprise-agent. Images that have it make their own, so that they are made where nothing is built.
AGENT_FILES := $(wildcard guest-agent/agent/*.[ch] guest-agent/agent/*.def) guest-agent/reprise-mark.h guest-agent/build.sh
build/reprise-agent: $(AGENT_FILES) | $(B)/needs/reprise
	@mkdir -p $(@D)
	@echo "  CC $@"
	@WERROR=$(WERROR) guest-agent/build.sh $@
all test-build: build/reprise-agent
