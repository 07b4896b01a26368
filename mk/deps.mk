# `make deps`: installs the Debian packages that are missing for a plain `make` (images/deps.sh has the
# list). `make demo`, the images and `make test` install theirs.
deps:
	@images/deps.sh make
deps-demo:
	@images/deps.sh demo
deps-all:
	@images/deps.sh

# Before anything is compiled a program is linked with all libraries: where one is missing there is a
# sentence instead of pages of errors. The libraries are those of the programs' own rules.
NEEDS         := reprise net gpu display test
LIBS_reprise   = $(LDLIBS)
LIBS_net       = $(NETD_LIBS)
LIBS_gpu       = $(RENDERER_LIBS)
LIBS_display   = $(VIEWER_LIBS)
LIBS_test      = -lcmocka
$(NEEDS:%=$(B)/needs/%): $(B)/needs/%:
	@mkdir -p $(@D)
	@for tool in $(firstword $(CC)) ar pkg-config iasl; do \
		command -v $$tool >/dev/null || { images/deps.sh --ask "$$tool" $(if $(filter test,$*),,make); exit 1; }; done
	@test $* != reprise || echo 'int x;' | $(CC) $(GPRONLY) -x c -c -o /dev/null - 2>$@.log || { \
		echo "make: $(CC) lacks options of gcc and clang that keep the engine's own code out of the guest's" \
			"vector registers ($@.log says which): CC=gcc" >&2; exit 1; }
	@echo 'int main(void) { return 0; }' | $(CC) $(LDFLAGS) -x c -o $@ - $(LIBS_$*) 2>$@.log || \
		{ images/deps.sh --ask "$(LIBS_$*)" $(if $(filter test,$*),,make); exit 1; }

.PHONY: deps deps-demo deps-all
