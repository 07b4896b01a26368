# `make install PREFIX=/usr/local DESTDIR=`, `make uninstall`: mk/install.sh. `make deb`: mk/deb.sh.
PREFIX ?= /usr/local
# What is made here: some programs are left out where their libraries are not.
all:
	@printf '%s\n' $(notdir $(filter build/%,$^)) >build/programs
install: all
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' DOCDIR='$(DOCDIR)' ZSHDIR='$(ZSHDIR)' FISHDIR='$(FISHDIR)' mk/install.sh install
uninstall:
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' mk/install.sh uninstall

# For the release of this machine: build/deb/reprise_VERSION_amd64.deb, and -dbgsym.
deb:
	@images/deps.sh make package
	@mk/deb.sh

.PHONY: install uninstall deb
